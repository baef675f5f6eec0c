"""Our entries in an agent's settings: put in beside what is there, and taken out again.

``install`` keeps the file's bytes of before in ``FLYBALL_HOME/hooks``. Where the file is since then as we
left it, ``remove`` puts these bytes back. Where it was changed, it takes out our entries alone, and all else
stays as it is. What cannot be read or understood is refused, and nothing is written.

A link stays a link: what it points to is replaced, whole or not at all, with the mode it had.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import re
import shlex
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flyball.errors import UsageError
from flyball.governor.state_url import home
from flyball.hooks.json_text import JsonNode, JsonTextError, insert_child, parse_json_text, remove_child
from flyball.hooks.opencode import MARK, OpencodeHooks
from flyball.hooks.port import WAIT_S, HookRuntime
from flyball.host.atomic_file import UNFINISHED, replace_file
from flyball.host.lock_file import LockFile

_OURS = re.compile(r" -P -m flyball\.hooks (?P<runtime>[a-z]+) (?P<event>\w+) (?P<wait>\d+)$")
_HOOKS = "hooks"


@dataclass(frozen=True, slots=True)
class Installed:
    """What an agent's settings have of ours."""

    runtime: str
    path: Path
    events: tuple[str, ...]
    python: tuple[str, ...]
    """The interpreters that are called; one, unless several flyballs put something in."""
    wait_s: float | None

    @property
    def lost(self) -> tuple[str, ...]:
        """Those that are not there any more."""
        return tuple(each for each in self.python if not os.access(each, os.X_OK))

    @property
    def foreign(self) -> tuple[str, ...]:
        """Those that are another flyball's."""
        return tuple(each for each in self.python if each not in self.lost and each != sys.executable)


def hook_command(runtime: str, event: str, wait_s: float) -> str:
    """What an agent's shell runs. Where that flyball is gone, the agent goes on without an error."""
    python = shlex.quote(sys.executable)
    return f"[ -x {python} ] || exit 0; exec {python} -P -m flyball.hooks {runtime} {event} {round(wait_s)}"


def read_installed(runtime: HookRuntime, env: Mapping[str, str]) -> Installed | None:
    """What is there of ours; None: nothing. Raises UsageError for settings that cannot be understood."""
    path = runtime.settings_path(env)
    before = _read(path)
    if before is None:
        return None
    if isinstance(runtime, OpencodeHooks):
        return _read_plugin(path, before)
    found = [
        (event.key or "", command)
        for event, group in _groups(_parse(path, before))
        for command in _group_commands(group)
        if _OURS.search(command)
    ]
    if not found:
        return None
    matches = [(command, _OURS.search(command)) for _, command in found]
    pythons = dict.fromkeys(_python(command) for command, _ in matches)
    waits = [float(match["wait"]) for _, match in matches if match is not None]
    events = tuple(dict.fromkeys(event for event, _ in found))
    return Installed(runtime.name, path, events, tuple(pythons), max(waits) or None)


def install(runtime: HookRuntime, env: Mapping[str, str], *, wait_s: float = WAIT_S) -> bool:
    """Put our entries in; False: they were there already, as they should be."""
    path = runtime.settings_path(env)
    saved = _SavedSettings(runtime.name, path)
    with saved.lock():
        before = _read(path)
        clean = None
        if isinstance(runtime, OpencodeHooks):
            argv = [sys.executable, "-P", "-m", "flyball.hooks", "opencode"]
            after = runtime.plugin(argv, wait_s).encode()
            if before is not None and not before.startswith(MARK.encode()):
                raise UsageError(f"{path} is not of flyball's making; move it away and install again")
        else:
            clean = _without_entries(path, before, saved.content())
            after = _with_entries(runtime, path, before, clean, wait_s)
        if after == before:
            return False
        saved.keep(before=before, clean=clean, after=after)
        _write(path, after, before=before)
    return True


def remove(runtime: HookRuntime, env: Mapping[str, str]) -> bool:
    """Take our entries out; False: there were none."""
    path = runtime.settings_path(env)
    if read_installed(runtime, env) is None:
        return False
    saved = _SavedSettings(runtime.name, path)
    with saved.lock():
        before = _read(path)
        if before is None:
            return False
        original = saved.original(before)
        if original is not None:
            after = original.content
        elif isinstance(runtime, OpencodeHooks):
            after = None
        else:
            after = _without_entries(path, before, saved.content())
            if after is not None and saved.was_absent() and not _parse(path, after).children:
                after = None
        _write(path, after, before=before)
        saved.forget()
    return True


