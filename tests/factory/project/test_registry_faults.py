"""The registry of projects: nothing is lost, whatever is killed, damaged or in the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flyball.errors import GitError, StoreError
from flyball.factory.project.registry import ProjectRegistry
from tests.factory.powerless import run_powerless
from tests.factory.registry_kit import audit, commits, git, ids, is_clean

pytestmark = pytest.mark.faults


@pytest.fixture
def registry(tmp_path: Path) -> ProjectRegistry:
    return ProjectRegistry(tmp_path / "home")


# -- git is missing or damaged --------------------------------------------------------------------


def test_without_git_the_change_is_made_said_and_committed_later(
    registry: ProjectRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without:
        without.setenv("PATH", str(tmp_path))
        with pytest.raises(GitError, match=r"done and written to .* git was not found"):
            registry.add("blog", Path("/blog"))
    assert ids(registry) == ["blog"]
    registry.add("shop", Path("/shop"))
    assert commits(registry) == ['add shop "/shop"', "recover blog"]
    assert is_clean(registry)


@pytest.mark.parametrize("damage", ["HEAD", "index", "config", "objects"])
def test_a_damaged_repository_costs_no_change_and_is_said_with_the_way_out(
    registry: ProjectRegistry, damage: str
) -> None:
    registry.add("blog", Path("/blog"))
    target = registry.folder / ".git" / damage
    if damage == "objects":
        target.rename(target.with_name("objects-gone"))
        target.write_bytes(b"")
    else:
        target.write_bytes(b"garbage [[[\n")
    with pytest.raises(GitError, match=r"done and written to .* put .*\.git aside"):
        registry.add("shop", Path("/shop"))
    assert ids(registry) == ["blog", "shop"]
    # The way out that it names.
    (registry.folder / ".git").rename(registry.folder.parent / "aside")
    registry.add("third", Path("/third"))
    assert is_clean(registry)
    assert commits(registry) == ['add third "/third"', "recover blog, shop"]


def test_a_damaged_repository_never_leads_to_a_commit_in_a_repository_around_it(tmp_path: Path) -> None:
    around = tmp_path / "dotfiles"
    around.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=around, check=True)
    registry = ProjectRegistry(around / "home")
    registry.add("blog", Path("/blog"))
    (registry.folder / ".git" / "HEAD").write_bytes(b"garbage")
    with pytest.raises(GitError):
        registry.add("shop", Path("/shop"))
    with pytest.raises(GitError):
        registry.undo()
    assert subprocess.run(["git", "log"], cwd=around, capture_output=True).returncode != 0


def test_undo_with_a_damaged_repository_changes_nothing(registry: ProjectRegistry) -> None:
    registry.add("blog", Path("/blog"))
    (registry.folder / ".git" / "HEAD").write_bytes(b"garbage")
    with pytest.raises(GitError, match="aside"):
        registry.undo()
    assert ids(registry) == ["blog"]


def test_a_lock_left_by_a_killed_git_does_not_stop_the_next_change(registry: ProjectRegistry) -> None:
    registry.add("blog", Path("/blog"))
    for name in ("index.lock", "HEAD.lock"):
        lock = registry.folder / ".git" / name
        lock.touch()
        os.utime(lock, (time.time() - 3600, time.time() - 3600))
    registry.add("shop", Path("/shop"))
    assert is_clean(registry)


def test_a_git_that_is_at_work_in_the_registry_costs_no_change(registry: ProjectRegistry) -> None:
    registry.add("blog", Path("/blog"))
    lock = registry.folder / ".git" / "index.lock"
    lock.touch()
    with pytest.raises(GitError, match=r"done and written to .*index\.lock': File exists"):
        registry.add("shop", Path("/shop"))
    lock.unlink()
    registry.add("third", Path("/third"))
    assert commits(registry)[:2] == ['add third "/third"', "recover shop"]


def test_what_the_user_told_git_does_not_reach_the_registry(
    registry: ProjectRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "pre-commit").write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    (hooks / "pre-commit").chmod(0o755)
    (tmp_path / "ignore").write_text("*.json\n*.jsonl\n", encoding="utf-8")
    core = f"[core]\nhooksPath={hooks}\nexcludesFile={tmp_path / 'ignore'}\nautocrlf=true\n"
    (tmp_path / "gitconfig").write_text(f"{core}[commit]\ngpgSign=true\n", encoding="utf-8")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "elsewhere-index"))
    registry.add("blog", Path("/blog"))
    registry.remove("blog")
    registry.undo()
    monkeypatch.delenv("GIT_DIR")
    monkeypatch.delenv("GIT_INDEX_FILE")
    assert git(registry, "ls-files").split() == ["audit.jsonl", "projects/blog.json"]
    assert git(registry, "log", "-1", "--format=%an <%ae>").strip() == "flyball <flyball@localhost>"


# -- a home that cannot be written ----------------------------------------------------------------


def test_a_home_that_is_a_file_is_said_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "home").touch()
    registry = ProjectRegistry(tmp_path / "home")
    for use in (registry.list, registry.undo, lambda: registry.add("blog", Path("/blog"))):
        with pytest.raises(StoreError, match="set FLYBALL_HOME"):
            use()


def test_a_read_only_home_can_be_read_and_says_why_it_cannot_be_changed(registry: ProjectRegistry) -> None:
    registry.add("blog", Path("/blog"))
    places = [registry.home, *(place for place in registry.home.rglob("*"))]
    for place in places:
        place.chmod(0o500 if place.is_dir() else 0o400)
    try:
        said = run_powerless(f"""
