"""The guards where they lie, what they are made of, and what an agent of a real run meets."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from flyball.errors import UsageError
from flyball.factory.guards import sandbox
from flyball.factory.guards.install import Guards
from flyball.factory.project.config import GuardPart
from tests.factory.guard_site import BRANCH, Site
from tests.factory.kit import Project
from tests.waiting import until

BWRAP = not sandbox.sandbox_problem()
needs_bwrap = pytest.mark.skipif(not BWRAP, reason=f"NO SANDBOX TESTED: {sandbox.sandbox_problem()}")


# -- where they lie -----------------------------------------------------------------------------------------


def test_guards_are_put_there_whole_and_are_right_then(tmp_path: Path) -> None:
    guards = Guards(tmp_path)
    assert guards.wrong_files()
    assert guards.install() == []
    assert guards.wrong_files() == []
    assert (guards.bin / "git").stat().st_mode & 0o777 == 0o700


def test_a_changed_a_missing_and_a_foreign_file_are_put_right_and_named(tmp_path: Path) -> None:
    guards = Guards(tmp_path)
    guards.install()
    (guards.bin / "git").write_text("#!/bin/sh\nexec /usr/bin/git $*\n")
    (guards.hooks / "pre-push").unlink()
    (guards.folder / "lib" / "json.py").write_text("evil = 1\n")
    (guards.bin / "gh").chmod(0o600)
    assert guards.install() == ["bin/gh", "bin/git", "hooks/pre-push", "lib/json.py"]
    assert guards.wrong_files() == []
    assert not (guards.folder / "lib" / "json.py").exists()


def test_the_guards_of_another_flyball_are_replaced_without_a_word(tmp_path: Path) -> None:
    guards = Guards(tmp_path)
    guards.install()
    (guards.folder / "stamp").write_text("of another one\n")
    (guards.bin / "git").write_text("#!/bin/sh\n")
    assert guards.install() == []
    assert guards.wrong_files() == []


def test_a_link_in_the_place_of_a_guard_is_replaced_and_what_it_led_to_is_not(tmp_path: Path) -> None:
    guards = Guards(tmp_path / "home")
    guards.install()
    elsewhere = tmp_path / "mine"
    elsewhere.write_text("mine\n")
    (guards.bin / "git").unlink()
    (guards.bin / "git").symlink_to(elsewhere)
    assert guards.install() == ["bin/git"]
    assert elsewhere.read_text() == "mine\n"


def test_the_guard_imports_nothing_but_its_own_and_the_standard_library(tmp_path: Path) -> None:
    guards = Guards(tmp_path)
    guards.install()
    done = subprocess.run(
        ["sh", "-c", f"{guards.command} shim git --version"],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": "/nowhere"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    # It was read whole; without a policy it says no.
    assert (done.returncode, "nothing says which agent this is" in done.stderr) == (2, True)
    assert not list(guards.folder.rglob("*.pyc"))


def test_wards_of_workspaces_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    site = Site(tmp_path)
    wards = site.fence.guards.policies
    assert len(list(wards.iterdir())) == 1
    other = site.workspaces.ensure("t-2").path
    site.workspaces.remove("t-1")
    site.fence.guard(["true"], site.env, tree=other, branch="agent/t-2", folder=site.folder)
    assert [json.loads(path.read_text())["branch"] for path in wards.iterdir()] == ["agent/t-2"]


# -- claude's settings --------------------------------------------------------------------------------------


def test_claude_is_told_to_ask_by_settings_outside_the_worktree(tmp_path: Path) -> None:
    site = Site(tmp_path)
    argv = site.launch("claude", "-p").argv
    assert list(argv) == ["claude", "-p", "--settings", str(site.home / "guards" / "claude.json")]


def test_settings_that_the_project_names_are_kept_beside_ours(tmp_path: Path) -> None:
    site = Site(tmp_path)
    own = {"model": "x", "disableAllHooks": True, "hooks": {"PreToolUse": [{"matcher": "Read", "hooks": []}]}}
    argv = site.launch("claude", "--settings", json.dumps(own), "-p").argv
    merged = json.loads(Path(argv[-1]).read_text())
    assert list(argv[:-2]) == ["claude", "-p"]
    assert (merged["model"], merged["disableAllHooks"]) == ("x", False)
    assert [each["matcher"] for each in merged["hooks"]["PreToolUse"]][1:] == ["Read"]
    with pytest.raises(UsageError, match=r"agent\.args"):
        site.launch("claude", "--settings=/nowhere.json")


def test_hooks_that_the_project_keeps_elsewhere_are_found_in_the_worktree(tmp_path: Path) -> None:
    site = Site(tmp_path)
    assert site.around.env["FLYBALL_GUARD_HOOKS"] == str(site.root / ".git" / "hooks")
    site.git("config", "core.hooksPath", ".husky")
    assert site.launch("true").env["FLYBALL_GUARD_HOOKS"] == str(site.tree / ".husky")


def test_a_project_may_do_without_them(tmp_path: Path) -> None:
    site = Site(tmp_path, GuardPart(hooks=False))
    assert site.launch("claude", "-p").argv == ("claude", "-p")
    assert site.around.env == site.env
    assert not (site.home / "guards").exists()


# -- the sandbox --------------------------------------------------------------------------------------------


def test_without_bubblewrap_the_sandbox_is_refused_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    sandbox.sandbox_problem.cache_clear()
    try:
        with pytest.raises(
            UsageError, match=r"bwrap was not found; install bubblewrap .* guard.sandbox = \"none\""
        ):
            sandbox.check_sandbox("bwrap")
    finally:
        monkeypatch.undo()
        sandbox.sandbox_problem.cache_clear()


def inside(site: Site, line: str) -> subprocess.CompletedProcess[str]:
    """A line of shell in the sandbox, without the fence in the way."""
    around = site.launch("sh", "-c", line)
    return subprocess.run(
        around.argv,
        cwd=site.tree,
        env={**around.env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def walled(tmp_path: Path) -> Site:
    """In a temporary folder that agents may write to: what lies in it must be kept all the same."""
    return Site(tmp_path, GuardPart(sandbox="bwrap", hooks=False))


@needs_bwrap
def test_the_sandbox_is_a_wall_and_not_a_fence(walled: Site) -> None:
    before = walled.standing()
    tries = [
        f"echo x > {walled.root}/page.txt",
        f"echo x > {walled.root}/.git/config",
        f"rm {walled.home}/worktrees/blog/other",
        f"echo x > {walled.home}/governor.db",
        f"echo x > {Path.home()}/flyball-was-here",
        "echo x > /etc/flyball-was-here",
        "echo 'gitdir: /nowhere' > .git",
        f"/usr/bin/git -C {walled.root} update-ref refs/heads/main HEAD~1",
        f"/usr/bin/git -C {walled.root} update-ref refs/remotes/origin/main HEAD",
        f"/usr/bin/git -C {walled.root} tag v2",
        f"/usr/bin/git -C {walled.root} worktree add {walled.tree}/sub",
        "/usr/bin/git config user.name Other",
        f"/usr/bin/git -C {walled.root} branch mine",
        f"echo x > {walled.root}/.git/objects/x",
        "mv .git aside",
        "echo '[core]' > .git/config",
        f"mkdir -p {walled.root}/.git/hooks && echo x > {walled.root}/.git/hooks/pre-commit",
        f"kill {os.getpid()}",
        f"echo x > /proc/{os.getpid()}/root{walled.root}/page.txt",
    ]
    lines = [f"({line}) 2>/dev/null && echo 'went through: {line}'" for line in tries]
    done = inside(walled, "\n".join([*lines, "echo all tried"]))
    assert done.stdout == "all tried\n", done.stderr
    assert walled.standing() == before
    assert (walled.root / "page.txt").read_text() == "one\n"


@needs_bwrap
def test_an_agent_in_the_sandbox_can_do_its_work(walled: Site) -> None:
    lines = [
        "set -e",
        "echo two > page.txt",
        "git add --all",
        "git commit --quiet --message two",
        "git rebase --quiet main",
        "git stash list",
        'echo x > "${TMPDIR:-/tmp}/scratch" && rm "${TMPDIR:-/tmp}/scratch"',
        "echo x > /dev/null",
        "git log -1 --format=%s",
    ]
    done = inside(walled, "\n".join(lines))
    assert (done.returncode, done.stdout) == (0, "two\n"), done.stderr
    walled.workspaces.gather("t-1", "Do it", base=walled.git("rev-parse", "main"), commit=True)
    assert walled.git("log", "-1", "--format=%s", BRANCH) == "two"


@needs_bwrap
def test_folders_that_the_project_names_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    cache = tmp_path / "cache"
    cache.mkdir()
    site = Site(tmp_path / "site" / "s", GuardPart(sandbox="bwrap", writable=[str(cache)]))
    assert inside(site, f"echo x > {cache}/made").returncode == 0
    assert (cache / "made").exists()


@needs_bwrap
def test_a_program_that_is_not_there_is_said_before_anything_is_started(walled: Site) -> None:
    with pytest.raises(Exception, match="cannot run no-such-agent"):
        walled.launch("no-such-agent")


@needs_bwrap
def test_an_agent_in_the_sandbox_hears_that_it_should_end_and_nothing_of_it_is_left(project: Project) -> None:
    project.configure(guard={"sandbox": "bwrap", "writable": [str(project.folder)]}, agent={"grace_s": 20})
    project.task(
        "t-1",
        act="import signal\n"
        "def ended(*_):\n"
        "    commit('pages/t-1.txt', 'tidied up\\n')\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, ended)\n"
        "subprocess.Popen(['setsid', 'sleep', '600'])\n"
        "(folder / 'up').touch()\n"
        "time.sleep(600)",
    )
    process = project.start("run")
    project.wait("up")
    project.flyball("stop")
    process.communicate(timeout=60)
    assert project.git("show", "agent/t-1:pages/t-1.txt") == "tidied up"
    until(lambda: not project.processes(), "everything of it to be gone")


@needs_bwrap
def test_an_agent_in_the_sandbox_ends_with_its_keeper(project: Project) -> None:
    project.configure(guard={"sandbox": "bwrap", "writable": [str(project.folder)]}, run={"attempts": 1})
    project.task("t-1", act="(folder / 'up').write_text(str(os.getppid()))\ntime.sleep(600)")
    process = project.start("run")
    project.wait("up")
    keepers = [
        pid for pid in project.processes() if b"supervisor.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    for pid in keepers:
        os.kill(pid, 9)
    process.communicate(timeout=60)
    until(lambda: not project.processes(), "everything of it to be gone")


# -- in a run -----------------------------------------------------------------------------------------------


def test_what_an_agent_does_around_flyball_fails_and_its_honest_work_lands(project: Project) -> None:
    origin = project.with_origin()
    project.task(
        "t-1",
        act="commit('pages/t-1.txt', 'good\\n')\n"
        "for words in (['git', 'push', 'origin', 'HEAD:main'],\n"
        "    ['/usr/bin/git', 'push', 'origin', 'HEAD:main'],\n"
        "    ['git', 'update-ref', 'refs/heads/main', 'HEAD'], ['flyball', 'merge', 't-1'],\n"
        "    [sys.executable, '-m', 'flyball', 'merge', 't-1']):\n"
        "    assert subprocess.run(words, capture_output=True).returncode != 0, words\n",
    )
    main = project.git("rev-parse", "main", cwd=origin)
    assert project.run().code == 0
    assert project.git("rev-parse", "main", cwd=origin) == main
    assert project.wrongs(["t-1"]) == []


def test_guards_that_were_changed_are_put_right_before_an_agent_starts_and_that_is_said(
    project: Project,
) -> None:
    project.task("t-1")
    assert project.run().code == 0
    shim = project.home / "guards" / "bin" / "git"
    shim.write_text("#!/bin/sh\n")
    project.task("t-2")
    ran = project.run()
    assert "guards had been changed and were put right: bin/git" in ran.said
    assert project.wrongs(["t-1", "t-2"]) == []


def test_a_run_that_needs_bubblewrap_and_has_none_touches_nothing(project: Project, tmp_path: Path) -> None:
    only = tmp_path / "bin"
    only.mkdir()
    for name in ("git", "sh"):
        (only / name).symlink_to(str(shutil.which(name)))
    project.env["PATH"] = str(only)
    project.configure(guard={"sandbox": "bwrap"})
    project.task("t-1")
    ran = project.run()
    assert ran.code == 2
    assert "bwrap was not found" in ran.said
    assert not (project.root / ".flyball").exists()
    assert not project.home.exists()


@needs_bwrap
def test_what_the_fence_cannot_do_the_sandbox_does(tmp_path: Path) -> None:
    """As docs/explanation/what-guards-cannot-do.md says it."""
    line = "env -i /usr/bin/git -C {} update-ref refs/heads/passed HEAD"
    fence = Site(tmp_path / "fence")
    assert fence.fenced(line.format(fence.root)).returncode == 0
    assert fence.git("branch", "--list", "passed")
    wall = Site(tmp_path / "wall", GuardPart(sandbox="bwrap"))
    assert inside(wall, line.format(wall.root)).returncode != 0
    assert not wall.git("branch", "--list", "passed")


def test_head_may_leave_the_branch_and_still_moves_no_other(tmp_path: Path) -> None:
    site = Site(tmp_path)
    before = site.standing()
    done = site.fenced(
        "/usr/bin/git checkout --quiet other && /usr/bin/git commit --quiet --allow-empty -m x"
    )
    assert done.returncode != 0
    assert site.standing() == before
