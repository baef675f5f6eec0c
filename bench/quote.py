"""Documents quote figures, word for word from the committed result files.

The README has those with a target of one machine; the how-to of the service has its whole runbook.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.report import shown

README = Path(__file__).parents[1] / "README.md"
RUNBOOK = README.parent / "docs" / "how-to" / "admission-over-http.md"
OPENING, CLOSING = "<!-- figures -->", "<!-- /figures -->"


def table(*records: dict[str, Any]) -> str:
    """A row for each figure that has a target."""
    rows = ["| what | flyball | beside it | target | result |", "| --- | --- | --- | --- | --- |"]
    for name, bench in ((name, bench) for record in records for name, bench in record["benches"].items()):
        rows += [_row(f"{name}: ", figure) for figure in bench["figures"] if figure["target"] is not None]
    return "\n".join(rows)


def runbook(record: dict[str, Any]) -> str:
    """Every figure of a bench, what was noted, and where it was measured."""
    (bench,) = record["benches"].values()
    rows = ["| what | flyball | beside it | target | result |", "| --- | --- | --- | --- | --- |"]
    rows += [_row("", figure) for figure in bench["figures"]]
    machine = record["machine"]
    where = f"Measured {machine['date']} on {machine['cores']} cores, load {machine['load']} before the run."
    return "\n".join([*rows, "", where, "", *(f"- {note}" for note in bench["notes"])])


def _row(bench: str, figure: dict[str, Any]) -> str:
    unit, target = figure["unit"], figure["target"]
    beside = f"{shown(figure['theirs'], unit)} ({figure['beside']})" if figure["theirs"] is not None else ""
    if target is None:
        return f"| {bench}{figure['what']} | {shown(figure['ours'], unit)} | {beside} | | |"
    limit = f"{target['limit']:g} x" if target["of"] == "ratio" else shown(target["limit"], unit)
    wanted = f"{'at least' if target['at_least'] else 'at most'} {limit}"
    if target["of"] == "beyond":
        wanted += " beyond"
    reached = f"{figure['ratio']:.2f} x" if target["of"] == "ratio" else ""
    result = f"{'met' if figure['met'] else 'short'}{f', {reached}' if reached else ''}"
    return f"| {bench}{figure['what']} | {shown(figure['ours'], unit)} | {beside} | {wanted} | {result} |"


def quoted(readme: str) -> str:
    """What stands between the marks now."""
    return readme.partition(OPENING)[2].partition(CLOSING)[0].strip()


def quote(results: Sequence[Path], document: Path, made: Callable[..., str]) -> None:
    """Put what is made of result files between the marks of a document."""
    text = document.read_text(encoding="utf-8")
    before, _, rest = text.partition(OPENING)
    _, _, after = rest.partition(CLOSING)
    records = [json.loads(path.read_text(encoding="utf-8")) for path in results]
    document.write_text(f"{before}{OPENING}\n{made(*records)}\n{CLOSING}{after}", encoding="utf-8")
