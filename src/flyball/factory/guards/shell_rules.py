"""What an agent may type into a shell, as far as it can be told before it runs.

Programs that start others (``env``, ``xargs``, ``timeout``, ``find -exec``) are looked through, shells and
``eval`` are read, and code for an interpreter is searched for git. A program that only the shell would know
is taken for git. Output and the usual writers must stay where the agent may write.

This is the fence, which says no early and says why. What it misses meets the shims and the wall.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from flyball.factory.guards import program_rules
from flyball.factory.guards.git_rules import PLAIN_REFUSALS, program, read_call
from flyball.factory.guards.policy import GuardPolicy, outside_words
from flyball.factory.guards.policy import words as words_of
from flyball.factory.guards.shell_parser import ShellCommand, Word, commands_in

_KEYWORDS = words_of("if then else elif do while until ! { } time coproc")
_WRAPPERS = words_of(
    "env command builtin exec nohup nice ionice timeout stdbuf setsid sudo doas xargs find parallel watch "
    "strace unbuffer chronic direnv busybox script flock chrt taskset unshare nsenter bwrap firejail"
)
_SHELLS = words_of("sh bash dash zsh ksh ash fish su")
_INTERPRETERS = re.compile(r"^(python[\d.]*|pypy[\d.]*|perl|ruby|node|deno|bun|php|lua|tclsh|awk|gawk)$")
_LAST = words_of("cp mv ln install rsync")
_ALL = words_of("rm rmdir mkdir touch truncate tee chmod chown chgrp unlink shred")
_NOWHERE = ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/fd/")
_CODE = re.compile(r"""[\s"'`,;()\[\]{}+]+""")

JudgeArgv = Callable[[Sequence[str], str], str | None]
"""What is wrong with a command of git, gh and the like, run in a folder."""


