"""A server that cannot be used is refused by every verb: in words, with the setting to change, and nothing
secret in anything that is printed or logged."""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from flyball.errors import FlyballError
from flyball.governor.governor import Governor
from flyball.stores.redis.connection import RedisConnections
from tests.cli.kit import Cli
from tests.cli.odd_servers import old_redis, untrusted_tls
from tests.redis_server import RedisServer

SECRET = "s3cret"


@pytest.fixture(scope="module")
def guarded() -> Iterator[RedisServer]:
    """A server with a password, a pool, and a user who may not run scripts."""
    server = RedisServer("--requirepass", SECRET, tcp=True)
    admin = RedisConnections(f"redis://:{SECRET}@127.0.0.1:{server.port}")
    admin.ask("ACL", "SETUSER", "weak", "on", f">{SECRET}", "~*", "&*", "+@all", "-evalsha", "-eval")
    admin.close()
    governor = Governor(f"redis://:{SECRET}@127.0.0.1:{server.port}")
    governor.set_pool("anthropic", cap=3)
    governor.close()
    yield server
    server.close()


@pytest.fixture(scope="module")
def urls(guarded: RedisServer) -> Iterator[dict[str, str]]:
    """Addresses that lead nowhere good, by what is wrong with them. Each has the password in it."""
    follower = RedisServer("--replicaof", "127.0.0.1", "1", tcp=True)
    evicting = RedisServer("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru", tcp=True)
    here, credentials = f"127.0.0.1:{guarded.port}", f":{SECRET}"
    with old_redis("6.0.16") as old, untrusted_tls() as untrusted:
        yield {
            "scheme": f"redi://{credentials}@{here}",
            "not running": f"redis://{credentials}@127.0.0.1:1",
            "no such host": f"redis://{credentials}@no-such-host.invalid",
            "port": f"redis://{credentials}@127.0.0.1:http",
            "bracket": f"redis://{credentials}@[::1:6379",
            "option": f"redis://{credentials}@{here}?sokcet_timeout=1",
            "password": f"redis://:wrong-{SECRET}@{here}",
            "user": f"redis://nobody{credentials}@{here}",
            "no password": f"redis://{here}?client_name={SECRET}",
            "raw slash": f"redis://:{SECRET}/{SECRET}@{here}",
            "raw question mark": f"redis://:{SECRET}?{SECRET}@{here}",
            "permission": f"redis://weak{credentials}@{here}",
            "no tls": f"rediss://{credentials}@{here}?socket_timeout=1",
            "untrusted": f"rediss://{credentials}@127.0.0.1:{untrusted}",
            "follower": f"redis://127.0.0.1:{follower.port}?client_name={SECRET}",
            "old": f"redis://{credentials}@127.0.0.1:{old}",
            "evicting": f"redis://127.0.0.1:{evicting.port}?client_name={SECRET}",
            "no cluster": f"redis+cluster://{credentials}@{here}",
            "no postgres": f"postgresql://me{credentials}@127.0.0.1:1/db",
            "raw slash of postgres": f"postgresql://me{credentials}/{SECRET}@{here}/db",
        }
    follower.close()
    evicting.close()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLYBALL_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FLYBALL_LEASE", raising=False)
    return tmp_path / "home"


