"""The .lua files put together into one script per verb, and run by their fingerprint.

Constants come from the modules that define them, so that no number is written twice. A server that does not
know a script (it was restarted, or its cache was flushed) gets the whole text once.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from pathlib import Path

from flyball.core.pool import plan, rate_window, verdict
from flyball.core.pool.fairness import TOKENS_OF_A_CALL
from flyball.core.pool.learned import NEVER
from flyball.core.pool.model import HOLD_SMOOTHING
from flyball.core.pool.settings import CONFIRM_S, KEY_TTL_S, LEASE_BACKSTOP_S
from flyball.core.share_lease import timing
from flyball.stores import handoff, pool_session, rows, verdicts

ID_BLOCK = 10**10
"""Ids of a pool, before it has to take more: so many that a claim's pool can be told from its id for good."""
LAYOUT = 1
"""Of the keys and the rows. A script that writes other rows than its predecessor raises it."""
INBOX_KEPT = 1000
ASKED_AT_ONCE = 16
"""So many waiters of each line a host is asked about in one step: whether they are stopped."""
PLANNING_S = 0.25
"""For so long no other process works out what share leases should get; then the planner has probably died."""

_SESSION = ("record", "rate_window", "pool_session", "share")
_CLAIMS = ("claim", "queue", "remote_asks")
_BASE = (*_SESSION, *_CLAIMS)
_HANDOFF = ("admission", "grant", "verdicts", "handoff")
_WHOLE = (*_BASE, *_HANDOFF)
_PARTS: dict[str, tuple[str, ...]] = {
    "do_admit": ("fast_admit", *_WHOLE, "admit_or_park", "do_admit"),
    "do_admit_remote": (*_WHOLE, "admit_or_park", "do_admit_remote"),
    "do_extend": (*_BASE, "do_extend"),
    "do_poll": (*_WHOLE, "do_poll"),
    "do_end": ("fast_end", *_BASE, "rate_window_answers", *_HANDOFF, "lease_end", "do_end"),
    "do_reclaim": (*_WHOLE, "do_reclaim"),
    "do_record_running": (*_BASE, "do_record_running"),
    "do_pause": (*_BASE, "do_pause"),
    "do_rebind": (*_BASE, "do_rebind"),
    "do_heartbeat": (*_SESSION, "do_heartbeat"),
    "do_report": (*_BASE, "do_report"),
    # Most renewals end before the functions that hand slots off are made.
    "do_renew": (*_SESSION, "renewal", "do_renew", *_CLAIMS, *_HANDOFF, "hand_off_after_renewal"),
    "do_demand": (*_WHOLE, "do_demand"),
    "do_swap_in": (*_WHOLE, "do_swap_in"),
    "do_recount": (*_WHOLE, "do_recount"),
    "do_remove_pool": (*_BASE, "do_remove_pool"),
    "read_pool": (*_SESSION, "read_pool"),
    "read_tagged": ("read_tagged",),
    "read_watched": ("read_watched",),
    "register": ("register",),
}
"""The .lua files of each script, in the order in which they are put together."""

_CONSTANTS: dict[str, float | str] = {
    "ASKED_AT_ONCE": ASKED_AT_ONCE,
    "ASK_FACTS_KEPT": rows.ASK_FACTS_KEPT,
    "CONFIRM_S": CONFIRM_S,
    "EXACT_PLACES": verdicts.EXACT_PLACES,
    "FOLD_EVERY_S": plan.FOLD_EVERY_S,
    "FOREVER_S": plan.FOREVER_S,
    "FULL_AGAIN_LEAST_S": rate_window.FULL_AGAIN_S[0],
    "FULL_AGAIN_MOST_S": rate_window.FULL_AGAIN_S[1],
    "HOLD_SAMPLE": handoff.HOLD_SAMPLE,
    "HOLD_SMOOTHING": HOLD_SMOOTHING,
    "HOSTS_KEPT": rows.HOSTS_KEPT,
    "INBOX_KEPT": INBOX_KEPT,
    "KEY_TTL_S": KEY_TTL_S,
    "LAYOUT": LAYOUT,
    "LEASE_BACKSTOP_S": LEASE_BACKSTOP_S,
    "LEAST_NET": rate_window.LEAST_NET,
    "LEVEL_RESERVE": rate_window.LEVEL_RESERVE,
    "MINUTE_S": rate_window.MINUTE_S,
    "NEVER": NEVER,
    "OTHERS_S": rate_window.OTHERS_S,
    "PLAN_PER_NODE_S": timing.PLAN_PER_NODE_S,
    "PLANNING_S": PLANNING_S,
    "POOL_FACTS_KEPT": rows.POOL_FACTS_KEPT,
    "PROJECTS_KEPT": pool_session.PROJECTS_KEPT,
    "SMOOTHING": rate_window.SMOOTHING,
    "FACT_FROM_S": handoff.FACT_FROM_S,
    "TOKENS_OF_A_CALL": TOKENS_OF_A_CALL,
    "TRIAL_ID": pool_session.TRIAL_ID,
}


class Script:
    """One script: its text and its fingerprint."""

    __slots__ = ("name", "sha", "text")

    def __init__(self, name: str, text: str) -> None:
        self.name, self.text = name, text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


@lru_cache(maxsize=4 * len(_PARTS))
def script(name: str, id_block: int = ID_BLOCK) -> Script:
    """Put together when it is first needed: most processes need three or four."""
    return Script(name, _assemble(_PARTS[name], id_block))


def _assemble(parts: tuple[str, ...], id_block: int) -> str:
    """One text, with every constant in its place: a local of its own would cost on every call."""
    named = {**_CONSTANTS, "ID_BLOCK": id_block}
    phrases = (f"[{_literal(why.value)}]={_literal(words)}" for why, words in verdict.PHRASES.items())
    literals = {word: _literal(value) for word, value in named.items()}
    literals["PHRASES"] = f"{{{','.join(phrases)}}}"
    body = "\n".join(_lua(part) for part in parts)
    return _CONSTANT.sub(lambda found: literals.get(found[0], found[0]), body)


def _literal(value: float | str) -> str:
    return repr(value) if not isinstance(value, str) else '"' + value.replace('"', '\\"') + '"'


_CONSTANT = re.compile(r"\b[A-Z][A-Z_]+\b")


@lru_cache(maxsize=64)
def _lua(name: str) -> str:
    lua = Path(__file__).with_name("lua")
    (file,) = (
        found
        for folder in ("lib", "operations", "reads")
        if (found := lua.joinpath(folder, f"{name}.lua")).is_file()
    )
    return file.read_text(encoding="utf-8")
