"""Limits over all pools of one machine: ceiling, memory floor, kinds of resources."""

from __future__ import annotations

from flyball.core.pool.settings import AGENTS_POOL, MachineSettings
from flyball.core.pool.verdict import Reason
from flyball.errors import UsageError
from flyball.testing.store_checks.scenario import Scene, expect, expect_equal, machine_check, store_check

GIB = 1 << 30


@store_check
def without_machine_limits_the_pools_add_up(s: Scene) -> None:
    for pool in ("p", "q"):
        for _ in range(8):
            s.take(pool=pool)


@machine_check
def the_machines_ceiling_holds_over_all_pools(s: Scene) -> None:
    s.store.set_machine(MachineSettings(ceiling=3))
    s.take(pool="p", slots=2)
    s.take(pool="q")
    verdict = s.expect_refusal(Reason.MACHINE, pool="q")
    expect(verdict.blocker is not None, "a full machine names a blocker")


@machine_check
def a_call_of_an_agent_needs_no_more_of_the_machine_than_its_agent(s: Scene) -> None:
    s.store.set_machine(MachineSettings(ceiling=2))
    s.static(1, "p")
    for name in ("t-1", "t-2"):
        s.take(name=name, pool=AGENTS_POOL)
    call = s.take(name="t-1", pool="p")
    waits = s.park(name="t-2", pool="p")
    expect_equal(s.nowait(name="t-1", pool=AGENTS_POOL).reason, Reason.MACHINE, "another agent")
    expect_equal(s.nowait(name="other", pool="q").reason, Reason.MACHINE, "what is not an agent's call")
    s.release(call)
    expect(s.is_held(waits), "the next call is granted although the machine is full")


@machine_check
def a_slot_freed_in_one_pool_goes_to_who_waits_in_another(s: Scene) -> None:
    s.store.set_machine(MachineSettings(ceiling=1))
    lease = s.take(pool="p")
    ask = s.park(pool="q")
    after = s.release(lease)
    expect(s.is_held(ask), "granted in the step that freed the slot")
    expect_equal([wake.claim_id for wake in after.wakes], [ask], "woken")


@machine_check
def a_slot_taken_back_in_one_pool_goes_to_who_waits_in_another(s: Scene) -> None:
    s.store.set_machine(MachineSettings(ceiling=1))
    lease = s.take(pool="p")
    ask = s.park(pool="q")
    s.reclaim(lease)
    expect(s.is_held(ask), "granted")


@machine_check
def a_raised_ceiling_lets_the_waiting_in(s: Scene) -> None:
    s.store.set_machine(MachineSettings(ceiling=1))
    s.take(pool="p")
    ask = s.park(pool="q")
    after = s.store.set_machine(MachineSettings(ceiling=2))
    expect(s.is_held(ask), "granted")
    expect_equal([wake.claim_id for wake in after.wakes], [ask], "woken")


@machine_check
def an_ask_above_the_machines_ceiling_is_refused_at_once(s: Scene) -> None:
    s.store.set_machine(MachineSettings(ceiling=2))
    verdict, _ = s.store.admit(s.ask(slots=3), park=True)
    expect_equal(verdict.reason, Reason.TOO_LARGE, "the reason")


@machine_check
def a_large_ask_is_not_overtaken_for_ever_under_the_machines_ceiling(s: Scene) -> None:
    s.static(8)
    s.store.set_machine(MachineSettings(ceiling=3))
    lease, other = s.take("b"), s.take("b")
    large = s.park("a", slots=3)
    s.wait(120)
    s.store.admit(s.ask("b"), park=True)
    s.release(lease)
    s.release(other)
    expect(s.is_held(large), "small asks keep taking the slots a large one waits for")


