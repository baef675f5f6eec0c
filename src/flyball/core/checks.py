"""What a caller may say, whatever it is for: names, amounts, times. It is refused before it is stored.

One machine's state is shared by every program on it: a name that cannot be shown or a number that is none,
once written, is everybody's trouble. So each rule stands here once, and every way in goes by it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from flyball.errors import UsageError

NAME_LIMIT = 200
AMOUNT_LIMIT = 1e15
_UNSHOWN = frozenset(
    [
        *range(0x20),
        *range(0x7F, 0xA0),
        # What ends a line, and what turns the order of what follows.
        *(0x061C, 0x200E, 0x200F, 0x2028, 0x2029),
        *range(0x202A, 0x202F),
        *range(0x2066, 0x206A),
    ]
)
"""Characters that no name may hold: a screen obeys them instead of showing them. Others that merely have no
shape of their own, such as what joins two emoji into one, are fine."""


def check_name(what: str, value: str, *, empty: bool = False, limit: int = NAME_LIMIT) -> str:
    """A pool, project or task name: any printable text, bounded, so it can be shown and stored."""
    if not isinstance(value, str):
        raise UsageError(f"{what} must be text, not {type(value).__name__}")
    if 0 < len(value) <= limit and value.isprintable():
        return value
    if not value and not empty:
        raise UsageError(f"{what} must not be empty")
    if len(value) > limit:
        raise UsageError(f"{what} is {len(value)} characters long; at most {limit}")
    if any(ord(c) in _UNSHOWN or 0xD800 <= ord(c) <= 0xDFFF for c in value):
        raise UsageError(f"{what} {value!r} contains control characters")
    return value


def check_amounts(what: str, amounts: Mapping[str, float]) -> None:
    """What a call costs or used, by window: finite numbers of 0 or more."""
    for window, amount in amounts.items():
        check_name("window", window)
        # type() and not isinstance: True is no amount.
        if type(amount) not in (int, float) or not 0 <= amount < AMOUNT_LIMIT:
            raise UsageError(
                f"{what} in {window!r} must be a number from 0 to {AMOUNT_LIMIT:g}, not {amount!r:.80}"
            )


def check_timeout(timeout: float | None) -> None:
    """How long somebody is ready to wait."""
    if timeout is None:
        return
    said: object = timeout
    number = isinstance(said, int | float) and not isinstance(said, bool)
    # A float may be endless; a whole number too large for one fails in the middle of the wait.
    if not number or not (0 <= timeout < AMOUNT_LIMIT or timeout == math.inf):
        raise UsageError(
            f"timeout must be from 0 to {AMOUNT_LIMIT:g} seconds, or None for ever; not {timeout!r:.80}"
        )
