"""A person has a task landed, in one of the ways of a trip.

Where a run is going on, it does the landing; otherwise this process does, under the run's own lock. Either
way what happens is read from the ledger and shown as it happens.
"""

from __future__ import annotations

import sys
import threading

from flyball.cli.landing_lines import LandingLines, Seen
from flyball.errors import UsageError
from flyball.factory.by_hand import ByHand
from flyball.factory.conduct import ask, conduct, running
from flyball.factory.config_reading import check_runnable
from flyball.factory.looking import Project, history_of
from flyball.factory.report import Terms, Wish


def landed_by_hand(project: Project, task_id: str, how: str = "merge", *, quiet: bool) -> list[str]:
    """Land it, and show how; what else is worth a word. The ledger says what came of it."""
    last = history_of(project.state, task_id)[-1].id
    by = _by_the_run if running(project.root) is not None else _by_ourselves
    with LandingLines(project.state, task_id, after=last, out=None if quiet else sys.stdout) as lines:
        return by(project, task_id, how, lines)


def _by_the_run(project: Project, task_id: str, how: str, lines: LandingLines) -> list[str]:
    """Ask, and follow until the landing is over or the run is."""
    answer = ask(project.root, "merge", task_id, how=how)
    if answer is not None and not answer.accepted:
        raise UsageError(answer.words)
    while lines.see() is not Seen.OVER and running(project.root) is not None:
        lines.wait()
    return []


def _by_ourselves(project: Project, task_id: str, how: str, lines: LandingLines) -> list[str]:
    """Land it here; what else is worth a word."""
    check_runnable(project.config)
    done = threading.Event()

    def follow() -> None:
        while not done.is_set():
            lines.see()
            lines.wait()
        lines.see()

    follower = threading.Thread(target=follow, name="landing-lines")
    follower.start()
    try:
        wish = Wish(only=(task_id,))
        report, _ = conduct(
            project.root, project.config, wish, Terms(), by_hand=ByHand(task=task_id, how=how)
        )
        return report.notes
    finally:
        done.set()
        follower.join()
