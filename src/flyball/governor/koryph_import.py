"""Reads a koryph ``governor.json`` into settings and learned state.

Two shapes exist: ``{"pools": {provider: {...}}}``, and the older flat document that *is* the one pool
``anthropic``. koryph keeps what people set and what it learned in one record; here they part: settings into
``PoolChanges``, learned state into ``LearnedState``. Its times are wall-clock texts; they become distances
from ``wall`` and are placed around ``now`` on the store's clock, clamped so that a wrong clock cannot close a
pool for longer than its own settings would.

Pure: the document goes in parsed, and nothing is half done. Whatever does not fit raises ``UsageError``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from flyball.core.pool.breaker import BreakerState
from flyball.core.pool.learned import CapState, CooldownState
from flyball.core.pool.model import Phase
from flyball.core.pool.plan import LearnedState
from flyball.core.pool.setting_table import resolve_pool
from flyball.core.pool.settings import DEFAULT_POOL, PoolChanges, PoolSettings, check_name
from flyball.errors import UsageError

DEFAULT_CAP = 8
_LONG_AGO_S = 30 * 86400.0
_PHASES = {"": Phase.CLOSED, "open": Phase.OPEN, "half-open": Phase.TRIAL}
_POOL_FIELDS = frozenset(
    [
        "max_global_agents",
        "adaptive",
        "hard_max",
        "dynamic_cap",
        "last_decrease_at",
        "last_rate_limit_at",
        "last_probe_at",
        "rate_limit_events",
        "settle_seconds",
        "settle_until",
        "recent_rate_limit_events",
        "recent_decreases",
        "break_seconds",
        "breaker_state",
        "breaker_open_at",
        "breaker_break_seconds",
        "breaker_reopen_count",
        "probe_project",
        "probe_bead",
        "probe_admitted_at",
        "min_dispatch_interval_seconds",
        "last_admit_at",
        "min_free_memory_mb",
    ]
)
"""Known, though who koryph's own trial was and when it last started something stay behind."""


@dataclass(frozen=True, slots=True)
class ImportedPool:
    name: str
    changes: PoolChanges
    settings: PoolSettings
    memory: LearnedState


@dataclass(frozen=True, slots=True)
class Imported:
    """Everything a file says. The machine's values are None or empty where it says nothing."""

    pools: tuple[ImportedPool, ...]
    ceiling: int | None = None
    memory_floor_bytes: int | None = None
    resources: Mapping[str, int] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    """Fields of the file that have no counterpart here."""


def read(document: object, *, wall: float, now: float) -> Imported:
    """The pools of a parsed ``governor.json``. ``wall`` is Unix time, ``now`` the store's clock."""
    top = _JsonFields(document, "the file")
    if "pools" not in top:
        pools = {DEFAULT_POOL: _JsonFields(document, "the file")}
        if not any(name in top for name in _POOL_FIELDS):
            raise UsageError("this is not a koryph governor.json: it has neither pools nor a pool's settings")
    else:
        pools = _pools(top)
    clock = _Clock(wall, now)
    imported = tuple(_pool(name, record, clock) for name, record in sorted(pools.items()))
    floors = [record.whole("min_free_memory_mb") for record in pools.values()]
    kinds, unknown_kinds = _resources(top)
    ignored = {name for record in pools.values() for name in record.others(_POOL_FIELDS)}
    if "pools" in top:
        ignored |= set(top.others(frozenset(["pools", "max_machine_agents", "resources"]))) | unknown_kinds
    ceiling = top.whole("max_machine_agents")
    return Imported(
        imported,
        ceiling if ceiling > 0 else None,
        max(floors) << 20 if max(floors) > 0 else None,
        kinds,
        tuple(sorted(ignored)),
    )


def _pools(top: _JsonFields) -> dict[str, _JsonFields]:
    entries = top.record("pools")
    pools: dict[str, _JsonFields] = {}
    for name, value in entries.items():
        pool = check_name("pool", name or DEFAULT_POOL)
        if pool in pools:
            raise UsageError(f"the file names the pool {pool!r} twice")
        pools[pool] = _JsonFields(value, f"pool {pool!r}")
    if not pools:
        raise UsageError("the file has no pools: there is nothing to import")
    return pools


