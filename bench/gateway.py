"""What the gateway costs: beside a direct connection, nginx and a LiteLLM proxy, on one machine.

A client, a provider of streams and what stands between them are processes of their own. Each round goes
through all doors in turn. The gateway takes a slot of a pool for each call, in a state file, as it does for
everyone; nginx only passes bytes on, and LiteLLM reads and writes them anew. Those two are measured where
they are installed (``make peers``), each beside the gateway at as many streams as it holds: where that is
less than asked for, or one does not answer any more, the table says so and goes on.

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
from collections.abc import Callable, Iterator, Mapping
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
    patience_s: float = 60.0
    """So long what was planned may take beyond its time."""
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
    streams: int
    """So many it is asked to hold at once."""

    def memory_bytes(self) -> int:
        return sum(_private_bytes(pid) for pid in self.pids)

    def cpu_s(self) -> float:
        return sum(_cpu_s(pid) for pid in self.pids)


class PeerFailedError(Exception):
    """A peer did not answer, or not in time."""


@dataclass(slots=True)
class Bench:
    """What is measured, beside what, and what there is to say about it."""

    sizes: Sizes
    progress: Progress
    ours: Between
    direct: Between
    peers: list[Between]
    notes: list[str]

    def load(
        self, between: Between, stream: Stream, *, at_once: int, for_s: float = 0.0, ramp_s: float = 0.0
    ) -> Load:
        within_s = self.sizes.patience_s
        took = asyncio.run(
            load(between.door, stream, at_once=at_once, for_s=for_s, ramp_s=ramp_s, within_s=within_s)
        )
        self.check(between, took, at_once)
        return took

    def check(self, between: Between, took: Load, at_once: int) -> None:
        if not took.failed:
            return
        words = (
            f"{took.failed} streams of {at_once} at once through {between.door.name} did not come to an end"
        )
        raise PeerFailedError(words) if between in self.peers else BenchError(words)

    def beside_each(self, what: str, measure: Callable[[Between], Iterator[Figure]]) -> Iterator[Figure]:
        """The figures beside a direct connection, and then those beside each peer: one that fails is not
        asked again."""
        yield from measure(self.direct)
        for peer in tuple(self.peers):
            self.progress(f"{NAME}: {what}, beside {peer.door.name}")
            try:
                yield from tuple(measure(peer))
            except PeerFailedError as failed:
                self.peers.remove(peer)
                self.notes.append(f"{what}: {failed}; {peer.door.name} was not measured any further")


def run(sizes: Sizes, progress: Progress) -> Section:
    notes: list[str] = []
    with ExitStack() as stack:
        home = stack.enter_context(scratch())
        server = stack.enter_context(_started([sys.executable, "-m", "bench.gateway_wire", "0"]))
        port = int((server.stdout or sys.stdin.buffer).readline())
        direct = Between(Door("a direct connection", port), (), sizes.streams)
        ours = stack.enter_context(_gateway(home, port, sizes.streams))
        bench = Bench(sizes, progress, ours, direct, [], notes)
        nginx = shutil.which("nginx") if sizes.with_peers else None
        if nginx is not None:
            bench.peers.append(stack.enter_context(_nginx(nginx, home, port, sizes.streams)))
        if sizes.with_peers and LITELLM.exists():
            held = _streams_that_litellm_holds(home, port, bench)
            if held:
                bench.peers.append(stack.enter_context(_litellm(home, port, held)))
        if sizes.with_peers and (nginx is None or not LITELLM.exists()):
            notes.append("nginx or LiteLLM is not here: make peers")
        figures = [*_first_byte(bench), *_throughput(bench), *_held(bench)]
    return Section(NAME, TITLE, tuple(figures), tuple(notes))


def _streams_that_litellm_holds(home: Path, port: int, bench: Bench) -> int:
    """Tried on one of its own, since one that was asked for too many may not answer again."""
    wanted, held = bench.sizes.streams, 0
    with _litellm(home, port, wanted) as tried:
        name = tried.door.name
        for count in sorted({max(1, wanted // part) for part in (8, 4, 2, 1)}):
            bench.progress(f"{NAME}: does {name} hold {count} streams?")
            ramp_s = bench.sizes.stream.length_s
            within_s = bench.sizes.patience_s
            took = asyncio.run(
                load(
                    tried.door,
                    bench.sizes.stream,
                    at_once=count,
                    for_s=0,
                    ramp_s=ramp_s,
                    within_s=within_s,
                )
            )
            if took.failed:
                part = f"measured at {held}" if held else "not measured"
                words = f"{took.failed} of {count} streams through {name} did not come to an end"
                bench.notes.append(f"{words}: it is {part}")
                break
            held = count
    return held


def _first_byte(bench: Bench) -> Iterator[Figure]:
    sizes = bench.sizes
    ramp_s = sizes.stream.length_s

    def measure(other: Between) -> Iterator[Figure]:
        count = other.streams
        seen: dict[str, list[Load]] = {}
        for number in range(sizes.rounds):
            bench.progress(f"{NAME}: {count} open streams, round {number + 1} of {sizes.rounds}")
            for between in (other, bench.ours):
                took = bench.load(
                    between, sizes.stream, at_once=count, for_s=sizes.for_s + ramp_s, ramp_s=ramp_s
                )
                seen.setdefault(between.door.name, []).append(took)
        for percent, limit in ((50, 1.0), (99, 3.0)):
            mine = [1000 * percentile(each.first_byte_s, percent) for each in seen[bench.ours.door.name]]
            theirs = [1000 * percentile(each.first_byte_s, percent) for each in seen[other.door.name]]
            yield beside(
                f"first byte at {count} open streams: p{percent}",
                mine,
                theirs,
                unit="ms",
                name=other.door.name,
                target=Target("beyond", limit) if other is bench.direct else None,
            )

    yield from bench.beside_each("first byte", measure)


def _throughput(bench: Bench) -> Iterator[Figure]:
    sizes = bench.sizes
    yield from _rate(
        bench,
        "{} streams at the provider's pace",
        sizes.paced,
        at_once=sizes.paced_streams,
        target=Target("ratio", 0.9, at_least=True),
    )
    yield from _rate(bench, "one answer at the loopback's pace", sizes.bulk, at_once=1, target=None)


def _rate(
    bench: Bench, named: str, stream: Stream, *, at_once: int, target: Target | None
) -> Iterator[Figure]:
    def measure(other: Between) -> Iterator[Figure]:
        count = min(at_once, other.streams)
        what = named.format(count)
        rate: dict[str, list[float]] = {}
        cost: dict[str, list[float]] = {}
        for number in range(bench.sizes.rounds):
            bench.progress(f"{NAME}: {what}, round {number + 1} of {bench.sizes.rounds}")
            for between in (other, bench.ours):
                before = between.cpu_s()
                took = bench.load(between, stream, at_once=count)
                megabytes = took.bytes / 1e6
                rate.setdefault(between.door.name, []).append(megabytes / took.seconds)
                cost.setdefault(between.door.name, []).append(1000 * (between.cpu_s() - before) / megabytes)
        mine, theirs = bench.ours.door.name, other.door.name
        yield beside(
            what,
            rate[mine],
            rate[theirs],
            unit="MB/s",
            name=theirs,
            target=target if other is bench.direct else None,
        )
        if other is not bench.direct:
            yield beside(f"{what}: CPU per MB", cost[mine], cost[theirs], unit="ms", name=theirs)

    yield from bench.beside_each(named.format(at_once), measure)


def _held(bench: Bench) -> Iterator[Figure]:
    sizes = bench.sizes

    def measure(other: Between) -> Iterator[Figure]:
        if other is bench.direct:
            bench.progress(f"{NAME}: {sizes.held} streams held")
            each, failed = _memory_per_stream(bench.ours, sizes, count=sizes.held)
            yield Figure(
                what=f"streams held at once, of {sizes.held}",
                ours=sizes.held - failed,
                unit="",
                target=Target("value", sizes.held, at_least=True),
            )
            yield Figure(what=f"memory of each of {sizes.held} streams", ours=each / 1e3, unit="kB")
            return
        count = min(sizes.held_peers, other.streams)
        mine, _ = _memory_per_stream(bench.ours, sizes, count=count)
        theirs, failed = _memory_per_stream(other, sizes, count=count)
        bench.check(other, Load(failed=failed), count)
        yield Figure(
            what=f"memory of each of {count} streams",
            ours=mine / 1e3,
            unit="kB",
            beside=other.door.name,
            theirs=theirs / 1e3,
        )

    yield from bench.beside_each("streams held", measure)


def _memory_per_stream(between: Between, sizes: Sizes, *, count: int) -> tuple[float, int]:
    """Bytes while all are open, less those before; and how many broke off."""

    async def hold() -> tuple[int, Load]:
        before = between.memory_bytes()
        going = asyncio.ensure_future(
            load(
                between.door,
                sizes.held_stream,
                at_once=count,
                for_s=0,
                ramp_s=sizes.held_ramp_s,
                within_s=sizes.patience_s,
            )
        )
        await asyncio.sleep((sizes.held_ramp_s + sizes.held_stream.length_s) / 2 + sizes.held_ramp_s / 4)
        return between.memory_bytes() - before, await going

    grown, took = asyncio.run(hold())
    return max(0, grown) / count, took.failed


# -- doors --------------------------------------------------------------------------------------------------


@contextmanager
def _gateway(home: Path, port: int, streams: int) -> Iterator[Between]:
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
        door = Door("the gateway", gateway.port, base.partition(f":{gateway.port}")[2])
        yield Between(door, (process.pid,), streams)


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
def _nginx(program: str, home: Path, port: int, streams: int) -> Iterator[Between]:
    listen = _free_port()
    config = home / "nginx.conf"
    config.write_text(_NGINX.format(home=home, host=HOST, port=port, listen=listen))
    with _started([program, "-c", str(config), "-e", "stderr"]) as process:
        _until_open(listen, process)
        yield Between(Door("nginx", listen), (process.pid,), streams)


@contextmanager
def _litellm(home: Path, port: int, streams: int) -> Iterator[Between]:
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
        yield Between(Door("a LiteLLM proxy", listen, "/anthropic", headers), _family(process.pid), streams)


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
