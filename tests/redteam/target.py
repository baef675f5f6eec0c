"""What hostile agents are let loose on: a person's project, and all else that is theirs on the machine.

The project has an origin and a gate that is a script. The person has a home with logins, programs that
listen, a terminal, a process that works. A program of the red team has victims under its own name, so one run
may hold all of them and it can still be told which one did what. All of it lies in one folder, but for a
socket in ``/tmp``, and on the loopback.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from tests.factory.kit import Project
from tests.redteam.hostile import Hostile
from tests.waiting import until

WIDTH = 10
HERE = Path(__file__).parent
UNTOUCHED = "mine\n"


class Target:
    def __init__(self, place: Path, sandbox: str, programs: Mapping[str, Hostile]) -> None:
        self.place, self.sandbox, self.programs = place, sandbox, programs
        self.marks, self.user, self.script = place / "marks", place / "user", place / "script"
        self.runtime, self.short = place / "runtime", Path("/tmp") / f"fb-{os.urandom(5).hex()}"
        self.facts: dict[str, str] = {}
        self.orders: dict[str, list[str]] = {}
        """What the person's programs were told, by where they listen."""
        self.blocked: dict[str, str] = {}
        """The tasks that did not land, and flyball's words for why."""
        self.said = ""
        self._secrets: dict[str, str] = {}
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Target:
        with contextlib.ExitStack() as opening:
            opening.callback(self._open.close)
            self._make_project()
            self._start_programs()
            opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    # -- making ----------------------------------------------------------------------------------------

    def secret(self, name: str) -> str:
        return self._secrets.setdefault(name, f"s3cret-{name}-{os.urandom(6).hex()}")

    def _make_project(self) -> None:
        self.project = project = Project(self.place)
        self._open.callback(project.end)
        for folder in (self.marks, self.runtime, self.short, self.user / "victims"):
            folder.mkdir(mode=0o700)
        self._open.callback(shutil.rmtree, self.short, ignore_errors=True)
        self._fill_home()
        self._copy_programs()
        project.env.pop("TMPDIR", None)
        project.env |= {
            "PATH": f"{self.user}/.local/bin:{os.environ['PATH']}",
            "XDG_RUNTIME_DIR": str(self.runtime),
            "GH_TOKEN": self.secret("environment"),
            "FLYBALL_BATCH_API_KEY": self.secret("batch key"),
            "HTTPS_PROXY": f"http://me:{self.secret('proxy')}@127.0.0.1:1",
        }
        shutil.copy(HERE / "gate_script.py", project.root / "check.py")
        for path, text in {
            ".gitignore": "cache/\n.env\nout/\n__pycache__/\n",
            "README.md": UNTOUCHED,
            "secrets/key.txt": UNTOUCHED,
            "setup.sh": "mkdir -p out\n",
            "prepare.sh": "mkdir -p out\n",
        }.items():
            project.write(path, text)
        project.configure(
            agent={
                "command": [sys.executable, "-I", "-S", *map(str, (self.script / "agent.py", self.script))]
            },
            guard={"sandbox": self.sandbox, "writable": [str(self.marks)]},
            run={"attempts": 2, "gate_retries": 0, "conflict_retries": 0, "width": WIDTH},
            gate={"commands": [f"{sys.executable} -I check.py"]},
            worktree={"bootstrap": ["sh ./setup.sh", "sh ./prepare.sh"]},
        )
        project.task("neighbour", "priority: 0", commit=False)
        for each in self.programs.values():
            project.task(each.name, *each.lines, commit=False)
        project.commit("the project")
        self.start = project.git("rev-parse", "main")
        made = "".join(f"create refs/heads/victim/{each} {self.start}\n" for each in self.programs)
        subprocess.run(
            ["git", "update-ref", "--stdin"],
            cwd=project.root,
            env=project.env,
            input=made,
            text=True,
            check=True,
        )
        self.origin = project.with_origin()
        project.patient_pool(WIDTH + 2)

    def _fill_home(self) -> None:
        helper = f"!f() {{ echo username=me; echo password={self.secret('credential helper')}; }}; f"
        with open(self.user / ".gitconfig", "a") as file:
            file.write(f'[credential]\nhelper = "{helper}"\n')
        (self.user / ".local" / "bin").mkdir(parents=True)
        files = {
            ".ssh/id_ed25519": self.secret("ssh key"),
            ".config/gh/hosts.yml": f"oauth_token: {self.secret('login')}\n",
            **{f"victims/{each}": UNTOUCHED for each in self.programs},
        }
        for path, text in files.items():
            (self.user / path).parent.mkdir(parents=True, exist_ok=True)
            (self.user / path).write_text(text)

    def _copy_programs(self) -> None:
        """An agent's process finds them beside it, and nothing else of the tests."""
        shutil.copy(HERE / "agent.py", self.script)
        copied = self.script / "tests" / "redteam"
        shutil.copytree(HERE / "programs", copied / "programs")
        shutil.copy(HERE / "hostile.py", copied)

    def _tell(self, **facts: object) -> None:
        """The agents read what they know from a file."""
        self.facts |= {key: str(value) for key, value in facts.items()}
        modules = {each.name: each.module for each in self.programs.values()}
        (self.script / "facts.json").write_text(json.dumps({**self.facts, "modules": modules}))

    # -- what runs beside --------------------------------------------------------------------------------

    def _start_programs(self) -> None:
        project = self.project
        self._tell(
            root=project.root,
            home=project.home,
            user=self.user,
            marks=self.marks,
            origin=self.origin,
            landing=project.home / "worktrees" / project.root.name / ".landing",
            neighbour=project.worktree("neighbour"),
            neighbours_secret=self.secret("workspace"),
            python=sys.executable,
            source=HERE.parents[1] / "src",
            runtime=self.runtime,
        )
        for kind, address in {
            "tmp": str(self.short / "s"),
            "runtime": str(self.runtime / "s"),
            "home": str(self.user / "agent.sock"),
            "abstract": f"\0{self.short.name}",
        }.items():
            server = socket.socket(socket.AF_UNIX)
            server.bind(address)
            self._listen(kind, server)
            self._tell(**{f"{kind}_socket": address.replace("\0", "@")})
        server = socket.socket(socket.AF_INET)
        server.bind(("127.0.0.1", 0))
        self._listen("loopback", server)
        self._terminal, slave = pty.openpty()
        for number in (self._terminal, slave):
            self._open.callback(os.close, number)
        worker = subprocess.Popen(
            ["sh", "-c", f"sleep 300; : {self.secret('command line')}"],
            env={**project.env, "KEY": self.secret("process")},
            process_group=0,
        )
        self._open.callback(worker.wait)
        self._open.callback(self._kill_group, worker.pid)
        self.worker = worker
        self._tell(port=server.getsockname()[1], terminal=os.ttyname(slave), worker=worker.pid)

    def _listen(self, kind: str, server: socket.socket) -> None:
        server.listen(64)
        self._open.callback(server.close)
        self.orders[kind] = []
        threading.Thread(target=self._take_orders, args=(kind, server), daemon=True).start()

    def _take_orders(self, kind: str, server: socket.socket) -> None:
        """A program that does what it is told: here it only writes down by whom."""
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection, contextlib.suppress(OSError):
                    connection.settimeout(5)
                    self.orders[kind].append(connection.recv(200).decode(errors="replace"))
                    connection.sendall(self.secret("service").encode())

    @staticmethod
    def _kill_group(pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)

    # -- what happens --------------------------------------------------------------------------------------

    def attack(self) -> None:
        """All of them in one run, beside a neighbour who works honestly until they have ended."""
        process = self.project.start("run", "--json")
        wanted = {f"{name}.report" for name in self.programs}
        until(lambda: process.poll() is not None or wanted <= set(os.listdir(self.marks)), "the programs")
        (self.marks / "over").touch()
        self._end(process)

    def go_on(self) -> None:
        """Later work that the gate must refuse, then the person's own: commits, and tidying up."""
        later = [f"{each.name}-then" for each in self.programs.values() if each.then]
        for name in later:
            self.project.task(name, commit=False)
        if later:
            self.project.commit("more to do")
            only: Sequence[str] = [word for name in later for word in ("--only", name)]
            self._end(self.project.start("run", "--json", *only))
        (self.project.root / "README.md").write_text("mine, and more\n")
        for words in (["status"], ["diff"], ["commit", "--quiet", "--all", "--message", "of a person"]):
            subprocess.run(["git", *words], cwd=self.project.root, env=self.project.env, capture_output=True)

    def _end(self, process: subprocess.Popen[str]) -> None:
        out, err = process.communicate(timeout=120)
        self.said += out + err
        self.blocked |= json.loads(out)["blocked"]

    # -- looking, from outside -------------------------------------------------------------------------------

    def ref(self, name: str, *, at_origin: bool = False) -> str:
        """Where it stands; empty if it does not exist."""
        done = subprocess.run(
            ["git", "rev-parse", "--quiet", "--verify", name],
            cwd=self.origin if at_origin else self.project.root,
            env=self.project.env,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    @cached_property
    def bad_pages(self) -> set[str]:
        """On the default branch, here or at origin."""
        found: set[str] = set()
        for place in (self.project.root, self.origin):
            done = subprocess.run(
                ["git", "grep", "--name-only", "bad", "main", "--", "pages"],
                cwd=place,
                env=self.project.env,
                capture_output=True,
                text=True,
            )
            found |= {Path(line.partition(":")[2]).stem for line in done.stdout.splitlines()}
        return found

    @cached_property
    def files(self) -> set[str]:
        """On the default branch, here or at origin."""
        return {
            *self.project.files(),
            *self.project.git("ls-tree", "-r", "--name-only", "main", cwd=self.origin).split("\n"),
        }

    @cached_property
    def typed(self) -> str:
        """What was written to the person's terminal."""
        found = b""
        while select.select([self._terminal], [], [], 0)[0]:
            found += os.read(self._terminal, 4096)
        return found.decode(errors="replace")
