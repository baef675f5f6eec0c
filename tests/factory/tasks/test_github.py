"""GitHub: what an issue means, and what happens when gh does not answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flyball.core.tasks.footprint import Footprint
from flyball.core.tasks.task import Task, TaskStatus
from flyball.errors import SourceError, UsageError
from flyball.factory.tasks.github import FIELDS, SEARCH_LIMIT, GithubSource
from flyball.factory.tasks.port import NewTask
from tests.factory.tasks.beads_kit import Call, scripted

RECORDINGS = Path(__file__).parent / "recordings" / "github"
MISSING = "GraphQL: Could not resolve to an issue or pull request with the number of 9. (repository.issue)\n"
NONE = Call("[]")


def issue(number: int = 1, *labels: str, **fields: Any) -> dict[str, Any]:
    return {
        "number": number,
        "title": "T",
        "state": "OPEN",
        "body": "",
        "labels": [{"name": name} for name in ("flyball", *labels)],
        "createdAt": "2026-11-01T10:00:00Z",
        "url": f"https://github.com/ada/blog/issues/{number}",
        **fields,
    }


def listed(*issues: dict[str, Any]) -> Call:
    return Call(json.dumps(list(issues)))


def viewed(each: dict[str, Any]) -> Call:
    return Call(json.dumps(each))


@pytest.fixture
def answering(tmp_path: Path) -> Any:
    """A source whose gh gives these answers in turn."""
    return lambda *calls: GithubSource(tmp_path, command=scripted(tmp_path, *calls))


def only(source: GithubSource) -> Task:
    [task] = source.load().tasks
    return task


# -- what an issue means --------------------------------------------------------------------------


def test_a_repository_is_read(answering: Any) -> None:
    def ask(state: str) -> list[str]:
        return ["issue", "list", "--label=flyball", f"--state={state}", "--limit=1000", f"--json={FIELDS}"]

    source = answering(
        Call((RECORDINGS / "open.json").read_text(), argv=ask("open")),
        Call((RECORDINGS / "closed.json").read_text(), argv=ask("closed")),
        Call(err=MISSING, code=1, argv=["issue", "view", "9", f"--json={FIELDS}"]),
        viewed(issue(7, title="All of it", labels=[])),
    )
    loaded = source.load()
    assert not loaded.problems
    first, second, closed, parent = loaded.tasks
    assert first == Task(
        id="gh-15",
        title="Add the hello page",
        type="bug",
        priority=0,
        needs=("gh-9", "gh-12", "gh-14"),
        parent="gh-7",
        parent_claimed=True,
        labels=("quick",),
        footprint=Footprint(write=("pages/hello*",), read=("lib/**",)),
        acceptance="- it says hello",
        body="Say hello.\n\nNeeds: #12, #14\nParent: #7",
        created=1793527200.0,
        where="https://github.com/ada/blog/issues/15",
    )
    assert (second.id, second.status, second.priority) == ("gh-14", TaskStatus.IN_PROGRESS, 1)
    assert (second.type, second.labels) == ("chore", ("priority:1", "type:chore"))
    assert (closed.id, closed.status, closed.body) == ("gh-12", TaskStatus.CLOSED, "")
    assert (parent.id, parent.labels) == ("gh-7", ("no-dispatch",))


@pytest.mark.parametrize(
    ("body", "needs"),
    [
        ("Needs: #2", ("gh-2",)),
        ("needs: #2 and #3", ("gh-2", "gh-3")),
        ("- Needs: gh-2", ("gh-2",)),
        ("it needs: #2", ()),
        ("Needs: more coffee", ()),
        ("Needs: ada/other#2, #3", ("ada/other#2", "gh-3")),
        ("```\nNeeds: #2\n```", ()),
        ("```yaml flyball\nneeds: [2, '#3', GH-4]\n```", ("gh-2", "gh-3", "gh-4")),
        ("```yml flyball\nneeds: 2\n```\nNeeds: #2, #3", ("gh-2", "gh-3")),
        ("---\nneeds: [2]\n---\nNeeds: #3", ("gh-2", "gh-3")),
    ],
)
def test_needs_are_found_in_the_block_and_in_lines(answering: Any, body: str, needs: tuple[str, ...]) -> None:
    source = answering(listed(issue(body=body)), NONE, *[Call(err=MISSING, code=1)] * 5)
    assert only(source).needs == needs


@pytest.mark.parametrize(
    ("labels", "priority"),
    [(["priority:0"], 0), (["priority:P1"], 1), (["priority:high"], 2), ([], 2), (["P0"], 2)],
)
def test_a_label_may_say_the_priority(answering: Any, labels: list[str], priority: int) -> None:
    assert only(answering(listed(issue(1, *labels)), NONE)).priority == priority


@pytest.mark.parametrize(
    ("labels", "state", "status"),
    [
        ([], "OPEN", TaskStatus.OPEN),
        (["flyball:in-progress"], "OPEN", TaskStatus.IN_PROGRESS),
        (["blocked"], "OPEN", TaskStatus.BLOCKED),
        (["deferred"], "OPEN", TaskStatus.DEFERRED),
        (["flyball:in-progress"], "CLOSED", TaskStatus.CLOSED),
    ],
)
def test_the_status_is_its_state_and_its_labels(
    answering: Any, labels: list[str], state: str, status: TaskStatus
) -> None:
    assert only(answering(listed(issue(1, *labels, state=state)), NONE)).status is status


@pytest.mark.parametrize(
    "body",
    [
        "---\n\nA line across the page\n\n---\nand another",
        "---\nnever ends",
        "---\nNote: this is prose\n---\n",
        "```yaml\nneeds: [1]\n```",
        "```yaml flyball\nnever ends",
    ],
)
def test_text_that_only_looks_like_front_matter_is_text(answering: Any, body: str) -> None:
    assert only(answering(listed(issue(body=body)), NONE)).body == body.strip()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"body": "```yaml flyball\nneed: [1]\n```"}, "'need' is not a key of a task; did you mean 'needs'?"),
        ({"body": "```yaml flyball\nid: x\n```"}, "'id' is not a key of a task"),
        ({"body": "```yaml flyball\nneeds: [*a]\n```"}, "must be quoted"),
        ({"body": "```yaml flyball\n- a\n```"}, "not a list of keys and values"),
        ({"body": "---\nneed: [1]\n---\n"}, "did you mean 'needs'?"),
        ({"body": "---\nneeds: [1\n---\n"}, "line"),
        ({"body": "```yaml flyball\npriority: high\n```"}, "the priority 'high'"),
        ({"title": " "}, "there is no title"),
    ],
)
def test_an_issue_that_cannot_be_used_is_a_problem_with_its_address(
    answering: Any, fields: dict[str, Any], words: str
) -> None:
    loaded = answering(listed(issue(1, **fields), issue(2)), NONE).load()
    assert [task.id for task in loaded.tasks] == ["gh-2"]
    [problem] = loaded.problems
    assert (problem.where, problem.task) == ("https://github.com/ada/blog/issues/1", "gh-1")
    assert words in problem.words


def test_an_issue_that_gh_garbles_is_a_problem_beside_the_others(answering: Any) -> None:
    loaded = answering(Call(json.dumps([{"number": "x"}, issue(2)])), NONE).load()
    assert [task.id for task in loaded.tasks] == ["gh-2"]
    assert "an issue cannot be read" in loaded.problems[0].words


def test_the_same_answers_are_not_parsed_twice(answering: Any) -> None:
    source = answering(*[listed(issue()), NONE] * 2, listed(issue(title="New")), NONE)
    first = source.load()
    assert source.load() is first
    assert only(source).title == "New"


# -- issues that are only waited for --------------------------------------------------------------


def test_an_unlabelled_issue_that_is_needed_is_looked_up_until_it_is_closed(answering: Any) -> None:
    lists = [listed(issue(body="Needs: #9")), NONE]
    other = issue(9, labels=[])
    source = answering(*lists, viewed(other), *lists, viewed({**other, "state": "CLOSED"}), *lists)
    for status in (TaskStatus.OPEN, TaskStatus.CLOSED, TaskStatus.CLOSED):
        _, needed = source.load().tasks
        assert (needed.id, needed.status) == ("gh-9", status)


def test_a_merged_pull_request_counts_as_closed(answering: Any) -> None:
    pull = issue(9, labels=[], state="MERGED")
    _, needed = answering(listed(issue(body="Needs: #9")), NONE, viewed(pull)).load().tasks
    assert needed.status is TaskStatus.CLOSED


def test_only_so_many_are_looked_up_at_a_time(answering: Any) -> None:
    body = "Needs: " + ", ".join(f"#{n}" for n in range(100, 150))
    source = answering(
        listed(issue(body=body)), NONE, *[viewed(issue(n, labels=[])) for n in range(100, 120)]
    )
    assert len(source.load().tasks) == 21


def test_more_issues_than_the_search_knows_are_said(answering: Any) -> None:
    many = [issue(n) for n in range(1, SEARCH_LIMIT + 1)]
    [problem] = answering(listed(*many), NONE).load().problems
    assert "more than 1000 open issues" in problem.words
    old = [issue(n, state="CLOSED") for n in range(1, SEARCH_LIMIT + 1)]
    assert not answering(NONE, listed(*old)).load().problems


# -- when gh fails --------------------------------------------------------------------------------


def test_a_missing_gh_is_said_with_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(
        SourceError, match=r"no-such-gh was not found; install it \(https://cli\.github\.com\)"
    ):
        GithubSource(tmp_path, command=["no-such-gh"]).load()


def test_a_gh_that_does_not_come_back_is_ended(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"took longer than 0\.2 s"):
        GithubSource(tmp_path, command=["sh", "-c", "sleep 60"], timeout_s=0.2).load()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Call(err="To get started with GitHub CLI, please run:  gh auth login\n", code=4), "gh auth login"),
        (Call(err="no git remotes found\n", code=1), "gh issue list failed in .*: no git remotes found"),
        (Call(err="x\nHTTP 403: API rate limit exceeded\n", code=1), ": HTTP 403: API rate limit exceeded"),
        (Call(code=2), "exit status 2, and no words"),
        (Call(""), "did not answer with a list"),
        (Call("{}"), "did not answer with a list"),
        (Call("[" * 5000), "did not answer with a list"),
    ],
)
def test_an_answer_that_is_none_is_an_error_in_words(answering: Any, answer: Call, words: str) -> None:
    with pytest.raises(SourceError, match=words):
        answering(answer, NONE).load()


@pytest.mark.parametrize("answer", [Call("{}"), Call(err="HTTP 502\n", code=1)])
def test_an_issue_that_cannot_be_asked_for_is_an_error(answering: Any, answer: Call) -> None:
    with pytest.raises(SourceError, match="gh issue view 1"):
        answering(answer).read("gh-1")


# -- changing -------------------------------------------------------------------------------------


def test_what_is_not_labelled_or_not_of_github_cannot_be_read(answering: Any) -> None:
    assert answering(viewed(issue(1, labels=[]))).read("gh-1") is None
    assert answering().read("t-1") is None


def test_a_label_that_the_repository_lacks_is_made_once(answering: Any) -> None:
    argv = ["issue", "edit", "1", "--add-label=flyball:in-progress"]
    answering(
        viewed(issue()),
        Call(err="'flyball:in-progress' not found\n", code=1, argv=argv),
        Call(argv=["label", "create", "--", "flyball:in-progress"]),
        Call(argv=argv),
    ).claim("gh-1")


def test_a_label_that_cannot_be_made_is_an_error(answering: Any) -> None:
    lacking = Call(err="could not add label: 'flyball' not found\n", code=1)
    with pytest.raises(SourceError, match="could not add label: 'flyball' not found"):
        answering(lacking, Call(err="HTTP 403\n", code=1), lacking).add(NewTask(title="T"))


def test_closing_leaves_the_commit_and_takes_the_claim_away(answering: Any) -> None:
    claimed = issue(1, "flyball:in-progress")
    answering(
        viewed(claimed),
        Call(argv=["issue", "close", "1", "--reason=completed", "--comment=Landed as abc."]),
        viewed({**claimed, "state": "CLOSED"}),
        Call(argv=["issue", "edit", "1", "--remove-label=flyball:in-progress"]),
    ).close("gh-1", commit="abc")


@pytest.mark.parametrize("act", ["claim", "unclaim", "close"])
def test_a_task_that_is_gone_is_an_error(answering: Any, act: str) -> None:
    words = {"commit": "abc"} if act == "close" else {}
    with pytest.raises(SourceError, match="GitHub has no issue for task 'gh-9' any more"):
        getattr(answering(Call(err=MISSING, code=1)), act)("gh-9", **words)


def test_an_id_cannot_be_chosen(answering: Any) -> None:
    with pytest.raises(UsageError, match="GitHub numbers its issues by itself"):
        answering().add(NewTask(title="T", id="x"))


def test_a_label_with_a_comma_stays_one_label(answering: Any) -> None:
    argv = ["issue", "create", "--title=T", "--body-file=-", "--label=flyball", '--label="a,b"']
    made = Call("https://github.com/ada/blog/issues/3\n", argv=argv)
    assert answering(made, viewed(issue(3, "a,b"))).add(NewTask(title="T", labels=["a,b"])).labels == ("a,b",)


def test_a_create_that_does_not_say_what_it_made_is_an_error(answering: Any) -> None:
    with pytest.raises(SourceError, match="gh issue create did not say what it made: 'ok'"):
        answering(Call("ok")).add(NewTask(title="T"))
