"""A program that answers from a recording, and one that makes the recording.

    python tape.py play TAPE CURSOR ARGS...       answer as the tape does, one call after the other
    python tape.py record TAPE PROGRAM ARGS...    run the program, and write down what it was asked and said

A tape is a file of JSON lines: argv, stdin, code, out, err. A call that the tape does not have next is
answered with exit status 99 and both calls in words. ``argv: null`` stands for any.

It is started for every call of a test, so it imports little.
"""

from __future__ import annotations

import json
import sys

UNKNOWN = 99


def play(tape: str, cursor: str, argv: list[str], stdin: str) -> int:
    with open(tape, encoding="utf-8") as file:
        calls = [json.loads(line) for line in file]
    with open(cursor, "a+b") as past:
        number = past.tell()
        past.write(b".")
    if number >= len(calls):
        print(f"{tape} is over; got {argv} with {stdin!r}", file=sys.stderr)
        return UNKNOWN
    call = calls[number]
    if call["argv"] is not None and (call["argv"], call["stdin"]) != (argv, stdin):
        wanted = f"{call['argv']} with {call['stdin']!r}"
        print(f"{tape}, call {number + 1}: got {argv} with {stdin!r}, expected {wanted}", file=sys.stderr)
        return UNKNOWN
    sys.stdout.write(call["out"])
    sys.stderr.write(call["err"])
    return int(call["code"])


def record(tape: str, program: str, argv: list[str], stdin: str) -> int:
    import subprocess

    done = subprocess.run([program, *argv], input=stdin, capture_output=True, encoding="utf-8", check=False)
    call = {"argv": argv, "stdin": stdin, "code": done.returncode, "out": done.stdout, "err": done.stderr}
    with open(tape, "a", encoding="utf-8") as file:
        file.write(json.dumps(call, ensure_ascii=False) + "\n")
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    return done.returncode


if __name__ == "__main__":
    verb, tape, second, *rest = sys.argv[1:]
    words = sys.stdin.buffer.read().decode()
    sys.exit((play if verb == "play" else record)(tape, second, rest, words))
