"""After a fork: objects that hold locks or connections let go of them in the child.

A lock held by another thread at the moment of the fork would stay locked in the child for ever.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forkable(Protocol):
    def forget_after_fork(self) -> None: ...


_registered: weakref.WeakSet[Forkable] = weakref.WeakSet()


def forget_in_children(thing: Forkable) -> None:
    """Call ``thing.forget_after_fork()`` in every child forked from now on."""
    _registered.add(thing)


def _in_child() -> None:
    for thing in list(_registered):
        thing.forget_after_fork()


os.register_at_fork(after_in_child=_in_child)
