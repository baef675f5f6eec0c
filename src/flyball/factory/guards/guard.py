"""The guard: a small program that says no beside an agent. It runs from its copy under ``FLYBALL_HOME``.

    guard.py hook                    Claude Code asks before it uses a tool: the call on stdin, exit 2 is no
    guard.py shim NAME ARGS          in front of git, gh, glab, bd and flyball on PATH
    guard.py pre-push NAME ADDRESS   git's own hooks: the wall, which needs no reading of command lines
    guard.py reference-transaction STATE

The wall hangs on git settings in the environment. So it also stands in front of a git that is called by its
full path, from a script, under another name: what moves a ref or pushes asks here. flyball's own git runs
without that environment.

Whatever goes wrong in here is a no.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise

from flyball.factory.guards import git_rules, program_rules
from flyball.factory.guards.policy import GuardPolicy, common_dir, find_policy, outside_words

NO = 2
NO_POLICY = (
    "nothing says which agent this is; work in your worktree, with the environment that you were given"
)
# The copy lies in a folder like the package it comes from: <place>/lib/flyball/factory/guards/guard.py
_PLACE = os.path.abspath(os.path.join(os.path.realpath(__file__), *[os.pardir] * 5))
POLICIES = os.path.join(_PLACE, "wards")
_BIN = os.path.join(_PLACE, "bin")
_GIT_S = 20.0


class Guard:
    """For one policy and one folder."""

    def __init__(self, policy: GuardPolicy, *, environ: Mapping[str, str], cwd: str) -> None:
        self.policy, self.cwd = policy, cwd
        self._environ = environ

    # -- command lines ------------------------------------------------------------------------------------

    def argv_refusal(self, argv: Sequence[str], cwd: str) -> str | None:
        """What is wrong with one command of a guarded program."""
        if git_rules.program(argv[0]) != "git":
            return program_rules.refusal(argv)
        asks = git_rules.GitQueries(
            alias=lambda before, name: self._git(cwd, *before, "config", "--get", f"alias.{name}"),
            branch=lambda before, name: bool(
                self._git(cwd, *before, "rev-parse", "--verify", "--quiet", f"refs/heads/{name}")
            ),
            common=lambda before: self._common(cwd, before),
            text=lambda text: self.text_refusal(text, cwd),
            writes=lambda before, path: self.policy.may_write(path, cwd=_folder(cwd, before)),
        )
        return git_rules.refusal(argv, self.policy, asks)

    def text_refusal(self, text: str, cwd: str) -> str | None:
        """What is wrong with a line of shell."""
        from flyball.factory.guards.shell_rules import ShellRules  # a shim has milliseconds

        return ShellRules(self.policy, self.argv_refusal).refusal(text, cwd=cwd)

    def _common(self, cwd: str, before: Sequence[str]) -> str:
        found = self._git(cwd, *before, "rev-parse", "--git-common-dir")
        return os.path.realpath(os.path.join(_folder(cwd, before), found)) if found else ""

    def _git(self, cwd: str, *args: str) -> str:
        if not os.path.isdir(cwd):
            # A folder that is still to be made; the shim will be asked there.
            return ""
        import subprocess  # a shim has milliseconds, and seldom asks

        real = real_program("git", self._environ, self.policy.bin)
        done = subprocess.run(
            [real, *args],
            cwd=cwd,
            env=dict(self._environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_S,
            check=False,
        )
        return done.stdout.decode("utf-8", "surrogateescape").strip() if done.returncode == 0 else ""

    # -- tools --------------------------------------------------------------------------------------------

    def tool_refusal(self, tool: str, given: Mapping[str, object]) -> str | None:
        """What is wrong with a tool that Claude Code is about to use."""
        if tool == "Bash":
            return self.text_refusal(str(given.get("command", "")), self.cwd)
        path = given.get("file_path") or given.get("notebook_path")
        if tool in ("Write", "Edit", "MultiEdit", "NotebookEdit"):
            if not path:
                return "it is not said which file is to be written"
            if not self.policy.may_write(str(path), cwd=self.cwd):
                return outside_words(str(path), self.policy)
        return None

    # -- git's own hooks ------------------------------------------------------------------------------------

    def push_refusal(self, address: str, common: str) -> str | None:
        """A push from a repository of the agent's own to another one of its own is its business."""
        path = address.removeprefix("file://")
        local = path.startswith(("/", ".")) and self.policy.may_change(path, cwd=self.cwd)
        own = not self.policy.is_guarded(common) and local
        return None if own else "an agent does not push: flyball lands its branch"

    def refs_refusal(self, lines: str, common: str) -> str | None:
        if not self.policy.is_guarded(common):
            own = self.policy.may_change(common, cwd=self.cwd)
            return None if own else "this repository is not the agent's: it works in its own"
        for line in lines.splitlines():
            ref = line.split(" ", 2)[-1]
            if not self.policy.may_move(ref, common):
                return f"{ref} is not an agent's to move: its own branch is {self.policy.branch}"
        return None