class ShellRules:
    def __init__(self, policy: GuardPolicy, judge: JudgeArgv) -> None:
        self._policy, self._judge = policy, judge

    def refusal(self, text: str, *, cwd: str) -> str | None:
        """Why an agent may not run this text, or None."""
        try:
            commands = commands_in(text)
        except ValueError as error:
            return f"this cannot be read as shell ({error}); say it more plainly"
        for command in commands:
            words = command.words
            while words and words[0].text in _KEYWORDS:
                words = words[1:]
            if words and words[0].text in ("cd", "pushd") and len(words) > 1 and words[1].sure:
                cwd = os.path.normpath(os.path.join(cwd, os.path.expanduser(words[1].text)))
            found = self._write_refusal(command, words, cwd) or self._run_refusal(command, words, cwd)
            if found:
                return found
        return None

    # -- running ------------------------------------------------------------------------------------------

    def _run_refusal(self, command: ShellCommand, words: list[Word], cwd: str) -> str | None:
        words = _after_assignments(words)
        if not words:
            return None
        name = program(words[0].text)
        if words[0].text.startswith("{") and "," in words[0].text:
            words = [Word(part) for part in words[0].text.strip("{}").split(",")] + words[1:]
            name = program(words[0].text)
        elif not words[0].sure:
            return self._unsure_refusal(words)
        if name in _WRAPPERS:
            return self._wrapper_refusal(name, words, command, cwd)
        if name in _SHELLS:
            return self._shell_refusal(words, command, cwd)
        if name in ("eval", "trap", "alias", "source", "."):
            return self.refusal(_evaluated_text(name, words), cwd=cwd)
        if _INTERPRETERS.match(name):
            return self._code_refusal(words, command, cwd)
        return self._program_refusal(name, words, cwd)

    def _program_refusal(self, name: str, words: list[Word], cwd: str) -> str | None:
        if name != "git" and name not in program_rules.PROGRAMS:
            return None
        argv = [name, *(word.text for word in words[1:])]
        call = read_call(argv)
        verb = call.verb if name == "git" else ""
        if any(not word.sure for word in words[1 : len(call.before) + 1]) and (
            found := self._unsure_refusal(words)
        ):
            return found
        if any(not word.sure and word.text == verb for word in words[1:] if verb):
            return "say the verb of git plainly, so that it can be told whether an agent may"
        return self._judge(argv, cwd)

    def _unsure_refusal(self, words: list[Word]) -> str | None:
        """Who knows what it will be: if it reads like a forbidden git, it is taken for one."""
        verb = read_call(["git", *(word.text for word in words[1:])]).verb
        if verb in PLAIN_REFUSALS:
            return f"an agent may not {verb}, however git is called"
        return None

    def _wrapper_refusal(self, name: str, words: list[Word], command: ShellCommand, cwd: str) -> str | None:
        for at in range(1, len(words)):
            inner = program(words[at].text)
            if inner == "git" and at == len(words) - 1 and name in ("xargs", "parallel"):
                return "say the verb of git plainly, so that it can be told whether an agent may"
            known = inner == "git" or inner in program_rules.PROGRAMS
            if (
                known
                or inner in _SHELLS
                or inner in _WRAPPERS
                or _INTERPRETERS.match(inner)
                or inner == "eval"
            ):
                return self._run_refusal(command, words[at:], cwd)
            if not words[at].sure and (found := self._unsure_refusal(words[at:])):
                return found
            if words[at].text in ("-S", "--split-string", "-c") and at + 1 < len(words):
                return self.refusal(words[at + 1].text, cwd=cwd)
        return None

    def _shell_refusal(self, words: list[Word], command: ShellCommand, cwd: str) -> str | None:
        texts = list(command.inputs)
        for flag, value in pairwise(words[1:]):
            if flag.text.startswith("-") and not flag.text.startswith("--") and flag.text.endswith("c"):
                texts.append(value.text)
                break
        return next(filter(None, (self.refusal(text, cwd=cwd) for text in texts)), None)

    def _code_refusal(self, words: list[Word], command: ShellCommand, cwd: str) -> str | None:
        """Code that names git and a forbidden verb beside it."""
        plain = [word.text for word in words]
        for at, text in enumerate(plain[1:], 1):
            if text.startswith("-") and text.endswith("m") and plain[at + 1 : at + 2] == ["flyball"]:
                return self._judge(["flyball", *plain[at + 2 :]], cwd)
            if text.startswith("-") and text.endswith("mflyball"):
                return self._judge(["flyball", *plain[at + 1 :]], cwd)
            if not text.startswith("-"):
                break
        for text in (*(word.text for word in words[1:]), *command.inputs):
            tokens = [token for token in _CODE.split(text) if token]
            for at, token in enumerate(tokens):
                if program(token) == "git" and (
                    found := self._judge(["git", *tokens[at + 1 : at + 12]], cwd)
                ):
                    return found
        return None

    # -- writing ------------------------------------------------------------------------------------------

    def _write_refusal(self, command: ShellCommand, words: list[Word], cwd: str) -> str | None:
        for word in (*command.writes, *_written_paths(_after_assignments(words))):
            path = os.path.expandvars(word.text)
            if "$" in path or "`" in path or path.startswith(_NOWHERE):
                continue
            if path and not self._policy.may_write(path, cwd=cwd):
                return outside_words(path, self._policy)
        return None


def _after_assignments(words: list[Word]) -> list[Word]:
    while words and re.match(r"^[A-Za-z_][A-Za-z0-9_]*\+?=", words[0].text):
        words = words[1:]
    return words


def _evaluated_text(name: str, words: list[Word]) -> str:
    texts = [word.text for word in words[1:]]
    if name == "alias":
        return "\n".join(text.partition("=")[2] for text in texts)
    if name in ("source", "."):
        return ""
    return " ".join(texts if name == "eval" else texts[:1])


def _written_paths(words: list[Word]) -> Iterator[Word]:
    if not words:
        return
    name, args = program(words[0].text), words[1:]
    plain = [word for word in args if not word.text.startswith("-")]
    if name in _ALL:
        # The first word of these is a mode or an owner.
        yield from plain[1:] if name in ("chmod", "chown", "chgrp") else plain
    elif name in _LAST and len(plain) > 1:
        yield plain[-1]
        if name == "mv":
            yield from plain[:-1]
    elif name == "dd":
        yield from (Word(word.text[3:], word.sure) for word in args if word.text.startswith("of="))
    elif name == "sed" and any(re.match(r"^(-[a-zA-Z]*i|--in-place)", word.text) for word in args):
        yield from plain[1:]
