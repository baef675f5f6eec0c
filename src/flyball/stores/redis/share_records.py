"""Share leases and pots as text and back (see records.py); what renewal.lua and share.lua read and write.

A pot is fields of its pool, a share lease one line of a hash; its target is in another, since the plan sets
targets and nothing else of a lease.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flyball.core.renewal import Pot, Renewal, Reply, ShareLease, Tally
from flyball.core.terms import ShareTerms
from flyball.errors import StoreUnreadableError
from flyball.stores.redis.records import number, pairs, plain, real, restored

# -- leases -----------------------------------------------------------------------------------------------


def renewal_line(renewal: Renewal) -> str:
    r, tally = renewal, renewal.tally
    return (
        f"{r.node}\t{r.incarnation}\t{r.seq}\t{r.holds}\t{r.in_flight}\t{r.wants}\t{r.weight!r}\t"
        f"{r.beyond}\t{'1' if r.leaving else ''}\t"
        f"{tally.successes}\t{tally.throttles}\t{tally.overloads}\t{r.peak}\t{r.hold_s!r}\t"
        f"{number(r.refused_age_s)}\t{number(r.estimate)}\t{plain(r.mailbox)}"
    )


def reply_of(line: str) -> Reply:
    seq, stale, slots, gate, target, ttl_s, learning = line.split("\t")
    return Reply(
        seq=int(seq),
        stale=stale == "1",
        slots=int(slots),
        gate=int(gate),
        target=int(target),
        ttl_s=float(ttl_s),
        learning=learning == "1",
    )


def shares_of(rows: Sequence[str], targets: Sequence[str]) -> dict[str, ShareLease]:
    """By name, from both hashes as a script returns them."""
    asked = pairs(targets)
    return {name: _share_of(name, line, asked[name]) for name, line in pairs(rows).items()}


def _share_of(name: str, line: str, target: str) -> ShareLease:
    f = line.split("\t")
    try:
        return ShareLease(
            node=f[0],
            incarnation=f[1],
            seq=int(f[2]),
            slots=int(f[3]),
            owed=int(f[4]),
            target=int(target),
            in_flight=int(f[5]),
            wants=int(f[6]),
            weight=float(f[7]),
            draining=f[8] == "1",
            since=float(f[9]),
            expires_at=float(f[10]),
            tally=Tally(int(f[11]), int(f[12]), int(f[13])),
            peak=int(f[14]),
            estimate=real(f[15]),
            mailbox=restored(f[16]),
        )
    except (IndexError, ValueError) as error:
        raise StoreUnreadableError(f"share lease {name!r} is stored wrongly: {error}") from error


# -- pots -------------------------------------------------------------------------------------------------


def pot_of(f: Mapping[str, str], *, epoch: str) -> Pot | None:
    """The pot among a pool's fields. ``epoch``: the life that is to have no name."""
    if "pot:held" not in f:
        return None
    try:
        return Pot(
            cap=int(f["pot:cap"]),
            held=int(f["pot:held"]),
            nodes=int(f["pot:nodes"]),
            learning_until=float(f["pot:learning_until"]),
            epoch="" if epoch in ("", f["pot:epoch"]) else f["pot:epoch"],
            busy=int(f["pot:busy"]),
            active=int(f["pot:active"]),
            estimate=real(f["pot:estimate"]),
            dirty=f["pot:dirty"] != "0",
            planned_at=float(f["pot:planned_at"]),
            until=float(f["pot:until"]),
        )
    except (KeyError, ValueError) as error:
        raise StoreUnreadableError(f"share leases are stored wrongly: {error!r}") from error


def pot_fields(pot: Pot) -> dict[str, str]:
    """What a plan writes of a pot: never what renewals count."""
    return {
        "pot:cap": str(pot.cap),
        "pot:learning_until": number(pot.learning_until),
        "pot:epoch": pot.epoch,
        "pot:estimate": number(pot.estimate),
        "pot:dirty": "1" if pot.dirty else "0",
        "pot:planned_at": number(pot.planned_at),
        "pot:until": number(pot.until),
    }


def terms_fields(terms: ShareTerms) -> dict[str, str]:
    """The times that a renewal goes by."""
    return {
        "beat_s": number(terms.heartbeat_s),
        "ttl_s": number(terms.ttl_s),
        "lease_s": number(terms.lease_s),
        "eager_s": number(terms.eager_s),
    }
