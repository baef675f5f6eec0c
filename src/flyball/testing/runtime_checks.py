"""The conformance suite any runtime must pass: its reader over recordings of real runs, and its launches.

    check_runtime(load("claude"), recordings)

``check_runtime`` runs every behaviour over every recording and names all that are broken; launches need no
recording. With pytest, parametrize over ``RUNTIME_CHECKS`` and the recordings, and over ``LAUNCH_CHECKS``,
instead. Chance comes from a seed: the same every time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from flyball.core.signals import End, Signal
from flyball.runtimes.port import Assignment, Ending, Runtime
from flyball.testing.store_checks.scenario import expect, expect_equal

WALL_S = 1_794_728_000.0
"""When the recordings were made, about; resets they name lie after it."""
_CUTS = 40
_HUGE = 3 << 20

_GARBAGE = (
    b"",
    b"\xff\xfe\x00\xc3",
    b"{",
    b"}",
    b"null",
    b"[]",
    b'{"type":',
    b'{"type":429}',
    b'{"type":"assistant"}',
    b'{"type":"nobody knows","error":{"code":429,"message":"rate limit exceeded"}}',
    b"HTTP/1.1 429 Too Many Requests: rate_limit_error, overloaded, insufficient_quota",
    b'  {"type":"error","message":"exceeded retry limit, last status: 429"}',
    b"[" * 5000,
)


@dataclass(frozen=True, slots=True)
class Recording:
    """One run as it was, and the endings that are right for it."""

    name: str
    stdout: bytes
    stderr: bytes
    exit_code: int | None
    right: frozenset[End]

    @property
    def streams(self) -> bool:
        """One JSON object per line; in text and in one large object every line leans on the others."""
        lines = self.stdout.splitlines()
        return bool(lines) and all(line.startswith(b'{"') for line in lines)


RuntimeCheck = Callable[[Runtime, Recording], None]
RUNTIME_CHECKS: list[RuntimeCheck] = []
LaunchCheck = Callable[[Runtime], None]
LAUNCH_CHECKS: list[LaunchCheck] = []


def check_runtime(runtime: Runtime, recordings: Iterable[Recording]) -> None:
    """Run every check over every recording. Raises one group with all that failed."""
    failed: list[Exception] = []
    for recording in recordings:
        for check in RUNTIME_CHECKS:
            try:
                check(runtime, recording)
            except Exception as error:
                failed.append(_with_note(error, check.__name__, f"{runtime.name}, {recording.name}"))
    for launches in LAUNCH_CHECKS:
        try:
            launches(runtime)
        except Exception as error:
            failed.append(_with_note(error, launches.__name__, runtime.name))
    if failed:
        raise ExceptionGroup(f"{len(failed)} behaviours of {runtime.name} are broken", failed)


def _with_note(error: Exception, check: str, where: str) -> Exception:
    error.add_note(f"broken: {check.replace('_', ' ')} ({where})")
    return error


def _runtime_check(check: RuntimeCheck) -> RuntimeCheck:
    RUNTIME_CHECKS.append(check)
    return check


def _launch_check(check: LaunchCheck) -> LaunchCheck:
    LAUNCH_CHECKS.append(check)
    return check


@_runtime_check
def the_ending_is_judged_right(runtime: Runtime, recording: Recording) -> None:
    ending, _ = read(runtime, recording)
    right = ", ".join(sorted(end.value for end in recording.right))
    expect(ending.end in recording.right, f"judged {ending.end.value} ({ending.reason}), right is {right}")
    expect(bool(ending.reason), "an ending has a reason")
    expect(ending.end is not End.LIMITED or ending.signal is not None, "a limited ending has its signal")


@_runtime_check
def where_the_pieces_are_cut_changes_nothing(runtime: Runtime, recording: Recording) -> None:
    whole = read(runtime, recording)
    chance = Random(recording.name)
    for cut in (_single_bytes, lambda data: _pieces(data, chance)):
        expect_equal(read(runtime, recording, cut=cut), whole, "what was read")


@_runtime_check
def an_episode_is_told_once_however_often_the_client_retries(runtime: Runtime, recording: Recording) -> None:
    if not recording.streams:
        return
    _, signals = read(runtime, recording)
    often = b"".join(line * 3 for line in recording.stdout.splitlines(keepends=True))
    _, repeated = read(runtime, recording, stdout=often)
    expect_equal(_kinds(repeated), _kinds(signals), "signals")


@_runtime_check
def a_limit_that_ended_a_run_is_told_live_or_with_the_ending(runtime: Runtime, recording: Recording) -> None:
    ending, signals = read(runtime, recording)
    if ending.signal is not None and ending.end is End.LIMITED:
        live = ending.signal.kind in {signal.kind for signal in signals}
        expect_equal(ending.told, live, "told while it ran")


@_runtime_check
def garbage_between_the_lines_changes_nothing(runtime: Runtime, recording: Recording) -> None:
    if not recording.streams:
        return
    chance = Random(recording.name)
    mixed = b""
    for line in recording.stdout.splitlines(keepends=True):
        mixed += chance.choice(_GARBAGE) + b"\n" + line
    expect_equal(_gist(read(runtime, recording, stdout=mixed)), _gist(read(runtime, recording)), "the gist")


@_runtime_check
def stderr_mixed_into_stdout_changes_no_ending(runtime: Runtime, recording: Recording) -> None:
    if not recording.streams:
        return
    chance = Random(recording.name)
    lines = recording.stdout.splitlines(keepends=True)
    for line in recording.stderr.splitlines():
        lines.insert(chance.randrange(1, len(lines) + 1), line + b"\n")
    ending, _ = read(runtime, recording, stdout=b"".join(lines))
    expect(ending.end in recording.right, f"judged {ending.end.value}")


@_runtime_check
def a_huge_line_is_passed_over(runtime: Runtime, recording: Recording) -> None:
    if not recording.streams:
        return
    first, *rest = recording.stdout.splitlines(keepends=True)
    huge = b'{"type":"user","message":"' + b"x" * _HUGE + b'"}\n'
    ending, _ = read(runtime, recording, stdout=b"".join([first, huge, *rest]))
    expect(ending.end in recording.right, f"judged {ending.end.value}")


@_runtime_check
def an_output_cut_anywhere_is_no_error(runtime: Runtime, recording: Recording) -> None:
    chance = Random(recording.name)
    for _ in range(_CUTS):
        at = chance.randrange(len(recording.stdout) + 1)
        for exit_code in (None, 0, 1, 137, -15, recording.exit_code):
            reader = runtime.reader()
            reader.feed(recording.stdout[:at], wall_s=WALL_S)
            ending = reader.finish(exit_code, wall_s=WALL_S)
            expect(bool(ending.reason), "an ending has a reason")
            expect_equal(ending.progress, reader.progress(), "progress")


@_runtime_check
def turns_are_counted_as_they_come_and_never_go_back(runtime: Runtime, recording: Recording) -> None:
    reader, taken = runtime.reader(), 0
    for line in recording.stdout.splitlines(keepends=True):
        reader.feed(line, wall_s=WALL_S)
        turns = reader.progress().turns or 0
        expect(taken <= turns <= taken + 1, f"one line took it from turn {taken} to {turns}")
        taken = turns


_PROGRAM = ("env", "A=1", "agent")
_ARGS = ("--of-the-project", "two words", "", "-x", "--", "--help")
_ODD = "--looks-like-an-option"


@_launch_check
def a_launch_calls_the_program_as_it_was_told_to(runtime: Runtime) -> None:
    argv = runtime.launch(Assignment(program=_PROGRAM, model="a-model")).argv
    expect_equal(argv[: len(_PROGRAM)], _PROGRAM, "the beginning of the command line")


@_launch_check
def a_launch_keeps_the_projects_options_together_and_in_order(runtime: Runtime) -> None:
    for session in (None, "a-session"):
        argv = runtime.launch(Assignment(program=_PROGRAM, args=_ARGS, session=session)).argv
        places = [argv[at : at + len(_ARGS)] for at in range(len(argv))]
        expect(_ARGS in places, f"the options are not in {argv}")


@_launch_check
def a_launch_takes_no_model_and_no_session_for_an_option(runtime: Runtime) -> None:
    for asked in (
        Assignment(program=_PROGRAM, model=_ODD),
        Assignment(program=_PROGRAM, session=_ODD),
    ):
        launch = runtime.launch(asked)
        options = launch.argv[: launch.argv.index("--")] if "--" in launch.argv else launch.argv
        expect(_ODD not in options, f"{_ODD} would be read as an option in {launch.argv}")


@_launch_check
def a_launch_passes_the_model_on(runtime: Runtime) -> None:
    launch = runtime.launch(Assignment(program=_PROGRAM, model="a-model"))
    said = [*launch.argv, *launch.env.values()]
    expect(any("a-model" in word for word in said), f"the model is not in {launch}")


def read(
    runtime: Runtime,
    recording: Recording,
    *,
    stdout: bytes | None = None,
    cut: Callable[[bytes], Iterator[bytes]] = lambda data: iter([data]),
) -> tuple[Ending, list[Signal]]:
    """Feed a recording to a fresh reader; how it ended and what it told before."""
    reader, signals = runtime.reader(), []
    for piece in cut(recording.stdout if stdout is None else stdout):
        signals += reader.feed(piece, wall_s=WALL_S)
    for piece in cut(recording.stderr):
        signals += reader.feed_stderr(piece, wall_s=WALL_S)
    return reader.finish(recording.exit_code, wall_s=WALL_S), signals


def _single_bytes(data: bytes) -> Iterator[bytes]:
    return (data[i : i + 1] for i in range(len(data)))


def _pieces(data: bytes, chance: Random) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = chance.choice((1, 2, 7, 100, 4096))
        yield data[at : at + size]
        at += size


def _kinds(signals: Sequence[Signal]) -> list[str]:
    return [signal.kind.value for signal in signals]


def _gist(done: tuple[Ending, list[Signal]]) -> tuple[End, object, list[str]]:
    ending, signals = done
    return ending.end, ending.signal and ending.signal.kind, _kinds(signals)
