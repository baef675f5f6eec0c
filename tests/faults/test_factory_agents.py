"""Agents that behave as badly as they can, under the real ``flyball run``."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from flyball import Governor
from tests.factory.kit import FLYBALL, SOAK, Project
from tests.waiting import until

pytestmark = pytest.mark.faults
MB = 1 << 20


# -- how they end -----------------------------------------------------------------------------------------


def test_a_limited_agent_burns_no_attempt_and_asks_for_its_slot_again(project: Project) -> None:
    project.patient_pool()
    project.task("t-1")
    project.act("t-1", "sys.exit(75)", launch=1)
    project.act("t-1", "sys.exit(75)", launch=2)
    assert project.run().code == 0
    assert [(line.launch, line.attempt) for line in project.began("t-1")] == [(1, 1), (2, 1), (3, 1)]
    assert project.wrongs(["t-1"]) == []


def test_a_limited_agent_with_commits_is_not_landed_but_goes_on(project: Project) -> None:
    project.patient_pool()
    project.task("t-1", act="assert Path('pages/half.txt').exists()\nwrite('pages/t-1.txt', 'whole')")
    project.act("t-1", "commit('pages/half.txt', 'half')\nsys.exit(75)", launch=1)
    assert project.run().code == 0
    assert project.landed() == ["t-1"]
    assert {"pages/half.txt", "pages/t-1.txt"} <= set(project.files())


def test_a_limit_closes_the_pool_for_the_next_agent(project: Project) -> None:
    """Every launch goes through admission, the next try of the same task too."""
    governor = Governor(f"sqlite://{project.home}/governor.db")
    # One limit opens the breaker, for minutes: however slow the machine is, the next try meets it.
    governor.set_pool("anthropic", controller="koryph", trip_cuts=1, break_s=300.0)
    governor.close()
    project.task("t-1")
    project.act("t-1", "sys.exit(75)", launch=1)
    process = project.start("run")
    project.read_until(process, "breaker open after repeated throttles")
    assert len(project.began("t-1")) == 1
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143


def test_limits_in_a_row_beyond_the_budget_block_the_task(project: Project) -> None:
    project.patient_pool()
    project.configure(run={"limited_retries": 2})
    project.task("t-1", act="sys.exit(75)")
    ran = project.run()
    assert ran.code == 1
    assert "limited 3 times in a row" in ran.out
    assert len(project.began("t-1")) == 3


def test_an_agent_that_fails_every_time_is_blocked_with_the_reason(project: Project) -> None:
    project.task("t-1", act="sys.exit(1)")
    ran = project.run()
    assert ran.code == 1
    assert "blocked" in ran.out
    assert "failed 3 times" in ran.out
    assert [line.attempt for line in project.began("t-1")] == [1, 2, 3]
    assert project.landed() == []
    assert project.leases() == []


def test_another_run_tries_a_blocked_task_again(project: Project) -> None:
    project.configure(run={"attempts": 1})
    project.task("t-1")
    project.act("t-1", "sys.exit(1)", launch=1)
    assert project.run().code == 1
    assert project.run().code == 0
    assert project.wrongs(["t-1"]) == []


def test_the_next_attempt_is_told_how_the_last_one_failed(project: Project) -> None:
    project.task("t-1", act="assert 'status 3' in prompt, prompt\nwrite('pages/t-1.txt', 'x')")
    project.act("t-1", "sys.exit(3)", launch=1)
    assert project.run().code == 0
    assert "Attempt 2" in project.prompts("t-1")[1]


def test_an_agent_killed_from_outside_is_tried_again(project: Project) -> None:
    project.task("t-1")
    project.act("t-1", "os.kill(os.getpid(), 9)", launch=1)
    assert project.run().code == 0
    assert len(project.began("t-1")) == 2
    assert project.wrongs(["t-1"]) == []


def test_an_agent_killed_together_with_its_keeper_is_tried_again(project: Project) -> None:
    project.task("t-1")
    project.act("t-1", "os.kill(os.getppid(), 9)\nos.kill(os.getpid(), 9)", launch=1)
    assert project.run().code == 0
    assert project.wrongs(["t-1"]) == []


def test_an_agent_whose_keeper_was_killed_is_still_waited_for(project: Project) -> None:
    project.configure(run={"attempts": 1})
    script = "os.kill(os.getppid(), 9)\ntime.sleep(0.5)\nwrite('pages/t-1.txt', 'late')"
    project.task("t-1", act=script)
    ran = project.run()
    assert [line.event for line in project.journal()] == ["began", "ended"]
    assert ran.code in (0, 1), ran.said
    assert project.leases() == []
    assert project.processes() == []


def test_a_command_that_does_not_exist_blocks_and_says_so(project: Project) -> None:
    project.configure(agent={"command": ["no-such-agent-here"]})
    project.task("t-1")
    ran = project.run()
    assert ran.code == 1
    assert "no-such-agent-here" in ran.out, ran.said
    assert project.leases() == []


def test_a_command_that_may_not_be_run_blocks_and_says_so(project: Project) -> None:
    plain_file = project.place / "plain"
    plain_file.write_text("not a program")
    project.configure(agent={"command": [str(plain_file)]})
    project.task("t-1")
    ran = project.run()
    assert ran.code == 1
    assert str(plain_file) in ran.out, ran.said


def test_an_agent_that_changes_nothing_is_blocked_as_no_changes(project: Project) -> None:
    project.task("t-1", act="pass")
    ran = project.run()
    assert ran.code == 1
    assert "no-changes" in ran.out
    assert len(project.began("t-1")) == 1


def test_commits_without_a_change_count_as_no_changes_too(project: Project) -> None:
    project.task("t-1", act="git('commit', '--allow-empty', '-m', 'nothing')")
    ran = project.run()
    assert ran.code == 1
    assert "no-changes" in ran.out
    assert project.landed() == []


def test_what_an_agent_leaves_uncommitted_is_committed_under_the_title(project: Project) -> None:
    project.task("t-1", act="commit('pages/one.txt', '1', 'mine')\nwrite('pages/two.txt', '2')")
    assert project.run().code == 0
    assert project.git("log", "--format=%s", "-2", "main").splitlines() == ["Add page t-1", "mine"]
    assert {"pages/one.txt", "pages/two.txt"} <= set(project.files())


# -- processes --------------------------------------------------------------------------------------------


def test_an_agent_that_ignores_being_asked_to_stop_is_ended_after_its_time(project: Project) -> None:
    project.configure(agent={"max_s": 1, "grace_s": 0.3}, run={"attempts": 1})
    project.task("t-1", act="import signal\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(600)")
    ran = project.run()
    assert ran.code == 1
    assert "agent.max_s" in ran.out
    assert project.processes() == []
    assert project.leases() == []


def test_a_daemon_in_a_session_of_its_own_ends_with_its_agent(project: Project) -> None:
    daemon = "subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
    project.task("t-1", act=daemon + "write('pages/t-1.txt', 'x')")
    assert project.run().code == 0
    assert project.wrongs(["t-1"]) == []


def test_a_stubborn_daemon_ends_with_its_agent(project: Project) -> None:
    command = "['sh', '-c', 'trap \"\" TERM; while :; do sleep 1; done']"
    daemon = f"subprocess.Popen({command}, start_new_session=True)\ntime.sleep(0.1)\n"
    project.task("t-1", act=daemon + "write('pages/t-1.txt', 'x')")
    assert project.run().code == 0
    assert project.wrongs(["t-1"]) == []


def test_a_daemon_that_hides_its_environment_ends_with_its_agent(project: Project) -> None:
    """It has left the agent's session, its parent has ended, and nothing in it names the run."""
    marker = project.folder / "pid"
    command = f"['env', '-i', 'sh', '-c', 'echo $$ > {marker}; exec sleep 600']"
    daemon = f"if os.fork() == 0:\n    subprocess.Popen({command}, start_new_session=True)\n    os._exit(0)\n"
    project.task("t-1", act=daemon + f"wait_for({str(marker)!r})\nwrite('pages/t-1.txt', 'x')")
    assert project.run().code == 0
    pid = int(marker.read_text())
    gone = not Path(f"/proc/{pid}").exists()
    if not gone:
        os.kill(pid, signal.SIGKILL)
    assert gone


