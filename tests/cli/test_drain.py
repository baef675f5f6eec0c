"""``flyball drain``: what runs is finished, nothing more is started."""

from __future__ import annotations

from tests.cli.kit import Cli
from tests.factory.kit import Project

WAITS = "(folder / 'up').touch()\nwait_for(folder / 'go')\nwrite(f'pages/{task}.txt', 'page')"


def test_a_drained_run_lands_what_it_has_and_starts_nothing_more(here: Cli, site: Project) -> None:
    site.configure(run={"width": 1})
    site.task("t-1", act=WAITS)
    site.task("t-2")
    run = site.start("run")
    site.wait("up")
    result = here("drain")
    assert (result.code, result.out) == (0, "draining: 1 under way\n")
    answer = here("drain", "--json").json
    assert (answer["answered"], answer["outcome"]) == (True, "done")
    site.say("go")
    run.communicate(timeout=60)
    assert run.returncode == 75
    assert (site.landed(), site.began("t-2")) == (["t-1"], [])
