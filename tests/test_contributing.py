"""CONTRIBUTING.md says what the checks enforce."""

from __future__ import annotations

import re
import tomllib
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROW = re.compile(r"^\| (\d+) \| `(\w+)` \| (.+) \|$", re.MULTILINE)


def levels_in_the_contract() -> list[list[str]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    [contract] = [each for each in contracts if each.get("containers") == ["flyball"]]
    return [re.findall(r"\w+", layer) for layer in contract["layers"]]


def rows_of_the_table() -> list[tuple[str, str, str]]:
    return ROW.findall((ROOT / "CONTRIBUTING.md").read_text("utf-8"))


def test_the_table_of_rooms_has_the_levels_of_the_import_contract() -> None:
    rows = rows_of_the_table()
    levels = [[room for _, room, _ in level] for _, level in groupby(rows, key=lambda row: row[0])]
    assert levels == levels_in_the_contract()
    assert list(dict.fromkeys(level for level, _, _ in rows)) == [str(n + 1) for n in range(len(levels))]


def test_each_room_is_told_of_in_one_sentence() -> None:
    wrong = {room: job for _, room, job in rows_of_the_table() if not re.fullmatch(r"[A-Z].*[^.]\.", job)}
    assert wrong == {}
