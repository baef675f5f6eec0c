"""Work that lands through pull requests: opened, found again, landed, settled, refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.factory.fake_hosts import Host
from tests.factory.kit import Project


def in_origin(project: Project, host: Host, branch: str) -> str:
    return project.git("--git-dir", str(host.origin), "rev-parse", f"refs/heads/{branch}")


def teammate_pushes(project: Project, host: Host, branch: str, path: str, text: str = "x") -> str:
    """Another person's commit on a branch at origin."""
    clone = project.place / f"clone-{len(list(project.place.glob('clone-*')))}"
    project.git("clone", "-q", "--branch", branch, str(host.origin), str(clone))
    (clone / path).parent.mkdir(parents=True, exist_ok=True)
    (clone / path).write_text(text)
    project.git("add", "-A", cwd=clone)
    project.git("commit", "-qm", f"teammate: {path}", cwd=clone)
    project.git("push", "-q", "origin", branch, cwd=clone)
    return project.git("rev-parse", "HEAD", cwd=clone)


def nothing_is_left(project: Project, host: Host) -> None:
    assert project.branches() == []
    assert project.workspaces() == []
    refs = project.git("--git-dir", str(host.origin), "for-each-ref", "--format=%(refname)", "refs/heads/")
    assert refs.split() == ["refs/heads/main"]
    assert project.git("status", "--porcelain") == ""


def test_from_a_task_to_a_landed_pull_request(project: Project) -> None:
    host = Host(project)
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
    assert project.workspace("t-1").exists()
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


def test_a_person_who_merges_it_here_hears_that_it_is_open_there(project: Project) -> None:
    Host(project)
    project.task("t-1")
    project.git("push", "-q", "origin", "main")
    assert project.run().code == 0
    merged = project.flyball("merge", "t-1")
    assert merged.code == 0, merged.said
    assert "pull request 12 (" in merged.out
    assert "is still open: push the default branch, or close it there" in merged.out


# -- many at once ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, Host]]:
    """Pull requests #12 to #20 of t-12 to t-20, opened in one run; each test has one of its own."""
    project = Project(tmp_path_factory.mktemp("pulls"))
    host = Host(project)
    project.configure(run={"width": 1})
    project.act("t-20", "write('pages/t-20.txt', 'bad')", launch=1)
    for number in range(12, 21):
        project.task(f"t-{number}", f"priority: {number - 12}", commit=False)
    project.commit("tasks")
    project.git("push", "-q", "origin", "main")
    ran = project.run()
    assert ran.code == 0, ran.said
    assert sorted(pull["branch"] for pull in host.pulls) == [f"agent/t-{number}" for number in range(12, 21)]
    yield project, host
    project.end()


Opened = tuple[Project, Host]


def gates(project: Project, task: str) -> int:
    return len(list(project.folders(task)[0].glob("gate-*")))


def test_a_red_gate_sends_work_back_before_a_reviewer_sees_it(opened: Opened) -> None:
    project, host = opened
    assert len(project.began("t-20")) == 2
    assert len([words for words in host.calls("pr", "create") if "--head=agent/t-20" in words]) == 1


def test_an_unapproved_one_lands_where_a_person_says_so(opened: Opened) -> None:
    project, host = opened
    ran = project.flyball("land", "t-12", "--unapproved", "--json")
    assert ran.code == 0, ran.said
    assert ran.json["landed"]
    assert "t-12" in project.landed()
    assert in_origin(project, host, "main") == project.git("rev-parse", "main")


def test_where_the_default_branch_moved_it_is_rebased_and_the_gate_runs_again(opened: Opened) -> None:
    project, host = opened
    teammate_pushes(project, host, "main", "lib/x")
    host.change(13, approved=True)
    ran = project.flyball("land", "13")
    assert ran.code == 0, ran.said
    assert {"lib/x", "pages/t-13.txt"} <= set(project.files())
    assert gates(project, "t-13") == 2
    assert in_origin(project, host, "main") == project.git("rev-parse", "main")
    assert "agent/t-13" not in project.branches()


def test_what_a_teammate_added_is_gated_and_lands_with_it(opened: Opened) -> None:
    project, host = opened
    teammate_pushes(project, host, "agent/t-14", "pages/more.txt")
    host.change(14, approved=True)
    ran = project.flyball("land", "t-14")
    assert ran.code == 0, ran.said
    assert {"pages/more.txt", "pages/t-14.txt"} <= set(project.files())
    assert gates(project, "t-14") == 2


