"""Collects the facts of one step, so that each names who it is about."""

from __future__ import annotations

from flyball.core.model import Fact


class Notes:
    """Collects the facts of one planning step."""

    def __init__(self, pool: str, project: str, name: str, now: float) -> None:
        self.pool, self.project, self.name, self.now = pool, project, name, now
        self._facts: list[Fact] = []

    def add(self, kind: str, words: str) -> None:
        self._facts.append(Fact(self.now, self.pool, kind, words, self.project, self.name))

    @property
    def facts(self) -> tuple[Fact, ...]:
        return tuple(self._facts)
