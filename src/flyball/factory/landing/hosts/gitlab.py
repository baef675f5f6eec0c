"""Merge requests on GitLab, through its command line ``glab``: its ``api`` answers as GitLab does."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from flyball.factory.landing.hosts.port import Pull, PullError, PullState, run_program
from flyball.factory.tasks.command import Program

PROGRAM = "glab"
INSTALL = "install it (https://gitlab.com/gitlab-org/cli) and run 'glab auth login'"
_QUIET = {"NO_PROMPT": "true", "NO_COLOR": "1", "GLAB_CHECK_UPDATE": "false"}
_ALL = "projects/:fullpath/merge_requests"
_STATES = {"opened": PullState.OPEN, "locked": PullState.OPEN, "merged": PullState.MERGED}


class _MergeRequest(msgspec.Struct):
    iid: int
    web_url: str
    state: str
    source_branch: str = ""
    sha: str | None = None
    merge_commit_sha: str | None = None
    squash_commit_sha: str | None = None


class _Approvals(msgspec.Struct):
    approved: bool = False
    approved_by: list[Any] = []


class GitlabPulls:
    name = "GitLab"

    def __init__(self, root: Path, *, timeout_s: float = 120.0) -> None:
        self._glab = Program((PROGRAM,), root, INSTALL, _QUIET, timeout_s)

    def find(self, branch: str) -> Pull | None:
        found = self._call_api(
            f"{_ALL}?state=opened&source_branch={quote(branch, safe='')}", kind=list[_MergeRequest]
        )
        return next((self._pull(each) for each in found if each.source_branch == branch), None)

    def open(self, *, branch: str, base: str, title: str, body: str) -> Pull:
        fields = {"source_branch": branch, "target_branch": base, "title": title, "description": body}
        words = [word for key, value in fields.items() for word in ("--raw-field", f"{key}={value}")]
        return self._pull(self._call_api("--method=POST", _ALL, *words, kind=_MergeRequest))

    def get(self, number: int) -> Pull:
        return self._pull(self._call_api(f"{_ALL}/{number}", kind=_MergeRequest))

    def _pull(self, answer: _MergeRequest) -> Pull:
        return Pull(
            number=answer.iid,
            url=answer.web_url,
            state=_STATES.get(answer.state, PullState.CLOSED),
            branch=answer.source_branch,
            head=answer.sha or "",
            approved=answer.state == "opened" and self._is_approved(answer.iid),
            commit=answer.squash_commit_sha or answer.merge_commit_sha or answer.sha or "",
        )

    def _is_approved(self, number: int) -> bool:
        """Has a person approved it? Where no approval is required, GitLab calls everything approved."""
        found: _Approvals = self._call_api(f"{_ALL}/{number}/approvals", kind=_Approvals)
        return found.approved and bool(found.approved_by)

    def _call_api(self, *args: str, kind: Any) -> Any:
        text = run_program(self._glab, ("api", *args), way_out="glab auth status shows your login")
        try:
            return msgspec.json.decode(text, type=kind)
        except (msgspec.DecodeError, RecursionError) as error:
            raise PullError(f"glab did not answer as expected: {error}") from error
