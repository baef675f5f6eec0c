"""What the doctor can find about the hooks in the agents' settings, and about what became of them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from flyball.cli.doctor.pool_checks import DoctorFinding, Severity
from flyball.cli.ui.units import command
from flyball.core.pool.verdict import span_words
from flyball.errors import FlyballError
from flyball.hooks.installation import Installed, read_installed
from flyball.hooks.port import HookRuntime
from flyball.hooks.registry import NAMES, load_hooks

LATELY_S = 24 * 3600.0
_ANSWER_S = 10.0


def check_hooks(env: Mapping[str, str], home: Path) -> Iterator[DoctorFinding]:
    for name in NAMES:
        runtime = load_hooks(name)
        try:
            installed = read_installed(runtime, env)
        except FlyballError:
            # Settings that cannot be read are the agent's own trouble, until hooks are to go into them.
            continue
        if installed is not None:
            yield from _check_installed(runtime, installed, env)
    yield from _check_log(home / "hooks" / "log")


def _check_installed(
    runtime: HookRuntime, installed: Installed, env: Mapping[str, str]
) -> Iterator[DoctorFinding]:
    again = command("hooks", "install", runtime.name)
    for python in installed.python:
        if python in installed.lost or not _has_hooks(python):
            what = "which is gone" if python in installed.lost else "which has no flyball with hooks"
            yield DoctorFinding(
                kind=f"hooks of {runtime.name} are lost",
                words=f"the hooks in {installed.path} call {python}, {what}",
                meaning=f"sessions of {runtime.name} that you start yourself are not counted",
                remedy=f"{again}, or {command('hooks', 'remove', runtime.name)}",
            )
    for python in installed.foreign:
        if _has_hooks(python):
            yield DoctorFinding(
                kind=f"hooks of {runtime.name} are another's",
                words=f"the hooks in {installed.path} call the flyball of {python}, not this one",
                meaning="its version decides what is counted, and how",
                remedy=f"{again} makes them this flyball's",
                severity=Severity.NOTE,
            )
    missing = [entry.event for entry in runtime.entries if entry.event not in installed.events]
    if missing:
        yield DoctorFinding(
            kind=f"hooks of {runtime.name} are incomplete",
            words=f"{installed.path} has no hook of flyball's for {', '.join(missing)}",
            meaning="some sessions or subagents are not counted, or not given back",
            remedy=again,
        )
    if runtime.name == "claude" and (hint := runtime.hint(env)):
        yield DoctorFinding(
            kind=f"hooks of {runtime.name} are off",
            words=hint,
            meaning=f"sessions of {runtime.name} that you start yourself are not counted",
            remedy=f"change {installed.path}",
        )


def _has_hooks(python: str) -> bool:
    try:
        done = subprocess.run(
            [python, "-P", "-c", "import flyball.hooks"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ANSWER_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _check_log(path: Path) -> Iterator[DoctorFinding]:
    """Hooks let the agent go on when they fail, so this is the one place where it shows."""
    try:
        ago_s = time.time() - path.stat().st_mtime
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return
    if lines and ago_s < LATELY_S:
        yield DoctorFinding(
            kind="hooks failed",
            words=f"a hook failed {span_words(max(0.0, ago_s))} ago: {lines[-1]}",
            meaning="the agent went on, and what it told was not counted",
            remedy=f"see {path}; remove it when the cause is mended",
            severity=Severity.NOTE,
        )
