"""Values as text and back: what the scripts and this side agree on.

A row is one line of fields between tabs. Names hold no control characters; whatever else a person may write
goes through ``escape``. Numbers are written so that they come back exactly.

Tabs and not JSON: the scripts of most asks and ends take a few fields out of a line with one pattern, 0.12 us
of the server's time where ``cjson.decode`` takes 1.2, and a claim is 77 bytes in place of 348. Read and
written as a whole the two cost the same (2 us), but ``cjson`` keeps 14 digits of a number, and no infinity.

A share budget is fields of its pool, a share lease one line of a hash (renewal.lua, share.lua). The target of
a lease is in another hash, since the plan sets targets and nothing else of a lease.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from flyball.core.pool.holder import Holder
from flyball.core.pool.model import Ask, Claim, Fact, Limits, Meters, Phase, PoolCounts, ProjectUse
from flyball.core.pool.rate_window import Source, Window
from flyball.core.pool.settings import MachineSettings, ShareRule
from flyball.core.pool.verdict import Blocker, Reason, Verdict, VerdictKind, granted_verdict
from flyball.core.share_lease.renewal import CallCounts, Renewal, Reply, ShareBudget, ShareLease
from flyball.core.share_lease.timing import ShareTiming
from flyball.core.signals import Bucket
from flyball.errors import StoreUnreadableError
from flyball.stores.port import Demand
from flyball.stores.rows import PoolRow

_ESCAPES = str.maketrans({"\t": "\x01", "\n": "\x02", "\x1e": " ", "\x1f": " "})
_UNESCAPES = str.maketrans({"\x01": "\t", "\x02": "\n"})
NOTHING: Mapping[str, int] = {}
NO_HOSTS: Mapping[str, str] = {}


def escape(text: str) -> str:
    """Any text as one field. What UTF-8 cannot hold becomes a question mark."""
    if text.isprintable():
        return text
    return text.translate(_ESCAPES).encode(errors="replace").decode()


def unescape(text: str) -> str:
    return text if text.isprintable() else text.translate(_UNESCAPES)


def dump_number(value: float | int | None) -> str:
    """Exact, and in a form that Lua reads too: it need not know a word for infinity."""
    return "" if value is None else repr(value).replace("inf", "1e999")


def parse_float(text: str) -> float | None:
    return float(text) if text else None


def parse_int(text: str) -> int | None:
    return int(text) if text else None


# -- claims -----------------------------------------------------------------------------------------------


def amounts_line(amounts: Mapping[str, float]) -> str:
    return "\x1f".join(f"{name}\x1f{amount!r}" for name, amount in amounts.items()) if amounts else ""


def parse_amounts(line: str) -> dict[str, float]:
    if not line:
        return {}
    parts = line.split("\x1f")
    return {name: float(amount) for name, amount in zip(parts[::2], parts[1::2], strict=True)}


def here_line(holder: Holder) -> str:
    """Where a process can be checked from."""
    return f"{holder.host}\t{holder.boot}\t{holder.pidns}"


def holder_line(holder: Holder) -> str:
    return f"{holder.host}\t{holder.boot}\t{holder.pidns}\t{holder.pid}\t{holder.start}"


def parse_holder(parts: Sequence[str]) -> Holder:
    return Holder(parts[0], parts[1], int(parts[2]), int(parts[3]), int(parts[4]))


def ask_line(ask: Ask) -> str:
    """The first twelve fields of a claim."""
    mailbox, model = ask.mailbox, ask.model
    return (
        f"{ask.project}\t{ask.name}\t{holder_line(ask.holder)}\t{ask.slots}\t{ask.priority}\t"
        f"{escape(model) if model else ''}\t{escape(mailbox)}\t{ask.holder.pid}"
    )


def parse_claim(pool: str, claim_id: int, line: str, hosts: Mapping[str, str] = NO_HOSTS) -> Claim:
    """``hosts``: when each host last said that it is there."""
    f = line.split("\t")
    try:
        return Claim(
            claim_id,
            pool,
            f[0],
            f[1],
            parse_holder(f[2:7]),
            int(f[7]),
            int(f[8]),
            NOTHING,
            unescape(f[9]),
            unescape(f[10]),
            int(f[11]),
            float(f[12]),
            parse_float(f[13]),
            parse_float(f[14]),
            unescape(f[15]),
            int(f[16]),
            parse_amounts(f[17]),
            parse_amounts(f[18]),
            f[21:] == ["1"],
            parse_float(hosts.get("\t".join(f[2:5]), "").partition("\t")[0]) if hosts else None,
        )
    except (IndexError, ValueError) as error:
        raise StoreUnreadableError(f"claim {claim_id} of pool {pool!r} is stored wrongly: {error}") from error


def buckets_line(buckets: Iterable[Bucket]) -> str:
    return "\x1e".join(
        "\x1f".join(
            (
                b.name,
                dump_number(b.limit),
                dump_number(b.remaining),
                dump_number(b.reset_s),
                dump_number(b.window_s),
            )
        )
        for b in buckets
    )


# -- facts, demands and projects --------------------------------------------------------------------------


def fact_line(fact: Fact) -> str:
    return f"{fact.at!r}\t{fact.kind}\t{escape(fact.words)}\t{fact.project}\t{escape(fact.name)}\t{fact.pid}"


def parse_fact(pool: str, parts: Sequence[str]) -> Fact:
    at, kind, words, project, name, pid = parts
    return Fact(float(at), pool, kind, unescape(words), project, unescape(name), int(pid))


def demand_member(demand: Demand) -> str:
    return f"{demand.project}\t{holder_line(demand.holder)}"


def parse_demand(pool: str, member: str, until: str) -> Demand:
    project, *holder = member.split("\t")
    return Demand(pool, project, parse_holder(holder), float(until))


def parse_project(name: str, line: str) -> ProjectUse:
    in_use, waiting, weight, maximum, share, turn = line.split("\t")
    return ProjectUse(
        name, int(in_use), int(waiting), float(weight), parse_int(maximum), parse_int(share), float(turn)
    )


# -- pools ------------------------------------------------------------------------------------------------


def windows_text(windows: Iterable[Window]) -> str:
    return "\n".join(
        "\t".join(
            value.value if isinstance(value, Source) else value if isinstance(value, str) else repr(value)
            for value in (getattr(window, field.name) for field in fields(Window))
        )
        for window in windows
    )


def parse_windows(text: str) -> tuple[Window, ...]:
    return tuple(_window(line.split("\t")) for line in text.split("\n")) if text else ()


def _window(f: Sequence[str]) -> Window:
    limit, refill, level, at = map(float, f[1:5])
    return Window(f[0], limit, refill, level, at, Source(f[5]), *map(float, f[6:11]))


def plan_fields(row: PoolRow) -> dict[str, str]:
    """What a plan writes of a pool: limits and meters. Never counts, and never the next id."""
    found: dict[str, str] = {}
    for record in (row.limits, row.meters):
        for field in fields(record):
            value = getattr(record, field.name)
            if field.name == "windows":
                found["windows"] = windows_text(value)
            elif isinstance(value, (Phase, ShareRule)):
                found[field.name] = value.value
            elif isinstance(value, bool):
                found[field.name] = "1" if value else "0"
            elif isinstance(value, str):
                found[field.name] = escape(value)
            else:
                found[field.name] = dump_number(value)
    return found


def first_fields(row: PoolRow) -> dict[str, str]:
    """The rest of a pool that is new."""
    return {
        "in_use": "0",
        "low_in_use": "0",
        "waiting": "0",
        "watcher_id": "0",
        "events": "0",
        "facts": "0",
        "next_id": str(row.next_id),
    }


def pool_row(name: str, f: Mapping[str, str]) -> PoolRow:
    try:
        return PoolRow(
            name,
            Limits(
                version=int(f["version"]),
                valid_until=float(f["valid_until"]),
                cap=int(f["cap"]),
                ceiling=int(f["ceiling"]),
                reserve=int(f["reserve"]),
                phase=Phase(f["phase"]),
                closed_until=parse_float(f["closed_until"]),
                spacing_s=float(f["spacing_s"]),
                spacing_jitter=float(f["spacing_jitter"]),
                share=ShareRule(f["share"]),
                ageing_s=float(f["ageing_s"]),
                open_above=parse_int(f.get("open_above", "")),
            ),
            Meters(
                next_grant_at=float(f["next_grant_at"]),
                bound_at=float(f["bound_at"]),
                capped=f["capped"] == "1",
                bound_oks=int(f["bound_oks"]),
                trial_id=parse_int(f["trial_id"]),
                trial_at=float(f["trial_at"]),
                trial_project=f["trial_project"],
                trial_name=unescape(f["trial_name"]),
                hold_mean_s=float(f["hold_mean_s"]),
                high=int(f["high"]),
                turn=float(f["turn"]),
                work=float(f["work"]),
                work_tokens=float(f["work_tokens"]),
                windows=parse_windows(f["windows"]),
            ),
            PoolCounts(int(f["in_use"]), int(f["low_in_use"]), int(f["waiting"])),
            int(f["watcher_id"]),
            int(f["next_id"]),
            MachineSettings(),
        )
    except (KeyError, ValueError) as error:
        raise StoreUnreadableError(f"pool {name!r} is stored wrongly: {error!r}") from error


def pairs(flat: Sequence[Any]) -> dict[str, Any]:
    """A hash, or named values, as a script returns them: names and values in turn."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def split_uses(row: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """A pool's own fields, and those that are its projects by name."""
    fields = {name: text for name, text in row.items() if not name.startswith("use:")}
    return fields, {name[4:]: text for name, text in row.items() if name.startswith("use:")}


