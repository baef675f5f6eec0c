"""The two kinds of search, what is kept of them, and the pages made of that.

``explored`` takes the shipped rule and must find nothing; ``caught`` takes a broken one, and must. A full run
(``python -m tests.explore``) keeps its counts in results.json. The page results.md and the paragraph that the
explanation quotes are made of nothing else, so a test can tell whether they are of the searches as they are.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypedDict

from tests.explore.elsewhere import ELSEWHERE
from tests.explore.model import Model
from tests.explore.mutants import MUTANTS, Mutant
from tests.explore.quoting import quote
from tests.explore.search import Found, search
from tests.explore.world import Scenario

MUTANT_STATES = 400_000
BROKEN = (*MUTANTS, *ELSEWHERE)
RESULTS, PAGE = (Path(__file__).with_name(name) for name in ("results.json", "results.md"))

HEAD = """# What the explorer found

Written by `python -m tests.explore`, which `make soak` runs; do not edit. A state is a whole small fleet:
its processes with their work, the store, and all messages on their way. Every move is taken by the shipped
functions of `flyball.core`. The bounds are those of the table; where a search came to its end, every state
within them was visited, however many moves away. Replies may be late for ever everywhere. Wherever there is
time, holders are fenced, and leases expire and are evicted with their holders alive. At a fence work ends at
once unless said otherwise."""

BROKEN_HEAD = """## The rule with one line broken

Each is searched for one kind of fault; what follows is a shortest way there. A, B and C are processes."""


class Explored(TypedDict):
    """One scenario under the shipped rule."""

    name: str
    bounds: str
    states: int
    transitions: int
    depth: int
    complete: bool
    peace_ticks: int


class Caught(TypedDict):
    """One broken rule."""

    name: str
    kind: str
    states: int
    moves: list[str]
    fault: str


class Results(TypedDict):
    scenarios: list[Explored]
    broken: list[Caught]


def explored(scenario: Scenario, *, max_states: int) -> Found:
    """The shipped rule: every bound holds in every world, and peace mends each of them."""
    return search(Model(scenario), max_states=max_states)


def caught(mutant: Mutant) -> Found:
    """A broken rule: searched for the one kind of fault that must come of it."""
    model = mutant.model(mutant.scenario, mutant.rule())
    return search(model, max_states=MUTANT_STATES, only=frozenset({mutant.finds}))


def explored_record(scenario: Scenario, found: Found) -> Explored:
    return Explored(
        name=scenario.name,
        bounds=scenario.words(),
        states=found.states,
        transitions=found.transitions,
        depth=found.depth,
        complete=found.complete,
        peace_ticks=found.peace_ticks,
    )


def caught_record(mutant: Mutant, found: Found) -> Caught:
    return Caught(
        name=mutant.name,
        kind=mutant.finds.value,
        states=found.states,
        moves=list(found.path),
        fault=found.fault.words if found.fault else "",
    )


def page(results: Results) -> str:
    parts = [HEAD, summary(results), "\n".join(_table(results["scenarios"])), BROKEN_HEAD]
    return "\n\n".join([*parts, *(_counter_example(one) for one in results["broken"])]) + "\n"


def summary(results: Results) -> str:
    """One paragraph, the same wherever it is quoted."""
    scenarios, broken = results["scenarios"], results["broken"]
    states = sum(one["states"] for one in scenarios)
    moves = sum(one["transitions"] for one in scenarios)
    ended = sum(one["complete"] for one in scenarios)
    depths = [one["depth"] for one in scenarios if not one["complete"]]
    longest = max(len(one["moves"]) for one in broken)
    peace = max(one["peace_ticks"] for one in scenarios)
    return (
        f"**{states:,} distinct states** and {moves:,} moves between them in {len(scenarios)} scenarios, "
        f"nothing wrong in any. {ended} of the searches ended by themselves; the others saw everything "
        f"within {min(depths)} to {max(depths)} moves. Left in peace, the fleet had every slot in use and "
        f"every node its part after {peace} ticks at most. Of {len(broken)} broken rules all were found out, "
        f"by counter-examples of at most {longest} moves."
    )


def _table(scenarios: list[Explored]) -> list[str]:
    rows = ["| scenario | bounds | states | moves | visited |", "| --- | --- | ---: | ---: | --- |"]
    return rows + [
        f"| {one['name']} | {one['bounds']} | {one['states']:,} | {one['transitions']:,} | {visited(one)} |"
        for one in scenarios
    ]


def visited(one: Explored) -> str:
    return f"all there are, {one['depth']} deep" if one["complete"] else f"all within {one['depth']} moves"


def _counter_example(one: Caught) -> str:
    moves = [f"{number}. {move}" for number, move in enumerate(one["moves"], 1)] or ["at once"]
    title = f"### {one['name'][0].upper()}{one['name'][1:]}"
    return "\n".join([title, "", f"Finds {one['kind']}.", "", *moves, "", f"**{one['fault']}**"])


def written(results: Results) -> None:
    """Keep what was found, and quote it."""
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(results), encoding="utf-8")
    quote("explored", summary(results))


def loaded() -> Results:
    results: Results = json.loads(RESULTS.read_text(encoding="utf-8"))
    return results
