"""The project's own green commands, run in the landing's worktree before anything lands.

Each runs in a shell of its own under a supervisor, with a time limit; what they print goes to ``gate.log`` as
it comes, and of what is endless the beginning and the end are kept. What they leave running is ended, what
they change in the tree is thrown away. Where the project uses direnv, they run in its environment. They run
what agents wrote: of the user's own environment they get no more than an agent does.

The log is kept short while a command writes it. The command's descriptors append, so cutting the file makes
it go on at the new end. What it prints between our last look at the end and the cut, one system call after
the other, is lost with what lies in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import posixpath
import shlex
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from flyball.core.pool.holder import Holder
from flyball.core.pool.verdict import span_words
from flyball.core.tasks.task import Task
from flyball.core.tasks.task_run import RunPhase, Step, TaskRecord
from flyball.factory.agents.process import Process, ProcessWatch
from flyball.factory.state.ledger import Ledger
from flyball.governor.launch.supervised_child import exit_code
from flyball.governor.launch.supervisor import STARTED, STDERR, STDOUT
from flyball.host.atomic_file import replace_file

LIMIT_BYTES = 8 << 20
HEAD_BYTES = 1 << 20
TAIL_BYTES = 2 << 20
_MOST_LOOKS = 1000
_LOOK_EVERY_S = 0.5


@contextlib.asynccontextmanager
async def trim_log(log: Path) -> AsyncIterator[None]:
    """Keep a log short while a command writes it."""
    looks = asyncio.create_task(_looking(log))
    try:
        yield
    finally:
        looks.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await looks
        _trim(log)


async def _looking(log: Path) -> None:
    while True:
        await asyncio.sleep(_LOOK_EVERY_S)
        _trim(log)


def _trim(log: Path) -> None:
    """A disk that is full, or a log that was removed, is not a reason to stop a gate."""
    with contextlib.suppress(OSError), open(log, "r+b", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        if size <= LIMIT_BYTES:
            return
        tail, end_at = _read_tail(file)
        left_out = end_at - HEAD_BYTES - len(tail)
        file.truncate(HEAD_BYTES)
        with open(log, "ab", buffering=0) as end:
            end.write(f"\n[flyball: {left_out >> 20} MB left out here]\n".encode() + tail)


def _read_tail(file: BinaryIO) -> tuple[bytes, int]:
    """The last of what is there and of what is added while we read, and where it ends: last words count.

    A command that has added more at each of these looks has no last words yet.
    """
    tail, at = b"", 0
    for _ in range(_MOST_LOOKS):
        size = file.seek(0, os.SEEK_END)
        if size <= at:
            break
        start = max(at, size - TAIL_BYTES)
        file.seek(start)
        part = file.read(size - start)
        tail = (tail + part)[-TAIL_BYTES:] if start == at else part
        at = start + len(part)
    return tail, at


LOG = "gate.log"
_SHOWN_BYTES = 6000
_SHOWN_LINES = 60
_GRACE_S = 5.0
_KEPT = 50
"""So many green commits are remembered."""
_UNRUNNABLE: Mapping[int | None, str] = {126: "it cannot be run", 127: "it was not found"}
"""What a shell exits with for a command that never began."""


@dataclass(frozen=True, slots=True)
class GateFailure:
    why: str
    detail: str
    command: str = ""
    log: str = ""
    unrunnable: bool = False
    """The shell could not find it, or could not run what it found."""


@dataclass(slots=True, kw_only=True)
class GateRunner:
    commands: Sequence[str]
    timeout_s: float
    env: Mapping[str, str]
    """All that the commands find in their environment."""
    ledger: Ledger
    watch: ProcessWatch
    green: Path
    """Where it is kept which commits were green."""

    async def run(
        self,
        tasks: Sequence[Task],
        tree: Path,
        folder: Path,
        *,
        commit: str,
        enclosure: Sequence[str] = (),
        began: Callable[[Process], None] = lambda _: None,
    ) -> GateFailure | None:
        """Run every command in order; the first that fails, or None if all are green. For all of the tasks
        whose work is in the tree, which stands at ``commit``; ``began`` is told of each command before it may
        do anything. ``enclosure``: what each begins with."""
        for number, command in enumerate(self.commands, 1):
            argv = [*enclosure, *_command_words(command, tree)]
            red = await self._one(tasks, command, argv, tree, folder / f"gate-{number}", began)
            if red is not None:
                return red
        for task in tasks:
            self.ledger.note(task.id, Step.GATE, RunPhase.DONE)
        seen = [each for each in self._seen_green() if each[0] != commit]
        with contextlib.suppress(OSError):
            replace_file(self.green, json.dumps([*seen, [commit, list(self.commands)]][-_KEPT:]).encode())
        return None

    def saw_green(self, commit: str) -> bool:
        """Have these very commands been green on this very commit?"""
        return [commit, list(self.commands)] in self._seen_green()

    def _seen_green(self) -> list[list[object]]:
        try:
            found = json.loads(self.green.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return []
        return [each for each in found if isinstance(each, list) and each] if isinstance(found, list) else []

    async def _one(
        self,
        tasks: Sequence[Task],
        command: str,
        argv: Sequence[str],
        tree: Path,
        folder: Path,
        began: Callable[[Process], None],
    ) -> GateFailure | None:
        folder = _new(folder)
        log = folder / LOG
        log.touch()
        # Both streams in one file, in the order in which they came.
        for name in (STDOUT, STDERR):
            (folder / name).symlink_to(LOG)
        env = {**self.env, "FLYBALL_RUN": str(folder)}
        process = await asyncio.to_thread(Process.start, argv, env=env, cwd=tree, folder=folder)
        told = {"command": command, "gate": process.holder, "folder_of_gate": str(folder)}
        for task in tasks:
            self.ledger.note(task.id, Step.GATE, RunPhase.BEGUN, **told)
        began(process)
        process.open_gate()
        try:
            async with trim_log(log):
                code = await asyncio.wait_for(process.over(self.watch), self.timeout_s)
        except TimeoutError:
            await self._end(process)
            limit = span_words(self.timeout_s)
            why = f"`{command}` took longer than {limit} (gate.timeout_s)"
            return GateFailure(why, _last_lines(log), command=command, log=str(log))
        except asyncio.CancelledError:
            await asyncio.shield(self._end(process))
            raise
        if code == 0:
            return None
        how = f"exited with {code}" if code is not None and code >= 0 else "was killed"
        how += f": {_UNRUNNABLE[code]}" if code in _UNRUNNABLE else ""
        why = f"`{command}` {how}; its output is in {log}"
        return GateFailure(
            why, _last_lines(log), command=command, log=str(log), unrunnable=code in _UNRUNNABLE
        )

    async def _end(self, process: Process) -> None:
        await process.stop(self.watch, grace_s=_GRACE_S)
        await process.over(self.watch)

    async def end_leftover(self, record: TaskRecord) -> None:
        """End a gate that outlived its engine: two would meet in one worktree."""
        if record.landing.gate.holder is not None:
            await self.end(record.landing.gate.holder, Path(record.landing.gate.folder))

    async def end(self, holder: Holder, folder: Path) -> None:
        """One that another engine started."""
        await Process(folder, holder, holder).stop(self.watch, grace_s=_GRACE_S)
        # Its supervisor ends what it left running, and writes its status last; it may have been killed too.
        end = time.monotonic() + _GRACE_S
        while (folder / STARTED).exists() and exit_code(folder) is None and time.monotonic() < end:
            await asyncio.sleep(0.02)


def _command_words(command: str, tree: Path) -> list[str]:
    words = ["sh", "-c", command]
    uses_direnv = (tree / ".envrc").exists() and shutil.which("direnv")
    return ["direnv", "exec", str(tree), *words] if uses_direnv else words


def named_in(command: str) -> set[str]:
    """The words of a command that may be paths in the tree.

    >>> sorted(named_in("cd ./web && ./check.sh --all 'lib/x'"))
    ['&&', 'cd', 'check.sh', 'lib/x', 'web']
    """
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    return {posixpath.normpath(word) for word in words if word and not word.startswith(("-", "/"))}


def named_files(commands: Iterable[str], root: Path) -> list[str]:
    """Files of the project that commands name, such as the script that is the gate."""
    found: set[str] = set()
    for command in commands:
        words = named_in(command)
        folders = [word for word in words if word != "." and (root / word).is_dir()]
        found |= words | {f"{folder}/{word}" for folder in folders for word in words}
    inside = (name for name in found if not name.startswith(".."))
    return sorted(name for name in inside if (root / name).is_file())


DRIVEN: Mapping[str, tuple[str, ...]] = {
    "make": ("Makefile", "GNUmakefile", "makefile"),
    "just": ("justfile", "Justfile"),
    **dict.fromkeys(("npm", "npx", "pnpm", "yarn", "bun"), ("package.json",)),
    "tox": ("tox.ini",),
    "nox": ("noxfile.py",),
    "pytest": ("conftest.py", "pytest.ini", "pyproject.toml"),
    "cargo": ("Cargo.toml", "build.rs"),
    "rake": ("Rakefile",),
    "mvn": ("pom.xml",),
    "gradle": ("build.gradle", "build.gradle.kts"),
}
"""Files that tell a program what to do, without being named."""


def implied_files(commands: Iterable[str], root: Path) -> list[str]:
    """Files of the project that decide what commands do, though none of them is named there."""
    words = {posixpath.basename(word) for command in commands for word in named_in(command)}
    files = {name for program in words for name in DRIVEN.get(program, ())}
    return sorted(name for name in files if (root / name).is_file())


def _new(folder: Path) -> Path:
    """A folder of its own for every time a gate runs: what is told of one must not be taken for another."""
    number, fresh = 1, folder
    while True:
        with contextlib.suppress(FileExistsError):
            fresh.mkdir(parents=True)
            return fresh
        number += 1
        fresh = folder.with_name(f"{folder.name}.{number}")


def _last_lines(log: Path) -> str:
    """The last lines, bounded, whatever they are made of."""
    try:
        with open(log, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _SHOWN_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-_SHOWN_LINES:])
