"""A key of ``flyball.toml`` in words: what it may be, and what stands there instead."""

from __future__ import annotations

from collections.abc import Iterator
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
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


def wrong_entries(where: str, kind: Any, value: Any) -> Iterator[tuple[str, str]]:
    """Of a list or a table, the entries that cannot be what they must be: where, and words. Entries may hold
    secrets, so only their kind is said.

    >>> list(wrong_entries("agent.env", dict[str, str], {"PORT": 8080, "HOST": "x"}))
    [('agent.env.PORT', 'is a number; it must be text: PORT = "..."')]
    """
    kind = _plain(kind)
    if get_origin(kind) is dict and isinstance(value, dict):
        for key, each in value.items():
            yield from wrong_entries(f"{where}.{key}", get_args(kind)[1], each)
    elif get_origin(kind) is list and isinstance(value, list):
        for index, each in enumerate(value):
            yield from wrong_entries(f"{where}[{index}]", get_args(kind)[0], each)
    else:
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError:
            said = shown(value) if get_origin(kind) is Literal else _kind_of(value)
            yield where, f"is {said}; it must be {_entry_words(where, kind)}"


def _plain(kind: Any) -> Any:
    """Without its description and without "or nothing", as far as its entries are concerned."""
    if get_origin(kind) is Annotated and get_origin(_plain(get_args(kind)[0])) in (list, dict):
        return _plain(get_args(kind)[0])
    parts = [each for each in get_args(kind) if each is not NoneType]
    return parts[0] if NoneType in get_args(kind) and len(parts) == 1 else kind


def _entry_words(where: str, kind: Any) -> str:
    words, name = _type_words(inspect.type_info(kind)), where.rpartition(".")[2]
    quoted = kind is str and not name.endswith("]")
    return f'{words}: {name} = "..."' if quoted else words


def _kind_of(value: Any) -> str:
    kinds: tuple[tuple[type, str], ...] = ((bool, "true or false"), (str, "text"), (list, "a list"))
    kinds += ((dict, "a table"), (int, "a number"), (float, "a number"))
    return next((words for kind, words in kinds if isinstance(value, kind)), "a date or a time")


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
