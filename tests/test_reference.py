"""What the reference says is true: its examples run, and its tables have what the code has."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import get_type_hints

import pytest

from flyball import Governor, Share, ShareStats
from flyball.core.pool.setting_table import SETTINGS
from flyball.core.pool.settings import PoolChanges
from flyball.governor import inherited_lease
from flyball.host.process import HOST_VARIABLE
from flyball.host.state_folder import SERVERS, resolve
from tests.pool_settings_reference import PAGE, reference_page

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
SHARES, ADDRESSES = ((REFERENCE / name).read_text(encoding="utf-8") for name in ("shares.md", "addresses.md"))


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", SHARES, flags=re.DOTALL))
def test_the_examples_of_shares_run(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(code, "shares.md", "exec"), {})
    printed = capsys.readouterr().out
    expected = re.findall(r"print\(.*# (.+)", code)
    assert expected
    for words in expected:
        assert words in printed


def test_every_option_of_a_share_is_listed() -> None:
    section = SHARES.partition("## `governor.share")[2].partition("\n## ")[0]
    listed = {name for row in rows(section) for name in names(row[0])}
    with pytest.raises(Exception, match="known: ") as refused:
        Governor("memory:").share("p", unknown=1)  # type: ignore[call-arg]
    assert listed == set(str(refused.value).partition("known: ")[2].split(", "))


def test_what_is_listed_of_a_share_is_there_and_nothing_is_left_out() -> None:
    section = SHARES.partition("## What it does")[2].partition("\n## ")[0]
    called = {name for row in rows(section) for name in re.findall(r"(\w+)\(", row[0])}
    public = {name for name in dir(Share) if not name.startswith("_") and callable(getattr(Share, name))}
    forks = {name for name in public if "_fork" in name}
    retries = {"may_retry", "take_retry", "release"}  # as every limiter has them
    assert called == public - forks - retries
    for field in dataclasses.fields(ShareStats):
        assert f"`{field.name}`" in section


def test_the_page_of_the_pool_settings_says_what_the_code_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference_page(), (
        "stale; run: python -m tests.pool_settings_reference"
    )
    assert set(PoolChanges.__annotations__) == set(SETTINGS)
    for name, kind in get_type_hints(PoolChanges).items():
        assert SETTINGS[name].type == kind, name


def test_every_kind_of_address_is_listed_and_can_be_used() -> None:
    forms = [name for row in rows(ADDRESSES) for name in names(row[0]) if "://" in name or name == "memory:"]
    written = {form.partition("://")[0] for form in forms}
    assert {*SERVERS, "sqlite", "memory:"} - {"postgres"} == written
    for form in forms:
        if not form.endswith("..."):
            assert resolve(form) == form


def test_the_variables_are_listed() -> None:
    section = ADDRESSES.partition("## Variables")[2]
    listed = {name.partition("=")[0] for row in rows(section) for name in names(row[0])}
    assert {"FLYBALL_URL", "FLYBALL_HOME", HOST_VARIABLE, inherited_lease.VARIABLE} <= listed
