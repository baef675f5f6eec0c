"""Landing: its commits, by hand, and beside what other people have there."""

from __future__ import annotations

import pytest

from tests.factory.kit import GREEN, Project

# -- commits ----------------------------------------------------------------------------------------------


def test_the_task_closes_in_the_commit_that_brings_its_work(project: Project) -> None:
    project.task("t-1")
    assert project.run().code == 0
    changed = project.git("show", "--format=", "--name-only", "main").splitlines()
    assert changed == ["pages/t-1.txt", "tasks/t-1.md"]
    project.git("revert", "--no-edit", "main")
    assert project.status_of("t-1") == "open"


def test_a_reverted_task_can_be_done_again(project: Project) -> None:
    project.task("t-1")
    assert project.run().code == 0
    project.git("revert", "--no-edit", "main")
    ran = project.run()
    assert ran.code == 0, ran.said
    assert project.landed() == ["t-1", "t-1"]
    assert project.status_of("t-1") == "closed"


def test_a_footprint_decides_who_runs_beside_whom_and_not_what_lands(project: Project) -> None:
    project.task("t-1", act="write('lib/more', 'x')\nwrite('pages/t-1.txt', 'x')", write="pages/t-1*")
    assert project.run().code == 0
    assert "pages/t-1*" not in project.prompts("t-1")[0]
    assert "lib/more" in project.files()
    assert project.wrongs(["t-1"]) == []


def test_hooks_of_the_repository_do_not_decide_what_lands(project: Project) -> None:
    for name in ("pre-commit", "commit-msg", "pre-rebase", "post-checkout", "reference-transaction"):
        hook = project.root / ".git" / "hooks" / name
        hook.write_text("#!/bin/sh\nexit 1\n")
        hook.chmod(0o755)
    project.sections["agent"]["command"].insert(0, "env")
    project.configure()
    (project.root / "tasks").mkdir()
    project.write("tasks/t-1.md", "---\nid: t-1\ntitle: Add page t-1\nstatus: open\n---\n")
    ran = project.run()
    assert ran.code == 0, ran.said
    assert project.landed() == ["t-1"]


SETTINGS = {
    "no untracked files shown": "[status]\nshowUntrackedFiles = no\n",
    "autosquash and refs": "[rebase]\nautoSquash = true\nupdateRefs = true\nautoStash = true\n",
    "merges kept": "[pull]\nrebase = merges\n[merge]\nff = false\n",
    "odd prefixes": "[diff]\nnoprefix = true\nmnemonicPrefix = true\n[core]\nquotePath = true\n",
    "line ends": "[core]\nautocrlf = input\n",
}


@pytest.mark.parametrize(
    "text", ["".join(SETTINGS.values()), "[user]\nname =\nemail =\n"], ids=["odd", "no name"]
)
def test_a_users_settings_of_git_do_not_stop_a_landing(project: Project, text: str) -> None:
    names = project.tasks(2)
    with open(project.place / "user" / ".gitconfig", "a") as file:
        file.write(text)
    ran = project.run()
    assert ran.code == 0, ran.said
    assert project.wrongs(names) == []


def test_unlanded_untracked_files_are_seen_whatever_git_is_told_to_show(project: Project) -> None:
    """A worktree with something of value in it is never removed."""
    with open(project.place / "user" / ".gitconfig", "a") as file:
        file.write("[status]\nshowUntrackedFiles = no\n")
    script = f"echo precious > {project.workspace('t-1')}/precious"
    project.configure(gate={"commands": [script]})
    project.task("t-1")
    ran = project.run()
    assert ran.code == 0, ran.said
    assert (project.workspace("t-1") / "precious").exists()
    assert f"{project.workspace('t-1')} has uncommitted work" in ran.out


def test_a_signature_that_cannot_be_made_is_said(project: Project) -> None:
    """Signing was asked for: nothing lands without."""
    with open(project.place / "user" / ".gitconfig", "a") as file:
        file.write("[commit]\ngpgSign = true\n[gpg]\nprogram = false\n")
    project.configure()
    project.write("tasks/t-1.md", "---\nid: t-1\ntitle: Add page t-1\nstatus: open\n---\n")
    ran = project.run()
    assert ran.code == 1
    assert "failed to sign" in ran.out
    assert project.landed() == []


# -- protected paths --------------------------------------------------------------------------------------


def test_a_folder_named_without_a_slash_is_protected_with_all_beneath_it(project: Project) -> None:
    project.configure(merge={"protected": ["secrets"]})
    project.task("t-1", act="write('secrets/deep/key', 'mine')")
    ran = project.run()
    assert ran.code == 1
    assert "it changes secrets/deep/key (protected: secrets)" in ran.out
    assert project.landed() == []


def test_a_link_in_the_place_of_a_folder_above_a_protected_file_is_refused(project: Project) -> None:
    """The file itself is not in git, so no path that changes is protected by its name."""
    project.configure(merge={"protected": ["conf/secret.toml"]})
    project.write("conf/readme.md", "x")
    project.write(".git/info/exclude", "secret.toml")
    project.write("conf/secret.toml", "key")
    project.task(
        "t-1",
        act="os.unlink('conf/readme.md')\nos.rmdir('conf')\nos.symlink('lib', 'conf')\n"
        "write('lib/secret.toml', 'mine')",
    )
    ran = project.run()
    assert ran.code == 1
    assert "it changes conf (protected: conf/secret.toml)" in ran.out
    assert project.landed() == []
    assert (project.root / "conf" / "secret.toml").read_text() == "key"


