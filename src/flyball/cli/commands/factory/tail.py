"""``flyball tail TASK``: what a task's agent prints, as it prints it.

The output of a run is a file, of any size and made of anything. It is passed on piece by piece, so memory
stays small; whatever could steer a terminal is made visible. Only the output goes to stdout.
"""

from __future__ import annotations

import argparse
import os
import select
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from flyball.cli.ui.progress import StreamCopy, safe_text
from flyball.cli.ui.render import allow_any_name, print_json, safe
from flyball.cli.ui.units import command, count_or_all, size_words
from flyball.core.tasks.task_run import State
from flyball.errors import UsageError
from flyball.factory.landing.gate import LOG
from flyball.factory.project_view import Project, find_task, is_agent_alive, last_run, open_project_at
from flyball.factory.run.session import running
from flyball.factory.state.run_folders import last_folder
from flyball.governor.launch.supervised_child import exit_code
from flyball.governor.launch.supervisor import STDERR, STDOUT
from flyball.host.file_watch import FileWatcher
from flyball.host.growing_file import PIECE_BYTES, GrowingFile
from flyball.host.process import alive

SUMMARY = """Show the end of what a task's agent prints, or printed in its last run; with --follow go on until
it ends. Whatever could steer a terminal is made visible."""
EXAMPLE = """flyball tail t-1 -f
flyball tail t-1 --gate
flyball tail t-1 --lines all | less"""

