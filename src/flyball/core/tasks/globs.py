"""The tokens of a footprint: paths, globs and plain words in one namespace, and whether two of them can meet.

A token stands for a set of paths. Two tokens meet if some path could be in both, whatever files exist today.

    pages            the path, and all beneath it: a folder and its content. A word such as ``api`` is a path
                     of one name
    pages/hello.md   the path only, as its last name has an extension (a dot, then small letters and digits)
    pages/  pages/** all beneath it; in the middle ``**`` is any number of names, also none
    a/?.py  [ab]x    within one name: ``?`` is one character, ``*`` any number, ``[a-z]`` and ``[!a-z]`` one
                     of a class. If the last name is like this it is the path only: ``src/*`` and
                     ``src/core/x`` do not meet

Two tokens meet as well if one leads by name through the whole other: ``conf.d/x`` says that ``conf.d`` is a
folder, whatever it looks like. To say so where no other token does, write ``conf.d/``.

Case matters, ``./x`` and ``x//y`` are ``x`` and ``x/y``, and text is compared in Unicode's NFC.
``check_token`` refuses what cannot be meant. Comparing never raises: a token that would be refused meets
every other, for where it is not known what is touched, guessing less would be wrong.

Comparing is a walk over pairs of positions, so its cost is at most the product of two lengths; nothing
backtracks. Here are tokens and their single names; glob_index.py compares whole tokens, many at once.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple

from flyball.errors import UsageError

_DEEP: Final = "**"
TOKEN_LIMIT: Final = 500
NAMES_LIMIT: Final = 64

Atom = tuple[tuple[int, int], ...]
"""The characters that may stand at one place of a name, as ranges of code points in order."""

_STAR: Final[Atom] = ()
"""Any number of characters. A class with nothing in it is refused, so no other atom is empty."""
_EASY = re.compile(r"[\w*?][\w.*?-]*(?:/[\w*?][\w.*?-]*)*", re.ASCII)
"""What most tokens look like. If such a one is short there is nothing in it to check."""
_ALTERNATIVES = re.compile(r"\{[^{}]*,[^{}]*\}")
_CLASS = re.compile(r"\[([!^]?+)(.[^\]]*)\]")  # a ] that comes first belongs to the class
_SLASH = (ord("/"), ord("/"))
_LAST = 0x10FFFF


class Deep(Enum):
    """Any number of names, also none."""

    DEEP = _DEEP


class Glob(NamedTuple):
    """One name with wildcards in it."""

    text: str
    prefix: str
    """What every match begins with; ``suffix``: what it ends with. Most that do not fit differ there."""
    suffix: str
    middle: tuple[str, ...] | None
    """Where stars are the only wildcards: what stands between them, from the second to the last."""


DEEP: Final = Deep.DEEP
Name = str | Glob
Place = Name | Deep
"""What a pattern is made of."""


def check_token(token: str) -> str:
    """The token in its normal form, or UsageError with the way out.

    >>> check_token("./pages//hello*")
    'pages/hello*'
    """
    if not isinstance(token, str):
        raise UsageError(f"a token must be text, not {type(token).__name__}; put it in quotes")
    names = _names(token)
    _pattern(token, names)
    tail = "/" if token.endswith("/") and names[-1] != _DEEP else ""
    return "/".join(names) + tail


@lru_cache(maxsize=1 << 15)
def parse_pattern(token: str) -> tuple[Place, ...]:
    """A token ready to compare; its last place is DEEP where all beneath belongs to it."""
    easy = len(token) < 2 * NAMES_LIMIT and _EASY.fullmatch(token)
    if easy and "*" not in token and "?" not in token:
        return _plain(token.split("/"))
    try:
        return _pattern(token, token.split("/") if easy else _names(token))
    except UsageError:
        return (_ANY, DEEP)


def meets(a: Glob, b: Glob) -> bool:
    """Whether one name could match both."""
    if not (a.prefix.startswith(b.prefix) or b.prefix.startswith(a.prefix)):
        return False
    if not (a.suffix.endswith(b.suffix) or b.suffix.endswith(a.suffix)):
        return False
    if a.middle is not None and b.middle is not None:
        return True  # stars make room for all that the other wants to have between
    return _common(_atoms(a.text), _atoms(b.text))


def fits(glob: Glob, name: str) -> bool:
    """Whether a plain name matches."""
    text, prefix, suffix, middle = glob
    if text == "*":  # a part of every a/**, so it is by far the most frequent
        return True
    at, end = len(prefix), len(name) - len(suffix)
    if end < at or not name.endswith(suffix) or not name.startswith(prefix):
        return False
    if middle is None:
        return _common(_atoms(glob.text), tuple(_one(char) for char in name))
    for piece in middle:  # the first place for each leaves most room for those after it
        found = name.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def _common(a: tuple[Atom, ...], b: tuple[Atom, ...]) -> bool:
    """Is there a text that both spell? Bit j of ``at``: what is read of a can be the same text as b[:j]."""
    stars = sum(1 << j for j, atom in enumerate(b) if atom == _STAR)
    everywhere = (1 << (len(b) + 1)) - 1
    hits: dict[Atom, int] = {}
    at = 1 | (stars & 1) << 1
    for atom in a:
        if atom == _STAR:
            at = everywhere & -(at & -at)  # it swallows any number of b's atoms from the first reached one on
        else:
            if atom not in hits:
                hits[atom] = sum(1 << j for j, other in enumerate(b) if _intersect(atom, other))
            at = (at & hits[atom]) << 1 | (at & stars)
            at |= (at & stars) << 1
        if not at:
            return False
    return bool(at >> len(b) & 1)


def _intersect(a: Atom, b: Atom) -> bool:
    return any(low <= end and start <= high for low, high in a for start, end in b)


# -- reading a token ---------------------------------------------------------------------------------------


def _names(token: str) -> list[str]:
    """Its parts between slashes, without what means nothing. Names with wildcards are not looked into."""
    _check_text(token)
    if not token.isascii():
        token = unicodedata.normalize("NFC", token)
    names = [name for name in token.split("/") if name not in ("", ".")]
    if not names:
        raise UsageError(f"{token!r} names the whole project; write ** for everything")
    if ".." in names:
        raise UsageError(f"{token!r} leads out of the project; write the path from the project's root")
    if len(names) > NAMES_LIMIT:
        raise UsageError(f"{token[:40]!r}... has {len(names)} names between slashes; at most {NAMES_LIMIT}")
    return names


def _check_text(token: str) -> None:
    if not token:
        raise UsageError("a token must not be empty; leave it out, or write ** for everything")
    if len(token) > TOKEN_LIMIT:
        raise UsageError(f"{token[:40]!r}... is {len(token)} characters long; at most {TOKEN_LIMIT}")
    if token[0] == "/":
        raise UsageError(f"{token!r} begins with a slash; write the path from the project's root")
    if not token.isprintable() and any(unicodedata.category(char) in ("Cc", "Cs") for char in token):
        raise UsageError(f"{token!r} contains control characters")
    if token != token.strip():
        raise UsageError(f"{token!r} begins or ends with a blank; leave the blank out")
    if "\\" in token:
        raise UsageError(f"{token!r} has a backslash; put / between names, and [*] for a plain star")
    if "{" in token and _ALTERNATIVES.search(token):
        raise UsageError(f"{token!r} lists alternatives in braces; write one token for each")


def _pattern(token: str, names: list[str]) -> tuple[Place, ...]:
    if token[-1] != "/" and not _is_wild(token):
        return _plain(names)
    places: list[Place] = []
    for name in names:
        if not _is_wild(name):
            places.append(name)
        elif name != _DEEP or not places or places[-1] is not DEEP:
            places.append(_place(token, name))
    if token[-1] == "/" and places[-1] is not DEEP:
        places.append(DEEP)
    if places[-1] is DEEP:
        places.insert(-1, _ANY)  # what is beneath: at least one name more
    elif isinstance(places[-1], str) and not _has_extension(places[-1]):
        places.append(DEEP)
    return tuple(places)


def _is_wild(text: str) -> bool:
    return "*" in text or "?" in text or "[" in text


def _has_extension(name: str) -> bool:
    """Is it a file's, as far as a name can tell? ``.github``, ``v1.2`` and ``My.Project`` may be folders."""
    stem, _, extension = name.rpartition(".")
    return bool(stem) and extension.isalnum() and extension.islower()


