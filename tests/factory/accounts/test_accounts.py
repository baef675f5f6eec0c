"""Whose account is used: profiles, who is logged in, and what passes into a child."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from flyball.errors import AccountError, StoreUnreadableError, UsageError
from flyball.factory.accounts.account import verify_login
from flyball.factory.accounts.environment import child_environment
from flyball.factory.accounts.profile import Profile, Profiles, RuntimeName
from flyball.factory.project.registry import ProjectRegistry
from flyball.factory.state.ledger import Ledger
from tests.factory.kit import Project
from tests.factory.registry_kit import audit, commits, is_clean

ANN = "ann@example.org"


def profile(name: str = "work", **fields: Any) -> Profile:
    return Profile(**{"name": name, "runtime": "claude", "identity": ANN, **fields})


def log_in(folder: Path, who: str = ANN) -> Path:
    """As Claude Code does it."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / ".claude.json"
    file.write_text(json.dumps({"oauthAccount": {"emailAddress": who}, "projects": {}}))
    return file


# -- profiles -----------------------------------------------------------------------------------------------


def test_a_profile_is_a_readable_file_with_a_line_of_audit_and_a_commit(tmp_path: Path) -> None:
    profiles, registry = Profiles(tmp_path), ProjectRegistry(tmp_path)
    profiles.add(profile(config_dir="~/.claude-work", env=("CI",)))
    file = profiles.folder / "work.toml"
    assert 'identity = "ann@example.org"' in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert profiles.get("work") == profile(config_dir="~/.claude-work", env=("CI",))
    profiles.remove("work")
    assert commits(registry) == ["account remove work", "account add work"]
    assert [line["what"] for line in audit(registry)] == ["account add", "account remove"]
    assert is_clean(registry)


def test_profiles_and_projects_share_the_registry_and_undo_touches_projects_only(tmp_path: Path) -> None:
    profiles, registry = Profiles(tmp_path), ProjectRegistry(tmp_path)
    registry.add("blog", tmp_path)
    profiles.add(profile())
    registry.undo()
    assert [one.name for one in profiles.list()[0]] == ["work"]
    assert registry.list().entries == ()
    assert is_clean(registry)


