"""The way a script goes: over a connection that is kept for scripts, without the driver's front door.

The driver's ``execute_command`` takes a connection from its pool and gives it back for every command, and
tells its observers each time; that is as much work as all the rest of an ask on this side. So a script
takes one of the connections that lie ready here, or has the driver open one more; they are the driver's own,
and it closes them with all others. As many are open as scripts ever ran at once.

Before a connection is used again it is asked whether it still lives: a server that was started anew is simply
connected to again. What was sent is never sent twice.

A cluster's client knows which node to ask, so there the front door is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from flyball.stores.redis.errors import NotSentError


def script_sender(client: Any) -> Callable[..., Any]:
    """What sends a command to the client's server and returns the answer."""
    pool = getattr(client, "connection_pool", None)
    if pool is None:
        return cast("Callable[..., Any]", client.execute_command)
    import redis

    # Before 5.3 the driver wants to know what a connection is for.
    version = tuple(int(part) for part in redis.__version__.split(".")[:2])
    return ScriptConnections(pool, *(("EVALSHA",) if version < (5, 3) else ()))


class ScriptConnections:
    """Safe to use from many threads: each takes a connection for itself."""

    def __init__(self, pool: Any, *purpose: str) -> None:
        self._pool, self._purpose = pool, purpose
        self._idle: list[Any] = []

    def __call__(self, *command: Any) -> Any:
        """Send a command and read the answer."""
        link = self._take()
        try:
            link.send_packed_command([pack_command(command)], check_health=False)
            answer = link.read_response()
        except BaseException as error:
            if not _is_answer(error):
                # What still comes over it is the answer to a call that has failed.
                link.disconnect()
            self._idle.append(link)
            raise
        self._idle.append(link)
        return answer

    def _take(self) -> Any:
        try:
            link = self._idle.pop()
        except IndexError:
            return self._open()
        try:
            lives = not link.can_read(timeout=0)
        except Exception:
            lives = False
        if not lives:
            link.disconnect()
            self._pool.release(link)
            return self._open()
        return link

    def _open(self) -> Any:
        try:
            return self._pool.get_connection(*self._purpose)
        except Exception as error:
            raise NotSentError(error) from error


def pack_command(command: Sequence[object]) -> bytes:
    """A command as the server reads it.

    >>> pack_command(("GET", "ü"))
    b'*2\\r\\n$3\\r\\nGET\\r\\n$2\\r\\n\\xc3\\xbc\\r\\n'
    """
    words = [str(word).encode("utf-8", "surrogateescape") for word in command]
    return b"*%d\r\n%b" % (len(words), b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words]))


def _is_answer(error: BaseException) -> bool:
    """An error that the server said, on a connection that is as good as before."""
    return any(kind.__name__ == "ResponseError" for kind in type(error).__mro__)
