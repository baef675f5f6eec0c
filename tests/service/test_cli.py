"""The verbs ``token`` and ``serve``: what they say, and what they need."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from flyball.host.install_hints import extra_command
from flyball.service.server import bind
from flyball.service.tokens import Scope, TokenFile, TokenStore
from tests.cli.kit import Cli


@pytest.fixture
def cli(home: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys, home)


def test_a_token_is_shown_once(cli: Cli) -> None:
    added = cli("token", "add", "ci", "--scope", "lease")
    token, said = added.out.splitlines()
    assert "flyball token remove ci" in said
    found = TokenStore(TokenFile(cli.home)).find(token)
    assert found is not None
    assert (found.name, found.scope) == ("ci", Scope.LEASE)
    assert token not in cli("token", "list").out
    assert token not in cli("token", "list", "--json").out


def test_a_token_may_only_look_unless_it_is_said(cli: Cli) -> None:
    assert cli("token", "add", "ci", "--json").json["scope"] == "read"


def test_tokens_are_listed_and_removed(cli: Cli) -> None:
    cli("token", "add", "ci")
    cli("token", "add", "ops", "--scope", "admin")
    assert [(found["name"], found["scope"]) for found in cli("token", "list", "--json").json["tokens"]] == [
        ("ci", "read"),
        ("ops", "admin"),
    ]
    assert cli("token", "remove", "ci").code == 0
    assert "ci" not in cli("token", "list").out


def test_without_tokens_the_list_says_what_that_means(cli: Cli) -> None:
    assert "none is needed" in cli("token", "list").out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["remove", "deploi"], "did you mean 'deploy'?"),
        (["add", "deploy"], "there is a token 'deploy' already"),
        (["add", "x", "--scope", "root"], "cannot be 'root'"),
        (["add", ""], "token must not be empty"),
    ],
)
def test_what_cannot_be_is_said(cli: Cli, words: list[str], said: str) -> None:
    cli("token", "add", "deploy")
    result = cli("token", *words)
    assert result.code == 2
    assert said in result.err


def test_a_token_file_that_cannot_be_read_is_an_error_of_the_store(cli: Cli) -> None:
    cli("token", "add", "ci")
    TokenFile(cli.home).path.write_text("{")
    for words in (["list"], ["add", "more"], ["remove", "ci"]):
        result = cli("token", *words)
        assert (result.code, "cannot be understood" in result.err) == (74, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--port", "70000"], "--port is between 0 and 65535"),
        (["--host", "no.such.host.invalid", "--port", "0"], "cannot find the host"),
        (["--host", "0.0.0.0", "--port", "0"], "flyball token add"),
        (["--host", "::", "--port", "0"], "flyball token add"),
        (["--require-token", "--port", "0"], "flyball token add"),
        (["--url", "ftp://x"], "cannot use 'ftp://x'"),
    ],
)
def test_serve_refuses_with_the_way_out(cli: Cli, words: list[str], said: str) -> None:
    result = cli("serve", *words)
    assert result.code == 2
    assert said in result.err


def test_a_port_that_is_taken_is_said(cli: Cli) -> None:
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        port = str(taken.getsockname()[1])
        result = cli("serve", "--port", port)
    assert result.code == 2
    assert f"port {port}" in result.err
    assert "--port names another" in result.err


def test_a_state_that_cannot_be_read_is_said_before_anything_is_served(cli: Cli) -> None:
    cli.home.mkdir()
    cli.database.write_text("this is not a database")
    result = cli("serve", "--port", "0")
    assert result.code == 74
    assert "flyball doctor" in result.err


def test_serve_asks_for_its_extra(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flyball.cli.commands.service.serve.find_spec", lambda name: None)
    result = cli("serve", "--port", "0")
    assert result.code == 2
    assert extra_command("serve") in result.err


def test_telemetry_that_is_asked_for_and_missing_is_said(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318")
    monkeypatch.setattr(
        "flyball.cli.commands.service.serve.find_spec", lambda name: None if "opentele" in name else object()
    )
    result = cli("serve", "--port", "0")
    assert result.code == 2
    assert extra_command("otel") in result.err


def test_the_board_needs_no_extra_and_no_state(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flyball.cli.commands.service.serve.find_spec", lambda name: None)
    assert json.loads(cli("serve", "--grafana").out)["title"] == "flyball"
    assert not cli.home.exists()


def test_tokens_need_nothing_of_the_server() -> None:
    code = (
        "import sys, flyball.cli.commands.service.token, flyball.cli.commands.service.serve; "
        "print([name for name in sys.modules if name in ('litestar', 'uvicorn', 'asyncio')])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == "[]"
