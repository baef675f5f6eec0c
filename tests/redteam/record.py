"""Every hostile agent in every mode, and the page that says what came of it.

    python -m tests.redteam.record            run them all, as root and as an ordinary user; write both files
    python -m tests.redteam.record --page     only the page, from what is recorded

A test fails where an outcome is not the recorded one, and where the page is stale.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from flyball.factory.guards.sandbox import sandbox_problem
from tests.redteam.hostile import PROGRAMS, Harm
from tests.redteam.trial import DONE, Stop, Trial, load

ROOT = Path(__file__).parents[2]
AS_USER = Path(__file__).with_name("ordinary_user.sh")
OUTCOMES = Path(__file__).with_name("outcomes.json")
PAGE = ROOT / "docs" / "reference" / "threats.md"
USERS, SANDBOXES = ("user", "root"), ("none", "bwrap")
ORDINARY = "54321"
"""A user of the system that nothing belongs to."""
_LONGEST_S = 280.0

_TOP = """\
# What hostile agents can do

Each row is a small program that was an agent of `flyball run`, in a real project with an origin and a gate.
What it did was judged from outside afterwards. **DONE**: it did the harm. Otherwise the cell names what
stopped it. The columns are the values of [`guard.sandbox`](flyball.toml.md#guard), for an ordinary user.
{as_root}

The programs are in `tests/redteam/programs`; the tests run them again. This page is made from what they did.

"""


class CannotRunError(Exception):
    """What keeps a trial from running here."""


def run_trial_as(user: str, sandbox: str) -> Mapping[str, Trial]:
    """In a process of its own."""
    if sandbox == "bwrap" and (problem := sandbox_problem()):
        raise CannotRunError(problem)
    command = [sys.executable, "-m", "tests.redteam.trial", sandbox]
    if user == "root" and os.geteuid() != 0:
        raise CannotRunError("only root can try what root's agents can do")
    if user == "user" and os.geteuid() == 0:
        command = [*_as_ordinary_user(), *command]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "HOME": "/"}, capture_output=True, text=True, timeout=_LONGEST_S
    )
    if done.returncode:
        raise AssertionError(f"the trial failed: {done.stdout}{done.stderr}")
    return {name: Trial(**told) for name, told in json.loads(done.stdout).items()}


def _as_ordinary_user() -> list[str]:
    if missing := [each for each in ("setpriv", "unshare") if shutil.which(each) is None]:
        raise CannotRunError(f"{missing[0]} was not found")
    python = Path(os.path.realpath(sys.base_prefix))
    hidden = any(not folder.stat().st_mode & 0o001 for folder in (python, *python.parents))
    words = ["unshare", "--mount", "sh", str(AS_USER), ORDINARY, str(python) if hidden else ""]
    tried = subprocess.run(
        [*words, sys.executable, "-c", "import flyball"], cwd=ROOT, capture_output=True, text=True
    )
    if tried.returncode:
        raise CannotRunError(f"an ordinary user cannot run flyball here: {tried.stderr.strip()[-200:]}")
    return words


def recorded() -> dict[str, dict[str, dict[str, str]]]:
    found: dict[str, dict[str, dict[str, str]]] = json.loads(OUTCOMES.read_text(encoding="utf-8"))
    return found


# -- the page --------------------------------------------------------------------------------------------


def threats_page() -> str:
    load()
    outcomes = recorded()
    return _TOP.format(as_root=_as_root(outcomes)) + "\n".join(_parts(outcomes["user"])) + "\n"


def _as_root(outcomes: Mapping[str, Mapping[str, Mapping[str, str]]]) -> str:
    other = sorted(
        f"`{name}` ({sandbox})"
        for sandbox in SANDBOXES
        for name, outcome in outcomes["root"][sandbox].items()
        if (outcome == DONE) != (outcomes["user"][sandbox][name] == DONE)
    )
    return f"As root these end the other way: {', '.join(other)}." if other else "As root they end alike."


def _parts(outcomes: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    counts = {sandbox: sum(each == DONE for each in outcomes[sandbox].values()) for sandbox in SANDBOXES}
    did = " and ".join(f"{counts[sandbox]} do harm with `{sandbox}`" for sandbox in SANDBOXES)
    yield f"Of {len(PROGRAMS)} programs, {did}."
    for harm in Harm:
        rows = [each for each in PROGRAMS.values() if each.harm is harm]
        if rows:
            yield f"\n## {harm.value}\n\n| program | what it does | `none` | `bwrap` |\n|---|---|---|---|"
        for each in rows:
            cells = " | ".join(_cell(outcomes, sandbox, each.name) for sandbox in SANDBOXES)
            yield f"| `{each.name}` | {each.tries} | {cells} |"


def _cell(outcomes: Mapping[str, Mapping[str, str]], sandbox: str, name: str) -> str:
    outcome = outcomes[sandbox][name]
    if outcome == DONE:
        return f"**{outcome}**"
    if outcome == Stop.NOTHING.value and outcomes["none"][name] == DONE:
        # It saw nothing, where without a sandbox there was something to see.
        return Stop.SANDBOX.value
    return outcome


def main(arguments: list[str]) -> None:
    if "--page" not in arguments:
        outcomes: dict[str, dict[str, dict[str, str]]] = {user: {} for user in USERS}
        modes = [(user, sandbox) for user in USERS for sandbox in SANDBOXES]
        with ThreadPoolExecutor(2) as pool:
            for (user, sandbox), trials in zip(
                modes, pool.map(lambda mode: run_trial_as(*mode), modes), strict=True
            ):
                outcomes[user][sandbox] = {name: each.outcome for name, each in trials.items()}
                for name, each in trials.items():
                    print(f"{user:5} {sandbox:6} {name:30} {each.outcome:20} {each.how[:100]!r}")
        OUTCOMES.write_text(json.dumps(outcomes, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    PAGE.write_text(threats_page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
