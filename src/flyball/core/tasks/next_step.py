"""What happens next to a task's run: after its agent ended, after a stage or a review of its work, after its
landing, after the engine itself was gone.

Each question is a pure function; all give a ``Decision``. It carries its sentence, because that goes into the
ledger and onto the board.

After an agent's end:

    finished with work        check it: its stages, its review; then land it
    finished without          blocked: no changes
    limited                   again later, same session, no attempt burned; a limit that only a person can
                              lift pauses the whole run
    the key is wrong          blocked at once: trying again cannot help
    failed, killed, unknown   again while the budget lasts: with its session where it left commits, else fresh

After a stage or a review of finished work:

    passed, or not required   on to the next check, or to the landing
    failed, blocking          back to the agent's own session while the budget of reviews lasts; then a stage
                              blocks the run, and findings park it for a person
    could not be had          unreviewed: parked for a person, never landed by itself

After a landing:

    merged                    over
    red, or it clashes        back to the agent while its budget lasts
    something outside         parked: an origin that is not there or refuses, a gate that cannot be run. The
                              next run lands it again, without an agent
    protected, unsigned, ...  blocked

After the engine was gone (the agent is what the world says, not what the ledger says):

    terminal                  leave it
    alive                     re-attach; if nothing tells how it ends then, it was dying: as dead
    dead, its end on file     judge it as if we had been there
    dead with commits         resume its session
    dead without              fresh
    budget spent              blocked
    its task was closed       let go, unless its landing has begun
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from flyball.core.signals import End, Signal, SignalKind
from flyball.core.tasks.task_run import OUTSIDE, Cause, LandingResult, State, TaskRecord

ATTEMPTS_BY_TIER: Mapping[int, int] = {0: 1, 1: 2, 2: 3, 3: 5}
"""Recovery tier: how often work that failed is tried again by itself. 0 asks a person at once."""
DEFAULT_TIER = 2
_LONGEST_BACKOFF = 20
_LAUNCHES_LIMIT = 50
"""However it ends: nothing is launched for ever."""


class Action(Enum):
    CHECK = "check"
    """Stages and review, where the project has them."""
    LAND = "land"
    AGAIN = "again"
    BLOCK = "block"
    PARK = "park"
    MERGED = "merged"
    REATTACH = "reattach"
    LEAVE = "leave"
    JUDGE = "judge"
    """Its end is on file: read it, then decide as if we had been there."""
    LAND_ON = "land on"
    """A landing was under way: finish it, or do it again."""
    PREPARE = "prepare"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    move: Action
    why: str = ""
    detail: str = ""
    """What there is to see, for the agent that tries again."""
    said: str = ""
    """What a landing had to say that changes nothing about why it stands where it stands."""
    cause: Cause | None = None
    fresh: bool = False
    """Start a new session instead of going on with the old one."""
    wait_s: float = 0.0
    pause: str = ""
    """Not only this run: the run cannot go on before a person or a reset changes something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    attempts: int = 3
    limited: int = 5
    gate: int = 2
    conflict: int = 2
    review: int = 2
    backoff_s: float = 15.0


MERGE = "merge"
"""The way of work that goes straight into the default branch."""
NO_RETRIES = Budgets(attempts=1, limited=0, gate=0, conflict=0, review=0)


def budgets_for(
    tier: int,
    *,
    attempts: int | None = None,
    limited: int,
    gate: int,
    conflict: int,
    review: int,
    backoff_s: float,
) -> Budgets:
    """The tier decides how often a failure is tried again; a number of its own wins for the default tier."""
    by_tier = ATTEMPTS_BY_TIER.get(tier, ATTEMPTS_BY_TIER[DEFAULT_TIER])
    most = attempts if attempts is not None and tier == DEFAULT_TIER else by_tier
    eager = tier > 0
    return Budgets(
        attempts=most,
        limited=limited,
        gate=gate if eager else 0,
        conflict=conflict if eager else 0,
        review=review if eager else 0,
        backoff_s=backoff_s,
    )


