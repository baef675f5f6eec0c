"""Reading a command line: which program it really runs, and which of its words are not options.

``npx -y @openai/codex@latest exec`` and ``env A=1 nice -n 5 /usr/bin/codex exec`` both run codex. Pure, and
light to import: every ``flyball exec`` asks.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

_PLAIN = frozenset(
    {"env", "nohup", "setsid", "stdbuf", "time", "command", "caffeinate", "exec", "ionice", "nice"}
)
_RUNNERS = frozenset({"npx", "bunx", "pnpx"})
_PACKAGE_MANAGERS = {"npm": ("exec", "x"), "pnpm": ("dlx", "exec"), "yarn": ("dlx",), "bun": ("x",)}
_SCRIPTS = frozenset({"node", "bun", "deno", "nodejs"})
_WITH_VALUE = frozenset(
    {"-n", "-c", "-u", "-C", "-S", "-i", "-o", "-e", "-k", "-s", "-p", "--package", "--import"}
)
_DEPTH = 8


def program_words(argv: Sequence[str]) -> Sequence[str]:
    """The command line from the program itself on, past whatever only launches it.

    >>> program_words(["env", "A=1", "nice", "-n", "5", "codex", "exec"])
    ['codex', 'exec']
    """
    words = list(argv)
    for _ in range(_DEPTH):
        rest = _past_launcher(words)
        if rest is None:
            return words
        words = rest
    return words


def split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """What launches, and the program with its words."""
    program = list(program_words(argv))
    return list(argv[: len(argv) - len(program)]), program


def with_options(argv: Sequence[str], options: Sequence[str]) -> list[str]:
    """The command line with options right behind the program's name.

    >>> with_options(["nice", "codex", "exec", "-"], ["-c", "a=1"])
    ['nice', 'codex', '-c', 'a=1', 'exec', '-']
    """
    launcher, program = split(argv)
    return [*launcher, *program[:1], *options, *program[1:]]


def program_name(words: Sequence[str]) -> str:
    """The name of a program or package, without its folder, version and ending.

    >>> program_name(["/opt/bin/claude.exe"]), program_name(["@openai/codex@1.2"])
    ('claude', '@openai/codex')
    """
    if not words:
        return ""
    first = words[0].replace("\\", "/")
    if first.startswith("@"):
        scope, _, rest = first[1:].partition("/")
        return f"@{scope}/{rest.partition('@')[0]}"
    name = os.path.basename(first).partition("@")[0]
    for ending in (".exe", ".cmd", ".js", ".mjs", ".cjs"):
        name = name.removesuffix(ending)
    return name


def _past_launcher(words: list[str]) -> list[str] | None:
    """What a launcher launches; None if the first word is not a launcher."""
    if len(words) < 2:
        return None
    name = program_name(words)
    second = words[1]
    if name in _PACKAGE_MANAGERS and second in _PACKAGE_MANAGERS[name]:
        return _past_options(words[2:])
    if name == "timeout":
        return _past_options(words[1:])[1:] or None
    if name == "direnv" and second == "exec":
        return words[3:] or None
    if name in _PLAIN or name in _RUNNERS or name in _SCRIPTS:
        return _past_options(words[1:])
    return None


def _past_options(words: list[str]) -> list[str]:
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--":
            return words[at + 1 :]
        if word.startswith("-"):
            at += 2 if word in _WITH_VALUE else 1
        elif "=" in word and word.partition("=")[0].isidentifier():
            at += 1
        else:
            break
    return words[at:]


def simple_commands(command: str) -> list[str]:
    """The commands that a shell command is made of, for runtimes that permit each by itself.

    >>> simple_commands("cd web && npm test -- --ci 'a && b' | tee log; true")
    ['cd web', "npm test -- --ci 'a && b'", 'tee log', 'true']
    """
    import shlex

    lexer = shlex.shlex(command, posix=False, punctuation_chars="&|;")
    lexer.whitespace_split, lexer.commenters = True, ""
    parts: list[list[str]] = [[]]
    try:
        for token in lexer:
            if set(token) <= set("&|;"):
                parts.append([])
            else:
                parts[-1].append(token)
    except ValueError:
        return [command]
    return [" ".join(part) for part in parts if part]


def positions(words: Sequence[str], *, one: Collection[str], many: Collection[str] = ()) -> list[int]:
    """Where the words are that are neither options nor their values.

    ``one`` lists the options that take the next word, ``many`` those that take every word up to the next
    option.
    """
    found: list[int] = []
    at = 1
    while at < len(words):
        word = words[at]
        if word == "--":
            return found + list(range(at + 1, len(words)))
        if word in many:
            at += 1
            while at < len(words) and not words[at].startswith("-"):
                at += 1
            continue
        if word in one:
            at += 1
        elif not word.startswith("-") or word == "-":
            found.append(at)
        at += 1
    return found


def defaults(said: Sequence[str], *options: tuple[str, ...]) -> list[str]:
    """Options of ours, each ``--name`` or ``--name=value`` followed by other names for the same thing.

    One that ``said`` names stays away: many programs take a repeated option for an error or for a list. An
    empty one is none.

    >>> defaults(["-m", "opus"], ("--verbose",), ("--model=sonnet", "-m"), ("", "--resume"))
    ['--verbose']
    """
    named = said[: said.index("--")] if "--" in said else said
    return [
        option
        for option, *others in options
        if option and not any(_names(word, name) for word in named for name in (_name(option), *others))
    ]


def _name(option: str) -> str:
    return option.partition("=")[0]


def _names(word: str, name: str) -> bool:
    """``-mopus`` names ``-m``."""
    return _name(word) == name if name.startswith("--") else word.startswith(name)


def without(words: Sequence[str], *, flags: Collection[str] = (), valued: Collection[str] = ()) -> list[str]:
    """A command line without some options; ``valued`` ones go with their value, if one follows."""
    kept: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--":
            return kept + list(words[at:])
        if word in valued:
            at += 2 if at + 1 < len(words) and not words[at + 1].startswith("-") else 1
        elif word in flags or word.partition("=")[0] in valued:
            at += 1
        else:
            kept.append(word)
            at += 1
    return kept
