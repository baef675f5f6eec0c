"""Two runs of one project, from two clones: on one machine, and from two hosts on one server."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.factory.kit import Project, Ran
from tests.postgres_server import PostgresServer
from tests.redis_server import RedisServer
from tests.waiting import until
from tests.warm import warm

HOLDS = "(folder / 'on').touch()\nwait_for(folder / 'go')\nwrite('pages/t-1.txt', 'x')"


class Clone:
    """A second clone of a project, with an environment of its own."""

    def __init__(self, project: Project, origin: Path, **env: str) -> None:
        self.root = project.place / "second" / project.root.name
        self.env = {**project.env, **env}
        project.git("clone", "--quiet", str(origin), str(self.root))

    def flyball(self, *words: str) -> Ran:
        return Ran(*warm().run(words, cwd=self.root, env=self.env, timeout_s=100.0))


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def two(request: pytest.FixtureRequest, project: Project, tmp_path: Path) -> tuple[Project, Clone]:
    """The first clone with a task whose agent waits to be let go, and the second. On a server they are on two
    hosts, with a home each."""
    project.task("t-1", act=HOLDS)
    origin = project.with_origin()
    second: dict[str, str] = {}
    if request.param != "sqlite":
        server: RedisServer | PostgresServer = request.getfixturevalue(f"{request.param}_server")
        separator = "&" if "?" in server.url else "?"
        address = f"{server.url}{separator}space={os.urandom(6).hex()}"
        project.env |= {"FLYBALL_URL": address, "FLYBALL_HOST_ID": "first"}
        second = {"FLYBALL_HOST_ID": "second", "FLYBALL_HOME": str(tmp_path / "second-home")}
    clone = Clone(project, origin, **second)
    if not second:
        # Where both are registered, the second has to have an id of its own.
        config = clone.root / "flyball.toml"
        config.write_text(config.read_text().replace('id = "blog"', 'id = "shop"'))
    return project, clone


def test_a_second_run_of_one_project_is_refused_and_told_where_the_first_is(
    two: tuple[Project, Clone],
) -> None:
    first, clone = two
    process = first.start("run")
    first.wait("on")
    ran = clone.flyball("run")
    assert ran.code == 2, ran.said
    assert f"(pid {process.pid}) in " in ran.err
    assert "on first " in ran.err or "FLYBALL_URL" not in first.env
    assert "flyball drain" in ran.err
    assert len(first.began()) == 1
    first.say("go")
    assert process.wait(60) == 0


def test_status_shows_nothing_of_it(two: tuple[Project, Clone]) -> None:
    first, clone = two
    process = first.start("run")
    first.wait("on")
    assert clone.flyball("run").code == 2, "it is there"
    pools = json.loads(clone.flyball("status", "--json").out)["pools"]
    assert [pool["name"] for pool in pools] == ["anthropic"]
    first.say("go")
    assert process.wait(60) == 0


def test_a_run_that_is_over_lets_the_next_clone_run(two: tuple[Project, Clone]) -> None:
    first, clone = two
    process = first.start("run")
    first.wait("on")
    assert clone.flyball("run").code == 2
    first.say("go")
    assert process.wait(60) == 0
    ran = clone.flyball("run", "--dry-run")
    assert ran.code == 0, ran.said
    ran = clone.flyball("run", "--only", "t-1")
    assert ran.code == 0, ran.said


def test_a_run_that_was_killed_lets_the_next_clone_run(two: tuple[Project, Clone]) -> None:
    """On a server its host says that it is gone, within some seconds."""
    first, clone = two
    process = first.start("run")
    first.wait("on")
    assert clone.flyball("run").code == 2
    process.kill()
    process.wait()
    first.say("go")

    def runs() -> bool:
        ran = clone.flyball("run")
        assert ran.code in (0, 2), ran.said
        return ran.code == 0

    until(runs, "the second clone to run")


@pytest.mark.parametrize("two", ["redis", "postgres"], indirect=True)
def test_the_claim_of_a_host_that_is_gone_for_good_is_dropped_by_the_command_that_is_named(
    two: tuple[Project, Clone],
) -> None:
    first, clone = two
    # Then nothing of that host is left to say that the process is gone.
    first.env["FLYBALL_HOST_AGENT"] = "off"
    process = first.start("run")
    first.wait("on")
    process.kill()
    process.wait()
    first.say("go")
    ran = clone.flyball("run")
    assert ran.code == 2, ran.said
    named = ran.err.partition("flyball lease drop ")[2].split()[0]
    ran = clone.flyball("lease", "drop", named, "--force")
    assert ran.code == 0, ran.said
    assert clone.flyball("run").code == 0
