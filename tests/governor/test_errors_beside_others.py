"""An error of one thread in the middle of its step is nothing to the steps of the others."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from flyball import Governor, UsageError
from flyball.governor.internals import internals


def test_a_step_that_fails_undoes_nothing_of_another_threads(home: Path) -> None:
    gov, over, failed = Governor(), threading.Event(), list[BaseException]()
    gov.set_pool("p", cap=8, adaptive=False, spacing_s=0.0, windows={"tokens": "100M/min"})

    def work() -> None:
        try:
            for _ in range(400):
                gov.acquire("p", cost={"tokens": 1}).release()
        except BaseException as error:
            failed.append(error)
        over.set()

    worker, pause_s = threading.Thread(target=work), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        worker.start()
        while not over.is_set():
            with pytest.raises(UsageError):
                gov.set_pool("p", cap=4, cap_floor=5)
        worker.join()
    finally:
        sys.setswitchinterval(pause_s)
    assert failed == []
    assert internals(gov).recount() == []
    assert gov.status().pools[0].in_use == 0
