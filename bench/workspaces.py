"""What a workspace of an agent's own costs, beside a worktree of the user's repository as git makes one.

Made: a folder with all files of the base, in which git works. Taken over: one file was changed and one added;
both are committed, and the commit stands on the task's branch in the user's repository. Beside it are the git
commands that do the same in a linked worktree: ``worktree add``, ``add``, ``commit``. Between the two an
agent works for more than a second: git cannot tell by its time whether a file has changed that is as old as
its index.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.factory import _git as git
from bench.homes import scratch
from bench.report import Figure, Progress, Section, Target, beside
from flyball.factory.git.repository import Repository
from flyball.factory.git.workspace import Workspaces, open_to_all
from flyball.factory.guards.sandbox import SandboxedCommands, sandbox_problem

NAME = "workspaces"
_WORKS_S = 1.1
TITLE = "an agent's own repository, beside a linked worktree"


@dataclass(frozen=True, slots=True)
class Sizes:
    files: int = 50_000
    rounds: int = 5


FULL = Sizes()
QUICK = Sizes(files=500, rounds=2)


def run(sizes: Sizes, progress: Progress) -> Section:
    walls = {"none": False, **({} if sandbox_problem() else {"bwrap": True})}
    figures: list[Figure] = []
    with scratch() as home:
        root = _project(home / "project", sizes.files)
        for wall, sandboxed in walls.items():
            taken: dict[str, list[float]] = {}
            disk_kb: list[float] = []
            for number in range(sizes.rounds):
                progress(f"{NAME}: sandbox {wall}, round {number + 1} of {sizes.rounds}")
                _linked(root, home / "linked", partial(_timed, taken))
                disk_kb.append(_own(root, home, partial(_timed, taken), sandboxed=sandboxed))
            figures += [
                *(_figure(f"{what}, sandbox {wall}", taken, what) for what in ("made", "taken over", "both")),
                Figure(what=f"git's own files in it, sandbox {wall}", ours=max(disk_kb), unit="kB"),
            ]
    notes = (f"a repository of {sizes.files} files",)
    return Section(NAME, TITLE, tuple(figures), notes)


def _figure(title: str, taken: Mapping[str, list[float]], what: str) -> Figure:
    parts = ("made", "taken over") if what == "both" else (what,)

    def rounds(whose: str) -> list[float]:
        return [1000 * sum(each) for each in zip(*(taken[f"{whose} {part}"] for part in parts), strict=True)]

    target = Target("ratio", 1.3) if what == "both" else None
    ours, theirs = rounds("own"), rounds("linked")
    return beside(title, ours, theirs, unit="ms", name="a linked worktree", target=target)


def _timed(taken: dict[str, list[float]], what: str, step: Callable[[], object]) -> None:
    start = time.perf_counter()
    step()
    taken.setdefault(what, []).append(time.perf_counter() - start)


def _project(root: Path, files: int) -> Path:
    for number in range(files):
        folder = root / f"d{number % 500}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"f{number}.txt").write_text(f"line {number}\n" * 20)
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "Start"], ["gc", "-q"]):
        git(root, *words)
    return root


def _change(tree: Path) -> None:
    time.sleep(_WORKS_S)
    (tree / "d0/f0.txt").write_text("changed\n")
    (tree / "new.txt").write_text("new\n")


def _linked(root: Path, tree: Path, timed: Callable[[str, Callable[[], object]], None]) -> None:
    timed("linked made", lambda: git(root, "worktree", "add", "-q", "-b", "linked", str(tree), "main"))
    _change(tree)

    def take_over() -> None:
        git(tree, "add", "--all")
        git(tree, "commit", "-qm", "Do it")

    timed("linked taken over", take_over)
    git(root, "worktree", "remove", "--force", str(tree))
    git(root, "branch", "-qD", "linked")


def _own(
    root: Path, home: Path, timed: Callable[[str, Callable[[], object]], None], *, sandboxed: bool
) -> float:
    repository = Repository(root)
    wall = SandboxedCommands(objects=repository.common, home=home)
    workspaces = Workspaces(
        repository=repository, folder=home / "trees", enclose=wall.of_git if sandboxed else open_to_all
    )
    timed("own made", lambda: workspaces.ensure("t-1"))
    tree = workspaces.path("t-1")
    _change(tree)
    base = repository.base()
    timed("own taken over", lambda: workspaces.gather("t-1", "Do it", base=base, commit=True))
    size = sum(path.stat().st_blocks * 512 for path in (tree / ".git").rglob("*") if path.name != "index")
    workspaces.discard(tree)
    shutil.rmtree(root / ".flyball")
    git(root, "branch", "-qD", "agent/t-1")
    return size / 1000
