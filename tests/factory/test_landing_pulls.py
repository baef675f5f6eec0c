"""Work that lands through pull requests: opened, found again, landed, settled, refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.factory.fake_hosts import Host
from tests.factory.kit import GREEN, Project


def in_origin(project: Project, host: Host, branch: str) -> str:
    return project.git("--git-dir", str(host.origin), "rev-parse", f"refs/heads/{branch}")


def somebody_pushes(project: Project, host: Host, branch: str, path: str, text: str = "x") -> str:
    """Another person's commit on a branch at origin."""
    clone = project.place / f"clone-{len(list(project.place.glob('clone-*')))}"
    project.git("clone", "-q", "--branch", branch, str(host.origin), str(clone))
    (clone / path).parent.mkdir(parents=True, exist_ok=True)
    (clone / path).write_text(text)
    project.git("add", "-A", cwd=clone)
    project.git("commit", "-qm", f"somebody: {path}", cwd=clone)
    project.git("push", "-q", "origin", branch, cwd=clone)
    return project.git("rev-parse", "HEAD", cwd=clone)


def nothing_is_left(project: Project, host: Host) -> None:
    assert project.branches() == []
    assert project.worktrees() == []
    refs = project.git("--git-dir", str(host.origin), "for-each-ref", "--format=%(refname)", "refs/heads/")
    assert refs.split() == ["refs/heads/main"]
    assert project.git("status", "--porcelain") == ""


@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_from_a_task_to_a_landed_pull_request(project: Project, kind: str) -> None:
    host = Host(project, kind=kind)
    project.task("t-1", body="What it is about.")
    project.git("push", "-q", "origin", "main")
    before = project.git("rev-parse", "main")
    ran = project.run("--json")
    assert ran.code == 0, ran.said
    (pull,) = host.pulls
    assert (pull["branch"], pull["base"], pull["title"]) == ("agent/t-1", "main", "Add page t-1")
    assert "What it is about." in pull["body"]
    assert f"#{pull['number']} is open: https://" in ran.json["waiting_for_you"]["t-1"]
    assert project.git("rev-parse", "main") == before
    assert project.worktree("t-1").exists()
    assert project.branches() == ["agent/t-1"]
    assert project.status_of("t-1", in_origin(project, host, "agent/t-1")) == "closed"
    board = project.flyball("board", "--json").json
    assert [(row["pr_number"], row["state"]) for row in board["rows"]] == [(12, "parked")]

    refused = project.flyball("land", "t-1")
    assert refused.code == 2
    assert "#12 is not approved" in refused.err
    assert project.git("rev-parse", "main") == before

    host.change(12, approved=True)
    synced = project.flyball("pr", "sync", "--json").json["pulls"]
    assert [(each["task"], each["state"]) for each in synced] == [("t-1", "approved")]
    gates = project.folders("t-1")
    ran = project.flyball("land", "#12")
    assert ran.code == 0, ran.said
    assert "landed" in ran.out
    assert project.landed() == ["t-1"]
    assert in_origin(project, host, "main") == project.git("rev-parse", "main")
    assert project.status_of("t-1") == "closed"
    assert [len(list(folder.glob("gate-*"))) for folder in gates] == [1]
    nothing_is_left(project, host)
    assert project.wrongs(["t-1"]) == []
    assert project.run().code == 0
    assert len(project.began()) == 1


def test_an_unapproved_one_lands_where_a_person_says_so(project: Project) -> None:
    host = Host(project)
    project.task("t-1")
    project.git("push", "-q", "origin", "main")
    assert project.run().code == 0
    ran = project.flyball("land", "t-1", "--unapproved", "--json")
    assert ran.code == 0, ran.said
    assert ran.json["landed"]
    nothing_is_left(project, host)


def test_where_the_default_branch_moved_it_is_rebased_and_the_gate_runs_again(project: Project) -> None:
    host = Host(project)
    project.task("t-1")
    project.git("push", "-q", "origin", "main")
    assert project.run().code == 0
    somebody_pushes(project, host, "main", "lib/x")
    host.change(12, approved=True)
    ran = project.flyball("land", "12")
    assert ran.code == 0, ran.said
    assert {"lib/x", "pages/t-1.txt"} <= set(project.files())
    assert len(list(project.folders("t-1")[0].glob("gate-*"))) == 2
    assert in_origin(project, host, "main") == project.git("rev-parse", "main")
    nothing_is_left(project, host)


def test_what_somebody_added_is_gated_and_lands_with_it(project: Project) -> None:
    host = Host(project)
    project.task("t-1")
    project.git("push", "-q", "origin", "main")
    assert project.run().code == 0
    added = somebody_pushes(project, host, "agent/t-1", "pages/more.txt")
    host.change(12, approved=True)
    ran = project.flyball("land", "t-1")
    assert ran.code == 0, ran.said
    assert project.git("rev-parse", "main") == added
    assert len(list(project.folders("t-1")[0].glob("gate-*"))) == 2