@pytest.mark.parametrize(
    ("number", "path", "text", "why"),
    [(15, "pages/x", "bad", "gate-failed"), (16, "secrets/key", "x", "protected")],
)
def test_what_a_teammate_added_is_refused_like_an_agents_work(
    opened: Opened, number: int, path: str, text: str, why: str
) -> None:
    project, host = opened
    before = project.git("rev-parse", "main")
    teammate_pushes(project, host, f"agent/t-{number}", path, text)
    host.change(number, approved=True)
    ran = project.flyball("land", str(number))
    assert ran.code == 1
    assert why in ran.out
    assert project.git("rev-parse", "main") == before


def test_one_merged_elsewhere_closes_its_task_and_is_cleaned_up(opened: Opened) -> None:
    project, host = opened
    clone = project.place / "merging"
    project.git("clone", "-q", str(host.origin), str(clone))
    project.git("merge", "-q", "--no-edit", "origin/agent/t-17", cwd=clone)
    project.git("push", "-q", "origin", "main", cwd=clone)
    host.change(18, state="closed")
    ran = project.flyball("pr", "sync", "--json")
    assert ran.code == 0, ran.said
    states = {each["task"]: each for each in ran.json["pulls"]}
    assert (states["t-17"]["state"], states["t-18"]["state"], states["t-20"]["state"]) == (
        "merged",
        "closed",
        "open",
    )
    assert "closed its task and cleaned up" in states["t-17"]["words"]
    assert project.git("rev-parse", "main") == in_origin(project, host, "main")
    assert project.status_of("t-17") == "closed"
    assert "agent/t-17" not in project.branches()
    assert (project.root / "pages" / "t-17.txt").exists()


def test_one_that_was_closed_keeps_its_work_and_another_can_be_opened(opened: Opened) -> None:
    project, host = opened
    host.change(18, state="closed")
    assert "was closed" in project.flyball("land", "t-18").err
    assert "agent/t-18" in project.branches()
    ran = project.flyball("pr", "open", "t-18")
    assert ran.code == 0, ran.said
    assert [pull["state"] for pull in host.pulls if pull["branch"] == "agent/t-18"] == ["closed", "open"]


def test_one_that_is_open_already_is_found_again(opened: Opened) -> None:
    project, host = opened
    first, tree = in_origin(project, host, "agent/t-19"), project.workspace("t-19")
    (tree / "pages" / "t-19.more").write_text("more")
    project.git("add", "-A", cwd=tree)
    project.git("commit", "-qm", "more", cwd=tree)
    ran = project.flyball("pr", "open", "t-19", "--json")
    assert ran.code == 0, ran.said
    assert ran.json["number"] == 19
    assert sum(pull["branch"] == "agent/t-19" for pull in host.pulls) == 1
    assert in_origin(project, host, "agent/t-19") != first
    assert "pages/t-19.more" in project.files(in_origin(project, host, "agent/t-19"))


def test_what_a_teammate_pushed_to_its_branch_is_not_overwritten(opened: Opened) -> None:
    project, host = opened
    theirs = teammate_pushes(project, host, "agent/t-20", "pages/theirs.txt")
    ran = project.flyball("pr", "open", "t-20")
    assert ran.code == 1
    assert "which flyball did not push" in ran.out
    assert in_origin(project, host, "agent/t-20") == theirs


# -- what is missing ------------------------------------------------------------------------------------


def test_without_an_origin_the_work_waits_and_a_person_opens_it_later(project: Project) -> None:
    project.configure(merge={"policy": "pr"})
    project.task("t-1")
    ran = project.run("--json")
    assert ran.code == 0, ran.said
    why = ran.json["waiting_for_you"]["t-1"]
    assert why.startswith("no-remote: the project has no remote called origin")
    assert why.endswith("git remote add origin ADDRESS, then flyball pr open t-1")
    assert project.branches() == ["agent/t-1"]
    told = project.flyball("task", "why", "t-1", "--json").json
    assert told["next"][0] == "flyball pr open t-1 opens its pull request"
    assert "flyball pr open t-1 opens its pull request" in project.flyball("board").out
    assert project.run().code == 0
    assert len(project.began("t-1")) == 1
    assert project.flyball("pr", "open", "t-1").code == 1
    host = Host(project)
    project.git("push", "-q", "origin", "main")
    ran = project.flyball("pr", "open", "t-1")
    assert ran.code == 0, ran.said
    assert [pull["number"] for pull in host.pulls] == [12]
    assert "opens its pull request" not in project.flyball("board").out
    assert len(project.began("t-1")) == 1


