"""A small project with a scripted agent, run by the real ``flyball`` in processes of its own.

``project.task("t-1")`` writes a task, ``project.act("t-1", "...")`` says in Python what its agent does,
``project.run()`` runs it all. What is left behind can be asked for: commits, branches, workspaces, leases,
processes, and the agents' own journal.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from flyball.factory.state.locks import RunLock
from flyball.factory.state.run_folders import state_folder
from flyball.governor.governor import Governor
from flyball.governor.status import LeaseStatus
from tests.waiting import until
from tests.warm import warm

SOAK = bool(os.environ.get("FLYBALL_SOAK"))
FLYBALL = [sys.executable, "-m", "flyball"]
AGENT = Path(__file__).with_name("scripted_agent.py")
GREEN = "! grep -rqs bad pages"
"""The gate of every project here: no page says ``bad``."""


@dataclass(frozen=True, slots=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def said(self) -> str:
        return f"{self.out}\n{self.err}"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the agents' journal."""

    event: str
    task: str
    attempt: int
    launch: int
    pid: int


class Project:
    def __init__(self, place: Path, *, name: str = "blog") -> None:
        self.place = place
        self.root, self.home, self.folder = place / name, place / "home", place / "script"
        for folder in (self.root, self.folder / "acts", place / "user"):
            folder.mkdir(parents=True)
        (place / "user" / ".gitconfig").write_text(
            "[user]\nname = Someone\nemail = someone@example.org\n[init]\ndefaultBranch = main\n"
            # Each commit would start a process to see if there is something to tidy up.
            "[maintenance]\nauto = false\n"
            # Processes are killed here, never the machine: what git wrote need not be on the disk.
            "[core]\nfsync = none\n"
        )
        self.sections: dict[str, dict[str, Any]] = {
            "project": {"id": name},
            "agent": {
                "runtime": "command",
                "command": [sys.executable, "-I", "-S", str(AGENT), str(self.folder)],
                "grace_s": 1,
            },
            "run": {"width": 3, "backoff_s": 0},
            # Most stories here count what the gate does for a landing; test_base_gate.py is about the base.
            "gate": {"commands": [GREEN], "check_base": False},
            "merge": {"policy": "auto", "protected": ["secrets/"]},
        }
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("GIT_", "FLYBALL_", "XDG_"))}
        self.env |= {"HOME": str(place / "user"), "FLYBALL_HOME": str(self.home), "COLUMNS": "200"}
        self._started: list[subprocess.Popen[str]] = []
        self.git("init", "--quiet")
        self.configure()
        self.commit("start")

    # -- making -----------------------------------------------------------------------------------------

    def configure(self, **sections: Mapping[str, Any]) -> None:
        """Change keys of ``flyball.toml``: ``configure(run={"width": 1})``."""
        for name, keys in sections.items():
            self.sections.setdefault(name, {}).update(keys)
        lines: list[str] = []
        for name, keys in self.sections.items():
            lines.append(f"[{name}]")
            lines += [f"{key} = {_toml(value)}" for key, value in keys.items()]
        (self.root / "flyball.toml").write_text("\n".join(lines) + "\n")

    def task(
        self,
        task_id: str,
        *lines: str,
        act: str | None = None,
        body: str = "",
        write: str | None = "",
        commit: bool = True,
    ) -> Path:
        """A task file; ``lines`` go into its front matter. ``write`` is its footprint, None for none."""
        footprint = f"pages/{task_id}*" if write == "" else write
        declared = [f"footprint: {{write: [{json.dumps(footprint)}]}}"] if footprint else []
        path = self.root / "tasks" / f"{task_id}.md"
        path.parent.mkdir(exist_ok=True)
        head = "\n".join([f"id: {task_id}", f"title: Add page {task_id}", "status: open", *declared, *lines])
        path.write_text(f"---\n{head}\n---\n{body}\n")
        if act is not None:
            self.act(task_id, act)
        if commit:
            self.commit(f"task {task_id}")
        return path

    def tasks(self, count: int) -> list[str]:
        names = [f"t-{number}" for number in range(1, count + 1)]
        for name in names:
            self.task(name, commit=False)
        self.commit("tasks")
        return names

    def act(self, task_id: str, script: str, *, launch: int | None = None) -> None:
        name = f"{task_id}.py" if launch is None else f"{task_id}.{launch}.py"
        (self.folder / "acts" / name).write_text(script)

    def write(self, path: str, text: str | bytes) -> Path:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode() if isinstance(text, str) else text)
        return target

    def commit(self, message: str) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", message)

    def git(self, *words: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            ["git", *words],
            cwd=cwd or self.root,
            env=self.env,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            check=False,
        )
        assert done.returncode == 0, f"git {words}: {done.stderr}"
        return done.stdout.strip()

    def patient_pool(self, cap: int = 8) -> None:
        """A pool that does not close when an agent was limited, so that no agent has to wait."""
        governor = Governor(f"sqlite://{self.home}/governor.db")
        governor.set_pool("anthropic", cap=cap, adaptive=False)
        governor.close()

    def with_origin(self) -> Path:
        """Give it an origin that it agrees with."""
        origin = self.place / "origin.git"
        self.git("clone", "--quiet", "--bare", str(self.root), str(origin))
        self.git("remote", "add", "origin", str(origin))
        self.git("fetch", "--quiet", "origin")
        return origin

    # -- running ----------------------------------------------------------------------------------------

    def run(self, *words: str, die_at: str = "", timeout_s: float = 100.0) -> Ran:
        """``flyball run``; with ``die_at`` it is killed there."""
        return self.flyball("run", *words, die_at=die_at, timeout_s=timeout_s)

    def flyball(self, *words: str, die_at: str = "", timeout_s: float = 100.0) -> Ran:
        """``die_at``: the entry of the ledger at which it is killed, as ``killed_flyball`` names it."""
        told = warm().run(words, cwd=self.root, env=self.env, timeout_s=timeout_s, die_at=die_at)
        return Ran(*told)

    def start(self, *words: str, die_at: str = "", group: bool = False) -> subprocess.Popen[str]:
        """``group``: in a process group of its own, as at a terminal."""
        process = warm().start(words, cwd=self.root, env=self.env, die_at=die_at, group=group)
        self._started.append(process)
        return process

    def read_until(self, process: subprocess.Popen[str], words: str) -> str:
        """What it prints, up to the line with these words."""
        assert process.stdout is not None
        said = ""
        while words not in said:
            line = process.stdout.readline()
            assert line, f"it ended without saying {words!r}: {said}"
            said += line
        return said

    def say(self, name: str) -> None:
        """Make the file that an agent's ``wait_for(folder / name)`` waits for."""
        (self.folder / name).touch()

    def wait(self, name: str) -> None:
        """Wait for a file that an agent makes: ``(folder / name).touch()``."""
        until((self.folder / name).exists, f"the agent to make {name}")

    def end(self) -> None:
        """Nothing of ours outlives the test."""
        for process in self._started:
            process.kill()
            process.wait()
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
        holders = {lease.pid for lease in self.leases() if lease.alive}
        for pid in {*self.processes(), *holders} - {os.getpid()}:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    @contextmanager
    def landings_held(self, count: int) -> Iterator[None]:
        """Around the start of a run: nothing lands before so many wait to, which then go together."""
        lock = RunLock(state_folder(self.root) / "landing.lock")
        assert lock.take()
        # What an earlier run said is not what this one says.
        (self.root / ".flyball" / "board.json").unlink(missing_ok=True)
        try:
            yield
            until(lambda: len(self.saying("waits for another landing")) >= count, f"{count} to wait")
        finally:
            lock.release()

    # -- looking ----------------------------------------------------------------------------------------

    def saying(self, words: str) -> list[str]:
        """The tasks about which the board says so."""
        board = self.root / ".flyball" / "board.json"
        rows = json.loads(board.read_text())["rows"] if board.exists() else []
        return [row["task"] for row in rows if words in row["why"]]

    def landed(self) -> list[str]:
        """The tasks that were landed, in order, each as often as it was."""
        said = self.git("log", "--walk-reflogs", "--format=%gs", "main").splitlines()[::-1]
        together = [words.removeprefix("flyball: ") for words in said if words.startswith("flyball: ")]
        return [task for words in together for task in words.split(", ")]

    def status_of(self, task_id: str, revision: str = "main") -> str:
        """What a commit says about a task."""
        text = self.git("show", f"{revision}:tasks/{task_id}.md")
        return next(line.split(": ")[1] for line in text.splitlines() if line.startswith("status"))

    def files(self, revision: str = "main") -> list[str]:
        return self.git("ls-tree", "-r", "-z", "--name-only", revision).strip("\0").split("\0")

    def journal(self) -> list[Line]:
        path = self.folder / "journal"
        return [Line(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []

    def began(self, task_id: str | None = None) -> list[Line]:
        return [line for line in self.journal() if line.event == "began" and task_id in (None, line.task)]

    def workspaces(self) -> list[Path]:
        """Those of agents: not the landing's worktree."""
        folder = self.workspace("x").parent
        there = folder.iterdir() if folder.exists() else ()
        return sorted(path for path in there if path.name != ".landing")

    def workspace(self, task_id: str) -> Path:
        return self.home / "worktrees" / self.root.name / task_id

    def branches(self) -> list[str]:
        return self.git("for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads/agent/").split()

    def leases(self) -> list[LeaseStatus]:
        governor = Governor(f"sqlite://{self.home}/governor.db")
        return [lease for pool in governor.status().pools for lease in pool.leases]

    def processes(self) -> list[int]:
        """Agents, gates, what they left, and their keepers."""
        mark = f"{self.root}/.flyball/".encode()
        return [pid for pid, name in _named_processes() if mark in name]

    def tips(self) -> list[str]:
        """Everywhere that the default branch has stood, oldest first."""
        return self.git("log", "--walk-reflogs", "--format=%H", "main").split()[::-1]

    def folders(self, task_id: str) -> list[Path]:
        """The folders of its launches, in order."""
        runs = self.root / ".flyball" / "runs" / task_id
        return sorted(runs.iterdir(), key=lambda folder: int(folder.name)) if runs.exists() else []

    def prompts(self, task_id: str) -> list[str]:
        return [(folder / "prompt.md").read_text() for folder in self.folders(task_id)]

    def wrongs(self, landed: Sequence[str]) -> list[str]:
        """What is not as it must be after any story whatsoever that ended with these tasks landed."""
        wrong = [f"{line.task} ran twice at once" for line in self.journal() if line.event == "clash"]
        found = self.landed()
        if sorted(found) != sorted(landed):
            wrong.append(f"landed: {found}, should be {list(landed)}")
        wrong += [f"{task} landed and is not closed" for task in landed if self.status_of(task) != "closed"]
        wrong += [f"left running: {words}" for words in map(_command_of, self.processes())]
        wrong += [f"leaked slot: {lease.name}" for lease in self.leases()]
        wrong += [f"leaked workspace: {path}" for path in self.workspaces() if path.name in landed]
        wrong += [
            f"leaked branch: {name}" for name in self.branches() if name.removeprefix("agent/") in landed
        ]
        return wrong + list(self._wrongs_of_main())

    def _wrongs_of_main(self) -> Iterator[str]:
        tips = self.tips()
        for old, new in pairwise(tips):
            if self.git("merge-base", old, new) != old:
                yield f"main was rewritten: {old} -> {new}"
            if self._says_bad(new):
                yield f"main was red at {new}"

    def _says_bad(self, revision: str) -> bool:
        found = subprocess.run(
            ["git", "grep", "-q", "bad", revision, "--", "pages"], cwd=self.root, check=False
        )
        return found.returncode == 0


def _named_processes() -> Iterator[tuple[int, bytes]]:
    """Processes that carry a run's name, and that name; zombies are over."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        found = next((each for each in variables if each.startswith(b"FLYBALL_RUN=")), None)
        if found is not None:
            yield int(entry.name), found


def _command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return f"pid {pid}"


def _toml(value: Any) -> str:
    """Text, numbers, truths, lists and tables of them: as in JSON, but for tables."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items()) + "}"
    return json.dumps(value)
