"""A PostgreSQL server that cannot be used is refused by every verb: in words, with the setting to change, and
nothing secret in anything that is printed, logged or raised."""

from __future__ import annotations

import getpass
import json
import logging
import os
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from flyball.errors import FlyballError, UsageError
from flyball.governor.governor import Governor
from tests.cli.kit import Cli
from tests.cli.odd_servers import old_postgres, untrusted_tls
from tests.postgres_server import PostgresServer

SECRET = "s3cret"


@pytest.fixture(scope="module")
def guarded() -> Iterator[PostgresServer]:
    """A server that wants a password, with a superuser, a weak user and a reader."""
    server = PostgresServer(tcp=True)
    server.rules.write_text("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
    for name, rights in (("someone", "SUPERUSER"), ("weak", ""), ("reader", "SUPERUSER")):
        server.run(f"CREATE ROLE {name} {rights} LOGIN PASSWORD '{SECRET}'")
    server.run("ALTER ROLE reader SET default_transaction_read_only = on; SELECT pg_reload_conf()")
    yield server
    server.close()


@pytest.fixture(scope="module")
def follower() -> Iterator[PostgresServer]:
    """A hot standby without a primary."""
    server = PostgresServer(tcp=True)
    server.stop()
    (server.folder / "data" / "standby.signal").touch()
    server.start()
    yield server
    server.close()


@pytest.fixture(scope="module")
def urls(guarded: PostgresServer, follower: PostgresServer) -> Iterator[dict[str, str]]:
    """Addresses that lead nowhere good, by what is wrong with them. Each has the password in it."""
    here, me = f"127.0.0.1:{guarded.port}", f"someone:{SECRET}"
    behind = f"{getpass.getuser()}:{SECRET}@127.0.0.1:{follower.port}"
    with old_postgres("11.22") as old, untrusted_tls(postgres=True) as untrusted:
        yield {
            "scheme": f"postgre://{me}@{here}/postgres",
            "not running": f"postgresql://{me}@127.0.0.1:1/postgres",
            "no such host": f"postgresql://{me}@no-such-host.invalid/postgres",
            "port": f"postgresql://{me}@127.0.0.1:sql/postgres",
            "option": f"postgresql://{me}@{here}/postgres?sokcet_timeout=1",
            "our option": f"postgresql://{me}@{here}/postgres?connections=many",
            "password": f"postgresql://someone:wrong-{SECRET}@{here}/postgres",
            "no password": f"postgresql://someone@{here}/postgres?fallback_application_name={SECRET}",
            "user": f"postgresql://nobody:{SECRET}@{here}/postgres",
            "database": f"postgresql://{me}@{here}/elsewhere",
            "raw slash": f"postgresql://someone:{SECRET}/{SECRET}@{here}/postgres",
            "permission": f"postgresql://weak:{SECRET}@{here}/postgres?space=mine",
            "no tls": f"postgresql://{me}@{here}/postgres?sslmode=require",
            "untrusted": f"postgresql://{me}@127.0.0.1:{untrusted}/postgres?sslrootcert=system",
            "reader": f"postgresql://reader:{SECRET}@{here}/postgres",
            "follower": f"postgresql://{behind}/postgres",
            "old": f"postgresql://{me}@127.0.0.1:{old}/postgres",
        }


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLYBALL_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FLYBALL_LEASE", raising=False)
    return tmp_path / "home"


WORDS = {
    "scheme": "postgresql://",
    "not running": "is it running? FLYBALL_URL names it",
    "no such host": "is it running? FLYBALL_URL names it",
    "port": "FLYBALL_URL",
    "option": "FLYBALL_URL",
    "our option": "connections in FLYBALL_URL must be a number",
    "password": "FLYBALL_URL",
    "no password": "FLYBALL_URL",
    "user": "FLYBALL_URL",
    "database": "create it, or name another in FLYBALL_URL",
    "raw slash": "%2F",
    "permission": "CREATE SCHEMA mine AUTHORIZATION",
    "no tls": "sslmode= in FLYBALL_URL",
    "untrusted": "sslrootcert= names its certificate authority",
    "reader": "name the primary in FLYBALL_URL",
    "follower": "name the primary in FLYBALL_URL",
    "old": "is PostgreSQL 11; flyball needs 12 or newer",
}
VERBS = {
    "pool": ["pool", "set", "anthropic", "--cap", "3"],
    "exec": ["exec", "--no-wait", "--", "true"],
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("wrong", WORDS)
def test_it_is_refused_with_the_setting_to_change(
    cli: Cli, urls: dict[str, str], monkeypatch: pytest.MonkeyPatch, wrong: str, verb: str
) -> None:
    monkeypatch.setenv("FLYBALL_URL", urls[wrong])
    told = cli(*VERBS[verb])
    assert told.code in (2, 74)
    assert told.err.startswith("flyball: ")
    assert told.err.count("\n") == 1
    assert WORDS[wrong] in told.err
    assert SECRET not in told.out + told.err


READS = {"permission"}
"""A user that may not make a schema may still look: there is nothing."""


@pytest.mark.parametrize("wrong", [wrong for wrong in WORDS if wrong not in READS])
def test_status_and_doctor_say_the_same(
    cli: Cli, urls: dict[str, str], monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    monkeypatch.setenv("FLYBALL_URL", urls[wrong])
    for verb in ("status", "doctor"):
        told = cli(verb)
        assert told.code in (1, 2, 74)
        assert WORDS[wrong] in told.out + told.err
        assert SECRET not in told.out + told.err


def test_nothing_that_is_printed_logged_or_raised_tells_the_password(
    cli: Cli,
    guarded: PostgresServer,
    urls: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("FLYBALL_HOST_AGENT", "off")
    good = f"postgresql://someone:{SECRET}@127.0.0.1:{guarded.port}/postgres?space={os.urandom(4).hex()}"
    said: list[str] = []
    for url in (good, *urls.values()):
        monkeypatch.setenv("FLYBALL_URL", url)
        for words in (["status", "--json"], ["exec", "--no-wait", "--json", "--", "true"]):
            told = cli(*words)
            said += [told.out, told.err]
        said += raised(url)
    assert any("postgresql://127.0.0.1" in text for text in said), "the address itself is said"
    assert [text for text in (*said, caplog.text) if SECRET in text] == []


def raised(url: str) -> list[str]:
    """What a program sees: the whole trace of its error, and the names of what it has."""
    said = []
    try:
        governor = Governor(url)
        said += [repr(governor), governor.place]
        governor.set_pool("p", cap=2)
        governor.close()
    except FlyballError as error:
        said += traceback.format_exception(error)
    return said


# -- what is not the server's fault ---------------------------------------------------------------------


@pytest.fixture
def governor(guarded: PostgresServer, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Governor]:
    here = f"someone:{SECRET}@127.0.0.1:{guarded.port}/postgres"
    monkeypatch.setenv("FLYBALL_URL", f"postgresql://{here}?space={os.urandom(4).hex()}")
    governor = Governor()
    yield governor
    governor.close()


def test_two_fleets_with_different_settings_on_one_pool_are_told_who_must_give_way(
    cli: Cli, governor: Governor
) -> None:
    assert cli("pool", "set", "p", "--heartbeat", "500ms").code == 0
    with pytest.raises(FlyballError) as refused:
        governor.share("p", heartbeat_s=2.0).open()
    words = str(refused.value)
    assert "heartbeat_s=0.5" in words
    assert "wants 2.0" in words
    way_out = words[words.index("flyball pool set") :].split()[1:]
    assert cli(*way_out).code == 0, "the command that it names works"
    with governor.share("p", heartbeat_s=2.0):
        pass


def test_a_huge_node_name_is_named(governor: Governor) -> None:
    with pytest.raises(UsageError, match="node is 201 characters long; at most 200"):
        governor.share("p", node="x" * 201)


def test_names_as_long_as_they_may_be_are_kept_whole(cli: Cli, governor: Governor) -> None:
    node = "ü🚀" * 100
    with governor.share("p", node=node) as share:
        assert share.renew(10.0)
        assert node in json.dumps(cli("status", "--json").json, ensure_ascii=False)