@machine_check
def a_resource_is_counted_over_all_pools(s: Scene) -> None:
    s.store.set_machine(MachineSettings(resources={"docker": 2}))
    s.take(pool="p", resources={"docker": 1})
    s.take(pool="q", resources={"docker": 1})
    verdict = s.expect_refusal(Reason.RESOURCE, pool="q", resources={"docker": 1})
    expect(verdict.blocker is not None, "a used-up resource names a blocker")
    s.take(pool="q")
    expect_equal(dict(s.store.snapshot().resources_in_use), {"docker": 2}, "units in use")


@machine_check
def a_resource_freed_in_one_pool_goes_to_who_waits_in_another(s: Scene) -> None:
    s.store.set_machine(MachineSettings(resources={"gpu": 1}))
    lease = s.take(pool="p", resources={"gpu": 1})
    ask = s.park(pool="q", resources={"gpu": 1})
    after = s.release(lease)
    expect(s.is_held(ask), "granted in the step that freed the resource")
    expect_equal([wake.claim_id for wake in after.wakes], [ask], "woken")


@machine_check
def who_waits_for_a_resource_keeps_nobody_else_waiting(s: Scene) -> None:
    s.store.set_machine(MachineSettings(resources={"gpu": 1}))
    s.take(resources={"gpu": 1})
    s.park(resources={"gpu": 1})
    verdict, _ = s.store.admit(s.ask("b"), park=True)
    expect(verdict.granted, "an ask that needs no gpu")


@machine_check
def more_of_a_resource_than_there_is_cannot_be_asked_for(s: Scene) -> None:
    s.store.set_machine(MachineSettings(resources={"gpu": 1}))
    for resources in ({"gpu": 2}, {"gpu": 0}, {"tpu": 1}):
        try:
            s.store.admit(s.ask(resources=resources), park=True)
        except UsageError:
            continue
        raise AssertionError(f"accepted {resources}")


@machine_check
def while_too_much_work_waits_for_a_cpu_nothing_starts_but_the_calls_of_agents(s: Scene) -> None:
    s.store.set_machine(MachineSettings(cpu_pressure=60))
    s.take(name="t-1", pool=AGENTS_POOL)
    s.world.cpu_pressure = 61.0
    s.expect_refusal(Reason.CPU)
    s.take(name="t-1")
    s.world.cpu_pressure = 60.0
    s.take()
    s.world.cpu_pressure = None
    s.take()


@machine_check
def below_the_memory_floor_nothing_starts(s: Scene) -> None:
    s.store.set_machine(MachineSettings(memory_floor_bytes=2 * GIB))
    s.world.memory_free_bytes = GIB
    s.expect_refusal(Reason.MEMORY)
    ask = s.park()
    s.world.memory_free_bytes = 2 * GIB
    expect(s.poll(ask).granted, "granted once there is memory again")


@machine_check
def where_free_memory_is_unknown_the_floor_is_ignored(s: Scene) -> None:
    s.store.set_machine(MachineSettings(memory_floor_bytes=GIB))
    s.take()


@machine_check
def a_change_of_the_machine_touches_only_what_it_names(s: Scene) -> None:
    s.store.set_machine(MachineSettings(ceiling=7, memory_floor_bytes=GIB, resources={"gpu": 2}))
    s.store.change_machine({"resources": {"docker": 3}})
    s.store.change_machine({"memory_floor_bytes": None})
    expect_equal(s.store.machine(), MachineSettings(7, None, {"gpu": 2, "docker": 3}), "the settings")
    s.store.change_machine({"resources": {"gpu": 0}})
    expect_equal(dict(s.store.machine().resources), {"docker": 3}, "the resources")


@machine_check
def machine_settings_are_kept(s: Scene) -> None:
    wanted = MachineSettings(ceiling=7, memory_floor_bytes=GIB, resources={"gpu": 2, "docker": 3})
    s.store.set_machine(wanted)
    expect_equal(s.store.machine(), wanted, "the settings")
    expect_equal(s.store.snapshot().machine, wanted, "the settings in the snapshot")
