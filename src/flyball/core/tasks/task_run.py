"""One task's trip through the factory: where it stands, made from the entries of its ledger.

A trip is a row of *entries*. Each names a step and whether it is about to be done (``BEGUN``) or has been
done (``DONE``). An entry is written before its effect and confirmed after it. So the last entry of a run that
was killed says what may or may not have happened since; the next run looks at the world for the rest.

``TRANSITIONS`` is the whole life of a trip. Steps inside a state (a session learned, a landing's own steps)
do not leave it. What is not listed cannot happen. ``apply_entry`` makes the state after one more entry: the
table says where the trip stands, ``_COPIED`` what is taken from the entry as it is, and ``_FURTHER`` what a
step changes beyond that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from flyball.core.pool.model import Holder
from flyball.core.signals import End
from flyball.errors import InvariantError


class State(Enum):
    """Where a trip stands."""

    CLAIMED = "claimed"
    """Chosen; its worktree is being made."""
    READY = "ready"
    """Everything is there for an agent; waits for a slot, or for a pause to end."""
    RUNNING = "running"
    ENDED = "ended"
    """The agent is gone, and how it ended is known."""
    CHECKING = "checking"
    """Other agents look at finished work: its stages, its review."""
    LANDING = "landing"
    MERGED = "merged"
    PARKED = "parked"
    """Green, and a person lands it."""
    BLOCKED = "blocked"
    """A person has to look; the reason says at what."""


class Step(Enum):
    CLAIM = "claim"
    WORKTREE = "worktree"
    LAUNCH = "launch"
    SESSION = "session"
    END = "end"
    KEEP = "keep"
    """Commit what the agent left uncommitted."""
    STAGE = "stage"
    """A further agent works in the same worktree."""
    REVIEW = "review"
    LAND = "land"
    REBASE = "rebase"
    CLOSE = "close"
    GATE = "gate"
    ADVANCE = "advance"
    """Move the default branch."""
    CHECKOUT = "checkout"
    """Bring the user's own checkout along."""
    PR = "pr"
    """Push the branch and open a pull request instead of moving the default branch."""
    TELL = "tell"
    """Close the task where it lives outside the repository."""
    CLEAN = "clean"
    MERGED = "merged"
    BACK = "back"
    """Sent back to an agent, with the cause."""
    PARK = "park"
    BLOCK = "block"


class RunPhase(Enum):
    BEGUN = "begun"
    DONE = "done"


class Cause(Enum):
    """Why a trip goes back to an agent. Each has a budget of its own."""

    FAILED = "failed"
    LIMITED = "limited"
    GATE = "gate"
    CONFLICT = "conflict"
    REVIEW = "review"
    """Its reviewer found something that must not land, or a stage could not be done."""
    INTERRUPTED = "interrupted"
    """Stopped by a person or by the end of the engine; it counts against no budget."""
    NUDGED = "nudged"
    REJECTED = "rejected"
    """A person looked at what it came to, and said what is wrong with it."""


class LandingResult(Enum):
    """What a landing came to. The ledger keeps the text."""

    MERGED = "merged"
    PR_OPENED = "pr-opened"
    CONFLICT = "conflict"
    GATE_FAILED = "gate-failed"
    GATE_BROKEN = "gate-broken"
    """One of its commands could not be run at all, and the work has nothing to do with that."""
    PROTECTED = "protected"
    UNSIGNED = "unsigned"
    UNAPPROVED = "unapproved"
    DIRTY = "dirty"
    NO_CHANGES = "no-changes"
    NO_REMOTE = "no-remote"
    DIVERGED = "diverged"
    """The default branch here and origin's clash, and landings are pushed."""
    NO_GH = "no-gh"
    """The program that opens pull requests is missing, or does not answer."""
    ERROR = "error"


OUTSIDE = frozenset(
    {
        LandingResult.NO_REMOTE,
        LandingResult.DIVERGED,
        LandingResult.NO_GH,
        LandingResult.GATE_BROKEN,
        LandingResult.ERROR,
    }
)
"""Results of a landing that say nothing about the work."""
FINAL = frozenset({State.MERGED, State.PARKED, State.BLOCKED})

_S, _B, _D = State, RunPhase.BEGUN, RunPhase.DONE
_ANY_LIVE = (_S.CLAIMED, _S.READY, _S.RUNNING, _S.ENDED, _S.CHECKING, _S.LANDING)
LANDING_STEPS = (
    Step.REBASE,
    Step.CLOSE,
    Step.GATE,
    Step.ADVANCE,
    Step.PR,
    Step.CHECKOUT,
    Step.TELL,
    Step.CLEAN,
)

