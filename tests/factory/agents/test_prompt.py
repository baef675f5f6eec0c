"""What agents are told: the lasting part byte for byte the same, the news last."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flyball import __version__
from flyball.core.tasks.task import Task
from flyball.factory.agents.prompt import (
    News,
    ProjectTerms,
    compile_news,
    compile_prompt,
    preamble,
    project_block,
    task_block,
)
from tests.factory.kit import Project

TERMS = ProjectTerms(id="blog", default_branch="main", gate=["make test"], protected=["secrets/"])
TEXT = st.text(max_size=40)
TASKS = st.builds(Task, id=st.just("t-1"), title=TEXT, body=TEXT, acceptance=TEXT)
NEWS = st.builds(News, attempt=st.integers(1, 9), why_back=TEXT, nudges=st.lists(TEXT, max_size=2))


@given(TASKS, NEWS)
def test_every_prompt_of_a_project_begins_byte_for_byte_alike(task: Task, news: News) -> None:
    prefix = f"{preamble()}\n{project_block(TERMS)}\n".encode()
    assert compile_prompt(TERMS, task, news).encode().startswith(prefix)


def test_the_preamble_names_the_version() -> None:
    assert __version__ in preamble()


def test_prompts_of_real_agents_share_their_beginning_across_tasks_and_attempts(project: Project) -> None:
    names = project.tasks(3)
    project.act("t-1", "sys.exit(3)", launch=1)
    project.act("t-2", "write('pages/t-2.txt', 'bad')", launch=1)
    assert project.run().code == 0
    prompts = [prompt.encode() for name in names for prompt in project.prompts(name)]
    assert len(prompts) == 5
    before = {prompt[: prompt.index(b"# Task ")] for prompt in prompts}
    assert len(before) == 1
    assert before.pop().startswith(preamble().encode())


def test_a_second_run_tells_the_same_beginning(project: Project) -> None:
    project.task("t-1")
    assert project.run().code == 0
    project.task("t-2")
    assert project.run().code == 0
    first, second = project.prompts("t-1")[0], project.prompts("t-2")[0]
    assert first[: first.index("# Task ")] == second[: second.index("# Task ")]


def test_the_prompt_reaches_the_agent_by_stdin_and_by_file(project: Project) -> None:
    project.task(
        "t-1",
        body="What to do, in words: \u00e4.",
        act="assert Path(os.environ['FLYBALL_PROMPT_FILE']).read_text(encoding='utf-8') == prompt\n"
        "assert 'What to do, in words: \u00e4.' in prompt\nwrite('pages/t-1.txt', 'x')",
    )
    project.env["PYTHONUTF8"] = "1"
    project.sections["agent"]["command"][1:3] = ["-X", "utf8"]
    project.configure()
    ran = project.run()
    assert ran.code == 0, ran.said


def test_the_gate_and_what_is_protected_are_told() -> None:
    text = project_block(TERMS)
    assert "    make test\n" in text
    assert "secrets/" in text
    assert "(none)" in project_block(ProjectTerms(id="x", default_branch="main", gate=[], protected=[]))


def test_words_of_the_project_itself_come_before_the_task() -> None:
    terms = ProjectTerms(id="x", default_branch="main", gate=[], protected=[], text="Use tabs.")
    prompt = compile_prompt(terms, Task(id="t-1", title="Do it"), News())
    assert prompt.index("Use tabs.") < prompt.index("# Task t-1: Do it")


def test_what_happened_before_and_messages_come_last() -> None:
    news = News(attempt=2, why_back="The gate was red: line 3", nudges=["Look at line 4."])
    text = task_block(Task(id="t-1", title="Do it", body="In words.", acceptance="It works."), news)
    parts = ["In words.", "It works.", "Attempt 2", "line 3", "Look at line 4."]
    assert sorted(parts, key=text.index) == parts


def test_an_agent_that_goes_on_is_told_the_news_alone() -> None:
    task = Task(id="t-1", title="Do it", body="In words.")
    assert compile_news(task, News(attempt=2, why_back="red")).startswith("## Attempt 2")
    assert "In words." not in compile_news(task, News(attempt=2, why_back="red"))
    assert compile_news(task, News()) == "Go on with task t-1 where you stopped.\n"
