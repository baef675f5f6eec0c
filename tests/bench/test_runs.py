"""Every bench runs and answers in the form the reports need. Figures are judged by people, not here."""

from __future__ import annotations

import json
import math
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import __main__ as command
from bench import (
    agents,
    choosing,
    classify,
    contention,
    factory,
    fleet_figures,
    fleet_leases,
    fleet_lock,
    fleet_ramp,
    fleet_renewals,
    fleet_shares,
    gateway,
    handoff,
    landing,
    limiter,
    machine,
    postgres,
    service,
    startup,
    steps,
    store_cost,
    stray,
    workspaces,
)
from bench.report import Section, as_markdown, as_record, as_text

_TINY_FLEET = fleet_figures.Sizes(
    leases=fleet_leases.Sizes(rounds=1, admits=20, threads=2, crowd=4, crowd_rounds=1, many=20),
    lock=fleet_lock.Sizes(rounds=1, starts=4),
    shares=fleet_shares.Sizes(rounds=1, pairs=50, heartbeat_s=0.1),
    renewals=fleet_renewals.Sizes(nodes=(2, 4), beats=2, heartbeat_s=0.1),
    ramp=fleet_ramp.Sizes(
        joins=1, incumbents=(1,), piece_s=0.02, skews=(2,), skew_s=0.1, skew_piece_s=0.01, heartbeat_s=0.1
    ),
)
_TINY = {
    store_cost.NAME: lambda: store_cost.run(store_cost.Sizes(rounds=2, pairs=5, few=2, many=20), _silent),
    contention.NAME: lambda: contention.run(
        contention.Sizes(rounds=1, round_s=0.2, processes=2, live=3), _silent
    ),
    handoff.NAME: lambda: handoff.run(
        handoff.Sizes(rounds=1, processes=4, projects=2, hold_s=0.002, pings=3), _silent
    ),
    stray.NAME: lambda: stray.run(stray.Sizes(agents=3, seconds=0.2, refused_after_s=(0.1,)), _silent),
    steps.NAME: lambda: steps.run(
        steps.Sizes(
            rounds=1,
            pace=20.0,
            shapes=tuple(steps.SHAPES)[:1],
            calls=12,
            clients=3,
            stray_calls=6,
            agents=2,
            agent_s=0.2,
        ),
        _silent,
    ),
    workspaces.NAME: lambda: workspaces.run(workspaces.Sizes(files=20, rounds=1), _silent),
    classify.NAME: lambda: classify.run(classify.Sizes(rounds=1, megabytes=1), _silent),
    limiter.NAME: lambda: limiter.run(
        limiter.Sizes(rounds=1, pairs=50, line_rounds=1, waiters=50, releases=20, condition_releases=5),
        _silent,
    ),
    service.NAME: lambda: service.run(
        service.Sizes(
            stores=("sqlite", "redis"),  # PostgreSQL does not run as root, nor where only root may look
            repetitions=1,
            rounds=1,
            starts=5,
            burst=6,
            waiting=4,
            hold_s=0.002,
            light_s=0.5,
            rate_s=0.05,
            rate_rounds=1,
            waiters=5,
            wakes=2,
        ),
        _silent,
    ),
    startup.NAME: lambda: startup.run(startup.Sizes(rounds=1, waiters=1), _silent),
    choosing.NAME: lambda: choosing.run(choosing.Sizes(rounds=1, tasks=50), _silent),
    factory.NAME: lambda: factory.run(
        factory.Sizes(tasks=3, width=2, agent_s=0.05, spread_tasks=3, spread_width=2, idle_s=0.2, many=5),
        _silent,
    ),
    gateway.NAME: lambda: gateway.run(gateway.TINY, _silent),
    landing.NAME: lambda: landing.run(landing.Sizes(branches=2, gate_s=0.0, bad=(2,), alone=1), _silent),
    fleet_figures.NAME: lambda: fleet_figures.run(_TINY_FLEET, _silent),
    agents.NAME: lambda: agents.run(agents.TINY, _silent),
    postgres.NAME: lambda: postgres.run(
        postgres.Sizes(rounds=1, pairs=8, warm_up=1, connections=2, few=2, many=5), _silent
    ),
}


def _silent(_: str) -> None:
    pass


def test_every_bench_has_a_tiny_run_here() -> None:
    assert set(_TINY) == set(command.BENCHES)


@pytest.fixture
def place(name: str, tmp_path: Path) -> Iterator[Path]:
    """PostgreSQL does not run as root, and needs a place where others may look."""
    if name not in (postgres.NAME, startup.NAME):
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="fb-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", _TINY)
def test_a_bench_answers_with_finite_figures_and_leaves_nothing_behind(
    name: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    section = _TINY[name]()
    assert section.name == name
    assert any(figure.target for figure in section.figures)
    for figure in section.figures:
        assert math.isfinite(figure.ours)
        assert figure.theirs is None or math.isfinite(figure.theirs)
    _check_shown(section)
    assert not [path for path in place.iterdir() if path.name.startswith(("flyball-bench-", "fb-pg-"))]


def _check_shown(section: Section) -> None:
    described = machine.describe()
    shown = json.loads(json.dumps(as_record([section], described), allow_nan=False))
    assert len(shown["benches"][section.name]["figures"]) == len(section.figures)
    table = as_markdown([section], described)
    for figure in section.figures:
        assert figure.what in table
        assert figure.what in as_text(section)
    assert socket.gethostname() not in json.dumps(described)
    assert str(Path.home()) not in table


def test_the_command_writes_the_results_where_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(store_cost, "QUICK", store_cost.Sizes(rounds=1, pairs=3, few=2, many=5))
    assert command.main(["store-cost", "--quick", "--json", str(tmp_path / "out.json")]) == 0
    assert "targets met" in capsys.readouterr().out
    assert set(json.loads((tmp_path / "out.json").read_text())) == {"machine", "benches"}
    assert "store-cost" in (tmp_path / "out.md").read_text()


def test_a_bench_with_a_result_file_of_its_own_leaves_the_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = limiter.Sizes(rounds=1, pairs=50, line_rounds=1, waiters=50, releases=20, condition_releases=5)
    monkeypatch.setattr(limiter, "FULL", tiny)
    monkeypatch.setattr(command, "OWN_RESULTS", {limiter.NAME: tmp_path / "limiter.json"})
    monkeypatch.setattr(command, "RESULTS", tmp_path / "one-machine.json")
    assert command.main(["limiter"]) == 0
    assert "targets met" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {"limiter.json", "limiter.md"}


def test_an_unknown_bench_is_refused_with_the_names_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["speed"])
    assert "store-cost" in capsys.readouterr().err