def _plain(names: list[str]) -> tuple[Place, ...]:
    return tuple(names) if _has_extension(names[-1]) else (*names, DEEP)


def _place(token: str, name: str) -> Glob | Deep:
    if name == _DEEP:
        return DEEP
    if _DEEP in name:
        raise UsageError(f"{token!r} has ** inside a name; put it between slashes, as in lib/**/*.py")
    return _glob(name)


def _glob(name: str) -> Glob:
    if "?" not in name and "[" not in name:
        prefix, *middle, suffix = name.split("*")
        return Glob(name, prefix, suffix, tuple(middle))
    atoms = _atoms(name)
    prefix = _plain_start(atoms)
    suffix = _plain_start(reversed(atoms[len(prefix) :]))[::-1]
    return Glob(name, prefix, suffix, middle=None)


@lru_cache(maxsize=1 << 10)
def _atoms(name: str) -> tuple[Atom, ...]:
    found: list[Atom] = []
    at = 0
    while at < len(name):
        if name[at] == "[":
            atom, at = _class(name, at)
        else:
            atom, at = _WILDCARDS.get(name[at], _one(name[at])), at + 1
        found.append(atom)
    return tuple(found)


def _class(name: str, at: int) -> tuple[Atom, int]:
    """The class that opens at ``at``, and where it is over."""
    found = _CLASS.match(name, at)
    if not found:
        raise UsageError(f"the [ in {name!r} is not closed; close it, or write ? for a plain bracket")
    negated, text = found.groups()
    ranges = list(_ranges(name, text))
    if not negated:
        ranges = list(_others(ranges))
    atom = tuple(_others([*ranges, _SLASH]))
    if not atom:
        raise UsageError(f"{found[0]} in {name!r} leaves no character; name one that it may be")
    return atom, found.end()


def _ranges(name: str, text: str) -> Iterable[tuple[int, int]]:
    at = 0
    while at < len(text):
        low = high = ord(text[at])
        if text[at + 1 : at + 2] == "-" and at + 2 < len(text):
            high, at = ord(text[at + 2]), at + 2
        if low > high:
            words = f"{chr(low)}-{chr(high)} in {name!r} runs backwards"
            raise UsageError(f"{words}; turn it round, or write ? for a plain bracket")
        yield low, high
        at += 1


def _others(ranges: list[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    """All characters that are in none of the ranges."""
    start = 0
    for low, high in sorted(ranges):
        if start < low:
            yield start, low - 1
        start = max(start, high + 1)
    if start <= _LAST:
        yield start, _LAST


def _one(char: str) -> Atom:
    return ((ord(char), ord(char)),)


def _plain_start(atoms: Iterable[Atom]) -> str:
    chars = []
    for atom in atoms:
        if len(atom) != 1 or atom[0][0] != atom[0][1]:
            break
        chars.append(chr(atom[0][0]))
    return "".join(chars)


_WILDCARDS: Final[dict[str, Atom]] = {"*": _STAR, "?": tuple(_others([_SLASH]))}
_ANY: Final = _glob("*")
