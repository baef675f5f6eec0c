"""``flyball audit``, as it is typed."""

from __future__ import annotations

import getpass
from pathlib import Path

import pytest

from tests.cli.kit import Cli


@pytest.fixture
def changed(cli: Cli, tmp_path: Path) -> Cli:
    """A home in which a few things have happened."""
    cli("account", "add", "work", "--runtime", "claude", "--identity", "ann@example.org")
    cli("account", "add", "home", "--runtime", "codex", "--identity", "ann")
    cli("quota", "declare", "5h", "--usd", "20", "--account", "work")
    cli("account", "remove", "home")
    return cli


def test_who_changed_what_in_the_order_in_which_it_happened(changed: Cli) -> None:
    lines = changed("audit", "--json").json["lines"]
    assert [(line["what"], line.get("id") or line.get("account")) for line in lines] == [
        ("account add", "work"),
        ("account add", "home"),
        ("quota declare", "work"),
        ("account remove", "home"),
    ]
    assert {line["user"] for line in lines} == {getpass.getuser()}
    shown = changed("audit").out
    assert shown.splitlines()[0].split() == ["WHEN", "WHO", "WHAT", "ABOUT"]
    assert "account=work window=5h" in shown


def test_only_what_names_a_word(changed: Cli) -> None:
    assert [line["what"] for line in changed("audit", "work", "--json").json["lines"]] == [
        "account add",
        "quota declare",
    ]
    assert len(changed("audit", "remove", "--json").json["lines"]) == 1
    assert changed("audit", "wörk").out == "Nothing in the audit log names wörk.\n"


def test_the_last_few_and_how_many_came_before(changed: Cli) -> None:
    assert "3 earlier: --lines all" in changed("audit", "--lines", "1").out
    assert changed("audit", "--lines", "1", "--json").json["earlier"] == 3
    assert len(changed("audit", "--lines", "all", "--json").json["lines"]) == 4


def test_a_home_in_which_nothing_happened(cli: Cli) -> None:
    assert cli("audit").out.startswith("Nothing has been changed yet")
    assert cli("audit", "--json").json == {"lines": [], "earlier": 0, "unreadable": 0}


def test_a_line_whose_writer_was_killed_hides_no_other(changed: Cli) -> None:
    log = changed.home / "registry" / "audit.jsonl"
    log.write_bytes(log.read_bytes() + b'{"at": "2026\n[]\n\xff\n')
    said = changed("audit")
    assert (said.code, "3 lines of" in said.out) == (0, True)
    assert len(changed("audit", "--json").json["lines"]) == 4


def test_a_name_that_would_steer_the_terminal_is_made_visible(changed: Cli) -> None:
    log = changed.home / "registry" / "audit.jsonl"
    log.write_bytes(log.read_bytes() + b'{"at": "now", "what": "add", "id": "a\\u001b[2J"}\n')
    assert "a\\x1b[2J" in changed("audit").out
