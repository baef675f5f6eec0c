"""The guards under ``FLYBALL_HOME/guards``: put there whole, looked at before every launch.

    lib/    the guard itself, a copy of these modules
    bin/    shims, in front of everything else on an agent's PATH
    hooks/  git's hooks: the wall, and for every other hook the project's own
    wards/  the policy of each agent
    claude.json   settings that make Claude Code ask the guard

Everything but the policies is made of the installed flyball alone, so it can be compared: a file that
differs, is missing, or does not belong there is put right, and said.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shlex
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from flyball.errors import StoreReadOnlyError
from flyball.factory.guards.git_rules import READS
from flyball.factory.guards.policy import GuardPolicy, load_policy, policy_key, words
from flyball.factory.guards.program_rules import PROGRAMS
from flyball.host.atomic_file import UNFINISHED, replace_file
from flyball.host.lock_file import LockFile

FOLDER, STAMP = "guards", "stamp"
_MODULES = ("guard", "policy", "git_rules", "program_rules", "shell_parser", "shell_rules")
_PACKAGE = "lib/flyball/factory/guards"
_ENTRY = """import sys

sys.path.insert(0, {lib!r})
from flyball.factory.guards.guard import entry

entry()
"""
_EMPTY = ("lib/flyball/__init__.py", "lib/flyball/factory/__init__.py", f"{_PACKAGE}/__init__.py")
_OTHER_HOOKS = words(
    "applypatch-msg pre-applypatch post-applypatch pre-commit pre-merge-commit prepare-commit-msg commit-msg "
    "post-commit pre-rebase post-checkout post-merge post-rewrite"
)
_STUCK_S = 60.0
TOOLS = "Bash|Write|Edit|MultiEdit|NotebookEdit"

_QUICK = """wall() {{
  [ -n "$FLYBALL_GUARD" ] && [ -z "$GIT_CONFIG_PARAMETERS" ] || return 1
  [ "$GIT_CONFIG_KEY_0" = core.hooksPath ] || return 1
  [ "$GIT_CONFIG_VALUE_0" = {hooks} ] && [ "$GIT_CONFIG_COUNT" -ge 3 ] 2>/dev/null || return 1
  number=1
  while [ "$number" -lt "$GIT_CONFIG_COUNT" ]; do
    eval "key=\\$GIT_CONFIG_KEY_$number"
    case "$key" in gc.auto|maintenance.auto|url.flyball-refuses-to-push:.pushInsteadOf) ;; *) return 1;; esac
    number=$((number + 1))
  done
}}
plain() {{
  for word do
    case "$word" in
      --oneline|--only|--ours|--objects) ;;
      --o*|--up*|--ex*|--rem*|--rec*|--pref*|-[oOux]*|-[!-]*[oOux]*) return 1;;
    esac
  done
}}
case "$1" in init|clone) ;; {verbs})
  if wall && plain "$@"; then
    IFS=:
    for place in $PATH; do [ "$place/git" -ef "$0" ] || [ ! -x "$place/git" ] || exec "$place/git" "$@"; done
  fi;;