def _folder(cwd: str, before: Sequence[str]) -> str:
    """Where git runs, with these options of its own."""
    for flag, value in pairwise(before):
        cwd = os.path.join(cwd, value) if flag == "-C" else cwd
    return cwd


def real_program(name: str, environ: Mapping[str, str], shims: str) -> str:
    """The program behind the shims."""
    places = environ.get("PATH", os.defpath).split(os.pathsep)
    for place in places:
        found = os.path.join(place or ".", name)
        runs = os.path.isfile(found) and os.access(found, os.X_OK)
        if runs and os.path.realpath(place or ".") != os.path.realpath(shims):
            return found
    raise FileNotFoundError(f"{name} was not found on PATH")


def with_git_settings(environ: Mapping[str, str], policy: GuardPolicy) -> dict[str, str]:
    """The environment with the wall's settings in it, behind all others: the last one counts."""
    count = int(environ.get("GIT_CONFIG_COUNT") or 0)
    there = [[environ.get(f"GIT_CONFIG_KEY_{n}"), environ.get(f"GIT_CONFIG_VALUE_{n}")] for n in range(count)]
    stands = len(there) >= len(policy.settings) and there[-len(policy.settings) :] == policy.settings
    missing = [] if stands else policy.settings
    # What a git around this one set with -c would count for more.
    added = {key: value for key, value in environ.items() if key != "GIT_CONFIG_PARAMETERS"}
    for number, (key, value) in enumerate(missing, count):
        added[f"GIT_CONFIG_KEY_{number}"], added[f"GIT_CONFIG_VALUE_{number}"] = key, value
    return {**added, "GIT_CONFIG_COUNT": str(count + len(missing))}


# -- the doors ---------------------------------------------------------------------------------------------


def hook(guard: Guard | None, environ: Mapping[str, str], cwd: str) -> int:
    call = json.load(sys.stdin)
    cwd = call.get("cwd") or cwd
    if guard is None:
        return _answer(NO_POLICY)
    told = Guard(guard.policy, environ=environ, cwd=cwd).tool_refusal(
        call["tool_name"], call.get("tool_input") or {}
    )
    return _answer(told)


def shim(guard: Guard | None, name: str, args: Sequence[str], environ: Mapping[str, str]) -> int:
    if guard is None:
        return _answer(NO_POLICY)
    if refused := guard.argv_refusal([name, *args], guard.cwd):
        return _answer(refused)
    env = with_git_settings(environ, guard.policy) if name == "git" else dict(environ)
    try:
        os.execve(real_program(name, environ, _BIN), [name, *args], env)  # noqa: S606 - what a shim is for
    except FileNotFoundError as error:
        print(f"flyball: {error}", file=sys.stderr)
        return 127


def _answer(refused: str | None) -> int:
    if refused is None:
        return 0
    print(f"flyball: refused: {refused}", file=sys.stderr)
    return NO


def main(argv: Sequence[str]) -> int:
    environ, cwd = os.environ, os.getcwd()
    policy = find_policy(POLICIES, environ=environ, cwd=cwd)
    guard = Guard(policy, environ=environ, cwd=cwd) if policy is not None else None
    if argv[0] == "hook":
        return hook(guard, environ, cwd)
    if argv[0] == "shim":
        return shim(guard, argv[1], argv[2:], environ)
    if guard is None:
        return _answer(NO_POLICY)
    common = common_dir(environ, cwd)
    if argv[0] == "pre-push":
        return _answer(guard.push_refusal(argv[2], common))
    return _answer(guard.refs_refusal(sys.stdin.read(), common))


def entry() -> None:
    """The program, as ``guards/guard.py`` calls it."""
    try:
        code = main(sys.argv[1:])
    except Exception as error:  # a guard that fails says no
        print(f"flyball: refused: the guard failed ({type(error).__name__}: {error})", file=sys.stderr)
        code = NO
    sys.exit(code)
