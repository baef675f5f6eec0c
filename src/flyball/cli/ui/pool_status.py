"""What a pool looks like to a person: what is happening, why, what next.

Values in, blocks out; nothing here reads the state or prints. A healthy idle pool is two lines; everything
else appears only when there is something to say about it. Nodes that hold share leases, and the hosts behind
the other leases, are shown only for a pool that several machines or processes share.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flyball.cli.ui.render import BLANK, Block, Column, Line, Piece, Style, Table, Words
from flyball.cli.ui.units import amount, command, counted, size_words
from flyball.core.pool.settings import CONTROLLERS, Counting, is_agents_pool
from flyball.core.pool.verdict import span_words
from flyball.core.share_lease.timing import AllotRule
from flyball.governor.status import (
    AskStatus,
    DemandStatus,
    HostStatus,
    LeaseStatus,
    MachineStatus,
    PoolStatus,
    ProjectStatus,
    RestStatus,
    ShareStatus,
    Status,
    WindowStatus,
)

_SHORT = 6
"""Letters of an incarnation: enough to tell the few of one node apart."""


def present_nodes(pool: PoolStatus) -> list[ShareStatus]:
    """Those that have not left."""
    return [share for share in pool.shares if not share.over]


def share_words(pool: PoolStatus) -> Iterator[tuple[str, Words]]:
    """Labelled lines about all nodes together."""
    nodes = present_nodes(pool)
    if nodes:
        grace = f", grace {span_words(pool.grace_s)}" if pool.grace_s else ""
        parts = "evenly" if pool.allotment == AllotRule.EVEN.value else f"by {pool.allotment}"
        yield "shares", f"{_sums(nodes)}; divided {parts}, a beat every {pool.heartbeat_s:g} s{grace}"
    if pool.learning_for_s is not None:
        wait = f"the store has just begun: no share grows for {span_words(pool.learning_for_s)}"
        yield "learning", Piece(wait, Style.WARN)


def _sums(nodes: Sequence[ShareStatus]) -> str:
    slots, flying = sum(node.slots for node in nodes), sum(node.in_flight for node in nodes)
    return f"{counted(slots, 'slot')} in {counted(len(nodes), 'node')}, {flying} in flight"


def share_blocks(pool: PoolStatus, *, rows: int) -> Iterator[Block]:
    nodes = present_nodes(pool)
    if not nodes:
        return
    weighed = any(node.weight != 1.0 for node in nodes)
    titles = ["SLOTS", "TARGET", "IN FLIGHT", "WANTS", *(["WEIGHT"] * weighed), "EXPIRES"]
    columns = [Column("NODE"), *(Column(title, right=True) for title in titles)]
    # Where not all fit, those that something is to be said about are not the ones left out.
    first = sorted(nodes, key=lambda node: (not node_note(node), node.node, node.incarnation))[:rows]
    shown = sorted(first, key=lambda node: (node.node, node.incarnation))
    yield Table([*columns, Column("", wraps=True)], [_node_row(node, weighed=weighed) for node in shown])
    if len(nodes) > rows:
        rest = [node for node in nodes if node not in first]
        yield _quiet_line(f"and {_sums(rest)}; --json lists them")


def _node_row(node: ShareStatus, *, weighed: bool) -> list[Words]:
    numbers = [str(number) for number in (node.slots, node.target, node.in_flight, node.wants)]
    numbers += [f"{node.weight:g}"] * weighed
    name: Words = [node.node, " ", Piece(short_incarnation(node), Style.QUIET)]
    return [name, *numbers, span_words(node.expires_in_s), node_note(node)]


def short_incarnation(node: ShareStatus) -> str:
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


ROWS = 20
"""Leases and asks shown per pool; ``--json`` has all of them."""


def status_screen(status: Status) -> list[Block]:
    if not status.pools:
        return list(_nothing_yet(status))
    blocks: list[Block] = [_headline(status)]
    for pool in status.pools:
        blocks += [BLANK, *pool_blocks(pool)]
    machine = machine_words(status.machine)
    if machine:
        blocks += [BLANK, Line(machine, label="machine")]
    hints = list(_hints(status))
    if hints:
        blocks += [BLANK, *(Line(hint, label="next" if n == 0 else " ") for n, hint in enumerate(hints))]
    return blocks


def place(location: str) -> str:
    """Where the state is, without what only programs need."""
    return location.removeprefix("sqlite://")


def _nothing_yet(status: Status) -> Iterator[Block]:
    yield Line(["Nothing runs and nothing waits: no pool is in use yet.  ", _quiet(place(status.location))])
    yield BLANK
    yield Line('flyball exec -- claude -p "fix the tests"', label="next")
    yield Line("runs a command under a slot of the pool anthropic; nothing needs to be set up", label=" ")
    machine = machine_words(status.machine)
    if machine:
        yield Line(machine, label="machine")


def _headline(status: Status) -> Block:
    running = sum(len(pool.leases) for pool in status.pools)
    waiting = sum(pool.waiting for pool in status.pools)
    dead = sum(lease.alive is False for pool in status.pools for lease in pool.leases)
    resting = sum(len(pool.resting) for pool in status.pools)
    nodes = sum(len(present_nodes(pool)) for pool in status.pools)
    words: list[str | Piece] = [
        f"{counted(len(status.pools), 'pool')}, {counted(running, 'lease')}, {waiting} waiting"
        + f", {resting} resting" * bool(resting)
        + f", {counted(nodes, 'node')}" * bool(nodes)
    ]
    if dead:
        words += [", ", Piece(f"{dead} dead", Style.BAD)]
    return Line([*words, "  ", _quiet(place(status.location))])


# -- one pool -------------------------------------------------------------------------------------


def pool_blocks(pool: PoolStatus) -> Iterator[Block]:
    yield Line([Piece(pool.name, Style.STRONG), "  ", *_use(pool)])
    yield from (Line(words, label=label, indent=2) for label, words in _why(pool))
    yield from share_blocks(pool, rows=ROWS)
    yield from _leases(pool.leases)
    yield from host_blocks(pool, rows=ROWS)
    yield from _asks(pool)
    yield from _resting(pool.resting)
    yield from _projects(pool)


def _use(pool: PoolStatus) -> Iterator[str | Piece]:
    yield f"{pool.in_use} of {counted(pool.cap, 'slot')} in use, "
    full = pool.free == 0
    yield Piece(f"{pool.free} free", Style.WARN if full else Style.GOOD)
    if pool.reserve:
        yield f", {pool.reserve} reserved"
    if pool.waiting:
        yield ", "
        yield Piece(f"{pool.waiting} waiting", Style.WARN)


def _why(pool: PoolStatus) -> Iterator[tuple[str, Words]]:
    """Labelled lines: what decides who starts next."""
    if pool.adaptive and pool.controller == "fixed":
        yield "cap", f"{pool.cap}, fixed by its controller"
    elif pool.adaptive:
        moved = "adaptive" if pool.controller == CONTROLLERS[0] else pool.controller
        bounds = f"{pool.cap} now, {moved} between {pool.cap_floor} and {pool.cap_ceiling}"
        closed = "; breaker closed" if pool.breaker == "closed" else ""
        yield "cap", f"{bounds}; starts at {pool.operator_cap}{closed}"
    else:
        yield "cap", f"{pool.cap}, fixed"
    yield "counts", counts_words(pool)
    if pool.throttle_count:
        yield "throttles", _throttles(pool)
    if pool.settle_ends_in_s is not None:
        after = "no change" if pool.settling == "cut" else "no growth"
        yield "settling", f"after a {pool.settling}: {after} for {span_words(pool.settle_ends_in_s)}"
    if pool.breaker != "closed":
        yield "breaker", breaker_words(pool)
    elif pool.closed_for_s is not None:
        yield "closed", Piece(closed_words(pool, pool.closed_for_s), Style.BAD)
    if pool.spacing_s:
        due = f"; next start in {span_words(pool.next_start_in_s)}" if pool.next_start_in_s else ""
        yield "spacing", f"{pool.spacing_s:.3g} s between starts{due}"
    for window in pool.windows:
        yield "window", window_words(window)
    yield from usage_words(pool)
    yield from share_words(pool)


_COUNTS = {
    Counting.AUTO.value: "each model call where it can be seen, else an agent as long as it lives",
    Counting.CALLS.value: "model calls",
    Counting.AGENTS.value: "agents, each as long as it lives",
}


def counts_words(pool: PoolStatus) -> str:
    if is_agents_pool(pool.name):
        return "agents, each as long as it lives; their model calls take slots of their providers' pools"
    return _COUNTS[pool.counts]


def call_words(lease: LeaseStatus) -> str:
    """What an agent's calls do, where they are counted one by one; empty where they are not."""
    if lease.calls is None:
        return ""
    flying = [f"{counted(number, 'call')} in {pool}" for pool, number in lease.calls.items()]
    waiting = [f"{lease.calls_waiting} waiting"] if lease.calls_waiting else []
    return ", ".join([*flying, *waiting]) or "no call now"


