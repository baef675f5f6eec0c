"""A second agent looks at finished work before it lands, and says of every criterion whether it is met.

The reviewer is an agent of its own, in a worktree of its own that it cannot spoil
(``factory/git/workspace.py``). It writes its answer to a file named by ``FLYBALL_REVIEW_FILE``; where
it wrote none, its last message is read. An answer that cannot be understood is asked for once more, with what
was wrong. Then the work is *unreviewed*: it waits for a person and never lands by itself.

A review is about one commit, which is in the ledger with what it came to. Work lands by itself only while its
branch stands at the very commit that passed. The landing may rebase it: that is the same patch, and the gate
sees it on its new base.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path

from flyball.core.signals import End
from flyball.core.tasks.model_routing import REVIEW
from flyball.core.tasks.next_step import Decision, after_review, is_keyless
from flyball.core.tasks.review_report import (
    TEXT_LIMIT,
    CriterionAnswer,
    ParsedReview,
    Review,
    ReviewFinding,
    parse_criteria,
    parse_review,
)
from flyball.core.tasks.task import Task
from flyball.core.tasks.task_run import Cause, RunPhase, State, Step, TaskRecord
from flyball.errors import AgentError, GitError, UsageError
from flyball.factory.agents.personas import find_persona
from flyball.factory.agents.prompt import ReviewAsk, compile_review
from flyball.factory.git.repository import BRANCHES, Repository
from flyball.factory.git.workspace import ReviewWorkspace
from flyball.factory.run.agent_run import AgentJob, AgentRuns, Completed, Instructions, Purpose
from flyball.factory.run.context import ProjectState
from flyball.factory.run.policy import RunPolicy
from flyball.factory.state.blocking_calls import run_in_thread
from flyball.governor.launch.supervised_child import refusal

FILE_VARIABLE = "FLYBALL_REVIEW_FILE"
KEPT = "review.json"
"""Its answer, in the run folder of the reviewer."""
_TRIES = 2


@dataclass(slots=True, kw_only=True)
class Reviewing:
    """The review of one task run's work."""

    policy: RunPolicy
    project: ProjectState
    task: Task
    agents: AgentRuns
    notes: list[str] = field(default_factory=list)
    """What a person may want to know of it."""

    @property
    def record(self) -> TaskRecord:
        return self.project.ledger.records[self.task.id]

    async def review(self) -> Decision:
        """Have the branch reviewed as it stands now, unless this very commit has passed; what is next."""
        self.agents.waits.show(None, stage=REVIEW)
        tip = await self._tip()
        if tip is None:
            return self._next(passed=None, why=f"the branch {BRANCHES}{self.task.id} is gone")
        if self.record.checks.passed and self.record.checks.reviewed == tip:
            return self._next(passed=True)
        found = self._earlier_block(tip) or await self._review_anew(tip)
        if isinstance(found, str):
            return self._next(passed=None, why=found)
        return self._next(passed=found.passed, why=found.why(), objections=found.objections())

    async def _review_anew(self, tip: str) -> Review | str:
        """Another review, or why there is none."""
        self.project.ledger.note(self.task.id, Step.REVIEW, RunPhase.BEGUN, reviewed=tip)
        found = await self._ask_for_review(tip)
        if isinstance(found, str):
            return found
        if await self._tip() != tip:
            return f"{BRANCHES}{self.task.id} moved while {tip[:12]} was reviewed"
        self.project.ledger.note(
            self.task.id,
            Step.REVIEW,
            reviewed=tip,
            passed=found.passed,
            findings=[asdict(each) for each in found.findings],
            criteria=[asdict(each) for each in found.criteria],
        )
        if found.notes:
            more = f" and {len(found.notes) - 1} more" if len(found.notes) > 1 else ""
            self.notes.append(f"{self.task.id}: its review noted {found.notes[0].words}{more}")
        return found

    async def review_pull(self, head: str) -> Review | str:
        """Of a pull request, whatever the task run's own review came to; or why there is none."""
        self.agents.waits.show(None, stage=REVIEW)
        found = await self._ask_for_review(head)
        if isinstance(found, Review):
            self.project.ledger.note(
                self.task.id,
                Step.REVIEW,
                head=head,
                pull_passed=found.passed,
                findings=[asdict(each) for each in found.findings],
                criteria=[asdict(each) for each in found.criteria],
            )
        return found

    def _earlier_block(self, tip: str) -> Review | None:
        """What the ledger has of a review that blocked this commit, before anything was done about it."""
        record = self.record
        if (
            record.state is not State.CHECKING
            or record.checks.passed is not False
            or record.checks.reviewed != tip
        ):
            return None
        entries = self.project.ledger.history(self.task.id)
        last = next(
            each for each in reversed(entries) if each.step is Step.REVIEW and each.mark is RunPhase.DONE
        )
        return Review(
            passed=False,
            criteria=tuple(CriterionAnswer(**each) for each in last.fields["criteria"]),
            findings=tuple(ReviewFinding(**each) for each in last.fields["findings"]),
        )

    def _next(self, *, passed: bool | None, why: str = "", objections: tuple[str, ...] = ()) -> Decision:
        budgets = self.policy.budgets_for(self.task)
        return after_review(self.record, budgets, passed=passed, why=why, objections=objections)

    # -- asking -----------------------------------------------------------------------------------------

    async def _ask_for_review(self, tip: str) -> Review | str:
        """A review, or why there is none."""
        wrong = ""
        for _ in range(_TRIES):
            try:
                ran, reading = await self._ask(tip, wrong)
            except (UsageError, GitError, AgentError) as error:
                return str(error)
            if reading.review is not None:
                return reading.review
            wrong = "; ".join(reading.problems)
            if _is_hopeless(ran):
                break
        return wrong

    async def _ask(self, tip: str, wrong: str) -> tuple[Completed, ParsedReview]:
        place = ReviewWorkspace(self.project.workspaces, self.task.id)
        criteria, part = parse_criteria(self.task.acceptance), self.policy.config.review
        base = self.record.worktree.base or self.project.repository.default
        try:
            worktree = await run_in_thread(lambda: place.make(base=base, commit=tip))
            persona = find_persona(self.project.root, part.persona)
            ask = ReviewAsk(
                base=base,
                tip=tip,
                criteria=criteria,
                file=str(worktree.answer),
                diff=worktree.diff.name,
                variable=FILE_VARIABLE,
                before=self.record.lesson.words if self.record.lesson.cause is Cause.REVIEW else "",
                wrong=wrong,
            )
            instructions = Instructions(
                prompt=compile_review(self.project.terms, self.task, persona=persona.text, ask=ask),
                tree=place.path,
                effort=persona.effort,
                variables={FILE_VARIABLE: str(worktree.answer)},
            )
            job = AgentJob(
                purpose=Purpose.REVIEW,
                stage=REVIEW,
                route=self.policy.route_for(self.task, REVIEW),
                max_s=part.max_s,
                max_s_key="review.max_s",
            )
            ran = await self.agents.run_to_end(job, lambda: instructions)
            return ran, await run_in_thread(_parse_answer, ran, worktree.answer, criteria)
        finally:
            await run_in_thread(place.remove)

    async def _tip(self) -> str | None:
        return await run_in_thread(self.project.repository.tip, f"{BRANCHES}{self.task.id}")


