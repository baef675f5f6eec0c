"""What ``flyball init`` would write, decided before anything is written.

A project that has some of it already is adopted: what is there stays as it is, what is missing is added. How
the project is tested and what a fresh checkout needs first is guessed from the repository, for a person to
look at. Files that cannot be read say nothing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flyball.core.tasks.task import check_project_id, id_from
from flyball.errors import UsageError
from flyball.factory.git.git import Git
from flyball.factory.project.config import FILE_NAME, TasksPart
from flyball.factory.project.config_reader import load_config
from flyball.host.atomic_file import create_file

OnPath = Callable[[str], object]
"""Is there a program of this name? ``shutil.which`` answers."""

AGENTS = ("claude", "codex", "gemini", "opencode")
_LARGEST = 1 << 20
_TARGETS = re.compile(r"([\w. /-]+):(?!=)", re.ASCII)
_NPM_HAS_NONE = "no test specified"
_LOCKS = {
    "pnpm-lock.yaml": ("pnpm", "pnpm install --frozen-lockfile"),
    "yarn.lock": ("yarn", "yarn install"),
    "package-lock.json": ("npm", "npm ci"),
}


def guess_runtime(on_path: OnPath) -> str:
    """The first known agent that is installed; claude if none is."""
    return next((name for name in AGENTS if on_path(name)), AGENTS[0])


def guess_gate(root: Path, on_path: OnPath) -> list[str]:
    """The commands that test this repository. A Makefile speaks for the whole of it."""
    targets = _make_targets(root)
    for target in ("test", "check"):
        if target in targets:
            return [f"make {target}"]
    return list(_by_language(root, on_path))


def guess_bootstrap(root: Path) -> list[str]:
    """What must run in a new worktree before anything works there: git brings no installed packages."""
    return [install for file, (_, install) in _LOCKS.items() if (root / file).is_file()][:1]


def _by_language(root: Path, on_path: OnPath) -> Iterator[str]:
    if _has_npm_test(root):
        yield next(
            (f"{tool} test" for file, (tool, _) in _LOCKS.items() if (root / file).is_file()), "npm test"
        )
    if _has_pytest(root):
        yield f"{'python' if on_path('python') else 'python3'} -m pytest -q"
    if (root / "Cargo.toml").is_file():
        yield "cargo test"
    if (root / "go.mod").is_file():
        yield "go test ./..."


def _make_targets(root: Path) -> set[str]:
    # In the order in which make itself looks.
    texts = (_text(root / name) for name in ("GNUmakefile", "makefile", "Makefile"))
    found = (_TARGETS.match(line) for line in next(filter(None, texts), "").splitlines())
    return {target for match in found if match for target in match[1].split()}


def _has_npm_test(root: Path) -> bool:
    try:
        package: Any = json.loads(_text(root / "package.json") or "{}")
        script = package["scripts"]["test"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
    return isinstance(script, str) and bool(script.strip()) and _NPM_HAS_NONE not in script


def _has_pytest(root: Path) -> bool:
    named = any("pytest" in _text(root / name) for name in ("pyproject.toml", "setup.cfg", "tox.ini"))
    return named or any(
        (root / name).is_file() for name in ("pytest.ini", "conftest.py", "tests/conftest.py")
    )


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST).decode("utf-8", "replace")
    except OSError:
        return ""


_COMMENT_COLUMN = 30


def config_text(project_id: str, *, runtime: str, gate: Sequence[str], bootstrap: Sequence[str]) -> str:
    """A ``flyball.toml`` with the few keys that most projects change; every other has a default."""
    return f"""\
# How flyball works on this project. `flyball validate` checks this file and the tasks.

[project]
id = {_toml(project_id)}

[agent]
{_agent(runtime)}

[run]
{_line("width = 3", "tasks worked on at once, as far as the pool allows")}
{_worktree(bootstrap)}
[gate]
{_gate(gate)}

[merge]
{_line('policy = "auto"', '"manual": nothing lands before `flyball merge TASK`')}
{_line("protected = []", 'more paths that no agent may change, such as "secrets/"')}
"""


def _agent(runtime: str) -> str:
    others = "claude, codex, gemini, opencode, or command: any program of yours"
    line = _line(f"runtime = {_toml(runtime)}", others)
    if runtime != "command":
        return line
    return (
        line
        + "\n"
        + _line(
            'command = ["flyball", "demo", "--agent"]', "a stand-in that obeys literally; name your program"
        )
    )


def _worktree(bootstrap: Sequence[str]) -> str:
    if not bootstrap:
        return ""
    return f"""
[worktree]
# A workspace has only what git tracks; these commands make a new one ready.
bootstrap = {_toml_list(bootstrap)}
"""


def _gate(commands: Sequence[str]) -> str:
    if commands:
        return f"# What must succeed before work lands.\ncommands = {_toml_list(commands)}"
    return """\
# What must succeed before work lands, such as ["make test"].
# Nothing was found that tests this project. An empty list means: work lands unchecked.
commands = []"""


def _line(setting: str, comment: str) -> str:
    return f"{setting:<{_COMMENT_COLUMN - 2}}  # {comment}"


def _toml(value: str) -> str:
    """Text as TOML writes it: JSON's way, but for one character that JSON does not escape."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_list(values: Sequence[str]) -> str:
    return f"[{', '.join(map(_toml, values))}]"


TASKS_README = """\
# Tasks

One Markdown file per task, here or in a folder below. This file is not a task.
`flyball task add "Add the hello page"` writes one; so does any editor:

```markdown
---
id: t-1
title: Add the hello page
status: open
priority: 1
needs: []
footprint: {write: ["pages/hello*"], read: ["lib/**"]}
---
What to do, in words. The agent reads this.
```

| key | meaning |
|---|---|
| `id` | its name, one of a kind; the branch is `agent/<id>` |
| `title` | one line |
| `status` | `open`, `in_progress`, `blocked`, `deferred` or `closed`; a task is closed with its landing |
| `type` | `task` if not given; an `epic`, `feature`, `decision` or `merge-request` is never started |
| `priority` | 0 is first; 2 if not given |
| `needs` | ids of tasks that must be closed first |
| `parent` | the id of the task it is a part of; a parent with open children is not started |
| `labels` | such as `no-dispatch` (never start it) or `area:api` (see `[areas]` in flyball.toml) |
| `footprint` | paths it writes and paths it only reads; two tasks that would clash never run at once |
| `acceptance` | how to tell that it is done |

A task without a footprint may touch anything, so it runs alone.
"""


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
    notes: list[str] = []
    if not Git(root).ok("rev-parse", "--verify", "--quiet", "HEAD^{commit}"):
        notes.append("there is no commit yet, and flyball run needs one: git add -A && git commit -m Start")
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
    kept = [file.path for file in files if os.path.lexists(root / file.path)]
    return InitPlan(root, tuple(file for file in files if file.path not in kept), tuple(kept), tuple(notes))


def write_init(plan: InitPlan) -> list[str]:
    """Write what was planned; the paths written. A file that appeared meanwhile stays."""
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
