"""One pool as rows in memory: what a script returned, for code that is written over ``Rows``.

Planning and setting change the image; ``changes`` says how, and the server swaps that in if no other process
planned meanwhile. A read of the whole store works on an image of every pool.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from flyball.core.pool.control.registry import controller_for
from flyball.core.pool.holder import Holder
from flyball.core.pool.model import Claim, Fact, ProjectUse
from flyball.core.share_lease.renewal import ShareBudget, ShareLease
from flyball.errors import invariant
from flyball.stores import codec
from flyball.stores.fast_path import is_fast_path
from flyball.stores.memory_rows import MemoryRows
from flyball.stores.redis import records
from flyball.stores.rows import Life

_NO_HOLDER = Holder("", "", 0, 0, 0)
_MOVED_BY_ALL = ("bound_oks", "high", "work", "work_tokens", "windows", "pot:dirty", "pot:until")


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
    shares: Mapping[str, ShareLease] | None = None
    """Where share leases have to be planned too."""
    epoch: str = ""
    """The life the server is in, where it was read."""
    divide: bool = False
    """Who should get how much is to be worked out anew."""


class Division(TypedDict):
    divided: str
    targets: Mapping[str, int]
    short: tuple[str, ...]
    served: tuple[str, ...]
    gone: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ImageChanges:
    """What planning changed. ``version`` is that of the plan it began with; empty for a pool that is new."""

    version: str
    planned: bool
    """There is a new plan: another one that was made meanwhile wins."""
    heard: int
    pool: Mapping[str, str]
    read: Mapping[str, str]
    """What meters said that grants and ends move too, for those that changed."""
    projects: Mapping[str, tuple[str, str, str]]
    facts: tuple[Fact, ...]
    divided: str
    """The number of the division it began with, where share leases were planned; else empty."""
    targets: Mapping[str, int]
    short: tuple[str, ...]
    served: tuple[str, ...]
    """Share leases that are short of what they are promised, and those that no longer are."""
    gone: tuple[str, ...]
    notices: tuple[str, ...]


class PoolImage(MemoryRows):
    """Rows of some pools. Nothing is written back by itself."""

    def __init__(self, now: float) -> None:
        super().__init__()
        self.now = now
        self._loaded: dict[str, PoolState] = {}
        self.notices: list[str] = []
        self._divided = False
        # The life the server is in now is the nameless one: those of a cluster are in different ones.
        self.put_life(Life(self.epoch, now))

    def load(self, state: PoolState) -> None:
        pool = state.pool
        self._loaded[pool] = state
        if not state.fields:
            return
        self._pools[pool] = records.pool_row(pool, state.fields)
        for word in ("settings", "memory"):
            self._texts[pool, word] = state.fields[word]
        for name, line in state.projects.items():
            self._projects[pool, name] = records.parse_project(name, line)
        for member, until in state.demands.items():
            demand = records.parse_demand(pool, member, until)
            self._demands[pool, demand.project, demand.holder] = demand
        for claim_id in sorted(state.claims):
            self._keep(records.parse_claim(pool, claim_id, state.claims[claim_id], state.hosts))
        budget = records.parse_budget(state.fields, epoch=state.epoch)
        if budget is not None:
            self._budgets[pool] = budget
        self._shares[pool] = dict(state.shares or {})
        trial = self._pools[pool].meters.trial_id
        if state.trial_live and trial is not None:
            # A lease of which only its being there matters.
            lease = Claim(trial, pool, "", "", _NO_HOLDER, 1, 0, {}, "", "", 0, state.now, state.now, None)
            self._claims.setdefault(trial, lease)

    def put_share_budget(self, pool: str, budget: ShareBudget) -> None:
        super().put_share_budget(pool, budget)
        self._divided |= not budget.dirty

    def shares(self, pool: str) -> list[ShareLease]:
        state = self._loaded.get(pool)
        known = state is None or state.shares is not None or pool not in self._budgets
        invariant(known, "share leases are planned where they are known")
        return super().shares(pool)

    def _keep(self, claim: Claim) -> None:
        """Enter a claim whose counts are already kept."""
        self._claims[claim.id] = claim
        if claim.expires_at is not None:
            self._expiring[claim.id] = None
        if claim.held:
            self._held[claim.pool, claim.id] = None
        else:
            self._line(claim)[claim.id] = None

    # -- what a plan changed ------------------------------------------------------------------------

    def changes(self) -> ImageChanges:
        ((pool, state),) = self._loaded.items()
        row = self._pools[pool]
        plain = "1" if is_fast_path(row, self.now) else "0"
        after = {**records.plan_fields(row), **self._mind(pool), "plain": plain}
        if state.fields:
            # By value: what a script wrote as 5 and what we write as 5.0 is the same.
            before = {**state.fields, **records.plan_fields(records.pool_row(pool, state.fields))}
            after.update(self._budget_fields(pool, state))
        else:
            before = {}
            after.update(records.first_fields(row))
        planned = before.get("version") != after["version"]
        if not planned:
            # Another plan may come first, and what it says of the limits stays.
            after = {
                name: text
                for name, text in after.items()
                if name not in before or name.startswith("pot:") or name == "valid_until"
            }
        return ImageChanges(
            version=state.fields.get("version", ""),
            planned=planned,
            heard=len(state.events),
            pool={name: text for name, text in after.items() if before.get(name) != text},
            read={
                name: state.fields[name]
                for name in (*_MOVED_BY_ALL, *([] if planned else ["valid_until"]))
                if name in state.fields and before.get(name) != after.get(name, before.get(name))
            },
            projects=dict(self._changed_projects(pool, state)),
            facts=tuple(self._new_facts),
            **self._division(pool, state),
            notices=tuple(self.notices),
        )

    def _budget_fields(self, pool: str, state: PoolState) -> dict[str, str]:
        budget, was = self._budgets.get(pool), records.parse_budget(state.fields, epoch=state.epoch)
        if budget is None or was is None:
            return {}
        fields, kept = records.budget_fields(budget), records.budget_fields(was)
        changed = {name: text for name, text in fields.items() if kept[name] != text}
        if "pot:epoch" in changed:
            changed["pot:epoch"] = state.epoch
        return changed

    def _division(self, pool: str, state: PoolState) -> Division:
        """What became of the share leases. Their counts follow from it where it is swapped in."""
        found, known = self._shares.get(pool, {}), state.shares or {}
        stay = [(lease, known[name]) for name, lease in found.items()]
        return {
            "divided": state.fields.get("pot:version", "0") if self._divided else "",
            "targets": {lease.name: lease.target for lease, was in stay if lease.target != was.target},
            "short": tuple(lease.name for lease, was in stay if lease.short and not was.short),
            "served": tuple(lease.name for lease, was in stay if was.short and not lease.short),
            "gone": tuple(name for name in known if name not in found),
        }

    def _mind(self, pool: str) -> dict[str, str]:
        """Settings and memory, and the little of them that ends of leases ask about."""
        settings, memory = self.settings(pool), self.memory(pool)
        resolved = codec.load_settings(settings)
        return {
            "settings": settings,
            "memory": memory,
            "by_success": "1" if controller_for(resolved).by_success else "0",
            "refused_at": repr(codec.load_memory(memory).quota.refused_at),
            **records.terms_fields(resolved.share_terms),
        }

    def _changed_projects(self, pool: str, state: PoolState) -> Iterable[tuple[str, tuple[str, str, str]]]:
        for (of, name), use in self._projects.items():
            if of == pool:
                line = state.projects.get(name)
                if line is None or _terms(records.parse_project(name, line)) != _terms(use):
                    yield name, _terms(use)


def _terms(use: ProjectUse) -> tuple[str, str, str]:
    return records.dump_number(use.weight), records.dump_number(use.maximum), records.dump_number(use.share)