def closed_words(pool: PoolStatus, for_s: float) -> str:
    """Until when, for whom, why; and for a usage window the way out, which is a person's to choose."""
    if pool.open_above is None:
        return f"nothing starts for {span_words(for_s)}: {pool.closed_why}"
    setting, alone = ("keep", "only priority above 0") if pool.open_above == 0 else ("drain", "nothing")
    fullest = max(pool.usage_windows, key=lambda each: each.used, default=None)
    known = fullest is not None and fullest.resets_in_s is not None
    until = f"for {span_words(for_s)}" if known else f"until it resets, {span_words(for_s)} at the latest"
    way_out = command("pool", "set", pool.name, f"--usage-{setting}", "0")
    return f"{alone} starts {until}: {pool.closed_why}; {way_out} lets all start"


def usage_words(pool: PoolStatus) -> Iterator[tuple[str, Words]]:
    """A line for each usage window of the account."""
    for each in pool.usage_windows:
        whose = f"{each.account}: " if each.account else ""
        near = pool.usage_warn and each.used >= pool.usage_warn
        yield "account", Piece(f"{whose}{each.words()}", Style.WARN if near else Style.PLAIN)


def window_words(window: WindowStatus) -> str:
    left = f"{amount(window.left)} of {amount(window.limit)} left"
    return f"{window.name}: {left}, {amount(window.per_min)}/min ({window.source})"


