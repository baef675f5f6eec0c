"""The labels that flyball gives a meaning to, and what to say of one that it cannot make out.

    merge:<policy>                       how green work lands; the nearest of a task and its parents decides.
                                         A parent that only the task's own text names makes it stricter alone
    rt:<0 to 3>                          how eagerly work is retried
    model:<tier>, model:<stage>:<tier>   which model is asked for
    res:<kind>, res:<kind>=<units>       what it uses of the machine
    area:<name>, fp:<path>               what it touches

Any other label is the project's own. One of these with an unknown value was most likely misspelt. It is
told, never passed over: ``merge:manuel`` does not mean that work lands by itself. So a policy
that cannot be made out is read as ``manual``, which costs a person a command and nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from flyball.core.suggestions import nearest
from flyball.core.tasks.model_routing import DEFAULT_ALLOWED, STAGE_TIERS, TIERS, tier_in_name
from flyball.core.tasks.readiness import parse_resources
from flyball.core.tasks.task import Task
from flyball.errors import UsageError

MERGE: Final = "merge:"
AUTO: Final = "auto"
MANUAL: Final = "manual"
PR: Final = "pr"
POLICIES: Final = (AUTO, MANUAL, PR)
_STRICTER: Final = (AUTO, PR, MANUAL)
_RETRY: Final = "rt:"
_MODEL: Final = "model:"
_RETRY_TIERS: Final = ("0", "1", "2", "3")


@dataclass(frozen=True, slots=True)
class LandingPolicy:
    """How the work of a task lands."""

    name: str
    unknown: str = ""
    """The label that could not be made out, so that the policy is ``manual``."""


def landing_policy(lineage: Iterable[Task], *, otherwise: str) -> LandingPolicy:
    """``lineage``: the task, its parent, and so on; ``otherwise``: what holds where none of them says.

    >>> landing_policy([Task(id="t-1", title="x", labels=("merge:manuel",))], otherwise="auto")
    LandingPolicy(name='manual', unknown='merge:manuel')
    """
    claimed = False
    for task in lineage:
        said = [label for label in task.labels if _value(label, MERGE) is not None]
        unknown = next((label for label in said if label.removeprefix(MERGE) not in POLICIES), None)
        if unknown is not None:
            return LandingPolicy(MANUAL, unknown)
        if said:
            name = said[0].removeprefix(MERGE)
            return LandingPolicy(max(name, otherwise, key=_STRICTER.index) if claimed else name)
        claimed = claimed or task.parent_claimed
    return LandingPolicy(otherwise)


def retry_tier(labels: Iterable[str]) -> int | None:
    """As the first label that names one says."""
    said = (label.removeprefix(_RETRY) for label in labels if label.startswith(_RETRY))
    return next((int(tier) for tier in said if tier in _RETRY_TIERS), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """What labels are held against: what the project knows beside what flyball does."""

    stages: Collection[str] = ()
    allowed: Sequence[str] = DEFAULT_ALLOWED
    """Tiers of models."""

    def problems(self, labels: Iterable[str]) -> Iterator[str]:
        """What is wrong with each that cannot be made out, with the way out."""
        for label in labels:
            words = _policy(label) or _retry(label) or self._model(label)
            try:
                parse_resources([label])
            except UsageError as error:
                words = words or f"cannot start: {error}"
            if words:
                yield words

    def _model(self, label: str) -> str:
        value = _value(label, _MODEL)
        if value is None:
            return ""
        stage, colon, name = value.rpartition(":")
        known = sorted({*STAGE_TIERS, *self.stages})
        if colon and stage not in known:
            return _unknown(label, "stage", stage, known, f"{_MODEL}{{}}:{name}")
        tier = tier_in_name(name)
        if tier and tier not in self.allowed:
            return f"its label {label} asks for {tier}, and models.allowed does not have it; add it there"
        # Runtimes have names of their own, which are not known here: only what is almost a tier is doubted.
        doubtful = not name.strip() or not label.startswith(_MODEL) or (not tier and nearest(name, TIERS))
        return _unknown(label, "tier", name, TIERS, f"{_MODEL}{stage}{colon}{{}}") if doubtful else ""


def _policy(label: str) -> str:
    value = _value(label, MERGE)
    if value is None or label.removeprefix(MERGE) in POLICIES:
        return ""
    return _unknown(label, "policy", value, POLICIES, f"{MERGE}{{}}", so="its work waits for flyball merge")


def _retry(label: str) -> str:
    value = _value(label, _RETRY)
    if value is None or label.removeprefix(_RETRY) in _RETRY_TIERS:
        return ""
    return _unknown(label, "retry tier", value, _RETRY_TIERS, f"{_RETRY}{{}}")


def _value(label: str, prefix: str) -> str | None:
    """What is behind the prefix, however that is written; None where the label is about something else."""
    return label[len(prefix) :] if label.lower().startswith(prefix) else None


def _unknown(label: str, kind: str, value: str, known: Sequence[str], form: str, *, so: str = "") -> str:
    """``form`` makes a label of a known value; ``so`` says what follows until it is put right."""
    close = nearest(value.strip().lower(), known, at_most=1)
    forms = [form.format(each) for each in close or known]
    words = f"there is no {kind} {value!r} (label {label})"
    if value in known:
        words = f"its label {label} is not read as it is written"
    way_out = f"did you mean {forms[0]}?" if close else f"write {', '.join(forms[:-1])} or {forms[-1]}"
    return f"{words}{', so ' if so else ''}{so}; {way_out}"