def _resources(top: _JsonFields) -> tuple[dict[str, int], set[str]]:
    if "resources" not in top:
        return {}, set()
    ledger = _JsonFields(top.record("resources"), "resources")
    lost = {f"resources.{name}" for name in ledger.others(frozenset(["kinds"]))}
    kinds: dict[str, int] = {}
    for kind, value in ledger.record("kinds").items():
        record = _JsonFields(value, f"resource {kind!r}")
        # koryph lets a kind without a capacity run one at a time.
        kinds[check_name("resource", kind)] = max(1, record.whole("capacity"))
        lost |= {f"resources.{name}" for name in record.others(frozenset(["capacity"]))}
    return kinds, lost


def _pool(name: str, record: _JsonFields, clock: _Clock) -> ImportedPool:
    changes = _changes(record)
    try:
        settings = resolve_pool(changes)
    except UsageError as error:
        raise UsageError(f"{record.where}: {error}") from None
    breaker = _breaker(record, settings, clock) if settings.adaptive else BreakerState()
    return ImportedPool(name, changes, settings, LearnedState(_cap(record, settings, clock), breaker))


def _changes(record: _JsonFields) -> PoolChanges:
    cap = record.whole("max_global_agents")
    cap = cap if cap > 0 else DEFAULT_CAP
    if not record.flag("adaptive"):
        return {"adaptive": False, "cap": cap}
    ceiling = record.whole("hard_max")
    ceiling = ceiling if ceiling > 0 else 2 * cap
    # koryph holds the cap under its hard maximum even where it was set above it.
    changes: PoolChanges = {
        "profile": "agents",
        # What it learned keeps its meaning only under its own rules.
        "controller": "koryph",
        "adaptive": True,
        "cap": min(cap, ceiling),
        "cap_ceiling": ceiling,
    }
    for theirs, ours in _DURATIONS.items():
        seconds = record.whole(theirs)
        if seconds > 0:
            changes[ours] = float(seconds)  # type: ignore[literal-required]
    if changes.get("break_s", 0.0) > resolve_pool({"profile": "agents"}).break_max_s:
        # A long break is taken over as it is, and then is also the longest.
        changes["break_max_s"] = changes["break_s"]
    return changes


_LARGEST = 10**15
_DURATIONS = {
    "settle_seconds": "settle_s",
    "break_seconds": "break_s",
    "min_dispatch_interval_seconds": "spacing_s",
}


def _cap(record: _JsonFields, s: PoolSettings, clock: _Clock) -> CapState:
    level = record.whole("dynamic_cap") if s.adaptive else 0
    cut_at = clock.past(record.time("last_decrease_at"))
    settle_until, settling = _settle(record, s, clock, cut_at)
    cuts = [clock.past(at) for at in record.times("recent_decreases")]
    throttles = [
        (at, str(event.get("project") or ""), str(event.get("bead") or ""))
        for event in record.events("recent_rate_limit_events")
        if (at := clock.past(event.time("at"))) is not None and clock.now - at <= s.burst_window_s
    ]
    return CapState(
        level=float(max(s.cap_floor, min(level if level > 0 else s.cap, s.cap_ceiling))),
        settle_until=settle_until,
        settling=settling,
        last_cut_at=cut_at,
        cuts=tuple(at for at in cuts if at is not None and clock.now - at <= s.trip_window_s),
        throttles=tuple(throttles),
        throttle_count=max(0, record.whole("rate_limit_events")),
        last_throttle_at=clock.past(record.time("last_rate_limit_at")),
    )


def _settle(
    record: _JsonFields, s: PoolSettings, clock: _Clock, cut_at: float | None
) -> tuple[float, CooldownState]:
    """koryph counts quiet from the settle's end or the last probe, whichever is later; so do we."""
    until = clock.until(record.time("settle_until"), at_most_s=s.settle_s)
    if not s.adaptive or until is None:
        return 0.0, CooldownState.NONE
    after_cut = cut_at is not None and until - cut_at <= s.settle_s + 1.0
    probed = clock.past(record.time("last_probe_at"))
    return max(
        until, probed if probed is not None else until
    ), CooldownState.CUT if after_cut else CooldownState.PROBE