# -- entries ------------------------------------------------------------------------------------------------


def _with_entries(
    runtime: HookRuntime, path: Path, before: bytes | None, clean: bytes | None, wait_s: float
) -> bytes:
    """The settings with exactly our entries, and everything else as it was. ``clean``: without any."""
    wanted = [
        (entry.event, runtime.group(entry, command, wait_s))
        for entry in runtime.entries
        for command in (hook_command(runtime.name, entry.event, wait_s if entry.waits else 0.0),)
    ]
    if before is not None and _has_exactly(_parse(path, before), wanted):
        return before
    text = (clean or b"").decode()
    if not text.strip():
        text = "{}\n"
    for event, group in wanted:
        root = _parse(path, text.encode())
        hooks = root.member(_HOOKS)
        events = hooks.member(event) if hooks is not None else None
        if hooks is None:
            text = insert_child(text, root, {event: [group]}, key=_HOOKS)
        elif events is None:
            text = insert_child(text, hooks, [group], key=event, depth=1)
        else:
            text = insert_child(text, events, group, depth=2)
    return text.encode()


def _has_exactly(root: JsonNode, wanted: Sequence[tuple[str, dict[str, Any]]]) -> bool:
    ours = [
        (event.key or "", group.plain())
        for event, group in _groups(root)
        if any(_OURS.search(command) for command in _group_commands(group))
    ]
    return sorted(ours, key=str) == sorted(wanted, key=str)


def _without_entries(path: Path, before: bytes | None, original: bytes | None) -> bytes | None:
    """The settings without our entries, and without what only they were in and the original had not."""
    if before is None:
        return None
    _parse(path, before)
    text = before.decode()
    kept = _parse(path, original) if original is not None and original.strip() else None
    kept_hooks = kept.member(_HOOKS) if kept is not None else None
    while (cut := _without_one(text, _parse(path, text.encode()), kept_hooks)) is not None:
        text = cut
    return text.encode()


def _without_one(text: str, root: JsonNode, kept: JsonNode | None) -> str | None:
    """One step of the cleaning; None: nothing is left to do."""
    for event, group in _groups(root):
        inner = group.member(_HOOKS)
        if inner is None:
            continue
        ours = [hook for hook in inner.children if _OURS.search(_command(hook))]
        if not ours:
            continue
        if len(ours) < len(inner.children):
            return remove_child(text, inner, ours[0])
        if len(event.children) > 1 or (kept is not None and kept.member(event.key or "") is not None):
            return remove_child(text, event, group)
        hooks = root.member(_HOOKS)
        if hooks is None:
            return None
        if len(hooks.children) > 1 or kept is not None:
            return remove_child(text, hooks, event)
        return remove_child(text, root, hooks)
    return None


def _groups(root: JsonNode) -> list[tuple[JsonNode, JsonNode]]:
    hooks = root.member(_HOOKS)
    events = [event for event in hooks.children if event.is_list] if hooks is not None else []
    return [(event, group) for event in events for group in event.children if group.is_object]


def _group_commands(group: JsonNode) -> list[str]:
    inner = group.member(_HOOKS)
    return [_command(hook) for hook in inner.children] if inner is not None else []


def _command(hook: JsonNode) -> str:
    command = hook.member("command")
    return command.value if command is not None and isinstance(command.value, str) else ""


def _python(command: str) -> str:
    try:
        words = shlex.split(command)
        return words[words.index("exec") + 1]
    except (ValueError, IndexError):
        return ""


def _read_plugin(path: Path, before: bytes) -> Installed | None:
    if not before.startswith(MARK.encode()):
        return None
    text = before.decode("utf-8", "replace")
    command = re.search(r"^const COMMAND = (\[.*\]);$", text, re.MULTILINE)
    wait = re.search(r"^const WAIT_S = (\d+);$", text, re.MULTILINE)
    argv = json.loads(command[1]) if command is not None else [""]
    events = ("SessionStart", "tool.execute.before", "tool.execute.after")
    return Installed("opencode", path, events, (str(argv[0]),), float(wait[1]) if wait is not None else None)


# -- files --------------------------------------------------------------------------------------------------


def _read(path: Path) -> bytes | None:
    try:
        # A pipe would be waited for, and a device replaced.
        if not stat.S_ISREG(os.stat(path).st_mode) and not path.is_dir():
            raise OSError(errno.EINVAL, "it is a device or a pipe")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}; nothing was written. Make it a file that you may read"
        ) from error