def test_without_a_host_that_answers_the_work_waits_and_a_person_opens_it_later(project: Project) -> None:
    host = Host(project)
    project.task("t-1")
    project.git("push", "-q", "origin", "main")
    away = host.program.rename(host.program.with_suffix(".away"))
    ran = project.run()
    assert ran.code == 0, ran.said
    assert "no-gh: gh was not found; install it" in ran.out
    assert "flyball pr open t-1" in ran.out
    assert not (project.folders("t-1")[0] / "gate-1").exists()
    assert "flyball pr open t-1 opens its pull request" in project.flyball("task", "why", "t-1").out
    away.rename(host.program)
    host.fail()
    ran = project.flyball("pr", "open", "t-1")
    assert ran.code == 1
    assert "no-gh: gh pr list failed: HTTP 401: Bad credentials; gh auth status" in ran.out
    host.fail(False)
    ran = project.flyball("pr", "open", "t-1")
    assert ran.code == 0, ran.said
    assert [pull["number"] for pull in host.pulls] == [12]
    assert len(project.began("t-1")) == 1
    host.fail()
    ran = project.flyball("pr", "sync", "--json")
    assert ran.code == 1
    assert [each["state"] for each in ran.json["pulls"]] == ["unknown"]


def test_an_origin_that_refuses_the_branch_keeps_the_work(project: Project) -> None:
    host = Host(project)
    hook = host.origin / "hooks" / "pre-receive"
    project.task("t-1")
    project.git("push", "-q", "origin", "main")
    hook.write_text("#!/bin/sh\necho no branches here >&2\nexit 1\n")
    hook.chmod(0o755)
    ran = project.run()
    assert ran.code == 0
    assert "no-remote: could not push agent/t-1 to origin" in ran.out
    assert host.pulls == []
    assert project.branches() == ["agent/t-1"]
    hook.unlink()
    assert project.run().code == 0
    assert [pull["number"] for pull in host.pulls] == [12]
    assert len(project.began("t-1")) == 1


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
    project.task("t-4", "labels: [merge:atuo]")
    project.git("push", "-q", "origin", "main")
    ran = project.run("--json")
    assert ran.code == 0, ran.said
    assert [pull["branch"] for pull in host.pulls] == ["agent/t-1"]
    assert "flyball merge t-2" in ran.json["waiting_for_you"]["t-2"]
    assert (
        "the label merge:atuo names no policy, so finished work waits" in ran.json["waiting_for_you"]["t-4"]
    )
    assert "its label merge:atuo names no policy" in project.flyball("task", "why", "t-4").out
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


# -- reviews --------------------------------------------------------------------------------------------


def test_a_pull_request_is_reviewed_as_it_stands_and_stays_open(project: Project) -> None:
    host = Host(project)
    project.task("t-1", "acceptance: |", "  - the page is there")
    project.act("t-1@review", "review('it says too little')", launch=1)
    project.git("push", "-q", "origin", "main")
    assert project.run().code == 0
    added = teammate_pushes(project, host, "agent/t-1", "pages/more.txt")
    ran = project.flyball("review", "12", "--json")
    assert ran.code == 1, ran.said
    assert (ran.json["reviewed"], ran.json["passed"], ran.json["head"]) == (True, False, added)
    assert [each["what"] for each in ran.json["findings"]] == ["it says too little"]
    assert project.flyball("review", "t-1").code == 0
    assert project.flyball("review", "t-1", die_at="after:review.begun#2").code == -9
    ran = project.run()
    assert ran.code == 0, ran.said
    assert "#12 is open" in ran.out
    assert project.landed() == []
    host.change(12, approved=True)
    ran = project.flyball("land", "t-1")
    assert ran.code == 0, ran.said
    assert project.wrongs(["t-1"]) == []
