"""Branches that touch what no agent may change."""

from __future__ import annotations

import stat
from collections.abc import Iterator

import pytest

from tests.factory.kit import Project

pytestmark = pytest.mark.faults


PROTECTED = {
    "plain": "write('secrets/key', 'mine')",
    "nested": "write('secrets/a/b/c', 'mine')",
    "changed": "write('secrets/old', 'mine')",
    "deleted": "os.unlink('secrets/old')",
    "moved out of it": "os.makedirs('pages', exist_ok=True)\nos.rename('secrets/old', 'pages/old')",
    "moved into it": "os.rename('lib/x', 'secrets/x')",
    "case": "write('SECRETS/key', 'mine')",
    "the folder replaced by a file": "os.unlink('secrets/old')\nos.rmdir('secrets')\nwrite('secrets', 'x')",
    "a link into it": "os.makedirs('pages', exist_ok=True)\nos.symlink('../secrets/old', 'pages/link')",
    "a link to it": "os.symlink('secrets', 'link')",
    "a link out of the repository": "os.symlink('/etc/passwd', 'link')",
    "a relative link out of it": "os.makedirs('pages', exist_ok=True)\nos.symlink('../../x', 'pages/link')",
    "tasks": "write('tasks/t-9.md', 'x')",
    "its own task": "write(f'tasks/{task}.md', 'x')",
    "configuration": "write('flyball.toml', '')",
    "CI": "write('.github/workflows/ci.yml', 'x')",
    "CI in another case": "write('.GitHub/workflows/ci.yml', 'x')",
    "instructions somewhere": "write('lib/CLAUDE.md', 'x')",
    "ignored files": "write('lib/.gitignore', 'x')",
    "no text in its name": "write(os.fsdecode(b'secrets/\\xff'), 'x')",
    "not ASCII": "write('geheim/schl\u00fcssel', 'x')",
    "not ASCII, decomposed": "write('geheim/schlu\u0308ssel', 'x')",
}


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, dict[str, str]]]:
    """All of them in one run, each a task of its own, and why each was blocked."""
    project = Project(tmp_path_factory.mktemp("protected"))
    project.write("secrets/old", "a key\n" * 50)
    project.write("lib/x", "a long text\n" * 50)
    project.configure(merge={"protected": ["secrets/", "geheim/schl\u00fcssel"]}, run={"width": 4})
    project.commit("secrets")
    for number, script in enumerate(PROTECTED.values()):
        project.task(f"t-{number}", act=f"write(f'pages/{{task}}.txt', 'fine')\n{script}", commit=False)
    project.commit("tasks")
    ran = project.run("--json")
    assert ran.code == 1, ran.said
    yield project, ran.json["blocked"]
    project.end()


@pytest.mark.parametrize("number", range(len(PROTECTED)), ids=PROTECTED.keys())
def test_a_branch_that_touches_a_protected_path_is_refused_as_a_whole(
    refused: tuple[Project, dict[str, str]], number: int
) -> None:
    project, blocked = refused
    task = f"t-{number}"
    assert blocked[task].startswith("protected: ")
    assert f"pages/{task}.txt" not in project.files()
    assert f"agent/{task}" in project.branches()
    assert len(project.began(task)) == 1


def test_nothing_of_a_refused_branch_moves_the_default_branch(
    refused: tuple[Project, dict[str, str]],
) -> None:
    project, blocked = refused
    assert len(blocked) == len(PROTECTED)
    assert project.landed() == []
    assert project.leases() == []


def test_a_protected_change_that_a_merge_brings_in_is_refused(project: Project) -> None:
    project.configure(guard={"hooks": False})
    project.task(
        "t-1",
        act="git('checkout', '-qb', 'side')\ncommit('secrets/key', 'mine')\n"
        "git('checkout', '-q', f'agent/{task}')\ncommit('pages/t-1.txt', 'x')\n"
        "git('merge', '-q', '--no-edit', 'side')",
    )
    ran = project.run()
    assert ran.code == 1
    assert "protected" in ran.out
    assert project.landed() == []


def test_an_executable_page_and_an_odd_name_land_as_they_are(project: Project) -> None:
    odd = "pages/ '\"\t\u00e4 \u2603.txt"
    project.task("t-1", act=f"write({odd!r}, 'x')\nos.chmod({odd!r}, 0o755)")
    assert project.run().code == 0
    assert odd in project.files()
    assert (project.root / odd).stat().st_mode & stat.S_IXUSR
