"""``flyball doctor`` about the factory: accounts, guards and the sandbox."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from flyball.factory.guards.install import Guards
from tests.factory.kit import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def kinds(project: Project, *words: str) -> dict[str, bool]:
    """What is found, and whether it was mended."""
    found = project.flyball("doctor", "--json", *words).json["findings"]
    return {each["kind"]: each["fixed"] for each in found}


def test_a_healthy_project_has_no_findings(project: Project) -> None:
    assert kinds(project) == {}


def test_guards_that_were_changed_are_found_and_mended(project: Project) -> None:
    guards = Guards(project.home)
    guards.install()
    (guards.hooks / "pre-push").write_text("#!/bin/sh\n")
    assert kinds(project) == {"guards": False}
    assert project.flyball("doctor").code == 1
    assert kinds(project, "--fix") == {"guards": True}
    assert kinds(project) == {}


def test_an_account_that_is_not_the_one_named_is_found(project: Project) -> None:
    project.flyball("account", "add", "work", "--runtime", "claude", "--identity", "ann@example.org")
    project.configure(agent={"runtime": "claude"}, account={"profile": "work"})
    said = project.flyball("doctor")
    assert (said.code, "no account is logged in" in said.out) == (1, True)
    login = project.place / "user" / ".claude.json"
    login.write_text(json.dumps({"oauthAccount": {"emailAddress": "Ann@example.org"}}))
    assert project.flyball("doctor").code == 0


def test_a_broken_profile_is_found_once(project: Project) -> None:
    project.flyball("account", "add", "work", "--runtime", "claude", "--identity", "ann@example.org")
    (project.home / "registry" / "accounts" / "work.toml").write_text("=")
    project.configure(agent={"runtime": "claude"}, account={"profile": "work"})
    assert kinds(project) == {"profile work": False}


def test_a_sandbox_that_is_not_here_is_found(project: Project, tmp_path: Path) -> None:
    only = tmp_path / "bin"
    only.mkdir()
    (only / "git").symlink_to(str(shutil.which("git")))
    project.env["PATH"] = str(only)
    project.configure(guard={"sandbox": "bwrap"})
    assert kinds(project) == {"sandbox": False}
