"""Which projects there are on this machine: readable files, ``FLYBALL_HOME/registry/projects/<id>.json``.

Every change is an atomic write, a line of audit and a commit, in this order and under one lock, so it can
be undone and read about. A process that is killed in between leaves a right file behind; the next change
commits it. Reading takes no lock and writes nothing.

A file that cannot be understood is named beside the good ones. It is never overwritten and never committed,
so its last good version can be had back from git.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from flyball.core.suggestions import did_you_mean
from flyball.core.tasks.task import check_project_id, same_id_key
from flyball.errors import GitError, StoreError, StoreUnreadableError, UsageError
from flyball.factory.project.registry_history import AUDIT, PROJECTS, RegistryHistory, git_words, now_text
from flyball.host.atomic_file import UNFINISHED, replace_file

_LARGEST = 1 << 16


@dataclass(frozen=True, slots=True)
class Entry:
    id: str
    path: Path
    added: str
    """Wall clock, for people."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A file of the registry that cannot be understood."""

    id: str
    file: Path
    words: str


@dataclass(frozen=True, slots=True)
class Listing:
    entries: tuple[Entry, ...] = ()
    broken: tuple[Broken, ...] = ()


class ProjectRegistry:
    """Safe to use from many processes at once."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home / "registry"
        self._history = RegistryHistory(self.folder)

    # -- reading --------------------------------------------------------------------------------------

    def list(self) -> Listing:
        projects = self.folder / PROJECTS
        try:
            names = sorted(name for name in os.listdir(projects) if name.endswith(".json"))
        except FileNotFoundError:
            return Listing()
        except OSError as error:
            words = f"cannot read {projects} ({error.strerror}); set FLYBALL_HOME to a folder you own"
            raise StoreError(words) from error
        read = [_read(projects / name) for name in names]
        entries = (one for one in read if isinstance(one, Entry))
        return Listing(tuple(entries), tuple(one for one in read if isinstance(one, Broken)))

    def get(self, project_id: str) -> Entry:
        listing = self.list()
        for entry in listing.entries:
            if entry.id == project_id:
                return entry
        for broken in listing.broken:
            if broken.id == project_id:
                raise StoreUnreadableError(broken.words)
        known = [entry.id for entry in listing.entries]
        hint = did_you_mean(project_id, known) or f"registered: {', '.join(known) or 'none yet'}"
        raise UsageError(f"there is no project {project_id!r}; {hint}")

    # -- changing -------------------------------------------------------------------------------------

    def add(self, project_id: str, path: Path) -> bool:
        """Register a project. False if it is registered already, exactly so."""
        entry = Entry(check_project_id(project_id), Path(os.path.realpath(path)), now_text())
        if self._is_there(entry):
            return False
        with self._changing():
            if self._is_there(entry):
                return False
            replace_file(self._file(entry.id), _dump_entry(entry))
            self._record("add", entry.id, path=str(entry.path))
        return True

    def remove(self, project_id: str) -> None:
        """Forget a project; nothing in its folder changes. What cannot be read is kept in the history."""
        with self._changing():
            if any(broken.id == project_id for broken in self.list().broken):
                self._history.commit(f"keep {project_id} as it was found", [f"{PROJECTS}/{project_id}.json"])
                path = ""
            else:
                path = str(self.get(project_id).path)
            self._file(project_id).unlink()
            self._record("remove", project_id, path=path)

    def audit(self, what: str, **fields: str) -> None:
        """A line about something that no file of ours changes with."""
        with self._changing():
            self._history.audit(what, **fields)

    def undo(self) -> str:
        """Take the last change back, as a change of its own; undone twice, it is there again.

        Returns what was taken back.
        """
        with self._changing(needs_git=True):
            last = self._history.last_change()
            if last is None:
                raise UsageError("nothing to undo: the registry has never been changed")
            for broken in self.list().broken:
                if broken.file.name in last.before:
                    raise StoreUnreadableError(broken.words)
            for name, content in last.before.items():
                file = self.folder / PROJECTS / name
                if content is None:
                    file.unlink(missing_ok=True)
                else:
                    replace_file(file, content)
            self._record("undo", ", ".join(map(_entry_id, last.before)), commit=last.commit)
        return last.words

    def _is_there(self, entry: Entry) -> bool:
        """Is it registered exactly so? UsageError if its id or its path belongs to another."""
        listing = self.list()
        for broken in listing.broken:
            if same_id_key(broken.id) == same_id_key(entry.id):
                raise StoreUnreadableError(broken.words)
        for known in listing.entries:
            if known.id == entry.id and known.path == entry.path:
                return True
            if same_id_key(known.id) == same_id_key(entry.id) or known.path == entry.path:
                raise UsageError(_clash_words(entry, known))
        return False

    def _file(self, project_id: str) -> Path:
        return self.folder / PROJECTS / f"{project_id}.json"

    # -- one change at a time -------------------------------------------------------------------------

    @contextmanager
    def _changing(self, *, needs_git: bool = False) -> Iterator[None]:
        with self._history.changing():
            self._commit_leftovers(needs_git=needs_git)
            yield

    def _commit_leftovers(self, *, needs_git: bool) -> None:
        """Commit what was only written: by a process killed in between, without git, or by hand."""
        for left in (self.folder / PROJECTS).glob(UNFINISHED):
            left.unlink()
        try:
            bad = self._broken_paths()
            paths = [path for path in self._history.uncommitted_paths() if path not in bad]
            ids = ", ".join(_entry_id(path) for path in paths if path != AUDIT)
            if paths:
                self._history.audit("recover", id=ids)
                self._history.commit(f"recover {ids}", [*paths, AUDIT])
        except GitError as error:
            # The change to come does not depend on it: it is written, and then says what is wrong with git.
            if needs_git:
                raise GitError(git_words(error, self.folder), output=error.output) from error

    def _record(self, what: str, project_id: str, **fields: str) -> None:
        about = " ".join([what, project_id, *(json.dumps(value) for value in fields.values())])
        self._history.record(what, about, skip=self._broken_paths(), id=project_id, **fields)

    def _broken_paths(self) -> set[str]:
        """Files that cannot be understood are not committed: what is committed last must be good."""
        return {f"{PROJECTS}/{broken.file.name}" for broken in self.list().broken}


def _entry_id(path: str) -> str:
    return os.path.basename(path).removesuffix(".json")


def _clash_words(entry: Entry, known: Entry) -> str:
    way_out = f"run flyball project remove {known.id} first"
    if known.path == entry.path:
        return f"{entry.path} is registered as {known.id!r}, not {entry.id!r}; if it was renamed, {way_out}"
    moved = f"if it moved, {way_out}, else give this one another id in flyball.toml"
    return f"the id {known.id!r} belongs to {known.path}, not to {entry.path}; {moved}"


def _dump_entry(entry: Entry) -> bytes:
    fields = {"id": entry.id, "path": str(entry.path), "added": entry.added}
    try:
        return (json.dumps(fields, indent=2, ensure_ascii=False) + "\n").encode()
    except UnicodeEncodeError:  # a path that is not UTF-8
        return (json.dumps(fields, indent=2) + "\n").encode()


def _read(file: Path) -> Entry | Broken:
    try:
        with file.open("rb") as opened:
            fields = json.loads(opened.read(_LARGEST))
        entry = Entry(fields["id"], Path(fields["path"]), str(fields["added"]))
    except OSError as error:
        return _broken_entry(file, str(error.strerror))
    except KeyError as error:
        return _broken_entry(file, f"{error} is missing")
    except (ValueError, TypeError, RecursionError) as error:
        return _broken_entry(file, f"not such JSON: {error}")
    if entry.id != _entry_id(file.name) or not entry.path.is_absolute():
        return _broken_entry(
            file, "its id is not its name" if entry.id != _entry_id(file.name) else "its path is not absolute"
        )
    return entry


def _broken_entry(file: Path, why: str) -> Broken:
    back = shlex.join(["git", "-C", str(file.parent.parent), "checkout", "--", f"{PROJECTS}/{file.name}"])
    forget = shlex.join(["flyball", "project", "remove", _entry_id(file.name)])
    return Broken(
        file.stem, file, f"cannot understand {file} ({why}); bring it back with {back}, or {forget}"
    )
