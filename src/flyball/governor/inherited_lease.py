"""A lease that ``exec`` passes on: work inside it uses it instead of waiting for itself.

``FLYBALL_LEASE`` names the leases a process runs under. They count only while the store still knows them,
so a daemon that outlives its ``exec`` asks like everyone else. What cannot be understood counts as none.
"""

from __future__ import annotations

import json
import os

from flyball.core.pool.model import Claim
from flyball.core.server_url import redacted
from flyball.errors import UsageError

VARIABLE = "FLYBALL_LEASE"


def variable_value(address: str, pool: str, claim_id: int) -> str:
    """The value of the variable for a child that runs under this lease too."""
    # Without the password: an environment is read by many.
    at = redacted(address)
    kept = [entry for entry in _entries() if (entry.get("at"), entry.get("pool")) != (at, pool)]
    return json.dumps([*kept, {"at": at, "pool": pool, "id": claim_id}])


def inherited_id(address: str, pool: str) -> int | None:
    """The lease on this pool that we already run under, if any."""
    entries = _entries()
    at = redacted(address) if entries else ""
    for entry in entries:
        found = entry.get("id")
        if (entry.get("at"), entry.get("pool")) == (at, pool) and type(found) is int and 0 < found < 2**63:
            return found
    return None


def inherited_ids(address: str) -> list[int]:
    """The leases on any pool of this state that we already run under, the innermost first."""
    pools = [str(entry.get("pool")) for entry in reversed(_entries())]
    found = (inherited_id(address, pool) for pool in dict.fromkeys(pools))
    return [claim_id for claim_id in found if claim_id is not None]


def check_fits(slots: int, outer: Claim) -> None:
    """What works inside a lease cannot have more than that."""
    if slots > outer.slots:
        raise UsageError(
            f"asks for {slots} slots of {outer.pool} inside a lease of {outer.slots}, "
            f"which it uses; give the outer one more (flyball exec --slots {slots})"
        )


def _entries() -> list[dict[str, object]]:
    text = os.environ.get(VARIABLE)
    if not text:
        return []
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
