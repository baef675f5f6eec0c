"""Every behaviour of the suite, on every store."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flyball.errors import UsageError
from flyball.stores.port import Store
from flyball.stores.postgres.store import PostgresStore
from flyball.stores.redis.store import RedisStore
from flyball.testing import FLEET_CHECKS, STORE_CHECKS, FakeWorld, Scene, check_store, make_memory


@pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
def test(check: Callable[[Scene], None], scene: Scene) -> None:
    if isinstance(scene.store, (PostgresStore, RedisStore)) and check not in FLEET_CHECKS:
        with pytest.raises(UsageError, match=r"have no place on a server|counted by one machine"):
            check(scene)
    else:
        check(scene)


def test_a_store_that_grants_everything_fails_the_suite_with_the_names_of_what_it_breaks() -> None:
    def make_generous(world: FakeWorld) -> Store:
        store = make_memory(world)
        store.set_pool("p", {"cap": 1000, "adaptive": False})
        store.set_pool = lambda *_: store.demand("p", "x", world.here, ttl_s=0.0)  # type: ignore[method-assign]
        return store

    with pytest.raises(ExceptionGroup) as raised:
        check_store(make_generous)
    notes = {note for error in raised.value.exceptions for note in error.__notes__}
    assert "broken: the cap is never exceeded" in notes
