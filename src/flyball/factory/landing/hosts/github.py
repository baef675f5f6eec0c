"""Pull requests on GitHub, through its command line ``gh``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from flyball.factory.landing.hosts.port import Pull, PullError, PullState, run_program
from flyball.factory.tasks.command import Program

PROGRAM = "gh"
INSTALL = "install it (https://cli.github.com) and run 'gh auth login'"
FIELDS = "number,url,state,headRefName,headRefOid,reviewDecision,mergeCommit"
_QUIET = {"GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1", "NO_COLOR": "1", "GH_PAGER": "cat"}


class _Commit(msgspec.Struct):
    oid: str = ""


class _PullRequest(msgspec.Struct):
    number: int
    url: str
    state: str
    headRefName: str = ""  # noqa: N815 - theirs
    headRefOid: str = ""  # noqa: N815 - theirs
    reviewDecision: str | None = None  # noqa: N815 - theirs
    mergeCommit: _Commit | None = None  # noqa: N815 - theirs


class GithubPulls:
    name = "GitHub"

    def __init__(self, root: Path, *, timeout_s: float = 120.0) -> None:
        self._gh = Program((PROGRAM,), root, INSTALL, _QUIET, timeout_s)

    def find(self, branch: str) -> Pull | None:
        args = ("pr", "list", f"--head={branch}", "--state=open", f"--json={FIELDS}")
        found = _decode(self._run(*args), list[_PullRequest])
        return next((_pull(each) for each in found if each.headRefName == branch), None)

    def open(self, *, branch: str, base: str, title: str, body: str) -> Pull:
        words = (f"--head={branch}", f"--base={base}", f"--title={title}", "--body-file=-")
        run_program = self._run("pr", "create", *words, stdin=body).decode("utf-8", "replace")
        # The last line is its address.
        number = re.search(r"/pull/(\d+)\s*$", run_program)
        if number is None:
            raise PullError(f"gh pr create did not say which pull request it opened: {run_program.strip()!r}")
        return self.get(int(number[1]))

    def get(self, number: int) -> Pull:
        return _pull(_decode(self._run("pr", "view", str(number), f"--json={FIELDS}"), _PullRequest))

    def _run(self, *args: str, stdin: str = "") -> bytes:
        return run_program(self._gh, args, stdin=stdin, way_out="gh auth status shows your login")


def _pull(answer: _PullRequest) -> Pull:
    merged = answer.mergeCommit
    return Pull(
        number=answer.number,
        url=answer.url,
        state=PullState(answer.state.lower()),
        branch=answer.headRefName,
        head=answer.headRefOid,
        approved=answer.reviewDecision == "APPROVED",
        commit=merged.oid if merged is not None else "",
    )


def _decode(text: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise PullError(f"gh did not answer as expected: {error}") from error
