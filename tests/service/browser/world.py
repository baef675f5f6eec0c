"""Something to see: pools, leases, asks and the dead, made with a real governor in a real store."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from itertools import count

from flyball.core.pool.model import Ask
from flyball.core.pool.verdict import VerdictKind
from flyball.errors import RefusedError
from flyball.governor.governor import Governor
from flyball.governor.internals import internals
from flyball.governor.lease import Lease
from flyball.host.process import me

NASTY = "<img src=x onerror=document.title='pwned'>"
"""A name that would be a program if it were taken for markup."""
_HOLD_UNTIL_KILLED = """
import sys
from flyball.errors import RefusedError
from flyball.governor.governor import Governor
lease = Governor(sys.argv[1]).acquire(sys.argv[2], project=sys.argv[3], name=sys.argv[4])
print(lease.id, flush=True)
sys.stdin.read()
"""
_numbers = count(1)


def run(gov: Governor, pool: str, *names: str) -> list[Lease]:
    """Leases of this process, each ``project/name``."""
    return [_acquire(gov, pool, *name.split("/", 1)) for name in names]


def _acquire(gov: Governor, pool: str, project: str, name: str) -> Lease:
    return gov.acquire_nowait(pool, project=project, name=name)


def wait(gov: Governor, pool: str, *names: str) -> None:
    """Asks of this process that stand in line."""
    for each in names:
        project, name = each.split("/", 1)
        verdict, _ = internals(gov).store.admit(
            Ask(pool=pool, project=project, name=name, holder=me()), park=True
        )
        assert verdict.kind is VerdictKind.PARKED, verdict.words()


def refuse(gov: Governor, pool: str, times: int) -> None:
    """Asks of a full pool that do not wait: each is a fact."""
    for _ in range(times):
        with suppress(RefusedError):
            gov.acquire_nowait(pool, project="mail", name=f"t-{next(_numbers)}")


def die(gov: Governor, pool: str, name: str) -> int:
    """A lease whose process was killed; its id."""
    project, task = name.split("/", 1)
    command = [sys.executable, "-c", _HOLD_UNTIL_KILLED, gov.address, pool, project, task]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        claim_id = int(process.stdout.readline())
        process.kill()
    return claim_id


def close_for_long(gov: Governor, pool: str) -> None:
    """A pool whose breaker is open for ten minutes."""
    gov.set_pool(pool, controller="koryph", cap=1, cap_floor=1, settle_s=0.0, break_s=600.0)
    trip(gov, pool)


def trip(gov: Governor, pool: str) -> None:
    """A throttle at the floor opens the breaker."""
    with gov.slot(pool, project="mail", name=f"t-{next(_numbers)}", timeout=5) as lease:
        lease.report(429)


def furnish(gov: Governor) -> list[Lease]:
    """A little of everything."""
    gov.set_pool("anthropic", adaptive=False, cap=4)
    held = run(gov, "anthropic", "shop/t-1", "shop/t-2", "blog/t-3", f"blog/{NASTY}")
    wait(gov, "anthropic", "shop/t-5", "docs/t-6", f"{NASTY}/t-7")
    gov.set_pool("github-api", adaptive=False, cap=30, reserve=2)
    held += run(gov, "github-api", "shop/sync-1", "blog/sync-2")
    die(gov, "github-api", "docs/nightly-index")
    close_for_long(gov, "openai")
    return held
