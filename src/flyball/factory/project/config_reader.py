"""From the text of ``flyball.toml`` to a ``ProjectConfig``, or to words about all that is wrong with it.

A person fixes a file in one go, so each key is judged by itself and all problems are found, not only the
first. ``load_config`` raises the first one and counts the others; ``flyball validate`` shows them all.

The engine's version is looked at before anything else: to an old flyball the keys of a newer one are unknown,
and "upgrade" is the better answer than "did you mean".

The oldest flyball that a project can be run with is written as:

    engine = "0.2+"      at least 0.2
    engine = ">=0.2.3"   at least 0.2.3
    engine = "0.2"       the same as 0.2+: a project names what it needs, not what it was made with
    engine = ""          any

Compared number by number; what is missing counts as 0. Of a version such as ``0.3.0rc1`` only the numbers in
front count, so a pre-release will do where its release would.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import inspect
from msgspec.structs import FieldInfo, fields

from flyball import __version__
from flyball.core.durations import duration_s
from flyball.core.suggestions import did_you_mean
from flyball.errors import UsageError
from flyball.factory.project.config import FILE_NAME, ProjectConfig, StagePart
from flyball.factory.project.config_checks import ConfigProblem, find_problems, gate_problem
from flyball.host.install_hints import upgrade_command

DURATION_SUFFIX = "_s"
_SHOWN_CHARS = 60
_DEEP_KEY = re.compile(r"""^[\s\[]*(?:[\w"'-]+\s*\.\s*){64}""", re.MULTILINE)
_MOST_UNKNOWN = 100
"""Of a file that is full of what is not known no more is told, one by one."""


def expected_words(key: FieldInfo) -> str:
    """What a key may be, to be put behind "it must be"."""
    found = inspect.type_info(key.type)
    if key.name.endswith(DURATION_SUFFIX):
        bound = bound_words(_inner_type(found))
        return f'a duration such as 90 or "10m"{bound and f", {bound}"}'
    return _type_words(found)


def choices(key: FieldInfo) -> tuple[str, ...]:
    """The values of a key that takes one of a few; empty for the others."""
    found = _inner_type(inspect.type_info(key.type))
    return tuple(str(v) for v in found.values) if isinstance(found, inspect.LiteralType) else ()


def _type_words(found: inspect.Type) -> str:
    match _inner_type(found):
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType() as number:
            return _with_bound("a whole number", bound_words(number))
        case inspect.FloatType() as number:
            return _with_bound("a number", bound_words(number))
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
            said = value_words(value) if get_origin(kind) is Literal else _kind_words(value)
            words, name = _type_words(inspect.type_info(kind)), where.rpartition(".")[2]
            hint = f': {name} = "..."' if kind is str and not name.endswith("]") else ""
            yield where, f"is {said}; it must be {words}{hint}"


def _plain(kind: Any) -> Any:
    """Without its description and without "or nothing", as far as its entries are concerned."""
    if get_origin(kind) is Annotated and get_origin(_plain(get_args(kind)[0])) in (list, dict):
        return _plain(get_args(kind)[0])
    parts = [each for each in get_args(kind) if each is not NoneType]
    return parts[0] if NoneType in get_args(kind) and len(parts) == 1 else kind


def _kind_words(value: Any) -> str:
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


def _inner_type(found: inspect.Type) -> inspect.Type:
    """The type itself, without its description and without "or nothing"."""
    if isinstance(found, inspect.Metadata):
        return _inner_type(found.type)
    if isinstance(found, inspect.UnionType):
        return _inner_type(next(t for t in found.types if not isinstance(t, inspect.NoneType)))
    return found


def _with_bound(words: str, bound: str) -> str:
    return f"{words}, {bound}" if bound else words


def value_words(value: Any) -> str:
    """What stands in the file, short. Lists and tables may hold secrets and are not repeated.

    >>> value_words("four"), value_words(True), value_words(0), value_words(["x"])
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
    return _pad(have, length) >= _pad(lowest, length)


def too_old_words(version: str, requirement: str) -> str:
    """What to say about a flyball that is too old, behind the name of what asks for a newer one."""
    wanted = ".".join(str(number) for number in minimum(requirement))
    return f"needs flyball {wanted} or newer, and this is {version}"


def _numbers(text: str) -> Numbers:
    return tuple(int(part) for part in text.split("."))


def _pad(numbers: Numbers, length: int) -> Numbers:
    return numbers + (0,) * (length - len(numbers))


_LARGEST = 1 << 20
_PARTS = {key.name: key for key in fields(ProjectConfig)}
_STAGE = FieldInfo(name="stages", encode_name="stages", type=StagePart)
_SECTIONS = {name: key for name, key in _PARTS.items() if name not in ("areas", "stages")}


@dataclass(frozen=True, slots=True)
class Reading:
    """What a file says. ``config`` is there only when nothing is wrong."""

    config: ProjectConfig | None
    problems: tuple[ConfigProblem, ...] = ()


def load_config(root: Path) -> ProjectConfig:
    """The settings of the project in a folder."""
    reading = read_config(root)
    if reading.config is not None:
        return reading.config
    first, *others = reading.problems
    more = f" (and {len(others)} more: flyball validate shows all)" if others else ""
    raise UsageError(f"{root / FILE_NAME}: {first}{more}")


def read_config(root: Path) -> Reading:
    """Everything that is wrong with the file in a folder; raises only if it cannot be read as TOML at all."""
    path = root / FILE_NAME
    return parse_config(_parse_toml(path, _read_text(path)))


def parse_config(document: Mapping[str, Any]) -> Reading:
    """Settings from the tables of the file, or all that is wrong with them."""
    if too_old := _too_old(document):
        return Reading(None, (too_old,))
    values: dict[str, dict[str, Any]] = {}
    problems: list[ConfigProblem] = []
    for name, table in document.items():
        if name not in _PARTS and len(problems) < _MOST_UNKNOWN:
            kind = "section" if isinstance(table, dict) else "key"
            problems.append(ConfigProblem(name, f"is not a known {kind}; {_meant(name, _PARTS)}"))
    for name, section in _SECTIONS.items():
        values[name], found = _section(name, section, document.get(name, {}))
        problems += found
    areas, found = _value("areas", _PARTS["areas"], document.get("areas", {}))
    problems += found
    stages, found = _stages(document.get("stages", {}))
    problems += found
    if problems:
        return Reading(None, tuple(problems))
    config = msgspec.convert({**values, "areas": areas, "stages": stages}, ProjectConfig)
    problems = list(find_problems(config))
    return Reading(None if problems else config, tuple(problems))


def check_runnable(config: ProjectConfig) -> None:
    """Nothing lands unchecked by oversight: without a gate the project must say so."""
    if problem := gate_problem(config):
        raise UsageError(f"{FILE_NAME}: {problem}")


# -- the file -------------------------------------------------------------------------------------


def _read_text(path: Path) -> str:
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise UsageError(f"{path} is not a file")  # a pipe would be waited for
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
    except FileNotFoundError:
        if path.is_symlink():
            raise UsageError(f"{path} is a link that leads nowhere; mend or remove it") from None
        raise UsageError(f"there is no {FILE_NAME} in {path.parent}; run flyball init there") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    if len(content) > _LARGEST:
        raise UsageError(f"{path} is larger than {_LARGEST >> 10} KiB; that cannot be meant")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UsageError(f"{path}: line {line} is not UTF-8; save the file as UTF-8") from error


def _parse_toml(path: Path, text: str) -> dict[str, Any]:
    if _DEEP_KEY.search(text):  # which takes the parser longer than a person waits
        raise UsageError(f"{path} is nested too deeply")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise UsageError(f"{path} is nested too deeply") from error
    except ValueError as error:  # TOMLDecodeError, and numbers with thousands of digits
        raise UsageError(f"{path} is not valid TOML: {error}") from error


def _too_old(document: Mapping[str, Any]) -> ConfigProblem | None:
    project = document.get("project")
    required = project.get("engine") if isinstance(project, dict) else None
    if not isinstance(required, str):
        return None
    try:
        if satisfies(__version__, required):
            return None
    except UsageError as error:
        return ConfigProblem("project.engine", str(error))
    words = too_old_words(__version__, required)
    return ConfigProblem("project.engine", f"{words}; in your clone of flyball: {upgrade_command()}")


# -- one key at a time ----------------------------------------------------------------------------


def _section(name: str, section: FieldInfo, table: Any) -> tuple[dict[str, Any], list[ConfigProblem]]:
    """The values of a section that could be read, and what is wrong with the others."""
    if not isinstance(table, dict):
        return {}, [ConfigProblem(name, f"is {value_words(table)} and must be a section: write [{name}]")]
    known = {key.name: key for key in fields(section.type)}
    problems = [
        ConfigProblem(f"{name}.{given}", f"is not a known key; {_meant(given, known)}")
        for given in islice((given for given in table if given not in known), _MOST_UNKNOWN)
    ]
    values: dict[str, Any] = {}
    for key in known.values():
        if key.name in table:
            values[key.name], found = _value(f"{name}.{key.name}", key, table[key.name])
            problems += found
        elif key.required:
            problems.append(
                ConfigProblem(f"{name}.{key.name}", f'is missing; add [{name}] {key.name} = "..."')
            )
    return values, problems


def _stages(tables: Any) -> tuple[dict[str, Any], list[ConfigProblem]]:
    """One section per stage, in the order of the file."""
    if not isinstance(tables, dict):
        return {}, [
            ConfigProblem("stages", f"is {value_words(tables)}; write a section per stage: [stages.docs]")
        ]
    values: dict[str, Any] = {}
    problems: list[ConfigProblem] = []
    for name, table in tables.items():
        values[name], found = _section(f"stages.{name}", _STAGE, table)
        problems += found
    return values, problems


def _value(where: str, key: FieldInfo, value: Any) -> tuple[Any, list[ConfigProblem]]:
    if key.name.endswith(DURATION_SUFFIX) and isinstance(value, str):
        seconds = duration_s(value)
        readable: Any = value if seconds is None else seconds
    else:
        readable = value
    try:
        if isinstance(readable, float) and not math.isfinite(readable):
            raise msgspec.ValidationError
        return msgspec.convert(readable, key.type), []
    except msgspec.ValidationError:
        entries = [ConfigProblem(*each) for each in wrong_entries(where, key.type, value)]
        if isinstance(value, dict | list) and entries and entries[0].key != where:
            return None, entries
        words = f"is {value_words(value)}; it must be {expected_words(key)}"
        meant = did_you_mean(value, choices(key)) if isinstance(value, str) else ""
        return None, [ConfigProblem(where, f"{words}; {meant}" if meant else words)]


def _meant(name: str, here: Mapping[str, FieldInfo]) -> str:
    """The nearest name here, else the section that has the key, else all there are."""
    if near := did_you_mean(name, here):
        return near
    homes = [part for part, key in _SECTIONS.items() if name in {k.name for k in fields(key.type)}]
    return f"it belongs under [{homes[0]}]" if homes else f"there are {', '.join(here)}"
