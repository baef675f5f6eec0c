"""What the doctor can find about nodes and hosts that share a pool. Values in, findings out.

Most of it mends itself within seconds and is a note; a host that vanished with its leases, and two machines
under one name, need a person.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from flyball.cli.findings import FIX, Finding, Severity
from flyball.cli.fleet_screen import nodes_of, short
from flyball.cli.units import counted
from flyball.core.settings import LEASE_BACKSTOP_S
from flyball.core.verdict import span_words
from flyball.governor.fleet_status import ShareStatus
from flyball.governor.status import PoolStatus

VANISHED_S = 60.0
"""Of silence; a host that sleeps or restarts for a moment is no finding."""
_NAMES_SHOWN = 5


def of_fleet(pools: Iterable[PoolStatus]) -> Iterator[Finding]:
    for pool in pools:
        yield from _of_same_nodes(pool)
        yield from _of_silent_nodes(pool)
        yield from _of_owed(pool)
        yield from _of_silent_hosts(pool)
        yield from _of_same_hosts(pool)


def _of_same_nodes(pool: PoolStatus) -> Iterator[Finding]:
    """A node that was restarted leaves a silent lease behind; two that renew are two processes."""
    by_name: dict[str, list[ShareStatus]] = {}
    for node in nodes_of(pool):
        if not node.silent and not node.draining:
            by_name.setdefault(node.node, []).append(node)
    for name, nodes in by_name.items():
        if len(nodes) > 1:
            yield Finding(
                kind=f"same-node {name}",
                pool=pool.name,
                severity=Severity.NOTE,
                words=f"node {name} renews {len(nodes)} share leases: {_listed(short(n) for n in nodes)}",
                meaning="each process has a part of its own, so the node has more parts than others",
                remedy="give each process another name (share(node=...)), or one share to all of them",
            )


def _of_silent_nodes(pool: PoolStatus) -> Iterator[Finding]:
    silent = [node for node in nodes_of(pool) if node.silent and node.slots]
    if silent:
        slots, last_s = sum(node.slots for node in silent), max(node.expires_in_s for node in silent)
        yield Finding(
            kind="silent-node",
            pool=pool.name,
            severity=Severity.NOTE,
            words=f"{counted(len(silent), 'node')} not heard of: {_listed(node.node for node in silent)}",
            meaning=f"{counted(slots, 'slot')} still counted; free for others in {span_words(last_s)}",
            remedy="if they should run, look at their processes and at their way to the store",
        )


def _of_owed(pool: PoolStatus) -> Iterator[Finding]:
    owing = [node for node in nodes_of(pool) if node.owed]
    if owing:
        yield Finding(
            kind="owed",
            pool=pool.name,
            severity=Severity.NOTE,
            words=f"{counted(sum(node.owed for node in owing), 'slot')} in use that were never granted, on "
            + _listed(node.node for node in owing),
            meaning="work that outlived its lease, or began without the store; nothing starts in its place",
            remedy="on_fenced of a share can end such work, --grace of the pool leaves it time",
        )


def _of_silent_hosts(pool: PoolStatus) -> Iterator[Finding]:
    for host in pool.hosts:
        if host.heard_s_ago is not None and host.heard_s_ago > VANISHED_S:
            yield Finding(
                kind=f"silent-host {host.host}",
                pool=pool.name,
                words=f"host {host.host} holds {counted(host.slots, 'slot')} and was not heard of for "
                f"{span_words(host.heard_s_ago)}",
                meaning="they stay counted, for its work may still run, until "
                f"{span_words(LEASE_BACKSTOP_S)} after its last word",
                remedy=f"run {FIX} there; if the machine is gone for good, "
                f"FLYBALL_HOST_ID={shlex.quote(host.host)} {FIX} here",
            )


def _of_same_hosts(pool: PoolStatus) -> Iterator[Finding]:
    boots: dict[str, set[str]] = {}
    for host in pool.hosts:
        if host.heard_s_ago is not None and not host.silent:
            boots.setdefault(host.host, set()).add(host.boot)
    for name in (name for name, found in boots.items() if len(found) > 1):
        yield Finding(
            kind=f"same-host {name}",
            pool=pool.name,
            words=f"{len(boots[name])} machines call themselves {name}",
            meaning="each takes the leases of the other for those of its own last boot, and gives them away",
            remedy="name one of them otherwise, or set FLYBALL_HOST_ID there, for all its processes alike",
        )


def _listed(names: Iterable[str]) -> str:
    found = list(names)
    more = len(found) - _NAMES_SHOWN
    return ", ".join(found[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
