"""``flyball validate``: everything that is wrong, before anything runs."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.kit import Cli

GOOD = '[project]\nid = "blog"\n[agent]\nruntime = "command"\ncommand = ["sh"]\n[gate]\ncommands = ["true"]\n'


class Project:
    def __init__(self, root: Path, cli: Cli) -> None:
        self.root, self.cli = root, cli
        subprocess.run(["git", "init", "-q"], cwd=root, check=True)
        named = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        commit = ["git", *named, "commit", "-q", "--allow-empty", "-m", "first"]
        subprocess.run(commit, cwd=root, check=True)

    def says(self, text: str) -> None:
        (self.root / "flyball.toml").write_text(text, encoding="utf-8")

    def has_task(self, name: str, front: str) -> None:
        (self.root / "tasks").mkdir(exist_ok=True)
        (self.root / "tasks" / f"{name}.md").write_text(
            f"---\nid: {name}\ntitle: x\n{front}---\nDo.\n", encoding="utf-8"
        )

    def found(self, severity: str = "problem") -> dict[str, str]:
        """Where to words; the exit code must agree."""
        result = self.cli("validate", "--json")
        findings = result.json["findings"]
        problems = any(finding["severity"] == "problem" for finding in findings)
        assert (result.code, result.json["ok"]) == (int(problems), not problems)
        return {one["where"]: one["words"] for one in findings if one["severity"] == severity}


@pytest.fixture
def project(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Project:
    root = tmp_path / "blog"
    root.mkdir()
    monkeypatch.chdir(root)
    return Project(root, cli)


def test_outside_a_project_it_is_wrong_usage(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli("validate").code == 2


def test_a_file_that_is_not_toml_is_a_finding(project: Project) -> None:
    project.says("[project\n")
    assert "line 1" in project.found()["flyball.toml"]


def test_all_wrong_keys_are_found_at_once(project: Project) -> None:
    project.says('[project]\nid = "blog"\n[run]\nwidth = 0\nmdoe = "wave"\n')
    assert set(project.found()) == {"run.width", "run.mdoe"}
    result = project.cli("validate")
    assert "problem: run.mdoe: is not a known key; did you mean 'mode'?" in result.out
    assert result.out.endswith("2 problems\n")


def test_a_project_for_a_newer_flyball_is_told_to_upgrade(project: Project) -> None:
    project.says('[project]\nid = "blog"\nengine = "99+"\n')
    assert "needs flyball 99 or newer" in project.found()["project.engine"]


def test_landing_by_itself_without_a_gate_is_a_problem(project: Project) -> None:
    project.says(GOOD.replace('[gate]\ncommands = ["true"]\n', ""))
    assert "commands = []" in project.found()["merge.policy"]


def test_a_prompt_file_must_be_there_and_be_text(project: Project) -> None:
    project.says(GOOD + '[prompt]\nfile = "docs/prompt.md"\n')
    assert "cannot read docs/prompt.md" in project.found()["prompt.file"]
    (project.root / "docs").mkdir()
    (project.root / "docs" / "prompt.md").write_bytes(b"\xff")
    assert "not UTF-8" in project.found()["prompt.file"]


def test_a_branch_that_does_not_exist_is_a_problem(project: Project) -> None:
    project.says(GOOD.replace('id = "blog"', 'id = "blog"\ndefault_branch = "trunk-9"'))
    assert "trunk-9" in project.found()["repository"]


def test_what_only_may_matter_is_a_note(project: Project) -> None:
    text = GOOD.replace('"sh"', '"no-such-program"') + '[worktree]\ncopy = [".env"]\n[areas]\napi = []\n'
    project.says(text)
    assert project.found() == {}
    assert set(project.found("note")) == {"agent.runtime", "worktree.copy", "areas.api"}


def test_a_task_that_cannot_be_read_is_a_problem(project: Project) -> None:
    project.says(GOOD)
    project.has_task("t-1", "need: [t-2]\n")
    assert "did you mean 'needs'" in project.found()["tasks/t-1.md"]


def test_a_need_that_does_not_exist_is_a_problem(project: Project) -> None:
    project.says(GOOD)
    project.has_task("t-1", "needs: [t-9]\n")
    assert "needs t-9, which does not exist" in project.found()["tasks/t-1.md"]


def test_a_circle_of_needs_is_a_problem(project: Project) -> None:
    project.says(GOOD)
    project.has_task("t-1", "needs: [t-2]\n")
    project.has_task("t-2", "needs: [t-1]\n")
    (words,) = project.found().values()
    assert "t-1 -> t-2 -> t-1" in words


def test_a_footprint_without_a_possible_meaning_is_a_problem(project: Project) -> None:
    project.says(GOOD)
    project.has_task("t-1", 'footprint: {write: ["../up"]}\n')
    assert "footprint" in project.found()["tasks/t-1.md"]


def test_an_area_that_the_map_does_not_know_is_a_note(project: Project) -> None:
    project.says(GOOD)
    project.has_task("t-1", "labels: [area:api]\n")
    assert "area:api" in project.found("note")["tasks/t-1.md"]


@pytest.mark.parametrize(
    ("label", "words"),
    [
        (
            "merge:manuel",
            "there is no policy 'manuel' (label merge:manuel), so its work waits for flyball merge",
        ),
        ("merge:manuel", "did you mean merge:manual?"),
        ("Merge:auto", "is not read as it is written, so its work waits for flyball merge"),
        ("merge:", "write merge:auto, merge:manual or merge:pr"),
        ("rt:9", "write rt:0, rt:1, rt:2 or rt:3"),
        ("model:sonet", "there is no tier 'sonet' (label model:sonet); did you mean model:sonnet?"),
        ("model:review:opsu", "did you mean model:review:opus?"),
        (
            "model:reveiw:opus",
            "there is no stage 'reveiw' (label model:reveiw:opus); did you mean model:review:",
        ),
        ("model:fable", "models.allowed does not have it"),
        ("res:docker=many", "write res:docker or res:docker=2"),
    ],
)
def test_a_label_that_means_something_and_cannot_be_made_out_is_a_problem(
    project: Project, label: str, words: str
) -> None:
    project.says(GOOD)
    project.has_task("t-1", f"labels: ['{label}']\n")
    assert words in project.found()["tasks/t-1.md"]


def test_labels_that_can_be_made_out_and_those_of_the_project_itself_are_fine(project: Project) -> None:
    project.says(GOOD + "[stages.translate]\n")
    labels = "merge:pr, 'rt:3', model:gpt-5-codex, model:translate:haiku, model:claude-opus-4-1, res:gpu"
    project.has_task("t-1", f"labels: [{labels}, 'team:manuel', merged]\n")
    assert "tasks/t-1.md" not in project.found()


def test_an_account_that_does_not_exist_is_a_problem(project: Project) -> None:
    project.says(GOOD + '[account]\nprofile = "nope"\n')
    assert "there is no profile 'nope'; flyball account add nope ..." in project.found()["account.profile"]
    dry = project.cli("run", "--dry-run")
    assert (dry.code, "flyball account add nope" in dry.err) == (2, True)


def test_a_gate_command_that_cannot_be_run_is_a_note(project: Project) -> None:
    fine = [
        "cd x && make",
        "if true; then false; fi",
        "FOO=1 nonesuch",
        "./nonesuch",
        "$NONESUCH",
        "(nonesuch)",
    ]
    project.says(GOOD.replace('["true"]', json.dumps([*fine, "nonesuch-gate --all"])))
    assert project.found() == {}
    [(where, words)] = project.found("note").items()
    assert where == f"gate.commands[{len(fine)}]"
    assert "nonesuch-gate was not found on PATH" in words
    (project.root / ".envrc").touch()
    assert project.found("note") == {}


def test_pull_requests_without_an_origin_or_its_program_are_a_note(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.says(GOOD + '[merge]\npolicy = "pr"\n')
    assert "git remote add origin" in project.found("note")["merge.policy"]
    address = "git@github.com:me/blog.git"
    subprocess.run(["git", "remote", "add", "origin", address], cwd=project.root, check=True)
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("git", "sh"):
        (programs / name).symlink_to(shutil.which(name) or "")
    monkeypatch.setenv("PATH", str(programs))
    assert "gh was not found" in project.found("note")["merge.policy"]
    (programs / "gh").symlink_to(programs / "sh")
    assert project.found("note") == {}


def test_a_file_among_the_tasks_that_is_none_is_a_note(project: Project) -> None:
    project.says(GOOD)
    (project.root / "tasks").mkdir()
    for name in ("fix-login.md", "README.md", "list.txt"):
        (project.root / "tasks" / name).write_text("# Fix the login\n")
    assert project.found() == {}
    assert project.found("note") == {
        "tasks/fix-login.md": "has no front matter, so it is not a task; flyball task add writes one"
    }


def test_closed_tasks_are_left_in_peace(project: Project) -> None:
    project.says(GOOD)
    project.has_task("t-1", "status: closed\nneeds: [t-9]\nlabels: [area:api, 'fp:../up', merge:manuel]\n")
    assert project.found() == project.found("note") == {}


def test_a_sound_project_is_called_so(project: Project) -> None:
    project.says(GOOD)
    project.has_task("t-1", 'footprint: {write: ["pages/hello*"]}\n')
    result = project.cli("validate")
    assert (result.code, result.out) == (0, f"{project.root}: nothing is wrong\n")


def test_a_fresh_init_is_sound_but_for_the_agent(project: Project) -> None:
    project.cli("init", "--write", "--runtime", "command")
    assert project.found() == {}


def test_the_schema_can_be_had_anywhere(cli: Cli) -> None:
    result = cli("validate", "--schema")
    assert (result.code, json.loads(result.out)["title"]) == (0, "flyball.toml")
