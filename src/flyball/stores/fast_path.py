"""When nothing stands in the way of a grant or an end: the conditions of the fast path, once for all stores.

Most asks meet a pool in which the cap is all that they have to be compared with. Each store then decides in
one statement or one short script, without the rule (core/pool/admission.py). ``CONDITIONS`` is narrower than
that rule, never wider: what it does not let pass goes the whole way.

SQLite reads all of them in its statement (sqlite/fast_path.py). PostgreSQL and Redis have two kinds: what
only a plan or a meter changes is decided by ``is_fast_path`` when that is written, and kept in the field
``plain``; the rest is compared by 002_short_way.sql, fast_admit.lua and fast_end.lua, which a test holds
against this table. Each compares with the cap by itself, and sees that an id is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import Enum, Flag, auto
from operator import attrgetter

from flyball.core.pool.model import Limits, Phase
from flyball.core.pool.plan import FOREVER_S
from flyball.core.pool.settings import ShareRule
from flyball.stores.codec import NOTHING_NAMED
from flyball.stores.rows import PoolRow


class Operator(Enum):
    IS = auto()
    IS_EMPTY = auto()
    IS_PAST = auto()
    """It is now, or was before."""
    IS_AHEAD = auto()
    """Less than so many seconds ahead; more is of a clock that has since gone back."""


class Kept(Enum):
    """Where PostgreSQL and Redis know a condition from."""

    WITH_PLAN = auto()
    """From ``plain``: nothing but a plan or a meter changes it."""
    APART = auto()
    """From its own field: grants, ends and asks change it."""


class For(Flag):
    GRANT = auto()
    END = auto()
    BOTH = GRANT | END


class In(Flag):
    SQLITE = auto()
    POSTGRES = auto()
    REDIS = auto()
    ALL = SQLITE | POSTGRES | REDIS


@dataclass(frozen=True, slots=True)
class Condition:
    """``column`` is of the table pool, project or machine."""

    column: str
    operator: Operator
    value: str | float | bool | None = None
    kept: Kept = Kept.WITH_PLAN
    step: For = For.BOTH
    store: In = In.ALL


CONDITIONS = (
    Condition("pool.phase", Operator.IS, Phase.CLOSED.value),
    Condition("pool.closed_until", Operator.IS, None),
    Condition("pool.spacing_s", Operator.IS, 0),
    Condition("pool.next_grant_at", Operator.IS_PAST),
    Condition("pool.share", Operator.IS, ShareRule.LEND.value),
    Condition("pool.work", Operator.IS, 0),
    Condition("pool.windows", Operator.IS_EMPTY),
    # With a reserve a pool is full below its cap, and what ends in a full one is counted.
    Condition("pool.reserve", Operator.IS, 0),
    Condition("pool.waiting", Operator.IS, 0, Kept.APART),
    Condition("pool.valid_until", Operator.IS_AHEAD, 2 * FOREVER_S, Kept.APART),
    # The others rely on the phase: a trial runs in another one.
    Condition("pool.trial_id", Operator.IS, None, store=In.SQLITE),
    # One machine's limits: servers that many machines share have none.
    Condition("machine.settings", Operator.IS, NOTHING_NAMED, Kept.APART, store=In.SQLITE),
    Condition("project.maximum", Operator.IS, None, Kept.APART, For.GRANT, In.SQLITE | In.REDIS),
    # Of any project of the pool, so that the pool's row is all that has to be read.
    Condition("pool.bounded", Operator.IS, False, Kept.APART, For.GRANT, In.POSTGRES),
    # What was said to the plan and not heard yet; elsewhere it is heard in the same step.
    Condition("pool.events", Operator.IS, 0, Kept.APART, store=In.REDIS),
)


def conditions(store: In, step: For) -> Iterator[Condition]:
    return (it for it in CONDITIONS if store in it.store and step in it.step)


def sql(condition: Condition, *, now: str) -> str:
    column, value = condition.column, condition.value
    match condition.operator:
        case Operator.IS_EMPTY:
            return f"{column} = ''"
        case Operator.IS_PAST:
            return f"{column} <= {now}"
        case Operator.IS_AHEAD:
            return f"{column} > {now} AND {column} <= {now} + {value}"
        case Operator.IS if value is None:
            return f"{column} IS NULL"
        case Operator.IS if value is False:
            return f"NOT {column}"
        case Operator.IS:
            return f"{column} = '{value}'" if isinstance(value, str) else f"{column} = {value}"


_LIMITS = {field.name for field in fields(Limits)}


def is_fast_path(row: PoolRow, now: float) -> bool:
    """Is the cap all that an ask has to be compared with, until the next plan?"""
    return all(_holds(read(row), condition, now) for read, condition in _READ)


def _holds(value: object, condition: Condition, now: float) -> bool:
    if condition.operator is Operator.IS_PAST:
        return isinstance(value, float | int) and value <= now
    if condition.operator is Operator.IS_EMPTY:
        return not value
    return (value.value if isinstance(value, Enum) else value) == condition.value


def _attribute_path(column: str) -> str:
    name = column.removeprefix("pool.")
    return f"limits.{name}" if name in _LIMITS else f"meters.{name}"


_READ = tuple(
    (attrgetter(_attribute_path(it.column)), it)
    for it in CONDITIONS
    if it.kept is Kept.WITH_PLAN and it.store is In.ALL
)
