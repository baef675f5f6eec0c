"""A command's output in files: it never waits for us, and never dies of us.

    runs/<id>/stdout, stderr   what the command writes
             holder            the process it belongs to

The command writes into files of its own; its launcher reads them as they grow, passes everything on, and
looks at it on the way. A launcher that is killed leaves the command writing. The folder goes with the run;
what killed launchers left behind goes a day later, once its process is dead.

Where the command would write to a terminal it still does, through a relay (``terminal_relay.py``) that puts
the same into the file: there the launcher only looks.

The price: a slow reader of our output does not slow the command down; its files grow instead.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING

from flyball.core.pool.holder import Holder
from flyball.errors import AgentError
from flyball.governor.launch.gated_child import GatedChild
from flyball.governor.launch.supervisor import STDERR, STDOUT
from flyball.host.growing_file import PIECE_BYTES, GrowingFile
from flyball.host.process import DeathWatch, alive, identify

if TYPE_CHECKING:
    from flyball.governor.launch.terminal_relay import TerminalRelay

LEFTOVER_S = 86400.0
_SHORTEST_S, _LONGEST_S = 0.002, 0.05
"""Between two looks: short while output comes, longer while it is silent, never long enough to be noticed."""
OUT, ERR = 1, 2
"""The command's own descriptors, which are ours where they are not read."""
_NAMES = {OUT: STDOUT, ERR: STDERR}


class OutputFolder:
    """The files of one run. ``redirect`` is for the command's own descriptors."""

    def __init__(self, home: Path, descriptors: Sequence[int]) -> None:
        runs = home / "runs"
        runs.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = runs / f"{os.getpid()}-{os.urandom(4).hex()}"
        self.path.mkdir(mode=0o700)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND
        self._files = {number: os.open(self.path / _NAMES[number], flags, 0o600) for number in descriptors}
        self.mixed = OUT in self._files and same_place()
        """Both outputs are one."""
        self._relays: dict[int, TerminalRelay] = {}
        try:
            for number in filter(os.isatty, descriptors):
                self._relays[number] = _relay(number, self._files[number])
        except OSError:
            self.remove()
            raise

    @property
    def redirect(self) -> Mapping[int, int]:
        ends = {number: relay.end for number, relay in self._relays.items()}
        files = {**self._files, **ends}
        return {**files, ERR: files[OUT]} if self.mixed else files

    def belongs_to(self, holder: Holder) -> None:
        """It has its redirected descriptors. Record it, for the sweep."""
        for relay in self._relays.values():
            relay.let_go()
        with contextlib.suppress(OSError):
            (self.path / "holder").write_text(json.dumps(asdict(holder)), encoding="utf-8")

    def tails(self, looks: Mapping[int, Callable[[bytes], None]]) -> list[FileTail]:
        return [
            FileTail(file, number, looks[number], self.path / _NAMES[number], self._relays.get(number))
            for number, file in self._files.items()
        ]

    def restore_terminal(self) -> None:
        """After a command that was killed and could not do it itself."""
        for relay in self._relays.values():
            relay.restore_modes()

    def remove(self) -> None:
        for relay in self._relays.values():
            relay.close()
        self._relays = {}
        for file in self._files.values():
            os.close(file)
        self._files = {}
        _remove(self.path)


class FileTail:
    """One growing file, shown to ``look`` and passed on to a descriptor of ours unless a relay does that."""

    def __init__(
        self,
        file: int,
        sink: int,
        look: Callable[[bytes], None],
        path: Path,
        relay: TerminalRelay | None = None,
    ) -> None:
        self._file, self._sink, self._look, self._path = GrowingFile(file), sink, look, path
        self._relay = relay
        self.broken = False
        """What we pass on is not read any more."""

    def pump(self) -> int:
        """Pass on what has come, up to a piece; how much it was."""
        piece = self._file.read()
        if not piece:
            return 0
        if self._relay is None and not self.broken:
            try:
                write_all(self._sink, piece)
            except (BrokenPipeError, ConnectionResetError):
                self.broken = True
            except OSError as error:
                words = f"cannot pass on the command's output ({error.strerror})"
                raise AgentError(f"{words}; it runs on and writes to {self._path}") from error
        self._look(piece)
        return len(piece)

    def drain(self) -> None:
        """Pass on all that is there now; what the command's own children still write is not waited for."""
        if self._relay is not None:
            self._relay.drain()
        end = self._file.size()
        while self._file.at < end and self.pump():
            pass


def follow(child: GatedChild, tails: Sequence[FileTail]) -> int:
    """Pass on the output of a command that is ``followed`` until it has ended; its wait status."""
    watch = _death_watch(child.pid)
    told, pause_s = False, _SHORTEST_S
    with contextlib.closing(watch):
        while True:
            status = child.poll()
            moved = max(tail.pump() for tail in tails)
            if any(tail.broken for tail in tails) and not told:
                # As if it had written into the broken pipe itself.
                told = True
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.pid, signal.SIGPIPE)
            if status is not None:
                for tail in tails:
                    tail.drain()
                return status
            if moved < PIECE_BYTES:
                pause_s = _SHORTEST_S if moved else min(pause_s * 2, _LONGEST_S)
                select.select(watch.fds, [], [], pause_s)


def _death_watch(pid: int) -> DeathWatch:
    with contextlib.suppress(Exception):
        return DeathWatch([identify(pid)])
    return DeathWatch([])


def sweep(home: Path) -> None:
    """Remove what killed launchers left, a day old, if its process is dead."""
    with contextlib.suppress(OSError):
        for folder in (home / "runs").iterdir():
            with contextlib.suppress(OSError):
                if time.time() - folder.stat().st_mtime > LEFTOVER_S and _is_dead(folder):
                    _remove(folder)


def _is_dead(folder: Path) -> bool:
    try:
        holder = Holder(**json.loads((folder / "holder").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return True  # never got as far as a command
    return alive(holder) is False


def _remove(folder: Path) -> None:
    """A folder of files. ``shutil`` would load compressors to remove it."""
    with contextlib.suppress(OSError):
        for file in folder.iterdir():
            file.unlink(missing_ok=True)
        folder.rmdir()


def readable_descriptors(*, headless: bool) -> list[int]:
    """Which of stdout and stderr can be read on their way: those that are open.

    None at all where a command that is not headless has a terminal: a program asks its stdout whether it
    talks to a person.
    """
    if not _is_open(OUT) or (os.isatty(OUT) and not headless):
        return []
    return [OUT, ERR] if _is_open(ERR) and not same_place() else [OUT]


def same_place() -> bool:
    """``2>&1``: what goes to both must stay in order, so it goes to one file."""
    try:
        out, err = os.fstat(OUT), os.fstat(ERR)
    except OSError:
        return False
    return (out.st_dev, out.st_ino) == (err.st_dev, err.st_ino) and not _is_null(OUT)


def _is_null(number: int) -> bool:
    try:
        return os.fstat(number).st_rdev == os.stat(os.devnull).st_rdev and not S_ISREG(
            os.fstat(number).st_mode
        )
    except OSError:
        return False


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _relay(terminal: int, file: int) -> TerminalRelay:
    import termios

    from flyball.governor.launch.terminal_relay import TerminalRelay

    try:
        return TerminalRelay(terminal, file)
    except termios.error as error:
        raise OSError(*error.args) from error


def write_all(sink: int, piece: bytes) -> None:
    """Also where what else uses the sink has made it answer at once."""
    view = memoryview(piece)
    while view:
        try:
            view = view[os.write(sink, view) :]
        except BlockingIOError:
            select.select([], [sink], [], 1.0)
