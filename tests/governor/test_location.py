"""Where the state is, and what is said about an address that cannot be used."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from flyball import Governor
from flyball.errors import FlyballError, UsageError
from flyball.governor.state_url import path_of, resolve
from tests.cases import every


def test_without_a_word_it_is_a_file_in_the_home(home: Path) -> None:
    assert path_of(resolve()) == home / "governor.db"


def test_without_a_home_it_is_in_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FLYBALL_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert path_of(resolve()) == tmp_path / ".flyball" / "governor.db"


def test_the_environment_names_it_and_the_caller_overrules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLYBALL_URL", "sqlite:///var/a.db")
    assert resolve() == "sqlite:///var/a.db"
    assert resolve("memory:") == "memory:"


def test_an_empty_address_in_the_environment_means_the_default(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLYBALL_URL", "")
    assert path_of(resolve()) == home / "governor.db"


@every(
    "url", ["", "memory", "sqlite://", "sqlite:///", "sqlite://relative.db", "mysql://x", "/a/path.db", "x"]
)
def test_an_address_that_cannot_be_used_is_refused_with_the_ones_that_can(url: str) -> None:
    with pytest.raises(UsageError, match="sqlite:///absolute/path"):
        Governor(url)


def test_more_slashes_than_needed_are_the_same_file() -> None:
    assert resolve("sqlite:////tmp/x.db") == resolve("sqlite:///tmp/x.db") == "sqlite:///tmp/x.db"


def test_a_password_is_never_repeated() -> None:
    with pytest.raises(UsageError) as raised:
        resolve("mysql://user:secret@box:6379/0?password=secret")
    assert "secret" not in str(raised.value)
    assert "box" in str(raised.value)


def test_an_empty_home_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLYBALL_HOME", "")
    with pytest.raises(UsageError, match="FLYBALL_HOME"):
        resolve()


@pytest.mark.parametrize("name", ["with space", "100%25", "a?b", "a#b", "ünï", "🚀", "quo'te", "x" * 120])
def test_a_home_may_have_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    folder = tmp_path / name
    monkeypatch.setenv("FLYBALL_HOME", str(folder))
    gov = Governor()
    gov.set_pool("p", cap=1, adaptive=False)
    gov.acquire("p")
    with pytest.raises(TimeoutError):
        gov.acquire("p", timeout=0)
    assert (folder / "governor.db").is_file()
    assert [entry.name for entry in tmp_path.iterdir()] == [name]
    gov.close()


def test_two_homes_share_nothing(tmp_path: Path) -> None:
    govs = [Governor(f"sqlite://{tmp_path / name / 'governor.db'}") for name in "ab"]
    for gov in govs:
        gov.set_pool("p", cap=1, adaptive=False)
        gov.acquire_nowait("p")
        gov.close()


def test_state_is_private(home: Path) -> None:
    gov = Governor()
    gov.acquire("p", timeout=0)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    for file in home.iterdir():
        if file.is_file():
            assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0, file
    gov.close()


def test_asking_for_the_status_makes_nothing(home: Path) -> None:
    assert Governor().status().pools == ()
    assert not home.exists()


def test_a_home_that_is_a_file_is_refused_in_our_words(home: Path) -> None:
    home.parent.mkdir(parents=True, exist_ok=True)
    home.write_text("not a folder")
    with pytest.raises(FlyballError, match="FLYBALL_HOME"):
        Governor().acquire_nowait("p")


def test_a_lock_that_cannot_be_opened_is_refused_in_our_words(home: Path) -> None:
    (home / "governor.db.lock").mkdir(parents=True)
    with pytest.raises(FlyballError, match="FLYBALL_HOME"):
        Governor().acquire_nowait("p")
