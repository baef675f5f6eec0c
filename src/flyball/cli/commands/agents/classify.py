"""``flyball classify --stdout FILE``: how a finished run ended, judged from what it printed."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Iterator
from typing import IO

from flyball.cli.ui.endings import ending_record, ending_words
from flyball.cli.ui.render import print_json
from flyball.cli.ui.units import whole
from flyball.errors import UsageError
from flyball.runtimes.port import Ending, Runtime
from flyball.runtimes.registry import NAMES, load, wrote

SUMMARY = """Judge a finished run of an agent from the files its output went to: finished, limited, failed,
killed or unknown. Without --runtime the runtime is recognised by what it printed."""
EXAMPLE = """flyball classify --stdout run.jsonl --stderr run.err --exit-code 1
claude -p "..." --output-format stream-json --verbose | flyball classify --stdout - --json"""

_HEAD_BYTES = 1 << 16
_PIECE_BYTES = 1 << 18


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runtime", choices=NAMES, help="which agent it was (default: by its output)")
    parser.add_argument("--stdout", required=True, metavar="FILE", help="what it printed; - for our input")
    parser.add_argument("--stderr", metavar="FILE", help="what it printed on stderr")
    parser.add_argument(
        "--exit-code",
        type=_exit_code,
        metavar="N",
        help="how it exited; negative: killed by that signal (default: not known)",
    )
    parser.add_argument("--json", action="store_true", help="the result as JSON")


def _exit_code(text: str) -> int:
    number = whole(text)
    if not -64 <= number <= 255:
        raise argparse.ArgumentTypeError(f"{text!r} is not an exit code; write 0 to 255, or -N for signal N")
    return number


def run(args: argparse.Namespace) -> int:
    with _open(args.stdout) as stdout, _open(args.stderr) as stderr:
        heads = stdout.read(_HEAD_BYTES), stderr.read(_HEAD_BYTES)
        runtime = load(args.runtime) if args.runtime else wrote(*heads)
        ending = _classify(runtime, (stdout, stderr), heads, args.exit_code)
    if args.json:
        print_json({"runtime": runtime.name, **ending_record(ending)})
    else:
        print(f"{runtime.name}: {ending_words(ending)}")
        print(_facts(ending))
    return 0


def _classify(
    runtime: Runtime, files: tuple[IO[bytes], IO[bytes]], heads: tuple[bytes, bytes], exit_code: int | None
) -> Ending:
    reader = runtime.reader()
    for file, head, feed in zip(files, heads, (reader.feed, reader.feed_stderr), strict=True):
        # A wait that it names counts from when it was written, not from now.
        changed_s = os.fstat(file.fileno()).st_mtime if file is not sys.stdin.buffer else 0.0
        piece = head
        while piece:
            feed(piece, wall_s=changed_s or time.time())
            piece = file.read(_PIECE_BYTES)
    return reader.finish(exit_code, wall_s=time.time())


@contextlib.contextmanager
def _open(name: str | None) -> Iterator[IO[bytes]]:
    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        file = os.fdopen(os.open(name if name is not None else os.devnull, os.O_RDONLY), "rb")
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror}") from error
    with file:
        yield file


def _facts(ending: Ending) -> str:
    progress = ending.progress
    facts = [
        f"session {progress.session}" if progress.session else "",
        f"{progress.tokens.input:,} tokens in, {progress.tokens.output:,} out" if progress.tokens else "",
        f"${progress.cost_usd:.4f}" if progress.cost_usd is not None else "",
        progress.model or "",
    ]
    return "  " + (", ".join(filter(None, facts)) or "it did not say which session, tokens, cost or model")