def _throttles(pool: PoolStatus) -> str:
    words = f"{pool.throttle_count} so far"
    if pool.last_throttle_s_ago is not None:
        words += f", the last {span_words(pool.last_throttle_s_ago)} ago"
    if pool.last_cut_s_ago is not None:
        words += f"; cap last cut {span_words(pool.last_cut_s_ago)} ago"
    return words


def breaker_words(pool: PoolStatus) -> Words:
    """The breaker when it is not closed: until when, why, who tries."""
    again = f", re-opened {counted(pool.breaker_reopens, 'time')}" if pool.breaker_reopens else ""
    if pool.breaker == "open":
        wait = f" for {span_words(pool.closed_for_s)}" if pool.closed_for_s is not None else ""
        return [Piece(f"open{wait}", Style.BAD), f": {pool.breaker_why or 'throttled'}{again}"]
    if not pool.trial:
        return [Piece("half open", Style.WARN), f": the next ask becomes the trial{again}"]
    since = f" for {span_words(pool.trial_since_s)}" if pool.trial_since_s is not None else ""
    return [Piece("half open", Style.WARN), f": {pool.trial} is the trial{since}; others wait for it{again}"]


def _leases(leases: Sequence[LeaseStatus]) -> Iterator[Block]:
    if not leases:
        return
    slots, model = any(lease.slots != 1 for lease in leases), any(lease.model for lease in leases)
    columns = [Column("RUNNING"), Column("PID", right=True), Column("FOR", right=True)]
    columns += [Column("SLOTS", right=True)] * slots + [Column("MODEL")] * model
    rows: list[list[Words]] = []
    for lease in in_families(leases)[:ROWS]:
        row: list[Words] = [_lease_name(lease, leases), str(lease.pid), span_words(lease.held_s)]
        row += [str(lease.slots)] * slots + [lease.model] * model
        rows.append([*row, lease_note(lease)])
    yield Table([*columns, Column("", wraps=True)], rows)
    yield from _more(len(leases) - ROWS, "lease")