esac"""
_DELEGATE = """#!/bin/sh
# The project's own {name}, which core.hooksPath would hide.
common=$(git rev-parse --git-common-dir) || exit 0
common=$(cd "$common" && pwd -P)
own=$common/hooks
if [ "$common" = "$FLYBALL_GUARD_COMMON" ]; then own=$FLYBALL_GUARD_HOOKS; fi
if [ -x "$own/{name}" ]; then exec "$own/{name}" "$@"; fi
exit 0
"""


class Guards:
    """The guards of one home."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home / FOLDER
        self.bin, self.hooks = self.folder / "bin", self.folder / "hooks"
        self.policies, self.settings = self.folder / "wards", self.folder / "claude.json"

    def wrong_files(self) -> list[str]:
        """Files that are missing, changed, or do not belong there, by their names."""
        wanted = self._expected_files()
        found = [name for name, (text, mode) in wanted.items() if not _is(self.folder / name, text, mode)]
        return sorted([*found, *self._foreign_files(wanted)])

    def changed_files(self) -> list[str]:
        """Files that were changed since this flyball put them there."""
        return self.wrong_files() if _is(self.folder / STAMP, self._stamp(), 0o600) else []

    def _stamp(self) -> bytes:
        """What tells the guards of one flyball from those of another."""
        digest = hashlib.sha256()
        for name, (text, mode) in sorted(self._expected_files().items()):
            digest.update(f"{name} {mode} {len(text)}\n".encode() + text)
        return f"{digest.hexdigest()}\n".encode()

    def install(self) -> list[str]:
        """Put right what is wrong; the files that had been changed, those of another flyball's guards not
        counted."""
        if not self.wrong_files():
            return []
        changed = self.changed_files()
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = LockFile.of(str(self.home / "guards.lock"), stuck_after_s=_STUCK_S)
            lock.acquire()
            try:
                self._write()
            finally:
                lock.release()
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise  # a full disk has words of its own
            words = f"cannot install guards in {self.folder} ({error.strerror or error})"
            raise StoreReadOnlyError(f"{words}; set FLYBALL_HOME to a folder you can write to") from error
        return changed

    def _write(self) -> None:
        wanted = self._expected_files()
        for name in self._foreign_files(wanted):
            (self.folder / name).unlink(missing_ok=True)
        for name, (text, mode) in wanted.items():
            path = self.folder / name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is(path, text, mode):
                replace_file(path, text, mode=mode)
        replace_file(self.folder / STAMP, self._stamp())

    def _foreign_files(self, wanted: Mapping[str, object]) -> list[str]:
        """What Python, a shell or git might find there before ours."""
        found = []
        for part in ("lib", "bin", "hooks"):
            for place, _, names in os.walk(self.folder / part):
                under = Path(place).relative_to(self.folder)
                found += [str(under / name) for name in names if str(under / name) not in wanted]
        return found

    def _expected_files(self) -> dict[str, tuple[bytes, int]]:
        here = Path(__file__).parent
        files = {f"{_PACKAGE}/{name}.py": ((here / f"{name}.py").read_bytes(), 0o600) for name in _MODULES}
        files |= dict.fromkeys(_EMPTY, (b"", 0o600))
        files["guard.py"] = (_ENTRY.format(lib=str(self.folder / "lib")).encode(), 0o600)
        # Most of what is asked of git needs no look: a shell that starts in a millisecond passes it on.
        quick = _QUICK.format(verbs="|".join(sorted(READS)), hooks=shlex.quote(str(self.hooks)))
        for name in ("git", *sorted(PROGRAMS)):
            first = quick if name == "git" else ""
            files[f"bin/{name}"] = (self._script(f'shim {name} "$@"', first=first), 0o700)
        files["hooks/pre-push"] = (self._script('pre-push "$@"'), 0o700)
        files["hooks/reference-transaction"] = (
            self._script('reference-transaction "$@"', first='[ "$1" = prepared ] || exit 0'),
            0o700,
        )
        for name in _OTHER_HOOKS:
            files[f"hooks/{name}"] = (_DELEGATE.format(name=name).encode(), 0o700)
        files["claude.json"] = (json.dumps(self.claude_settings(), indent=2).encode() + b"\n", 0o600)
        return files

    def _script(self, args: str, first: str = "") -> bytes:
        lines = ["#!/bin/sh", *([first] if first else []), f"exec {self.command} {args}", ""]
        return "\n".join(lines).encode("utf-8", "surrogateescape")

    @property
    def command(self) -> str:
        """How the guard is called, for a shell."""
        guard = str(self.folder / "guard.py")
        return shlex.join([sys.executable, "-I", "-S", "-B", guard])

    def claude_settings(self) -> dict[str, object]:
        """What Claude Code is told on its command line, over the project's and the user's own settings."""
        asks = {"type": "command", "command": f"{self.command} hook", "timeout": 60}
        return {"disableAllHooks": False, "hooks": {"PreToolUse": [{"matcher": TOOLS, "hooks": [asks]}]}}

    # -- policies ---------------------------------------------------------------------------------------

    def write_policy(self, policy: GuardPolicy) -> Path:
        """What one agent is kept to, for the guards beside it."""
        self.policies.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._forget_old()
        path = self.policies / f"{policy_key(policy.worktree)}.json"
        replace_file(path, json.dumps(policy._asdict()).encode())
        return path

    def _forget_old(self) -> None:
        """Policies of worktrees that are gone, and what a process killed while writing one left long ago."""
        for path in self.policies.glob("*.json"):
            with suppress(OSError, ValueError, TypeError):
                if not os.path.isdir(load_policy(str(path)).worktree):
                    path.unlink()
        for left in self.policies.glob(UNFINISHED):
            with suppress(OSError):
                if time.time() - left.stat().st_mtime > _STUCK_S:
                    left.unlink()


def _is(path: Path, text: bytes, mode: int) -> bool:
    try:
        return not path.is_symlink() and path.read_bytes() == text and path.stat().st_mode & 0o777 == mode
    except OSError:
        return False
