"""A thread that beats while there is something to do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import Queue

import pytest

from flyball.host.background_thread import Linger, PeriodicThread

LONG_S = 60.0


class Beats:
    """Says what each beat is to return, and learns when it was called."""

    def __init__(self) -> None:
        self.returns: Queue[float | None] = Queue()
        self.called: Queue[str] = Queue()
        self.thread = PeriodicThread(self._beat, name="test-beat")

    def _beat(self) -> float | None:
        self.called.put(threading.current_thread().name)
        return self.returns.get(timeout=30)

    def expect(self) -> None:
        assert self.called.get(timeout=30) == "test-beat"


@pytest.fixture
def beats() -> Iterator[Beats]:
    beats = Beats()
    yield beats
    beats.returns.put(None)
    beats.thread.close(join_s=30)


def ended() -> None:
    for thread in threading.enumerate():
        if thread.name == "test-beat":
            thread.join(30)
            assert not thread.is_alive()


def test_it_beats_again_when_it_said_so(beats: Beats) -> None:
    beats.thread.start()
    for _ in range(3):
        beats.expect()
        beats.returns.put(0.0)
    beats.expect()


def test_it_ends_when_nothing_is_left_and_starts_again(beats: Beats) -> None:
    for _ in range(2):
        beats.thread.start()
        beats.expect()
        beats.returns.put(None)
        ended()
    assert beats.called.empty()


def test_a_start_during_the_last_beat_is_not_lost(beats: Beats) -> None:
    beats.thread.start()
    beats.expect()
    beats.thread.start()
    beats.returns.put(None)
    beats.expect()


def test_a_wake_beats_now_and_not_when_it_was_due(beats: Beats) -> None:
    beats.thread.start()
    beats.expect()
    beats.returns.put(LONG_S)
    beats.thread.wake()
    beats.expect()


def test_a_start_does_not_cut_the_time_until_the_next_beat(beats: Beats) -> None:
    beats.thread.start()
    beats.expect()
    beats.returns.put(LONG_S)
    beats.thread.start()
    beats.thread.close(join_s=30)
    ended()
    assert beats.called.empty()


def test_closed_it_neither_beats_nor_starts_again(beats: Beats) -> None:
    beats.thread.start()
    beats.expect()
    beats.returns.put(LONG_S)
    beats.thread.close(join_s=30)
    beats.thread.wake()
    ended()
    assert beats.called.empty()


def test_it_lingers_after_the_last_work() -> None:
    linger = Linger(1.0, 3.0)
    said = [linger.next_s(busy=busy) for busy in (True, False, False, True, False, False, False)]
    assert said == [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, None]
    assert linger.next_s(busy=False) == 1.0, "from the start"