def in_families(leases: Sequence[LeaseStatus]) -> list[LeaseStatus]:
    """A session's subagents behind it; all else in the order it has."""
    placed: list[LeaseStatus] = []
    for lease in leases:
        if not _stands_below(lease, leases):
            placed += [lease, *(each for each in leases if _is_child(each, lease))]
    return placed


def _is_child(lease: LeaseStatus, parent: LeaseStatus) -> bool:
    own = (lease.project, lease.parent) == (parent.project, parent.name)
    return own and lease.pid == parent.pid


def _stands_below(lease: LeaseStatus, leases: Sequence[LeaseStatus]) -> bool:
    return lease.parent is not None and any(_is_child(lease, each) for each in leases)


def _lease_name(lease: LeaseStatus, leases: Sequence[LeaseStatus]) -> str:
    if _stands_below(lease, leases) and lease.parent is not None:
        return f"  {lease.name.removeprefix(lease.parent).lstrip()}"
    return f"{lease.project}/{lease.name}"


def lease_note(lease: LeaseStatus) -> Words:
    if lease.alive is False:
        return Piece("dead, still counted", Style.BAD)
    notes = [f"{kind}={units}" for kind, units in lease.resources.items()]
    if words := call_words(lease):
        notes.append(words)
    if lease.priority:
        notes.append(f"priority {lease.priority}")
    if lease.alive is None:
        notes.append(f"on {lease.host}{elsewhere_words(lease)}")
    if lease.expires_in_s is not None and not lease.looked_after:
        notes.append(f"expires in {span_words(lease.expires_in_s)}")
    if lease.launcher_pid not in (0, lease.pid):
        notes.append(f"launched by {lease.launcher_pid}")
    return _quiet(", ".join(notes))


def elsewhere_words(lease: LeaseStatus) -> str:
    """What is known of a holder on another host."""
    if lease.looked_after:
        return ""
    if lease.confirmed_s_ago is None:
        return ", cannot be checked from here"
    return f", not heard of for {span_words(lease.confirmed_s_ago)}"


def _asks(pool: PoolStatus) -> Iterator[Block]:
    if not pool.asks:
        return
    columns = [Column("", right=True), Column("WAITING"), Column("PID", right=True)]
    timed = any(ask.estimate_s is not None for ask in pool.asks[:ROWS])
    columns += [Column("FOR", right=True), *([Column("NEXT SLOT", right=True)] * timed)]
    columns += [Column("WHY", wraps=True)]
    rows: list[list[Words]] = [
        [
            str(ask.position),
            f"{ask.project}/{ask.name}",
            str(ask.pid),
            span_words(ask.waiting_s),
            *([f"~{span_words(ask.estimate_s)}" if ask.estimate_s is not None else ""] * timed),
            ask_why(ask),
        ]
        for ask in pool.asks[:ROWS]
    ]
    yield Table(columns, rows)
    yield from _more(pool.waiting - ROWS, "ask")


def ask_why(ask: AskStatus) -> Words:
    if ask.alive is False:
        return Piece("dead, will be dropped", Style.BAD)
    if ask.stopped:
        return Piece("stopped (Ctrl-Z or SIGSTOP): passed over until it goes on", Style.WARN)
    size = f"{ask.slots} slots; " if ask.slots > 1 else ""
    priority = f"priority {ask.priority}; " if ask.priority else ""
    return f"{size}{priority}{ask.why}"


