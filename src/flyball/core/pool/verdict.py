"""The whole answer to an ask: granted, parked or refused, why, what is in the way, and when to look again.

Code branches on ``kind`` and ``reason``; the words for people are made from the fields here and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class VerdictKind(Enum):
    """Granted, parked in the queue, or refused."""

    GRANTED = "granted"
    PARKED = "parked"
    REFUSED = "refused"


class Reason(Enum):
    """Why an ask was not granted; ``FREE`` if it was. ``PHRASES`` has the words for people."""

    FREE = "free"
    CAP = "cap"
    RESERVE = "reserve"
    SHARE = "share"
    MAXIMUM = "maximum"
    QUEUE = "queue"
    SPACING = "spacing"
    WINDOW = "window"
    USED_UP_SOON = "window-used-up-soon"
    """A usage window of the account is nearly used up: what is left is kept."""
    RETRY_AFTER = "retry-after"
    BREAKER = "breaker"
    TRIAL = "trial"
    MACHINE = "machine"
    MEMORY = "memory"
    CPU = "cpu"
    RESOURCE = "resource"
    TOO_LARGE = "too-large"
    FENCED = "fenced"
    KEY_USED = "key-used"
    LINE_FULL = "line-full"
    OUTAGE = "outage"
    """The store does not answer; asks in line wait for it."""


CLOSED_REASONS = frozenset(
    {Reason.RETRY_AFTER, Reason.BREAKER, Reason.TRIAL, Reason.FENCED, Reason.USED_UP_SOON}
)
_TIMED_REASONS = CLOSED_REASONS | {Reason.SPACING, Reason.SHARE, Reason.WINDOW}


@dataclass(frozen=True, slots=True)
class Blocker:
    """The work that is in the way."""

    project: str
    name: str
    pid: int
    host: str
    age_s: float

    def words(self, reason: Reason) -> str:
        """The work as a phrase: what it is in the way, and for how long."""
        who = f"{self.project}/{self.name}, {span_words(self.age_s)}"
        if reason is Reason.TRIAL:
            return f"the trial is {who}"
        return f"used by {who}" if reason is Reason.RESOURCE else f"the longest is {who}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Granted, parked or refused, always with the reason, the blocker and an estimate."""

    kind: VerdictKind
    reason: Reason
    pool: str
    claim_id: int = 0
    asked_at: float = 0.0
    """When the claim was asked for, on the store's clock: it names the claim together with the id."""
    in_use: int = 0
    cap: int = 0
    reserved: int = 0
    project_in_use: int = 0
    """What the project of the ask holds of these; given where the ask was not granted."""
    project_maximum: int | None = None
    position: int = 0
    """1 is next in line; 0 where there is no line."""
    look_again_s: float | None = None
    """When something is known to change, from now."""
    estimate_s: float | None = None
    usual_s: float | None = None
    """How long leases of the pool last, where there is no estimate because those of now last longer."""
    blocker: Blocker | None = None
    detail: str = ""
    replayed: bool = False
    """The same key was used before, and this is the verdict of then."""
    watch: bool = False
    """This waiter watches the holders and the time for all asks in line."""

    @property
    def granted(self) -> bool:
        """Whether the ask may go on."""
        return self.kind is VerdictKind.GRANTED

    @property
    def retry_after_s(self) -> float | None:
        """When asking again could help; None where it is not known."""
        if self.reason is Reason.TOO_LARGE or self.estimate_s is not None:
            return self.estimate_s
        return self.look_again_s if self.reason in _TIMED_REASONS else None

    def words(self) -> str:
        """One line for a person.

        >>> v = Verdict(kind=VerdictKind.PARKED, reason=Reason.CAP, pool="anthropic", in_use=6, cap=6,
        ...             reserved=2, estimate_s=170, blocker=Blocker("blog", "t-14", 4121, "box", 60))
        >>> v.words()
        'waiting: anthropic 6 of 6 in use, 2 reserved, next slot ~3 min; the longest is blog/t-14, 60 s'
        """
        if self.granted:
            return f"granted: {self.pool} {self.in_use}/{self.cap}"
        opening = "waiting" if self.kind is VerdictKind.PARKED else "refused"
        return f"{opening}: {self.pool} {self.why()}"

    def why(self, *, place: bool = True, estimate: bool = True) -> str:
        """What stands in the way of an ask, without its pool; with its place in line and the estimate.

        >>> Verdict(kind=VerdictKind.PARKED, reason=Reason.CAP, pool="p", in_use=6, cap=6, position=3).why()
        '6 of 6 in use, place 3 in line'
        """
        parts = [f"{self.in_use} of {self.cap} in use"]
        if self.reserved:
            parts.append(f"{self.reserved} reserved")
        phrase = self.detail or PHRASES.get(self.reason, "")
        if phrase:
            parts.append(phrase)
        if place and self.position > 1:
            parts.append(f"place {self.position} in line")
        if estimate and self.estimate_s is not None and self.reason is not Reason.TOO_LARGE:
            parts.append(f"next slot ~{span_words(self.estimate_s)}")
        if estimate and self.usual_s is not None:
            parts.append(f"longer than usual ({span_words(self.usual_s)}), no estimate")
        tail = f"; {self.blocker.words(self.reason)}" if self.blocker else ""
        return f"{', '.join(parts)}{tail}"


def granted_verdict(pool: str, claim_id: int, *, asked_at: float, in_use: int = 0, cap: int = 0) -> Verdict:
    """The verdict of an ask that has its slots."""
    return Verdict(
        kind=VerdictKind.GRANTED,
        reason=Reason.FREE,
        pool=pool,
        claim_id=claim_id,
        asked_at=asked_at,
        in_use=in_use,
        cap=cap,
    )


PHRASES = {
    Reason.QUEUE: "others are first",
    Reason.RESERVE: "the free slots are reserved for priority above 0",
    Reason.SHARE: "the project uses its fair share",
    Reason.MAXIMUM: "the project is at its maximum",
    Reason.SPACING: "starts are spaced",
    Reason.WINDOW: "a window has no room",
    Reason.USED_UP_SOON: "a usage window of the account is nearly used up (flyball quota show)",
    Reason.RETRY_AFTER: "the provider refuses for now",
    Reason.BREAKER: "breaker open after repeated throttles",
    Reason.TRIAL: "breaker half open, one trial at a time",
    Reason.MACHINE: "the machine's ceiling over all pools is reached",
    Reason.MEMORY: "free memory is below the floor",
    Reason.CPU: "too much work waits for a CPU",
    Reason.RESOURCE: "a resource is fully used",
    Reason.TOO_LARGE: "asks for more slots than the pool can ever grant",
    Reason.FENCED: "the time of its share is up",
    Reason.LINE_FULL: "as many wait as may wait",
    Reason.KEY_USED: "its key was used for something else",
    Reason.OUTAGE: "the store does not answer",
}


def one_line(text: str, chars: int = 300) -> str:
    """A text from outside without anything that a terminal or a database would take amiss.

    >>> one_line("429:\\n slow\\x1b[1m down", 12)
    '429: slow[1m'
    """
    return "".join(filter(str.isprintable, " ".join(text.split())))[:chars]


def span_words(seconds: float) -> str:
    """A duration as people say it.

    >>> [span_words(s) for s in (0.4, 42, 170, 7300, 200_000)]
    ['1 s', '42 s', '3 min', '2 h', '2 d']
    """
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} min"
    if seconds < 36 * 3600:
        return f"{round(seconds / 3600)} h"
    return f"{round(seconds / 86400)} d"
