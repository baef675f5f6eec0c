"""Processes of the factory on its event loop: started under a keeper, watched without polling.

A ``ProcessWatch`` belongs to one running loop. It turns deaths (pidfds) and growing files (notices) into
events. Where the system has neither, it looks four times a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from flyball.core.pool.holder import Holder
from flyball.governor.launch.supervised_child import SupervisedChild, exit_code
from flyball.host.file_watch import FileWatcher
from flyball.host.process import DeathWatch, alive

_LOOK_EVERY_S = 0.25


class ProcessWatch:
    """Events of the world for the running loop. Close it with the loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._notices = FileWatcher()
        self._grown: dict[str, Callable[[], None]] = {}
        if self._notices.fd is not None:
            self._loop.add_reader(self._notices.fd, self._read_notices)

    def _read_notices(self) -> None:
        for path in self._notices.read():
            told = self._grown.get(path)
            if told is not None:
                told()

    def tell(self, path: Path, told: Callable[[], None]) -> bool:
        """Call ``told`` when the file grows or the folder changes; False where that cannot be told."""
        self._grown[str(path)] = told
        return self._notices.watch(path)

    def forget(self, path: Path) -> None:
        self._grown.pop(str(path), None)
        self._notices.unwatch(path)

    async def death_of(self, holder: Holder) -> None:
        """Until the process is gone."""
        while alive(holder):
            watch = DeathWatch([holder])
            gone = asyncio.Event()
            for fd in watch.fds:
                self._loop.add_reader(fd, gone.set)
            try:
                partial = _LOOK_EVERY_S if watch.partial or not watch.fds else None
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(gone.wait(), partial)
            finally:
                for fd in watch.fds:
                    self._loop.remove_reader(fd)
                watch.close()

    def close(self) -> None:
        if self._notices.fd is not None:
            self._loop.remove_reader(self._notices.fd)
        self._notices.close()


class Process:
    """A command that runs under a keeper, ours or found again."""

    def __init__(
        self, folder: Path, holder: Holder, keeper: Holder, kept: SupervisedChild | None = None
    ) -> None:
        self.folder, self.holder, self.keeper = folder, holder, keeper
        self._kept = kept

    @staticmethod
    def start(
        argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, folder: Path, stdin: Path | None = None
    ) -> Process:
        """Start it behind its gate. Blocks for as long as the keeper takes to come up."""
        kept = SupervisedChild(argv, env=env, cwd=cwd, folder=folder, stdin=stdin)
        return Process(folder, kept.holder, kept.keeper, kept)

    def open_gate(self) -> None:
        if self._kept is not None:
            self._kept.open_gate()

    def cancel(self) -> None:
        if self._kept is not None:
            self._kept.cancel()

    async def over(self, watch: ProcessWatch) -> int | None:
        """Wait until it and what it left behind are gone; its exit code, None if it is not known."""
        await watch.death_of(self.keeper)
        if self._kept is not None:
            self._kept.reap()
        if exit_code(self.folder) is None:
            # The supervisor was killed: its command may still run.
            await watch.death_of(self.holder)
        return exit_code(self.folder)

    def signal(self, number: int) -> None:
        """To the command and everything in its process group."""
        if alive(self.holder):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.holder.pid, number)

    async def stop(self, watch: ProcessWatch, *, grace_s: float) -> None:
        """Ask it to end; end it."""
        self.signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(watch.death_of(self.holder), grace_s)
        except TimeoutError:
            self.signal(signal.SIGKILL)