def test_a_name_that_is_taken_is_changed_only_with_replace(tmp_path: Path) -> None:
    profiles = Profiles(tmp_path)
    profiles.add(profile())
    for taken in (profile(), profile("Work")):
        with pytest.raises(UsageError, match="--replace changes it"):
            profiles.add(taken)
    profiles.add(profile(identity="bob@example.org"), replace=True)
    assert profiles.get("work").identity == "bob@example.org"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "name = ",
        'name = "work"\nruntime = "claude"\n',
        'name="work"\nruntime="claude"\nidentity="a"\nkey="x"',
    ],
)
def test_a_file_that_cannot_be_understood_is_told_and_never_used_or_committed(
    tmp_path: Path, text: str
) -> None:
    profiles = Profiles(tmp_path)
    profiles.add(profile())
    (profiles.folder / "work.toml").write_text(text)
    profiles.add(profile("home"))
    good, broken = profiles.list()
    assert ([one.name for one in good], [one.name for one in broken]) == (["home"], ["work"])
    assert "bring it back with git" in broken[0].words
    with pytest.raises(StoreUnreadableError):
        profiles.get("work")
    assert not is_clean(ProjectRegistry(tmp_path))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"identity": ""}, "who must be logged in"),
        ({"billing": "api-key"}, "--api-key-env NAME"),
        ({"config_dir": "~/.claude"}, "leave --config-dir out"),
        ({"config_dir": "relative"}, "must be absolute"),
        ({"env": ("ANTHROPIC_API_KEY",)}, "--api-key-env, not --env"),
        ({"env": ("CLAUDE_CODE_OAUTH_TOKEN",)}, "decides whose account"),
        ({"api_key_env": "sk-ant-1234"}, "names of variables"),
        ({"runtime": "command"}, "no login"),
        ({"identity": " ann@example.org"}, "spaces"),
    ],
)
def test_a_profile_that_makes_no_sense_is_refused(tmp_path: Path, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as error:
        Profiles(tmp_path).add(profile(**fields))
    assert "sk-ant" not in str(error.value)


# -- who is logged in ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "way_out"), [("a b", "'a-b' could"), ("", "cannot be empty")])
def test_a_name_that_cannot_be_one_is_an_account_s_and_no_project_s(
    project: Project, name: str, way_out: str
) -> None:
    added = project.flyball("account", "add", name, "--runtime", "claude", "--identity", "me@example.org")
    assert added.code == 2
    assert "an account's name" in added.err
    assert way_out in added.err
    assert "project" not in added.err


def test_who_is_logged_in_is_compared_without_case(tmp_path: Path) -> None:
    log_in(tmp_path, "Ann@Example.ORG")
    assert verify_login(profile(), {"HOME": str(tmp_path)}) == ANN


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b'{"oauthAccount": null}',
        b'{"oauthAccount": {}}',
        b'{"oauthAccount": {"emailAddress": ""}}',
        b'{"oauthAccount": {"emailAddress": 7}}',
        b'{"oauthAccount": {"emailAddress": "bob@example.org"}}',
        b'{"oauthAccount": {"emailAddress": "ann@example.org.evil.org"}}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_missing_unreadable_empty_and_another_are_refused(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / ".claude.json").write_bytes(content)
    with pytest.raises(AccountError, match=r"claude\.json"):
        verify_login(profile(), {"HOME": str(tmp_path)})


def test_a_profile_with_a_folder_looks_there_and_nowhere_else(tmp_path: Path) -> None:
    log_in(tmp_path / "home")
    log_in(tmp_path / "work", "bob@example.org")
    own = profile(config_dir=str(tmp_path / "work"))
    with pytest.raises(AccountError, match=r"bob@example\.org is logged in; log in as ann"):
        verify_login(own, {"HOME": str(tmp_path / "home")})


def _token(claims: Mapping[str, Any]) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.sig"


CODEX = {"tokens": {"id_token": _token({"email": ANN}), "account_id": "acc-1"}}
LOGINS: list[tuple[RuntimeName, str, Any, str, bool]] = [
    ("codex", ".codex/auth.json", CODEX, "Ann@example.org", True),
    ("codex", ".codex/auth.json", CODEX, "acc-1", True),
    ("codex", ".codex/auth.json", CODEX, "acc-2", False),
    ("codex", ".codex/auth.json", {**CODEX, "auth_mode": "apikey"}, ANN, False),
    ("codex", ".codex/auth.json", {"OPENAI_API_KEY": "k", "tokens": None}, ANN, False),
    ("codex", ".codex/auth.json", {"tokens": {"id_token": "nonsense"}}, ANN, False),
    ("gemini", ".gemini/google_accounts.json", {"active": ANN, "old": ["bob@example.org"]}, ANN, True),
    (
        "gemini",
        ".gemini/google_accounts.json",
        {"active": ANN, "old": ["bob@example.org"]},
        "bob@example.org",
        False,
    ),
    ("gemini", ".gemini/google_accounts.json", {"active": None, "old": [ANN]}, ANN, False),
    ("opencode", ".local/share/opencode/auth.json", {"anthropic": {"type": "oauth"}}, "anthropic", True),
    ("opencode", ".local/share/opencode/auth.json", {"openai": {"accountId": "acc-1"}}, "openai:acc-1", True),
    (
        "opencode",
        ".local/share/opencode/auth.json",
        {"openai": {"accountId": "acc-1"}},
        "openai:acc-2",
        False,
    ),
    ("opencode", ".local/share/opencode/auth.json", {"anthropic": {"type": "oauth"}}, ANN, False),
]


@pytest.mark.parametrize(("runtime", "file", "content", "who", "good"), LOGINS)
def test_the_other_runtimes_name_theirs(
    tmp_path: Path, runtime: RuntimeName, file: str, content: Any, who: str, good: bool
) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(content))
    named, env = profile(runtime=runtime, identity=who), {"HOME": str(tmp_path)}
    if good:
        assert verify_login(named, env) == who
    else:
        with pytest.raises(AccountError):
            verify_login(named, env)


def test_a_profile_billed_by_key_needs_its_key_and_no_secret_is_ever_said(tmp_path: Path) -> None:
    own = profile(identity="", billing="api-key", api_key_env="FACTORY_KEY")
    for env in ({}, {"FACTORY_KEY": " "}, {"ANTHROPIC_API_KEY": "ambient"}):
        with pytest.raises(AccountError, match="FACTORY_KEY, which is not set"):
            verify_login(own, env)
    assert verify_login(own, {"FACTORY_KEY": "sk-1"}) == "API key in FACTORY_KEY"


