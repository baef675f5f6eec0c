"""``flyball batch``: a key of its own, a word per batch, and answers told apart by their ids."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flyball.sim.provider.capacity import Capacity
from flyball.sim.provider.server import Provider
from tests.cli.kit import Cli

KEY = "sk-for-batches"
MODEL = "claude-sonnet-4-5"


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    monkeypatch.setenv("FLYBALL_BATCH_API_KEY", KEY)
    for ambient in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(ambient, raising=False)
    with Provider(Capacity.parse("6")) as provider:
        monkeypatch.setenv("FLYBALL_BATCH_URL", provider.url)
        yield provider


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    file = tmp_path / "prompts.jsonl"
    lines = [{"id": "first", "prompt": "näme"}, {"prompt": "two", "system": "be brief", "max_tokens": 5}]
    file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    return str(file)


def test_without_a_key_of_its_own_nothing_is_sent(
    cli: Cli, provider: Provider, prompts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLYBALL_BATCH_API_KEY")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ambient")
    said = cli("batch", "submit", prompts, "--model", MODEL, "--yes")
    assert (said.code, "set FLYBALL_BATCH_API_KEY" in said.err) == (2, True)
    assert provider.batches.keys == set()


def test_an_ambient_key_under_the_other_name_is_refused(
    cli: Cli, provider: Provider, prompts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    said = cli("batch", "submit", prompts, "--model", MODEL, "--yes")
    assert (said.code, "is the key of ANTHROPIC_API_KEY" in said.err) == (2, True)
    assert KEY not in said.out + said.err
    assert provider.batches.keys == set()


def test_silence_is_not_taken_for_a_yes(cli: Cli, provider: Provider, prompts: str) -> None:
    said = cli("batch", "submit", prompts, "--model", MODEL)
    assert (said.code, "confirm this batch with --yes" in said.err) == (2, True)
    assert provider.batches.keys == set()


@pytest.mark.parametrize(("word", "sent"), [("yes", True), ("y", False), ("", False)])
def test_a_person_is_asked_and_only_yes_is_yes(
    provider: Provider, prompts: str, home: Path, word: str, sent: bool
) -> None:
    ours, theirs = pty.openpty()
    done = subprocess.Popen(
        [sys.executable, "-m", "flyball", "batch", "submit", prompts, "--model", MODEL],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "FLYBALL_HOME": str(home)},
        text=True,
    )
    os.close(theirs)
    os.write(ours, f"{word}\n".encode())
    out, err = done.communicate(timeout=60)
    os.close(ours)
    assert "2 prompts to claude-sonnet-4-5" in err
    assert (done.returncode == 0, provider.batches.keys == {KEY}) == (sent, sent), out + err


def test_a_batch_goes_out_is_watched_and_its_answers_come_back_by_id(
    cli: Cli, provider: Provider, prompts: str
) -> None:
    sent = cli("batch", "submit", prompts, "--model", MODEL, "--yes", "--json").json
    assert (sent["status"], sent["counts"]["processing"]) == ("in_progress", 2)
    early = cli("batch", "results", sent["id"])
    assert (early.code, "is in_progress" in early.err) == (2, True)
    assert cli("batch", "show", sent["id"], "--json").json["status"] == "ended"
    done = cli("batch", "results", sent["id"])
    assert done.code == 0
    answers = {record["id"]: record["text"] for record in map(json.loads, done.out.splitlines())}
    assert answers == {"first": "Done. näme", "prompt-2": "Done. two"}
    assert "2 succeeded" in cli("batch", "list").out
    (line,) = cli("audit", "--json").json["lines"]
    assert (line["what"], line["prompts"], line["model"]) == ("batch submit", "2", MODEL)
    assert provider.batches.keys == {KEY}


def test_a_cancelled_batch_says_so_and_its_results_are_not_a_success(
    cli: Cli, provider: Provider, prompts: str
) -> None:
    sent = cli("batch", "submit", prompts, "--model", MODEL, "--yes", "--json").json
    assert "2 canceled" in cli("batch", "cancel", sent["id"]).out
    assert cli("batch", "results", sent["id"]).code == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "there is no prompt in it"),
        ("not json", "line 1 is not JSON"),
        ('{"id": "a"}', 'line 1 has no "prompt"'),
        ('{"prompt": ""}', 'line 1 has no "prompt"'),
        ('{"prompt": "a", "modle": "x"}', "line 1 has 'modle'; there are id, prompt"),
        ('{"prompt": "a", "id": "x y"}', "must be up to 64 letters"),
        ('{"prompt": "a", "max_tokens": true}', "max_tokens a whole number"),
        ('{"prompt": "a", "id": "x"}\n{"prompt": "b", "id": "x"}', "the id 'x' is there 2 times"),
        ('{"prompt": "a"}\n' * 10_001, "10001 prompts are more than a batch may have"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_before_anything_is_sent(
    cli: Cli, provider: Provider, tmp_path: Path, text: str, expected: str
) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(text)
    said = cli("batch", "submit", str(file), "--model", MODEL, "--yes")
    assert (said.code, expected in said.err) == (2, True), said.err
    assert provider.batches.keys == set()


def test_a_provider_that_refuses_or_is_gone_is_told_in_a_sentence(
    cli: Cli, provider: Provider, prompts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = cli("batch", "show", "msgbatch_9")
    assert (missing.code, "(404): no batch msgbatch_9" in missing.err) == (1, True)
    assert "is not the id of a batch" in cli("batch", "show", "../x").err
    monkeypatch.setenv("FLYBALL_BATCH_URL", "http://127.0.0.1:1")
    assert "cannot reach 127.0.0.1" in cli("batch", "list").err
    monkeypatch.setenv("FLYBALL_BATCH_URL", "nowhere")
    assert "FLYBALL_BATCH_URL must be an address" in cli("batch", "list").err
