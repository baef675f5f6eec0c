"""One pool as rows in memory: what a script returned, for code that is written over ``Rows``.

Planning and setting change the image; ``changes`` says how, and the server swaps that in if nobody planned
meanwhile. Looking at the whole store works on an image of every pool.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from flyball.core.control.named import controller_of
from flyball.core.model import Claim, Fact, Holder, ProjectUse
from flyball.stores import codec
from flyball.stores.memory_rows import MemoryRows
from flyball.stores.redis import records

_NOBODY = Holder("", "", 0, 0, 0)
_MOVED_BY_ALL = ("bound_oks", "high", "work", "work_tokens", "windows")


@dataclass(frozen=True, slots=True)
class PoolState:
    """One pool as the server knows it. Where only a plan is made, most claims stay away."""

    pool: str
    now: float
    fields: Mapping[str, str]
    events: Sequence[str]
    projects: Mapping[str, str]
    demands: Mapping[str, str]
    claims: Mapping[int, str]
    trial_live: bool = False
    """The trial's lease is there, whether or not it is among the claims."""
    hosts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Changes:
    """What planning changed. ``version`` is that of the plan it began with; empty for a pool that is new."""

    version: str
    heard: int
    pool: Mapping[str, str]
    read: Mapping[str, str]
    """What meters said that grants and ends move too, for those that changed."""
    projects: Mapping[str, tuple[str, str, str]]
    facts: tuple[Fact, ...]


class Image(MemoryRows):
    """Rows of some pools. Nothing is written back by itself."""

    def __init__(self, now: float) -> None:
        super().__init__()
        self.now = now
        self._loaded: dict[str, PoolState] = {}

    def load(self, state: PoolState) -> None:
        pool = state.pool
        self._loaded[pool] = state
        if not state.fields:
            return
        self._pools[pool] = records.pool_row(pool, state.fields)
        for word in ("settings", "memory"):
            self._texts[pool, word] = state.fields[word]
        for name, line in state.projects.items():
            self._projects[pool, name] = records.use_of(name, line)
        for member, until in state.demands.items():
            demand = records.demand_of(pool, member, until)
            self._demands[pool, demand.project, demand.holder] = demand
        for claim_id in sorted(state.claims):
            self._keep(records.claim_of(pool, claim_id, state.claims[claim_id], state.hosts))
        trial = self._pools[pool].meters.trial_id
        if state.trial_live and trial is not None:
            self._claims.setdefault(trial, _stand_in(pool, trial, state.now))

    def _keep(self, claim: Claim) -> None:
        """Enter a claim whose counts are already kept."""
        self._claims[claim.id] = claim
        if claim.held:
            self._held[claim.pool, claim.id] = None
        else:
            self._line_of(claim)[claim.id] = None

    # -- what a plan changed ------------------------------------------------------------------------

    def changes(self) -> Changes:
        ((pool, state),) = self._loaded.items()
        row = self._pools[pool]
        plain = "1" if records.is_plain(row, self.now) else "0"
        after = {**records.plan_fields(row), **self._mind(pool), "plain": plain}
        if state.fields:
            # By value: what a script wrote as 5 and what we write as 5.0 is the same.
            before = {**state.fields, **records.plan_fields(records.pool_row(pool, state.fields))}
        else:
            before = {}
            after.update(records.first_fields(row))
        return Changes(
            version=state.fields.get("version", ""),
            heard=len(state.events),
            pool={name: text for name, text in after.items() if before.get(name) != text},
            read={
                name: state.fields[name]
                for name in _MOVED_BY_ALL
                if name in state.fields and before.get(name) != after[name]
            },
            projects=dict(self._changed_projects(pool, state)),
            facts=tuple(self._new_facts),
        )

    def _mind(self, pool: str) -> dict[str, str]:
        """Settings and memory, and the little of them that ends of leases ask about."""
        settings, memory = self.settings(pool), self.memory(pool)
        return {
            "settings": settings,
            "memory": memory,
            "by_success": "1" if controller_of(codec.load_settings(settings)).by_success else "0",
            "refused_at": repr(codec.load_memory(memory).quota.refused_at),
        }

    def _changed_projects(self, pool: str, state: PoolState) -> Iterable[tuple[str, tuple[str, str, str]]]:
        for (of, name), use in self._projects.items():
            if of == pool:
                line = state.projects.get(name)
                if line is None or _terms(records.use_of(name, line)) != _terms(use):
                    yield name, _terms(use)


def _terms(use: ProjectUse) -> tuple[str, str, str]:
    return records.number(use.weight), records.number(use.maximum), records.number(use.share)


def _stand_in(pool: str, claim_id: int, now: float) -> Claim:
    """A lease of which only its being there matters."""
    return Claim(claim_id, pool, "", "", _NOBODY, 1, 0, {}, "", "", 0, now, now, None)
