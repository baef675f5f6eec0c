"""A replica that is promoted may lack the last moments of its primary: share leases learn first."""

from __future__ import annotations

import socket

from flyball import Governor
from flyball.core.share_lease.renewal import Renewal, Reply
from flyball.governor.internals import internals
from flyball.stores.redis.connection import RedisConnections
from tests.redis_server import RedisServer
from tests.waiting import until

POOL = "p"
BEAT_S = 0.5


class Holder:
    """One that declares what it has, and takes whatever it is given."""

    def __init__(self, name: str) -> None:
        self.name, self.seq, self.holds = name, 0, 0

    def renew(self, governor: Governor) -> Reply:
        self.seq += 1
        renewal = Renewal(
            node=self.name,
            incarnation=self.name,
            seq=self.seq,
            holds=self.holds,
            in_flight=self.holds,
            wants=9,
        )
        reply = internals(governor).renew(POOL, renewal)
        self.holds = max(self.holds, reply.slots)
        return reply


def test_a_promoted_replica_learns_before_it_gives_anything() -> None:
    primary = RedisServer(tcp=True)
    replica = RedisServer("--replicaof", "127.0.0.1", str(primary.port))
    before, after = Governor(primary.url), Governor(replica.url)
    try:
        before.set_pool(POOL, cap=4, adaptive=False, heartbeat_s=BEAT_S)
        incumbent, joiner = Holder("a"), Holder("b")
        until(lambda: incumbent.renew(before).slots == 4)
        _wait_for_replica(primary)
        primary.kill()
        _promote(replica)
        first = joiner.renew(after)
        assert (first.learning, first.slots) == (True, 0), "another may hold what it does not know of"
        assert incumbent.renew(after).slots == 4, "and it does"
        until(lambda: {holder.renew(after).learning for holder in (incumbent, joiner)} == {False})
        assert joiner.holds == 0, "nothing is free"
        assert internals(after).store.miscounts() == []
    finally:
        before.close()
        after.close()
        primary.close()
        replica.close()


def _wait_for_replica(primary: RedisServer) -> None:
    link = RedisConnections(primary.url)
    until(lambda: link.ask("WAIT", 1, 100))
    link.close()


def _promote(replica: RedisServer) -> None:
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(str(replica.folder / "s"))
        link.sendall(b"REPLICAOF NO ONE\r\n")
        assert link.recv(64).startswith(b"+OK")
