"""What the world refuses the command line itself: its output, the folder it stands in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from flyball import __version__


def flyball(line: str, *, where: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """A shell's line with ``flyball`` in it."""
    named = {"FLYBALL_HOME": str(where / "home"), "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)}
    script = f'flyball() {{ "{sys.executable}" -m flyball "$@"; }}; {line}'
    return subprocess.run(
        ["bash", "-c", script], cwd=where, env={**named, **env}, capture_output=True, text=True, timeout=30
    )


@pytest.mark.parametrize("env", [{}, {"PYTHONUNBUFFERED": "1"}])
@pytest.mark.parametrize("verb", ["status", "machine show --json"])
def test_output_that_cannot_be_written_is_one_line_and_74(
    tmp_path: Path, verb: str, env: dict[str, str]
) -> None:
    done = flyball(f"flyball {verb} > /dev/full", where=tmp_path, **env)
    assert (done.returncode, done.stdout) == (74, "")
    assert done.stderr == "flyball: cannot read or write: No space left on device\n"


@pytest.mark.parametrize("verb", ["status", "status --json", "pool set x --cap 3"])
def test_a_closed_output_is_one_line_and_74(tmp_path: Path, verb: str) -> None:
    done = flyball(f"flyball {verb} >&-", where=tmp_path)
    assert done.returncode == 74
    assert done.stderr == "flyball: cannot read or write: standard output is closed\n"


def test_a_verb_that_needs_the_folder_says_that_it_is_gone(tmp_path: Path) -> None:
    done = flyball("mkdir g; cd g; rmdir ../g; flyball task list", where=tmp_path)
    assert done.returncode == 74
    assert done.stderr == "flyball: the current folder does not exist any more; go to another one\n"


@pytest.mark.parametrize(("tried", "same"), [("help", "--help"), ("help exec", "exec --help")])
def test_help_is_a_word_too(tmp_path: Path, tried: str, same: str) -> None:
    done, wanted = (flyball(f"flyball {words}", where=tmp_path) for words in (tried, same))
    assert (done.returncode, done.stdout) == (0, wanted.stdout)


@pytest.mark.parametrize("words", ["version", "-V", "--version"])
def test_the_version_is_shown_however_it_is_asked_for(tmp_path: Path, words: str) -> None:
    done = flyball(f"flyball {words}", where=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"flyball {__version__}\n")


@pytest.mark.parametrize(("word", "verb"), [("top", "status --watch"), ("ps", "status")])
def test_a_word_that_other_tools_use_leads_to_the_verb_that_shows_the_same(
    tmp_path: Path, word: str, verb: str
) -> None:
    done = flyball(f"flyball {word}", where=tmp_path)
    assert (done.returncode, done.stderr) == (2, f"flyball: there is no verb '{word}'; try: flyball {verb}\n")


def test_an_unknown_verb_is_one_short_line(tmp_path: Path) -> None:
    done = flyball("flyball qqqq", where=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "flyball: there is no verb 'qqqq'; see flyball --help\n"


def test_exec_runs_in_a_folder_that_is_gone(tmp_path: Path) -> None:
    done = flyball("mkdir g; cd g; rmdir ../g; flyball exec -- echo x", where=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "x\n", "")
