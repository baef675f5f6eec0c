"""What the gateway costs: beside a direct connection, nginx and a LiteLLM proxy, on one machine.

A client, a provider of streams and what stands between them are processes of their own. Each round goes
through all doors in turn. The gateway takes a slot of a pool for each call, in a state file, as it does for
everyone; nginx only passes bytes on, and LiteLLM reads and writes them anew. Those two are measured where
they are installed (``make peers``).

What passes in a second is measured twice: what a provider sends at its own pace, all of it far more than
agents read, and one answer as fast as the loopback takes it, where client and provider alone fill two cores.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.fleet import BenchError
from bench.gateway_wire import HOST, Door, Load, Stream, load
from bench.homes import scratch
from bench.report import Figure, Progress, Section, Target, beside, percentile

NAME = "gateway"
TITLE = "the loopback gateway beside a direct connection"
LITELLM = Path(__file__).parent.parent / ".tools" / "litellm" / "bin" / "litellm"
_START_S = 90.0


@dataclass(frozen=True, slots=True)
class Sizes:
    rounds: int
    streams: int
    stream: Stream
    for_s: float
    paced: Stream
    paced_streams: int
    bulk: Stream
    held: int
    held_stream: Stream
    held_ramp_s: float
    held_peers: int
    with_peers: bool = True


FULL = Sizes(
    rounds=3,
    streams=200,
    stream=Stream(chunks=10, bytes=100, gap_ms=400),
    for_s=8.0,
    paced=Stream(chunks=50, bytes=32 * 1024, gap_ms=50),
    paced_streams=20,
    bulk=Stream(chunks=2048, bytes=64 * 1024),
    held=2000,
    held_stream=Stream(chunks=12, bytes=100, gap_ms=1000),
    held_ramp_s=6.0,
    held_peers=200,
)
QUICK = Sizes(
    rounds=1,
    streams=20,
    stream=Stream(chunks=3, bytes=100, gap_ms=50),
    for_s=0.5,
    paced=Stream(chunks=10, bytes=32 * 1024, gap_ms=10),
    paced_streams=5,
    bulk=Stream(chunks=32, bytes=64 * 1024),
    held=40,
    held_stream=Stream(chunks=4, bytes=100, gap_ms=100),
    held_ramp_s=0.2,
    held_peers=20,
)


TINY = Sizes(
    rounds=1,
    streams=2,
    stream=Stream(chunks=1, bytes=100),
    for_s=0.05,
    paced=Stream(chunks=2, bytes=1024, gap_ms=1),
    paced_streams=2,
    bulk=Stream(chunks=2, bytes=1024),
    held=2,
    held_stream=Stream(chunks=2, bytes=100, gap_ms=50),
    held_ramp_s=0.0,
    held_peers=1,
    with_peers=False,
)
"""Does it run."""


@dataclass(frozen=True, slots=True)
class Between:
    """A door with the processes that stand behind it."""

    door: Door
    pids: tuple[int, ...]

    def memory_bytes(self) -> int:
        return sum(_private_bytes(pid) for pid in self.pids)

    def cpu_s(self) -> float:
        return sum(_cpu_s(pid) for pid in self.pids)


def run(sizes: Sizes, progress: Progress) -> Section:
    notes: list[str] = []
    with ExitStack() as stack:
        home = stack.enter_context(scratch())
        server = stack.enter_context(_started([sys.executable, "-m", "bench.gateway_wire", "0"]))
        port = int((server.stdout or sys.stdin.buffer).readline())
        direct = Between(Door("a direct connection", port), ())
        ours = stack.enter_context(_gateway(home, port))
        peers = [direct]
        nginx = shutil.which("nginx") if sizes.with_peers else None
        if nginx is not None:
            peers.append(stack.enter_context(_nginx(nginx, home, port)))
        if sizes.with_peers and LITELLM.exists():
            peers.append(stack.enter_context(_litellm(home, port)))
        if sizes.with_peers and len(peers) < 3:
            notes.append("nginx or LiteLLM is not here: make peers")
        figures = [
            *_first_byte(ours, peers, sizes, progress),
            *_throughput(ours, peers, sizes, progress),
            *_held(ours, peers[1:], sizes, progress),
        ]
    return Section(NAME, TITLE, tuple(figures), tuple(notes))


def _first_byte(ours: Between, peers: list[Between], sizes: Sizes, progress: Progress) -> Iterator[Figure]:
    seen: dict[str, list[Load]] = {}
    ramp_s = sizes.stream.chunks * sizes.stream.gap_ms / 1000
    for number in range(sizes.rounds):
        progress(f"{NAME}: {sizes.streams} open streams, round {number + 1} of {sizes.rounds}")
        for between in (*peers, ours):
            took = asyncio.run(
                load(
                    between.door,
                    sizes.stream,
                    at_once=sizes.streams,
                    for_s=sizes.for_s + ramp_s,
                    ramp_s=ramp_s,
                )
            )
            if took.failed:
                raise BenchError(f"{took.failed} streams through {between.door.name} broke off")
            seen.setdefault(between.door.name, []).append(took)
    for percent, target in ((50, Target("beyond", 1.0)), (99, Target("beyond", 3.0))):
        mine = [1000 * percentile(each.first_byte_s, percent) for each in seen[ours.door.name]]
        for peer in peers:
            theirs = [1000 * percentile(each.first_byte_s, percent) for each in seen[peer.door.name]]
            yield beside(
                f"first byte at {sizes.streams} open streams: p{percent}",
                mine,
                theirs,
                unit="ms",
                name=peer.door.name,
                target=target if peer is peers[0] else None,
            )


def _throughput(ours: Between, peers: list[Between], sizes: Sizes, progress: Progress) -> Iterator[Figure]:
    yield from _rate(
        f"{sizes.paced_streams} streams at the provider's pace",
        (ours, peers),
        sizes.paced,
        at_once=sizes.paced_streams,
        rounds=sizes.rounds,
        target=Target("ratio", 0.9, at_least=True),
        progress=progress,
    )
    yield from _rate(
        "one answer at the loopback's pace",
        (ours, peers),
        sizes.bulk,
        at_once=1,
        rounds=sizes.rounds,
        target=None,
        progress=progress,
    )


def _rate(
    what: str,
    doors: tuple[Between, list[Between]],
    stream: Stream,
    *,
    at_once: int,
    rounds: int,
    target: Target | None,
    progress: Progress,
) -> Iterator[Figure]:
    ours, peers = doors
    rate: dict[str, list[float]] = {}
    cost: dict[str, list[float]] = {}
    for number in range(rounds):
        progress(f"{NAME}: {what}, round {number + 1} of {rounds}")
        for between in (*peers, ours):
            before = between.cpu_s()
            took = asyncio.run(load(between.door, stream, at_once=at_once, for_s=0))
            megabytes = took.bytes / 1e6
            rate.setdefault(between.door.name, []).append(megabytes / took.seconds)
            cost.setdefault(between.door.name, []).append(1000 * (between.cpu_s() - before) / megabytes)
    mine = ours.door.name
    for peer in peers:
        yield beside(
            what,
            rate[mine],
            rate[peer.door.name],
            unit="MB/s",
            name=peer.door.name,
            target=target if peer is peers[0] else None,
        )
    for peer in peers[1:]:
        yield beside(f"{what}: CPU per MB", cost[mine], cost[peer.door.name], unit="ms", name=peer.door.name)


def _held(ours: Between, peers: list[Between], sizes: Sizes, progress: Progress) -> Iterator[Figure]:
    progress(f"{NAME}: {sizes.held} streams held")
    each, failed = _memory_per_stream(ours, sizes, count=sizes.held)
    yield Figure(
        what=f"streams held at once, of {sizes.held}",
        ours=sizes.held - failed,
        unit="",
        target=Target("value", sizes.held, at_least=True),
    )
    yield Figure(what=f"memory of each of {sizes.held} streams", ours=each / 1e3, unit="kB")
    for peer in peers:
        progress(f"{NAME}: {sizes.held_peers} streams held by {peer.door.name}")
        mine, _ = _memory_per_stream(ours, sizes, count=sizes.held_peers)
        theirs, _ = _memory_per_stream(peer, sizes, count=sizes.held_peers)
        yield Figure(
            what=f"memory of each of {sizes.held_peers} streams",
            ours=mine / 1e3,
            unit="kB",
            beside=peer.door.name,
            theirs=theirs / 1e3,
        )


def _memory_per_stream(between: Between, sizes: Sizes, *, count: int) -> tuple[float, int]:
    """Bytes while all are open, less those before; and how many broke off."""

    async def hold() -> tuple[int, Load]:
        before = between.memory_bytes()
        going = asyncio.ensure_future(
            load(between.door, sizes.held_stream, at_once=count, for_s=0, ramp_s=sizes.held_ramp_s)
        )
        length_s = sizes.held_stream.chunks * sizes.held_stream.gap_ms / 1000
        await asyncio.sleep((sizes.held_ramp_s + length_s) / 2 + sizes.held_ramp_s / 4)
        return between.memory_bytes() - before, await going

    grown, took = asyncio.run(hold())
    return max(0, grown) / count, took.failed


# -- doors --------------------------------------------------------------------------------------------------


@contextmanager
def _gateway(home: Path, port: int) -> Iterator[Between]:
    from flyball.gateway.address import base_address
    from flyball.gateway.lifetime import find_gateway

    state = home / "state"
    env = {**_environment(), "FLYBALL_HOME": str(state)}
    flyball = [sys.executable, "-m", "flyball"]
    for pool in (HOST, "claude-x"):
        capped = [*flyball, "pool", "set", pool, "--cap", "10000", "--static"]
        subprocess.run(capped, env=env, check=True, stdout=subprocess.DEVNULL)
    with _started([*flyball, "gateway", "run"], env=env) as process:
        if process.stdout is not None:
            process.stdout.readline()  # it is ready
        gateway = find_gateway(state)
        if gateway is None:
            raise BenchError("the gateway did not start")
        base = base_address(gateway.address, f"http://{HOST}:{port}", project="bench", name="load")
        yield Between(
            Door("the gateway", gateway.port, base.partition(f":{gateway.port}")[2]), (process.pid,)
        )


_NGINX = """\
daemon off; master_process off; pid {home}/nginx.pid; error_log stderr error;
events {{ worker_connections 20000; }}
http {{
  access_log off;
  client_body_temp_path {home}/n1; proxy_temp_path {home}/n2; fastcgi_temp_path {home}/n3;
  uwsgi_temp_path {home}/n4; scgi_temp_path {home}/n5;
  upstream provider {{ server {host}:{port}; keepalive 256; }}
  server {{
    listen {host}:{listen} backlog=4096;
    location / {{
      proxy_pass http://provider; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; proxy_read_timeout 600s;
    }}
  }}
}}
"""


@contextmanager
def _nginx(program: str, home: Path, port: int) -> Iterator[Between]:
    listen = _free_port()
    config = home / "nginx.conf"
    config.write_text(_NGINX.format(home=home, host=HOST, port=port, listen=listen))
    with _started([program, "-c", str(config), "-e", "stderr"]) as process:
        _until_open(listen, process)
        yield Between(Door("nginx", listen), (process.pid,))


@contextmanager
def _litellm(home: Path, port: int) -> Iterator[Between]:
    """As a pass-through: what it is asked under /anthropic goes to the provider."""
    listen = _free_port()
    env = {
        **_environment(),
        "ANTHROPIC_API_BASE": f"http://{HOST}:{port}",
        "ANTHROPIC_API_KEY": "k",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_MASTER_KEY": "sk-bench",
        "HOME": str(home),
    }
    command = [
        str(LITELLM),
        "--host",
        HOST,
        "--port",
        str(listen),
        "--num_workers",
        "1",
        "--telemetry",
        "False",
    ]
    with _started(command, env=env) as process:
        _until_open(listen, process)
        headers = (("Authorization", "Bearer sk-bench"),)
        yield Between(Door("a LiteLLM proxy", listen, "/anthropic", headers), _family(process.pid))


@contextmanager
def _started(
    command: list[str], *, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    with process:  # waits, and closes what we read of it
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def _environment() -> dict[str, str]:
    dropped = ("FLYBALL_", "PYTHONDONTWRITEBYTECODE")
    return {key: value for key, value in os.environ.items() if not key.startswith(dropped)}


def _free_port() -> int:
    import socket

    with socket.socket() as place:
        place.bind((HOST, 0))
        return int(place.getsockname()[1])


def _until_open(port: int, process: subprocess.Popen[bytes]) -> None:
    import socket

    end = time.monotonic() + _START_S
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection((HOST, port), timeout=1.0).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise BenchError(f"nothing listens on port {port}")


# -- what processes use -------------------------------------------------------------------------------------


def _family(pid: int) -> tuple[int, ...]:
    """A process and all that it started."""
    found = [pid]
    for each in found:
        for children in Path(f"/proc/{each}/task").glob("*/children"):
            found += [int(child) for child in children.read_text().split()]
    return tuple(found)


def _private_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
