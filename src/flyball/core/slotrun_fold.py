"""What each entry of the ledger makes of a trip: the fold behind slotrun.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flyball.core.model import Holder
from flyball.core.slotrun import (
    LANDING_STEPS,
    OUTSIDE,
    TRANSITIONS,
    Cause,
    Entry,
    Mark,
    SlotRun,
    State,
    Step,
)
from flyball.errors import InvariantError

_KEPT = frozenset(
    {"session", "worktree", "branch", "base", "folder", "claim_id", "pool", "model", "end", "reason", "until"}
    | {
        "result",
        "way",
        "new",
        "old",
        "said",
        "rationale",
        "identity",
        "pr_url",
        "pr_number",
        "reviewed",
        "passed",
    }
)


def fold(slot: SlotRun | None, entry: Entry) -> SlotRun:
    """The trip after one more entry."""
    if slot is None or entry.step is Step.CLAIM:
        return _claimed(slot, entry)
    to = TRANSITIONS.get((slot.state, entry.step, entry.mark))
    if to is None:
        raise InvariantError(f"{entry.task}: {entry.step.value} {entry.mark.value} after {slot.state.value}")
    changes: dict[str, Any] = {key: value for key, value in entry.fields.items() if key in _KEPT}
    if to is not slot.state:
        changes["since"] = entry.at
    changed = replace(slot, state=to, run=entry.run, **changes)
    return _WITH.get(entry.step, _unchanged)(changed, entry)


def _claimed(slot: SlotRun | None, entry: Entry) -> SlotRun:
    """A new trip. What was committed and said in an earlier one is still worth going on from."""
    if entry.step is not Step.CLAIM:
        raise InvariantError(f"{entry.task}: {entry.step.value} before it was claimed")
    again = slot is not None and slot.state is not State.MERGED
    kept = {name: getattr(slot, name) for name in ("session", "branch", "base", "worktree") if again}
    attempt = 1 if slot is None or slot.state is State.MERGED else slot.attempt + 1
    lesson = slot.reason if slot is not None and slot.state is State.BLOCKED else ""
    return SlotRun(
        task=entry.task,
        state=State.CLAIMED,
        run=entry.run,
        since=entry.at,
        started=entry.at,
        attempt=attempt,
        lesson=lesson,
        **kept,
    )


def _launched(slot: SlotRun, entry: Entry) -> SlotRun:
    if entry.mark is Mark.BEGUN:
        return replace(slot, holder=None, keeper=None, end="")
    return replace(
        slot,
        launches=slot.launches + 1,
        holder=_holder(entry.fields.get("holder")),
        keeper=_holder(entry.fields.get("keeper")),
    )


def _ended(slot: SlotRun, entry: Entry) -> SlotRun:
    tokens, cost = entry.fields.get("tokens") or 0, entry.fields.get("cost_usd")
    known = slot.cost_usd if cost is None else (slot.cost_usd or 0.0) + cost
    denials = tuple(dict.fromkeys((*slot.denials, *(entry.fields.get("denials") or ()))))
    return replace(slot, tokens=slot.tokens + tokens, cost_usd=known, denials=denials)


def _kept(slot: SlotRun, entry: Entry) -> SlotRun:
    """Stages that are done stay done only while the work is what they saw."""
    tip = entry.fields.get("tip")
    return slot if tip is None or tip == slot.checked else replace(slot, stages=(), checked="")


def _stage(slot: SlotRun, entry: Entry) -> SlotRun:
    slot = _errand(slot, entry)
    if entry.mark is Mark.BEGUN:
        return slot
    stages = dict.fromkeys((*slot.stages, entry.fields["stage"]))
    return replace(slot, stages=tuple(stages), checked=entry.fields.get("tip", ""))


def _review(slot: SlotRun, entry: Entry) -> SlotRun:
    """What an earlier one came to counts no more as soon as another has begun."""
    slot = _errand(slot, entry)
    return replace(slot, passed=None) if entry.mark is Mark.BEGUN else slot


def _errand(slot: SlotRun, entry: Entry) -> SlotRun:
    """What a stage or a review costs counts for its task; its process is known while it may run."""
    return replace(
        _ended(slot, entry),
        errand=_holder(entry.fields.get("errand")),
        errand_keeper=_holder(entry.fields.get("errand_keeper")),
        errand_folder=entry.fields.get("errand_folder", ""),
    )


def _sent_back(slot: SlotRun, entry: Entry) -> SlotRun:
    cause = Cause(entry.fields["cause"])
    counted = cause in (Cause.FAILED, Cause.GATE, Cause.CONFLICT, Cause.REVIEW, Cause.REJECTED)
    if cause is Cause.REJECTED:
        slot = _anew(slot)
    if counted:
        said = (entry.fields.get("reason"), entry.fields.get("detail"))
        slot = replace(slot, lesson_cause=cause, lesson="\n\n".join(filter(None, said)))
    return replace(
        slot,
        cause=cause,
        blocked_for="",
        attempt=slot.attempt + counted,
        failures=slot.failures + (cause is Cause.FAILED),
        gate_backs=slot.gate_backs + (cause is Cause.GATE),
        conflict_backs=slot.conflict_backs + (cause is Cause.CONFLICT),
        review_backs=slot.review_backs + (cause is Cause.REVIEW),
        limited=slot.limited + 1 if cause is Cause.LIMITED else 0,
        session=None if entry.fields.get("fresh") else slot.session,
        landing=None,
        holder=None,
        keeper=None,
        errand=None,
        errand_keeper=None,
    )


def _anew(slot: SlotRun) -> SlotRun:
    """A person's word: budgets start anew. What they saw is over, a pull request of it included."""
    slot = replace(slot, failures=0, gate_backs=0, conflict_backs=0, review_backs=0, limited=0)
    return replace(slot, reviewed="", passed=None, result="", pr_url="", pr_number=0)


def _landed_a_step(slot: SlotRun, entry: Entry) -> SlotRun:
    gate = _holder(entry.fields.get("gate"))
    if gate is not None or entry.step is not Step.GATE:
        slot = replace(slot, gate=gate, gate_folder=entry.fields.get("folder_of_gate", ""))
    return replace(slot, landing=entry.step, landing_done=entry.mark is Mark.DONE)


def _told(slot: SlotRun, entry: Entry) -> SlotRun:
    return replace(_landed_a_step(slot, entry), untold=entry.mark is Mark.BEGUN)


def _blocked(slot: SlotRun, entry: Entry) -> SlotRun:
    about_work = entry.fields.get("result") not in OUTSIDE
    return _over(replace(slot, blocked_for=slot.reason) if about_work else slot, entry)


def _over(slot: SlotRun, _entry: Entry) -> SlotRun:
    return replace(slot, holder=None, keeper=None, errand=None, errand_keeper=None)


def _unchanged(slot: SlotRun, _entry: Entry) -> SlotRun:
    return slot


_WITH = {
    Step.LAUNCH: _launched,
    Step.END: _ended,
    Step.KEEP: _kept,
    Step.STAGE: _stage,
    Step.REVIEW: _review,
    Step.BACK: _sent_back,
    Step.LAND: _landed_a_step,
    **dict.fromkeys(LANDING_STEPS, _landed_a_step),
    Step.TELL: _told,
    Step.MERGED: _over,
    Step.PARK: _over,
    Step.BLOCK: _blocked,
}


def _holder(fields: Any) -> Holder | None:
    return Holder(**fields) if fields else None
