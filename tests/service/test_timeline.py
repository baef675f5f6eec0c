"""Facts are told once each, in order, also where the store forgets or shows them in another order."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from flyball.core.pool.model import Fact
from flyball.service import timeline
from flyball.service.store_reader import FACTS_SEEN, StoreSnapshot
from flyball.service.timeline import Timeline, new_facts
from flyball.testing import Scene, make_memory
from tests.service.kit import seen_in


def fact(at: float, words: str = "x", kind: str = "cut") -> Fact:
    return Fact(at, "p", kind, words)


def look(*facts: Fact) -> StoreSnapshot:
    """A look that shows these, given oldest first."""
    return replace(seen_in(Scene(make_memory)), facts=tuple(reversed(facts)))


def test_what_was_there_before_is_not_new() -> None:
    line = Timeline()
    assert line.hear(look(fact(1), fact(2))) == []
    assert [told.at for _, told in line.hear(look(fact(1), fact(2), fact(3)))] == [3]


def test_of_facts_that_are_alike_each_is_told() -> None:
    line = Timeline()
    line.hear(look(fact(1)))
    assert len(line.hear(look(fact(1), fact(1), fact(1)))) == 2
    assert line.hear(look(fact(1), fact(1), fact(1))) == []


def test_a_fact_that_comes_late_is_told_although_newer_ones_were() -> None:
    line = Timeline()
    line.hear(look(fact(1)))
    line.hear(look(fact(1), fact(5)))
    assert [told.at for _, told in line.hear(look(fact(1), fact(4), fact(5)))] == [4]


def test_an_old_fact_that_comes_into_view_again_is_not_new() -> None:
    many = [fact(float(at)) for at in range(10, 10 + FACTS_SEEN)]
    assert new_facts(list(reversed(many)), list(reversed([fact(3.0), *many[2:]]))) == []


def test_ids_count_up_and_carry_the_server() -> None:
    line = Timeline("ab")
    line.hear(look())
    assert [told for told, _ in line.hear(look(fact(1), fact(2)))] == ["ab-1", "ab-2"]


def test_a_watcher_that_comes_back_is_told_what_followed() -> None:
    line = Timeline("ab")
    line.hear(look())
    line.hear(look(*(fact(float(at)) for at in range(5))))
    assert [told for told, _ in line.since("ab-3")] == ["ab-4", "ab-5"]
    assert line.since("ab-5") == []
    assert line.since("") == []


def test_a_watcher_that_comes_from_another_server_is_told_what_is_known() -> None:
    line = Timeline("ab")
    line.hear(look())
    line.hear(look(fact(1), fact(2)))
    for last in ("cd-7", "nonsense", "ab-x", "ab-²"):
        assert len(line.since(last)) == 2


def test_what_is_kept_is_bounded() -> None:
    line = Timeline("ab")
    line.hear(look())
    for at in range(0, 2000, 100):
        line.hear(look(*(fact(float(at + step)) for step in range(100))))
    assert len(line.since("other")) == timeline.KEPT


def test_the_newest_facts_have_the_ids_that_were_told() -> None:
    line = Timeline("ab")
    line.hear(look(fact(1)))
    seen = look(fact(1), fact(2), fact(2))
    line.hear(seen)
    assert [view.id for view in line.newest(seen, limit=10)] == ["ab-2", "ab-1", ""]
    assert len(line.newest(seen, limit=1)) == 1


def test_a_fact_has_an_age_and_a_time(scene: Scene) -> None:
    scene.pool(controller="koryph")
    scene.throttle()
    scene.wait(5)
    seen = seen_in(scene)
    (view,) = Timeline().newest(seen, limit=1)
    assert view.s_ago == 5.0
    assert view.time.startswith("1970-01-01T00:16:40.000")


@given(
    rounds=st.lists(st.lists(st.integers(0, 3), max_size=5), max_size=8),
)
def test_every_fact_is_told_exactly_once(rounds: list[list[int]]) -> None:
    line, happened, told = Timeline(), [], []
    line.hear(look())
    for at, kinds in enumerate(rounds):
        happened += [fact(float(at), str(kind)) for kind in kinds]
        told += [each for _, each in line.hear(look(*happened))]
    assert told == happened