def after_end(
    record: TaskRecord,
    budgets: Budgets,
    *,
    end: End,
    reason: str,
    signal: Signal | None,
    commits: bool,
    unrecorded: bool = False,
) -> Decision:
    """``commits``: the branch has something that its base has not, left-over changes included.
    ``unrecorded``: it had outlived its engine, and its exit status was not written down."""
    if end is End.UNKNOWN and unrecorded:
        why = "the agent was found again, and nothing tells how it ended"
        return _after_interruption(record, budgets, why=why, commits=commits)
    if end is End.LIMITED:
        return after_limit(budgets, limits=record.backs.limited, reason=reason, signal=signal)
    if is_keyless(signal):
        return Decision(move=Action.BLOCK, why=f"{reason}; {_KEYLESS}")
    if end is End.FINISHED:
        return Decision(move=Action.CHECK) if commits else Decision(move=Action.BLOCK, why=_NO_CHANGES)
    tried, why = record.backs.failed + 1, reason or end.value
    if tried >= budgets.attempts or record.launches >= _LAUNCHES_LIMIT:
        times = "once" if tried == 1 else f"{tried} times"
        return Decision(move=Action.BLOCK, why=f"failed {times}, the last time: {why}")
    return Decision(move=Action.AGAIN, cause=Cause.FAILED, why=why, fresh=not commits)


_KEYLESS = "trying again cannot help, check the login or the key"
_NO_CHANGES = "no-changes: the agent finished without changing anything; make the task clearer, or close it"


def is_keyless(signal: Signal | None) -> bool:
    """Whether the provider refuses this login or key: trying again cannot help."""
    return signal is not None and signal.kind is SignalKind.AUTH


def after_limit(budgets: Budgets, *, limits: int, reason: str, signal: Signal | None) -> Decision:
    """``limits``: how often in a row that was so before."""
    kind = signal.kind if signal is not None else SignalKind.THROTTLED
    wait_s = signal.retry_after_s if signal is not None else None
    hopeless = kind is SignalKind.CREDIT_GONE or (kind is SignalKind.WINDOW_USED_UP and wait_s is None)
    if hopeless:
        return Decision(move=Action.AGAIN, cause=Cause.LIMITED, why=reason, pause=reason)
    if limits >= budgets.limited:
        again = "flyball run tries again"
        return Decision(move=Action.BLOCK, why=f"limited {limits + 1} times in a row ({reason}); {again}")
    turn = min(limits + 1, _LONGEST_BACKOFF)
    backoff_s = budgets.backoff_s * turn
    return Decision(
        move=Action.AGAIN, cause=Cause.LIMITED, why=reason, wait_s=backoff_s if wait_s is None else wait_s
    )


def after_stage(
    record: TaskRecord,
    budgets: Budgets,
    *,
    stage: str,
    required: bool,
    end: End,
    reason: str,
    signal: Signal | None = None,
) -> Decision:
    """A stage's agent has ended for good; a limit that comes here was waited out too often."""
    if end is End.FINISHED or not required:
        return Decision(move=Action.CHECK)
    why = f"the stage {stage} failed: {reason or end.value}"
    if is_keyless(signal) or end is End.LIMITED:
        return Decision(move=Action.BLOCK, why=f"{why}; {_KEYLESS}" if is_keyless(signal) else why)
    if record.backs.review < budgets.review:
        return Decision(move=Action.AGAIN, cause=Cause.REVIEW, why=why)
    return Decision(move=Action.BLOCK, why=f"{why}{_so_often(record)}")


def after_review(
    record: TaskRecord, budgets: Budgets, *, passed: bool | None, why: str, objections: Sequence[str] = ()
) -> Decision:
    """``passed``: None where no review could be had. ``why`` says how much stands against it, ``objections``
    what."""
    by_hand = f"flyball merge {record.task} lands it all the same"
    if passed:
        return Decision(move=Action.LAND)
    if passed is None:
        return Decision(move=Action.PARK, why=f"unreviewed: {why}; {by_hand}")
    if record.backs.review < budgets.review:
        detail = "\n".join(f"- {each}" for each in objections)
        return Decision(move=Action.AGAIN, cause=Cause.REVIEW, why=why, detail=detail)
    found = "; ".join(objections) or why
    return Decision(move=Action.PARK, why=f"its review blocks it{_so_often(record)}: {found}; {by_hand}")


def _so_often(record: TaskRecord) -> str:
    backs = record.backs.review
    return f" after it was sent back {'once' if backs == 1 else f'{backs} times'}" if backs else ""


def pull_words(record: TaskRecord) -> str:
    """That its pull request waits for people."""
    where = f"pull request #{record.pull.number} is open: {record.pull.url}"
    before = f"; before, it was blocked: {record.blocked_for}" if record.blocked_for else ""
    return f"{where}; flyball land {record.task} once it is approved{before}"


