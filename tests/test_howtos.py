"""What the how-to guides say is true: their examples run against the bundled provider, commands parse."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from flyball.cli.main import load_verb, verb_parser
from flyball.governor.governor import Governor
from flyball.governor.state_url import open_reader
from flyball.sim.provider.capacity import Capacity
from flyball.sim.provider.server import Provider
from tests.cases import every

PAGES = sorted((Path(__file__).parents[1] / "docs" / "how-to").glob("*.md"))


def blocks(language: str) -> list[object]:
    """Every block of a language on every page, named after its page and its number there."""
    return [
        pytest.param(code, id=f"{page.stem}-{number}")
        for page in PAGES
        for number, code in enumerate(_blocks(page, language), 1)
    ]


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def commands() -> list[str]:
    """What a page tells people to type, of our own."""
    lines = [line for page in PAGES for code in _blocks(page, "sh") for line in code.splitlines()]
    return sorted({line for line in lines if line.startswith("flyball ")})


@pytest.fixture
def provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    """Where the SDKs look for their vendors."""
    with Provider(Capacity.parse("8"), sleep=lambda _: None) as provider:
        monkeypatch.setenv("FLYBALL_HOME", str(tmp_path))
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", provider.url)
        monkeypatch.setenv("GEMINI_API_KEY", "k")
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", provider.url)
        monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", provider.url)
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "k")
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{provider.url}/v1")
        yield provider


@pytest.mark.parametrize("code", blocks("python"))
def test_the_examples_run(code: str, provider: Provider, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(code, "how-to", "exec"), {})
    printed = capsys.readouterr().out
    for expected in re.findall(r"print\(.*# (.+)", code):
        assert expected in printed


@pytest.mark.parametrize("code", blocks("python"))
def test_the_examples_set_nothing_and_refuse_nothing_in_a_providers_pool(
    code: str, provider: Provider
) -> None:
    exec(compile(code, "how-to", "exec"), {})
    with closing(open_reader(Governor().address)) as reader:
        pools = [pool for pool in reader.snapshot().pools if pool.name != "demo"]
    assert [(pool.name, pool.named, pool.memory.cap.throttle_count) for pool in pools] == [
        (pool.name, {}, 0) for pool in pools
    ]


@every("line", commands())
def test_the_commands_parse(line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    verb_parser(words[0], load_verb(words[0])).parse_args(words[1:])
