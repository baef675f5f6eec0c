"""Of a pool's screen: the nodes that hold share leases, and the hosts behind the other leases.

A pool that one machine uses shows none of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flyball.cli.render import Block, Column, Line, Piece, Style, Table, Words
from flyball.cli.units import counted
from flyball.core.terms import AllotRule
from flyball.core.verdict import span_words
from flyball.governor.fleet_status import HostStatus, ShareStatus
from flyball.governor.status import PoolStatus

_SHORT = 6
"""Of an incarnation: enough to tell the few of one node apart."""


def nodes_of(pool: PoolStatus) -> list[ShareStatus]:
    """Those that have not left."""
    return [share for share in pool.shares if not share.over]


def share_words(pool: PoolStatus) -> Iterator[tuple[str, Words]]:
    """Labelled lines about all nodes together."""
    nodes = nodes_of(pool)
    if nodes:
        grace = f", grace {span_words(pool.grace_s)}" if pool.grace_s else ""
        parts = "evenly" if pool.allotment == AllotRule.EVEN.value else f"by {pool.allotment}"
        yield "shares", f"{_sums(nodes)}; divided {parts}, a beat every {pool.heartbeat_s:g} s{grace}"
    if pool.learning_for_s is not None:
        wait = f"the store has just begun: nobody grows for {span_words(pool.learning_for_s)}"
        yield "learning", Piece(wait, Style.WARN)


def _sums(nodes: Sequence[ShareStatus]) -> str:
    slots, flying = sum(node.slots for node in nodes), sum(node.in_flight for node in nodes)
    return f"{counted(slots, 'slot')} in {counted(len(nodes), 'node')}, {flying} in flight"


def share_blocks(pool: PoolStatus, *, rows: int) -> Iterator[Block]:
    nodes = nodes_of(pool)
    if not nodes:
        return
    weighed = any(node.weight != 1.0 for node in nodes)
    columns = [Column("NODE"), *(Column(title, right=True) for title in _titles(weighed=weighed))]
    # Where not all fit, those that something is to be said about are not the ones left out.
    first = sorted(nodes, key=lambda node: (not node_note(node), node.node, node.incarnation))[:rows]
    shown = sorted(first, key=lambda node: (node.node, node.incarnation))
    yield Table([*columns, Column("", wraps=True)], [_row(node, weighed=weighed) for node in shown])
    if len(nodes) > rows:
        rest = [node for node in nodes if node not in first]
        yield _quiet_line(f"and {_sums(rest)}; --json lists them")


def _titles(*, weighed: bool) -> list[str]:
    return ["SLOTS", "TARGET", "IN FLIGHT", "WANTS", *(["WEIGHT"] * weighed), "EXPIRES"]


def _row(node: ShareStatus, *, weighed: bool) -> list[Words]:
    numbers = [str(number) for number in (node.slots, node.target, node.in_flight, node.wants)]
    numbers += [f"{node.weight:g}"] * weighed
    name: Words = [node.node, " ", Piece(short(node), Style.QUIET)]
    return [name, *numbers, span_words(node.expires_in_s), node_note(node)]


def short(node: ShareStatus) -> str:
    """Its incarnation for people."""
    return node.incarnation[:_SHORT]


def node_note(node: ShareStatus) -> Words:
    """What a person should know about one node; empty where all is well."""
    notes: list[str | Piece] = []
    if node.fenced:
        notes.append(Piece(f"fenced, silent for {span_words(node.renewed_s_ago)}", Style.BAD))
    elif node.silent:
        notes.append(Piece(f"silent for {span_words(node.renewed_s_ago)}", Style.WARN))
    if node.draining:
        notes.append("draining")
    elif node.target < node.slots:
        notes.append(f"asked to go to {node.target}")
    if node.owed:
        notes.append(f"{node.owed} more than it was granted")
    return [part for note in notes for part in (", ", note)][1:]


def host_blocks(pool: PoolStatus, *, rows: int) -> Iterator[Block]:
    """Only where leases are held elsewhere."""
    if all(host.here for host in pool.hosts):
        return
    columns = [Column("HOST"), Column("LEASES", right=True), Column("SLOTS", right=True), Column("HEARD")]
    first = sorted(pool.hosts, key=lambda host: (not host.silent, host.host))[:rows]
    shown = sorted(first, key=lambda host: (host.host, host.boot))
    yield Table(columns, [[host.host, str(host.leases), str(host.slots), host_words(host)] for host in shown])
    if len(pool.hosts) > rows:
        yield _quiet_line(f"and {counted(len(pool.hosts) - rows, 'more host')}; --json lists them")


def host_words(host: HostStatus) -> Words:
    if host.heard_s_ago is None:
        return "here" if host.here else Piece("not yet", Style.QUIET)
    if host.silent:
        ago = span_words(host.heard_s_ago)
        return Piece(f"not for {ago}; its leases stay counted", Style.WARN)
    return f"{span_words(host.heard_s_ago)} ago"


def _quiet_line(text: str) -> Line:
    return Line(Piece(text, Style.QUIET), indent=2)
