"""flyball.toml: every mistake is named with its key and the way out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.errors import UsageError
from flyball.factory.project.config import ProjectConfig
from flyball.factory.project.config_reader import check_runnable, load_config, parse_config, read_config
from flyball.host.install_hints import upgrade_command
from tests.factory.powerless import run_powerless

SMALLEST = '[project]\nid = "blog"\n'
FROM_THE_ISSUE = """
# flyball.toml
[project]
id = "blog"
[agent]
runtime = "command"                 # or claude, codex, gemini, opencode
command = ["python3", "agent.py"]
[run]
width = 4
mode = "rolling"                    # or wave
[gate]
commands = ["python3 check.py"]
[merge]
policy = "auto"
protected = ["secrets/"]
"""


def load(folder: Path, text: str | bytes) -> ProjectConfig:
    content = text if isinstance(text, bytes) else text.encode()
    (folder / "flyball.toml").write_bytes(content)
    return load_config(folder)


def refused(folder: Path, text: str | bytes) -> str:
    with pytest.raises(UsageError) as raised:
        load(folder, text)
    return str(raised.value)


# -- a file that cannot be read -------------------------------------------------------------------


def test_a_missing_file_points_to_init(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="run flyball init there"):
        load_config(tmp_path)


def test_a_folder_in_its_place_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "flyball.toml").mkdir()
    with pytest.raises(UsageError, match=r"cannot read .*flyball\.toml: Is a directory"):
        load_config(tmp_path)


def test_a_link_that_leads_nowhere_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "flyball.toml").symlink_to(tmp_path / "gone")
    with pytest.raises(UsageError, match="leads nowhere; mend or remove it"):
        load_config(tmp_path)


def test_a_syntax_error_names_the_file_and_the_line(tmp_path: Path) -> None:
    words = refused(tmp_path, '[project]\nid = "blog\n')
    assert str(tmp_path / "flyball.toml") in words
    assert "line 2" in words


def test_a_key_written_twice_names_its_line(tmp_path: Path) -> None:
    assert "line 3" in refused(tmp_path, '[project]\nid = "a"\nid = "b"\n')


def test_bytes_that_are_not_utf8_name_their_line(tmp_path: Path) -> None:
    assert "line 3 is not UTF-8" in refused(tmp_path, SMALLEST.encode() + b"# caf\xe9\n")


def test_a_byte_order_mark_is_not_a_mistake(tmp_path: Path) -> None:
    assert load(tmp_path, b"\xef\xbb\xbf" + SMALLEST.encode()).project.id == "blog"


def test_deep_nesting_and_endless_numbers_are_refused_not_crashed_on(tmp_path: Path) -> None:
    assert "nested" in refused(tmp_path, "x = " + "[" * 100_000)
    assert "not valid TOML" in refused(tmp_path, "x = " + "9" * 10_000)


@pytest.mark.parametrize("text", ["[a" + ".a" * 100_000 + "]\nx = 1", "a" + " . 'a'" * 100_000 + " = 1"])
def test_a_key_of_endless_parts_is_refused_at_once(tmp_path: Path, text: str) -> None:
    """The parser takes more than a minute for one."""
    assert "nested too deeply" in refused(tmp_path, text)


def test_of_a_file_full_of_unknown_names_a_hundred_are_told(tmp_path: Path) -> None:
    sections = "".join(f"[section{number}]\nx = 1\n" for number in range(20_000))
    keys = "[run]\n" + "".join(f"key{number} = 1\n" for number in range(20_000))
    for text in (sections, keys):
        (tmp_path / "flyball.toml").write_text(f'[project]\nid = "blog"\n{text}')
        assert len(read_config(tmp_path).problems) == 100


def test_a_pipe_in_its_place_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "flyball.toml")
    with pytest.raises(UsageError, match="is not a file"):
        load_config(tmp_path)


def test_a_file_that_may_not_be_read_says_so(tmp_path: Path) -> None:
    (tmp_path / "flyball.toml").write_text(SMALLEST, encoding="utf-8")
    (tmp_path / "flyball.toml").chmod(0)
    said = run_powerless(f"""
from pathlib import Path
from flyball.errors import UsageError
from flyball.factory.project.config_reader import load_config
try:
    load_config(Path({str(tmp_path)!r}))
except UsageError as error:
    print(error)
