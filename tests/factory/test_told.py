"""What a run tells about its agents' ends: the pool, once; the run folder, whether a run watched or not."""

from __future__ import annotations

import json

from tests.factory.kit import Project
from tests.waiting import until


def test_the_pool_hears_of_a_limit_once(project: Project) -> None:
    """A static pool, which counts and stays open."""
    project.flyball("pool", "set", "anthropic", "--static")
    project.task("t-1")
    project.act("t-1", "sys.exit(75)", launch=1)
    ran = project.run()
    assert ran.code == 0, ran.said
    (pool,) = project.flyball("status", "--json").json["pools"]
    assert (pool["name"], pool["throttle_count"]) == ("anthropic", 1)


def test_an_agent_that_ended_unwatched_has_a_summary_too(project: Project) -> None:
    project.task("t-1", act="(folder / 'began').touch()\nwait_for(folder / 'go')\nwrite('pages/t-1', 'one')")
    engine = project.start("run")
    project.wait("began")
    engine.kill()
    engine.wait()
    project.say("go")
    until(lambda: not project.processes(), "the agent to end")
    ran = project.run()
    assert ran.code == 0, ran.said
    (folder,) = project.folders("t-1")
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["task"], summary["attempt"], summary["end"]) == ("t-1", 1, "finished")
