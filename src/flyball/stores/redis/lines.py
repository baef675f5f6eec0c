"""The way a script goes: over a connection that is kept for scripts, without the driver's front door.

The driver's ``execute_command`` takes a connection from its pool and gives it back for every command, and
tells its observers each time; that is as much work as all the rest of an ask on this side. So whoever runs
a script takes one of the connections that lie ready here, or has the driver open one more; they are the
driver's own, and it closes them with all others. As many are open as scripts ever ran at once.

Before a connection is used again it is asked whether it still lives: a server that was started anew is simply
connected to again. What was sent is never sent twice.

A cluster's client knows which node to ask, so there the front door is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def lines_to(client: Any) -> Callable[..., Any]:
    """What sends a command to the client's server and hears the answer."""
    pool = getattr(client, "connection_pool", None)
    return Lines(pool) if pool is not None else client.execute_command


class Lines:
    """Safe to use from many threads: each takes a line for itself."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._idle: list[Any] = []

    def __call__(self, *command: Any) -> Any:
        """Send a command and hear the answer."""
        line = self._line()
        try:
            line.send_packed_command([packed(command)], check_health=False)
            answer = line.read_response()
        except BaseException as error:
            if not _is_answer(error):
                # Whatever still comes over it belongs to nobody.
                line.disconnect()
            self._idle.append(line)
            raise
        self._idle.append(line)
        return answer

    def _line(self) -> Any:
        try:
            line = self._idle.pop()
        except IndexError:
            return _opened(self._pool)
        try:
            lives = not line.can_read(timeout=0)
        except Exception:
            lives = False
        if not lives:
            line.disconnect()
            self._pool.release(line)
            return _opened(self._pool)
        return line


def packed(command: Sequence[object]) -> bytes:
    """A command as the server reads it.

    >>> packed(("GET", "ü"))
    b'*2\\r\\n$3\\r\\nGET\\r\\n$2\\r\\n\\xc3\\xbc\\r\\n'
    """
    words = [str(word).encode("utf-8", "surrogateescape") for word in command]
    return b"*%d\r\n%b" % (len(words), b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words]))


def _is_answer(error: BaseException) -> bool:
    """An error that the server said, on a connection that is as good as before."""
    return any(kind.__name__ == "ResponseError" for kind in type(error).__mro__)


def _opened(pool: Any) -> Any:
    import redis

    major, minor = (int(part) for part in redis.__version__.split(".")[:2])
    # Before 5.3 the driver wants to know what for.
    return pool.get_connection("EVALSHA") if (major, minor) < (5, 3) else pool.get_connection()
