"""Forking with locks and connections: nothing may be in the middle of something when the process splits.

Before a fork every registered object is brought to rest (its lock is taken, so no other thread is inside);
after it the parent goes on, and the child lets go of what is its parent's. A lock that another thread held at
the moment of the fork would otherwise stay locked in the child for ever.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class Forkable(Protocol):
    """Its methods are private to users of the object: only a fork calls them."""

    def _before_fork(self) -> None:
        """Come to rest, and stay there."""

    def _after_fork_in_parent(self) -> None:
        """Go on."""

    def _after_fork_in_child(self) -> None:
        """Go on as another process: what was open is the parent's."""


_registered: weakref.WeakKeyDictionary[Forkable, int] = weakref.WeakKeyDictionary()
_resting: list[Forkable] = []
_one_fork = threading.Lock()
"""Threads may fork at the same time, and each must find everything at rest."""


def survive_forks(thing: Forkable, *, rank: int = 1) -> None:
    """Call the three methods of ``thing`` around every fork from now on. Whatever calls others while it holds
    its lock has the lower rank: it is brought to rest before them."""
    _registered[thing] = rank


def _before() -> None:
    _one_fork.acquire()
    _resting.extend(sorted(_registered, key=lambda thing: (_registered[thing], id(thing))))
    for thing in _resting:
        thing._before_fork()


def _in_parent() -> None:
    while _resting:
        _resting.pop()._after_fork_in_parent()
    _one_fork.release()


def _in_child() -> None:
    while _resting:
        _resting.pop()._after_fork_in_child()
    _one_fork.release()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
