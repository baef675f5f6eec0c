"""What init would write, and what it leaves alone."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from flyball.errors import GitError, UsageError
from flyball.factory.project.config_reader import check_runnable, load_config
from flyball.factory.project.init import plan_init, write_init
from tests.factory.powerless import run_powerless


def git(*words: str, where: Path) -> None:
    named = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *named, *words], cwd=where, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "blog"
    root.mkdir()
    git("init", "-q", where=root)
    git("commit", "-q", "--allow-empty", "-m", "first", where=root)
    return root


def nothing(_: str) -> None:
    """A PATH with no programs on it."""


def everything(name: str) -> str:
    return name


def content(root: Path) -> dict[str, str]:
    """Every file of a project with its text."""
    files = (file for file in root.rglob("*") if file.is_file() and ".git" not in file.parts)
    return {str(file.relative_to(root)): file.read_text("utf-8") for file in files}


def gate_of(root: Path) -> list[str] | None:
    write_init(plan_init(root, on_path=everything))
    return load_config(root).gate.commands


# -- refused --------------------------------------------------------------------------------------


def test_outside_a_repository_the_way_out_is_git_init(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="run git init"):
        plan_init(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_does_not_exist_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no folder"):
        plan_init(tmp_path / "gone")


def test_a_bare_repository_has_no_place_for_files(tmp_path: Path) -> None:
    git("init", "-q", "--bare", str(tmp_path / "bare.git"), where=tmp_path)
    with pytest.raises(UsageError, match="not in a checkout"):
        plan_init(tmp_path / "bare.git")


def test_without_git_it_is_said(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(repository))
    with pytest.raises(GitError, match="git was not found"):
        plan_init(repository)


def test_an_id_that_cannot_be_one_is_refused_before_anything_is_written(repository: Path) -> None:
    with pytest.raises(UsageError, match="'my-blog' could"):
        plan_init(repository, project_id="my blog")


def test_a_file_in_the_place_of_the_tasks_is_refused_with_the_way_out(repository: Path) -> None:
    (repository / "tasks").touch()
    with pytest.raises(UsageError, match=r"not a folder; .*\[tasks\] folder"):
        plan_init(repository)


def test_a_folder_that_cannot_be_written_says_what_was_and_was_not_written(repository: Path) -> None:
    repository.chmod(0o500)
    try:
        said = run_powerless(f"""
from pathlib import Path
from flyball.errors import UsageError
from flyball.factory.project.init import plan_init, write_init
try:
    write_init(plan_init(Path({str(repository)!r})))
except UsageError as error:
    print(error)