""")
    assert said == f"cannot read {tmp_path / 'flyball.toml'}: Permission denied"


def test_a_huge_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    with (tmp_path / "flyball.toml").open("wb") as file:
        file.truncate(1 << 33)
    with pytest.raises(UsageError, match="larger than"):
        load_config(tmp_path)


# -- unknown names --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SMALLEST + "[run]\nwidht = 3\n", "run.widht is not a known key; did you mean 'width'?"),
        (SMALLEST + "[gates]\ncommands = []\n", "gates is not a known section; did you mean 'gate'?"),
        (SMALLEST + "[merge]\ncommands = []\n", "merge.commands is not a known key; it belongs under [gate]"),
        ("width = 3\n" + SMALLEST, "width is not a known key; it belongs under [run]"),
        (SMALLEST + "[prompt]\nzzz = 1\n", "prompt.zzz is not a known key; there are text, file"),
        (SMALLEST + '[project.extra]\na = "b"\n', "project.extra is not a known key"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in refused(tmp_path, text)


# -- wrong values ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "line", "expected"),
    [
        ("run", "width = 0", "run.width is 0; it must be a whole number, at least 1"),
        ("run", "width = -1", "at least 1"),
        ("run", 'width = "4"', "run.width is '4'; it must be a whole number"),
        ("run", "width = 2.5", "run.width is 2.5; it must be a whole number"),
        ("run", "width = true", "run.width is true; it must be a whole number"),
        ("run", "tier = 4", "run.tier is 4; it must be a whole number, from 0 to 3"),
        ("run", "attempts = 0", "at least 1"),
        ("run", 'mode = "rollin"', "one of rolling, wave; did you mean 'rolling'?"),
        ("run", "mode = 3", "run.mode is 3; it must be one of rolling, wave"),
        ("run", 'stagger_s = "soon"', "run.stagger_s is 'soon'; it must be a duration such as 90 or \"10m\""),
        ("run", "stagger_s = -1", "at least 0"),
        ("run", 'stagger_s = "-1m"', "a duration"),
        ("agent", "max_s = 0", 'a duration such as 90 or "10m", above 0'),
        ("agent", "max_s = inf", "agent.max_s is inf"),
        ("agent", "max_s = nan", "agent.max_s is nan"),
        ("agent", "max_s = true", "agent.max_s is true"),
        ("agent", "max_cost_usd = nan", "agent.max_cost_usd is nan; it must be a number, above 0"),
        ("agent", "max_turns = 0", "a whole number, at least 1"),
        ("agent", 'command = "python3 agent.py"', "it must be a list of text"),
        ("agent", 'command = ["x", 1]', "agent.command[1] is a number; it must be text"),
        ("agent", "env = {PORT = 8080}", 'agent.env.PORT is a number; it must be text: PORT = "..."'),
        ("agent.env", "DEBUG = true", 'agent.env.DEBUG is true or false; it must be text: DEBUG = "..."'),
        ("agent", "env = [1]", "agent.env is a list; it must be a table in which each value is text"),
        ("models.names", "claude = {opus = 4}", "models.names.claude.opus is a number; it must be text"),
        ("agent", "model = 1979-05-27", "agent.model is 1979-05-27; it must be text"),
        ("agent", 'runtime = "cloud"', "did you mean 'claude'?"),
        ("gate", 'commands = "make"', "it must be a list of text"),
        ("merge", 'push = "yes"', "it must be true or false"),
        ("tasks", 'folder = ""', "text that is not empty"),
        ("stages.docs", 'max_s = "soon"', "stages.docs.max_s is 'soon'; it must be a duration"),
        ("stages.docs", 'promt = "x"', "stages.docs.promt is not a known key; did you mean 'prompt'?"),
        (
            "models",
            'allowed = ["huge"]',
            "models.allowed[0] is 'huge'; it must be one of fable, haiku, opus, sonnet",
        ),
        ("budget", 'guard = "of"', "did you mean 'off'?"),
        ("areas", 'api = "src"', "areas.api is text; it must be a list of text"),
    ],
)
def test_a_wrong_value_is_answered_with_what_it_must_be(
    tmp_path: Path, section: str, line: str, expected: str
) -> None:
    words = refused(tmp_path, f"{SMALLEST}[{section}]\n{line}\n")
    assert expected in words
    assert words.startswith(f"{tmp_path / 'flyball.toml'}: {section}")


def test_a_value_of_the_environment_is_never_repeated_in_a_message(tmp_path: Path) -> None:
    assert "31415" not in refused(tmp_path, SMALLEST + "[agent.env]\nAPI_KEY = 31415\n")


@pytest.mark.parametrize("text", ['gate = "make test"\n', "gate = [1]\n", "gate = 3\n", "gate = false\n"])
def test_a_section_that_is_not_a_section_says_how_to_write_one(tmp_path: Path, text: str) -> None:
    assert "must be a section: write [gate]" in refused(tmp_path, text + SMALLEST)


def test_a_project_without_an_id_says_so(tmp_path: Path) -> None:
    assert 'project.id is missing; add [project] id = "..."' in refused(tmp_path, "")
    assert "project.id is missing" in refused(tmp_path, "[project]\n")


@pytest.mark.parametrize("written", ["", "../x", "a b", "x" * 100, "a/b"])
def test_an_id_that_cannot_be_a_file_name_is_refused(tmp_path: Path, written: str) -> None:
    assert "project.id" in refused(tmp_path, f'[project]\nid = "{written}"\n')


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[agent]\nruntime = "command"\n', "agent.command is missing"),
        ('[agent]\ncommand = [""]\n', "agent.command begins with an empty word"),
        ('[agent]\nargs = ["a\\u0000b"]\n', "agent.args contains a NUL"),
        ('[agent.env]\n"A=B" = "x"\n', "agent.env has a variable 'A=B'"),
        ('[prompt]\ntext = "a"\nfile = "b"\n', "prompt.text and prompt.file are both set; keep one"),
        (
            '[tasks]\nfolder = "../elsewhere"\n',
            "tasks.folder is '../elsewhere'; write the path as it is inside",
        ),
        ('[tasks]\nfolder = "/etc"\n', "tasks.folder"),
        ('[worktree]\ncopy = ["~/.netrc"]\n', "worktree.copy[0]"),
        ('[worktree]\nbootstrap = ["  "]\n', "worktree.bootstrap[0] is empty"),
        ('[gate]\ncommands = ["make", ""]\n', "gate.commands[1] is empty"),
        ('[merge]\nprotected = ["ok/", "../up"]\n', "merge.protected[1]"),
        ('[stages.review]\nprompt = "look"\n', "stages.review is not a stage of its own; set it in [review]"),
        ('[stages."a b\\u0000"]\n', "stages cannot be used"),
        ('[models.names.cloud]\nopus = "x"\n', "models.names.cloud is not a known runtime; did you mean"),
        (
            '[models.names.codex]\nbig = "x"\n',
            "models.names.codex.big is not a tier; use one of haiku, sonnet",
        ),
        ('[models.stages]\ndocs = "claude-fable-1"\n', "fable is never a default"),
        ('[models]\nallowed = ["haiku"]\nstages = {docs = "opus"}\n', "models.allowed does not have opus"),
        ('[agent]\nmodel = "fable"\n', "agent.model is 'fable', and fable is never a default"),
        (
            "[budget]\nwarn = 0.9\ndrain = 0.8\n",
            "budget.drain is 0.8, below budget.warn (0.9). As a window fills up",
        ),
        ('[areas]\n" " = ["src"]\n', "areas has an area called ' '"),
        ('[areas]\napi = ["../x"]\n', "areas.api[0] cannot be used"),
    ],
)
def test_keys_that_make_no_sense_together_or_reach_outside_are_refused(
    tmp_path: Path, text: str, expected: str
) -> None:
    assert expected in refused(tmp_path, SMALLEST + text)


@pytest.mark.parametrize("branch", ["--upload-pack=x", "a..b", "a b", "/x"])
def test_a_branch_that_git_would_take_for_something_else_is_refused(tmp_path: Path, branch: str) -> None:
    assert "project.default_branch" in refused(tmp_path, f'{SMALLEST}default_branch = "{branch}"\n')


def test_all_mistakes_are_found_at_once(tmp_path: Path) -> None:
    (tmp_path / "flyball.toml").write_text('[run]\nwidth = 0\nmode = "x"\n[gaet]\n', encoding="utf-8")
    found = {problem.key for problem in read_config(tmp_path).problems}
    assert found == {"gaet", "project.id", "run.width", "run.mode"}
    with pytest.raises(UsageError, match="and 3 more: flyball validate shows all"):
        load_config(tmp_path)


# -- the engine -----------------------------------------------------------------------------------


def test_a_project_for_a_newer_flyball_is_answered_with_an_upgrade_even_if_its_keys_are_unknown_here(
    tmp_path: Path,
) -> None:
    words = refused(tmp_path, '[project]\nid = "blog"\nengine = "99.1+"\nshiny = 1\n[new]\n')
    assert "needs flyball 99.1 or newer" in words
    assert upgrade_command() in words
    assert "shiny" not in words


@pytest.mark.parametrize("engine", ["0.0.1+", ">=0.0.1", "v0.0", ""])
def test_a_project_for_an_older_flyball_loads(tmp_path: Path, engine: str) -> None:
    assert load(tmp_path, f'{SMALLEST}engine = "{engine}"\n').project.engine == engine


def test_a_malformed_engine_says_how_to_write_it(tmp_path: Path) -> None:
    assert "project.engine 'latest' is not a minimum version" in refused(
        tmp_path, SMALLEST + 'engine = "latest"'
    )
    assert "project.engine is 2; it must be text" in refused(tmp_path, SMALLEST + "engine = 2\n")


# -- what is right --------------------------------------------------------------------------------


def test_the_smallest_project_has_the_documented_defaults(tmp_path: Path) -> None:
    config = load(tmp_path, SMALLEST)
    assert (config.run.width, config.run.mode, config.run.attempts) == (3, "rolling", 3)
    assert (config.run.limited_retries, config.run.gate_retries, config.run.conflict_retries) == (5, 2, 2)
    assert (config.agent.runtime, config.agent.max_s, config.agent.stuck_s) == ("claude", 14400.0, 900.0)
    assert (config.gate.commands, config.merge.policy, config.merge.push) == (None, "auto", False)
    assert (config.tasks.source, config.tasks.folder, config.areas) == ("files", "tasks", {})


def test_the_example_of_the_issue_loads(tmp_path: Path) -> None:
    config = load(tmp_path, FROM_THE_ISSUE)
    assert config.agent.command == ["python3", "agent.py"]
    assert config.merge.protected == ["secrets/"]
    check_runnable(config)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("90", 90.0), ("1.5", 1.5), ('"10m"', 600.0), ('"1h30m"', 5400.0), ('"90"', 90.0)],
)
def test_durations_are_seconds_or_text(tmp_path: Path, written: str, seconds: float) -> None:
    assert load(tmp_path, f"{SMALLEST}[gate]\ntimeout_s = {written}\n").gate.timeout_s == seconds


def test_a_cost_is_not_a_duration(tmp_path: Path) -> None:
    assert "max_cost_usd is '2m'" in refused(tmp_path, SMALLEST + '[agent]\nmax_cost_usd = "2m"\n')


def test_an_anchored_pattern_may_be_protected(tmp_path: Path) -> None:
    assert load(tmp_path, SMALLEST + '[merge]\nprotected = ["/secrets/"]\n').merge.protected == ["/secrets/"]


def test_two_projects_never_share_a_list(tmp_path: Path) -> None:
    one, two = load(tmp_path, SMALLEST), load(tmp_path, SMALLEST)
    one.agent.args.append("--x")
    assert two.agent.args == []


# -- runnable -------------------------------------------------------------------------------------


def test_landing_by_itself_needs_a_gate_or_an_explicit_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\[gate\] commands = .*commands = \[\]"):
        check_runnable(load(tmp_path, SMALLEST))
    check_runnable(load(tmp_path, SMALLEST + "[gate]\ncommands = []\n"))
    check_runnable(load(tmp_path, SMALLEST + '[merge]\npolicy = "manual"\n'))


# -- anything at all ------------------------------------------------------------------------------

_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
_sections = st.sampled_from(
    ["project", "tasks", "agent", "run", "worktree", "gate", "merge", "prompt", "areas", "x"]
)
_keys = st.sampled_from(
    ["id", "engine", "command", "env", "width", "max_s", "commands", "protected", "text", "y"]
)


@given(st.dictionaries(_sections, st.dictionaries(_keys, _values, max_size=4) | _values, max_size=4))
def test_whatever_the_file_says_it_is_a_config_or_words(document: dict[str, object]) -> None:
    reading = parse_config(document)
    assert (reading.config is None) == bool(reading.problems)
    assert all(str(problem) for problem in reading.problems)
