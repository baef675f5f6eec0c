"""Which clones are one project."""

from __future__ import annotations

import pytest

from flyball.factory.project.project_key import normalize_address, project_key
from tests.factory.kit import Project


def test_two_clones_of_one_origin_are_one_project(project: Project) -> None:
    origin = project.with_origin()
    clone = project.place / "clone"
    project.git("clone", "--quiet", str(origin), str(clone))
    assert project_key(clone) == project_key(project.root)


def test_a_clone_and_what_it_was_cloned_from_are_one_project(project: Project) -> None:
    clone = project.place / "clone"
    project.git("clone", "--quiet", str(project.root), str(clone))
    assert project_key(clone) == project_key(project.root)


def test_two_folders_of_one_repository_are_two_projects(project: Project) -> None:
    project.write("shop/README", "x")
    assert project_key(project.root / "shop") != project_key(project.root)


def test_two_repositories_are_two_projects(project: Project) -> None:
    other = project.place / "other"
    project.git("init", "--quiet", str(other))
    project.git("commit", "--quiet", "--allow-empty", "--message", "another start", cwd=other)
    assert project_key(other) != project_key(project.root)


@pytest.mark.parametrize(
    "address",
    [
        "https://github.com/team/blog",
        "https://me:secret@github.com/team/blog.git",
        "ssh://git@github.com:22/team/blog.git/",
        "git@github.com:team/blog.git",
    ],
)
def test_an_address_is_known_by_its_host_and_path_alone(address: str) -> None:
    assert normalize_address(address) == "github.com/team/blog"


def test_a_password_of_origin_changes_nothing(project: Project) -> None:
    project.git("remote", "add", "origin", "https://example.org/team/blog.git")
    before = project_key(project.root)
    project.git("remote", "set-url", "origin", "https://me:secret@example.org/team/blog.git")
    assert project_key(project.root) == before
