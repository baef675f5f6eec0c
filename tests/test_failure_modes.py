"""The page about failure modes names the tests that show what it says; they exist."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cases import every

REPOSITORY = Path(__file__).parents[1]
PAGE = (REPOSITORY / "docs" / "explanation" / "failure-modes.md").read_text(encoding="utf-8")
TABLES, _, SHOWN_BY = PAGE.partition("## Shown by")
NOTES = re.findall(r"^(\d+)\. (.+)$", SHOWN_BY, flags=re.MULTILINE)


def test_every_row_is_shown_by_something() -> None:
    rows = [line.rstrip(" |").rpartition("| ")[2] for line in TABLES.splitlines() if line.startswith("| ")]
    assert [row for row in rows if row.isdigit()] == [number for number, _ in NOTES]
    assert len(NOTES) > 20


@every("number, note", NOTES)
def test_what_shows_it_exists(number: str, note: str) -> None:
    for group in note.split("; "):
        *names, file = re.findall(r"`([^`]+)`", group)
        source = (REPOSITORY / file).read_text(encoding="utf-8")
        for name in names:
            assert f"def {name}(" in source, f"{name} is not in {file} (note {number})"
