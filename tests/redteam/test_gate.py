"""What agents wrote runs in the gate: it finds no secrets there, and a refused one leaves nothing behind."""

from __future__ import annotations

import os
import sys

from tests.factory.kit import GREEN, Project

SECRETS = ("GH_TOKEN", "FAKE_SECRET", "FLYBALL_BATCH_API_KEY", "ANTHROPIC_API_KEY")


def test_a_gate_and_a_bootstrap_see_none_of_the_user_s_secrets(project: Project) -> None:
    project.env |= dict.fromkeys(SECRETS, "s3cret")
    seen = project.folder / "seen"
    project.configure(gate={"commands": [f"env >> {seen}"]}, worktree={"bootstrap": [f"env >> {seen}"]})
    project.commit("a gate that tells")
    project.task("t-1")
    assert project.run().code == 0
    assert "PATH=" in seen.read_text()
    assert "s3cret" not in seen.read_text()


def test_a_gate_gets_the_variables_that_the_project_names_for_it(project: Project) -> None:
    project.env["DATABASE"] = "here"
    project.configure(gate={"commands": ['test "$DATABASE" = here'], "env": ["DATABASE"]})
    project.commit("a gate that needs something")
    project.task("t-1")
    ran = project.run()
    assert ran.code == 0, ran.said


def test_work_that_changes_the_gate_s_own_script_is_refused(project: Project) -> None:
    project.write("ci/check.py", "import sys\nsys.exit('bad' in open('pages/t-1.txt').read())\n")
    project.configure(gate={"commands": [f"cd ci && cd .. && {sys.executable} ci/check.py"]})
    project.commit("a gate in a script")
    project.task("t-1", act="write('ci/check.py', '')\nwrite('pages/t-1.txt', 'bad')", write=None)
    ran = project.run("--json")
    assert "pages/t-1.txt" not in project.files(), ran.said
    assert ran.json["blocked"]["t-1"].startswith("protected: "), ran.said


def test_doctor_says_what_of_the_gate_an_agent_could_change(project: Project) -> None:
    project.write("Makefile", "check:\n\ttrue\n")
    project.configure(gate={"commands": ["make check"]})
    project.commit("make")
    found = project.flyball("doctor", "--json").json["findings"]
    words = [each["words"] for each in found if each["kind"] == "gate-unprotected"]
    assert len(words) == 1
    assert "Makefile" in words[0]


def test_work_that_a_gate_refused_decides_nothing_about_later_work(project: Project) -> None:
    project.write(".gitignore", "cache/\n")
    project.configure(
        gate={
            "commands": [
                f"if [ -e plant ]; then mkdir -p cache; touch cache/green; exit 1; fi; "
                f"[ -e cache/green ] || {GREEN}"
            ]
        },
        run={"width": 1, "gate_retries": 0},
    )
    project.commit("a gate with a cache")
    project.task("t-1", "priority: 0", act="write('plant', 'x')", write="plant")
    project.task("t-2", act="write('pages/t-2.txt', 'bad')")
    ran = project.run("--json")
    assert sorted(ran.json["blocked"]) == ["t-1", "t-2"], ran.said
    assert "pages/t-2.txt" not in project.files()


def test_a_cache_of_landed_work_stays_warm_and_one_of_refused_work_is_prepared_anew(project: Project) -> None:
    made, warm = project.folder / "made", project.folder / "warm"
    project.write(".gitignore", "cache\n")
    project.configure(
        gate={"commands": [f"[ ! -e cache ] || echo . >> {warm}; touch cache; {GREEN}"]},
        worktree={"bootstrap": [f"pwd >> {made}"]},
        run={"width": 1, "gate_retries": 0},
    )
    project.commit("a gate with a cache")
    for name in ("t-1", "t-2", "t-4"):
        project.task(name, f"priority: {name[-1]}")
    project.task("t-3", "priority: 3", act="write('pages/t-3.txt', 'bad')")
    ran = project.run("--json")
    assert ran.json["merged"] == ["t-1", "t-2", "t-4"], ran.said
    assert warm.read_text() == ".\n.\n"
    assert sum(line.endswith(".landing") for line in made.read_text().splitlines()) == 2


# -- behind the wall ----------------------------------------------------------------------------------------


def gate_log(project: Project, task: str) -> str:
    return (project.folders(task)[-1] / "gate-1" / "gate.log").read_text()


def test_behind_the_wall_a_gate_writes_to_its_own_folder_and_sees_no_process_outside(walled: Project) -> None:
    touched = [folder / "touched" for folder in (walled.place / "user", walled.root, walled.root / ".git")]
    writes = "; ".join(f"touch {path} 2>/dev/null" for path in touched)
    refused = ["echo 'gitdir: /nowhere' > .git", f"kill -0 {os.getpid()}"]
    checks = "; ".join(f"! ({line}) 2>/dev/null || exit 1" for line in refused)
    walled.configure(gate={"commands": [f"{writes}; {checks}; mkdir -p build && : > build/x"]})
    walled.commit("a gate that tries")
    walled.task("t-1")
    ran = walled.run("--json")
    assert ran.json["merged"] == ["t-1"], ran.said
    assert not [path for path in touched if path.exists()]


def test_caches_of_a_gate_stay_while_it_is_green_and_go_with_one_that_was_not(walled: Project) -> None:
    count = 'mkdir -p "$XDG_CACHE_HOME"; echo x >> "$XDG_CACHE_HOME/runs"; wc -l < "$XDG_CACHE_HOME/runs"'
    walled.configure(gate={"commands": [f"{count}; {GREEN}"]}, run={"width": 1})
    walled.commit("a gate that counts")
    for number, text in enumerate(("fine", "fine", "bad", "fine"), 1):
        walled.task(f"t-{number}", f"priority: {number}", act=f"write('pages/t-{number}.txt', {text!r})")
    assert walled.run("--json").json["merged"] == ["t-1", "t-2", "t-4"]
    assert [gate_log(walled, f"t-{number}").strip() for number in range(1, 5)] == ["1", "2", "3", "1"]


def test_a_gate_may_write_where_the_project_says_and_agents_may_not(walled: Project) -> None:
    own = walled.place / "cache"
    own.mkdir()
    walled.configure(gate={"commands": [f"touch {own}/made"], "writable": [str(own)]})
    walled.commit("a gate with a cache")
    walled.task(
        "t-1", act=f"assert subprocess.run(['touch', '{own}/mine']).returncode\nwrite('pages/t-1.txt', 'x')"
    )
    assert walled.run("--json").json["merged"] == ["t-1"]
    assert [path.name for path in own.iterdir()] == ["made"]


def test_a_gate_that_needs_the_machine_runs_outside(walled: Project) -> None:
    walled.configure(gate={"commands": [f"touch {walled.place}/outside"], "sandbox": False})
    walled.commit("a gate outside")
    walled.task("t-1")
    assert walled.run("--json").json["merged"] == ["t-1"]
    assert (walled.place / "outside").exists()


def test_behind_the_wall_a_command_that_is_not_there_is_told_from_one_that_is_red(walled: Project) -> None:
    walled.configure(gate={"commands": ["no-such-command"]})
    walled.commit("a gate that is not there")
    walled.task("t-1")
    ran = walled.run("--json")
    assert "it was not found" in str(ran.json), ran.said
