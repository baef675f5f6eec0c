"""What the tests ask of a governor's pool ``p``, and threads that really wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from flyball import Governor
from flyball.governor.status import PoolStatus
from tests.waiting import LONGEST_S, until


def pool(gov: Governor, name: str = "p") -> PoolStatus:
    (found,) = [p for p in gov.status().pools if p.name == name]
    return found


def in_use(gov: Governor) -> int:
    return pool(gov).in_use


def nothing_left(gov: Governor) -> bool:
    """No lease and no ask in ``p``."""
    return (pool(gov).in_use, pool(gov).waiting) == (0, 0)


class Person(threading.Thread):
    """Runs something in a thread; ``outcome`` is its result, or raises what it raised."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self._result: Any = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:
            self._error = error

    def outcome(self) -> Any:
        self.join(LONGEST_S)
        assert not self.is_alive(), "still waiting"
        if self._error is not None:
            raise self._error
        return self._result


def wait_for_line(gov: Governor, length: int = 1) -> None:
    """Until so many asks wait in ``p``."""
    until(lambda: pool(gov).waiting == length)