from pathlib import Path
from flyball.errors import FlyballError
from flyball.factory.project.registry import ProjectRegistry
registry = ProjectRegistry(Path({str(registry.home)!r}))
print(registry.get("blog").path, registry.add("blog", Path("/blog")))
for change in (lambda: registry.add("shop", Path("/s")), lambda: registry.remove("blog"), registry.undo):
    try:
        change()
    except FlyballError as error:
        print(type(error).__name__, "FLYBALL_HOME" in str(error))
""")
    finally:
        for place in places:
            place.chmod(0o700)
    assert said.splitlines() == ["/blog False", *["StoreReadOnlyError True"] * 3]


def test_looking_makes_nothing(registry: ProjectRegistry) -> None:
    assert registry.list().entries == ()
    assert not registry.home.exists()


# -- killed in between ----------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
from flyball.factory.project import registry, registry_history

def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

at = sys.argv[2]
if at == "write":
    os.replace = die
elif at == "audit":
    registry_history.RegistryHistory.audit = die
elif at == "add":
    registry_history.RegistryHistory.commit = die
else:
    run = registry_history.RegistryHistory._run
    def stop(self, *args):
        if args[0] == "commit":
            die()
        return run(self, *args)
    registry_history.RegistryHistory._run = stop
registry.ProjectRegistry(Path(sys.argv[1])).add("shop", Path("/shop"))
"""


@pytest.mark.parametrize("at", ["write", "audit", "add", "commit"])
def test_a_change_killed_anywhere_is_whole_or_absent_and_the_next_one_repairs(
    registry: ProjectRegistry, at: str
) -> None:
    registry.add("blog", Path("/blog"))
    killed = subprocess.run([sys.executable, "-c", KILLED, str(registry.home), at], capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    written = [] if at == "write" else ["shop"]
    assert ids(registry) == ["blog", *written]
    assert registry.list().broken == ()

    registry.add("third", Path("/third"))
    recovered = ["recover shop"] if written else []
    assert commits(registry) == ['add third "/third"', *recovered, 'add blog "/blog"']
    assert is_clean(registry)
    assert not list(registry.folder.rglob("*.tmp"))


def test_undo_after_a_kill_takes_back_what_was_left(registry: ProjectRegistry) -> None:
    registry.add("blog", Path("/blog"))
    subprocess.run([sys.executable, "-c", KILLED, str(registry.home), "commit"], capture_output=True)
    assert registry.undo() == "recover shop"
    assert ids(registry) == ["blog"]


# -- many at once ---------------------------------------------------------------------------------

ADDS = """
import sys
from pathlib import Path
from flyball.factory.project.registry import ProjectRegistry
sys.stdin.readline()
registry = ProjectRegistry(Path(sys.argv[1]))
for number in range(4):
    registry.add(f"{sys.argv[2]}-{number}", Path(f"/{sys.argv[2]}/{number}"))
"""


def start(code: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *words], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_processes_that_add_at_once_lose_nothing(registry: ProjectRegistry) -> None:
    workers = [start(ADDS, str(registry.home), name) for name in "abcd"]
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    for worker in workers:
        _, err = worker.communicate(timeout=60)
        assert worker.returncode == 0, err
    assert ids(registry) == [f"{name}-{number}" for name in "abcd" for number in range(4)]
    assert len(commits(registry)) == len(audit(registry)) == 16
    assert is_clean(registry)


SAME = """
import sys
from pathlib import Path
from flyball.errors import UsageError
from flyball.factory.project.registry import ProjectRegistry
sys.stdin.readline()
try:
    print(ProjectRegistry(Path(sys.argv[1])).add("blog", Path(sys.argv[2])), file=sys.stderr)
except UsageError:
    print("refused", file=sys.stderr)
"""


def test_of_two_that_want_the_same_id_at_once_one_gets_it(registry: ProjectRegistry) -> None:
    workers = [start(SAME, str(registry.home), path) for path in ("/one", "/two")]
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    said = sorted(worker.communicate(timeout=60)[1].strip() for worker in workers)
    assert said == ["True", "refused"]
    assert len(commits(registry)) == 1
