"""A key of ``flyball.toml`` in words: what it may be, and what stands there instead."""

from __future__ import annotations

from typing import Any

from msgspec import inspect
from msgspec.structs import FieldInfo

DURATION_SUFFIX = "_s"
_SHOWN_CHARS = 60


def expected_words(key: FieldInfo) -> str:
    """What a key may be, to be put behind "it must be"."""
    found = inspect.type_info(key.type)
    if key.name.endswith(DURATION_SUFFIX):
        bound = bound_words(_unwrapped(found))
        return f'a duration such as 90 or "10m"{bound and f", {bound}"}'
    return _type_words(found)


def choices(key: FieldInfo) -> tuple[str, ...]:
    """The values of a key that takes one of a few; empty for the others."""
    found = _unwrapped(inspect.type_info(key.type))
    return tuple(str(v) for v in found.values) if isinstance(found, inspect.LiteralType) else ()


def _type_words(found: inspect.Type) -> str:
    match _unwrapped(found):
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType() as number:
            return _joined("a whole number", bound_words(number))
        case inspect.FloatType() as number:
            return _joined("a number", bound_words(number))
        case inspect.StrType(min_length=least):
            return "text that is not empty" if least else "text"
        case inspect.LiteralType(values=values):
            return f"one of {', '.join(str(value) for value in values)}"
        case inspect.ListType(item_type=item):
            return f"a list of {_type_words(item)}"
        case inspect.DictType(value_type=value):
            return f"a table in which each value is {_type_words(value)}"
        case other:
            raise NotImplementedError(f"no words for {other}")


def bound_words(found: inspect.Type) -> str:
    """
    >>> bound_words(inspect.IntType(ge=0, le=3)), bound_words(inspect.FloatType(gt=0))
    ('from 0 to 3', 'above 0')
    """
    if not isinstance(found, inspect.IntType | inspect.FloatType):
        return ""
    if found.ge is not None and found.le is not None:
        return f"from {found.ge:g} to {found.le:g}"
    if found.ge is not None:
        return f"at least {found.ge:g}"
    return f"above {found.gt:g}" if found.gt is not None else ""


def _unwrapped(found: inspect.Type) -> inspect.Type:
    """The type itself, without its description and without "or nothing"."""
    if isinstance(found, inspect.Metadata):
        return _unwrapped(found.type)
    if isinstance(found, inspect.UnionType):
        return _unwrapped(next(t for t in found.types if not isinstance(t, inspect.NoneType)))
    return found


def _joined(words: str, bound: str) -> str:
    return f"{words}, {bound}" if bound else words


def shown(value: Any) -> str:
    """What stands in the file, short. Lists and tables may hold secrets and are not repeated.

    >>> shown("four"), shown(True), shown(0), shown(["x"])
    ("'four'", 'true', '0', 'a list')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "a table"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
