"""What may go the short way, and what text may be stored."""

from __future__ import annotations

from flyball.core.model import Phase
from flyball.core.settings import ShareRule
from flyball.stores.rows import PoolRow


def is_plain(row: PoolRow, now: float) -> bool:
    """Is the cap all that an ask has to be compared with, until the next plan? (002_short_way.sql)"""
    limits, meters = row.limits, row.meters
    return (
        limits.phase is Phase.CLOSED
        and limits.closed_until is None
        and limits.spacing_s == 0
        and limits.reserve == 0
        and limits.share is ShareRule.LEND
        and meters.next_grant_at <= now
        and not meters.work
        and not meters.windows
    )


def storable(value: object) -> object:
    """Any text in a form that the server takes: it knows no NUL, and nothing that UTF-8 cannot hold."""
    if not isinstance(value, str) or value.isprintable():
        return value
    return value.replace("\0", "\ufffd").encode(errors="replace").decode()
