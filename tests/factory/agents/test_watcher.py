"""One agent and what it prints: recordings of a real claude, played back by a scripted one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.factory.kit import Project
from tests.runtimes.recorded import FOLDER, recording
from tests.waiting import until


def plays(project: Project, name: str, *, launch: int | None = None, then: str = "") -> None:
    """The agent of t-1 prints a recording and ends as it did."""
    code = recording(name).exit_code
    stdout = next(Path(FOLDER).glob(f"{name}.stdout.*"))
    script = f"os.write(1, Path({str(stdout)!r}).read_bytes())\n{then}\nsys.exit({code})"
    project.act("t-1", script, launch=launch)


@pytest.fixture
def claude(project: Project) -> Project:
    project.configure(agent={"runtime": "claude"})
    project.task("t-1")
    return project


def throttles(project: Project) -> int:
    return sum(pool["throttle_count"] for pool in project.flyball("status", "--json").json["pools"])


WORK = "write('pages/t-1.txt', 'x')"


# -- limits -----------------------------------------------------------------------------------------------


def test_a_throttle_to_death_goes_back_through_admission_and_burns_no_attempt(claude: Project) -> None:
    claude.patient_pool()
    plays(claude, "claude/err_429_noheader", launch=1)
    plays(claude, "claude/ok_text", then=WORK)
    ran = claude.run()
    assert ran.code == 0, ran.said
    assert [line.attempt for line in claude.began()] == [1, 1]
    assert claude.wrongs(["t-1"]) == []
    assert throttles(claude) == 1


def test_a_throttle_that_it_got_over_is_told_and_the_work_lands(claude: Project) -> None:
    plays(claude, "claude/err_429_then_ok", then=WORK)
    assert claude.run().code == 0
    assert len(claude.began()) == 1
    assert throttles(claude) == 1


def test_a_throttle_is_told_while_the_agent_still_runs(claude: Project) -> None:
    stdout = FOLDER / "claude" / "err_429_then_ok.stdout.jsonl"
    claude.act(
        "t-1",
        f"lines = Path({str(stdout)!r}).read_bytes().splitlines(keepends=True)\n"
        "os.write(1, b''.join(lines[:-1]))\nwait_for(folder / 'go')\nos.write(1, lines[-1])\n" + WORK,
    )
    process = claude.start("run")
    until(lambda: throttles(claude), "the pool to hear of it")
    claude.say("go")
    assert process.wait(30) == 0


def test_spent_credit_pauses_the_run_and_says_so(claude: Project) -> None:
    plays(claude, "claude/err_credit")
    claude.task("t-2", "priority: 4", act="wait_for(folder / 'never')")
    claude.configure(run={"width": 1})
    ran = claude.run()
    assert ran.code == 75, ran.said
    assert "credit" in ran.out
    assert [line.task for line in claude.began()] == ["t-1"]
    assert claude.leases() == []


def test_a_wrong_key_blocks_at_once(claude: Project) -> None:
    plays(claude, "claude/err_401")
    ran = claude.run()
    assert ran.code == 1
    assert "check the login or the key" in ran.out
    assert len(claude.began()) == 1


def test_a_stream_cut_in_the_middle_is_a_failure_that_is_tried_again(claude: Project) -> None:
    plays(claude, "claude/midstream_cut", launch=1)
    plays(claude, "claude/ok_text", then=WORK)
    assert claude.run().code == 0
    assert [line.attempt for line in claude.began()] == [1, 2]


def test_overload_goes_back_without_burning_an_attempt(claude: Project) -> None:
    claude.patient_pool()
    plays(claude, "claude/err_529", launch=1)
    plays(claude, "claude/ok_text", then=WORK)
    ran = claude.run()
    assert ran.code == 0, ran.said
    assert [line.attempt for line in claude.began()] == [1, 1]


# -- sessions ---------------------------------------------------------------------------------------------


def said(session: str) -> str:
    init = {"type": "system", "subtype": "init", "session_id": session, "model": "m"}
    done = {"type": "result", "subtype": "success", "is_error": False, "session_id": session, "result": "ok"}
    return f"print({json.dumps(init)!r})\nprint({json.dumps(done)!r})\n"


def test_an_agent_sent_back_goes_on_with_its_session_and_is_told_the_news_alone(claude: Project) -> None:
    claude.act("t-1", said("s-1") + "write('pages/t-1.txt', 'bad')", launch=1)
    claude.act("t-1", "assert '--resume=s-1' in sys.argv, sys.argv\n" + said("s-2") + WORK)
    ran = claude.run()
    assert ran.code == 0, ran.said
    again = claude.prompts("t-1")[1]
    assert again.startswith("## Attempt 2")
    assert "# Project blog" not in again


def test_a_session_that_is_gone_is_not_asked_for_again(claude: Project) -> None:
    claude.act("t-1", said("s-1") + "write('pages/t-1.txt', 'bad')", launch=1)
    gone = {
        "type": "result",
        "subtype": "error_during_execution",
        "is_error": True,
        "session_id": "made-up",
        "errors": ["No conversation found with session ID: s-1"],
    }
    claude.act("t-1", f"print({json.dumps(gone)!r})\nsys.exit(1)", launch=2)
    claude.act("t-1", "assert not any('resume' in word for word in sys.argv)\n" + said("s-3") + WORK)
    ran = claude.run()
    assert ran.code == 0, ran.said
    assert [line.attempt for line in claude.began()] == [1, 2, 2]
    assert "# Project blog" in claude.prompts("t-1")[2], "a new session is told everything"
    assert "gate was red" in claude.prompts("t-1")[2], "and what happened before"


# -- ceilings ---------------------------------------------------------------------------------------------


def turn(number: int) -> str:
    message = {"id": f"m-{number}", "role": "assistant", "content": [{"type": "text", "text": "hm"}]}
    line = {"type": "assistant", "message": message, "session_id": "s", "parent_tool_use_id": None}
    return json.dumps(line, separators=(",", ":"))


def test_too_many_turns_are_stopped(claude: Project) -> None:
    claude.configure(agent={"max_turns": 2}, run={"attempts": 1})
    lines = "".join(f"print({turn(number)!r}, flush=True)\n" for number in range(4))
    claude.act("t-1", lines + "time.sleep(600)")
    ran = claude.run()
    assert ran.code == 1
    assert "agent.max_turns" in ran.out
    assert claude.processes() == []
    assert claude.leases() == []


def test_too_much_cost_is_stopped(claude: Project) -> None:
    claude.configure(agent={"max_cost_usd": 0.5}, run={"attempts": 1})
    spent = {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "session_id": "s",
        "result": "so far",
        "total_cost_usd": 0.75,
    }
    claude.act("t-1", f"print({json.dumps(spent)!r}, flush=True)\ntime.sleep(600)")
    ran = claude.run()
    assert ran.code == 1
    assert "agent.max_cost_usd" in ran.out
    assert claude.processes() == []


def test_a_ceiling_reached_with_its_work_committed_goes_on_from_it(claude: Project) -> None:
    claude.configure(agent={"max_s": 1})
    claude.act("t-1", "commit('pages/half.txt', '1')\ntime.sleep(600)", launch=1)
    claude.act("t-1", "assert Path('pages/half.txt').exists()\n" + said("s") + WORK)
    assert claude.run().code == 0
    assert {"pages/half.txt", "pages/t-1.txt"} <= set(claude.files())


# -- what is known of it ----------------------------------------------------------------------------------


def test_a_folder_per_launch_keeps_everything(claude: Project) -> None:
    plays(claude, "claude/ok_text", then=WORK + "\nprint('aside', file=sys.stderr)")
    assert claude.run().code == 0
    [folder] = claude.folders("t-1")
    assert {"prompt.md", "stdout", "stderr", "status", "summary.json"} <= {p.name for p in folder.iterdir()}
    assert (folder / "status").read_text() == "0\n"
    assert (folder / "stderr").read_text() == "aside\n"
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["end"] == "finished"
    assert summary["tokens"] > 0
    assert folder.stat().st_mode & 0o077 == 0


def test_an_agent_finds_what_it_was_promised_in_its_environment(project: Project) -> None:
    project.configure(agent={"env": {"COLOUR": "blue"}, "model": "small"})
    project.task(
        "t-1",
        act="assert os.environ['COLOUR'] == 'blue' and os.environ['FLYBALL_MODEL'] == 'small'\n"
        "assert os.environ['FLYBALL_TASK'] == task and os.environ['FLYBALL_ATTEMPT'] == '1'\n"
        "assert not [name for name in os.environ if name.startswith('GIT_') and 'GIT_CONFIG_' not in name"
        " and name != 'GIT_EDITOR']\n"
        "assert git('symbolic-ref', '--short', 'HEAD') == 'agent/t-1'\n"
        "assert os.path.realpath(git('rev-parse', '--show-toplevel')) == os.path.realpath(os.getcwd())\n"
        + WORK,
    )
    project.env["GIT_DIR"] = "/nowhere"
    process = project.run()
    assert process.code == 0, process.said


def test_a_command_without_a_named_model_has_none(project: Project) -> None:
    project.task("t-1", act="assert 'FLYBALL_MODEL' not in os.environ\nsys.exit(9)")
    project.configure(run={"attempts": 2})
    ran = project.run("--json")
    assert "exited with status 9" in ran.json["blocked"]["t-1"], ran.said
    (row,) = project.flyball("board", "--json").json["rows"]
    assert row["agent"] == "command"
    assert "sonnet" not in project.flyball("metrics").out


def test_an_agent_that_uses_flyball_itself_shares_its_slot(project: Project) -> None:
    project.flyball("pool", "set", "anthropic", "--cap", "1", "--static")
    inner = (
        "subprocess.run([sys.executable, '-m', 'flyball', 'exec', '--', 'true'], check=True, timeout=20)\n"
    )
    project.task("t-1", act=inner + WORK)
    project.sections["agent"]["command"][1:3] = []
    project.configure()
    ran = project.run()
    assert ran.code == 0, ran.said
