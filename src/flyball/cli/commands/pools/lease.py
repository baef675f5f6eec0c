"""``flyball lease list|drop``: who holds slots, and taking back what no process stands behind any more."""

from __future__ import annotations

import argparse
import getpass
import os
from contextlib import closing
from dataclasses import asdict

from flyball.cli.parser import add_action
from flyball.cli.ui.pool_status import lease_note
from flyball.cli.ui.render import Block, Column, Line, Table, Words, print_json, say, show
from flyball.cli.ui.units import command, count, counted, pool_name
from flyball.core.pool.model import Claim
from flyball.core.pool.verdict import span_words
from flyball.core.suggestions import did_you_mean
from flyball.errors import UsageError
from flyball.governor.acquisition import lives
from flyball.governor.governor import Governor
from flyball.governor.internals import internals
from flyball.governor.status import SILENT_S, LeaseStatus
from flyball.host.process import host_name

SUMMARY = (
    "List the leases of every pool, or drop one whose holder is gone and cannot be checked from here, "
    "such as a container's."
)
EXAMPLE = """flyball lease list
flyball lease drop 1204"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    listing = add_action(
        actions, "list", "show every lease with its id", "flyball lease list --pool anthropic"
    )
    listing.add_argument("--pool", type=pool_name, metavar="POOL", help="only this pool's (default: all)")
    dropping = add_action(
        actions, "drop", "take a lease back; the next in line gets its slots", "flyball lease drop 1204"
    )
    dropping.add_argument("id", metavar="ID", type=count, help="the lease, as flyball lease list shows it")
    dropping.add_argument(
        "--force", action="store_true", help="also from a holder that lives; its work is not stopped"
    )
    for action in (listing, dropping):
        action.add_argument("--json", action="store_true", help="the result as JSON")


def run(args: argparse.Namespace) -> int:
    with closing(Governor()) as governor:
        {"list": _list, "drop": _drop}[args.action](governor, args)
    return 0


def _list(governor: Governor, args: argparse.Namespace) -> None:
    pools = governor.status().pools
    known = [pool.name for pool in pools]
    if args.pool is not None and args.pool not in known:
        hint = did_you_mean(args.pool, known) or f"in use: {', '.join(known) or 'none yet'}"
        raise UsageError(f"there is no pool {args.pool!r}; {hint}")
    leases = [(p.name, lease) for p in pools if args.pool in (None, p.name) for lease in p.leases]
    if args.json:
        print_json({"leases": [{"pool": pool, **asdict(lease)} for pool, lease in leases]})
    else:
        show(lease_screen(leases))


def lease_screen(leases: list[tuple[str, LeaseStatus]]) -> list[Block]:
    if not leases:
        return [Line("No leases: nothing is in use.")]
    columns = [Column("LEASE", right=True), Column("POOL"), Column("HOLDER"), Column("PID", right=True)]
    columns += [Column("FOR", right=True), Column("SLOTS", right=True), Column("", wraps=True)]
    rows: list[list[Words]] = [
        [
            str(lease.id),
            pool,
            f"{lease.project}/{lease.name}",
            str(lease.pid),
            span_words(lease.held_s),
            str(lease.slots),
            lease_note(lease),
        ]
        for pool, lease in leases
    ]
    return [Table(columns, rows, indent=0)]


def _drop(governor: Governor, args: argparse.Namespace) -> None:
    store = internals(governor).store
    claim = store.claim(args.id)
    if claim is None:
        raise UsageError(f"there is no lease {args.id}; {command('lease', 'list')} shows them")
    living = _why_living(claim, store.now())
    if living and not args.force:
        raise UsageError(
            f"lease {claim.id} of {claim.pool} is in use: {living}; "
            "--force takes its slots back all the same, and does not stop its work"
        )
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"user {os.getuid()}"
    by = f"{user} on {host_name()}"
    internals(governor).reclaim(
        [(claim.id, claim.holder)], why=f"dropped by {by}{' by force' if living else ''}"
    )
    if store.claim(claim.id) is not None:
        raise UsageError(
            f"lease {claim.id} has just got another holder; look again: {command('lease', 'list')}"
        )
    if args.json:
        told = {"pool": claim.pool, "project": claim.project, "name": claim.name, "slots": claim.slots}
        print_json({"dropped": claim.id, "by": by, "forced": bool(living), "pid": claim.holder.pid, **told})
        return
    say(
        f"dropped lease {claim.id} of {claim.pool}: {claim.project}/{claim.name}, pid {claim.holder.pid} "
        f"on {claim.holder.host}; {counted(claim.slots, 'slot')} free for the next in line"
    )
    if living:
        say("its work was not stopped, and runs on beside what the pool allows")


def _why_living(claim: Claim, now: float) -> str:
    """What says that work still goes on under it; empty where nothing does."""
    holder = claim.holder
    if not holder.pid:
        over = claim.expires_at is not None and claim.expires_at <= now
        return "" if over else "it was asked for over the network, and ends unless its client extends it"
    if lives(claim, now):
        return f"pid {holder.pid} runs on this machine; when it ends, the slots come back by themselves"
    if lives(claim, now) is None and claim.confirmed_at is not None and now - claim.confirmed_at <= SILENT_S:
        return f"{holder.host} says that pid {holder.pid} runs there; end it there"
    return ""