# -- what passes --------------------------------------------------------------------------------------------

AMBIENT = {
    "PATH": "/bin",
    "HOME": "/home/ann",
    "LC_ALL": "C",
    "XDG_CACHE_HOME": "/c",
    "XDG_SESSION_TOKEN": "s",
    "HTTPS_PROXY": "http://proxy",
    "NODE_EXTRA_CA_CERTS": "/ca.pem",
    "ANTHROPIC_API_KEY": "sk-ambient",
    "ANTHROPIC_BASE_URL": "http://other",
    "CLAUDE_CODE_OAUTH_TOKEN": "t",
    "CLAUDE_CONFIG_DIR": "/other",
    "OPENAI_API_KEY": "sk-openai",
    "GH_TOKEN": "gh",
    "AWS_SECRET_ACCESS_KEY": "aws",
    "SSH_AUTH_SOCK": "/s",
    "GIT_DIR": "/nowhere",
    "CI": "1",
    "FLYBALL_HOME": "/f",
    "FLYBALL_URL": "redis://:secret@host/0",
    "FACTORY_KEY": "sk-factory",
}
HARMLESS = {"PATH", "HOME", "LC_ALL", "XDG_CACHE_HOME", "HTTPS_PROXY", "NODE_EXTRA_CA_CERTS", "FLYBALL_HOME"}


def test_under_a_profile_only_the_harmless_and_the_named_pass() -> None:
    assert set(child_environment(AMBIENT, runtime="claude", profile=profile())) == HARMLESS
    own = profile(env=("CI",))
    found = child_environment(AMBIENT, runtime="claude", profile=own, names=["GH_TOKEN"], values={"A": "b"})
    assert set(found) == {*HARMLESS, "CI", "GH_TOKEN", "A"}


def test_no_setting_can_name_a_variable_that_decides_whose_account_is_used() -> None:
    found = child_environment(
        AMBIENT,
        runtime="claude",
        profile=profile(),
        names=["ANTHROPIC_API_KEY", "CLAUDE_CONFIG_DIR"],
        values={"CLAUDE_CODE_OAUTH_TOKEN": "t"},
    )
    assert set(found) == HARMLESS


def test_a_personal_profile_leaves_the_folder_unset_and_another_sets_it(tmp_path: Path) -> None:
    assert "CLAUDE_CONFIG_DIR" not in child_environment(AMBIENT, runtime="claude", profile=profile())
    own = profile(config_dir=str(tmp_path))
    found = child_environment(AMBIENT, runtime="claude", profile=own)
    assert found["CLAUDE_CONFIG_DIR"] == str(tmp_path)


def test_a_key_is_given_only_where_the_profile_is_billed_by_key() -> None:
    own = profile(identity="", billing="api-key", api_key_env="FACTORY_KEY")
    found = child_environment(AMBIENT, runtime="claude", profile=own)
    assert found["ANTHROPIC_API_KEY"] == "sk-factory"
    assert "FACTORY_KEY" not in found
    backed = profile(api_key_env="FACTORY_KEY")
    assert "ANTHROPIC_API_KEY" not in child_environment(AMBIENT, runtime="claude", profile=backed)


def test_without_a_profile_the_runtimes_own_provider_passes_and_others_do_not() -> None:
    own = {"ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CONFIG_DIR"}
    assert set(child_environment(AMBIENT, runtime="claude")) == {*HARMLESS, *own}
    assert set(child_environment(AMBIENT, runtime="codex")) == {*HARMLESS, "OPENAI_API_KEY"}
    assert set(child_environment(AMBIENT, runtime="command")) == {*HARMLESS, *own, "OPENAI_API_KEY"}


# -- in a run -----------------------------------------------------------------------------------------------


@pytest.fixture
def guarded(project: Project) -> Project:
    """A project under a profile, with an agent that is told to be claude and is ours."""
    own = project.place / "login"
    log_in(own)
    Profiles(project.home).add(profile(config_dir=str(own)))
    fake = project.place / "claude"
    command = " ".join(f"'{word}'" for word in project.sections["agent"]["command"])
    result = '{"type":"result","subtype":"success","is_error":false,"session_id":"s","result":"done"}'
    fake.write_text(f"#!/bin/sh\n{command} >&2 || exit 1\necho '{result}'\n")
    fake.chmod(0o755)
    project.configure(agent={"runtime": "claude", "command": [str(fake)]}, account={"profile": "work"})
    project.commit("account")
    return project


