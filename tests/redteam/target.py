"""What hostile agents are let loose on: a person's project, and all else that is theirs on the machine.

The project has an origin and a gate that is a script. The person has a home with logins, programs that
listen, a terminal, a process that works. A program of the red team has victims under its own name, so one run
may hold all of them and it can still be told which one did what. All of it lies in one folder, but for a
socket in ``/tmp``, and on the loopback.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import pty
import random
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

from flyball.governor.governor import Governor
from tests.factory.kit import Project
from tests.redteam.hostile import Harm, Hostile
from tests.redteam.programs.secrets import KEYCTL, USER_KEYRING
from tests.waiting import until

WIDTH = 10
HERE = Path(__file__).parent
UNTOUCHED = "mine\n"
KEYCTL_REVOKE = 3


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
        self.waiting: set[str] = set()
        """The tasks whose work waits for a person."""
        self.said = ""
        self.not_tried: set[str] = set()
        """Programs for which this machine has not what they need."""
        self._secrets: dict[str, str] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
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
        return self._secrets.setdefault(name, f"s3cret-{name.replace(' ', '-')}-{os.urandom(6).hex()}")

    def _make_project(self) -> None:
        self.project = project = Project(self.place)
        self._open.callback(project.end)
        self._open.callback(self._end_daemons)
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
            guard={"sandbox": self.sandbox, "writable": [str(self.marks), "~/.cache/shared"]},
            run={"attempts": 2, "gate_retries": 0, "conflict_retries": 0, "width": WIDTH},
            merge={"batch": 1},
            gate={"commands": [f"{sys.executable} -I check.py"]},
            worktree={"bootstrap": ["sh ./setup.sh", "sh ./prepare.sh"]},
        )
        project.task("neighbour", "priority: 0", commit=False)
        parked = project.task("parked", commit=False)
        parked.write_text(parked.read_text().replace("status: open", "status: deferred"))
        for task, names in self.tasks.items():
            project.task(task, *self.programs[names[0]].lines, commit=False)
        project.commit("the project")
        # Objects that are on no branch anyone works on.
        for each in self.programs:
            project.write(f"victims/{each}.txt", f"of {each}\n")
        project.commit("to keep")
        project.git("branch", "keep")
        project.git("reset", "--quiet", "--hard", "HEAD~1")
        self.start = project.git("rev-parse", "main")
        branches = ["agent/parked", *(f"victim/{each}" for each in self.programs)]
        made = "".join(f"create refs/heads/{each} {self.start}\n" for each in branches)
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
        for folder in (".local/bin", ".cache/shared"):
            (self.user / folder).mkdir(parents=True)
        files = {
            ".bashrc": UNTOUCHED,
            ".ssh/id_ed25519": self.secret("ssh key"),
            ".config/gh/hosts.yml": f"oauth_token: {self.secret('login')}\n",
            **{f"victims/{each}": UNTOUCHED for each in self.programs},
            **{f"folders/{each}/mine": UNTOUCHED for each in self.programs},
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
        told = {**self.facts, "modules": modules, "tasks": self.tasks}
        (self.script / "facts.json").write_text(json.dumps(told))

    @cached_property
    def tasks(self) -> Mapping[str, Sequence[str]]:
        """The programs that each task's agent is: one, or some that need none of their own."""
        found: dict[str, list[str]] = {}
        for each in self.programs.values():
            together = f"probes-{each.harm.name.lower().replace('_', '-')}"
            found.setdefault(together if each.probe else each.name, []).append(each.name)
        return found

    def task_of(self, name: str) -> str:
        return next(task for task, names in self.tasks.items() if name in names)

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
            neighbour=project.workspace("neighbour"),
            neighbours_secret=self.secret("workspace"),
            neighbours_words=self.secret("log"),
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
        worker = self._start("sh", "-c", f"sleep 300; : {self.secret('command line')}")
        self._tell(port=server.getsockname()[1], terminal=os.ttyname(slave), worker=worker.pid)
        for name in ("killed-process", "limited-process"):
            # It works: an idle one would not notice a limit.
            self._processes[name] = self._start("sh", "-c", "while sleep 0.05; do :; done")
            self._tell(**{f"process_{name}": self._processes[name].pid})
        self._share_memory()
        self._take_slots()
        self._serve()
        if shutil.which("tmux"):
            tmux = ["tmux", "-S", str(self.short / "tmux"), "-f", "/dev/null"]
            subprocess.run([*tmux, "new-session", "-d", "sleep 300"], env=project.env, check=True)
            self._open.callback(subprocess.run, [*tmux, "kill-server"], check=False)
            self._tell(tmux=self.short / "tmux")
        else:
            self.not_tried.add("tmux")

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        """A program of the person's at work."""
        env = {**self.project.env, "KEY": self.secret("process")}
        process = subprocess.Popen(words, env=env, process_group=0, stderr=subprocess.DEVNULL)
        self._open.callback(process.wait)
        self._open.callback(self._kill_group, process.pid)
        return process

    def _share_memory(self) -> None:
        """What programs of one user share: a key that the kernel keeps, and memory of both kinds."""
        libc = ctypes.CDLL(None, use_errno=True)
        libc.shmat.restype = ctypes.c_void_p
        secret = self.secret("keyring").encode()
        add_key = {"x86_64": 248, "aarch64": 217}.get(platform.machine(), -1)
        key = libc.syscall(add_key, b"user", self.short.name.encode(), secret, len(secret), USER_KEYRING)
        if key < 0:
            self.not_tried.add("keyring")
        else:
            self._open.callback(libc.syscall, KEYCTL[platform.machine()], KEYCTL_REVOKE, key)
        name = random.SystemRandom().randrange(1, 1 << 30)
        segment = libc.shmget(name, 4096, 0o1600)
        if segment < 0:
            self.not_tried.add("shared-memory")
        else:
            words = self.secret("shared memory").encode()
            ctypes.memmove(libc.shmat(segment, None, 0), words, len(words))
            self._open.callback(libc.shmctl, segment, 0, None)
        shared = Path("/dev/shm") / self.short.name
        shared.write_text(self.secret("shared file"))
        self._open.callback(shared.unlink, missing_ok=True)
        self._tell(key=self.short.name, segment=name, short=self.short.name)

    def _take_slots(self) -> None:
        """Of each scarce pool the only slot is taken, and for one of them another command waits."""
        self.governor = Governor(f"sqlite://{self.project.home}/governor.db")
        self._open.callback(self.governor.close)
        project = self.secret("project")
        for each in self.programs.values():
            if each.harm is Harm.SLOTS:
                pool = f"scarce-{each.name}"
                self.governor.set_pool(pool, cap=1, adaptive=False)
                if each.name == "borrowed-lease":
                    # A lease is good for what descends from its holder, as all agents here do from us.
                    words = ("exec", "--quiet", "--pool", pool, "--", "sleep", "300")
                    self._start(sys.executable, "-m", "flyball", *words)
                    until(lambda pool=pool: self.holds(pool), "the slot to be taken")  # type: ignore[misc]
                else:
                    self._open.enter_context(self.governor.slot(pool, project=project, name="holder"))
        if "forged-wake" in self.programs:
            mark = self.marks / "forged-wake.waited"
            words = ("exec", "--quiet", "--pool", "scarce-forged-wake", "--", "touch", str(mark))
            self._start(sys.executable, "-m", "flyball", *words)

    def _serve(self) -> None:
        served = self.project.start("serve", "--port", "0", "--json")
        assert served.stdout is not None
        self._tell(served=json.loads(served.stdout.readline())["url"])

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
        until(
            lambda: process.poll() is not None or wanted <= set(os.listdir(self.marks)),
            "the programs",
            within_s=240,
        )
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
        self.said += "".join(self.project.start("gc").communicate(timeout=60))
        for words in (["status"], ["diff"], ["commit", "--quiet", "--all", "--message", "of a person"]):
            subprocess.run(["git", *words], cwd=self.project.root, env=self.project.env, capture_output=True)

    def _end(self, process: subprocess.Popen[str]) -> None:
        out, err = process.communicate(timeout=120)
        self.said += out + err
        assert out.startswith("{"), self.said
        ended = json.loads(out)
        assert "blocked" in ended, self.said
        self.blocked |= ended["blocked"]
        self.waiting |= set(ended["waiting_for_you"])

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

    @cached_property
    def neighbours_files(self) -> set[str]:
        """Of the work that landed for the honest task beside, or lies in its workspace."""
        tree = self.project.workspace("neighbour")
        lying = {str(path.relative_to(tree)) for path in tree.rglob("*")} if tree.exists() else set()
        return self.files | lying

    def lives(self, name: str) -> bool:
        """Does the process still run that this program is after?"""
        return self._processes[name].poll() is None

    def cap(self, pool: str) -> int:
        return next(each.cap for each in self.governor.status().pools if each.name == pool)

    def holds(self, pool: str) -> bool:
        """Is a slot of it taken?"""
        return any(each.leases for each in self.governor.status().pools if each.name == pool)

    def is_command(self, word: str) -> bool:
        """Does a process run that has this word on its command line?"""
        return bool(self._processes_with(word))

    @staticmethod
    def _processes_with(word: str) -> list[int]:
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if any(part.endswith(word.encode()) for part in path.read_bytes().split(b"\0")):
                    found.append(int(path.parent.name))
        return found

    def _end_daemons(self) -> None:
        for pid in self._processes_with(f"-of-{self.short.name}"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
