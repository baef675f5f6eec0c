"""Which model a launch asks for, and why.

A *tier* is a size of model without a maker's name: haiku, sonnet, opus, fable. A project speaks of tiers;
what a runtime calls them is in ``models.names``. Each *stage* of the work has a tier of its own, and the
more explicit wins:

    flag > model:<stage>:<tier> > model:<tier> > the run's default > the project's for the stage > the stage's

Two rules bound that. A tier outside the project's allowlist is refused with its reason, never replaced in
silence: a task that asks for more than it may get is a person's to settle. And the tiers that must be named
(fable) come from a flag or a label alone; no default and no recovery reaches them.

A runtime that may be any program (``command``) has no model unless one was named: a tier that only the
stage suggests means nothing to it.

A name that is not a tier is given to the runtime as it stands. It still counts as the tier whose word it
contains (``claude-opus-4-1`` is an opus), so that no spelling gets around the allowlist.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from flyball.errors import UsageError

TIERS: Final = ("haiku", "sonnet", "opus", "fable")
"""From the smallest to the largest."""
EXPLICIT_ONLY: Final = frozenset({"fable"})
DEFAULT_ALLOWED: Final = ("haiku", "sonnet", "opus")
IMPLEMENT: Final = "implement"
REVIEW: Final = "review"
STAGE_TIERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "planning": "opus",
        "design": "opus",
        "scoring": "opus",
        REVIEW: "opus",
        IMPLEMENT: "sonnet",
        "docs": "sonnet",
        "test": "sonnet",
        "explore": "haiku",
        "debug": "haiku",
    }
)
UNKNOWN_STAGE_TIER: Final = "sonnet"
RUNTIME_NAMES: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {"claude": {tier: tier for tier in TIERS}, "command": {tier: tier for tier in TIERS}}
)
"""What the runtimes that know the tiers by their own names call them."""
ANY_PROGRAM: Final = "command"
_LABEL = "model:"
_WORD = re.compile(r"[a-z]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """What a project and a run say about models."""

    runtime: str = "claude"
    flag: str = ""
    run_default: str = ""
    stages: Mapping[str, str] = field(default_factory=dict)
    """Over the tiers that stages have by themselves."""
    allowed: Collection[str] = DEFAULT_ALLOWED
    names: Mapping[str, str] = field(default_factory=dict)
    """What the runtime calls a tier; what is missing is looked up in ``RUNTIME_NAMES``."""
    upgrade: bool = True
    """A last try by default goes to the largest tier that need not be named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRoute:
    model: str
    """What the runtime is asked for; empty leaves it its own choice."""
    tier: str = ""
    """Empty where that cannot be told."""
    rationale: str = ""
    explicit: bool = False
    """A flag or a label said so."""


def resolve(
    routing: Routing, stage: str, labels: Sequence[str] = (), *, last_try: bool = False
) -> ModelRoute:
    """The model for one launch; UsageError where what was asked for is not allowed.

    >>> resolve(Routing(), "implement", ["model:review:opus"]).rationale
    'stage default (implement)'
    >>> resolve(Routing(), "review", ["model:haiku", "model:review:opus"]).rationale
    'label model:review:opus'
    """
    route = _requested_route(routing, stage, labels)
    if last_try and routing.upgrade and not route.explicit:
        top = recovery_tier(routing.allowed)
        if top and route.tier and TIERS.index(top) > TIERS.index(route.tier):
            why = f"the last try, upgraded from {route.tier} ({route.rationale})"
            route = replace(route, model=top, tier=top, rationale=why)
    _check(routing, route)
    return _with_runtime_name(routing, route)


def tier_in_name(name: str) -> str:
    """The tier whose word is in a model's name.

    >>> tier_in_name("claude-opus-4-1"), tier_in_name("gpt-5-codex")
    ('opus', '')
    """
    words = set(_WORD.findall(name.lower()))
    return next((tier for tier in reversed(TIERS) if tier in words), "")


def recovery_tier(allowed: Collection[str]) -> str:
    """The largest that recovery may reach: those that must be named are out of it."""
    return next((tier for tier in reversed(TIERS) if tier in allowed and tier not in EXPLICIT_ONLY), "")


def _requested_route(routing: Routing, stage: str, labels: Sequence[str]) -> ModelRoute:
    if routing.flag:
        return _route(routing.flag, f"--model {routing.flag}", explicit=True)
    for prefix in (f"{_LABEL}{stage}:", _LABEL):
        for label in labels:
            name = label.removeprefix(prefix)
            if label.startswith(prefix) and name and ":" not in name:
                return _route(name, f"label {label}", explicit=True)
    if routing.run_default:
        return _route(routing.run_default, f"--default-model {routing.run_default}")
    if stage in routing.stages:
        return _route(routing.stages[stage], f"the project's default for {stage}")
    if routing.runtime == ANY_PROGRAM and not routing.names:
        return ModelRoute(model="", rationale="no model was named")
    return _route(STAGE_TIERS.get(stage, UNKNOWN_STAGE_TIER), f"stage default ({stage})")


def _route(name: str, why: str, *, explicit: bool = False) -> ModelRoute:
    return ModelRoute(model=name, tier=tier_in_name(name), rationale=why, explicit=explicit)


def _check(routing: Routing, route: ModelRoute) -> None:
    if not route.tier:
        return
    if route.tier not in routing.allowed:
        can = ", ".join(routing.allowed) or "none"
        raise UsageError(
            f"{route.rationale} asks for {route.tier}, and models.allowed has {can}; "
            f"add it there, or ask for another"
        )
    if route.tier in EXPLICIT_ONLY and not route.explicit:
        raise UsageError(
            f"{route.rationale} asks for {route.tier}, which only a task's label or --model may; "
            f"choose another default"
        )


def _with_runtime_name(routing: Routing, route: ModelRoute) -> ModelRoute:
    """As the runtime calls it. A runtime without a name for the tier makes its own choice."""
    if route.model not in TIERS:
        return route
    name = routing.names.get(route.model) or RUNTIME_NAMES.get(routing.runtime, {}).get(route.model, "")
    if name:
        _check(routing, replace(route, tier=tier_in_name(name) or route.tier))
        return replace(route, model=name)
    why = f"{route.rationale}; {routing.runtime} has no name for it in models.names and chooses itself"
    return replace(route, model="", rationale=why)