TRANSITIONS: Mapping[tuple[State, Step, RunPhase], State] = {
    (_S.CLAIMED, Step.WORKTREE, _B): _S.CLAIMED,
    (_S.CLAIMED, Step.WORKTREE, _D): _S.READY,
    (_S.READY, Step.WORKTREE, _B): _S.READY,
    (_S.READY, Step.WORKTREE, _D): _S.READY,
    (_S.READY, Step.LAUNCH, _B): _S.READY,
    (_S.READY, Step.LAUNCH, _D): _S.RUNNING,
    (_S.RUNNING, Step.SESSION, _D): _S.RUNNING,
    (_S.RUNNING, Step.END, _D): _S.ENDED,
    (_S.ENDED, Step.KEEP, _B): _S.ENDED,
    (_S.ENDED, Step.KEEP, _D): _S.ENDED,
    **{
        (state, step, _B): _S.CHECKING
        for state in (_S.ENDED, _S.CHECKING)
        for step in (Step.STAGE, Step.REVIEW)
    },
    **{(_S.CHECKING, step, _D): _S.CHECKING for step in (Step.STAGE, Step.REVIEW)},
    # A person has a pull request reviewed; then it waits for people again.
    (_S.PARKED, Step.REVIEW, _B): _S.CHECKING,
    (_S.ENDED, Step.LAND, _B): _S.LANDING,
    (_S.CHECKING, Step.LAND, _B): _S.LANDING,
    (_S.PARKED, Step.LAND, _B): _S.LANDING,
    (_S.BLOCKED, Step.LAND, _B): _S.LANDING,
    (_S.LANDING, Step.LAND, _B): _S.LANDING,
    (_S.LANDING, Step.MERGED, _D): _S.MERGED,
    **{(_S.LANDING, step, mark): _S.LANDING for step in LANDING_STEPS for mark in RunPhase},
    **{(state, Step.BACK, _D): _S.READY for state in _ANY_LIVE},
    **{(state, Step.BLOCK, _D): _S.BLOCKED for state in _ANY_LIVE},
    **{(state, Step.PARK, _D): _S.PARKED for state in (_S.ENDED, _S.CHECKING, _S.LANDING, _S.PARKED)},
    # It has landed, whatever the source says; a later run tells it again.
    **{(_S.MERGED, Step.TELL, mark): _S.MERGED for mark in RunPhase},
    # A person sends back what waits for them, or what nothing came of.
    **{(state, Step.BACK, _D): _S.READY for state in (_S.PARKED, _S.BLOCKED)},
    # A person decided to try again: budgets start anew, what was committed is still there.
    **{(state, Step.CLAIM, _D): _S.CLAIMED for state in State},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One line of the ledger."""

    id: int
    at: float
    """Wall clock: for people."""
    run: str
    task: str
    step: Step
    mark: RunPhase
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """Everything the entries of one trip say."""

    task: str
    state: State
    run: str = ""
    since: float = 0.0
    """Wall clock of the last change of state."""
    started: float = 0.0
    attempt: int = 1
    """Which launch this is, not counting those that a limit or a person ended."""
    launches: int = 0
    failures: int = 0
    limited: int = 0
    """Limits in a row."""
    gate_backs: int = 0
    conflict_backs: int = 0
    review_backs: int = 0
    stages: tuple[str, ...] = ()
    """Stages that are done."""
    checked: str = ""
    """Where the branch stood after the last of them."""
    reviewed: str = ""
    """The commit that its last review was about."""
    passed: bool | None = None
    """What that review came to; None: it could not be had."""
    errand: Holder | None = None
    """An agent of a stage or a review; it may outlive its engine."""
    errand_keeper: Holder | None = None
    errand_folder: str = ""
    session: str | None = None
    worktree: str = ""
    branch: str = ""
    base: str = ""
    """The commit below the branch's own ones: where it was made, or was last brought to."""
    folder: str = ""
    holder: Holder | None = None
    keeper: Holder | None = None
    claim_id: int = 0
    pool: str = ""
    model: str = ""
    rationale: str = ""
    """Why this model."""
    identity: str = ""
    """Whose account the last launch was verified to use."""
    tokens: int = 0
    cost_usd: float | None = None
    """Of its agents together; None: none of them said what it cost."""
    denials: tuple[str, ...] = ()
    """What its agents wanted to do and were not permitted to, each once."""
    end: End | None = None
    reason: str = ""
    cause: Cause | None = None
    lesson: str = ""
    """What the next agent should know of the last one's failure; a limit or a stop in between keeps it."""
    lesson_cause: Cause | None = None
    until: float = 0.0
    """Wall clock before which it is not launched again."""
    result: LandingResult | None = None
    """What the last landing came to."""
    way: str = ""
    """How it was to land: ``merge``, into the default branch; ``pr``, as a pull request."""
    said: str = ""
    """What that landing had to say, where it is not why the trip stands where it stands."""
    blocked_for: str = ""
    """What was wrong with the work when it was blocked. A person who tries to land it all the same, and
    cannot for reasons outside, changes nothing about that."""
    new: str = ""
    """The commit that the default branch is being moved to, or was."""
    old: str = ""
    gate: Holder | None = None
    """A gate command that was started; it may outlive its engine."""
    gate_folder: str = ""
    landing: Step | None = None
    """The last step of the landing that is under way."""
    landing_done: bool = False
    pr_url: str = ""
    pr_number: int = 0
    untold: bool = False
    """Its source was to be told that it is closed, and has not confirmed it."""

    @property
    def final(self) -> bool:
        return self.state in FINAL


_COPIED = frozenset(
    {"session", "worktree", "branch", "base", "folder", "claim_id", "pool", "model", "rationale", "identity"}
    | {"reason", "until", "way", "new", "old", "said", "pr_url", "pr_number", "reviewed", "passed"}
)
"""Fields of an entry that go into the state as they are."""
_ENDS = {end.value: end for end in End}
_RESULTS = {result.value: result for result in LandingResult}


def apply_entry(record: TaskRecord | None, entry: LedgerEntry) -> TaskRecord:
    """The trip after one more entry."""
    if record is None or entry.step is Step.CLAIM:
        return _claim(record, entry)
    to = TRANSITIONS.get((record.state, entry.step, entry.mark))
    if to is None:
        raise InvariantError(
            f"{entry.task}: {entry.step.value} {entry.mark.value} after {record.state.value}"
        )
    changes: dict[str, Any] = {key: value for key, value in entry.fields.items() if key in _COPIED}
    # A word that this version does not know is not known.
    for key, words in (("end", _ENDS), ("result", _RESULTS)):
        if key in entry.fields:
            changes[key] = words.get(entry.fields[key])
    if to is not record.state:
        changes["since"] = entry.at
    changed = replace(record, state=to, run=entry.run, **changes)
    further = _FURTHER.get(entry.step)
    return changed if further is None else further(changed, entry)


def _claim(record: TaskRecord | None, entry: LedgerEntry) -> TaskRecord:
    """A new trip. What was committed and said in an earlier one is still worth going on from."""
    if entry.step is not Step.CLAIM:
        raise InvariantError(f"{entry.task}: {entry.step.value} before it was claimed")
    again = record is not None and record.state is not State.MERGED
    kept = {name: getattr(record, name) for name in ("session", "branch", "base", "worktree") if again}
    attempt = 1 if record is None or record.state is State.MERGED else record.attempt + 1
    lesson = record.reason if record is not None and record.state is State.BLOCKED else ""
    return TaskRecord(
        task=entry.task,
        state=State.CLAIMED,
        run=entry.run,
        since=entry.at,
        started=entry.at,
        attempt=attempt,
        lesson=lesson,
        **kept,
    )


def _on_launch(record: TaskRecord, entry: LedgerEntry) -> TaskRecord:
    if entry.mark is RunPhase.BEGUN:
        return replace(record, holder=None, keeper=None, end=None)
    return replace(
        record,
        launches=record.launches + 1,
        holder=_holder(entry.fields.get("holder")),
        keeper=_holder(entry.fields.get("keeper")),
    )


def _on_end(record: TaskRecord, entry: LedgerEntry) -> TaskRecord:
    tokens, cost = entry.fields.get("tokens") or 0, entry.fields.get("cost_usd")
    known = record.cost_usd if cost is None else (record.cost_usd or 0.0) + cost
    denials = tuple(dict.fromkeys((*record.denials, *(entry.fields.get("denials") or ()))))
    return replace(record, tokens=record.tokens + tokens, cost_usd=known, denials=denials)


def _on_keep(record: TaskRecord, entry: LedgerEntry) -> TaskRecord:
    """Stages that are done stay done only while the work is what they saw."""
    tip = entry.fields.get("tip")
    return record if tip is None or tip == record.checked else replace(record, stages=(), checked="")


def _on_stage(record: TaskRecord, entry: LedgerEntry) -> TaskRecord:
    record = _on_check_agent(record, entry)
    if entry.mark is RunPhase.BEGUN:
        return record
    stages = dict.fromkeys((*record.stages, entry.fields["stage"]))
    return replace(record, stages=tuple(stages), checked=entry.fields.get("tip", ""))


def _on_review(record: TaskRecord, entry: LedgerEntry) -> TaskRecord:
    """What an earlier one came to counts no more as soon as another has begun."""
    record = _on_check_agent(record, entry)
    return replace(record, passed=None) if entry.mark is RunPhase.BEGUN else record


def _on_check_agent(record: TaskRecord, entry: LedgerEntry) -> TaskRecord:
    """What a stage or a review costs counts for its task; its process is known while it may run."""
    return replace(
        _on_end(record, entry),
        errand=_holder(entry.fields.get("errand")),
        errand_keeper=_holder(entry.fields.get("errand_keeper")),
        errand_folder=entry.fields.get("errand_folder", ""),
    )


def _on_back(record: TaskRecord, entry: LedgerEntry) -> TaskRecord:
    cause = Cause(entry.fields["cause"])
    counted = cause in (Cause.FAILED, Cause.GATE, Cause.CONFLICT, Cause.REVIEW, Cause.REJECTED)
    if cause is Cause.REJECTED:
        # A person's word: budgets start anew. What they saw is over, a pull request of it included.
        record = replace(record, failures=0, gate_backs=0, conflict_backs=0, review_backs=0, limited=0)
        record = replace(record, reviewed="", passed=None, result=None, pr_url="", pr_number=0)
    if counted:
        said = (entry.fields.get("reason"), entry.fields.get("detail"))
        record = replace(record, lesson_cause=cause, lesson="\n\n".join(filter(None, said)))
    return replace(
        record,
        cause=cause,
        blocked_for="",
        attempt=record.attempt + counted,
        failures=record.failures + (cause is Cause.FAILED),
        gate_backs=record.gate_backs + (cause is Cause.GATE),
        conflict_backs=record.conflict_backs + (cause is Cause.CONFLICT),
        review_backs=record.review_backs + (cause is Cause.REVIEW),
        limited=record.limited + 1 if cause is Cause.LIMITED else 0,
        session=None if entry.fields.get("fresh") else record.session,
        landing=None,
        holder=None,
        keeper=None,
        errand=None,
        errand_keeper=None,
    )


def _on_landing_step(record: TaskRecord, entry: LedgerEntry) -> TaskRecord:
    gate = _holder(entry.fields.get("gate"))
    if gate is not None or entry.step is not Step.GATE:
        record = replace(record, gate=gate, gate_folder=entry.fields.get("folder_of_gate", ""))
    return replace(record, landing=entry.step, landing_done=entry.mark is RunPhase.DONE)


def _on_tell(record: TaskRecord, entry: LedgerEntry) -> TaskRecord:
    return replace(_on_landing_step(record, entry), untold=entry.mark is RunPhase.BEGUN)


def _on_block(record: TaskRecord, entry: LedgerEntry) -> TaskRecord:
    about_work = _RESULTS.get(entry.fields.get("result", "")) not in OUTSIDE
    return _on_final(replace(record, blocked_for=record.reason) if about_work else record, entry)


def _on_final(record: TaskRecord, _entry: LedgerEntry) -> TaskRecord:
    return replace(record, holder=None, keeper=None, errand=None, errand_keeper=None)


_FURTHER = {
    Step.LAUNCH: _on_launch,
    Step.END: _on_end,
    Step.KEEP: _on_keep,
    Step.STAGE: _on_stage,
    Step.REVIEW: _on_review,
    Step.BACK: _on_back,
    Step.LAND: _on_landing_step,
    **dict.fromkeys(LANDING_STEPS, _on_landing_step),
    Step.TELL: _on_tell,
    Step.MERGED: _on_final,
    Step.PARK: _on_final,
    Step.BLOCK: _on_block,
}


def _holder(fields: Any) -> Holder | None:
    return Holder(**fields) if fields else None
