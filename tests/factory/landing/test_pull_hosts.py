"""What the factory asks of a host of pull requests, through the host's own command line."""

from __future__ import annotations

import subprocess

import pytest

from flyball.factory.landing.hosts.github import GithubPulls
from flyball.factory.landing.hosts.gitlab import GitlabPulls
from flyball.factory.landing.hosts.port import PullError, PullState
from flyball.factory.landing.hosts.registry import find_host
from tests.factory.fake_hosts import Host
from tests.factory.kit import Project
from tests.waiting import until


@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_a_host_finds_opens_and_looks_at_pull_requests(
    project: Project, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Host(project, kind=kind)
    monkeypatch.setenv("PATH", project.env["PATH"])
    host = find_host(project.root, kind)
    assert host.find("agent/t-1") is None
    with pytest.raises(PullError, match="no such branch"):
        host.open(branch="agent/t-1", base="main", title="One", body="Words\n")
    head = project.git("commit-tree", "-p", "main", "-m", "x", "main^{tree}")
    project.git("push", "-q", "origin", f"{head}:refs/heads/agent/t-1")
    opened = host.open(branch="agent/t-1", base="main", title="One", body="Words\n")
    assert (opened.number, opened.state, opened.head) == (12, PullState.OPEN, head)
    assert fake.pulls[0]["body"] == "Words\n"
    assert host.find("agent/t-1") == opened
    assert not opened.approved
    fake.change(12, approved=True)
    assert host.get(12).approved
    fake.change(12, state="closed")
    assert host.get(12).state is PullState.CLOSED
    assert host.find("agent/t-1") is None
    fake.fail()
    with pytest.raises(PullError, match=r"failed: HTTP 401: Bad credentials; .* auth status"):
        host.get(12)


@pytest.mark.parametrize(("program", "pulls"), [("gh", GithubPulls), ("glab", GitlabPulls)])
def test_a_host_that_does_not_come_back_is_given_up_with_all_that_it_started(
    project: Project, program: str, pulls: type[GithubPulls | GitlabPulls], monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = project.place / "bin" / program
    hangs.parent.mkdir()
    hangs.write_text(f"#!/bin/sh\nsleep 600 & echo $! > {project.place}/pid; wait\n")
    hangs.chmod(0o755)
    monkeypatch.setenv("PATH", f"{hangs.parent}:{project.env['PATH']}")
    with pytest.raises(PullError, match=f"{program} .* took longer than 0.5 s"):
        pulls(project.root, timeout_s=0.5).get(12)
    pid = (project.place / "pid").read_text().strip()
    ps = ["ps", "-o", "stat=", "-p", pid]
    until(
        lambda: subprocess.run(ps, stdout=-1, text=True).stdout.strip()[:1] in ("", "Z"), "its child to end"
    )
