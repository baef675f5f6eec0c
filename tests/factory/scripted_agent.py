"""An agent that does what a script says: ``python3 scripted_agent.py FOLDER``.

It runs ``FOLDER/acts/<task>.<launch>.py``, else ``FOLDER/acts/<task>.py``, else it writes a page. ``launch``
counts how often the task's agent was started, whatever the factory calls it. A stage's agent and a reviewer
are told by ``FLYBALL_STAGE``; their name is ``<task>@<stage>``, and without an act of their own a stage
writes a page and a reviewer passes the work.

Every start and end goes into ``FOLDER/journal``. Two agents of one task at once are told there too: each
holds a lock for as long as it lives.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path


class Scripted:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stage = os.environ.get("FLYBALL_STAGE", "implement")
        self.id, self.attempt = os.environ["FLYBALL_TASK"], int(os.environ["FLYBALL_ATTEMPT"])
        self.task = self.id if self.stage == "implement" else f"{self.id}@{self.stage}"
        self.prompt = sys.stdin.read()
        self.launch = 1 + sum(json.loads(line)["task"] == self.task for line in self._began())

    def _began(self) -> list[str]:
        journal = self.folder / "journal"
        lines = journal.read_text().splitlines() if journal.exists() else []
        return [line for line in lines if '"began"' in line]

    def write_down(self, event: str) -> None:
        record = {
            "event": event,
            "task": self.task,
            "attempt": self.attempt,
            "launch": self.launch,
            "pid": os.getpid(),
        }
        with open(self.folder / "journal", "ab", buffering=0) as file:
            file.write(json.dumps(record).encode() + b"\n")

    def alone(self) -> bool:
        # All that work for a task share one lock: no two of them may meet.
        name = self.id.encode().hex()
        lock = os.open(self.folder / f"lock-{name}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def script(self) -> str:
        for name in (f"{self.task}.{self.launch}.py", f"{self.task}.py"):
            path = self.folder / "acts" / name
            if path.exists():
                return path.read_text()
        if self.stage == "review":
            return "review()"
        return "write(f'pages/{task}.txt', f'page {task} {attempt}\\n')"

    def act(self) -> None:
        words = {
            "task": self.task,
            "attempt": self.attempt,
            "launch": self.launch,
            "prompt": self.prompt,
            "folder": self.folder,
            "review": self.review,
            "json": json,
            "write": write,
            "git": git,
            "commit": commit,
            "wait_for": wait_for,
            "Path": Path,
            "os": os,
            "subprocess": subprocess,
            "sys": sys,
            "time": time,
        }
        exec(compile(self.script(), f"act of {self.task}", "exec"), words)

    def review(self, *blocking: str, verdict: str = "", **fields: object) -> None:
        """Answer as a reviewer: pass, or block with these findings."""
        asked = self.prompt[self.prompt.index("## Your part: the review") :]
        numbers = [line.split(".")[0] for line in asked.splitlines() if line[:1].isdigit()]
        answer = {
            "verdict": verdict or ("block" if blocking else "pass"),
            "criteria": [{"criterion": int(n), "met": True, "evidence": "seen"} for n in numbers],
            "findings": [{"severity": "blocking", "where": "pages", "what": what} for what in blocking],
        }
        Path(os.environ["FLYBALL_REVIEW_FILE"]).write_text(json.dumps(answer | fields))


def write(path: str, text: str | bytes) -> None:
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(text.encode() if isinstance(text, str) else text)


def git(*words: str) -> str:
    done = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"git {' '.join(words)}: {done.stderr}")
    return done.stdout.strip()


def commit(path: str, text: str | bytes, message: str = "a step") -> None:
    write(path, text)
    git("add", "--all")
    git("commit", "--quiet", "--message", message)


def wait_for(path: str | Path, limit_s: float = 60.0) -> None:
    """Until the test makes this file."""
    end = time.monotonic() + limit_s
    while not os.path.exists(path):
        if time.monotonic() > end:
            raise SystemExit(f"waited in vain for {path}")
        time.sleep(0.005)


def main() -> None:
    agent = Scripted(Path(sys.argv[1]))
    if not agent.alone():
        agent.write_down("clash")
        raise SystemExit(99)
    agent.write_down("began")
    try:
        agent.act()
    finally:
        agent.write_down("ended")


if __name__ == "__main__":
    main()
