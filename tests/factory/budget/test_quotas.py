"""What people set for an account, what providers said of it, whose it is; and keeping up with all that."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from flyball.core.budget.usage_windows import UsageReport
from flyball.core.durations import moment_s
from flyball.errors import StoreUnreadableError, UsageError
from flyball.factory.accounts.account import Account
from flyball.factory.accounts.profile import Profile
from flyball.factory.budget.api_key import api_key_for
from flyball.factory.budget.monitor import UsageMonitor
from flyball.factory.budget.port import BillingAccount, billing_account
from flyball.factory.budget.provider_reports import ProviderReports
from flyball.factory.budget.quotas import QuotaBook
from flyball.factory.git.git import Git
from flyball.factory.project.config import ProjectConfig

NOW = moment_s("2026-11-15T21:31:00Z") or 0.0
HOUR = 3600.0


# -- what providers said ---------------------------------------------------------------------------------


def test_a_window_only_fills_whatever_order_reports_come_in(tmp_path: Path) -> None:
    reset = NOW + HOUR
    reports = [
        UsageReport(name="5h", fraction=part, at=NOW - ago, resets_at=reset + jitter)
        for part, ago, jitter in ((0.5, 60, 0.0), (0.7, 30, 1.0), (0.6, 10, 0.0))
    ]
    told = ProviderReports(tmp_path, "work").read(NOW)
    assert [told.record([each]) for each in reports] == [True, True, False]
    assert told.reports["5h"].fraction == 0.7
    assert told.record([UsageReport(name="5h", fraction=0.01, at=NOW, resets_at=reset + 5 * HOUR)]), (
        "the next one"
    )
    assert not told.record([reports[1]]), "a late word about a window that is over"


def test_what_was_told_outlives_the_run_and_garbage_does_not(tmp_path: Path) -> None:
    file = ProviderReports(tmp_path, "work")
    told = file.read(NOW)
    told.record([UsageReport(name="5h", fraction=0.7, at=NOW, resets_at=NOW + HOUR)])
    file.write(told, NOW)
    assert ProviderReports(tmp_path, "work").read(NOW + 1).reports == told.reports
    assert ProviderReports(tmp_path, "home").read(NOW + 1).reports == {}, "another account"
    path = tmp_path / "usage" / "work.json"
    for garbage in (b"{", b"[]", b'{"windows": [{"name": "5h", "fraction": "x", "at": 1}]}', b"\xff"):
        path.write_bytes(garbage)
        assert file.read(NOW).reports == {}


# -- what people set -------------------------------------------------------------------------------------


def test_two_accounts_never_mix(tmp_path: Path) -> None:
    work, home = QuotaBook(tmp_path, "work"), QuotaBook(tmp_path, "home")
    work.calibrate("5h", used=0.5, spent_usd=10.0, source="ccusage")
    home.declare("day", usd=3.0, length_s=86400.0)
    assert {each.name: each.ceiling_usd for each in work.terms()} == {"5h": 20.0, "7d": None}
    assert {each.name: each.ceiling_usd for each in home.terms()} == {"5h": None, "7d": None, "day": 3.0}
    assert work.window("5h").whole, "it was measured with the whole account's spending"
    assert work.forget("5h") == ["5h"]
    assert home.window("day").ceiling_usd == 3.0


def test_every_change_is_a_line_of_audit_and_a_commit(tmp_path: Path) -> None:
    book = QuotaBook(tmp_path, "work")
    book.declare("5h", usd=3.0)
    book.forget(None)
    audit = [json.loads(each) for each in (tmp_path / "registry" / "audit.jsonl").read_text().splitlines()]
    assert [(each["what"], each["account"], each["window"]) for each in audit] == [
        ("quota declare", "work", "5h"),
        ("quota forget", "work", "5h"),
    ]
    log = Git(tmp_path / "registry")("log", "--format=%s").splitlines()
    assert log == ["quota forget work 5h", "quota declare work 5h"]


def test_a_file_that_cannot_be_understood_is_never_no_limit(tmp_path: Path) -> None:
    book = QuotaBook(tmp_path, "work")
    book.declare("5h", usd=3.0)
    for garbage in (b"{", b'{"windows": [{"name": "5h"}]}', b'{"windows": 3}'):
        book.file.write_bytes(garbage)
        with pytest.raises(StoreUnreadableError, match="bring it back with git"):
            book.terms()


def test_what_makes_no_sense_is_refused_with_the_way_out(tmp_path: Path) -> None:
    book = QuotaBook(tmp_path, "work")
    for call, words in (
        (lambda: book.declare("5h", usd=1.0, length_s=60.0), "as long as it is called"),
        (lambda: book.declare("day", usd=1.0), "--length 1d"),
        (lambda: book.declare("../x", usd=1.0, length_s=3600.0), "cannot be"),
        (lambda: book.calibrate("5d", used=0.5, spent_usd=1.0, source=""), "has no window '5d'"),
        (lambda: book.forget("5h"), "nothing was set"),
    ):
        with pytest.raises(UsageError, match=words):
            call()
    assert not book.file.exists()


# -- whose it is -----------------------------------------------------------------------------------------


def config(**account: str) -> ProjectConfig:
    return msgspec.convert(
        {"project": {"id": "blog"}, "agent": {"runtime": "claude"}, "account": account}, ProjectConfig
    )


def test_a_profile_s_transcripts_are_where_its_login_is(tmp_path: Path) -> None:
    around, own = {"CLAUDE_CONFIG_DIR": str(tmp_path)}, str(tmp_path / "w")
    personal = Profile(name="me", runtime="claude", identity="me@example.org")
    work = Profile(name="work", runtime="claude", identity="w@example.org", config_dir=own, api_key_env="K")
    default, mine, theirs = (
        billing_account(Account(config(), profile), environ=around) for profile in (None, personal, work)
    )
    assert (default.name, default.folder) == ("default:claude", tmp_path)
    assert (mine.name, mine.folder) == ("me", Path.home() / ".claude"), "its variable is left unset"
    assert (theirs.name, theirs.folder, theirs.key_env) == ("work", tmp_path / "w", "K")


def test_an_api_key_is_charged_only_when_all_three_say_so() -> None:
    work = BillingAccount(name="work", runtime="claude", key_env="WORK_KEY")
    around = {"WORK_KEY": "sk-1", "ANTHROPIC_API_KEY": "sk-ambient"}
    allowed = config(profile="work", api_spend="explicit")
    key = api_key_for(allowed, work, wanted=True, environ=around)
    assert key.variables == {"ANTHROPIC_API_KEY": "sk-1"}
    assert "API KEY SPEND IS ON" in key.words
    assert "sk-1" not in repr(key)
    assert not api_key_for(allowed, work, wanted=False, environ=around).allowed
    for settings, environ in ((config(profile="work"), around), (allowed, {"ANTHROPIC_API_KEY": "sk"})):
        with pytest.raises(UsageError, match="may not be charged"):
            api_key_for(settings, work, wanted=True, environ=environ)


# -- keeping up ------------------------------------------------------------------------------------------


def test_no_source_is_read_where_there_is_nothing_to_look_for(tmp_path: Path) -> None:
    monitor = UsageMonitor(BillingAccount(name="work", runtime="opencode"), tmp_path)
    assert not monitor.has_limits
    assert monitor.due_in_s is None
    assert [each.enforced for each in monitor.standings] == [False, False]


def test_what_an_agent_cost_counts_before_any_source_says_so(tmp_path: Path) -> None:
    QuotaBook(tmp_path, "work").declare("5h", usd=10.0)
    wall = [NOW]
    monitor = UsageMonitor(BillingAccount(name="work", runtime="opencode"), tmp_path, wall=lambda: wall[0])
    monitor.refresh_now()
    assert monitor.standings[0].full == 0.0
    wall[0] += 1
    monitor.add_cost(4.0)
    wall[0] += 1
    assert monitor.standings[0].full == pytest.approx(0.4)
    monitor.refresh_now()
    assert monitor.standings[0].full == 0.0, "now the source is believed again"
