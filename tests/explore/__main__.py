"""``python -m tests.explore``: every scenario in full and every broken rule, one after the other.

Takes about a minute and a half of one core. Prints the counts and the counter-examples, and keeps them in
results.json, results.md and the explanation if nothing is wrong. The counts are the same in every run.
``python -m tests.explore flush`` runs only what has that word in its name, and keeps nothing.
"""

from __future__ import annotations

import sys
import time

from tests.explore.mutants import Mutant
from tests.explore.report import (
    BROKEN,
    Caught,
    Explored,
    Results,
    caught,
    caught_record,
    explored,
    explored_record,
    summary,
    visited,
    written,
)
from tests.explore.scenarios import SCENARIOS
from tests.explore.world import Scenario


def main(word: str = "") -> int:
    scenarios = [_explore(one) for one in SCENARIOS if word in one.name]
    broken = [_catch(one) for one in BROKEN if word in one.name]
    wrong = scenarios.count(None) + broken.count(None)
    if wrong:
        print(f"{wrong} searches ended as they should not")
        return 1
    if not word:
        results = Results(scenarios=[one for one in scenarios if one], broken=[one for one in broken if one])
        print(summary(results))
        written(results)
    return 0


def _explore(scenario: Scenario) -> Explored | None:
    began = time.process_time()
    found = explored(scenario, max_states=scenario.full)
    record = explored_record(scenario, found)
    took = time.process_time() - began
    counts = f"{found.states:>10,} states {found.transitions:>11,} moves"
    print(f"{scenario.name:28} {counts}, {visited(record)}, {took:.0f} s")
    print(f"{'':28} {record['bounds']}", flush=True)
    if found.fault:
        print(found.words(), flush=True)
    return None if found.fault else record


def _catch(mutant: Mutant) -> Caught | None:
    found = caught(mutant)
    print(f"broken: {mutant.name} ({found.states:,} states)\n{found.words()}\n", flush=True)
    return caught_record(mutant, found) if found.fault else None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