LINES = 20
GATE = "gate"
_LOOK_BACK_BYTES = 1 << 20
_LOOK_BACK_PER_LINE_BYTES = 4096
"""Lines longer than that, on average, begin in the middle: one of a gigabyte is nothing to wait for."""
_LINE_LIMIT = 1 << 20
"""Longer ones come as several lines of JSON."""
_LOOK_EVERY_S = 0.5
"""Where the system does not report that a file has grown, and to see an agent that died silently."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK", help="the task")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the agent ends")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--stderr", action="store_true", help="its errors instead of its output")
    what.add_argument("--gate", action="store_true", help="the output of its last gate command instead")
    parser.add_argument(
        "--lines",
        type=count_or_all,
        default=LINES,
        metavar="N",
        help=f"the last N lines ({LINES}), or all",
    )
    parser.add_argument("--json", action="store_true", help="lines as JSON; with --follow, one object each")


def run(args: argparse.Namespace) -> int:
    printed = find_output(args.task, stderr=args.stderr, gate=args.gate)
    with open(printed.path, "rb") as file:
        cut = seek_lines(file, args.lines)
        if args.json:
            _as_json(printed, file, follow=args.follow)
        else:
            _as_text(printed, file, follow=args.follow, cut=cut)
    return 0


# -- what to show ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Printed:
    """A file that a command writes, and whether it still does."""

    task: str
    stream: str
    path: Path
    """Its folder is where the exit status will be."""
    alive: Callable[[], bool]

    @property
    def exit(self) -> int | None:
        return exit_code(self.path.parent)


def find_output(task_id: str, *, stderr: bool = False, gate: bool = False) -> Printed:
    project = open_project_at(Path.cwd())
    find_task(project, task_id)
    if gate:
        return _last_gate(project, task_id)
    folder = last_folder(project.state, task_id)
    if folder is None:
        raise UsageError(f"no agent has run for {task_id} yet; {command('task', 'why', task_id)} says why")
    name = STDERR if stderr else STDOUT
    if not (folder / name).exists():
        raise UsageError(f"the agent of {task_id} is just being started; try again")
    return Printed(task_id, name, folder / name, lambda: _agent_runs(project, task_id, folder))


def _agent_runs(project: Project, task_id: str, folder: Path) -> bool:
    record = last_run(project.state, task_id)
    if (
        record is not None
        and record.checks.agent.holder is not None
        and record.checks.agent.folder == str(folder)
    ):
        return alive(record.checks.agent.holder) is not False
    if record is None or record.agent.process.folder != str(folder):
        return False
    starting = record.state is State.READY and record.cause is None and running(project.root) is not None
    return starting or is_agent_alive(record)


def _last_gate(project: Project, task_id: str) -> Printed:
    logs = [log for log in (project.state / "runs" / task_id).glob(f"*/gate-*/{LOG}") if log.is_file()]
    if not logs:
        raise UsageError(f"no gate has run for {task_id} yet; {command('task', 'why', task_id)} says why")
    newest = max(logs, key=lambda log: log.stat().st_mtime_ns)

    def is_running() -> bool:
        record = last_run(project.state, task_id)
        if (
            record is None
            or record.landing.gate.holder is None
            or record.landing.gate.folder != str(newest.parent)
        ):
            return False
        return alive(record.landing.gate.holder) is not False

    return Printed(task_id, GATE, newest, is_running)


# -- reading --------------------------------------------------------------------------------------------


def seek_lines(file: BinaryIO, lines: int | None) -> int:
    """Go to where the last lines begin; how many bytes were too many to look for that place in."""
    if lines is None:
        return 0
    end = file.seek(0, os.SEEK_END)
    furthest = max(0, end - _LOOK_BACK_BYTES - lines * _LOOK_BACK_PER_LINE_BYTES)
    found = end if lines == 0 else _beginning(file, lines, end, furthest)
    file.seek(furthest if found is None else found)
    return furthest if found is None else 0


def _beginning(file: BinaryIO, lines: int, end: int, furthest: int) -> int | None:
    """Where the last lines begin, looking backwards; None if that is further away than we look."""
    left, at = lines, end
    while at > furthest:
        size = min(PIECE_BYTES, at - furthest)
        at -= size
        file.seek(at)
        piece = file.read(size)
        # The end of the last line does not begin another.
        stop = size - (at + size == end and piece.endswith(b"\n"))
        while (found := piece.rfind(b"\n", 0, stop)) >= 0:
            left -= 1
            if left == 0:
                return at + found + 1
            stop = found
    return None


def pieces(printed: Printed, copy: StreamCopy, *, follow: bool) -> Iterator[str]:
    """What is printed, until there is no more to come."""
    with _GrowthWatcher(printed.path) as growth:
        quiet = True
        # Asked before reading: what comes between the last read and the end is not lost.
        while follow and printed.exit is None and (not quiet or printed.alive()):
            yield from copy.new()
            quiet = not growth.wait()
        yield from copy.rest()


class _GrowthWatcher:
    """Wakes when the file has grown or its command has ended."""

    def __init__(self, path: Path) -> None:
        self._notices = FileWatcher()
        self._notices.watch(path)
        self._notices.watch(path.parent)

    def wait(self) -> bool:
        """True if there is news; False if it has been quiet for a while."""
        fds = [self._notices.fd] if self._notices.fd is not None else []
        ready, _, _ = select.select(fds, [], [], _LOOK_EVERY_S)
        self._notices.read()
        return bool(ready)

    def __enter__(self) -> _GrowthWatcher:
        return self

    def __exit__(self, *_: object) -> None:
        self._notices.close()


# -- showing --------------------------------------------------------------------------------------------


def _as_text(printed: Printed, file: BinaryIO, *, follow: bool, cut: int) -> None:
    allow_any_name(sys.stdout)
    if cut:
        _remark(f"lines this long are not all read: {size_words(cut)} before this are left out; --lines all")
    copy = _copy(file)
    for text in pieces(printed, copy, follow=follow):
        sys.stdout.write(safe_text(text))
        sys.stdout.flush()
    if copy.last not in ("", "\n"):
        sys.stdout.write("\n")
    for words in _ending(printed, nothing=os.fstat(file.fileno()).st_size == 0, follow=follow):
        _remark(words)


def _copy(file: BinaryIO) -> StreamCopy:
    return StreamCopy(GrowingFile(file.fileno(), at=file.tell()))


def _remark(words: str) -> None:
    """Beside the output, never in it."""
    sys.stdout.flush()
    print(f"flyball: {safe(words)}", file=sys.stderr)


def _ending(printed: Printed, *, nothing: bool, follow: bool) -> Iterator[str]:
    if nothing:
        yield f"nothing is in {printed.path}{_elsewhere(printed)}"
    if follow:
        whose = "the gate" if printed.stream == GATE else "the agent"
        code = printed.exit
        how = "is gone; how it ended is not known"
        if code is not None:
            how = f"ended with status {code}" if code >= 0 else f"was ended by signal {-code}"
        yield f"{whose} of {printed.task} {how}; flyball board shows what comes next"


def _elsewhere(printed: Printed) -> str:
    other, flag = (STDERR, " --stderr") if printed.stream == STDOUT else (STDOUT, "")
    there = printed.path.parent / other
    if printed.stream == GATE or not there.exists() or there.stat().st_size == 0:
        return ""
    return f"; flyball tail {printed.task}{flag} shows {size_words(there.stat().st_size)}"


def _as_json(printed: Printed, file: BinaryIO, *, follow: bool) -> None:
    record = {"task": printed.task, "stream": printed.stream, "path": str(printed.path)}
    lines = _whole_lines(pieces(printed, _copy(file), follow=follow))
    if not follow:
        ended = {"over": printed.exit is not None or not printed.alive(), "exit": printed.exit}
        print_json({**record, **ended, "lines": list(lines)})
        return
    import msgspec

    for line in lines:
        print(msgspec.json.encode({"line": line}).decode(), flush=True)
    ended = {"over": True, "exit": printed.exit}
    print(msgspec.json.encode({**record, **ended}).decode(), flush=True)


def _whole_lines(texts: Iterator[str]) -> Iterator[str]:
    begun = ""
    for text in texts:
        *whole, begun = (begun + text).split("\n")
        yield from whole
        if len(begun) > _LINE_LIMIT:
            yield begun
            begun = ""
    if begun:
        yield begun