def test_a_silent_agent_is_stopped_when_its_silence_is_over(project: Project) -> None:
    project.configure(agent={"silence_s": 0.6}, run={"attempts": 1})
    project.task("t-1", act="time.sleep(600)")
    ran = project.run()
    assert ran.code == 1
    assert "printed nothing" in ran.out
    assert project.processes() == []


def test_printing_now_and_then_is_not_silence(project: Project) -> None:
    project.configure(agent={"silence_s": 1.0})
    script = (
        "for _ in range(8):\n    print('.', flush=True)\n    time.sleep(0.2)\nwrite('pages/t-1.txt', 'x')"
    )
    project.task("t-1", act=script)
    assert project.run().code == 0


def test_a_quiet_agent_is_said_to_seem_stuck_and_left_alone(project: Project) -> None:
    project.configure(agent={"stuck_s": 0.3})
    project.task("t-1", act="wait_for(folder / 'go')\nwrite('pages/t-1.txt', 'x')")
    process = project.start("run")
    board = project.root / ".flyball" / "board.json"
    until(lambda: board.exists() and '"stuck": true' in board.read_text(), "the board to say so")
    project.say("go")
    assert process.wait(30) == 0


# -- output -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1024 * MB if SOAK else 200 * MB])
def test_a_flood_of_output_holds_no_agent_up(project: Project, size: int) -> None:
    project.task(
        "t-1", act=f"for _ in range({size // MB}):\n    os.write(1, b'x' * {MB})\nwrite('pages/t-1.txt', 'x')"
    )
    project.task("t-2")
    assert project.run().code == 0
    assert project.wrongs(["t-1", "t-2"]) == []
    assert (project.folders("t-1")[0] / "stdout").stat().st_size == size