# -- files that git does not bring along ------------------------------------------------------------------


def test_copied_files_reach_agents_and_gates_and_never_land(project: Project) -> None:
    project.write(".env", "TOKEN=1")
    project.write("conf/local.ini", "x=1")
    project.write("cache/deep/one", "1")
    project.configure(
        worktree={"copy": [".env", "conf/local.ini", "cache"]},
        gate={"commands": ["test -f .env && test -f conf/local.ini && test -f cache/deep/one", GREEN]},
    )
    project.git("add", "flyball.toml")
    project.git("commit", "-qm", "copies")
    project.write("tasks/t-1.md", "---\nid: t-1\ntitle: Add page t-1\nstatus: open\n---\n")
    project.act(
        "t-1", "assert Path('.env').exists() and Path('conf/local.ini').exists()\nwrite('pages/t-1.txt', 'x')"
    )
    ran = project.run()
    assert ran.code == 0, ran.said
    assert not {".env", "conf/local.ini", "cache/deep/one"} & set(project.files())
    assert project.workspaces() == []
    assert project.branches() == []


def test_a_bootstrap_that_fails_blocks_with_its_words(project: Project) -> None:
    project.configure(worktree={"bootstrap": ["echo no network here >&2; exit 3"]})
    project.task("t-1")
    ran = project.run()
    assert ran.code == 1
    assert "no network here" in ran.out
    assert project.began() == []
    assert project.leases() == []


@pytest.mark.parametrize("point", ["after:worktree.begun", "after:rebase.begun"])
def test_a_bootstrap_cut_short_is_done_again(project: Project, point: str) -> None:
    """A run that was killed in the middle of it left a worktree that is there and not ready."""
    mark = project.place / "cut"
    bootstrap = (
        f"test -e {mark} || {{ touch {mark}; kill -9 $(cat {project.place}/pid); sleep 1; }}; touch ready"
    )
    project.configure(worktree={"bootstrap": [bootstrap]}, gate={"commands": ["test -e ready", GREEN]})
    project.write(".gitignore", "ready\n")
    project.task("t-1", act="assert Path('ready').exists()\nwrite('pages/t-1.txt', 'x')")
    if point.endswith("rebase.begun"):
        mark.touch()
        project.act("t-1", f"os.unlink({str(mark)!r})\nwrite('pages/t-1.txt', 'x')")
    process = project.start("run")
    (project.place / "pid").write_text(str(process.pid))
    process.communicate(timeout=60)
    assert process.returncode == -9
    ran = project.run()
    assert ran.code == 0, ran.said
    assert project.wrongs(["t-1"]) == []


# -- other people's files ---------------------------------------------------------------------------------


def test_a_foreign_folder_in_the_place_of_a_worktree_is_refused_and_kept(project: Project) -> None:
    project.task("t-1")
    foreign = project.workspace("t-1")
    foreign.mkdir(parents=True)
    (foreign / "precious").write_text("x")
    ran = project.run()
    assert ran.code == 1
    assert str(foreign) in ran.out
    assert (foreign / "precious").read_text() == "x"


def test_a_branch_of_that_name_made_by_a_person_is_gone_on_with_not_reset(project: Project) -> None:
    project.task("t-1")
    project.git("checkout", "-q", "-b", "agent/t-1")
    project.write("pages/by-hand.txt", "mine")
    project.commit("by hand")
    project.git("checkout", "-q", "main")
    ran = project.run()
    assert ran.code == 0, ran.said
    assert {"pages/by-hand.txt", "pages/t-1.txt"} <= set(project.files())


# -- by hand ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("again", ["merge", "run"])
@pytest.mark.parametrize(
    "point", ["after:land.begun", "after:gate.begun", "after:advance.done", "before:clean.done"]
)
def test_a_landing_by_hand_that_was_cut_short_is_finished_once(
    project: Project, point: str, again: str
) -> None:
    project.configure(merge={"policy": "manual"})
    project.task("t-1")
    assert project.run().code == 0
    assert project.flyball("merge", "t-1", die_at=point).code == -9
    ran = project.flyball(again, *(["t-1"] if again == "merge" else []))
    assert ran.code == 0, ran.said
    assert project.wrongs(["t-1"]) == []
    assert len(project.began()) == 1


def test_a_branch_that_a_person_looks_at_is_not_deleted_under_them(project: Project) -> None:
    project.configure(merge={"policy": "manual"})
    project.task("t-1")
    assert project.run().code == 0
    project.git("checkout", "-q", "agent/t-1")
    ran = project.flyball("merge", "t-1")
    assert ran.code == 0, ran.said
    assert project.landed() == ["t-1"]
    assert project.git("status", "--porcelain") == ""
    assert project.git("symbolic-ref", "--short", "HEAD") == "agent/t-1"
    assert project.git("rev-parse", "HEAD")