def _resting(resting: Sequence[RestStatus]) -> Iterator[Block]:
    if not resting:
        return
    columns = [Column("RESTING"), Column("PID", right=True), Column("FOR", right=True)]
    columns += [Column("AGAIN IN", right=True), Column("WHY", wraps=True)]
    rows: list[list[Words]] = [
        [
            f"{rest.project}/{rest.name}",
            str(rest.pid),
            span_words(rest.resting_s),
            span_words(rest.tries_again_in_s),
            rest_words(rest),
        ]
        for rest in resting[:ROWS]
    ]
    yield Table(columns, rows)
    yield from _more(len(resting) - ROWS, "run")


def rest_words(rest: RestStatus) -> Words:
    return Piece("dead, will not be tried again", Style.BAD) if rest.alive is False else rest.words


def _projects(pool: PoolStatus) -> Iterator[Block]:
    if len(pool.projects) < 2 and not pool.demand and not any(_has_terms(p) for p in pool.projects):
        return
    terms = any(_has_terms(project) for project in pool.projects)
    columns = [Column(f"PROJECT ({pool.share})"), Column("USES", right=True), Column("WAITS", right=True)]
    columns += [Column("SHARE", right=True)]
    columns += [Column("WEIGHT", right=True), Column("MAX", right=True)] if terms else []
    rows: list[list[Words]] = []
    for project in pool.projects:
        row: list[Words] = [project.name, str(project.in_use), str(project.waiting), str(project.fair_share)]
        if terms:
            row += [f"{project.weight:g}", str(project.maximum) if project.maximum is not None else "-"]
        announced = [demand_words(d) for d in pool.demand if d.project == project.name]
        rows.append([*row, _quiet(", ".join(announced))])
    yield Table([*columns, Column("", wraps=True)], rows)


def _has_terms(project: ProjectStatus) -> bool:
    return project.weight != 1.0 or project.maximum is not None


def demand_words(demand: DemandStatus) -> str:
    state = "dead" if demand.alive is False else f"{span_words(demand.expires_in_s)} left"
    return f"ready work announced by pid {demand.pid}, {state}"


def _more(number: int, what: str) -> Iterator[Block]:
    if number > 0:
        yield Line(_quiet(f"and {counted(number, 'more ' + what)}; --json lists what is known"), indent=2)


# -- the machine and what to do -------------------------------------------------------------------


def machine_words(machine: MachineStatus) -> str:
    """The limits over all pools; empty where there are none."""
    parts = []
    if machine.ceiling is not None:
        parts.append(f"{machine.in_use} of at most {machine.ceiling} slots over all pools")
    if machine.cpu_pressure is not None:
        parts.append(f"starts need CPU pressure below {machine.cpu_pressure} %")
    if machine.memory_floor_bytes is not None:
        parts.append(f"starts need {size_words(machine.memory_floor_bytes)} of free memory")
    kinds = sorted({*machine.resources, *machine.resources_in_use})
    parts += [f"{k} {machine.resources_in_use.get(k, 0)} of {machine.resources.get(k, 0)}" for k in kinds]
    return "; ".join(parts)


def _hints(status: Status) -> Iterator[str]:
    dead = sum(lease.alive is False for pool in status.pools for lease in pool.leases)
    if dead:
        yield f"{counted(dead, 'dead lease')}: an ask that needs the slot takes it; or flyball doctor --fix"
    for pool in status.pools:
        if pool.breaker == "open":
            yield f"{pool.name} tries again by itself; to try now: {command('pool', 'reset', pool.name)}"
    first = next((ask for pool in status.pools for ask in pool.asks), None)
    if first is not None:
        yield command("why", f"{first.project}/{first.name}")


def _quiet(text: str) -> Piece:
    return Piece(text, Style.QUIET)
