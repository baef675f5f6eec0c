"""One test for many cheap cases: all of them are tried, and each that fails is named.

A table of cases stands above its test as with ``pytest.mark.parametrize``; what differs is the price. A
hundred cases are one test to collect, to set up and to send to a worker, so this is for cases that take
milliseconds and share their fixtures. Where a case needs a store, a process or a home of its own, or is worth
running by itself, ``parametrize`` is right.

    @every("text, number", [("1", 1), ("2", 2)])
    def test_a_number_is_read(text: str, number: int) -> None:
        assert int(text) == number
"""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

import pytest

Test = Callable[..., None]
_NAMES = reprlib.Repr()
_NAMES.maxstring = _NAMES.maxother = 100
_CASES = "_cases_"


def every(
    names: str | Sequence[str], cases: Iterable[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call the test once for each case, and once for each pair where two tables stand above it."""
    words = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    alone = isinstance(names, str) and len(words) == 1
    table = [dict(zip(words, (case,) if alone else case, strict=True)) for case in cases]
    assert table, f"there is no case of {', '.join(words)}"

    def decorate(test: Test) -> Test:
        start: list[dict[str, Any]] = [{}]
        inner, inner_table = getattr(test, _CASES, (test, start))
        product = [outer | more for outer in table for more in inner_table]

        @wraps(inner)
        def each(**fixtures: Any) -> None:
            failed: list[tuple[str, BaseException]] = []
            for case in product:
                try:
                    inner(**fixtures, **case)
                except (Exception, pytest.fail.Exception) as error:
                    failed.append((_named(case), error))
            if failed:
                told = "\n".join(f"- {name}: {_told(error)}" for name, error in failed)
                raise AssertionError(f"{len(failed)} of {len(product)} cases:\n{told}") from failed[0][1]

        signature = inspect.signature(inner)
        asked = [parameter for name, parameter in signature.parameters.items() if name not in product[0]]
        each.__signature__ = signature.replace(parameters=asked)  # type: ignore[attr-defined]
        del each.__wrapped__
        setattr(each, _CASES, (inner, product))
        return each

    return decorate


def _named(case: dict[str, Any]) -> str:
    return ", ".join(f"{name}={_NAMES.repr(value)}" for name, value in case.items())


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".replace("\n", "\n    ")
