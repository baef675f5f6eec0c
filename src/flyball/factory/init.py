"""What ``flyball init`` would write, decided before anything is written.

A project that has some of it already is adopted: what is there stays as it is, what is missing is added.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from flyball.core.project_id import check_project_id, id_from
from flyball.errors import UsageError
from flyball.factory.config import FILE_NAME, TasksPart
from flyball.factory.config_reading import load_config
from flyball.factory.git import Git
from flyball.factory.init_guess import OnPath, guess_bootstrap, guess_gate, guess_runtime
from flyball.factory.init_texts import TASKS_README, config_text
from flyball.host.wholefile import create_file

_FALLBACK_ID = "project"


@dataclass(frozen=True, slots=True)
class PlannedFile:
    path: str
    """In the project."""
    content: str


@dataclass(frozen=True, slots=True)
class InitPlan:
    root: Path
    files: tuple[PlannedFile, ...]
    """To be written."""
    kept: tuple[str, ...]
    """There already; left alone."""
    notes: tuple[str, ...]
    """What a person should know before the first run."""


def plan_init(
    folder: Path, *, project_id: str | None = None, runtime: str | None = None, on_path: OnPath = shutil.which
) -> InitPlan:
    """Look at a repository and say what would be written. Changes nothing."""
    root = _root(folder)
    notes = list(_git_notes(root))
    if os.path.lexists(root / FILE_NAME):
        files = _files_beside(root, notes)
        if project_id is not None or runtime is not None:
            notes.append(f"{FILE_NAME} stays as it is; change the id and the runtime in it")
    else:
        chosen = runtime or guess_runtime(on_path)
        if chosen != "command" and not on_path(chosen):
            notes.append(f"{chosen} was not found on PATH; install it, or name another agent.runtime")
        named = check_project_id(project_id) if project_id is not None else id_from(root.name) or _FALLBACK_ID
        gate, bootstrap = guess_gate(root, on_path), guess_bootstrap(root)
        text = config_text(named, runtime=chosen, gate=gate, bootstrap=bootstrap)
        files = [PlannedFile(FILE_NAME, text), _readme(root, TasksPart())]
    return _without_what_is_there(root, files, notes)


def write_init(plan: InitPlan) -> list[str]:
    """Write what was planned; the paths written. What somebody else wrote in the meantime stays."""
    written = []
    for planned in plan.files:
        path = plan.root / planned.path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            create_file(path, planned.content.encode())
            written.append(planned.path)
        except FileExistsError:
            continue
        except OSError as error:
            so_far = f"; written so far: {', '.join(written)}" if written else "; nothing was written"
            raise UsageError(f"cannot write {path}: {error.strerror}{so_far}") from error
    return written


# -- what is there --------------------------------------------------------------------------------


def _root(folder: Path) -> Path:
    """Where the project is or would be: the nearest flyball.toml in the repository, else its top."""
    here = folder.resolve()
    if not here.is_dir():
        raise UsageError(f"there is no folder {here}")
    asked = Git(here).run("rev-parse", "--show-toplevel")
    if not asked.ok or not asked.text:
        raise UsageError(_no_repository(here, asked.err))
    top = Path(asked.text)
    above = [place for place in (here, *here.parents) if place == top or top in place.parents]
    return next((place for place in above if os.path.lexists(place / FILE_NAME)), top)


def _no_repository(here: Path, said: str) -> str:
    if "dubious ownership" in said:
        way_out = said.strip().splitlines()[-1].strip()
        return f"git does not trust {here}, which belongs to another user: {way_out}"
    if "must be run in a work tree" in said:
        return f"{here} is not in a checkout; run flyball init in a worktree of the repository"
    return f"{here} is not in a git repository; run git init in the project's folder first"


def _git_notes(root: Path) -> Iterator[str]:
    if not Git(root).ok("rev-parse", "--verify", "--quiet", "HEAD^{commit}"):
        yield "there is no commit yet, and flyball run needs one: git add -A && git commit -m Start"


def _files_beside(root: Path, notes: list[str]) -> list[PlannedFile]:
    """The other files of a project that has its flyball.toml."""
    kept = PlannedFile(FILE_NAME, "")
    try:
        tasks = load_config(root).tasks
    except UsageError as error:
        notes.append(f"{FILE_NAME} stays as it is, but cannot be used yet: {error}")
        return [kept]
    return [kept, _readme(root, tasks)] if tasks.source == "files" else [kept]


def _readme(root: Path, tasks: TasksPart) -> PlannedFile:
    folder = root / tasks.folder
    if os.path.lexists(folder) and not folder.is_dir():
        raise UsageError(f"{folder} is not a folder; name another one in {FILE_NAME}: [tasks] folder = ...")
    return PlannedFile(f"{tasks.folder.rstrip('/')}/README.md", TASKS_README)


def _without_what_is_there(root: Path, files: Sequence[PlannedFile], notes: Sequence[str]) -> InitPlan:
    kept = [file.path for file in files if os.path.lexists(root / file.path)]
    return InitPlan(root, tuple(f for f in files if f.path not in kept), tuple(kept), tuple(notes))