WORDS = {
    "scheme": "redis://host:6379/0",
    "not running": "is it running? FLYBALL_URL names it",
    "no such host": "is it running? FLYBALL_URL names it",
    "port": "FLYBALL_URL",
    "bracket": "FLYBALL_URL",
    "option": "FLYBALL_URL",
    "password": "set them in FLYBALL_URL",
    "user": "set them in FLYBALL_URL",
    "no password": "set them in FLYBALL_URL",
    "raw slash": "%2F",
    "raw question mark": "%3F",
    "permission": "~flyball:* &flyball:* +@all",
    "no tls": "does it speak no TLS (then redis://)",
    "untrusted": "?ssl_ca_certs= names its certificate authority",
    "follower": "name the primary in FLYBALL_URL",
    "old": "is Redis 6.0.16; flyball needs 6.2 or newer",
    "evicting": "set maxmemory-policy noeviction",
    "no cluster": "FLYBALL_URL",
    "no postgres": "is it running? FLYBALL_URL names it",
    "raw slash of postgres": "%2F",
}
VERBS = {
    "status": ["status"],
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


@pytest.mark.parametrize("wrong", WORDS)
def test_the_doctor_says_the_same(
    cli: Cli, urls: dict[str, str], monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    monkeypatch.setenv("FLYBALL_URL", urls[wrong])
    told = cli("doctor")
    assert told.code in (1, 2)
    assert WORDS[wrong] in told.out + told.err
    assert SECRET not in told.out + told.err


def test_nothing_that_is_printed_logged_or_raised_tells_the_password(
    cli: Cli,
    guarded: RedisServer,
    urls: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Every verb that speaks to the server, on one that works and on each that does not."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("FLYBALL_HOST_AGENT", "off")
    good = f"redis://:{SECRET}@127.0.0.1:{guarded.port}/0?space={os.urandom(4).hex()}"
    said: list[str] = []
    for url in (good, *urls.values()):
        monkeypatch.setenv("FLYBALL_URL", url)
        for words in SPOKEN:
            for form in (words, [words[0], "--json", *words[1:]]):
                told = cli(*form)
                said += [told.out, told.err]
        said += raised(url)
    assert any("redis://127.0.0.1" in text for text in said), "the address itself is said"
    assert [text for text in (*said, caplog.text) if SECRET in text] == []


SPOKEN = [
    ["status"],
    ["doctor"],
    ["why", "t-1"],
    ["machine", "show"],
    ["exec", "--no-wait", "--quiet", "--", "true"],
]


def raised(url: str) -> list[str]:
    """What a program sees: the whole trace of its error, and the names of what it has."""
    said = []
    try:
        governor = Governor(url)
        said += [repr(governor), governor.place]
        governor.set_pool("p", cap=2, heartbeat_s=0.05)
        with governor.share("p", node="a") as share:
            said += [repr(share), repr(share.stats())]
        governor.close()
    except FlyballError as error:
        said += traceback.format_exception(error)
    return said


def test_a_share_on_a_server_that_is_gone_says_why_and_not_how_it_signed_in(
    guarded: RedisServer, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    governor = Governor(f"redis://:{SECRET}@127.0.0.1:1/0")
    with governor.share("p", node="a") as share:
        assert share.renew(10.0) is False
        error = share.stats().error
        assert "is it running? FLYBALL_URL names it" in error
        assert SECRET not in error + repr(share) + caplog.text


# -- what is not the server's fault ---------------------------------------------------------------------


def test_two_fleets_with_different_settings_on_one_pool_are_told_who_must_give_way(
    cli: Cli, guarded: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "FLYBALL_URL", f"redis://:{SECRET}@127.0.0.1:{guarded.port}?space={os.urandom(4).hex()}"
    )
    assert cli("pool", "set", "p", "--heartbeat", "500ms").code == 0
    governor = Governor()
    with pytest.raises(FlyballError) as refused:
        governor.share("p", heartbeat_s=2.0).open()
    words = str(refused.value)
    assert "heartbeat_s=0.5" in words
    assert "wants 2.0" in words
    way_out = words[words.index("flyball pool set") :].split()[1:]
    assert cli(*way_out).code == 0, "the command that it names works"
    with governor.share("p", heartbeat_s=2.0):
        pass
    governor.close()


@pytest.mark.parametrize(("name", "words"), [("x" * 201, "201 characters long"), ("", "must not be empty")])
def test_a_host_id_that_makes_no_sense_is_named(
    cli: Cli, guarded: RedisServer, monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    from flyball.host import process

    monkeypatch.setenv("FLYBALL_URL", f"redis://:{SECRET}@127.0.0.1:{guarded.port}")
    monkeypatch.setenv("FLYBALL_HOST_ID", name)
    monkeypatch.setattr(process, "host_name", process.host_name.__wrapped__)
    process._identify_cached.cache_clear()
    told = cli("exec", "--no-wait", "--", "true")
    process._identify_cached.cache_clear()
    assert told.code == 2
    assert "FLYBALL_HOST_ID" in told.err
    assert words in told.err