def test_the_verified_identity_is_in_the_ledger_and_on_the_board(guarded: Project) -> None:
    guarded.env |= {"ANTHROPIC_API_KEY": "sk-ambient", "GH_TOKEN": "gh"}
    guarded.task(
        "t-1",
        act="assert not {'ANTHROPIC_API_KEY', 'GH_TOKEN'} & set(os.environ), sorted(os.environ)\n"
        "assert os.environ['CLAUDE_CONFIG_DIR'].endswith('/login')\n"
        "commit('pages/t-1.txt', 'good\\n')",
    )
    ran = guarded.run()
    assert ran.code == 0, ran.said
    state = guarded.root / ".flyball"
    assert json.loads((state / "board.json").read_text())["account"] == f"work: {ANN}"
    ledger = Ledger(state, read_only=True)
    record = ledger.load_task("t-1")
    ledger.close()
    assert record is not None
    assert record.agent.identity == f"work: {ANN}"


def test_another_account_is_refused_before_anything_is_touched(guarded: Project) -> None:
    log_in(guarded.place / "login", "bob@example.org")
    guarded.task("t-1")
    ran = guarded.run()
    assert ran.code == 1
    assert "profile work is for ann@example.org" in ran.said
    assert not (guarded.root / ".flyball").exists()
    assert not guarded.began()
    assert guarded.workspaces() == []
    assert not (guarded.home / "registry" / "projects").exists()


def test_an_identity_that_changes_in_the_middle_pauses_the_run_and_what_runs_lands(guarded: Project) -> None:
    guarded.configure(run={"width": 1})
    login = guarded.place / "login" / ".claude.json"
    other = json.dumps({"oauthAccount": {"emailAddress": "bob@example.org"}})
    guarded.task("t-1", act=f"commit('pages/t-1.txt', 'good\\n')\nPath({str(login)!r}).write_text({other!r})")
    guarded.task("t-2")
    ran = guarded.run("--json")
    assert ran.code == 75
    assert "profile work is for ann@example.org" in ran.json["paused"]
    assert (ran.json["merged"], [line.task for line in guarded.began()]) == (["t-1"], ["t-1"])
    log_in(guarded.place / "login")
    assert guarded.run().code == 0
    assert guarded.wrongs(["t-1", "t-2"]) == []


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"account": {"profile": "wrok"}}, "did you mean 'work'"),
        ({"agent": {"runtime": "codex"}}, "is for claude, and agent.runtime is codex"),
        ({"guard": {"env": ["ANTHROPIC_API_KEY"]}}, "decides whose account is used"),
        ({"agent": {"env": {"ANTHROPIC_AUTH_TOKEN": "t"}}}, "decides whose account is used"),
    ],
)
def test_a_project_that_would_use_another_account_is_refused(
    guarded: Project, sections: dict[str, dict[str, Any]], words: str
) -> None:
    guarded.configure(**sections)
    guarded.task("t-1")
    ran = guarded.run()
    assert (ran.code, words in ran.said) == (2, True), ran.said
    assert not (guarded.root / ".flyball").exists()


# -- the verb -----------------------------------------------------------------------------------------------


def test_the_verb_adds_lists_shows_verifies_and_removes(project: Project) -> None:
    added = project.flyball("account", "add", "home", "--runtime", "claude", "--identity", ANN, "--json")
    assert added.json["identity"] == ANN
    assert ANN in project.flyball("account", "list").out
    assert project.flyball("account", "show", "home", "--json").json["billing"] == "subscription"
    wrong = project.flyball("account", "verify", "--json")
    assert (wrong.code, wrong.json["profiles"][0]["verified"]) == (1, False)
    log_in(project.place / "user")
    right = project.flyball("account", "verify", "home")
    assert (right.code, right.out.strip()) == (0, f"home: {ANN}")
    assert project.flyball("account", "remove", "home").code == 0
    assert project.flyball("account", "list", "--json").json == {"profiles": [], "broken": []}
