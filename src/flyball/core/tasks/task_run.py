"""One task's run through the factory: where it stands, made from the entries of its ledger.

A task's run is a row of *entries*. Each names a step and whether it is about to be done (``BEGUN``) or has
been done (``DONE``). An entry is written before its effect and confirmed after it. So the last entry of a run
that was killed says what may or may not have happened since; the next run looks at the world for the rest.

``TRANSITIONS`` is the whole life of a task's run. Steps inside a state (a session learned, a landing's own
steps) do not leave it. What is not listed cannot happen. ``TaskRecord`` is what the entries add up to: where
the run stands, and a record for each part of its life (worktree, agent, checks, landing, pull request).
``apply_entry`` makes the record after one more entry: the table says where the run stands now, and the
function of the step in ``_FOLDS`` which part has changed. The names in ``entry.fields`` are those of the
stored ledger, which outlive the names here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from typing import Any

from flyball.core.pool.holder import Holder
from flyball.core.signals import End
from flyball.errors import InvariantError


class State(StrEnum):
    """Where a task's run stands."""

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
    """Why a task's run goes back to an agent. Each has a budget of its own."""

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
class Backs:
    """How often it was sent back, by cause. The count begins anew where a person sends it back or it is
    claimed again."""

    failed: int = 0
    limited: int = 0
    """Limits in a row."""
    gate: int = 0
    conflict: int = 0
    review: int = 0

    def count(self, cause: Cause) -> Backs:
        if cause is Cause.REJECTED:
            return Backs()
        limited = self.limited + 1 if cause is Cause.LIMITED else 0
        name = _COUNTED_AS.get(cause)
        counted = {name: getattr(self, name) + 1} if name is not None else {}
        return replace(self, limited=limited, **counted)


