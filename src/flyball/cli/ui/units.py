"""How people write durations, sizes and pairs on a command line. Usable as argparse types.

Paths, and words with paths in them, as text that can be shown and stored.
"""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

from flyball.core.pool.rate_window import parse_rate
from flyball.core.pool.settings import DEFAULT_POOL
from flyball.errors import UsageError

_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_BYTES |= {
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
    "k": 2**10,
    "m": 2**20,
    "g": 2**30,
    "t": 2**40,
}


def duration(text: str) -> float:
    """Seconds from ``90``, ``90s``, ``10m``, ``1h30m`` or ``250ms``.

    >>> [duration(text) for text in ("0", "90", "10m", "1h30m", "250ms")]
    [0.0, 90.0, 600.0, 5400.0, 0.25]
    """
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|)", text.strip().lower())
    if not parts or "".join(number + unit for number, unit in parts) != text.strip().lower():
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration; write 90s, 10m or 1h30m")
    if len(parts) > 1 and any(not unit for _, unit in parts):
        raise argparse.ArgumentTypeError(f"{text!r} lacks a unit; write 90s, 10m or 1h30m")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def size(text: str) -> int:
    """Bytes from ``2GiB``, ``500MB`` or a plain number.

    >>> size("2GiB"), size("500MB"), size("4096")
    (2147483648, 500000000, 4096)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    if found is None or found[2] not in _BYTES:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write 2GiB or 500MB")
    return int(float(found[1]) * _BYTES[found[2]])


def key_count(text: str) -> tuple[str, int]:
    """``docker=2``, or ``docker`` for one. The last ``=`` divides, so keys may contain others.

    >>> key_count("docker=2"), key_count("gpu")
    (('docker', 2), ('gpu', 1))
    """
    key, separator, count = text.rpartition("=")
    if not separator:
        key, count = text, "1"
    if not key or not count.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=NUMBER")
    return key, int(count)


def key_limit(text: str) -> tuple[str, int]:
    """``docker=2``; the number must be there."""
    if "=" not in text:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=NUMBER")
    return key_count(text)


def key_weight(text: str) -> tuple[str, float]:
    """``blog=2.5``. The last ``=`` divides.

    >>> key_weight("a=b=0.5")
    ('a=b', 0.5)
    """
    key, _, weight = text.rpartition("=")
    try:
        value = float(weight)
    except ValueError:
        value = -1.0
    if not key or not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=NUMBER")
    return key, value


def key_pattern(text: str) -> tuple[str, str]:
    """``opus=claude-opus-*``, or ``opus`` alone where that name is known; ``opus=0`` removes it.

    >>> key_pattern("opus=claude-opus-*"), key_pattern("haiku")
    (('opus', 'claude-opus-*'), ('haiku', '*haiku*'))
    """
    from flyball.core.pool.families import KNOWN_FAMILIES

    key, given, pattern = text.partition("=")
    if not given:
        pattern = KNOWN_FAMILIES.get(key, "")
    if not key or not pattern:
        known = ", ".join(KNOWN_FAMILIES)
        raise argparse.ArgumentTypeError(
            f"{text!r} is not NAME=MODEL, such as opus=claude-opus-*; known without =MODEL: {known}"
        )
    return key, pattern


def key_rate(text: str) -> tuple[str, str]:
    """``tokens=200k/min``; ``tokens=0`` removes it.

    >>> key_rate("tokens=200k/min")
    ('tokens', '200k/min')
    """
    key, _, written = text.partition("=")
    if not key or not written:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=RATE, such as tokens=200k/min")
    if written != "0":
        try:
            parse_rate(written)
        except UsageError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    return key, written


def part(text: str) -> float:
    """A part of a whole, as ``80%`` or ``0.8``.

    >>> part("80%"), part("0.8"), part("0")
    (0.8, 0.8, 0.0)
    """
    written = text.strip()
    try:
        value = float(written.removesuffix("%")) / (100 if written.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a part of a whole; write 80% or 0.8")
    return value


def amount(number: float) -> str:
    """A quantity as people say it.

    >>> [amount(n) for n in (7, 812, 81_250, 2_000_000)]
    ['7', '812', '81.2k', '2M']
    """
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if number >= 10 * size or (number >= size and unit == "M"):
            return f"{round(number / size, 1):g}{unit}"
    return f"{round(number):g}"


def pool_name(text: str) -> str:
    """A pool as it is named on a command line; an empty word is the default pool."""
    return text or DEFAULT_POOL


def whole(text: str) -> int:
    """A whole number, with a message that says what was typed."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def count(text: str) -> int:
    """A whole number that is not negative."""
    number = whole(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is below 0")
    return number


def count_or_all(text: str) -> int | None:
    """A number of lines; None: all of them."""
    return None if text == "all" else count(text)


def size_words(count: int) -> str:
    """Bytes as people say them.

    >>> [size_words(n) for n in (512, 2 * 2**30, 500_000_000)]
    ['512 B', '2 GiB', '476.8 MiB']
    """
    for unit, power in (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << power:
            return f"{round(count / (1 << power), 1):g} {unit}"
    return f"{count} B"


def counted(number: int, word: str) -> str:
    """
    >>> counted(1, "pool"), counted(3, "pool")
    ('1 pool', '3 pools')
    """
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def whole_or_off(text: str) -> int | None:
    """A number, or None for ``off`` (and for 0, which limits to nothing)."""
    return None if text == "off" else whole(text) or None


def size_or_off(text: str) -> int | None:
    """A size, or None for ``off``."""
    return None if text == "off" else size(text) or None


def command(*words: str) -> str:
    """A command a person can paste, whatever the names in it.

    >>> command("why", "blog/fix the tests")
    "flyball why 'blog/fix the tests'"
    """
    return shlex.join(["flyball", *words])


def shown_path(path: Path) -> str:
    """A path, whatever bytes it is made of.

    >>> shown_path(Path("/a\\udcff"))
    '/a\\\\udcff'
    """
    return shown_words(str(path))


def shown_words(words: str) -> str:
    return words.encode("utf-8", "backslashreplace").decode()
