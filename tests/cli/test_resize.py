"""``flyball resize``: how many agents a run has at once."""

from __future__ import annotations

import pytest

from tests.cli.kit import Cli
from tests.factory.kit import Project

WAITS = "(folder / f'up-{task}').touch()\nwait_for(folder / 'go')\nwrite(f'pages/{task}.txt', 'page')"


@pytest.mark.parametrize("width", ["0", "-3"])
def test_a_width_of_nothing_is_refused_with_the_verb_that_means_it(
    here: Cli, site: Project, width: str
) -> None:
    result = here("resize", "--", width)
    assert result.code == 2
    assert "flyball drain" in result.err


def test_a_width_that_is_not_a_number_is_refused(here: Cli, site: Project) -> None:
    result = here("resize", "wide")
    assert result.code == 2
    assert "'wide' is not a whole number" in result.err


def test_a_wider_run_starts_more_at_once(here: Cli, site: Project) -> None:
    site.configure(run={"width": 1})
    for name in ("t-1", "t-2"):
        site.task(name, act=WAITS)
    run = site.start("run")
    site.wait("up-t-1")
    assert not site.began("t-2")
    result = here("resize", "2", "--json")
    assert (result.code, result.json["width"]) == (0, 2)
    site.wait("up-t-2")
    site.say("go")
    run.communicate(timeout=60)
    assert sorted(site.landed()) == ["t-1", "t-2"]
