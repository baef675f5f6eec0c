"""``gh`` and ``glab`` as far as flyball asks them: programs on PATH whose pull requests are a JSON file.

They answer in the form that the real ones do, know nothing but the branches of a real bare origin, and show a
pull request as merged when its commit is in the default branch, as their hosts do.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.factory.kit import Project

_PROGRAM = """#!{python}
import fcntl, json, os, re, subprocess, sys, urllib.parse
STATE, ORIGIN = {state!r}, {origin!r}
LOCK = open(STATE + ".lock", "w")
fcntl.flock(LOCK, fcntl.LOCK_EX)  # two may open one at the same time

def git(*words):
    done = subprocess.run(["git", "--git-dir", ORIGIN, *words], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""

def load():
    with open(STATE) as file:
        return json.load(file)

def seen(pull):
    head = git("rev-parse", "--verify", "-q", "refs/heads/" + pull["branch"]) or pull["head"]
    inside = pull["state"] == "open" and subprocess.run(
        ["git", "--git-dir", ORIGIN, "merge-base", "--is-ancestor", head, "main"]
    ).returncode == 0
    return dict(pull, head=head, state="merged" if inside else pull["state"])

def create(branch, base, title, body):
    state = load()
    if not git("rev-parse", "--verify", "-q", "refs/heads/" + branch):
        sys.exit("no such branch: " + branch)
    if any(seen(each)["state"] == "open" and each["branch"] == branch for each in state["pulls"]):
        sys.exit("a pull request for this branch already exists")
    taken = [each["number"] for each in state["pulls"]]
    number = int(re.search(r"\\d+$", branch)[0])
    number = number if number >= 12 and number not in taken else max([11, *taken]) + 1
    pull = dict(number=number, branch=branch, base=base, title=title, body=body, state="open",
                approved=False, head="")
    state["pulls"].append(pull)
    with open(STATE, "w") as file:
        json.dump(state, file)
    return seen(pull)

def one(number):
    return next((seen(each) for each in load()["pulls"] if each["number"] == int(number)), None)

def flag(name):
    return next((word.partition("=")[2] for word in sys.argv if word.startswith(name + "=")), "")

with open(STATE + ".calls", "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
if os.path.exists(STATE + ".fails"):
    sys.exit("HTTP 401: Bad credentials")
"""
_GH = """
def shown(pull):
    return dict(number=pull["number"], url="https://github.example/blog/pull/%d" % pull["number"],
        state=pull["state"].upper(), headRefName=pull["branch"], headRefOid=pull["head"],
        reviewDecision="APPROVED" if pull["approved"] else "REVIEW_REQUIRED",
        mergeCommit={"oid": pull["head"]} if pull["state"] == "merged" else None)

if sys.argv[1:3] == ["pr", "list"]:
    print(json.dumps([shown(p) for p in map(seen, load()["pulls"])
        if p["branch"] == flag("--head") and p["state"] == "open"]))
elif sys.argv[1:3] == ["pr", "create"]:
    print("\\n" + shown(create(flag("--head"), flag("--base"), flag("--title"), sys.stdin.read()))["url"])
elif sys.argv[1:3] == ["pr", "view"]:
    found = one(sys.argv[3])
    print(json.dumps(shown(found))) if found else sys.exit("no pull requests found")
else:
    sys.exit("unknown command")
"""
_GLAB = """
def shown(pull):
    return dict(iid=pull["number"], web_url="https://gitlab.example/-/merge_requests/%d" % pull["number"],
        state={"open": "opened"}.get(pull["state"], pull["state"]), source_branch=pull["branch"],
        sha=pull["head"], merge_commit_sha=None, squash_commit_sha=None, title=pull["title"])

where = next(word for word in sys.argv[2:] if not word.startswith("-"))
path, _, query = where.partition("?")
asked = dict(urllib.parse.parse_qsl(query))
number = re.search(r"merge_requests/(\\d+)", path)
if "--method=POST" in sys.argv:
    given = dict(sys.argv[at + 1].split("=", 1) for at, word in enumerate(sys.argv) if word == "--raw-field")
    print(json.dumps(shown(create(given["source_branch"], given["target_branch"], given["title"],
        given["description"]))))
elif path.endswith("/approvals"):
    by = [{"user": {"username": "somebody"}}] if one(number[1])["approved"] else []
    print(json.dumps({"approved": True, "approved_by": by}))
elif number:
    print(json.dumps(shown(one(number[1]))))
else:
    print(json.dumps([shown(p) for p in map(seen, load()["pulls"])
        if p["branch"] == asked["source_branch"] and p["state"] == "open"]))
"""


class Host:
    """A host of pull requests for a project, with its command line."""

    def __init__(self, project: Project, *, kind: str = "github") -> None:
        self.origin = project.with_origin()
        self._state = project.place / "pulls.json"
        self._save([])
        folder = project.place / "bin"
        folder.mkdir()
        name, rest = ("gh", _GH) if kind == "github" else ("glab", _GLAB)
        self.program = folder / name
        text = _PROGRAM.replace("{python}", f"{sys.executable} -IS")
        text = text.replace("{state!r}", repr(str(self._state))).replace("{origin!r}", repr(str(self.origin)))
        self.program.write_text(text + rest)
        self.program.chmod(0o755)
        project.env["PATH"] = f"{folder}{os.pathsep}{project.env['PATH']}"
        project.configure(merge={"host": kind, "policy": "pr"})
        project.commit("pull requests")
        project.git("push", "-q", "origin", "main")

    @property
    def pulls(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self._state.read_text())["pulls"]
        return found

    def change(self, number: int, **fields: object) -> None:
        self._save([{**each, **fields} if each["number"] == number else each for each in self.pulls])

    def fail(self, fails: bool = True) -> None:
        mark = Path(f"{self._state}.fails")
        mark.touch() if fails else mark.unlink()

    def calls(self, *words: str) -> list[list[str]]:
        """How it was called with these words first."""
        path = Path(f"{self._state}.calls")
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [line for line in lines if line[: len(words)] == list(words)]

    def _save(self, pulls: list[dict[str, Any]]) -> None:
        self._state.write_text(json.dumps({"pulls": pulls}))