def why_unreviewed(repository: Repository, record: TaskRecord) -> str:
    """Why a task run's work may not land by itself, in words; empty if its branch stands where it passed."""
    tip = repository.tip(f"{BRANCHES}{record.task}")
    if record.checks.passed and tip == record.checks.reviewed:
        return ""
    moved = record.checks.passed and record.checks.reviewed
    why = (
        f"its branch has moved on since {record.checks.reviewed[:12]} passed"
        if moved
        else "no review passed it"
    )
    return f"unreviewed: {why}; flyball merge {record.task} lands it all the same"


def _is_hopeless(ran: Completed) -> bool:
    """Asking again cannot help."""
    ending = ran.ending
    return ending.end is End.LIMITED or is_keyless(ending.signal) or bool(refusal(ran.folder))


def _parse_answer(ran: Completed, file: Path, criteria: tuple[str, ...]) -> ParsedReview:
    """What it answered, if it got to its end."""
    if refused := refusal(ran.folder):
        return ParsedReview(None, (f"{refused}; see agent.command in flyball.toml",))
    if not ran.finished:
        return ParsedReview(
            None, (f"the reviewer did not finish: {ran.ending.reason or ran.ending.end.value}",)
        )
    text = _answer_text(file)
    if text:
        (ran.folder / KEPT).write_text(text + "\n", encoding="utf-8")
    elif not ran.ending.last_words.strip():
        return ParsedReview(None, (f"the reviewer left nothing in ${FILE_VARIABLE}",))
    return parse_review(text or ran.ending.last_words, criteria)


def _answer_text(file: Path) -> str:
    """What it wrote, if that is a plain file."""
    try:
        if file.is_symlink() or not file.is_file():
            return ""
        with open(file, "rb") as opened:
            return opened.read(4 * TEXT_LIMIT).decode("utf-8-sig", "replace").strip()
    except OSError:
        return ""