@pytest.mark.parametrize(
    ("path", "text", "why"), [("pages/x", "bad", "gate-failed"), ("secrets/key", "x", "protected")]
)
def test_what_somebody_added_is_refused_like_an_agents_work(
    project: Project, path: str, text: str, why: str
) -> None:
    host = Host(project)
    project.task("t-1")
    project.git("push", "-q", "origin", "main")
    assert project.run().code == 0
    before = project.git("rev-parse", "main")
    somebody_pushes(project, host, "agent/t-1", path, text)
    host.change(12, approved=True)
    ran = project.flyball("land", "t-1")
    assert ran.code == 1
    assert why in ran.out
    assert project.git("rev-parse", "main") == in_origin(project, host, "main") == before


def test_one_merged_elsewhere_closes_its_task_and_is_cleaned_up(project: Project) -> None:
    host = Host(project)
    for name in ("t-1", "t-2"):
        project.task(name)
    project.git("push", "-q", "origin", "main")
    assert project.run().code == 0
    head = in_origin(project, host, "agent/t-1")
    project.git("--git-dir", str(host.origin), "update-ref", "refs/heads/main", head)
    ran = project.flyball("pr", "sync")
    assert ran.code == 0, ran.said
    assert "closed its task and cleaned up" in ran.out
    assert "waits for people" in ran.out
    assert project.git("rev-parse", "main") == head
    assert project.status_of("t-1") == "closed"
    assert project.branches() == ["agent/t-2"]
    assert "pages/t-1.txt" in project.files()
    assert (project.root / "pages" / "t-1.txt").exists()
    assert project.run().code == 0
    assert len(project.began("t-1")) == 1


def test_one_that_was_closed_is_said_and_keeps_its_work(project: Project) -> None:
    host = Host(project)
    project.task("t-1")
    project.git("push", "-q", "origin", "main")
    assert project.run().code == 0
    host.change(12, state="closed")
    ran = project.flyball("pr", "sync")
    assert ran.code == 0, ran.said
    assert "was closed" in ran.out
    assert project.branches() == ["agent/t-1"]
    assert "was closed" in project.flyball("land", "t-1").err
    ran = project.flyball("pr", "open", "t-1")
    assert ran.code == 0, ran.said
    assert [pull["state"] for pull in host.pulls] == ["closed", "open"]


def test_one_that_is_open_already_is_found_again(project: Project) -> None:
    host = Host(project)
    project.task("t-1")
    project.git("push", "-q", "origin", "main")
    assert project.run().code == 0
    first = in_origin(project, host, "agent/t-1")
    project.act("t-1", "", launch=2)
    tree = project.worktree("t-1")
    (tree / "pages" / "more.txt").write_text("more")
    project.git("add", "-A", cwd=tree)
    project.git("commit", "-qm", "more", cwd=tree)
    ran = project.flyball("pr", "open", "t-1", "--json")
    assert ran.code == 0, ran.said
    assert ran.json["number"] == 12
    assert len(host.pulls) == 1
    assert in_origin(project, host, "agent/t-1") != first
    assert "pages/more.txt" in project.files(in_origin(project, host, "agent/t-1"))


def test_what_somebody_else_pushed_to_its_branch_is_not_overwritten(project: Project) -> None:
    host = Host(project)
    project.task("t-1")
    project.git("push", "-q", "origin", "main")
    assert project.run().code == 0
    theirs = somebody_pushes(project, host, "agent/t-1", "pages/theirs.txt")
    ran = project.flyball("pr", "open", "t-1")
    assert ran.code == 1
    assert "somebody else pushed" in ran.out
    assert in_origin(project, host, "agent/t-1") == theirs


# -- what is missing ------------------------------------------------------------------------------------


def test_without_an_origin_the_way_out_is_said(project: Project) -> None:
    project.configure(merge={"policy": "pr"})
    project.task("t-1")
    ran = project.run()
    assert ran.code == 1
    assert "no-remote: the project has no remote called origin" in ran.out
    assert "git remote add origin" in ran.out
    assert project.branches() == ["agent/t-1"]


def test_without_gh_the_work_waits_and_a_person_opens_it_later(project: Project) -> None:
    host = Host(project)
    project.task("t-1")
    project.git("push", "-q", "origin", "main")
    away = host.program.rename(host.program.with_suffix(".away"))
    ran = project.run()
    assert ran.code == 0, ran.said
    assert "no-gh: gh was not found; install it" in ran.out
    assert "flyball pr open t-1" in ran.out
    assert not (project.folders("t-1")[0] / "gate-1").exists()
    away.rename(host.program)
    ran = project.flyball("pr", "open", "t-1")
    assert ran.code == 0, ran.said
    assert [pull["number"] for pull in host.pulls] == [12]
    assert len(project.began("t-1")) == 1


