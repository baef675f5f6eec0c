"""What a project may be called; accounts and windows of an account are named by the same rule.

An id is a file name in the registry, a folder name for worktrees, and the project's name in every pool. So
it is letters and digits of any script with ``. _ -`` between them, and short enough for every file system.
Two ids that some file system would take for one (``Blog`` and ``blog``) have the same ``same_id_key``.
"""

from __future__ import annotations

import unicodedata

from flyball.errors import UsageError

ID_LIMIT = 60
"""Four bytes per letter and ``.json`` behind it still fit into a file name of 255 bytes."""
_BETWEEN = "._-"


def check_project_id(value: str) -> str:
    """The id itself, if it can be one.

    >>> check_project_id("blog-2")
    'blog-2'
    """
    if not value:
        raise UsageError('the project\'s id is empty; name it, for example: id = "blog"')
    return check_id(value, "a project's id")


def check_id(value: str, of: str) -> str:
    """The name itself, if it can be one ``of`` this kind.

    >>> check_id("work", "an account's name")
    'work'
    """
    if not value:
        raise UsageError(f"{of} cannot be empty; {_RULE}")
    if len(value) > ID_LIMIT:
        raise UsageError(f"{of} has at most {ID_LIMIT} characters, and this one {len(value)}")
    if made := id_from(value):
        if made == value:
            return value
        raise UsageError(f"{value!r} cannot be {of} ({_RULE}); {made!r} could")
    raise UsageError(f"{value!r} cannot be {of} ({_RULE})")


_RULE = "letters and digits, with . _ - between them"


def id_from(name: str) -> str:
    """The id that is nearest to a name, such as a folder's; empty if nothing in it can be used.

    >>> id_from("My site (old)"), id_from("../etc"), id_from("???")
    ('My-site-old', 'etc', '')
    """
    composed = unicodedata.normalize("NFC", name)
    kept = "".join(char if _usable(char) else " " for char in composed)
    joined = "-".join(part for part in (part.strip(_BETWEEN) for part in kept.split()) if part)
    return _without_leading_marks(joined)[:ID_LIMIT].rstrip(_BETWEEN)


def same_id_key(value: str) -> str:
    """Equal for ids that a file system which ignores case would store as one file."""
    return unicodedata.normalize("NFC", value.casefold())


def _usable(char: str) -> bool:
    return char in _BETWEEN or unicodedata.category(char)[0] in "LNM"


def _without_leading_marks(text: str) -> str:
    """An accent with no letter in front of it would attach itself to whatever is printed before it."""
    while text and unicodedata.category(text[0])[0] not in "LN":
        text = text[1:]
    return text
