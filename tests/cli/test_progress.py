"""Progress on a terminal and into a log."""

from __future__ import annotations

import io

from flyball.cli.ui.progress import EVERY_S, FIRST_S, ProgressLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Watch:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_log_of_a_quick_run_stays_empty() -> None:
    log, watch = io.StringIO(), Watch()
    progress = ProgressLine(log, clock=watch)
    for _ in range(10):
        progress.tell("on it")
        watch.now += FIRST_S / 20
    progress.clear()
    assert log.getvalue() == ""


def test_a_log_gets_whole_lines_at_a_bounded_rate() -> None:
    log, watch = io.StringIO(), Watch()
    progress = ProgressLine(log, clock=watch)
    for n in range(1000):
        watch.now += 0.125
        progress.tell(f"{n} of 1000")
    progress.clear()
    lines = log.getvalue().splitlines()
    assert lines[0] == "7 of 1000"
    assert len(lines) <= 125 / EVERY_S + 1
    assert "\r" not in log.getvalue()
    assert "\x1b" not in log.getvalue()


def test_a_terminal_has_one_line_that_is_written_over_and_gone_at_the_end() -> None:
    screen = Terminal()
    progress = ProgressLine(screen, clock=Watch())
    progress.tell("1 of 2")
    progress.tell("2 of 2")
    progress.clear()
    assert screen.getvalue() == "\r\x1b[K1 of 2\r\x1b[K2 of 2\r\x1b[K"
