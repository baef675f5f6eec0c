"""The oldest flyball that a project can be run with, and whether this one will do.

    engine = "0.2+"      at least 0.2
    engine = ">=0.2.3"   at least 0.2.3
    engine = "0.2"       the same as 0.2+: a project names what it needs, not what it was made with
    engine = ""          any

Compared number by number; what is missing counts as 0. Of a version such as ``0.3.0rc1`` only the numbers in
front count, so a pre-release will do where its release would.
"""

from __future__ import annotations

import re

from flyball.errors import UsageError

Numbers = tuple[int, ...]

_REQUIREMENT = re.compile(r"(?:>=\s*)?v?([0-9]{1,9}(?:\.[0-9]{1,9}){0,3})\s*\+?", re.IGNORECASE)
_VERSION = re.compile(r"v?([0-9]{1,9}(?:\.[0-9]{1,9}){0,3})", re.IGNORECASE)


def minimum(requirement: str) -> Numbers:
    """The lowest version that a requirement allows; empty for any.

    >>> [minimum(text) for text in ("0.2+", ">=0.2.3", "v0.2", "")]
    [(0, 2), (0, 2, 3), (0, 2), ()]
    """
    text = requirement.strip()
    if not text:
        return ()
    found = _REQUIREMENT.fullmatch(text)
    if found is None or (text.startswith(">") and text.endswith("+")):
        raise UsageError(f"{requirement!r} is not a minimum version; write 0.2+ or >=0.2.3, or leave it out")
    return _numbers(found[1])


def satisfies(version: str, requirement: str) -> bool:
    """Is this version of flyball new enough?

    >>> satisfies("0.10.0", "0.9+"), satisfies("0.2", ">=0.2.0"), satisfies("0.2.2", ">=0.2.3")
    (True, True, False)
    """
    lowest, found = minimum(requirement), _VERSION.match(version)
    if not lowest:
        return True
    have = _numbers(found[1]) if found is not None else ()
    length = max(len(have), len(lowest))
    return _padded(have, length) >= _padded(lowest, length)


def too_old_words(version: str, requirement: str) -> str:
    """What to say about a flyball that is too old, behind the name of what asks for a newer one."""
    wanted = ".".join(str(number) for number in minimum(requirement))
    return f"needs flyball {wanted} or newer, and this is {version}"


def _numbers(text: str) -> Numbers:
    return tuple(int(part) for part in text.split("."))


def _padded(numbers: Numbers, length: int) -> Numbers:
    return numbers + (0,) * (length - len(numbers))
