"""The body of an answer that urllib3 reads, with a slot that is free when it is over: requests and botocore.

Over means read to the end, closed, broken, or dropped and collected, whichever is first. All else that is
asked of the body is answered by the one underneath.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flyball.core.signals import Signal
from flyball.integrations.held_slot import Hold
from flyball.integrations.outcome import no_answer_signal
from flyball.integrations.response_stream import DEAF, ResponseListener

_LATE = frozenset({"ReadTimeoutError", "TimeoutError"})


class RawRelay:
    """A body, and the hold that it is given once the answer is handed over."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._hold: Hold | None = None
        self._listener: ResponseListener = DEAF

    def hand_over(self, hold: Hold, listener: ResponseListener) -> None:
        self._hold, self._listener = hold, listener

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def stream(self, *given: Any, **more: Any) -> Iterator[bytes]:
        try:
            for part in self._raw.stream(*given, **more):
                self._tell(self._listener.hear(part))
                yield part
        except Exception as error:
            self._fail(error)
            raise
        self._end()

    def __iter__(self) -> Iterator[bytes]:
        return self.stream()

    def read(self, amt: int | None = None, *given: Any, **more: Any) -> bytes:
        try:
            part: bytes = self._raw.read(amt, *given, **more)
        except Exception as error:
            self._fail(error)
            raise
        self._tell(self._listener.hear(part))
        if amt is None or amt < 0 or (amt and not part):
            self._end()
        return part

    def read1(self, amt: int | None = None, *given: Any, **more: Any) -> bytes:
        try:
            part: bytes = self._raw.read1(amt, *given, **more)
        except Exception as error:
            self._fail(error)
            raise
        self._tell(self._listener.hear(part))
        if amt != 0 and not part:
            self._end()
        return part

    def readinto(self, buffer: Any) -> int:
        part = self.read(len(buffer))
        buffer[: len(part)] = part
        return len(part)

    def close(self) -> None:
        try:
            self._raw.close()
        finally:
            self._free()

    def release_conn(self) -> None:
        try:
            self._raw.release_conn()
        finally:
            self._free()

    def _tell(self, said: Signal | None) -> None:
        if said is not None and self._hold is not None and self._hold.held:
            self._hold.tell(said, news=True)

    def _fail(self, error: Exception) -> None:
        if self._hold is None:
            return
        if {cls.__name__ for cls in type(error).__mro__} & _LATE:
            self._tell(no_answer_signal(error))
        self._hold.free(error)

    def _end(self) -> None:
        if self._hold is not None and self._hold.held:
            self._tell(self._listener.end())
            self._hold.settle(self._listener.used)
            self._free()

    def _free(self) -> None:
        if self._hold is not None:
            self._hold.free()

    def __del__(self) -> None:
        if self._hold is not None:
            self._hold.lose()


def plain_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of a body that is decoded before it is heard."""
    return {name.lower(): value for name, value in headers.items() if name.lower() != "content-encoding"}
