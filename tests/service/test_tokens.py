"""Tokens: shown once, kept hashed, ended at once; a file that cannot be trusted lets no client in."""

from __future__ import annotations

import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flyball.errors import StoreUnreadableError, UsageError
from flyball.service.tokens import Scope, TokenFile, TokenStore


@pytest.fixture
def file(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path / "home")


def test_a_token_is_never_written_down(file: TokenFile) -> None:
    token = file.add("ci", Scope.LEASE)
    assert token not in file.path.read_text()
    assert len(token) >= 43


def test_the_file_is_private_and_so_is_its_folder(file: TokenFile) -> None:
    file.add("ci", Scope.READ)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700


def test_a_token_finds_its_owner_and_no_other(file: TokenFile) -> None:
    ci, ops = file.add("ci", Scope.LEASE), file.add("ops", Scope.ADMIN)
    keyring = TokenStore(file)
    assert [(found.name, found.scope) for found in map(keyring.find, (ci, ops)) if found] == [
        ("ci", Scope.LEASE),
        ("ops", Scope.ADMIN),
    ]
    assert keyring.find(ci[:-1]) is None
    assert keyring.find("") is None


def test_a_removed_token_ends_at_once(file: TokenFile) -> None:
    token, keyring = file.add("ci", Scope.READ), TokenStore(file)
    assert keyring.find(token) is not None
    file.remove("ci")
    assert keyring.find(token) is None


def test_a_name_is_given_once(file: TokenFile) -> None:
    file.add("ci", Scope.READ)
    with pytest.raises(UsageError, match="flyball token remove ci"):
        file.add("ci", Scope.ADMIN)


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 201])
def test_an_impossible_name_is_refused(file: TokenFile, name: str) -> None:
    with pytest.raises(UsageError):
        file.add(name, Scope.READ)


def test_removing_one_that_is_not_there_names_the_nearest(file: TokenFile) -> None:
    file.add("deploy", Scope.READ)
    with pytest.raises(UsageError, match="did you mean 'deploy'"):
        file.remove("deply")


def test_tokens_added_at_the_same_time_are_all_kept(file: TokenFile) -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: file.add(f"t{number}", Scope.READ), range(16)))
    assert len(file.read()) == 16


@pytest.mark.parametrize("content", ["", "{", '{"version": 1}', '{"version": 2, "tokens": []}', "[]", "\x00"])
def test_a_file_that_cannot_be_understood_lets_no_client_in(file: TokenFile, content: str) -> None:
    token, keyring = file.add("ci", Scope.ADMIN), TokenStore(file)
    assert keyring.find(token) is not None
    file.path.write_text(content)
    with pytest.raises(StoreUnreadableError):
        keyring.find(token)
    with pytest.raises(StoreUnreadableError):
        file.add("more", Scope.READ)
    assert file.path.read_text() == content, "it is never overwritten"


def test_a_file_that_others_may_write_is_refused(file: TokenFile) -> None:
    file.add("ci", Scope.READ)
    os.chmod(file.path, 0o666)
    with pytest.raises(StoreUnreadableError, match="chmod 600"):
        file.read()


def test_what_is_kept_is_the_hash_of_the_token(file: TokenFile) -> None:
    import hashlib

    token = file.add("ci", Scope.READ)
    (kept,) = json.loads(file.path.read_text())["tokens"]
    assert kept["sha256"] == hashlib.sha256(token.encode()).hexdigest()
    assert set(kept) == {"name", "scope", "sha256", "added"}