""")
    finally:
        repository.chmod(0o700)
    assert said == f"cannot write {repository / 'flyball.toml'}: Permission denied; nothing was written"


# -- nothing is overwritten -----------------------------------------------------------------------


def test_planning_writes_nothing(repository: Path) -> None:
    plan_init(repository)
    assert content(repository) == {}


def test_what_was_written_after_the_plan_stays(repository: Path) -> None:
    plan = plan_init(repository, on_path=everything)
    (repository / "flyball.toml").write_text("# mine\n", encoding="utf-8")
    assert write_init(plan) == ["tasks/README.md"]
    assert (repository / "flyball.toml").read_text("utf-8") == "# mine\n"


def test_a_link_that_leads_nowhere_is_not_written_through(repository: Path, tmp_path: Path) -> None:
    (repository / "flyball.toml").symlink_to(tmp_path / "target")
    plan = plan_init(repository)
    assert plan.kept == ("flyball.toml",)
    write_init(plan)
    assert not (tmp_path / "target").exists()


def test_a_project_that_has_its_flyball_toml_is_adopted_and_only_gets_what_is_missing(
    repository: Path,
) -> None:
    mine = '[project]\nid = "shop"\n[tasks]\nfolder = "work/todo"\n'
    (repository / "flyball.toml").write_text(mine, encoding="utf-8")
    plan = plan_init(repository, project_id="other", on_path=everything)
    assert [file.path for file in plan.files] == ["work/todo/README.md"]
    assert any("stays as it is" in note for note in plan.notes)
    write_init(plan)
    assert content(repository)["flyball.toml"] == mine


def test_a_broken_flyball_toml_stays_and_is_said(repository: Path) -> None:
    (repository / "flyball.toml").write_text("[run]\nwidht = 1\n", encoding="utf-8")
    plan = plan_init(repository)
    assert plan.files == ()
    assert any("project.id is missing" in note for note in plan.notes)


def test_a_project_whose_tasks_are_elsewhere_gets_no_folder_for_them(repository: Path) -> None:
    text = '[project]\nid = "shop"\n[tasks]\nsource = "github"\n'
    (repository / "flyball.toml").write_text(text, encoding="utf-8")
    assert plan_init(repository).files == ()


def test_twice_is_once(repository: Path) -> None:
    write_init(plan_init(repository))
    before = content(repository)
    again = plan_init(repository)
    assert (again.files, again.kept) == ((), ("flyball.toml", "tasks/README.md"))
    write_init(again)
    assert content(repository) == before


# -- what is written ------------------------------------------------------------------------------


@pytest.mark.parametrize("runtime", ["claude", "codex", "gemini", "opencode", "command"])
def test_what_is_written_can_be_run(repository: Path, runtime: str) -> None:
    write_init(plan_init(repository, runtime=runtime))
    config = load_config(repository)
    assert (config.project.id, config.agent.runtime) == ("blog", runtime)
    check_runnable(config)


@pytest.mark.parametrize(
    ("folder", "project"), [("My Site (old)", "My-Site-old"), ("日本語", "日本語"), ("___", "project")]
)
def test_the_id_comes_from_the_folders_name(tmp_path: Path, folder: str, project: str) -> None:
    root = tmp_path / folder
    root.mkdir()
    git("init", "-q", where=root)
    write_init(plan_init(root))
    assert load_config(root).project.id == project


def test_from_a_folder_inside_it_is_the_repository_that_becomes_a_project(repository: Path) -> None:
    (repository / "src").mkdir()
    assert plan_init(repository / "src").root == repository


def test_a_repository_without_a_commit_is_told_what_run_will_need(tmp_path: Path) -> None:
    git("init", "-q", where=tmp_path)
    plan = plan_init(tmp_path, on_path=everything)
    assert plan.files
    assert any("flyball run needs one" in note for note in plan.notes)


def test_the_first_installed_agent_is_chosen(repository: Path) -> None:
    plan = plan_init(repository, on_path=lambda name: name in ("gemini", "opencode"))
    assert 'runtime = "gemini"' in plan.files[0].content
    assert plan.notes == ()


def test_an_agent_that_is_not_installed_is_said(repository: Path) -> None:
    plan = plan_init(repository, on_path=nothing)
    assert 'runtime = "claude"' in plan.files[0].content
    assert any("claude was not found" in note for note in plan.notes)


def test_the_readme_of_the_tasks_is_not_a_task(repository: Path) -> None:
    plan = plan_init(repository)
    assert plan.files[1].path == "tasks/README.md"
    assert not plan.files[1].content.startswith("---")


def test_new_files_can_be_read_by_every_user_as_git_expects(repository: Path) -> None:
    write_init(plan_init(repository))
    assert (repository / "flyball.toml").stat().st_mode & 0o777 == 0o644
    assert not [name for name in os.listdir(repository) if name.endswith(".tmp")]


# -- guesses --------------------------------------------------------------------------------------


def test_a_project_that_tests_nothing_says_what_an_empty_gate_means(repository: Path) -> None:
    assert gate_of(repository) == []
    assert "An empty list means: work lands unchecked." in content(repository)["flyball.toml"]


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("Makefile", "build:\n\tcc\ntest: build\n\t./t\n", ["make test"]),
        ("Makefile", "check test-all:\n\t./t\n", ["make check"]),
        ("makefile", ".PHONY: all\nlint test:\n\t./t\n", ["make test"]),
        ("Makefile", "test := 1\ntesting:\n\techo test:\n", []),
        ("package.json", json.dumps({"scripts": {"test": "vitest"}}), ["npm test"]),
        ("package.json", '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}', []),
        ("package.json", '{"scripts": ', []),
        ("package.json", '{"scripts": []}', []),
        ("package.json", "[" * 100_000, []),
        ("pyproject.toml", "[tool.pytest.ini_options]\n", ["python -m pytest -q"]),
        ("pyproject.toml", "[project]\nname = 'x'\n", []),
        ("pytest.ini", "[pytest]\n", ["python -m pytest -q"]),
        ("Cargo.toml", "[package]\n", ["cargo test"]),
        ("go.mod", "module x\n", ["go test ./..."]),
    ],
)
def test_the_gate_is_guessed_from_how_the_repository_is_tested(
    repository: Path, file: str, text: str, expected: list[str]
) -> None:
    (repository / file).write_text(text, encoding="utf-8")
    assert gate_of(repository) == expected


def test_a_makefile_speaks_for_the_whole_repository(repository: Path) -> None:
    (repository / "Makefile").write_text("test:\n", encoding="utf-8")
    (repository / "go.mod").touch()
    assert gate_of(repository) == ["make test"]


def test_without_one_every_language_is_tested(repository: Path) -> None:
    (repository / "go.mod").touch()
    (repository / "Cargo.toml").touch()
    assert gate_of(repository) == ["cargo test", "go test ./..."]


def test_a_makefile_that_is_not_text_or_not_a_file_says_nothing(repository: Path) -> None:
    (repository / "GNUmakefile").mkdir()
    (repository / "Makefile").write_bytes(b"\xff\xfe\x00test:\n")
    assert gate_of(repository) == []


def test_python3_is_named_where_there_is_no_python(repository: Path) -> None:
    (repository / "pytest.ini").touch()
    plan = plan_init(repository, on_path=lambda name: name != "python")
    assert 'commands = ["python3 -m pytest -q"]' in plan.files[0].content


def test_packages_that_git_does_not_track_are_installed_in_each_worktree(repository: Path) -> None:
    (repository / "package.json").write_text('{"scripts": {"test": "jest"}}', encoding="utf-8")
    (repository / "pnpm-lock.yaml").touch()
    assert gate_of(repository) == ["pnpm test"]
    assert load_config(repository).worktree.bootstrap == ["pnpm install --frozen-lockfile"]