def _parse(path: Path, content: bytes) -> JsonNode:
    """Raises UsageError for settings that we do not understand."""
    try:
        text = content.decode()
        root = parse_json_text(text if text.strip() else "{}")
        _check(root)
    except (UnicodeDecodeError, JsonTextError) as error:
        raise UsageError(
            f"cannot understand {path}: {error}; nothing was written. Mend it, or move it away, and try again"
        ) from None
    return root


def _check(root: JsonNode) -> None:
    if not root.is_object:
        raise JsonTextError("it is not an object")
    hooks = root.member(_HOOKS)
    if hooks is None:
        return
    if not hooks.is_object:
        raise JsonTextError("its hooks are not an object")
    for event in hooks.children:
        # Other keys than events may be there (gemini: "disabled"), and are none of ours.
        for group in event.children if event.is_list else ():
            inner = group.member(_HOOKS) if group.is_object else None
            if inner is not None and not inner.is_list:
                raise JsonTextError(f"the hooks of {event.key} are not a list")


def _write(path: Path, content: bytes | None, *, before: bytes | None) -> None:
    """Replace what is there, if that is still ``before``."""
    real = Path(os.path.realpath(path))
    try:
        if _read(real) != before:
            raise UsageError(
                f"{path} was changed by another program meanwhile; nothing was written. Try again"
            )
        if content is None:
            real.unlink(missing_ok=True)
            return
        real.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if before is None:
            replace_file(real, content, mode=0o600)
            return
        if not os.access(real, os.W_OK):
            raise PermissionError(errno.EACCES, "it is read-only")
        told = real.stat()
        replace_file(real, content, mode=stat.S_IMODE(told.st_mode), owner=(told.st_uid, told.st_gid))
    except OSError as error:
        raise UsageError(
            f"cannot write {real}: {error.strerror}; make it a file that you may write"
        ) from error


@dataclass(frozen=True, slots=True)
class _Original:
    content: bytes | None
    """None: there was no file."""


def _digest(content: bytes) -> str:
    from hashlib import sha256  # every exec of an agent asks what is installed, and few have anything

    return sha256(content).hexdigest()


class _SavedSettings:
    """The bytes that a settings file had before our entries. They may hold secrets, so they are private."""

    def __init__(self, runtime: str, path: Path) -> None:
        self._place = Path(os.path.realpath(path))
        self._folder = home() / "hooks"
        self._path = self._folder / f"{runtime}-{_digest(os.fsencode(self._place))[:16]}.json"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """One process at a time changes settings, and remembers what they were."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = LockFile.of(str(self._folder / "settings-lock"))
        lock.acquire()
        try:
            for left in self._place.parent.glob(UNFINISHED):
                left.unlink(missing_ok=True)
            yield
        finally:
            lock.release()

    def keep(self, *, before: bytes | None, clean: bytes | None, after: bytes) -> None:
        """``clean``: what was there without entries of an earlier install."""
        known = self.original(before)
        original = known.content if known is not None else clean
        ours = [after] if known is None or before is None else [before, after]
        said = {
            "path": str(self._place),
            "original": None if original is None else base64.b64encode(original).decode(),
            # Both, for an install that is killed before it writes the settings.
            "written": [_digest(each) for each in ours],
            "made": [*self._made(), *(str(each) for each in self._place.parents if not each.exists())],
        }
        replace_file(self._path, json.dumps(said).encode())

    def original(self, now: bytes | None) -> _Original | None:
        """The bytes of before, if the file is as we left it; None: it was changed, or nothing is known."""
        said = self._load()
        if said is None or now is None or _digest(now) not in said.get("written", ()):
            return None
        return _Original(self.content())

    def content(self) -> bytes | None:
        said = self._load()
        kept = said.get("original") if said is not None else None
        return base64.b64decode(kept) if isinstance(kept, str) else None

    def was_absent(self) -> bool:
        """Is it known that there were no settings?"""
        said = self._load()
        return said is not None and said.get("original") is None

    def _made(self) -> list[str]:
        """Folders that were made for the settings, the innermost first."""
        said = self._load()
        return list(said.get("made", ())) if said is not None else []

    def _load(self) -> dict[str, Any] | None:
        try:
            said = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return None
        return said if isinstance(said, dict) else None

    def forget(self) -> None:
        """Nothing of ours is in the settings any more."""
        if not self._place.exists():
            with suppress(OSError):
                for folder in self._made():
                    os.rmdir(folder)
        self._path.unlink(missing_ok=True)
