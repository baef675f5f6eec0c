"""Blocking work beside the run's event loop, git above all: what was begun is not left half done."""

from __future__ import annotations

from flyball.host.off_loop import Threads

run_in_thread = Threads(32, "flyball-git").call
