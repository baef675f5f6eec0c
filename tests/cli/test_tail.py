"""``flyball tail``: what a task's agent prints, of any size and made of anything."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.cli.commands.factory.tail import seek_lines
from flyball.core.tasks.task_run import RunPhase, Step
from flyball.factory.state.ledger import Ledger
from flyball.host.process import me
from tests.cli.kit import Cli
from tests.factory.kit import Project

MIB = 1 << 20


def printed(
    site: Project,
    text: bytes,
    *,
    task: str = "t-1",
    number: int = 1,
    stream: str = "stdout",
    status: str = "0",
) -> Path:
    """A run that is over, as its keeper leaves it."""
    folder = site.root / ".flyball" / "runs" / task / str(number)
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("stdout", "stderr"):
        (folder / name).touch()
    (folder / stream).write_bytes(text)
    if status:
        (folder / "status").write_text(status)
    return folder


@pytest.fixture(autouse=True)
def task(site: Project) -> None:
    site.task("t-1")


# -- what cannot be shown ---------------------------------------------------------------------------------


def test_an_unknown_task_is_asked_about(here: Cli) -> None:
    result = here("tail", "t1")
    assert result.code == 2
    assert "there is no task 't1'; did you mean 't-1'?" in result.err


def test_a_task_without_a_run_names_the_verb_that_says_why(here: Cli) -> None:
    result = here("tail", "t-1")
    assert result.code == 2
    assert "no agent has run for t-1 yet; flyball task why t-1" in result.err


def test_a_gate_that_never_ran_is_said(here: Cli, site: Project) -> None:
    printed(site, b"done\n")
    result = here("tail", "t-1", "--gate")
    assert result.code == 2
    assert "no gate has run for t-1 yet" in result.err


@pytest.mark.parametrize("lines", ["-1", "some", "1.5"])
def test_a_number_of_lines_that_is_none_is_refused(here: Cli, lines: str) -> None:
    assert here("tail", "t-1", f"--lines={lines}").code == 2


def test_output_and_gate_at_once_are_refused(here: Cli) -> None:
    assert here("tail", "t-1", "--stderr", "--gate").code == 2


def test_an_empty_output_says_where_there_is_more(here: Cli, site: Project) -> None:
    printed(site, b"no such file\n", stream="stderr")
    result = here("tail", "t-1")
    assert result.out == ""
    assert "flyball tail t-1 --stderr shows 13 B" in result.err


# -- what is shown ----------------------------------------------------------------------------------------


def test_the_last_lines_are_shown(here: Cli, site: Project) -> None:
    printed(site, b"".join(b"line %d\n" % n for n in range(100)))
    assert here("tail", "t-1").out.splitlines() == [f"line {n}" for n in range(80, 100)]
    assert here("tail", "t-1", "--lines", "2").out == "line 98\nline 99\n"
    assert len(here("tail", "t-1", "--lines", "all").out.splitlines()) == 100
    silent = here("tail", "t-1", "--lines", "0")
    assert (silent.out, silent.err) == ("", "")


def test_the_last_run_is_shown_and_its_errors_on_request(here: Cli, site: Project) -> None:
    printed(site, b"the ninth\n", number=9)
    printed(site, b"the tenth\n", number=10)
    printed(site, b"went wrong", number=10, stream="stderr")
    assert here("tail", "t-1", "--stderr").out == "went wrong\n"
    printed(site, b"the tenth\n", number=10)
    assert here("tail", "t-1").out == "the tenth\n"


def test_nothing_that_an_agent_prints_steers_the_terminal(here: Cli, site: Project) -> None:
    printed(site, b"\x1b[2J\x1b]0;title\x07one\ttwo\r\n\xff\xfe half \xe2\x82\nbell\x08\x00\n")
    out = here("tail", "t-1").out
    assert out.splitlines()[0] == "\\x1b[2J\\x1b]0;title\\x07one\ttwo"
    assert not set(out) & {"\x1b", "\x07", "\x08", "\x00", "\r"}
    assert "half" in out


def test_text_in_any_script_is_passed_on_whole_across_pieces(here: Cli, site: Project) -> None:
    text = "日本語 🚀 ünïcödé " * 20_000
    printed(site, text.encode())
    assert here("tail", "t-1", "--lines", "all").out == text + "\n"


def test_a_line_of_megabytes_is_cut_and_said_so(here: Cli, site: Project) -> None:
    printed(site, b"x" * (3 * MIB))
    result = here("tail", "t-1")
    assert MIB < len(result.out) < 2 * MIB
    assert "are left out; --lines all" in result.err
    assert len(here("tail", "t-1", "--lines", "all").out) == 3 * MIB + 1


def test_the_newest_gate_is_shown_whichever_run_it_belongs_to(here: Cli, site: Project) -> None:
    for number, text in ((1, b"red\n"), (2, b"green\n")):
        folder = printed(site, b"agent\n", number=number) / "gate-1"
        folder.mkdir()
        (folder / "gate.log").write_bytes(text)
        os.utime(folder / "gate.log", (number, number))
    printed(site, b"agent\n", number=3)
    assert here("tail", "t-1", "--gate").out == "green\n"


def test_json_holds_the_lines_as_they_are(here: Cli, site: Project) -> None:
    printed(site, b"one\n\x1b[2J\nthree", status="-9")
    found = here("tail", "t-1", "--json").json
    assert found["lines"] == ["one", "\x1b[2J", "three"]
    assert (found["task"], found["stream"], found["over"], found["exit"]) == ("t-1", "stdout", True, -9)


@given(st.binary(max_size=200), st.integers(0, 12))
def test_the_beginning_of_the_last_lines_is_found(text: bytes, lines: int) -> None:
    file = io.BytesIO(text)
    assert seek_lines(file, lines) == 0
    whole = text.split(b"\n")
    ended = [line + b"\n" for line in whole[:-1]] + [line for line in whole[-1:] if line]
    assert file.read() == b"".join(ended[len(ended) - min(lines, len(ended)) :])


# -- following --------------------------------------------------------------------------------------------


def test_following_goes_on_until_the_agent_ends(site: Project) -> None:
    act = "print('first', flush=True)\n(folder / 'up').touch()\nwait_for(folder / 'go')\nprint('last')"
    site.task("t-1", act=act)
    run = site.start("run")
    site.wait("up")
    tail = site.start("tail", "t-1", "-f")
    site.read_until(tail, "first")
    site.say("go")
    out, err = tail.communicate(timeout=60)
    assert (tail.returncode, out) == (0, "last\n")
    assert "the agent of t-1 ended with status 0" in err
    run.communicate(timeout=60)


def test_following_a_run_that_is_over_ends_at_once(here: Cli, site: Project) -> None:
    printed(site, b"one\ntwo\n", status="-15")
    result = here("tail", "t-1", "-f")
    assert result.out == "one\ntwo\n"
    assert "was ended by signal 15" in result.err
    *lines, ended = map(json.loads, here("tail", "t-1", "-f", "--json").out.splitlines())
    assert lines == [{"line": "one"}, {"line": "two"}]
    assert (ended["over"], ended["exit"]) == (True, -15)


def test_following_an_agent_that_died_without_a_word_ends(here: Cli, site: Project) -> None:
    folder = printed(site, b"half a sen", status="")
    dead = replace(me(), start=1)
    ledger = Ledger(site.root / ".flyball", run="r-1")
    ledger.note("t-1", Step.CLAIM)
    ledger.note("t-1", Step.WORKTREE)
    ledger.note("t-1", Step.LAUNCH, RunPhase.BEGUN, folder=str(folder))
    ledger.note("t-1", Step.LAUNCH, holder=dead, keeper=dead)
    ledger.close()
    result = here("tail", "t-1", "-f")
    assert result.out == "half a sen\n"
    assert "how it ended is not known" in result.err
