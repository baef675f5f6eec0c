"""What may be a task's id: what git takes for a branch, and what can be shown."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.core.tasks.task import ID_BYTES_LIMIT, Task, ancestors, check_task_id
from flyball.errors import UsageError
from tests.cases import every


@every(
    "name",
    [
        "t-1",
        "007",
        "bd-a3f8.1",
        "gh-12",
        "_x",
        "Größe",
        "задача-7",
        "作業",
        "a" * ID_BYTES_LIMIT,
        "x.y",
        "a-",
    ],
)
def test_letters_digits_and_a_few_signs_make_an_id(name: str) -> None:
    assert check_task_id(name) == name


@every(
    "name, why",
    [
        ("", "it is empty"),
        ("two words", "a space"),
        ("a/b", "'/'"),
        ("a~1", "'~'"),
        ("a^", r"'\^'"),
        ("a:b", "':'"),
        ("a?", "'[?]'"),
        ("a*", "'[*]'"),
        ("a[0]", r"'\['"),
        ("a\\b", "in it"),
        ("a\nb", "in it"),
        ("a\x1b[2J", "in it"),
        ("a\ud800", "in it"),
        ("-x", "begin with a letter"),
        (".x", "begin with a letter"),
        ("\u0301x", "begin with a letter"),
        ("a..b", "git takes no branch"),
        ("a.", "git takes no branch"),
        ("a.lock", "git takes no branch"),
        ("a.LOCK", "git takes no branch"),
        ("é" * 51, "102 bytes"),
    ],
)
def test_what_cannot_be_an_id_is_refused_with_the_reason(name: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        check_task_id(name)


@given(st.text(alphabet="ab1._-@{}~^:?*[]\\ /éЖ\t\x7f", min_size=1, max_size=12))
def test_git_takes_every_id_for_a_branch(name: str) -> None:
    try:
        check_task_id(name)
    except UsageError:
        return
    assert subprocess.run(["git", "check-ref-format", f"refs/heads/agent/{name}"]).returncode == 0


def test_those_above_a_task_are_told_nearest_first_and_once_each() -> None:
    tasks = {
        name: Task(id=name, title=name, parent=parent)
        for name, parent in {"a": "b", "b": "c", "c": "a", "d": "gone"}.items()
    }
    assert [task.id for task in ancestors(tasks["a"], tasks)] == ["b", "c"]
    assert list(ancestors(tasks["d"], tasks)) == []
