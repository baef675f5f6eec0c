"""The .lua files put together into one script per verb, and run by their fingerprint.

Constants come from the modules that define them, so that no number is written twice. A server that does not
know a script (it was restarted, or its cache was flushed) gets the whole text once.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from importlib.resources import files

from flyball.core import plan, terms, verdict, window
from flyball.core.learned import NEVER
from flyball.core.model import HOLD_SMOOTHING
from flyball.core.settings import CONFIRM_S, KEY_TTL_S, LEASE_BACKSTOP_S
from flyball.stores import answers, desk, handout, rows

ID_BLOCK = 10**10
"""Ids of a pool, before it has to take more: so many that a claim's pool can be told from its id for good."""
LAYOUT = 1
"""Of the keys and the rows. A script that writes other rows than its predecessor raises it."""
INBOX_KEPT = 1000
HOSTS_KEPT = 256
"""Beyond this many, hosts that were silent for a day are forgotten."""
ASKED_AT_ONCE = 16
"""So many waiters of each line a host is asked about in one step: whether they are stopped."""
PLANNING_S = 0.25
"""So long nobody else works out what share leases should get; then its planner has probably died."""

_DESK = ("record", "window", "desk", "share")
_BASE = (*_DESK, "claim", "line", "keys")
_HANDING_OUT = ("judge", "grant", "answers", "order", "handout")
_JUDGING = (*_BASE, *_HANDING_OUT)
_PARTS: dict[str, tuple[str, ...]] = {
    "do_admit": ("fast_admit", *_JUDGING, "admission"),
    "do_place": (*_JUDGING, "admission"),
    "do_extend": _BASE,
    "do_look": _JUDGING,
    "do_end": ("fast_end", *_BASE, "settle", *_HANDING_OUT, "ending"),
    "do_bury": _JUDGING,
    "do_hold": _BASE,
    "do_rest": _BASE,
    "do_rebind": _BASE,
    "do_beat": _DESK,
    "do_report": _BASE,
    "do_renew": (*_DESK, "renewal", "renewing", "claim", "line", "keys", *_HANDING_OUT),
    "do_demand": _JUDGING,
    "do_serve": _JUDGING,
    "do_recount": _JUDGING,
    "do_remove": _BASE,
    "read_pool": _DESK,
    "read_tagged": (),
    "read_watched": (),
    "register": (),
}

_CONSTANTS: dict[str, float | str] = {
    "ASKED_AT_ONCE": ASKED_AT_ONCE,
    "ASK_FACTS_KEPT": rows.ASK_FACTS_KEPT,
    "CONFIRM_S": CONFIRM_S,
    "EXACT_PLACES": answers.EXACT_PLACES,
    "FOLD_EVERY_S": plan.FOLD_EVERY_S,
    "FOREVER_S": plan.FOREVER_S,
    "FULL_AGAIN_LEAST_S": window.FULL_AGAIN_S[0],
    "FULL_AGAIN_MOST_S": window.FULL_AGAIN_S[1],
    "HOLD_SAMPLE": handout.HOLD_SAMPLE,
    "HOLD_SMOOTHING": HOLD_SMOOTHING,
    "HOSTS_KEPT": HOSTS_KEPT,
    "INBOX_KEPT": INBOX_KEPT,
    "KEY_TTL_S": KEY_TTL_S,
    "LAYOUT": LAYOUT,
    "LEASE_BACKSTOP_S": LEASE_BACKSTOP_S,
    "LEAST_NET": window.LEAST_NET,
    "LEVEL_RESERVE": window.LEVEL_RESERVE,
    "MINUTE_S": window.MINUTE_S,
    "NEVER": NEVER,
    "OTHERS_S": window.OTHERS_S,
    "PLAN_PER_NODE_S": terms.PLAN_PER_NODE_S,
    "PLANNING_S": PLANNING_S,
    "POOL_FACTS_KEPT": rows.POOL_FACTS_KEPT,
    "PROJECTS_KEPT": desk.PROJECTS_KEPT,
    "SMOOTHING": window.SMOOTHING,
    "TELLING_S": handout.TELLING_S,
    "TRIAL_ID": desk.TRIAL_ID,
}


class Script:
    """One script: its text and its fingerprint."""

    __slots__ = ("name", "sha", "text")

    def __init__(self, name: str, text: str) -> None:
        self.name, self.text = name, text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


@lru_cache(maxsize=4)
def scripts(id_block: int = ID_BLOCK) -> dict[str, Script]:
    return {name: Script(name, _assembled(name, parts, id_block)) for name, parts in _PARTS.items()}


def _assembled(name: str, parts: tuple[str, ...], id_block: int) -> str:
    """One text, with every constant in its place: a local of its own would cost on every call."""
    named = {**_CONSTANTS, "ID_BLOCK": id_block}
    literals = {word: _literal(value) for word, value in named.items()} | {"PHRASES": _phrases()}
    body = "\n".join(_lua(part) for part in (*parts, name))
    return _CONSTANT.sub(lambda found: literals.get(found[0], found[0]), body)


def _phrases() -> str:
    known = (f"[{_literal(why.value)}]={_literal(words)}" for why, words in verdict.PHRASES.items())
    return f"{{{','.join(known)}}}"


def _literal(value: float | str) -> str:
    return repr(value) if not isinstance(value, str) else '"' + value.replace('"', '\\"') + '"'


_CONSTANT = re.compile(r"\b[A-Z][A-Z_]+\b")


@lru_cache(maxsize=64)
def _lua(name: str) -> str:
    return files(__package__).joinpath("lua", f"{name}.lua").read_text(encoding="utf-8")