_LANDS_AGAIN = OUTSIDE - {LandingResult.ERROR}
"""A person mends something outside; then the work lands as it is, and no agent is paid for it."""
_WAITS = _LANDS_AGAIN | {LandingResult.PR_OPENED, LandingResult.UNAPPROVED}
"""The work is as good as it was, and it is a person's turn."""


def after_landing(
    record: TaskRecord,
    budgets: Budgets,
    *,
    result: LandingResult,
    why: str,
    detail: str = "",
    waits: bool = False,
) -> Decision:
    """``waits``: whatever the result, no agent could help; it is a person's turn.

    Where a person had blocked work landed and something outside was in the way, it stays blocked for what it
    was blocked for.
    """
    if result in OUTSIDE and record.blocked_for and not record.pull.number:
        return Decision(move=Action.BLOCK, why=record.blocked_for, said=f"{result.value}: {why}")
    if result is LandingResult.MERGED:
        return Decision(move=Action.MERGED, why=why)
    if result is LandingResult.GATE_FAILED and record.backs.gate < budgets.gate:
        return Decision(move=Action.AGAIN, cause=Cause.GATE, why=why, detail=detail)
    if result is LandingResult.CONFLICT and record.backs.conflict < budgets.conflict:
        return Decision(move=Action.AGAIN, cause=Cause.CONFLICT, why=why, detail=detail)
    if waits or result in _WAITS or (result in OUTSIDE and record.pull.number):
        if result is LandingResult.PR_OPENED:
            return Decision(move=Action.PARK, why=why)
        merging = record.landing.way == MERGE and result in (LandingResult.NO_REMOTE, LandingResult.DIVERGED)
        # Where a pull request is to be opened, its landing says by itself how that is done after all.
        mended = not record.pull.number and (merging or result is LandingResult.GATE_BROKEN)
        again = "; once that is mended, flyball run lands it without an agent" if mended else ""
        return Decision(move=Action.PARK, why=f"{result.value}: {why}{again}")
    return Decision(move=Action.BLOCK, why=f"{result.value}: {why}")


def wants_pull(record: TaskRecord) -> bool:
    """Whether finished work waits because its pull request could not be opened."""
    outside = (
        record.landing.result in (LandingResult.NO_GH, LandingResult.NO_REMOTE)
        and record.landing.way != MERGE
    )
    return record.state is State.PARKED and outside and not record.pull.number


def lands_again(record: TaskRecord) -> bool:
    """Whether finished work waits only because something outside was in the way of its landing."""
    return record.state is State.PARKED and record.landing.result in _LANDS_AGAIN and not record.pull.number


def may_let_go(record: TaskRecord) -> bool:
    """Whether it may be let go because its task is closed. A landing that has begun may be what closed it,
    and a pull request that is open is for people to decide."""
    reviewed = record.state is State.CHECKING and record.pull.number
    return not (record.final or record.state is State.LANDING or reviewed)


def may_send_back(record: TaskRecord) -> bool:
    """Whether a person may send its work back to an agent: not what is under way, nor what landed."""
    return record.state in (State.PARKED, State.BLOCKED)


def on_resume(
    record: TaskRecord, budgets: Budgets, *, alive: bool, ended_on_file: bool, commits: bool
) -> Decision:
    """What to do with a task's run that another engine left behind."""
    if record.final:
        return Decision(move=Action.LEAVE)
    if record.state is State.LANDING:
        return Decision(move=Action.LAND_ON)
    if record.state is State.CHECKING and record.pull.number:
        return Decision(move=Action.PARK, why=f"{pull_words(record)}; its review was cut short")
    if record.state is State.CHECKING:
        return Decision(move=Action.CHECK)
    if record.state is State.CLAIMED:
        return Decision(move=Action.PREPARE)
    if record.state is State.RUNNING and alive:
        return Decision(move=Action.REATTACH)
    if record.state is State.RUNNING and ended_on_file:
        return Decision(move=Action.JUDGE)
    if record.state is State.ENDED:
        return Decision(move=Action.JUDGE)
    if record.state is State.READY:
        return Decision(move=Action.PREPARE)
    why = "the agent was gone when the run went on"
    return _after_interruption(record, budgets, why=why, commits=commits)


def _after_interruption(record: TaskRecord, budgets: Budgets, *, why: str, commits: bool) -> Decision:
    """It went with its engine: no attempt is burned."""
    if record.backs.failed >= budgets.attempts:
        return Decision(
            move=Action.BLOCK, why=f"failed {record.backs.failed} times, the last time: {record.reason}"
        )
    return Decision(move=Action.AGAIN, cause=Cause.INTERRUPTED, why=why, fresh=not commits)