_COUNTED_AS = {
    Cause.FAILED: "failed",
    Cause.GATE: "gate",
    Cause.CONFLICT: "conflict",
    Cause.REVIEW: "review",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """What the next agent should know of the last one's failure; a limit or a stop in between keeps it."""

    cause: Cause | None = None
    words: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorktreeRecord:
    path: str = ""
    branch: str = ""
    base: str = ""
    """The commit below the branch's own ones: where it was made, or was last brought to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord:
    """A process and its supervisor, each as long as it may run: they may outlive their engine."""

    holder: Holder | None = None
    keeper: Holder | None = None
    folder: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRecord:
    """The last attempt's agent: how it was launched, and how it ended."""

    process: ProcessRecord = ProcessRecord()
    session: str | None = None
    claim_id: int = 0
    pool: str = ""
    model: str = ""
    rationale: str = ""
    """Why this model."""
    identity: str = ""
    """Whose account it was verified to use."""
    end: End | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Of its agents together, stages and reviews included."""

    tokens: int = 0
    cost_usd: float | None = None
    """None: none of them said what it cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecksRecord:
    """What other agents found in finished work."""

    agent: ProcessRecord = ProcessRecord()
    """Of the stage or the review that is under way."""
    stages: tuple[str, ...] = ()
    """Stages that are done."""
    tip: str = ""
    """Where the branch stood after the last of them."""
    reviewed: str = ""
    """The commit that its last review was about."""
    passed: bool | None = None
    """What that review came to; None: it could not be had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingRecord:
    """The last landing: how far it went, and what it came to."""

    way: str = ""
    """How it was to land: ``merge``, into the default branch; ``pr``, as a pull request."""
    step: Step | None = None
    """The last step of the landing that is under way."""
    step_done: bool = False
    gate: ProcessRecord = ProcessRecord()
    """A gate command that was started."""
    old: str = ""
    new: str = ""
    """The commit that the default branch is being moved to, or was."""
    result: LandingResult | None = None
    said: str = ""
    """What it had to say, where that is not why the run stands where it stands."""
    untold: bool = False
    """Its source was to be told that it is closed, and has not confirmed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRecord:
    url: str = ""
    number: int = 0
    """0: there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """Everything the entries of one task's run say."""

    task: str
    state: State
    run: str = ""
    started: float = 0.0
    since: float = 0.0
    """Wall clock of the last change of state."""
    attempt: int = 1
    """Which launch this is, not counting those that a limit or a person ended."""
    launches: int = 0
    reason: str = ""
    """Why it stands where it stands."""
    cause: Cause | None = None
    """Why it was last sent back."""
    until: float = 0.0
    """Wall clock before which it is not launched again."""
    blocked_for: str = ""
    """What was wrong with the work when it was blocked. A person who tries to land it all the same, and
    cannot for reasons outside, changes nothing about that."""
    denials: tuple[str, ...] = ()
    """What its agents wanted to do and were not permitted to, each once."""
    backs: Backs = Backs()
    lesson: Lesson = Lesson()
    worktree: WorktreeRecord = WorktreeRecord()
    agent: AgentRecord = AgentRecord()
    spent: Spent = Spent()
    checks: ChecksRecord = ChecksRecord()
    landing: LandingRecord = LandingRecord()
    pull: PullRecord = PullRecord()

    @property
    def final(self) -> bool:
        return self.state in FINAL


_ENDS = {end.value: end for end in End}
_RESULTS = {result.value: result for result in LandingResult}
"""A word that this version does not know is not known."""


def apply_entry(record: TaskRecord | None, entry: LedgerEntry) -> TaskRecord:
    """The record after one more entry."""
    if record is None or entry.step is Step.CLAIM:
        return _claim(record, entry)
    to = TRANSITIONS.get((record.state, entry.step, entry.mark))
    if to is None:
        raise InvariantError(
            f"{entry.task}: {entry.step.value} {entry.mark.value} after {record.state.value}"
        )
    changed = replace(
        record,
        state=to,
        run=entry.run,
        since=entry.at if to is not record.state else record.since,
        reason=entry.fields.get("reason", record.reason),
    )
    return _FOLDS[entry.step](changed, entry)


def _claim(record: TaskRecord | None, entry: LedgerEntry) -> TaskRecord:
    """A new run. What was committed and said in an earlier one is still worth going on from."""
    if entry.step is not Step.CLAIM:
        raise InvariantError(f"{entry.task}: {entry.step.value} before it was claimed")
    new = TaskRecord(task=entry.task, state=State.CLAIMED, run=entry.run, since=entry.at, started=entry.at)
    if record is None or record.state is State.MERGED:
        return new
    return replace(
        new,
        attempt=record.attempt + 1,
        lesson=Lesson(words=record.reason if record.state is State.BLOCKED else ""),
        worktree=record.worktree,
        agent=AgentRecord(session=record.agent.session),
    )


def _on_worktree(record: TaskRecord, entry: LedgerEntry) -> TaskRecord:
    was, fields = record.worktree, entry.fields
    path, branch = fields.get("worktree", was.path), fields.get("branch", was.branch)
    tree = WorktreeRecord(path=path, branch=branch, base=fields.get("base", was.base))
    return replace(record, worktree=tree)


def _on_launch(record: TaskRecord, entry: LedgerEntry) -> TaskRecord:
    fields, agent = entry.fields, record.agent
    if entry.mark is RunPhase.BEGUN:
        process = ProcessRecord(folder=fields.get("folder", agent.process.folder))
        return replace(record, agent=replace(agent, process=process, end=None))
    process = replace(
        agent.process, holder=_holder(fields.get("holder")), keeper=_holder(fields.get("keeper"))
    )
    known = ("claim_id", "pool", "model", "rationale", "identity")
    launched = {name: fields[name] for name in known if name in fields}
    agent = replace(agent, process=process, **launched)
    return replace(record, launches=record.launches + 1, agent=agent)


def _on_session(record: TaskRecord, entry: LedgerEntry) -> TaskRecord:
    return replace(record, agent=replace(record.agent, session=entry.fields.get("session")))


def _on_end(record: TaskRecord, entry: LedgerEntry) -> TaskRecord:
    """Its agent may have said which model it really was."""
    end, model = _ENDS.get(entry.fields.get("end", "")), entry.fields.get("model", record.agent.model)
    return _spend(replace(record, agent=replace(record.agent, end=end, model=model)), entry)


def _spend(record: TaskRecord, entry: LedgerEntry) -> TaskRecord:
    """What an agent cost, whatever it was for, counts for its task."""
    spent, cost = record.spent, entry.fields.get("cost_usd")
    spent = Spent(
        tokens=spent.tokens + (entry.fields.get("tokens") or 0),
        cost_usd=spent.cost_usd if cost is None else (spent.cost_usd or 0.0) + cost,
    )
    denials = tuple(dict.fromkeys((*record.denials, *(entry.fields.get("denials") or ()))))
    return replace(record, spent=spent, denials=denials)


def _on_keep(record: TaskRecord, entry: LedgerEntry) -> TaskRecord:
    """Stages that are done stay done only while the work is what they saw."""
    tip = entry.fields.get("tip")
    if tip is None or tip == record.checks.tip:
        return record
    return replace(record, checks=replace(record.checks, stages=(), tip=""))


def _on_stage(record: TaskRecord, entry: LedgerEntry) -> TaskRecord:
    record = _on_check_agent(record, entry)
    if entry.mark is RunPhase.BEGUN:
        return record
    stages = tuple(dict.fromkeys((*record.checks.stages, entry.fields["stage"])))
    return replace(record, checks=replace(record.checks, stages=stages, tip=entry.fields.get("tip", "")))


def _on_review(record: TaskRecord, entry: LedgerEntry) -> TaskRecord:
    """What an earlier one came to counts no more as soon as another has begun."""
    record = _on_check_agent(record, entry)
    fields, checks = entry.fields, record.checks
    passed = None if entry.mark is RunPhase.BEGUN else fields.get("passed", checks.passed)
    reviewed = fields.get("reviewed", checks.reviewed)
    return replace(record, checks=replace(checks, reviewed=reviewed, passed=passed))


def _on_check_agent(record: TaskRecord, entry: LedgerEntry) -> TaskRecord:
    """The process of a stage or a review is known while it may run."""
    fields = entry.fields
    agent = ProcessRecord(
        holder=_holder(fields.get("errand")),
        keeper=_holder(fields.get("errand_keeper")),
        folder=fields.get("errand_folder", ""),
    )
    return _spend(replace(record, checks=replace(record.checks, agent=agent)), entry)


def _on_back(record: TaskRecord, entry: LedgerEntry) -> TaskRecord:
    fields, cause = entry.fields, Cause(entry.fields["cause"])
    record = _without_processes(record)
    counted = cause in _COUNTED_AS or cause is Cause.REJECTED
    if cause is Cause.REJECTED:
        # A person's word: what they saw is over, a pull request of it included.
        record = replace(
            record,
            checks=replace(record.checks, reviewed="", passed=None),
            landing=replace(record.landing, result=None),
            pull=PullRecord(),
        )
    if counted:
        words = "\n\n".join(filter(None, (fields.get("reason"), fields.get("detail"))))
        record = replace(record, lesson=Lesson(cause=cause, words=words))
    if fields.get("fresh"):
        record = replace(record, agent=replace(record.agent, session=None))
    return replace(
        record,
        cause=cause,
        until=fields.get("until", record.until),
        blocked_for="",
        attempt=record.attempt + counted,
        backs=record.backs.count(cause),
        landing=replace(record.landing, step=None),
    )


def _on_landing_step(record: TaskRecord, entry: LedgerEntry) -> TaskRecord:
    fields, landing = entry.fields, record.landing
    gate = _holder(fields.get("gate"))
    if gate is not None or entry.step is not Step.GATE:
        process = ProcessRecord(holder=gate, folder=fields.get("folder_of_gate", ""))
        landing = replace(landing, gate=process)
    known = {name: fields[name] for name in ("way", "old", "new") if name in fields}
    done = entry.mark is RunPhase.DONE
    return replace(record, landing=replace(landing, step=entry.step, step_done=done, **known))


def _on_pull(record: TaskRecord, entry: LedgerEntry) -> TaskRecord:
    fields, pull = entry.fields, record.pull
    pull = PullRecord(url=fields.get("pr_url", pull.url), number=fields.get("pr_number", pull.number))
    return replace(_on_landing_step(record, entry), pull=pull)


def _on_tell(record: TaskRecord, entry: LedgerEntry) -> TaskRecord:
    record = _on_landing_step(record, entry)
    return replace(record, landing=replace(record.landing, untold=entry.mark is RunPhase.BEGUN))


def _on_block(record: TaskRecord, entry: LedgerEntry) -> TaskRecord:
    about_work = _RESULTS.get(entry.fields.get("result", "")) not in OUTSIDE
    return _on_final(replace(record, blocked_for=record.reason) if about_work else record, entry)


def _on_final(record: TaskRecord, entry: LedgerEntry) -> TaskRecord:
    fields, landing = entry.fields, record.landing
    if "result" in fields:
        landing = replace(landing, result=_RESULTS.get(fields["result"]))
    landing = replace(landing, said=fields.get("said", landing.said))
    return _without_processes(replace(record, landing=landing))


def _without_processes(record: TaskRecord) -> TaskRecord:
    """Its agents are gone, their folders are not. A gate may have left a daemon behind."""
    agent, checks = record.agent, record.checks
    return replace(
        record,
        agent=replace(agent, process=ProcessRecord(folder=agent.process.folder)),
        checks=replace(checks, agent=ProcessRecord(folder=checks.agent.folder)),
    )


_FOLDS: Mapping[Step, Callable[[TaskRecord, LedgerEntry], TaskRecord]] = {
    Step.WORKTREE: _on_worktree,
    Step.LAUNCH: _on_launch,
    Step.SESSION: _on_session,
    Step.END: _on_end,
    Step.KEEP: _on_keep,
    Step.STAGE: _on_stage,
    Step.REVIEW: _on_review,
    Step.BACK: _on_back,
    Step.LAND: _on_landing_step,
    **dict.fromkeys(LANDING_STEPS, _on_landing_step),
    Step.PR: _on_pull,
    Step.TELL: _on_tell,
    Step.MERGED: _on_final,
    Step.PARK: _on_final,
    Step.BLOCK: _on_block,
}


def _holder(fields: Any) -> Holder | None:
    return Holder(**fields) if fields else None
