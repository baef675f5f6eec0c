"""What processes may do without a token: other users of the machine, and commands that flyball governs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.kit import Process, Running

NOBODY = 65534
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says whose a connection is")
ASK = """
import json, os, sys, http.client, encodings.idna
if sys.argv[1]:
    os.setuid(int(sys.argv[1]))
connection = http.client.HTTPConnection(sys.argv[2], int(sys.argv[3]))
method, path, body = sys.argv[4:7]
connection.request(method, path, body or None, {"Content-Type": "application/json"} if body else {})
answer = connection.getresponse()
print(json.dumps([answer.status, json.loads(answer.read() or b"null")]))
"""
CHANGE = ("PATCH", "/v1/pools/p", '{"cap": 500}')
LEASE = ("POST", "/v1/pools/p/leases", "{}")


def ask(url: str, *words: str, uid: int | str = "", **variables: str) -> tuple[int, Any]:
    """What a process of its own is answered."""
    at = httpx.URL(url)
    command = [sys.executable, "-c", ASK, str(uid), at.host, str(at.port), *words]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **variables})
    assert done.returncode == 0, done.stderr
    status, body = json.loads(done.stdout)
    return status, body


@as_root
@pytest.mark.parametrize(
    "words", [CHANGE, LEASE, ("POST", "/v1/pools/p/reset", ""), ("DELETE", "/v1/leases/1", "")]
)
def test_another_user_changes_nothing_without_a_token(running: Running, words: tuple[str, str, str]) -> None:
    running.client.patch("/v1/pools/p", json={"cap": 2})
    status, problem = ask(running.url, *words, uid=NOBODY)
    assert (status, problem["type"]) == (403, "urn:flyball:own-user")
    assert running.client.get("/v1/pools/p").json()["cap"] == 2


@as_root
def test_another_user_may_look_and_is_told_so(running: Running) -> None:
    assert ask(running.url, "GET", "/v1/status", "", uid=NOBODY)[0] == 200
    assert ask(running.url, "GET", "/v1/whoami", "", uid=NOBODY)[1]["scope"] == "read"


@as_root
def test_the_servers_own_user_and_root_need_no_token(running: Running) -> None:
    assert ask(running.url, *CHANGE)[0] == 200
    assert ask(running.url, *LEASE)[0] == 201
    assert ask(running.url, "GET", "/v1/whoami", "")[1]["scope"] == "admin"


@pytest.mark.parametrize("variable", ["FLYBALL_LEASE", "FLYBALL_GUARD"])
def test_a_governed_command_asks_for_slots_and_changes_no_limits(running: Running, variable: str) -> None:
    marked = {variable: "x"}
    assert ask(running.url, *LEASE, **marked)[0] == 201
    status, problem = ask(running.url, *CHANGE, **marked)
    assert (status, problem["type"]) == (403, "urn:flyball:own-user")


def test_a_governed_command_does_not_get_rid_of_its_mark_in_a_child(running: Running) -> None:
    at = httpx.URL(running.url)
    words = [sys.executable, "-c", ASK, "", at.host, str(at.port), *CHANGE]
    cleared = subprocess.run(
        ["sh", "-c", 'env -i "$@"; :', "sh", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "FLYBALL_LEASE": "x"},
    )
    assert json.loads(cleared.stdout)[0] == 403


@pytest.mark.parametrize("undumpable", ["", "import ctypes; ctypes.CDLL(None).prctl(4, 0)"])
def test_a_governed_command_in_a_sandbox_changes_no_limits_whatever_it_does(
    running: Running, undumpable: str
) -> None:
    """It has a process table of its own, an empty environment, and parents that ended."""
    at = httpx.URL(running.url)
    ask_from_afar = [sys.executable, "-c", f"{undumpable}\n{ASK}", "", at.host, str(at.port), *CHANGE]
    sandbox = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    orphan = 'env -i setsid "$@" & sleep 0.2; wait'
    done = subprocess.run(
        [*sandbox, "sh", "-c", orphan, "sh", *ask_from_afar],
        capture_output=True,
        text=True,
        env={**os.environ, "FLYBALL_GUARD": "x"},
    )
    assert json.loads(done.stdout)[0] == 403, done.stderr


def test_a_server_inside_a_governed_command_is_that_commands_own(tmp_path: Path) -> None:
    """The mark is on the server, too, so the process in front of it is no stranger."""
    with Process(tmp_path / "home", "--host", "::1") as server:
        assert ask(server.url, *CHANGE)[0] in (200, 404)
    code = f"""
import subprocess, sys
from pathlib import Path
from tests.service.kit import Process
from tests.service.test_other_users import CHANGE, ask
with Process(Path({str(tmp_path / "inside")!r})) as server:
    sys.exit(ask(server.url, *CHANGE)[0] != 200)
"""
    inside = subprocess.run([sys.executable, "-c", code], env={**os.environ, "FLYBALL_LEASE": "x"})
    assert inside.returncode == 0
