"""``flyball demo --factory``: a small project from ready tasks to merged commits, in a few seconds.

A real repository in a temporary folder, real workspaces, real processes, and an agent that does literally
what its task says (``sim/demo/scripted_agent.py``). One task's first try is red and it is sent back by the
gate, another's by its review; one touches a protected path and is refused; two want the same file and take
turns. Nothing of the user's own is read or written.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from flyball.cli.ui.render import BLANK, Block, Line, Piece, Style, print_json, show
from flyball.cli.ui.run_progress import report_screen, watcher_for
from flyball.core.tasks.task_run import Step
from flyball.factory.git.git import Git
from flyball.factory.project.config_reader import load_config
from flyball.factory.project_view import task_history
from flyball.factory.run.options import RunOptions, RunReport, RunRequest
from flyball.factory.run.session import run_project
from flyball.factory.state.run_folders import STATE

_CONFIG = """\
[project]
id = "demo"
[agent]
runtime = "command"
command = [{python!r}, "-m", "flyball", "demo", "--agent"]
[run]
width = 4
[gate]
commands = [{gate!r}]
[review]
on = true
[merge]
protected = ["secrets/"]
"""
_GATE = '''\
"""Green while every number is one."""
import pathlib
import sys

bad = [p.name for p in pathlib.Path("numbers").glob("*") if not p.read_text().strip().isdigit()]
print(f"not a number: {', '.join(bad)}" if bad else "all numbers are numbers")
sys.exit(bool(bad))
'''
_TASKS = (
    ("hello", "Add the hello page", "pages/hello.md", "> sleep 1.2\n> write pages/hello.md Hello"),
    (
        "about",
        "Add the about page",
        "pages/about.md",
        "> sleep 0.8\n> on 1: write pages/about.md About\n> on 2: write pages/about.md About us\n"
        "> on 1: object pages/about.md It says nothing of us",
    ),
    (
        "answer",
        "Write the answer down",
        "numbers/answer",
        "> sleep 0.6\n> on 1: write numbers/answer forty-two\n> on 2: write numbers/answer 42",
    ),
    ("title", "Give the hello page a title", "pages/hello.md", "> sleep 0.4\n> write pages/hello.md # Hello"),
    ("token", "Put the token where it belongs", "secrets/token", "> sleep 0.5\n> write secrets/token 0000"),
)
INTRO = """Five tasks, four agents at once, each in a workspace of its own; a reviewer looks at every change;
a gate wants numbers to be numbers; `secrets/` is protected. The agents are scripted, everything else is
real."""


def run(*, as_json: bool) -> int:
    with tempfile.TemporaryDirectory(prefix="flyball-demo-", ignore_cleanup_errors=True) as folder:
        root = _project(Path(folder))
        with _home_of_its_own(Path(folder) / "home"), watcher_for(quiet=as_json) as watcher:
            if not as_json:
                show([Line(INTRO.replace("\n", " ")), BLANK])
                sys.stdout.flush()
            report, signalled = run_project(
                root, load_config(root), RunRequest(), RunOptions(), watcher=watcher
            )
        history = Git(root)("log", "--format=%h %s", "main").splitlines()
        backs = {
            name: str(entry.fields["cause"])
            for name, *_ in _TASKS
            for entry in reversed(task_history(root / STATE, name))
            if entry.step is Step.BACK
        }
    if as_json:
        record = {"merged": report.merged, "blocked": report.blocked, "sent_back": backs}
        print_json({**record, "history": history})
    else:
        show(_card(report, backs, history))
    return 0 if signalled is None else 128 + signalled


def _project(folder: Path) -> Path:
    root = folder / "demo"
    (root / "tasks").mkdir(parents=True)
    (root / "flyball.toml").write_text(
        _CONFIG.format(python=sys.executable, gate=f"{sys.executable} check.py")
    )
    (root / "check.py").write_text(_GATE)
    for number, (name, title, path, deeds) in enumerate(_TASKS):
        text = f"---\nid: {name}\ntitle: {title}\nstatus: open\npriority: {number // 3 + 1}\n"
        text += f'footprint: {{write: ["{path}"]}}\n---\n{deeds}\n'
        (root / "tasks" / f"{name}.md").write_text(text)
    who = {f"GIT_{role}_{key}": "demo" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "Start"]):
        subprocess.run(["git", *command], cwd=root, env={**os.environ, **who}, check=True)
    return root


@contextmanager
def _home_of_its_own(home: Path) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in ("FLYBALL_HOME", "FLYBALL_URL")}
    os.environ["FLYBALL_HOME"] = str(home)
    os.environ.pop("FLYBALL_URL", None)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _card(report: RunReport, backs: Mapping[str, str], history: list[str]) -> Iterator[Block]:
    yield BLANK
    yield from report_screen(report)
    for task, cause in backs.items():
        by = {"review": "its review", "gate": "the gate"}.get(cause, cause)
        then = "mended, and merged" if task in report.merged else "not mended"
        yield Line([Piece(task, Style.STRONG), f"  by {by}; {then}"], label="sent back", indent=2)
    yield BLANK
    yield Line(Piece("main, newest first", Style.QUIET))
    for line in history:
        yield Line(line, indent=2)
    yield BLANK
    yield Line("flyball init --write   in your own repository, then flyball run", label="next")
