"""``flyball doctor`` in a project: its settings, its tools, and what its work has left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from flyball.cli.doctor.project_doctor import Tool, check_tools
from flyball.core.tasks.task_run import RunPhase, Step
from flyball.factory.state.ledger import Ledger
from tests.cli.kit import Cli
from tests.cli.test_gc import BLOCKED, LIVE, closed, steps, tree, work
from tests.factory.kit import Project


@pytest.fixture
def here(site: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(site.root)
    return site


def kinds(cli: Cli, *flags: str) -> dict[str, dict[str, object]]:
    return {each["kind"]: each for each in cli("doctor", "--json", *flags).json["findings"]}


def test_a_project_without_trouble_is_healthy(cli: Cli, here: Project) -> None:
    said = cli("doctor")
    assert said.code == 0, said.out
    assert str(here.root) in said.out


def test_one_that_has_had_a_run_is_healthy_too(cli: Cli, here: Project) -> None:
    (here.root / ".flyball" / "runs" / "t-1" / "1").mkdir(parents=True)
    for flags in ((), ("--fix",), ("--json",)):
        said = cli("doctor", *flags)
        assert said.code == 0, said.out + said.err


def test_a_missing_gate_and_a_missing_program_are_problems(cli: Cli, here: Project) -> None:
    config = here.root / "flyball.toml"
    text = config.read_text().replace("check_base = false\n", "")
    text = text.replace("[gate]", "[areas]").replace("commands =", "x =")
    config.write_text(text.replace('command = ["', 'command = ["no-such-program", "'))
    said = cli("doctor")
    assert said.code == 1
    assert "nothing says what must be green" in said.out
    assert "no-such-program was not found on PATH" in said.out


def test_settings_that_cannot_be_read_are_said_and_the_state_is_examined_all_the_same(
    cli: Cli, here: Project
) -> None:
    (here.root / "flyball.toml").write_text("[project\n")
    said = cli("doctor")
    assert said.code == 1
    assert "is not valid TOML" in said.out
    assert str(cli.database) in said.out


def test_what_finished_work_left_behind_is_named_and_mended(cli: Cli, here: Project) -> None:
    closed(here, "t-1")
    path = tree(here, "t-1")
    found = kinds(cli)
    assert "t-1" in str(found["leftover-workspace"]["words"])
    assert cli("doctor").code == 0, "a note does not need a person"
    assert kinds(cli, "--fix")["leftover-workspace"]["fixed"] is True
    assert not path.exists()
    assert "agent/t-1" not in here.git("branch", "--list", "agent/*")
    assert "leftover-workspace" not in kinds(cli)


def test_work_that_exists_only_here_is_left_alone(cli: Cli, here: Project) -> None:
    closed(here, "t-1")
    path = tree(here, "t-1")
    work(here, path)
    (path / "unsaved.txt").write_text("mine")
    assert "leftover-workspace" not in kinds(cli, "--fix")
    assert (path / "unsaved.txt").exists()


def test_trips_that_were_cut_short_are_named_with_the_way_on(cli: Cli, here: Project) -> None:
    here.task("t-1")
    here.task("t-2")
    steps(here, "t-1", *LIVE)
    steps(here, "t-2", *BLOCKED)
    found = kinds(cli)["unfinished"]
    assert (found["words"], found["remedy"]) == (
        "1 task cut short: t-1 (ready)",
        "flyball run goes on with them",
    )


def test_a_folder_in_the_way_of_a_workspace_is_a_problem(cli: Cli, here: Project) -> None:
    here.workspace("t-9").mkdir(parents=True)
    assert "t-9" in str(kinds(cli)["strange-workspace"]["words"])


def test_a_run_that_goes_on_is_not_disturbed(cli: Cli, here: Project) -> None:
    from flyball.factory.run.session import LOCK
    from flyball.factory.state.locks import RunLock

    closed(here, "t-1")
    path = tree(here, "t-1")
    lock = RunLock(here.root / ".flyball" / LOCK)
    (here.root / ".flyball").mkdir(exist_ok=True)
    assert lock.take(project="x")
    try:
        kinds(cli, "--fix")
        assert path.exists()
    finally:
        lock.release()


def test_an_old_git_and_a_silent_tool_are_told_apart() -> None:
    found = list(check_tools([Tool("git", "/usr/bin/git", "2.30.1"), Tool("bd", "/usr/bin/bd", "")]))
    assert [(each.kind, each.severity.value) for each in found] == [
        ("tool-bd", "note"),
        ("tool-git-old", "problem"),
    ]
    assert not list(check_tools([Tool("git", "/usr/bin/git", "2.38")]))


def test_outside_a_project_only_the_state_is_examined(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli("doctor", "--json").json["location"] == str(cli.database)


def test_a_damaged_ledger_is_a_finding_with_the_way_out(cli: Cli, here: Project) -> None:
    ledger = Ledger(here.root / ".flyball", run="r")
    ledger.note("t", Step.CLAIM, RunPhase.DONE)
    ledger.close()
    (here.root / ".flyball" / "ledger.db").write_bytes(b"not a database" * 100)
    said = cli("doctor")
    assert said.code == 1
    assert "is damaged" in said.out
    assert "move it away to start anew" in said.out
