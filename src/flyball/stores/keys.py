"""Asks from afar: under a key, and with a time to live, in the same step that grants or parks them.

Whoever asks over a network may lose the answer and ask again. Under a key it is then told what it was told
the first time, and gets nothing twice. A refusal is not remembered: the next attempt may be granted. Where
its ask still stands in line, it waits from now on where the repeated ask came in: at another server, or at
the same one after a restart.

Nobody here can tell whether such an asker lives, so its ask and its lease end with their time, unless they
are extended. Whoever is kept waiting takes back first what has ended so.
"""

from __future__ import annotations

from flyball.core.model import Ask, Receipt
from flyball.core.settings import KEY_TTL_S
from flyball.core.verdict import Kind, Reason, Verdict
from flyball.stores.desk import PoolDesk, ask_fact
from flyball.stores.handout import take_back
from flyball.stores.port import Wake

NOT_EXTENDED = "it was not extended in time"


def known(desk: PoolDesk, ask: Ask) -> Verdict | None:
    """What was said to an ask under the same key; None if there was none."""
    receipt = desk.rows.receipt(ask.pool, ask.key)
    if receipt is None or receipt.until <= desk.now:
        return None
    if receipt.fingerprint != ask.fingerprint:
        return Verdict(kind=Kind.REFUSED, reason=Reason.KEY_USED, pool=ask.pool)
    if not receipt.granted and ask.mailbox:
        _wait_at(desk, ask, receipt.claim_id)
    return Verdict(
        kind=Kind.GRANTED if receipt.granted else Kind.PARKED,
        reason=Reason.FREE if receipt.granted else Reason.QUEUE,
        pool=ask.pool,
        claim_id=receipt.claim_id,
        asked_at=receipt.asked_at,
        in_use=receipt.in_use,
        cap=receipt.cap,
        replayed=True,
    )


def _wait_at(desk: PoolDesk, ask: Ask, claim_id: int) -> None:
    """An ask in line is woken at the mailbox of the request that repeats it, and has its time anew."""
    claim = desk.rows.claim(claim_id)
    if claim is None or claim.held:
        return
    if claim.mailbox != ask.mailbox:
        # A request that still waits at the old one has to look by itself from now on.
        desk.after.wakes.append(Wake(claim.mailbox, claim.id, claim.holder))
        desk.rows.put_mailbox(claim.id, ask.mailbox)
    if ask.ttl_s is not None:
        desk.rows.expire(claim.id, desk.now + ask.ttl_s)


def write(desk: PoolDesk, ask: Ask, verdict: Verdict) -> None:
    """Remember what an ask was told, and when it ends."""
    if ask.ttl_s is not None:
        desk.rows.expire(verdict.claim_id, desk.now + ask.ttl_s)
    if ask.key:
        until = desk.now + KEY_TTL_S
        receipt = Receipt(
            ask.fingerprint,
            verdict.claim_id,
            verdict.granted,
            verdict.in_use,
            verdict.cap,
            until,
            verdict.asked_at,
        )
        desk.rows.put_receipt(ask.pool, ask.key, receipt)


def take_back_expired(desk: PoolDesk) -> bool:
    """Take back the oldest claim of this pool that has outlived its time; whether there was one."""
    over = [claim for claim in desk.rows.expired(desk.now) if claim.pool == desk.row.name]
    if not over:
        return False
    claim = min(over, key=lambda claim: claim.id)
    what = "slot taken back" if claim.held else "ask dropped"
    desk.tell([ask_fact(claim, desk.now, "reclaimed", f"{what}: {NOT_EXTENDED}")])
    take_back(desk, claim)
    return True
