"""Coverage-guided fuzzing of what HTTP answers are read as: ``python -m tests.soak.fuzz_answers [SECONDS]``.

An input is a status, header lines, an empty line and a body, as on the wire. It stops at the first one that
raises, or that is read as something no answer can mean.
"""

from __future__ import annotations

import sys
from pathlib import Path

from flyball.core.provider.http_response import from_http
from tests.soak.driver import drive

WALL_S = 1_794_728_000.0
LONGEST_S = 31 * 86400.0
SEEDS = (
    b'429\nretry-after: 7\n\n{"type": "error", "error": {"type": "rate_limit_error", "message": "x"}}',
    b"429\nretry-after: Wed, 21 Oct 2026 07:28:00 GMT\ndate: Wed, 21 Oct 2026 07:27:00 GMT\n\n<html>",
    b"200\nanthropic-ratelimit-tokens-limit: 40000\nanthropic-ratelimit-tokens-remaining: 3\n"
    b"anthropic-ratelimit-tokens-reset: 2026-10-21T07:28:00Z\n\n{}",
    b"429\nx-ratelimit-remaining-requests: 0\nx-ratelimit-reset-requests: 6m0s\nretry-after-ms: 20\n\n"
    b'{"error": {"code": "insufficient_quota", "message": "Please try again in 1.2s"}}',
    b'429\n\n{"error": {"status": "RESOURCE_EXHAUSTED", "details": [{"retryDelay": "37s"}]}}',
    b'529\n\n{"error": {"type": "overloaded_error"}}',
)


def one_input(data: bytes) -> None:
    head, _, body = data.partition(b"\n\n")
    first, *lines = head.decode("latin-1").split("\n")
    status = int(first) if first.isascii() and first.isdigit() and len(first) < 10 else len(first)
    headers = [(name, value) for name, _, value in (line.partition(": ") for line in lines)]
    signal = from_http(status, headers, body, wall_s=WALL_S)
    wait_s = signal.retry_after_s
    if wait_s is not None and not 0 < wait_s <= LONGEST_S:
        raise AssertionError(f"a wait of {wait_s} s")
    for bucket in signal.buckets:
        if bucket.remaining < 0 or (bucket.reset_s or 0) < 0 or (bucket.limit or 1) < 1:
            raise AssertionError(f"{bucket}")
    if from_http(status, headers[::-1], body, wall_s=WALL_S).kind is not signal.kind:
        raise AssertionError("the order of headers decides")


def seed_inputs(folder: Path) -> None:
    for number, seed in enumerate(SEEDS):
        (folder / f"{number}").write_bytes(seed)


if __name__ == "__main__":
    sys.exit(drive("fuzz_answers", one_input, seed_inputs, sys.argv[1:]))
