"""What every store that one thread at a time is in stands on."""

from __future__ import annotations

from inspect import isfunction

import pytest

from flyball.stores.admin_operations import AdminOperations
from flyball.stores.memory import MemoryStore
from flyball.stores.operations import StoreOperations
from flyball.stores.sqlite.store import SqliteStore
from flyball.stores.transaction import operation

WITHOUT_A_STEP = {
    "begin",
    "begin_together",
    "close",
    "end",
    "end_together",
    "grant_now",
    "is_granted_now",
}
"""Methods that take the lock themselves, and the two that a verb's own step consists of."""


@pytest.mark.parametrize("part", [AdminOperations, StoreOperations, MemoryStore, SqliteStore])
def test_every_public_method_that_opens_a_step_is_marked_as_an_operation(part: type) -> None:
    marked = operation(lambda _self: None).__code__
    methods = {name: found for name, found in vars(part).items() if isfunction(found) and name[0] != "_"}
    unmarked = {name for name, found in methods.items() if found.__code__ is not marked}
    assert unmarked <= WITHOUT_A_STEP
