"""Screens: the same blocks as plain text, on terminals of any width, and with any name in them."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from io import StringIO

import pytest
from rich.cells import cell_len
from rich.console import Console

from flyball.cli.ui.pool_status import status_screen
from flyball.cli.ui.render import Column, Line, Piece, Style, Table, plain, renderable, safe
from flyball.core.pool.settings import MachineSettings
from flyball.core.signals import Signal, SignalKind
from flyball.governor.governor import Governor
from tests.cli.kit import Cli, People

TABLE = Table(
    [Column("NAME"), Column("PID", right=True), Column("WHY", wraps=True)],
    [["größe 🚀", "7", "a reason of several words"], ["t-1", "4121", Piece("dead", Style.BAD)]],
)


def on_terminal(*, width: int, colour: bool = True) -> tuple[Console, StringIO]:
    out = StringIO()
    return Console(file=out, width=width, force_terminal=True, no_color=not colour, highlight=False), out


def test_plain_columns_stay_aligned_behind_wide_letters() -> None:
    assert plain([TABLE]) == (
        "  NAME       PID  WHY\n  größe 🚀     7  a reason of several words\n  t-1       4121  dead\n"
    )


def test_plain_text_has_no_colour_and_no_trailing_blanks() -> None:
    text = plain([Line([Piece("x", Style.BAD), " "], label="why"), TABLE])
    assert "\x1b" not in text
    assert all(line == line.rstrip() for line in text.splitlines())


@pytest.mark.parametrize("width", [30, 40, 69, 70, 80, 140, 400])
def test_nothing_is_wider_than_the_terminal(width: int, governor: Governor, people: People) -> None:
    governor.set_pool("anthropic", cap=2, reserve=1, weights={"blog": 2.0}, profile="agents")
    governor.set_machine(MachineSettings(ceiling=20, memory_floor_bytes=1 << 20, resources={"docker": 2}))
    people.holds("anthropic", "blog", "a-name-that-is-much-longer-than-any-column-could-ever-show-in-full")
    people.waits("anthropic", "projekt-größe-🚀🚀", "t-2")
    governor.report("anthropic", Signal(SignalKind.THROTTLED), project="blog", name="t")
    governor.demand("anthropic", "infra")
    console, out = on_terminal(width=width)
    console.print(renderable(status_screen(governor.status()), width=width))
    lines = _without_codes(out.getvalue())
    assert max(cell_len(line) for line in lines.splitlines()) <= width


def _without_codes(text: str) -> str:
    from rich.text import Text

    return Text.from_ansi(text).plain


def test_no_color_means_no_colour() -> None:
    console, out = on_terminal(width=80, colour=False)
    console.print(renderable([Line(Piece("x", Style.BAD))], width=80))
    assert "31m" not in out.getvalue()


def test_a_narrow_terminal_gets_the_reason_under_its_row() -> None:
    console, out = on_terminal(width=50)
    console.print(renderable([TABLE], width=50))
    lines = [line.rstrip() for line in _without_codes(out.getvalue()).splitlines()]
    assert lines == [
        "  NAME  PID  WHY",
        "  größe 🚀  7",
        "      a reason of several words",
        "  t-1  4121",
        "      dead",
    ]


def test_names_steer_neither_the_terminal_nor_the_markup(cli: Cli, people: People) -> None:
    people.holds("anthropic", "[bold]blog[/]", "t-1")
    assert "[bold]blog[/]/t-1" in cli("status").out
    console, shown = on_terminal(width=120)
    console.print(renderable(status_screen(Governor().status()), width=120))
    assert "[bold]blog[/]/t-1" in _without_codes(shown.getvalue())
    # No new name holds these; an older state may.
    assert safe("t\x7f\x9b2J\u202egnp.exe") == "t\\x7f\\x9b2J\\u202egnp.exe"


def test_families_of_emoji_stay_whole() -> None:
    family = "\U0001f469\u200d\U0001f680"
    assert safe(family) == family


def test_a_pipe_gets_plain_text_and_a_terminal_colour(cli: Cli, people: People) -> None:
    people.holds("anthropic", "blog", "t-14")
    command = [sys.executable, "-m", "flyball", "status"]
    piped = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "\x1b" not in piped.stdout
    assert "blog/t-14" in piped.stdout
    shown = _run_on_terminal(command, {"TERM": "xterm-256color", "COLUMNS": "80"})
    assert "\x1b[1manthropic" in shown
    bare = _run_on_terminal(command, {"TERM": "xterm-256color", "COLUMNS": "80", "NO_COLOR": "1"})
    assert "\x1b[32m" in shown
    assert "\x1b[32m" not in bare


def _run_on_terminal(command: list[str], env: dict[str, str]) -> str:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdout=theirs, stdin=theirs, env={**os.environ, **env})
    os.close(theirs)
    found = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Linux says EIO once the other side is closed
            break
        if not part:
            break
        found += part
    os.close(ours)
    assert process.wait() == 0
    return found.decode()


def test_a_terminal_without_unicode_gets_numbers_instead_of_a_failure(cli: Cli, people: People) -> None:
    people.holds("anthropic", "blog", "größe 🚀")
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    result = subprocess.run(
        [sys.executable, "-m", "flyball", "status"], capture_output=True, text=True, check=True, env=env
    )
    assert "gr\\xf6\\xdfe \\U0001f680" in result.stdout