def test_a_host_that_refuses_keeps_the_work_and_says_so(project: Project) -> None:
    host = Host(project)
    project.task("t-1")
    project.git("push", "-q", "origin", "main")
    host.fail()
    ran = project.run()
    assert ran.code == 0, ran.said
    assert "no-gh: gh pr list failed: HTTP 401: Bad credentials; gh auth status" in ran.out
    host.fail(False)
    assert project.flyball("pr", "open", "t-1").code == 0
    host.fail()
    ran = project.flyball("pr", "sync", "--json")
    assert ran.code == 1
    assert [each["state"] for each in ran.json["pulls"]] == ["unknown"]


def test_an_origin_of_no_known_host_asks_which_it_is(project: Project) -> None:
    Host(project)
    project.configure(merge={"host": "auto"})
    project.task("t-1")
    project.git("push", "-q", "origin", "main")
    ran = project.run()
    assert "merge.host" in ran.out
    assert project.branches() == ["agent/t-1"]


def test_an_origin_that_refuses_the_branch_keeps_the_work(project: Project) -> None:
    host = Host(project)
    hook = host.origin / "hooks" / "pre-receive"
    project.task("t-1")
    project.git("push", "-q", "origin", "main")
    hook.write_text("#!/bin/sh\necho no branches here >&2\nexit 1\n")
    hook.chmod(0o755)
    ran = project.run()
    assert ran.code == 1
    assert "no-remote: could not push agent/t-1 to origin" in ran.out
    assert host.pulls == []
    assert project.branches() == ["agent/t-1"]


def test_a_red_gate_sends_work_back_before_anybody_sees_it(project: Project) -> None:
    host = Host(project)
    project.task("t-1")
    project.act("t-1", "write('pages/t-1.txt', 'bad')", launch=1)
    project.git("push", "-q", "origin", "main")
    ran = project.run()
    assert ran.code == 0, ran.said
    assert len(project.began("t-1")) == 2
    assert len(host.calls("pr", "create")) == 1
    head = in_origin(project, host, "agent/t-1")
    assert "bad" not in project.git("show", f"{head}:pages/t-1.txt")


# -- the policy -----------------------------------------------------------------------------------------


def test_a_label_goes_before_a_parents_and_a_parents_before_the_project(project: Project) -> None:
    host = Host(project)
    project.configure(merge={"policy": "auto"})
    project.commit("lands by itself")
    project.task("e-1", "type: epic", "labels: [merge:pr]")
    project.task("f-1", "type: feature", "parent: e-1")
    project.task("t-1", "parent: f-1")
    project.task("t-2", "parent: f-1", "labels: [merge:manual]")
    project.task("t-3")
    project.git("push", "-q", "origin", "main")
    ran = project.run("--json")
    assert ran.code == 0, ran.said
    assert [pull["branch"] for pull in host.pulls] == ["agent/t-1"]
    assert "flyball merge t-2" in ran.json["waiting_for_you"]["t-2"]
    assert ran.json["merged"] == ["t-3"]


def test_there_is_nothing_to_sync_without_pull_requests(project: Project) -> None:
    assert project.flyball("pr", "sync").out == "no pull request is open\n"
    refused = project.flyball("land", "t-1")
    assert refused.code == 2
    assert "flyball pr open" in refused.err


def test_a_run_that_goes_on_lands_it_when_asked(project: Project) -> None:
    host = Host(project)
    project.task("t-1")
    project.task("t-2", act="wait_for(folder / 'go')\nwrite('pages/t-2.txt', 'x')")
    project.git("push", "-q", "origin", "main")
    process = project.start("run")
    project.read_until(process, "#12 is open")
    host.change(12, approved=True)
    ran = project.flyball("land", "12")
    assert ran.code == 0, ran.said
    assert project.landed() == ["t-1"]
    project.say("go")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, out + err
    assert [pull["branch"] for pull in host.pulls] == ["agent/t-1", "agent/t-2"]


def test_the_gate_is_that_of_any_landing(project: Project, tmp_path: Path) -> None:
    Host(project)
    where = tmp_path / "where"
    project.configure(gate={"commands": [f"pwd >> {where}", "test -f pages/t-1.txt", GREEN]})
    project.commit("where")
    project.task("t-1")
    project.git("push", "-q", "origin", "main")
    assert project.run().code == 0
    assert where.read_text().strip().endswith("/.landing")
