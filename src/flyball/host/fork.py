"""Forking with locks and connections: nothing may be in the middle of something when the process splits.

Before a fork every registered object is brought to rest (its lock is taken, so no other thread is inside);
after it the parent goes on, and the child lets go of what is its parent's. A lock that another thread held at
the moment of the fork would otherwise stay locked in the child for ever.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forkable(Protocol):
    def before_fork(self) -> None:
        """Come to rest, and stay there."""

    def after_fork_in_parent(self) -> None:
        """Go on."""

    def after_fork_in_child(self) -> None:
        """Go on as somebody else: what was open is the parent's."""


_registered: weakref.WeakSet[Forkable] = weakref.WeakSet()
_resting: list[Forkable] = []


def survive_forks(thing: Forkable) -> None:
    """Call the three methods of ``thing`` around every fork from now on."""
    _registered.add(thing)


def _before() -> None:
    # One order for everybody, or two forking threads could wait for each other.
    _resting.extend(sorted(_registered, key=id))
    for thing in _resting:
        thing.before_fork()


def _in_parent() -> None:
    while _resting:
        _resting.pop().after_fork_in_parent()


def _in_child() -> None:
    while _resting:
        _resting.pop().after_fork_in_child()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