def test_an_agent_that_never_stops_printing_still_ends_after_its_time(project: Project) -> None:
    project.configure(agent={"max_s": 1}, run={"attempts": 1})
    project.task("t-1", act="line = b'y' * 65536\nwhile True:\n    os.write(1, line)")
    ran = project.run()
    assert ran.code == 1
    assert "agent.max_s" in ran.out
    assert project.processes() == []


def test_output_that_is_not_text_is_kept_as_it_is(project: Project) -> None:
    project.task(
        "t-1", act="os.write(1, bytes(range(256)) * 9)\nos.write(2, b'\\xff\\n')\nwrite('pages/t-1.txt', 'x')"
    )
    assert project.run().code == 0
    assert (project.folders("t-1")[0] / "stdout").read_bytes() == bytes(range(256)) * 9


def test_a_claude_that_prints_no_text_is_judged_all_the_same(project: Project) -> None:
    project.configure(agent={"runtime": "claude"}, run={"attempts": 1})
    project.task(
        "t-1", act="os.write(1, b'{\"type\":\"system\",\\xff\\xfe}\\n' * 50)\nwrite('pages/t-1.txt', 'x')"
    )
    ran = project.run()
    assert ran.code in (0, 1)
    assert project.leases() == []


# -- a full disk ------------------------------------------------------------------------------------------

_FILL = "try:\n    while True:\n        os.write(1, b'x' * 65536)\nexcept OSError:\n    pass\n"


def on_a_small_disk(project: Project, *lines: str, folder: Path | None = None, size: str = "3m") -> str:
    """Run lines of a shell with a folder (the project's state if none is named) on a disk of its own."""
    place = folder or project.root / ".flyball"
    place.mkdir(exist_ok=True)
    run = " ".join([*FLYBALL, "run"])
    script = [f"mount -t tmpfs -o size={size} tmpfs {place}", *(line.replace("RUN", run) for line in lines)]
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", "\n".join(script)],
        cwd=project.root,
        env=project.env,
        capture_output=True,
        text=True,
        timeout=110,
    )
    return done.stdout + done.stderr


def _can_mount(folder: Path) -> bool:
    command = ["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "tmpfs", str(folder)]
    return (
        shutil.which("unshare") is not None and subprocess.run(command, capture_output=True).returncode == 0
    )


def test_a_disk_that_is_full_for_a_moment_loses_nothing(project: Project) -> None:
    if not _can_mount(project.place):
        pytest.skip("no small disk can be made here")
    names = project.tasks(2)
    project.act("t-1", _FILL + "time.sleep(0.5)\nos.ftruncate(1, 0)\nsys.exit(1)", launch=1)
    said = on_a_small_disk(project, "RUN", "echo first $?", "RUN", "echo second $?")
    assert "first 0" in said or ("first 74" in said and "no room on the disk" in said), said
    assert "second 0" in said, said
    assert project.wrongs(names) == []


def test_an_agent_that_fills_the_disk_of_its_worktree_loses_nothing(project: Project) -> None:
    """Its worktree, the leases and the landing's own worktree are on that disk."""
    if not _can_mount(project.place):
        pytest.skip("no small disk can be made here")
    names = project.tasks(2)
    fills = "try:\n    open('fill', 'wb').write(b'x' * (64 << 20))\nexcept OSError:\n    pass\nsys.exit(1)"
    project.act("t-1", fills)
    trees = project.home / "worktrees" / "blog"
    free = f"rm -f {trees}/t-1/fill {project.folder}/acts/t-1.py"
    # What the small disk holds is gone with the shell, so the shell itself looks for leases left behind.
    leases = f"{' '.join(FLYBALL)} status --json"
    said = on_a_small_disk(
        project,
        "RUN",
        "echo first $?",
        free,
        "RUN",
        "echo second $?",
        leases,
        folder=project.home,
        size="12m",
    )
    assert "first 1" in said or ("first 74" in said and "disk" in said), said
    assert "second 0" in said, said
    assert '"in_use": 0' in said, said
    assert sorted(project.landed()) == names


def test_a_disk_that_stays_full_ends_the_run_and_the_next_one_goes_on(project: Project) -> None:
    if not SOAK:
        pytest.skip("writing down an end is tried for a minute: FLYBALL_SOAK=1")
    if not _can_mount(project.place):
        pytest.skip("no small disk can be made here")
    names = project.tasks(2)
    project.act("t-1", _FILL + "sys.exit(1)", launch=1)
    free = f"truncate -s 0 {project.root}/.flyball/runs/t-1/1/stdout"
    said = on_a_small_disk(project, "RUN", "echo first $?", free, "RUN", "echo second $?")
    assert "first 74" in said, said
    assert "no room on the disk" in said
    assert "second 0" in said, said
    assert project.wrongs(names) == []
