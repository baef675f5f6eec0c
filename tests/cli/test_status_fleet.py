"""What ``status`` and the doctor say about nodes that hold share leases and hosts that hold leases."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest

from flyball.cli.doctor.pool_checks import DoctorFinding, Severity, check_fleet
from flyball.cli.ui.pool_status import ROWS, host_words, pool_blocks, status_screen
from flyball.cli.ui.render import plain, plain_words
from flyball.governor.governor import Governor
from flyball.governor.status import SILENT_S, HostStatus, PoolStatus, ShareStatus, Status, status_from
from flyball.testing import Scene
from flyball.testing.store_checks.share_leases import Node, let_learn, settle
from tests.cli.kit import Cli


def pool_of(scene: Scene) -> PoolStatus:
    return status_from(scene.store.snapshot(), "").pools[0]


def screen(scene: Scene) -> str:
    return plain(pool_blocks(pool_of(scene)))


def row(scene: Scene, node: str) -> list[str]:
    """The columns of a node, without its incarnation."""
    name, _, *rest = next(line for line in screen(scene).splitlines() if line.split()[0] == node).split()
    return [name, *rest]


def words(text: str) -> list[str]:
    return text.split()


def ready(scene: Scene, cap: int, **changes: object) -> None:
    """A pool of a fixed cap whose store knows that no process holds anything."""
    scene.static(cap, **changes)  # type: ignore[arg-type]
    let_learn(scene)


def shown(scene: Scene) -> dict[str, ShareStatus]:
    return {share.node: share for share in pool_of(scene).shares if not share.over}


# -- nodes that are in trouble ------------------------------------------------------------------------


def test_a_node_that_is_not_heard_for_two_beats_is_shown_as_silent_and_since_when(scene: Scene) -> None:
    ready(scene, 6)
    quiet, other = Node(scene, "quiet", wants=3), Node(scene, "other", wants=3)
    settle(quiet, other)
    scene.wait(2.5)
    other.renew()
    assert shown(scene)["quiet"].silent
    assert not shown(scene)["quiet"].fenced
    assert row(scene, "quiet") == words("quiet 3 3 3 3 1 s silent for 3 s")
    assert row(scene, "other")[-2:] == ["4", "s"], "nothing is said about one that was heard"


def test_a_node_whose_time_is_up_is_shown_as_fenced(scene: Scene) -> None:
    ready(scene, 6)
    lost, other = Node(scene, "lost", wants=3), Node(scene, "other", wants=3)
    settle(lost, other)
    scene.wait(3.75)
    other.renew()
    assert lost.may == 0, "it knows by itself"
    assert "fenced, silent for 4 s" in screen(scene)


def test_a_node_that_leaves_drains_until_its_work_has_ended_and_is_gone_then(scene: Scene) -> None:
    ready(scene, 6)
    leaver = Node(scene, "leaver", wants=4)
    leaver.renew()
    leaver.leave()
    leaver.end(1)
    leaver.renew()
    assert row(scene, "leaver") == words("leaver 3 0 3 0 4 s draining")
    leaver.end(3)
    leaver.renew()
    assert "leaver" not in screen(scene)
    assert [share.over for share in pool_of(scene).shares] == [True], "its name is kept for a moment"


def test_a_node_that_was_asked_for_less_shows_its_target(scene: Scene) -> None:
    ready(scene, 8)
    big = Node(scene, "big", wants=8)
    big.renew()
    scene.static(3)
    scene.wait(0.2)
    big.renew()
    assert row(scene, "big") == words("big 8 3 8 8 4 s asked to go to 3")


def test_work_that_came_to_light_is_shown_as_never_granted(scene: Scene) -> None:
    ready(scene, 4)
    lost, other = Node(scene, "lost", wants=4), Node(scene, "other", wants=4)
    lost.renew()
    scene.wait(0.1)
    other.renew()
    scene.wait(lost.terms.lease_s)
    other.renew()
    scene.wait(0.1)
    assert other.renew() == 4
    scene.wait(0.1)
    lost.renew()
    assert (lost.running, lost.may) == (4, 0)
    assert "4 more than it was granted" in screen(scene)
    assert "in use that were never granted, on lost" in found(scene)["owed"].words


def test_a_store_that_has_just_begun_says_that_no_node_grows(scene: Scene) -> None:
    scene.static(6)
    a = Node(scene, "a", wants=9)
    a.renew()
    scene.wait(1.0)
    assert "  learning  the store has just begun: no share grows for 3 s\n" in screen(scene)
    assert pool_of(scene).learning_for_s == pytest.approx(3.0)
    scene.wait(3.1)
    a.renew()
    assert "learning" not in screen(scene)
    assert pool_of(scene).learning_for_s is None


# -- nodes that are well --------------------------------------------------------------------------------


def test_a_pool_that_is_not_shared_says_nothing_of_it(scene: Scene) -> None:
    scene.static(6)
    scene.take()
    assert "NODE" not in screen(scene)
    assert "shares" not in screen(scene)


def test_the_nodes_are_summed_up(scene: Scene) -> None:
    ready(scene, 6, allotment="even", grace_s=30.0)
    settle(Node(scene, "a", wants=2), Node(scene, "b", wants=9))
    assert (
        "  shares    6 slots in 2 nodes, 5 in flight; divided evenly, a beat every 1 s, grace 30 s\n"
        in screen(scene)
    )
    assert "1 pool, 0 leases, 0 waiting, 2 nodes" in plain(
        status_screen(status_from(scene.store.snapshot(), ""))
    )


def test_weights_are_shown_where_there_are_any(scene: Scene) -> None:
    ready(scene, 6)
    settle(Node(scene, "a", wants=6, weight=2.5))
    assert "WEIGHT" in screen(scene)
    assert row(scene, "a")[1:] == words("6 6 6 6 2.5 4 s")


def test_of_many_nodes_those_with_trouble_are_not_left_out(scene: Scene) -> None:
    ready(scene, 60)
    nodes = [Node(scene, f"n{number:02}", wants=2) for number in range(30)]
    settle(*nodes, rounds=4)
    nodes[29].leave()
    nodes[29].renew()
    lines = screen(scene).splitlines()
    assert sum(line.split()[0].startswith("n") for line in lines) == ROWS
    assert any(line.startswith("  n29") and line.endswith("draining") for line in lines)
    assert lines[-1].startswith("  and ")
    assert lines[-1].endswith(" in flight; --json lists them")
    assert " in 10 nodes, " in lines[-1]
    assert len(shown(scene)) == 30


def test_names_of_any_script_keep_the_columns_straight(scene: Scene) -> None:
    from rich.cells import cell_len

    ready(scene, 9)
    settle(Node(scene, "größe", wants=2), Node(scene, "計算機 🚀", wants=2), Node(scene, "a\u200db", wants=2))
    table = [line for line in screen(scene).splitlines() if line.endswith("4 s") or "EXPIRES" in line]
    assert len(table) == 4
    assert len({cell_len(line) for line in table}) == 1


def test_two_processes_of_one_name_are_told_apart_by_their_incarnations(scene: Scene) -> None:
    ready(scene, 6)
    settle(Node(scene, "a", wants=3), Node(scene, "a", wants=3))
    assert screen(scene).count("\n  a ") == 2
    assert found(scene)["same-node a"].severity is Severity.NOTE


def test_the_record_is_json_and_back(scene: Scene) -> None:
    ready(scene, 6)
    settle(Node(scene, "größe", wants=2))
    status = status_from(scene.store.snapshot(), "")
    text = msgspec.json.encode(status)
    assert msgspec.json.decode(text, type=Status) == status
    (share,) = [share for share in json.loads(text)["pools"][0]["shares"] if not share["draining"]]
    wanted = {"node": "größe", "slots": 6, "target": 6, "in_flight": 2, "wants": 2, "weight": 1.0}
    assert {name: share[name] for name in wanted} == wanted


def test_looking_renews_nothing_and_evicts_no_node(scene: Scene) -> None:
    ready(scene, 6)
    Node(scene, "a", wants=2).renew()
    scene.wait(3.0)
    before = shown(scene)["a"]
    assert shown(scene)["a"] == before
    scene.wait(1.5)
    assert shown(scene) == {}, "as it would be"
    assert pool_of(scene).in_use == 0
    assert scene.fact_kinds().count("share") == 0, "and is not yet"


# -- hosts ----------------------------------------------------------------------------------------------


def test_hosts_elsewhere_are_listed_and_whether_they_are_heard(scene: Scene) -> None:
    scene.static(6)
    for _ in range(2):
        scene.take(holder=replace(scene.world.here, host="left", pid=7, start=7))
    scene.take(holder=replace(scene.world.here, host="right", pid=8, start=8))
    assert [(host.host, host.leases, host.here) for host in pool_of(scene).hosts] == [
        ("left", 2, False),
        ("right", 1, False),
    ]
    table = [line.split() for line in screen(scene).splitlines() if line.startswith(("  HOST", "  left  "))]
    assert table == [["HOST", "LEASES", "SLOTS", "HEARD"], ["left", "2", "2", "not", "yet"]]


@pytest.mark.parametrize(
    ("heard_s_ago", "here", "said"),
    [
        (None, True, "here"),
        (None, False, "not yet"),
        (1.2, False, "1 s ago"),
        (SILENT_S + 296, False, "not for 5 min; its leases stay counted"),
    ],
)
def test_what_is_known_of_a_host_is_said(heard_s_ago: float | None, here: bool, said: str) -> None:
    assert plain_words(host_words(HostStatus("h", "boot", here, 1, 1, heard_s_ago))) == said


# -- the doctor -----------------------------------------------------------------------------------------


def found(scene: Scene, hosts: Sequence[HostStatus] = ()) -> dict[str, DoctorFinding]:
    pool = replace(pool_of(scene), hosts=tuple(hosts))
    return {finding.kind: finding for finding in check_fleet([pool])}


def test_healthy_nodes_and_hosts_are_not_a_finding(scene: Scene) -> None:
    ready(scene, 6)
    settle(Node(scene, "a", wants=2), Node(scene, "b", wants=9))
    assert (
        found(scene, [HostStatus("h", "1", False, 1, 1, 1.0), HostStatus("h", "0", False, 1, 1, 50.0)]) == {}
    )


def test_a_restarted_node_is_not_a_second_process_of_its_name(scene: Scene) -> None:
    ready(scene, 6)
    Node(scene, "a", wants=3).renew()
    scene.wait(2.5)
    Node(scene, "a", wants=3).renew()
    assert set(found(scene)) == {"silent-node"}
    assert "1 node not renewing: a" in found(scene)["silent-node"].words
    assert "6 slots still counted; free for others in 2 s" in found(scene)["silent-node"].meaning


def test_a_host_that_vanished_with_its_leases_is_a_problem_with_a_way_out(scene: Scene) -> None:
    scene.static(6)
    finding = found(scene, [HostStatus("my box", "1", False, 2, 3, 300.0)])["silent-host my box"]
    assert finding.severity is Severity.PROBLEM
    assert finding.words == "host my box holds 3 slots and was not heard of for 5 min"
    assert "FLYBALL_HOST_ID='my box' flyball doctor --fix" in finding.remedy


def test_two_machines_of_one_name_are_a_problem(scene: Scene) -> None:
    scene.static(6)
    twins = [HostStatus("worker", boot, False, 1, 1, 1.0) for boot in ("1", "2")]
    assert "FLYBALL_HOST_ID" in found(scene, twins)["same-host worker"].remedy


# -- from the command line ------------------------------------------------------------------------------


def test_status_shows_the_shares_of_running_processes(cli: Cli, governor: Governor) -> None:
    governor.set_pool("anthropic", cap=4, adaptive=False, heartbeat_s=0.1)
    with governor.share("anthropic", node="wörker 🚀", weight=2) as share:
        assert share.wait_ready(10)
        with share.slot():
            assert share.renew(10)
            out = cli("status").out
            (record,) = cli("status", "--json").json["pools"][0]["shares"]
        assert cli("doctor").code == 0
    assert "4 slots in 1 node, 1 in flight; divided by demand, a beat every 0.1 s" in out
    assert f"wörker 🚀 {share.stats().incarnation[:6]} " in out
    assert (record["node"], record["slots"], record["in_flight"]) == ("wörker 🚀", 4, 1)
