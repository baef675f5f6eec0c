"""The page about the real agents is of the versions that we pin, and has a cell for each of them."""

from __future__ import annotations

from tests.agents.table import AGENTS, PAGE, Seen, page, pinned

AGAIN = "stale; run: FLYBALL_WRITE_TABLE=1 make test-agents"


def test_the_page_is_of_the_versions_that_are_pinned() -> None:
    text, versions = PAGE.read_text(encoding="utf-8"), pinned()
    assert versions.keys() == AGENTS.keys()
    for name, agent in AGENTS.items():
        assert f"| {agent.name} | `{name}` | {versions[name]} |" in text, AGAIN


def test_the_words_around_the_table_are_up_to_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.count("|") == len(AGENTS) + 2]
    seen = [
        Seen(scenario, agent.name, words, line=number)
        for number, row in enumerate(rows[2:])
        for scenario, *cells in [row.strip("| ").split(" | ")]
        for agent, words in zip(AGENTS.values(), cells, strict=True)
    ]
    assert page(seen, pinned()) == text, AGAIN


def test_rows_stand_as_their_tests_do_and_a_cell_without_a_result_is_a_dash() -> None:
    versions = dict.fromkeys(AGENTS, "1.0")
    text = page(
        [Seen("later", "codex", "merged", line=9), Seen("sooner", "claude", "blocked", line=3)], versions
    )
    assert "| sooner | blocked | - | - | - |\n| later | - | merged | - | - |\n" in text