# -- verdicts ---------------------------------------------------------------------------------------------


def parse_verdict_or_none(pool: str, head: str) -> Verdict | None:
    return None if head == "gone" else parse_verdict(pool, head)


def parse_verdict(pool: str, head: str) -> Verdict:
    f = head.split("\t")
    if f[0] == "replay":
        granted = f[2] == "1"
        return Verdict(
            kind=VerdictKind.GRANTED if granted else VerdictKind.PARKED,
            reason=Reason.FREE if granted else Reason.QUEUE,
            pool=pool,
            claim_id=int(f[1]),
            asked_at=float(f[5]),
            in_use=int(f[3]),
            cap=int(f[4]),
            replayed=True,
        )
    if f[0] == "key used":
        return Verdict(kind=VerdictKind.REFUSED, reason=Reason.KEY_USED, pool=pool)
    if f[0] == "granted":
        return granted_verdict(pool, int(f[1]), asked_at=float(f[4]), in_use=int(f[2]), cap=int(f[3]))
    blocker = Blocker(f[11], f[12], int(f[13]), f[14], float(f[15])) if f[13] else None
    return Verdict(
        kind=VerdictKind(f[0]),
        reason=Reason(f[4]),
        pool=pool,
        claim_id=int(f[1]),
        asked_at=float(f[18]),
        in_use=int(f[2]),
        cap=int(f[3]),
        reserved=int(f[5]),
        position=int(f[6]),
        look_again_s=parse_float(f[7]),
        estimate_s=parse_float(f[8]),
        watch=f[9] == "1",
        detail=f[10],
        blocker=blocker,
        project_in_use=int(f[16]),
        project_maximum=parse_int(f[17]),
        usual_s=parse_float(f[19]),
    )


