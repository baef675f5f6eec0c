"""``flyball why NAME|PID``: the last verdicts for a task or a process, in words. Looks, never touches."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from flyball.cli.ui.pool_status import breaker_words, closed_words, rest_words
from flyball.cli.ui.render import BLANK, Block, Column, Line, Piece, Style, Table, Words, print_json, show
from flyball.cli.ui.units import command, count
from flyball.core.pool.model import Fact, FactKind
from flyball.core.pool.subagent_name import parse_subagent_name
from flyball.core.pool.verdict import span_words
from flyball.core.suggestions import nearest
from flyball.errors import FlyballError
from flyball.governor.state_url import open_reader, resolve
from flyball.governor.status import AskStatus, LeaseStatus, PoolStatus, RestStatus, Status, status_from

SUMMARY = "Say in words why a task or process runs or waits, and what happened to it lately."
EXAMPLE = """flyball why t-14
flyball why blog/t-14
flyball why 4121"""

_ALL_FACTS = 10_000
_POOL_KINDS = frozenset(
    {
        FactKind.CUT,
        FactKind.UNDO,
        FactKind.OPEN,
        FactKind.CLOSE,
        FactKind.CLOSED,
        FactKind.TRIAL,
        FactKind.USAGE,
    }
)
_LATELY_S = 3600.0
_POOL_FACTS = 5


@dataclass(frozen=True, slots=True)
class PastFact:
    s_ago: float
    pool: str
    kind: str
    words: str
    pid: int


@dataclass(frozen=True, slots=True)
class RunningMatch:
    pool: str
    lease: LeaseStatus


@dataclass(frozen=True, slots=True)
class WaitingMatch:
    pool: str
    ask: AskStatus


@dataclass(frozen=True, slots=True)
class RestingMatch:
    pool: str
    rest: RestStatus


@dataclass(frozen=True, slots=True)
class Match:
    """One task: how it stands, what happened to it, and what happened to its pools."""

    project: str
    name: str
    running: tuple[RunningMatch, ...]
    waiting: tuple[WaitingMatch, ...]
    resting: tuple[RestingMatch, ...]
    facts: tuple[PastFact, ...]
    pool_facts: tuple[PastFact, ...]


@dataclass(frozen=True, slots=True)
class WhyAnswer:
    query: str
    matches: tuple[Match, ...]
    nearest: tuple[str, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("query", metavar="NAME|PID", help="a task, project/task, or a process id")
    parser.add_argument(
        "--limit", type=count, default=10, metavar="N", help="how many past verdicts to show (10)"
    )
    parser.add_argument("--json", action="store_true", help="the answer as JSON")


def run(args: argparse.Namespace) -> int:
    reader = open_reader(resolve())
    try:
        status = status_from(reader.snapshot(), resolve())
        facts, now = reader.facts(limit=_ALL_FACTS), reader.now()
    finally:
        reader.close()
    answer = find(args.query, status, facts, now=now, limit=args.limit)
    if args.json:
        print_json(answer)
    else:
        show(screen(answer, status))
    return 0 if answer.matches else 1


# -- finding --------------------------------------------------------------------------------------

Claimed = LeaseStatus | AskStatus | RestStatus | Fact
"""What belongs to a task: it has a project, a name and a pid."""


def find(query: str, status: Status, facts: list[Fact], *, now: float, limit: int) -> WhyAnswer:
    """``facts`` come newest first."""
    leases = [RunningMatch(pool.name, lease) for pool in status.pools for lease in pool.leases]
    asks = [WaitingMatch(pool.name, ask) for pool in status.pools for ask in pool.asks]
    rests = [RestingMatch(pool.name, rest) for pool in status.pools for rest in pool.resting]
    about: list[Claimed] = [*(r.lease for r in leases), *(w.ask for w in asks), *(r.rest for r in rests)]
    about += [fact for fact in reversed(facts) if fact.name]
    meant = dict.fromkeys(_owner(each) for each in about if _is_meant(query, each))
    below = (_owner(each) for each in about if _session(each) in meant)
    owners = dict.fromkeys([*meant, *below])
    matches = []
    for owner in owners:
        running = tuple(r for r in leases if _owner(r.lease) == owner)
        waiting = tuple(w for w in asks if _owner(w.ask) == owner)
        resting = tuple(r for r in rests if _owner(r.rest) == owner)
        own = [fact for fact in facts if _owner(fact) == owner]
        pools = {r.pool for r in running} | {w.pool for w in waiting} | {fact.pool for fact in own[:1]}
        of_pools = [
            fact
            for fact in facts
            if fact.pool in pools and fact.kind in _POOL_KINDS and _owner(fact) != owner
            if now - fact.at <= _LATELY_S
        ]
        told, pools_told = _past_facts(own[:limit], now), _past_facts(of_pools[:_POOL_FACTS], now)
        matches.append(Match(*owner, running, waiting, resting, told, pools_told))
    close = () if matches else tuple(_nearest(query, {_owner(each) for each in about}))
    return WhyAnswer(query, tuple(matches), close)


def _owner(claimed: Claimed) -> tuple[str, str]:
    return claimed.project, claimed.name


def _session(claimed: Claimed) -> tuple[str, str] | None:
    """Whose subagent it is."""
    found = parse_subagent_name(claimed.name)
    return (claimed.project, found[0]) if found is not None else None


def _is_meant(query: str, claimed: Claimed) -> bool:
    pids = {claimed.pid, getattr(claimed, "launcher_pid", 0)} - {0}
    by_pid = query.isascii() and query.isdigit() and int(query) in pids
    return by_pid or query in (claimed.name, f"{claimed.project}/{claimed.name}")


def _past_facts(facts: Iterable[Fact], now: float) -> tuple[PastFact, ...]:
    """Newest last, as a story is told."""
    past = [
        # The kind stands in a column of its own; facts that earlier versions stored begin with it too.
        PastFact(max(0.0, now - f.at), f.pool, f.kind, f.words.removeprefix(f"{f.kind}: "), f.pid)
        for f in facts
    ]
    return tuple(reversed(past))


def _nearest(query: str, known: set[tuple[str, str]]) -> list[str]:
    if "/" in query:
        return nearest(query, {f"{project}/{name}" for project, name in known})
    close = nearest(query, {name for _, name in known})
    return [f"{project}/{name}" for found in close for project, name in sorted(known) if name == found]


# -- telling --------------------------------------------------------------------------------------


def screen(answer: WhyAnswer, status: Status) -> Iterator[Block]:
    if not answer.matches:
        yield from _nothing_found(answer, status)
    pools = {pool.name: pool for pool in status.pools}
    for n, match in enumerate(answer.matches):
        if n:
            yield BLANK
        yield from _state(match, pools)
        if match.facts:
            yield _table("WHAT HAPPENED", match.facts)
        if match.pool_facts:
            yield _table("AND TO ITS POOL", match.pool_facts)


def _nothing_found(answer: WhyAnswer, status: Status) -> Iterator[Block]:
    yield Line(f"{answer.query!r} neither runs nor waits, and nothing is remembered about it.")
    if _is_task_here(answer.query):
        yield Line(f"{command('task', 'why', answer.query)} says how the task stands", label="next")
    elif answer.nearest:
        yield Line(f"did you mean {' or '.join(answer.nearest)}?", label="next")
    elif not status.pools:
        yield Line("no pool has been used yet; flyball exec -- CMD runs a command under a slot", label="next")
    else:
        yield Line("flyball status lists what runs and waits", label="next")


def _is_task_here(name: str) -> bool:
    """Does the project of this folder have a task of this name?"""
    from flyball.factory.project.config_reader import load_config
    from flyball.factory.project.paths import find_root
    from flyball.factory.tasks.registry import open_source

    with suppress(FlyballError):
        root = find_root(Path.cwd())
        return any(task.id == name for task in open_source(load_config(root), root).load().tasks)
    return False


def _state(match: Match, pools: dict[str, PoolStatus]) -> Iterator[Block]:
    who = Piece(f"{match.project}/{match.name}", Style.STRONG)
    for running in match.running:
        yield Line([who, *_run_words(running)])
        yield from (Line(words, label=label, indent=2) for label, words in _details(running.lease))
    for waiting in match.waiting:
        ask = waiting.ask
        yield Line(
            [who, " ", Piece("waits", Style.WARN), f" in {waiting.pool} for {span_words(ask.waiting_s)}"]
        )
        yield Line(f"{ask.position} in line", label="place", indent=2)
        yield Line(_ask_words(waiting.pool, ask), label="why", indent=2)
        estimate = f"about {span_words(ask.estimate_s)}" if ask.estimate_s is not None else "not known yet"
        yield Line(estimate, label="estimate", indent=2)
    for resting in match.resting:
        yield Line([who, " ", Piece("rests", Style.WARN), f" for {span_words(resting.rest.resting_s)}"])
        yield Line(rest_words(resting.rest), label="why", indent=2)
        if resting.rest.alive is not False:
            yield Line(f"in {span_words(resting.rest.tries_again_in_s)}", label="again", indent=2)
    if not match.running and not match.waiting and not match.resting:
        last = match.facts[-1] if match.facts else None
        yield Line([who, f" neither runs nor waits now{_last_words(last) if last else ''}"])
    for name in sorted({r.pool for r in match.running} | {w.pool for w in match.waiting}):
        pool = pools[name]
        if pool.breaker != "closed":
            yield Line(breaker_words(pool), label="breaker", indent=2)
        elif pool.open_above is not None and pool.closed_for_s is not None:
            yield Line(closed_words(pool, pool.closed_for_s), label="closed", indent=2)


def _last_words(last: PastFact) -> str:
    words = f"; last {last.kind} {span_words(last.s_ago)} ago: {last.words}"
    # A run that comes back from its rest runs or waits, and its last fact is then how that ended.
    return f"{words}; it was killed before that" if last.kind == FactKind.RESTS else words


def _run_words(running: RunningMatch) -> list[str | Piece]:
    lease = running.lease
    if lease.alive is False:
        return [" ", Piece("is dead", Style.BAD), f" and still counted in {running.pool}, pid {lease.pid}"]
    waited = f" after waiting {span_words(lease.waited_s)}" if lease.waited_s >= 0.5 else " without waiting"
    since = f" in {running.pool} for {span_words(lease.held_s)}, granted{waited}"
    return [" ", Piece("runs", Style.GOOD), since]


def _details(lease: LeaseStatus) -> Iterator[tuple[str, Words]]:
    launcher = f", launched by pid {lease.launcher_pid}" if lease.launcher_pid not in (0, lease.pid) else ""
    here = f" on {lease.host}, which cannot be checked from here" if lease.alive is None else ""
    slots = f"; {lease.slots} slots" if lease.slots != 1 else ""
    model = f"; model {lease.model}" if lease.model else ""
    process = (
        f"pid {lease.pid}{launcher}{here}" if lease.pid else "a remote client: it ends unless it is extended"
    )
    yield "process", f"{process}{slots}{model}"
    if lease.alive is False:
        yield "next", "an ask that needs the slot takes it back; or flyball doctor --fix"


def _ask_words(pool: str, ask: AskStatus) -> Words:
    if ask.alive is False:
        return Piece(f"pid {ask.pid} is dead; the ask will be dropped", Style.BAD)
    if ask.stopped:
        words = f"pid {ask.pid} is stopped (Ctrl-Z or SIGSTOP) and passed over"
        return Piece(f"{words}; kill -CONT {ask.pid} lets it go on", Style.WARN)
    return f"{pool} {ask.why}"


def _table(title: str, facts: tuple[PastFact, ...]) -> Table:
    rows: list[list[Words]] = [
        [f"{span_words(fact.s_ago)} ago", fact.pool, fact.kind, fact.words] for fact in facts
    ]
    return Table([Column("", right=True), Column("POOL"), Column(""), Column(title, wraps=True)], rows)