def _breaker(record: _JsonFields, s: PoolSettings, clock: _Clock) -> BreakerState:
    word = record.text("breaker_state").replace("_", "-").lower()
    word = "" if word == "closed" else word
    if word not in _PHASES:
        raise UsageError(f"{record.where}: breaker_state {word!r} is none of open, half-open, or empty")
    phase = _PHASES[word]
    if phase is Phase.CLOSED:
        return BreakerState()
    opened = record.time("breaker_open_at")
    break_s = min(float(record.whole("breaker_break_seconds") or s.break_s), s.break_max_s)
    opened_at = clock.past(opened)
    opened_at = opened_at if opened_at is not None else clock.now
    return BreakerState(
        phase,
        open_until=opened_at + break_s,
        reopens=max(0, record.whole("breaker_reopen_count")),
        since=opened_at,
        why="throttled under koryph",
    )


@dataclass(frozen=True, slots=True)
class _Clock:
    """Wall-clock times as times of the store."""

    wall: float
    now: float

    def past(self, at: float | None) -> float | None:
        """Something that happened: not in the future, and not absurdly long ago."""
        return None if at is None else self.now - min(max(0.0, self.wall - at), _LONG_AGO_S)

    def until(self, at: float | None, *, at_most_s: float) -> float | None:
        """A deadline: no further away than its own setting could have put it."""
        return None if at is None else self.now + max(-_LONG_AGO_S, min(at - self.wall, at_most_s))


class _JsonFields:
    """One JSON object, read field by field. ``max_global_agents`` and ``MaxGlobalAgents`` are the same."""

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, Mapping):
            names = {list: "a list", str: "text", bool: "true or false", type(None): "null"}
            kind = names.get(type(value), "a number")
            raise UsageError(f"{where} must be a JSON object, not {kind}")
        self.where = where
        self._values = {_key(str(name)): item for name, item in value.items()}
        self._names = {_key(str(name)): str(name) for name in value}

    def __contains__(self, name: str) -> bool:
        return _key(name) in self._values

    def get(self, name: str) -> object:
        return self._values.get(_key(name))

    def others(self, known: frozenset[str]) -> list[str]:
        keys = {_key(name) for name in known}
        return [name for key, name in self._names.items() if key not in keys]

    def whole(self, name: str) -> int:
        value = self.get(name)
        if value is None:
            return 0
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(name, "a whole number")
        if abs(value) > _LARGEST:
            raise self._wrong(name, f"a whole number up to {_LARGEST}")
        return value

    def flag(self, name: str) -> bool:
        value = self.get(name)
        if value is not None and not isinstance(value, bool):
            raise self._wrong(name, "true or false")
        return bool(value)

    def text(self, name: str) -> str:
        value = self.get(name)
        if value is not None and not isinstance(value, str):
            raise self._wrong(name, "text")
        return value or ""

    def time(self, name: str) -> float | None:
        text = self.text(name)
        return self._parse_time(name, text) if text else None

    def times(self, name: str) -> list[float | None]:
        return [self._parse_time(name, item) for item in self._list(name)]

    def events(self, name: str) -> list[_JsonFields]:
        return [_JsonFields(item, f"{self.where}: an entry of {name}") for item in self._list(name)]

    def record(self, name: str) -> Mapping[str, object]:
        value = self.get(name)
        if value is not None and not isinstance(value, Mapping):
            raise self._wrong(name, "a JSON object")
        return value or {}

    def _list(self, name: str) -> list[object]:
        value = self.get(name)
        if value is not None and not isinstance(value, list):
            raise self._wrong(name, "a list")
        return value or []

    def _parse_time(self, name: str, text: object) -> float | None:
        try:
            at = datetime.fromisoformat(str(text))
        except ValueError:
            raise self._wrong(name, "a time such as 2026-07-21T10:00:00Z") from None
        at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        # Go writes its zero time for "never".
        return at.timestamp() if at.year > 1 else None

    def _wrong(self, name: str, wanted: str) -> UsageError:
        return UsageError(f"{self.where}: {name} must be {wanted}, not {self.get(name)!r}")


def _key(name: str) -> str:
    return name.replace("_", "").lower()
