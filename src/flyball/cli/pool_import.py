"""``flyball pool import``: settings and learned state from a koryph ``governor.json``."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from flyball.cli.pool_screen import one_line, view_of_changes
from flyball.cli.render import print_json, say
from flyball.cli.units import size_words
from flyball.core import koryph
from flyball.core.cap import cap_of
from flyball.core.model import Phase
from flyball.core.settings import MachineChanges, MachineSettings, PoolChanges
from flyball.core.verdict import span_words
from flyball.errors import UsageError
from flyball.governor.governor import Governor
from flyball.governor.location import open_reader

_LARGEST = 16 << 20


@dataclass(frozen=True, slots=True)
class PoolReport:
    pool: str
    settings: PoolChanges
    cap_now: int
    words: str


@dataclass(frozen=True, slots=True)
class ImportReport:
    file: str
    dry_run: bool
    pools: tuple[PoolReport, ...]
    machine: str
    ignored: tuple[str, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="usually ~/.koryph/governor.json")
    parser.add_argument("--dry-run", action="store_true", help="say what would change, change nothing")


def run(args: argparse.Namespace, governor: Governor) -> int:
    document = _document(args.file)
    imported = _read(args.file, document, wall=time.time(), now=_now(governor))
    if not args.dry_run:
        _write(governor, imported)
    report = _report(args, imported)
    if args.json:
        print_json(report)
    else:
        _say(report)
    return 0


def _document(path: Path) -> object:
    try:
        if path.stat().st_size > _LARGEST:
            raise UsageError(f"{path} is too large to be a governor.json")
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    try:
        return msgspec.json.decode(content)
    except msgspec.DecodeError as error:
        raise UsageError(f"{path} is not readable as JSON ({error}); nothing was imported") from error


def _read(path: Path, document: object, *, wall: float, now: float) -> koryph.Imported:
    try:
        return koryph.read(document, wall=wall, now=now)
    except UsageError as error:
        raise UsageError(f"{path}: {error}; nothing was imported") from error


def _now(governor: Governor) -> float:
    """The store's time, without making a store that is not there yet."""
    reader = open_reader(governor.address)
    try:
        return reader.now()
    finally:
        reader.close()


def _write(governor: Governor, imported: koryph.Imported) -> None:
    for pool in imported.pools:
        governor.import_pool(pool.name, pool.changes, pool.memory)
    machine = MachineChanges()
    if imported.ceiling is not None:
        machine["ceiling"] = imported.ceiling
    if imported.memory_floor_bytes:
        machine["memory_floor_bytes"] = imported.memory_floor_bytes
    if imported.resources:
        machine["resources"] = dict(imported.resources)
    governor.change_machine(**machine)


def _report(args: argparse.Namespace, imported: koryph.Imported) -> ImportReport:
    return ImportReport(
        str(args.file),
        args.dry_run,
        tuple(_pool_report(pool) for pool in imported.pools),
        _machine_words(imported),
        imported.ignored,
    )


def _pool_report(pool: koryph.ImportedPool) -> PoolReport:
    cap_now = cap_of(pool.memory.cap, pool.settings)
    words = [one_line(view_of_changes(pool.name, pool.changes, cap_now)), *_learned(pool)]
    return PoolReport(pool.name, pool.changes, cap_now, "; ".join(words))


def _learned(pool: koryph.ImportedPool) -> list[str]:
    words = []
    if pool.memory.cap.throttle_count:
        words.append(f"{pool.memory.cap.throttle_count} throttles counted")
    breaker = pool.memory.breaker
    if breaker.phase is Phase.OPEN:
        words.append(f"breaker open, for {span_words(breaker.open_until - breaker.since)} since it opened")
    elif breaker.phase is Phase.TRIAL:
        words.append("breaker half open: the next ask becomes the trial")
    return words


def _machine_words(imported: koryph.Imported) -> str:
    settings = MachineSettings(imported.ceiling, imported.memory_floor_bytes, imported.resources)
    words = []
    if settings.ceiling is not None:
        words.append(f"ceiling {settings.ceiling}")
    if settings.memory_floor_bytes is not None:
        words.append(f"memory floor {size_words(settings.memory_floor_bytes)}")
    words += [f"{kind}={count}" for kind, count in sorted(settings.resources.items())]
    return ", ".join(words)


def _say(report: ImportReport) -> None:
    say(f"{'would import' if report.dry_run else 'imported'} {report.file}")
    for pool in report.pools:
        say(f"  {pool.words}")
    if report.machine:
        say(f"  machine: {report.machine}")
    if report.ignored:
        say(f"  left behind, nothing here corresponds: {', '.join(report.ignored)}")
