"""Which profiles there are on this machine: ``FLYBALL_HOME/registry/accounts/<name>.toml``.

They live in the registry's repository and are changed as projects are: an atomic write, a line of audit and
a commit, under the registry's lock. Reading takes no lock and writes nothing. A file that cannot be
understood is told beside the good ones, never overwritten, and never used.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from flyball.core.suggestions import did_you_mean
from flyball.core.tasks.task import same_id_key
from flyball.errors import GitError, StoreError, StoreReadOnlyError, StoreUnreadableError, UsageError
from flyball.factory.accounts.profile import Profile, check_profile, dump_profile, parse_profile
from flyball.factory.project.registry_history import RegistryHistory, git_words
from flyball.host.atomic_file import UNFINISHED, replace_file
from flyball.host.lock_file import LockFile

ACCOUNTS = "accounts"
_LARGEST = 1 << 16
_STUCK_S = 60.0


@dataclass(frozen=True, slots=True)
class BrokenProfile:
    """A file that cannot be understood."""

    name: str
    file: Path
    words: str


class Profiles:
    """Safe to use from many processes at once."""

    def __init__(self, home: Path) -> None:
        self.home, self.registry = home, home / "registry"
        self.folder = self.registry / ACCOUNTS
        self._history = RegistryHistory(self.registry, kind=ACCOUNTS)

    # -- reading --------------------------------------------------------------------------------------

    def list(self) -> tuple[list[Profile], list[BrokenProfile]]:
        try:
            names = sorted(name for name in os.listdir(self.folder) if name.endswith(".toml"))
        except FileNotFoundError:
            return [], []
        except OSError as error:
            raise StoreError(f"cannot read {self.folder} ({error.strerror})") from error
        read = [_read(self.folder / name) for name in names]
        good = [one for one in read if isinstance(one, Profile)]
        return good, [one for one in read if isinstance(one, BrokenProfile)]

    def get(self, name: str) -> Profile:
        profiles, broken = self.list()
        for profile in profiles:
            if profile.name == name:
                return profile
        for one in broken:
            if one.name == name:
                raise StoreUnreadableError(one.words)
        known = [profile.name for profile in profiles]
        making = f"{shlex.join(['flyball', 'account', 'add', name])} ... makes it"
        making += f" (there are: {', '.join(known) or 'none yet'})"
        raise UsageError(f"there is no profile {name!r}; {did_you_mean(name, known) or making}")

    # -- changing -------------------------------------------------------------------------------------

    def add(self, profile: Profile, *, replace: bool = False) -> None:
        """Write a profile down. UsageError if its name is taken and nobody said to replace it."""
        check_profile(profile)
        with self._changing():
            profiles, broken = self.list()
            for known in (*(one.name for one in profiles), *(one.name for one in broken)):
                if same_id_key(known) == same_id_key(profile.name) and not (
                    replace and known == profile.name
                ):
                    way_out = f"--replace changes it, flyball account remove {known} forgets it"
                    raise UsageError(f"there is a profile {known} already; {way_out}")
            replace_file(self._file(profile.name), dump_profile(profile))
            self._record("account add", profile.name)

    def remove(self, name: str) -> None:
        """Forget a profile; no login is touched. What cannot be read can be forgotten too."""
        with self._changing():
            if not any(one.name == name for one in self.list()[1]):
                self.get(name)
            self._file(name).unlink()
            self._record("account remove", name)

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.toml"

    @contextmanager
    def _changing(self) -> Iterator[None]:
        try:
            for folder in (self.home, self.registry, self.folder):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = LockFile.of(str(self.home / "registry.lock"), stuck_after_s=_STUCK_S)
            lock.acquire()
            try:
                for left in self.folder.glob(UNFINISHED):
                    left.unlink()
                yield
            finally:
                lock.release()
        except OSError as error:
            words = f"cannot write in {self.folder} ({error.strerror or error})"
            raise StoreReadOnlyError(f"{words}; set FLYBALL_HOME to a folder you can write to") from error

    def _record(self, what: str, name: str) -> None:
        """With everything that was only written before: by somebody killed in between, or by hand."""
        self._history.audit(what, id=name)
        bad = {f"{ACCOUNTS}/{one.file.name}" for one in self.list()[1]}
        try:
            paths = [path for path in self._history.uncommitted_paths() if path not in bad]
            self._history.commit(f"{what} {name}", paths)
        except GitError as error:
            words = f"done and written to {self.registry}, but not to its git history: "
            raise GitError(words + git_words(error, self.registry), output=error.output) from error


def _read(file: Path) -> Profile | BrokenProfile:
    try:
        with file.open("rb") as opened:
            profile = parse_profile(opened.read(_LARGEST))
    except OSError as error:
        return _broken_profile(file, str(error.strerror))
    except UsageError as error:
        return _broken_profile(file, str(error))
    return profile if profile.name == file.stem else _broken_profile(file, "its name is not the file's")


def _broken_profile(file: Path, why: str) -> BrokenProfile:
    where = str(file.parent.parent)
    back = shlex.join(["git", "-C", where, "checkout", "--", f"{ACCOUNTS}/{file.name}"])
    return BrokenProfile(
        file.stem, file, f"cannot understand {file} ({why}); mend it, or bring it back with {back}"
    )
