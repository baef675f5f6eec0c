"""Finished work that goes through a pull request instead of straight into the default branch.

*Opening* one shares all that a landing does up to moving the branch: may it land, fetch, rebase, close the
task, gate. Then ``agent/<task>`` is pushed and a pull request opened, or the one that is open found again,
and the task waits for people; worktree and branch stay. What others pushed to that branch is never
overwritten: only what we pushed ourselves, or nothing, may be replaced.

*Landing* an approved one moves the default branch to just what was approved, here and at origin. The gate saw
that tree when the request was opened; where the default branch has moved since, or commits were added, it
is rebased and the gate runs again.

One that was merged at its host is *settled*: the default branch here follows origin, the task is closed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

from flyball.core.tasks.labels import PR
from flyball.core.tasks.next_step import pull_words
from flyball.core.tasks.task import Task
from flyball.core.tasks.task_run import LandingResult, RunPhase, Step
from flyball.factory.git.repository import BRANCHES
from flyball.factory.landing.batch import TRIES, WAITS, conflict, gate_refusal
from flyball.factory.landing.default_branch import push_words
from flyball.factory.landing.hosts.port import Pull, PullError, PullHost, PullState
from flyball.factory.landing.hosts.registry import NoOriginError
from flyball.factory.landing.landing import Landing, catch_refusal
from flyball.factory.landing.result import Landed, Refused
from flyball.factory.state.blocking_calls import run_in_thread
from flyball.host.off_loop import finish

Say = Callable[[str], None]
_FETCHED = "refs/flyball/pulls/"


@dataclass(slots=True, kw_only=True)
class PullLanding:
    landing: Landing
    host: Callable[[], PullHost]
    """Where pull requests are; PullError if there is no such place."""

    async def open(self, task: Task, folder: Path, say: Say) -> Landed:
        """Push the task's branch and open a pull request for it, or say why not."""
        self.landing.ledger.note(task.id, Step.LAND, RunPhase.BEGUN, way=PR)
        return await _result(f"flyball pr open {task.id}", self._open(task, folder, say))

    async def land(self, task: Task, folder: Path, say: Say, *, unapproved: bool = False) -> Landed:
        """Land the task's pull request, or say why not. ``unapproved``: whatever people said about it."""
        self.landing.ledger.note(task.id, Step.LAND, RunPhase.BEGUN, way=PR)
        landing = self._land(task, folder, say, unapproved=unapproved)
        return await _result(f"flyball land {task.id}", landing)

    # -- opening ----------------------------------------------------------------------------------------

    async def _open(self, task: Task, folder: Path, say: Say) -> Landed:
        recorded = self.landing.ledger.records[task.id].worktree.base
        # A person may have committed in its workspace since its agent ended.
        await run_in_thread(self.landing.workspaces.take_in, task.id)
        tip = await run_in_thread(self.landing.eligibility.landable_tip, task.id, recorded=recorded)
        host = await run_in_thread(self.host)
        async with self.landing.lock(task.id, lambda: say(WAITS)):
            say("")
            base, ours = await run_in_thread(self.landing.branch.fetch_pull_base)
            new = await self._rebase_and_gate(task, tip, base, folder, known=ours)
            left_out = await run_in_thread(self.landing.branch.own_commits, base, ours)
        # What follows concerns this task alone, and may take its time: the lock is released.
        self.landing.ledger.note(task.id, Step.PR, RunPhase.BEGUN, new=new)
        await run_in_thread(self._push, task.id, tip, new)
        pull = await run_in_thread(self._find_or_open, host, task)
        self.landing.ledger.note(task.id, Step.PR, pr_url=pull.url, pr_number=pull.number)
        why = pull_words(self.landing.ledger.records[task.id])
        words = f"origin has not {left_out} of {self.landing.branch.name}; pull requests leave them out"
        return Landed(result=LandingResult.PR_OPENED, why=why, commit=new, notes=(words,) if left_out else ())

    async def _rebase_and_gate(
        self, task: Task, tip: str, base: str, folder: Path, *, known: str, seen: str = ""
    ) -> str:
        """The work on top of ``base``, seen green by the gate."""
        laying = self.landing.rebaser
        clashing, new = await laying.rebase(task, tip, base, known=known, seen=seen)
        if clashing is not None:
            found = conflict(clashing, f"origin/{self.landing.branch.name}")
            raise Refused(found.result, found.why, found.detail)
        red = await laying.prepare(base)
        if red is None:
            red = await laying.worktree.run_gate(self.landing.gate, [task], folder)
        if red is not None:
            found = await gate_refusal(red, self.landing.rebaser.worktree, base)
            raise Refused(found.result, found.why, found.detail)
        return new

    def _push(self, task_id: str, tip: str, new: str) -> None:
        git, ref = self.landing.repository.git, f"refs/heads/{BRANCHES}{task_id}"
        there = git("ls-remote", "origin", ref).partition("\t")[0]
        if there and not self._is_ours(task_id, there, tip):
            words = f"{there[:12]}, which flyball did not push, is on {BRANCHES}{task_id} at origin"
            way_out = f"bring it into the worktree, or git push origin --delete {BRANCHES}{task_id}"
            raise Refused(LandingResult.ERROR, f"{words}; {way_out}, then flyball pr open {task_id}")
        done = git.run("push", "--quiet", f"--force-with-lease={ref}:{there}", "origin", f"{new}:{ref}")
        if not done.ok:
            words = f"could not push {BRANCHES}{task_id} to origin: {push_words(done.err)}"
            raise Refused(
                LandingResult.NO_REMOTE, f"{words}; flyball pr open {task_id} tries again", done.err
            )

    def _is_ours(self, task_id: str, there: str, tip: str) -> bool:
        """Did we push it, or has the branch here all of it?"""
        entries = self.landing.ledger.history(task_id)
        pushed = {str(each.fields.get("new")) for each in entries if each.step in (Step.PR, Step.ADVANCE)}
        repository = self.landing.repository
        return there in pushed or (repository.commit(there) is not None and repository.contains(tip, there))

    def _find_or_open(self, host: PullHost, task: Task) -> Pull:
        branch = f"{BRANCHES}{task.id}"
        found = host.find(branch)
        if found is not None:
            return found
        where = f"\n\n{task.where}" if task.where.startswith("http") else ""
        body = f"{task.body or task.title}\n\nTask: {task.id}{where}\n"
        return host.open(branch=branch, base=self.landing.branch.name, title=task.title, body=body)

    # -- landing ----------------------------------------------------------------------------------------

    async def _land(self, task: Task, folder: Path, say: Say, *, unapproved: bool) -> Landed:
        host, number = await run_in_thread(self.host), self.landing.ledger.records[task.id].pull.number
        if not number:
            raise Refused(
                LandingResult.UNAPPROVED,
                f"there is no pull request of {task.id}; flyball pr open {task.id} opens one",
            )
        pull = await run_in_thread(host.get, number)
        tip = await run_in_thread(self.landing.repository.tip, f"{BRANCHES}{task.id}")
        async with self.landing.lock(task.id, lambda: say(WAITS)):
            say("")
            if pull.state is PullState.MERGED:
                # It was merged elsewhere: follow origin.
                notes = list[str]()
                await run_in_thread(self.landing.branch.follow_origin, task.id, notes, must=True)
                followed = await self.landing.follow(task)
                landed = self.landing.merged_result(pull.commit or pull.head, *notes, followed)
            else:
                may_land(pull, task.id, unapproved=unapproved)
                landed = await self._forward(task, pull, folder)
        landed = await self.landing.finish(task, tip, landed)
        kept = await run_in_thread(self._clean_origin, host, task, number)
        return replace(landed, notes=(*landed.notes, *filter(None, [kept])))

    async def _forward(self, task: Task, pull: Pull, folder: Path) -> Landed:
        seen = self.landing.ledger.records[task.id].landing.new
        head = await run_in_thread(self.fetch_head, task.id)
        if pull.head and head != pull.head:
            words = f"{BRANCHES}{task.id} at origin is not what #{pull.number} was about a moment ago"
            raise Refused(LandingResult.UNAPPROVED, f"{words}; flyball land {task.id} looks again")
        branch = self.landing.branch
        for _ in range(TRIES):
            base, ours = await run_in_thread(branch.fetch_pull_base)
            fork = await run_in_thread(self.landing.repository.own_since, head, known=base)
            await run_in_thread(self.landing.eligibility.check, f"{BRANCHES}{task.id}", fork, head, seen=seen)
            new = head
            if head != seen or not await run_in_thread(self.landing.repository.contains, head, base):
                new = await self._rebase_and_gate(task, head, base, folder, known=ours, seen=seen)
            notes = list[str]()
            if await finish(self._advance(task, notes, head=head, new=new)):
                return self.landing.merged_result(new, *notes, await self.landing.follow(task))
        words = f"{branch.name} moved {TRIES} times while this was being landed; try again"
        raise Refused(LandingResult.ERROR, words)

    async def _advance(self, task: Task, notes: list[str], *, head: str, new: str) -> bool:
        """At origin, which may say no; then here."""
        branch, git = self.landing.branch, self.landing.repository.git
        self.landing.ledger.note(task.id, Step.ADVANCE, RunPhase.BEGUN, new=new)
        if head != new:
            # So that the host sees that this is what was merged.
            ref = f"refs/heads/{BRANCHES}{task.id}"
            await run_in_thread(
                git.run, "push", "--quiet", f"--force-with-lease={ref}:{head}", "origin", f"{new}:{ref}"
            )
        if not await run_in_thread(branch.push_to_origin, new):
            return False
        await run_in_thread(branch.follow_origin, task.id, notes, must=False)
        self.landing.ledger.note(task.id, Step.ADVANCE)
        return True

    def fetch_head(self, task_id: str) -> str:
        """What the pull request is about now, fetched."""
        git, kept = self.landing.repository.git, f"{_FETCHED}{task_id}"
        self.landing.repository.fetch_ref(f"+refs/heads/{BRANCHES}{task_id}:{kept}")
        head = git("rev-parse", kept)
        git("update-ref", "-d", kept)
        return head

    def _clean_origin(self, host: PullHost, task: Task, number: int) -> str:
        """Remove origin's branch once the host knows that it was merged: before, that would close it."""
        git, ref = self.landing.repository.git, f"refs/heads/{BRANCHES}{task.id}"
        by_hand = f"git push origin --delete {BRANCHES}{task.id} removes it"
        try:
            pull = host.get(number)
        except PullError as error:
            return f"origin keeps {BRANCHES}{task.id} ({error}); {by_hand}"
        if pull.state is not PullState.MERGED:
            return f"origin keeps {BRANCHES}{task.id} until {host.name} shows #{number} as merged; {by_hand}"
        git.run("push", "--quiet", f"--force-with-lease={ref}:{pull.head}", "origin", f":{ref}")
        return ""


async def _result(again: str, landing: Awaitable[Landed]) -> Landed:
    try:
        return await catch_refusal(landing)
    except NoOriginError as error:
        return Landed(result=LandingResult.NO_REMOTE, why=f"{error}, then {again}", waits=True)
    except PullError as error:
        return Landed(result=LandingResult.NO_GH, why=f"{error}, then {again}")


def may_land(pull: Pull, task_id: str, *, unapproved: bool) -> None:
    """Refused where people have not said yes."""
    if pull.state is PullState.CLOSED:
        words = f"pull request #{pull.number} was closed: {pull.url}"
        raise Refused(LandingResult.UNAPPROVED, f"{words}; open it again, or flyball pr open {task_id}")
    if not pull.approved and not unapproved:
        words = f"pull request #{pull.number} is not approved: {pull.url}"
        raise Refused(
            LandingResult.UNAPPROVED, f"{words}; flyball land {task_id} --unapproved lands it all the same"
        )
