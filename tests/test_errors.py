"""The errors as values: they are pickled, copied and read by field."""

from __future__ import annotations

import copy
import inspect
import multiprocessing
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from flyball import errors
from flyball.core.pool.verdict import Reason, Verdict, VerdictKind
from flyball.errors import FlyballError, GitError, PoolInUseError, RefusedError, Throttled, WaitTimeoutError
from tests.cases import every

VERDICT = Verdict(kind=VerdictKind.REFUSED, pool="p", reason=Reason.CAP, in_use=1, cap=1)
CLASSES = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, FlyballError)]


def made(kind: type[FlyballError]) -> FlyballError:
    """An error of this class with every field it may have."""
    if kind is WaitTimeoutError:
        return WaitTimeoutError(VERDICT, 0.5)
    if issubclass(kind, RefusedError):
        return kind(VERDICT)
    if kind is Throttled:
        return Throttled("slow", retry_after_s=7.0)
    if kind is PoolInUseError:
        return PoolInUseError("p", leases=2, waiting=1, shares=0)
    return GitError("no", output="fatal", code=128) if kind is GitError else kind("no")


def pickled(error: FlyballError) -> Any:
    return pickle.loads(pickle.dumps(error))


@every("again", [pickled, copy.copy, copy.deepcopy])
@every("kind", CLASSES)
def test_an_error_that_is_pickled_or_copied_says_the_same(
    kind: type[FlyballError], again: Callable[[FlyballError], Any]
) -> None:
    error = made(kind)
    error.add_note("in the child")
    found = again(error)
    assert (type(found), str(found), found.args) == (kind, str(error), error.args)
    assert vars(found) == vars(error)


def refuse(_: int) -> None:
    raise WaitTimeoutError(VERDICT, 0.5)


def test_a_refusal_in_a_worker_process_reaches_its_caller() -> None:
    with (
        multiprocessing.get_context("spawn").Pool(1) as workers,
        pytest.raises(WaitTimeoutError) as raised,
    ):
        workers.apply_async(refuse, (1,)).get(timeout=20)
    assert (raised.value.pool, raised.value.reason, raised.value.waited_s) == ("p", "cap", 0.5)
