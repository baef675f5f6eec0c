"""The whole exception tree. The class says whose turn it is.

    UsageError       you: the call or the setting is wrong
    RefusedError     the normal no: full, closed, too large, timed out
    StoreError       the world: the state file or the server
    AgentError       the world: a launched program
    SourceError      the world: where tasks are kept
    GitError         the world: a git command
    AccountError     the world: who is logged in is not who was named
    Throttled        the world, as you tell it to a limiter: the provider said to slow down
    InvariantError   us: a bug in flyball

Errors carry fields as well as prose, so callers never parse a message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flyball.core.pool.verdict import Verdict


class FlyballError(Exception):
    """Base of everything flyball raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors cross processes (``multiprocessing``) and are copied, whatever their class is made from."""
        return _again, (type(self), self.args), self.__dict__


def _again(kind: type[FlyballError], args: tuple[Any, ...]) -> FlyballError:
    error = kind.__new__(kind)
    error.args = args
    return error


class UsageError(FlyballError, ValueError):
    """The caller asked for something that makes no sense; the message names the way out."""

    def __init__(self, *words: object, settings: tuple[str, ...] = ()) -> None:
        """``settings``: of a pool or machine, those that do not fit, the one to change first of all."""
        super().__init__(*words)
        self.settings = settings


class PoolInUseError(UsageError):
    """A pool that is in use cannot be removed."""

    def __init__(self, pool: str, *, leases: int, waiting: int, shares: int) -> None:
        counts = {"leases": leases, "waiting": waiting, "share leases": shares}
        found = ", ".join(f"{what}: {number}" for what, number in counts.items() if number)
        super().__init__(
            f"pool {pool!r} is in use ({found}) and cannot be removed; `flyball status {pool}` names them. "
            "Remove it once they have ended; `flyball lease drop` ends a lease whose holder is gone"
        )
        self.pool, self.leases, self.waiting, self.shares = pool, leases, waiting, shares


class RefusedError(FlyballError):
    """No slot now. ``verdict`` says why, who holds it, and when to expect one."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.words())
        self.verdict = verdict

    @property
    def pool(self) -> str:
        return self.verdict.pool

    @property
    def reason(self) -> str:
        return self.verdict.reason.value

    @property
    def retry_after_s(self) -> float | None:
        """When asking again could help, in seconds; None where it is not known."""
        return self.verdict.retry_after_s


class AtCapacityError(RefusedError):
    """No free slot for this ask, and the caller did not want to wait."""


class WaitTimeoutError(RefusedError, TimeoutError):
    """The caller's timeout passed while the ask was waiting."""

    def __init__(self, verdict: Verdict, waited_s: float) -> None:
        super().__init__(verdict)
        self.waited_s = waited_s
        self.args = (f"gave up after {waited_s:g} s, {verdict.words()}",)


class PoolClosedError(RefusedError):
    """The pool admits no ask now: breaker open, trial running, or Retry-After not over."""


class TooLargeError(RefusedError):
    """The ask is larger than the pool can ever grant; waiting is useless."""


class StoreError(FlyballError):
    """The state could not be read or written."""

    maybe_done = False
    """It was sent to a server, and whether it was done is not known: the answer did not come."""


class StoreUnreadableError(StoreError):
    """The state exists but cannot be understood. It is never overwritten."""


class StoreBusyError(StoreError):
    """Another process holds the state's lock and does not let go."""


class StoreFullError(StoreError):
    """The disk (or the quota on it) is full."""


class StoreReadOnlyError(StoreError):
    """The state may be read but not written."""


class StoreClosedError(StoreError):
    """This handle on the state was closed; another one has to be opened."""


class Throttled(FlyballError):  # noqa: N818 (said by callers, like StopIteration: news, not a failure of flyball)
    """Raise it inside a slot when the provider said to slow down in a way only you can read.

    ``retry_after_s``: how long it asked you to stay away, if it did; what is not such a time counts as none.
    """

    def __init__(self, message: str = "throttled", *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class AgentError(FlyballError):
    """A program flyball launched could not be started or behaved impossibly.

    ``exit_code`` is what a shell says of it: 127 not found, 126 not runnable.
    """

    def __init__(self, message: str, *, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class SourceError(FlyballError):
    """The place where tasks are kept cannot be read or written."""


class GitError(FlyballError):
    """A git command failed. ``output`` is what it said."""

    def __init__(self, message: str, *, output: str = "", code: int | None = None) -> None:
        super().__init__(message)
        self.output = output
        self.code = code


class AccountError(FlyballError):
    """The account that would be used is not the one that was named, or it cannot be told whose it is."""


class InvariantError(FlyballError, AssertionError):
    """Something flyball relies on is false. This is a bug in flyball."""


def invariant(condition: object, message: str) -> None:
    """Check what must always hold. Unlike ``assert`` it stays on under ``python -O``."""
    if not condition:
        raise InvariantError(message)