# -- leases -----------------------------------------------------------------------------------------------


def renewal_line(renewal: Renewal) -> str:
    r, tally = renewal, renewal.tally
    return (
        f"{r.node}\t{r.incarnation}\t{r.seq}\t{r.holds}\t{r.in_flight}\t{r.wants}\t{r.weight!r}\t"
        f"{r.beyond}\t{'1' if r.leaving else ''}\t"
        f"{tally.successes}\t{tally.throttles}\t{tally.overloads}\t{r.peak}\t{r.hold_s!r}\t"
        f"{dump_number(r.refused_age_s)}\t{dump_number(r.estimate)}\t{escape(r.mailbox)}"
    )


def parse_reply(line: str) -> Reply:
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


def parse_shares(rows: Sequence[str], targets: Sequence[str]) -> dict[str, ShareLease]:
    """By name, from both hashes as a script returns them."""
    asked = pairs(targets)
    return {name: _parse_share(name, line, asked[name]) for name, line in pairs(rows).items()}


def _parse_share(name: str, line: str, target: str) -> ShareLease:
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
            tally=CallCounts(int(f[11]), int(f[12]), int(f[13])),
            peak=int(f[14]),
            estimate=parse_float(f[15]),
            mailbox=unescape(f[16]),
        )
    except (IndexError, ValueError) as error:
        raise StoreUnreadableError(f"share lease {name!r} is stored wrongly: {error}") from error


# -- share budgets ----------------------------------------------------------------------------------------


def parse_budget(f: Mapping[str, str], *, epoch: str) -> ShareBudget | None:
    """The budget among a pool's fields. ``epoch``: the life that is to have no name."""
    if "pot:held" not in f:
        return None
    try:
        return ShareBudget(
            cap=int(f["pot:cap"]),
            held=int(f["pot:held"]),
            nodes=int(f["pot:nodes"]),
            learning_until=float(f["pot:learning_until"]),
            epoch="" if epoch in ("", f["pot:epoch"]) else f["pot:epoch"],
            busy=int(f["pot:busy"]),
            active=int(f["pot:active"]),
            estimate=parse_float(f["pot:estimate"]),
            dirty=f["pot:dirty"] != "0",
            planned_at=float(f["pot:planned_at"]),
            until=float(f["pot:until"]),
        )
    except (KeyError, ValueError) as error:
        raise StoreUnreadableError(f"share leases are stored wrongly: {error!r}") from error


def budget_fields(budget: ShareBudget) -> dict[str, str]:
    """What a plan writes of a share budget: never what renewals count."""
    return {
        "pot:cap": str(budget.cap),
        "pot:learning_until": dump_number(budget.learning_until),
        "pot:epoch": budget.epoch,
        "pot:estimate": dump_number(budget.estimate),
        "pot:dirty": "1" if budget.dirty else "0",
        "pot:planned_at": dump_number(budget.planned_at),
        "pot:until": dump_number(budget.until),
    }


def terms_fields(terms: ShareTiming) -> dict[str, str]:
    """The times that a renewal goes by."""
    return {
        "beat_s": dump_number(terms.heartbeat_s),
        "ttl_s": dump_number(terms.ttl_s),
        "lease_s": dump_number(terms.lease_s),
        "eager_s": dump_number(terms.eager_s),
    }
