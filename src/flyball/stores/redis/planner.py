"""The slow tempo of a pool on a server: what a script could not decide goes through ``core/plan`` here.

A script that meets a stale plan, or puts something into the pool's inbox, returns what a plan is made from.
``planned`` folds it and says what changed; the script is run again with that, and swaps it in if the plan's
version has not moved. Whoever loses goes on with the winner's plan, which heard the whole inbox. So nothing
that was said is lost, and nobody holds a lock.

Meters that grants move meanwhile stay as they are unless the plan itself changed them, and then what was
added meanwhile stays added.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from flyball.core.model import Claim, Outcome
from flyball.core.signals import Signal, SignalKind
from flyball.errors import invariant
from flyball.stores.desk import PoolDesk, World
from flyball.stores.handout import end_trial
from flyball.stores.redis import records
from flyball.stores.redis.image import Changes, Image, PoolState


def planned(state: PoolState, world: World) -> Changes:
    """A fresh plan that has heard everything in the inbox."""
    image = Image(state.now)
    image.load(state)
    hear(image, state, world)
    return image.changes()


def hear(image: Image, state: PoolState, world: World) -> None:
    """Fold what the inbox holds, and divide the pot where that was asked for."""
    # Opening a desk makes a pool that is new, and plans anew where time has passed.
    desk = PoolDesk(image, state.pool, world)
    for event in state.events:
        kind, _, rest = event.partition("\t")
        _HEARD[kind](desk, rest)
    if state.divide:
        from flyball.stores import shares

        shares.divide(desk)
    image.notices += desk.done().notices


def _arrived(desk: PoolDesk, project: str) -> None:
    desk.refresh(arriving=project)


def _refresh(desk: PoolDesk, _: str) -> None:
    desk.refresh()


def _signal(desk: PoolDesk, rest: str) -> None:
    event, _, line = rest.partition("\t")
    signal, project, name, claim_id = _decoded(event)
    claim = records.claim_of(desk.row.name, claim_id, line) if line and claim_id is not None else None
    desk.fold(signal, project=project, name=name, claim_id=claim_id, claim=claim)


def _throttled(desk: PoolDesk, rest: str) -> None:
    claim_id, _, line = rest.partition("\t")
    claim: Claim = records.claim_of(desk.row.name, int(claim_id), line)
    signal = Signal(SignalKind.THROTTLED, detail="released as throttled")
    desk.fold(signal, project=claim.project, name=claim.name, claim_id=claim.id, claim=claim)


def _refused(desk: PoolDesk, rest: str) -> None:
    from flyball.stores import shares

    kind, times, age_s, node = rest.split("\t")
    shares.refused(desk, SignalKind(kind), int(times), node=node, age_s=records.real(age_s))


def _trial_ended(desk: PoolDesk, outcome: str) -> None:
    end_trial(desk, Outcome(outcome))


_HEARD: dict[str, Callable[[PoolDesk, str], None]] = {
    "arrived": _arrived,
    "left": _refresh,
    "refresh": _refresh,
    "refused": _refused,
    "signal": _signal,
    "throttled": _throttled,
    "trial ended": _trial_ended,
}


def signal_event(signal: Signal, *, project: str, name: str, claim_id: int | None) -> str:
    """A signal as the inbox keeps it: one field."""
    import msgspec

    return msgspec.json.encode([signal, project, name, claim_id]).decode()


def _decoded(event: str) -> tuple[Signal, str, str, int | None]:
    import msgspec

    return msgspec.json.decode(event, type=tuple[Signal, str, str, int | None])


def payload(changes: Changes) -> str:
    """What the script swaps in."""
    invariant(changes.pool or changes.divided, "a plan changes at least its version")
    return json.dumps(
        {
            "version": changes.version,
            "planned": changes.planned,
            "divided": changes.divided,
            "heard": changes.heard,
            "pool": dict(changes.pool),
            "read": dict(changes.read),
            "projects": dict(changes.projects),
            "facts": [records.fact_line(fact) for fact in changes.facts],
            "targets": [part for name, target in changes.targets.items() for part in (name, str(target))],
            "short": [part for name in changes.short for part in ("0", name)],
            "served": changes.served,
            "gone": changes.gone,
            "notices": [records.plain(mailbox) for mailbox in changes.notices],
        },
        ensure_ascii=False,
    )


def numbered(changes: Changes, next_id: int) -> Changes:
    """The changes that make a pool, with the ids it may use."""
    return replace(changes, pool={**changes.pool, "next_id": str(next_id)})


def block_payload(next_id: int) -> str:
    return json.dumps({"block": str(next_id)})
