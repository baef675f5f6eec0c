"""From the text of ``flyball.toml`` to a ``ProjectConfig``, or to words about all that is wrong with it.

A person fixes a file in one go, so each key is judged by itself and all problems are found, not only the
first.
``load_config`` raises the first one and counts the others; ``flyball validate`` shows them all.

The engine's version is looked at before anything else: to an old flyball the keys of a newer one are unknown,
and "upgrade" is the better answer than "did you mean".
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import FieldInfo, fields

from flyball import __version__
from flyball.core.engine_version import satisfies, too_old_words
from flyball.core.nearest import did_you_mean
from flyball.core.spans import duration_s
from flyball.errors import UsageError
from flyball.factory.config import FILE_NAME, ProjectConfig
from flyball.factory.config_checks import ConfigProblem, gate_problem, problems_of
from flyball.factory.config_landing import StagePart
from flyball.factory.config_words import DURATION_SUFFIX, choices, expected_words, shown, wrong_entries
from flyball.host.installing import upgrade_command

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
    return judge(_document(path, _text(path)))


def judge(document: Mapping[str, Any]) -> Reading:
    """Settings from the tables of the file, or all that is wrong with them."""
    if too_old := _too_old(document):
        return Reading(None, (too_old,))
    values: dict[str, dict[str, Any]] = {}
    problems = list(_unknown_sections(document))
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
    problems = list(problems_of(config))
    return Reading(None if problems else config, tuple(problems))


def check_runnable(config: ProjectConfig) -> None:
    """Nothing lands unchecked by oversight: without a gate somebody must have said so."""
    if problem := gate_problem(config):
        raise UsageError(f"{FILE_NAME}: {problem}")


# -- the file -------------------------------------------------------------------------------------


def _text(path: Path) -> str:
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


def _document(path: Path, text: str) -> dict[str, Any]:
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
        return {}, [ConfigProblem(name, f"is {shown(table)} and must be a section: write [{name}]")]
    known = {key.name: key for key in fields(section.type)}
    problems = list(_unknown_keys(name, known, table))
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
        return {}, [ConfigProblem("stages", f"is {shown(tables)}; write a section per stage: [stages.docs]")]
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
        words = f"is {shown(value)}; it must be {expected_words(key)}"
        meant = did_you_mean(value, choices(key)) if isinstance(value, str) else ""
        return None, [ConfigProblem(where, f"{words}; {meant}" if meant else words)]


def _unknown_sections(document: Mapping[str, Any]) -> Iterator[ConfigProblem]:
    for name in document:
        if name not in _PARTS:
            kind = "section" if isinstance(document[name], dict) else "key"
            yield ConfigProblem(name, f"is not a known {kind}; {_meant(name, _PARTS)}")


def _unknown_keys(
    section: str, known: Mapping[str, FieldInfo], table: Mapping[str, Any]
) -> Iterator[ConfigProblem]:
    for name in table:
        if name not in known:
            yield ConfigProblem(f"{section}.{name}", f"is not a known key; {_meant(name, known)}")


def _meant(name: str, here: Mapping[str, FieldInfo]) -> str:
    """The nearest name here, else the section that has the key, else all there are."""
    if near := did_you_mean(name, here):
        return near
    homes = [part for part, key in _SECTIONS.items() if name in {k.name for k in fields(key.type)}]
    return f"it belongs under [{homes[0]}]" if homes else f"there are {', '.join(here)}"
