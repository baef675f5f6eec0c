"""Tasks as issues of the project's GitHub repository, through its command line ``gh``.

An issue with the project's label is a task, and its id is ``gh-<number>``. An issue without it can be needed
by one: it is looked up by itself, and never dispatched. A claim is the label ``flyball:in-progress``. Only
people who may label issues make tasks, but the author of an issue may go on editing it: in a public
repository that is a stranger's text in an agent's prompt.

With a label ``gh issue list`` asks GitHub's search: it knows 1000 issues at most and is some seconds behind.
So open and closed issues are asked for separately, and one issue by its number, which is not behind.

What an issue cannot say by itself is written into its text, in a block that GitHub shows as code:

    ```yaml flyball
    priority: 1
    needs: [12]
    footprint: {write: ["pages/hello*"]}
    ```

or as front matter at the very beginning. A line ``Needs: #12`` or ``Parent: #7`` and a label ``priority:1``
or ``type:bug`` do as well; the block goes before them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from threading import RLock

import msgspec

from flyball.core.suggestions import did_you_mean
from flyball.core.tasks.task import DEFAULT_PRIORITY, DEFAULT_TYPE, Task, TaskStatus
from flyball.errors import SourceError, UsageError
from flyball.factory.git.git import Git
from flyball.factory.tasks.command import Program, ProgramOutput
from flyball.factory.tasks.fields import Fields, parse_moment, parse_priority, title_problem
from flyball.factory.tasks.front_matter import MalformedError, Value, parse, split
from flyball.factory.tasks.port import Closing, LoadedTasks, NewTask, TaskProblem
from flyball.factory.tasks.task_text import entries, normalize_body, without_body, yaml_lines

FIELDS = "number,title,body,state,labels,createdAt,url"
IN_PROGRESS = "flyball:in-progress"
KEYS = ("type", "priority", "needs", "parent", "footprint", "acceptance")
_FENCED = re.compile(r"^```ya?ml[ \t]+flyball[ \t]*\n(.*?)^```[ \t]*$\n?", re.MULTILINE | re.DOTALL)
_KEY = re.compile(r"^[{ ]*([\w-]+)[ \t]*:", re.MULTILINE)
_CODE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_FLAGS = re.MULTILINE | re.IGNORECASE | re.ASCII
_LINE = re.compile(r"^[ \t]*(?:[-*][ \t]+)?(needs|parent)[ \t]*:(.*)$", _FLAGS)
_REFERENCE = re.compile(r"(?:[\w.-]+/[\w.-]+)?#\d+\b|\bgh-\d+\b", re.IGNORECASE | re.ASCII)
_STATUS_LABELS = {
    IN_PROGRESS: TaskStatus.IN_PROGRESS,
    "blocked": TaskStatus.BLOCKED,
    "deferred": TaskStatus.DEFERRED,
}


class Label(msgspec.Struct, frozen=True):
    name: str


class GithubIssue(msgspec.Struct, frozen=True):
    number: int
    title: str
    state: str
    body: str | None = None
    labels: list[Label] | None = None
    createdAt: str | None = None  # noqa: N815 (gh's own name)
    url: str = ""

    @property
    def names(self) -> list[str]:
        """Of its labels."""
        return [label.name for label in self.labels or ()]

    @property
    def closed(self) -> bool:
        return self.state.upper() in ("CLOSED", "MERGED")  # a pull request can be needed, too


def to_task_id(number: int) -> str:
    return f"gh-{number}"


def parse_task_id(task_id: str) -> int | None:
    """
    >>> parse_task_id("gh-12"), parse_task_id("t-12"), parse_task_id("gh-0x1")
    (12, None, None)
    """
    found = re.fullmatch(r"gh-([1-9][0-9]{0,9})", task_id)
    return int(found[1]) if found else None


def parse_issues(out: bytes) -> Iterator[GithubIssue | TaskProblem]:
    """The issues of a list; raises msgspec.DecodeError where there is no list at all."""
    try:
        found = msgspec.json.decode(out, type=list[msgspec.Raw])
    except RecursionError:
        raise msgspec.DecodeError("nested too deeply") from None
    for raw in found:
        try:
            yield msgspec.json.decode(raw, type=GithubIssue)
        except (msgspec.DecodeError, RecursionError) as error:
            yield TaskProblem("gh issue list", f"an issue cannot be read: {error}")


def to_task(issue: GithubIssue, *, label: str) -> Task | TaskProblem:
    """``label`` is what makes an issue a task; one that lacks it is only waited for, and never dispatched.

    Its text may come from a stranger: one that cannot be read, for whatever reason, holds up no other.
    """
    try:
        return _to_task(issue, label)
    except Exception as error:
        words = f"it cannot be read as a task ({type(error).__name__}: {error}); edit or unlabel it"
        return TaskProblem(issue.url, words, to_task_id(issue.number))


def _to_task(issue: GithubIssue, label: str) -> Task | TaskProblem:
    task_id = to_task_id(issue.number)
    title = issue.title.strip() if issue.title.isprintable() else " ".join(issue.title.split())
    try:
        values, body = _split_block(issue.body or "")
    except MalformedError as error:
        return TaskProblem(issue.url, str(error), task_id)
    fields = Fields(values, known=KEYS)
    fields.wrong += [why] if (why := title_problem(title)) else []
    lines = _lines(body)
    parent = reference(fields.text("parent") or "") or next(iter(lines["parent"]), None)
    task = Task(
        id=task_id,
        title=title,
        status=_status(issue),
        type=fields.type() if "type" in values else _label_value(issue, "type:") or DEFAULT_TYPE,
        priority=fields.priority() if "priority" in values else _priority(issue),
        needs=tuple(dict.fromkeys(chain(map(reference, fields.texts("needs")), lines["needs"]))),
        parent=parent,
        parent_claimed=parent is not None,  # by its text, which its author may edit at any time
        labels=_labels(issue, label),
        footprint=fields.footprint(),
        acceptance=fields.acceptance(),
        body=body,
        created=parse_moment(issue.createdAt or ""),
        where=issue.url,
    )
    return TaskProblem(issue.url, fields.words(), task_id) if fields.wrong else task


def reference(written: str) -> str:
    """
    >>> [reference(text) for text in ("12", "#12", "GH-12", "t-1", "")]
    ['gh-12', 'gh-12', 'gh-12', 't-1', '']
    """
    found = re.fullmatch(r"(?:#|gh-)?([0-9]+)", written.strip(), re.IGNORECASE | re.ASCII)
    return to_task_id(int(found[1])) if found else written.strip()


# -- the parts of an issue ------------------------------------------------------------------------


def _split_block(text: str) -> tuple[Mapping[str, Value], str]:
    """What the block says, and the text without it."""
    text = normalize_body(text)
    if found := _FENCED.search(text):
        return parse(found[1]).values, normalize_body(text[: found.start()] + text[found.end() :])
    try:
        parts = split(text)
    except MalformedError:
        return {}, text  # three dashes are a line across the page, too
    if parts is None:
        return {}, text
    front = text[parts.begin : parts.end]
    if not any(did_you_mean(key.casefold(), KEYS) for key in _KEY.findall(front)):
        return {}, text
    return parse(front, first_line=parts.first_line).values, normalize_body(text[parts.rest :])


def _lines(body: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"needs": [], "parent": []}
    for line in _LINE.finditer(_CODE.sub("", body)):
        found[line[1].lower()] += map(reference, _REFERENCE.findall(line[2]))
    return found


def _status(issue: GithubIssue) -> TaskStatus:
    if issue.closed:
        return TaskStatus.CLOSED
    return next((_STATUS_LABELS[name] for name in issue.names if name in _STATUS_LABELS), TaskStatus.OPEN)


def _label_value(issue: GithubIssue, prefix: str) -> str:
    return next((name.removeprefix(prefix).strip() for name in issue.names if name.startswith(prefix)), "")


def _priority(issue: GithubIssue) -> int:
    number = parse_priority(_label_value(issue, "priority:"))
    return DEFAULT_PRIORITY if number is None else number


def _labels(issue: GithubIssue, label: str) -> tuple[str, ...]:
    kept = tuple(name for name in issue.names if name.casefold() not in (label.casefold(), IN_PROGRESS))
    return kept if is_task(issue, label) else (*kept, "no-dispatch")


def is_task(issue: GithubIssue, label: str) -> bool:
    return label.casefold() in [name.casefold() for name in issue.names]


# -- writing --------------------------------------------------------------------------------------


def body_for(new: NewTask) -> str:
    """The text of a new issue."""
    block = yaml_lines(entries(new))
    body = normalize_body(new.body)
    return f"{body}\n\n```yaml flyball\n{block}```\n".lstrip() if block else body


INSTALL = "install it (https://cli.github.com) and run 'gh auth login'"
SEARCH_LIMIT = 1000
_LOOK_UPS = 20
"""Issues without the label that are looked up by themselves, per load."""
_QUIET = {"GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1", "NO_COLOR": "1", "GH_PAGER": "cat"}
_EXIT_AUTH = 4


class GithubSource:
    name = "github"

    def __init__(
        self,
        root: Path,
        label: str = "flyball",
        *,
        command: Sequence[str] = ("gh",),
        timeout_s: float = 120.0,
    ) -> None:
        self._gh = Program(tuple(command), root, INSTALL, _QUIET, timeout_s)
        self._label = label
        self._lock = RLock()
        self._said: tuple[bytes, ...] = ()
        self._loaded = LoadedTasks()
        self._closed: dict[int, GithubIssue] = {}
        """Issues without the label that were closed when a task needed them. They stay so."""

    # -- reading ----------------------------------------------------------------------------------

    def load(self) -> LoadedTasks:
        with self._lock:
            said = tuple(self._list(state) for state in ("open", "closed"))
            issues = [issue for answer in said for issue in self._issues(answer)]
            others, answers = self._look_up(issues)
            if (*said, *answers) != self._said:
                self._loaded = self._parse([*issues, *others])
                self._said = (*said, *answers)
            return self._loaded

    def _list(self, state: str) -> bytes:
        limit = f"--limit={SEARCH_LIMIT}"
        args = ("issue", "list", f"--label={self._label}", f"--state={state}", limit, f"--json={FIELDS}")
        return self._ask(*args).out

    def _issues(self, said: bytes) -> Iterator[GithubIssue | TaskProblem]:
        try:
            found = list(parse_issues(said))
        except msgspec.DecodeError as error:
            raise SourceError(f"gh issue list did not answer with a list of issues: {error}") from error
        yield from found
        if len(found) >= SEARCH_LIMIT and any(
            isinstance(each, GithubIssue) and not each.closed for each in found
        ):
            yield TaskProblem(
                "gh issue list",
                f"more than {SEARCH_LIMIT} open issues have the label {self._label!r}, the oldest are not "
                "seen; take the label off those that are not to be done soon",
            )

    def _parse(self, issues: Sequence[GithubIssue | TaskProblem]) -> LoadedTasks:
        found = [
            each if isinstance(each, TaskProblem) else to_task(each, label=self._label) for each in issues
        ]
        tasks = {task.id: task for task in found if isinstance(task, Task)}
        kept = (without_body(task) if task.status is TaskStatus.CLOSED else task for task in tasks.values())
        return LoadedTasks(tuple(kept), tuple(each for each in found if isinstance(each, TaskProblem)))

    def _look_up(self, issues: Sequence[GithubIssue | TaskProblem]) -> tuple[list[GithubIssue], list[bytes]]:
        """Issues that open tasks refer to and the lists do not have, and what gh said about them."""
        known = {issue.number for issue in issues if isinstance(issue, GithubIssue)}
        wanted: dict[int, None] = {}
        for issue in issues:
            if isinstance(issue, GithubIssue) and not issue.closed:
                wanted.update(dict.fromkeys(n for n in self._references(issue) if n not in known))
        found = [self._closed[number] for number in wanted if number in self._closed]
        answers: list[bytes] = []
        for number in [number for number in wanted if number not in self._closed][:_LOOK_UPS]:
            issue_or_none, said = self._view(number)
            answers.append(said)
            if issue_or_none is not None:
                found.append(issue_or_none)
                if issue_or_none.closed:
                    self._closed[number] = issue_or_none
        return found, answers

    def _references(self, issue: GithubIssue) -> list[int]:
        task = to_task(issue, label=self._label)
        if isinstance(task, TaskProblem):
            return []
        names = (*task.needs, *([task.parent] if task.parent else []))
        return [number for number in map(parse_task_id, names) if number is not None]

    def read(self, task_id: str) -> Task | None:
        number = parse_task_id(task_id)
        issue = self._view(number)[0] if number is not None else None
        if issue is None or not is_task(issue, self._label):
            return None
        found = to_task(issue, label=self._label)
        return found if isinstance(found, Task) else None

    def _view(self, number: int) -> tuple[GithubIssue | None, bytes]:
        """One issue as it is now; None if there is none of this number."""
        answer = self._ask("issue", "view", str(number), f"--json={FIELDS}", fails=True)
        if answer.code != 0:
            if re.search(rb"Could not resolve to an issue|no issue found", answer.err, re.IGNORECASE):
                return None, answer.err
            raise SourceError(f"gh issue view {number} failed: {_words(answer)}")
        try:
            return msgspec.json.decode(answer.out, type=GithubIssue), answer.out
        except (msgspec.DecodeError, RecursionError) as error:
            raise SourceError(f"gh issue view {number} did not answer with an issue: {error}") from error

    def watch_folders(self) -> Sequence[Path]:
        """Nothing: issues are far away."""
        return ()

    def closed_at(self, task_id: str, git: Git, revision: str) -> bool:  # noqa: ARG002 (the port's)
        return False

    # -- adding -----------------------------------------------------------------------------------

    def add(self, new: NewTask) -> Task:
        if why := title_problem(new.title):
            raise UsageError(why)
        if new.id is not None:
            raise UsageError("GitHub numbers its issues by itself; leave the id out")
        labels = [self._label, *new.labels]
        args = ["issue", "create", f"--title={new.title.strip()}", "--body-file=-"]
        args += [f"--label={_quote(name)}" for name in labels]
        made = self._with_labels(labels, *args, stdin=body_for(new))
        found = re.search(r"/issues/(\d+)\s*$", made.out.decode(errors="replace"))
        if found is None:
            raise SourceError(
                f"gh issue create did not say what it made: {made.out[:120].decode(errors='replace')!r}"
            )
        task = self.read(to_task_id(int(found[1])))
        if task is None:
            raise SourceError(
                f"added issue {found[1]}, but it cannot be read as a task; look at {found[0].strip()}"
            )
        return task

    # -- working ----------------------------------------------------------------------------------

    def claim(self, task_id: str) -> None:
        issue = self._require_issue(task_id)
        if issue.closed or IN_PROGRESS in issue.names:
            return
        self._with_labels([IN_PROGRESS], "issue", "edit", str(issue.number), f"--add-label={IN_PROGRESS}")

    def unclaim(self, task_id: str) -> None:
        issue = self._require_issue(task_id)
        if IN_PROGRESS in issue.names:
            self._ask("issue", "edit", str(issue.number), f"--remove-label={IN_PROGRESS}")

    def close_in(self, task_id: str, worktree: Path) -> Closing:  # noqa: ARG002 (the port's)
        """Nothing: the task does not live in the repository."""
        return Closing()

    def close(self, task_id: str, *, commit: str) -> None:
        issue = self._require_issue(task_id)
        if not issue.closed:
            self._ask(
                "issue", "close", str(issue.number), "--reason=completed", f"--comment=Landed as {commit}."
            )
        self.unclaim(task_id)

    def drop(self, task_id: str, *, reason: str = "") -> None:
        issue = self._require_issue(task_id)
        if not issue.closed:
            comment = [f"--comment={reason.strip()}"] if reason.strip() else []
            self._ask("issue", "close", str(issue.number), "--reason=not planned", *comment)
        self.unclaim(task_id)

    def _require_issue(self, task_id: str) -> GithubIssue:
        number = parse_task_id(task_id)
        issue = self._view(number)[0] if number is not None else None
        if issue is None:
            raise SourceError(f"GitHub has no issue for task {task_id!r} any more")
        return issue

    # -- asking gh --------------------------------------------------------------------------------

    def _with_labels(self, labels: Sequence[str], *args: str, stdin: str = "") -> ProgramOutput:
        """Run gh; where it does not know a label, make those that are missing and run it once more."""
        answer = self._ask(*args, stdin=stdin, fails=True)
        if answer.code != 0 and re.search(rb"'.*' not found", answer.err):
            for name in labels:
                # Most are there already, which is an error to gh. A name may begin like an option.
                self._ask("label", "create", "--", name, fails=True)
            return self._ask(*args, stdin=stdin)
        return self._check(answer, args)

    def _ask(self, *args: str, stdin: str = "", fails: bool = False) -> ProgramOutput:
        """Run gh. SourceError if it fails, unless the caller looks into that (``fails``)."""
        answer = self._gh.run(*args, stdin=stdin)
        return answer if fails else self._check(answer, args)

    def _check(self, answer: ProgramOutput, args: Sequence[str]) -> ProgramOutput:
        if answer.code == _EXIT_AUTH:
            raise SourceError("gh is not logged in to GitHub; run 'gh auth login'")
        if answer.code != 0:
            raise SourceError(f"gh {' '.join(args[:2])} failed in {self._gh.folder}: {_words(answer)}")
        return answer


def _quote(label: str) -> str:
    """gh takes a comma for the end of a label."""
    doubled = label.replace('"', '""')
    return f'"{doubled}"' if set(label) & set(',"\n') else label


def _words(answer: ProgramOutput) -> str:
    lines = [line.strip() for line in answer.err.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else f"exit status {answer.code}, and no words"
