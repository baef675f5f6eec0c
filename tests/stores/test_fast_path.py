"""One table says when nothing is in the way; what each store compares is that table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files

import pytest

from flyball.core.pool.model import Limits, Meters, Phase, PoolCounts
from flyball.core.pool.plan import FOREVER_S
from flyball.core.pool.rate_window import declared_window
from flyball.core.pool.settings import MachineSettings, ShareRule
from flyball.stores.fast_path import CONDITIONS, Condition, For, In, Kept, conditions, is_fast_path, sql
from flyball.stores.rows import PoolRow

NOW = 1000.0
LIMITS = Limits(1, NOW + 60, 4, 8, 0, Phase.CLOSED, None, 0.0, 0.0, ShareRule.LEND, 300.0)
STEPS = pytest.mark.parametrize(("step", "name"), [(For.GRANT, "fast_admit"), (For.END, "fast_end")])


def row(limits: Limits = LIMITS, meters: Meters | None = None) -> PoolRow:
    return PoolRow("p", limits, meters or Meters(), PoolCounts(0, 0, 0), 0, 1, MachineSettings())


def in_the_way() -> Iterator[tuple[str, PoolRow]]:
    yield "pool.phase", row(replace(LIMITS, phase=Phase.OPEN))
    yield "pool.closed_until", row(replace(LIMITS, closed_until=NOW + 5))
    yield "pool.spacing_s", row(replace(LIMITS, spacing_s=0.5))
    yield "pool.reserve", row(replace(LIMITS, reserve=1))
    yield "pool.share", row(replace(LIMITS, share=ShareRule.STRICT))
    yield "pool.next_grant_at", row(meters=Meters(next_grant_at=NOW + 1))
    yield "pool.work", row(meters=Meters(work=1.0))
    yield "pool.windows", row(meters=Meters(windows=(declared_window("requests", 60, 60.0, NOW),)))


def kept_with_plan() -> set[str]:
    return {it.column for it in CONDITIONS if it.kept is Kept.WITH_PLAN and it.store is In.ALL}


def apart(store: In, step: For) -> list[Condition]:
    return [it for it in conditions(store, step) if it.kept is Kept.APART]


def test_a_pool_with_nothing_in_the_way_is_on_the_fast_path() -> None:
    assert is_fast_path(row(), NOW)
    assert is_fast_path(row(meters=Meters(next_grant_at=NOW)), NOW)


def test_each_condition_of_the_plan_takes_a_pool_off_the_fast_path() -> None:
    cases = dict(in_the_way())
    assert cases.keys() == kept_with_plan()
    assert [column for column, blocked in cases.items() if is_fast_path(blocked, NOW)] == []


@STEPS
def test_the_functions_of_postgres_compare_what_the_table_says(step: For, name: str) -> None:
    script = files("flyball.stores.postgres").joinpath("002_short_way.sql").read_text(encoding="utf-8")
    (body,) = re.findall(rf"CREATE FUNCTION {name}\(.*?END \$\$;", script, re.DOTALL)
    (where,) = re.findall(
        r"UPDATE pool AS p SET(?:(?!UPDATE).)*?WHERE (.*?)(?:RETURNING|;)", body, re.DOTALL
    )[:1]
    compared = {" ".join(one.split()) for one in where.split(" AND ")}
    spelt = {
        part.replace("pool.", "p.").replace(str(2 * FOREVER_S), "2 * forever_s")
        for condition in apart(In.POSTGRES, step)
        for part in sql(condition, now="now_at").split(" AND ")
    }
    of_itself = {
        For.GRANT: {"p.name = a_pool", "p.in_use + a_slots <= p.cap", "p.next_id % id_block <> 0"},
        For.END: {"p.name = of_pool", "p.trial_id IS DISTINCT FROM a_id"},
    }
    assert compared == spelt | {"p.plain"} | of_itself[step]


@STEPS
def test_the_scripts_of_redis_compare_what_the_table_says(step: For, name: str) -> None:
    script = files("flyball.stores.redis").joinpath("lua", "operations", f"{name}.lua")
    text = script.read_text(encoding="utf-8")
    (read,) = re.findall(r"call\('HMGET', KEYS\[1\] \.\. 'pool', (.*?)\)\n", text, re.DOTALL)
    place = {field.split("'")[1]: number for number, field in enumerate(read.split(","), 1)}
    (compared,) = re.findall(r"if v and (.*) then", text)
    zero = [it.column for it in apart(In.REDIS, step) if it.value == 0]
    spelt = [f"v[{place['plain']}] == '1'"]
    spelt += [f"v[{place[column.removeprefix('pool.')]}] == '0'" for column in zero]
    assert set(compared.split(" and ")) == {*spelt, f"v[{place['use:']}]"}
    assert "valid_for_s > 0 and valid_for_s <= 2 * FOREVER_S" in text
    rest = {it.column for it in apart(In.REDIS, step)} - {*zero, "pool.valid_until"}
    # The fourth field of a project's line is its maximum: it has to be empty.
    assert rest == ({"project.maximum"} if r"'^(%d+)(\t%d+\t[^\t]*\t\t.*)$'" in text else set())
