"""``flyball demo``: what it shows, and that it leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from flyball.cli.commands.installation import demo
from flyball.cli.main import main
from flyball.cli.shared import demo as demo_screen
from flyball.cli.ui.render import plain, plain_words
from flyball.core.pool.setting_table import resolve_pool
from flyball.errors import UsageError
from flyball.sim.demo.score import Sample, ScoreRow, Standing, TrialScore
from flyball.sim.demo.worker import Team

WITHOUT = TrialScore(96, 92, 95.8, 16.7, 0.95, (32, 30, 18), 16, 6, stopped=False)
WITH = TrialScore(96, 7, 7.3, 20.8, 0.97, (32, 25, 21), 7, 6, stopped=False)
SAMPLES = tuple(
    Sample(t / 4, 6 if t < 40 else 3, 5, 12 if t % 2 else 5, cap=t % 8 + 1, in_use=3, state="retry-after")
    for t in range(130)
)
ROWS = tuple(
    ScoreRow(project, processes=8, running=3, waiting=5, throttles=22, done=17, calls=32)
    for project in ("shop", "blog", "docs")
)


def card_text(without: TrialScore = WITHOUT, governed: TrialScore = WITH) -> str:
    return plain(demo_screen.card(without, governed, (SAMPLES[:60], SAMPLES), note="settle 1 s"))


# -- the factory ------------------------------------------------------------------------------------


def test_the_factory_ends_with_merged_work_one_sent_back_by_review_and_one_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["demo", "--factory", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert sorted(shown["merged"]) == ["about", "answer", "hello", "title"]
    assert shown["sent_back"] == {"about": "review", "answer": "gate"}
    assert list(shown["blocked"]) == ["token"]
    assert "secrets/token" in shown["blocked"]["token"]


# -- the workload -----------------------------------------------------------------------------------


def test_a_longer_demo_makes_more_calls_and_moves_the_capacity_later() -> None:
    short, long = demo.plan(36, seed=1), demo.plan(72, seed=1)
    assert long.workload.calls == 2 * short.workload.calls
    assert [at_s for at_s, _ in long.capacity.steps] == [2 * at_s for at_s, _ in short.capacity.steps]


@pytest.mark.parametrize("seconds", [0, 1, 601])
def test_a_length_out_of_bounds_is_refused(seconds: float) -> None:
    with pytest.raises(UsageError, match="--seconds"):
        demo.plan(seconds, seed=1)


def test_the_pool_is_the_calls_profile_with_its_times_shortened_and_nothing_else() -> None:
    usual, shortened = resolve_pool({"profile": "calls"}), resolve_pool(demo.faster_settings(8.0))
    assert shortened.settle_s == usual.settle_s / 8
    assert (shortened.cap, shortened.cap_ceiling, shortened.step) == (
        usual.cap,
        usual.cap_ceiling,
        usual.step,
    )


# -- what is shown ----------------------------------------------------------------------------------


@pytest.mark.parametrize("governed", [False, True])
def test_the_table_fits_a_small_terminal(governed: bool) -> None:
    standing = Standing(governed, 123.4, ROWS, SAMPLES)
    lines = plain(demo_screen.frame(standing, WITHOUT, glyphs=demo_screen.BLOCKS)).splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 20


def test_a_narrow_terminal_gets_a_narrower_table() -> None:
    blocks = demo_screen.frame(Standing(True, 3.0, ROWS, SAMPLES), None, glyphs=demo_screen.BLOCKS, width=60)
    _, _, _, head, *rows = plain(blocks).splitlines()
    assert max(map(len, (head, *rows[:3]))) <= 60


def test_the_table_shows_the_cap_beside_the_hidden_capacity() -> None:
    text = plain(demo_screen.frame(Standing(True, 3.0, ROWS, SAMPLES), None, glyphs=demo_screen.ASCII))
    assert "cap 2, 3 in use, retry-after; the provider would serve 3" in text


def test_a_terminal_without_blocks_gets_plain_letters() -> None:
    glyphs = demo_screen.glyphs_for("ascii")
    assert plain(demo_screen.frame(Standing(True, 3.0, ROWS, SAMPLES), None, glyphs=glyphs)).isascii()
    assert demo_screen.glyphs_for("UTF-8") is demo_screen.BLOCKS


def test_a_line_of_progress_says_all_of_it() -> None:
    assert demo_screen.progress(Standing(True, 4.0, ROWS, SAMPLES)) == (
        "with     4.0 s  51/96 done   66 x 429   9 running 15 waiting  capacity 3  cap 2"
    )


def test_the_card_fits_a_small_terminal() -> None:
    lines = card_text().splitlines()
    assert max(map(len, lines)) <= 80
    # Four more say what to try next, and the shell's prompt needs one.
    assert len(lines) <= 24 - 5


def test_every_number_of_the_card_says_who_measured_it() -> None:
    head, *rows = card_text().splitlines()[2:10]
    assert head.endswith("MEASURED BY")
    assert all(row.endswith(("workers", "provider", "clock")) for row in rows)


def test_the_card_says_it_where_the_governor_was_slower() -> None:
    assert "25% slower" in card_text()
    assert "Slower here" in card_text()
    assert "Slower here" not in card_text(WITH, WITHOUT)


def test_the_card_says_it_where_the_governor_was_less_fair() -> None:
    assert "less fair" in card_text(WITH, WITHOUT)


def test_a_heat_that_ran_out_of_time_is_named() -> None:
    stopped = TrialScore(40, 9, 22.0, 60.0, None, (0, 0, 0), 7, 6, stopped=True)
    text = card_text(governed=stopped)
    assert "not the same" in text
    assert "time limit" in text


def test_more_429s_are_called_more() -> None:
    assert plain_words(demo_screen.fewer(2, 5)) == "2.5x more"
    assert plain_words(demo_screen.fewer(0, 5)) == "more"


def test_a_long_run_fits_on_one_line() -> None:
    longest = [Sample(t / 4, 6, 5, 5, cap=5) for t in range(2400)]
    lines = plain(demo_screen.card(WITHOUT, WITH, (longest, longest), note="")).splitlines()
    assert max(map(len, lines)) <= 80


# -- the real thing ---------------------------------------------------------------------------------


@pytest.mark.faults
def test_a_short_demo_makes_the_same_calls_twice_and_reports_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLYBALL_HOME", str(tmp_path / "mine"))
    monkeypatch.setattr(demo, "TEAMS", (Team("shop", 2), Team("blog", 1)))
    assert main(["demo", "--seconds", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    calls = found["calls_each"] * len(found["projects"])
    for trial in ("without", "with"):
        assert found[trial]["score"]["calls_done"] == calls
        assert found[trial]["samples"]
    assert found["tag"] == "measured"
    assert not (tmp_path / "mine").exists()


@pytest.mark.faults
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_demo_leaves_no_process_and_no_folder(number: int, code: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "flyball", "demo", "--seconds", "600"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        while not process.stdout.readline().startswith("without"):
            assert process.poll() is None
        assert list(tmp_path.glob("flyball-demo-*"))
        process.send_signal(number)
        process.send_signal(number)
        process.stdout.read()
    assert process.returncode == code
    assert list(tmp_path.iterdir()) == []
    assert processes_with(f"TMPDIR={tmp_path}") == []


def processes_with(entry: str) -> list[str]:
    """Processes whose environment has this entry; where there is no /proc nobody can be asked."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            entries = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if entry.encode() in entries:
            found.append(path.parent.name)
    return found
