"""What a provider answers on purpose: the first requests by the script, the rest as its capacity allows.

    429x2              two throttles, then as the capacity allows
    429:0,529:5x3      a bare 429 without a Retry-After, then three overloads
    window:7200x*      the usage window is used up, resets in two hours, for every request
    ok,401             the first as the capacity allows, the second is told its key is bad
    cutx2              served as the capacity allows, but the answer breaks off in the middle, twice

A step is ``WHAT[:SECONDS][xTIMES]``. The seconds are the wait that the answer names, 0 names none, and left
out it is the provider's usual one. ``*`` is for ever. Only model requests count, side calls included.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from flyball.core.signals import SignalKind
from flyball.errors import UsageError

WINDOW_S = 3 * 3600.0
"""When a used-up window opens again, where the script does not say."""

KINDS = {
    "ok": SignalKind.OK,
    "429": SignalKind.THROTTLED,
    "529": SignalKind.OVERLOADED,
    "500": SignalKind.SERVER_ERROR,
    "401": SignalKind.AUTH,
    "credit": SignalKind.CREDIT_GONE,
    "window": SignalKind.WINDOW_USED_UP,
}
CUT = "cut"
_STEP = re.compile(r"(?P<what>\w+?)(?::(?P<wait>\d+(?:\.\d+)?))?(?:x(?P<times>\d+|\*))?")


@dataclass(frozen=True, slots=True)
class ScriptStep:
    """One kind of answer. ``OK`` leaves it to the capacity."""

    kind: SignalKind
    retry_after_s: float | None = None
    times: int | None = 1
    """None is for ever."""
    cut: bool = False
    """What is served breaks off in the middle."""


BY_CAPACITY = ScriptStep(SignalKind.OK)


@dataclass(frozen=True, slots=True)
class ProviderScript:
    steps: tuple[ScriptStep, ...] = ()

    @classmethod
    def parse(cls, text: str, *, usual_s: float | None) -> ProviderScript:
        """Read a script; ``usual_s`` is the wait of a step that names none.

        >>> [ProviderScript.parse("429x2,window", usual_s=1.0).at(n).kind.value for n in range(4)]
        ['throttled', 'throttled', 'window used up', 'ok']
        """
        return cls(tuple(_step(word.strip(), usual_s) for word in text.split(",") if word.strip()))

    def at(self, number: int) -> ScriptStep:
        """What to answer the request with this number, counted from 0."""
        for step in self.steps:
            if step.times is None or number < step.times:
                return step
            number -= step.times
        return BY_CAPACITY


def _step(word: str, usual_s: float | None) -> ScriptStep:
    found = _STEP.fullmatch(word)
    if found is None or found["what"] not in (*KINDS, CUT):
        known = ", ".join((*KINDS, CUT))
        raise UsageError(f"cannot read {word!r} in a script; write 429x2 or window:60, of {known}")
    kind = KINDS.get(found["what"], SignalKind.OK)
    usual_s = WINDOW_S if kind is SignalKind.WINDOW_USED_UP else usual_s
    wait_s = usual_s if found["wait"] is None else float(found["wait"]) or None
    times = None if found["times"] == "*" else int(found["times"] or 1)
    return ScriptStep(kind, wait_s, times, cut=found["what"] == CUT)
