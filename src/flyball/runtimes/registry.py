"""Which runtimes there are, and how to tell which one a command line or an output belongs to.

Light on purpose: a runtime's module is imported when its reader is needed, not to find out that it is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, cast

from flyball.core.pool.settings import DEFAULT_POOL
from flyball.errors import UsageError
from flyball.runtimes.launch_arguments import program_name, program_words

if TYPE_CHECKING:
    from flyball.runtimes.port import Runtime

COMMAND = "command"
NAMES = ("claude", "codex", "gemini", "opencode", COMMAND)
_PROGRAMS = {
    "claude": "claude",
    "claude-code": "claude",
    "@anthropic-ai/claude-code": "claude",
    "codex": "codex",
    "@openai/codex": "codex",
    "gemini": "gemini",
    "gemini-cli": "gemini",
    "@google/gemini-cli": "gemini",
    "opencode": "opencode",
    "opencode-ai": "opencode",
}
_FOLDERS = {
    name: runtime for name, runtime in _PROGRAMS.items() if name.startswith("@") or name == "opencode-ai"
}
STREAMING = {
    "claude": "--verbose --output-format stream-json",
    "codex": "--json",
    "gemini": "--output-format stream-json",
    "opencode": "--format json",
}
"""How each is asked to print what happens as it happens; the last word decides."""
TELLING = frozenset({"claude", "codex", "gemini"})
"""Those that say so when a call of theirs is refused and tried again. opencode says nothing of it."""
_HEADLESS = {
    "claude": ("-p", "--print"),
    "codex": ("exec", "e", "review"),
    "gemini": ("-p", "--prompt"),
    "opencode": ("run",),
}
"""The option or the verb by which each runs one prompt to its end."""
_POOLS = {"claude": "anthropic", "codex": "openai", "gemini": "google"}


def runtime_of(argv: Sequence[str]) -> str:
    """The name of the runtime that a command line starts; ``command`` for any other.

    >>> runtime_of(["npx", "-y", "@openai/codex@latest", "exec", "..."]), runtime_of(["make", "test"])
    ('codex', 'command')
    """
    words = program_words(argv)
    found = _PROGRAMS.get(program_name(words))
    if found is None and words:
        # node /usr/lib/node_modules/@google/gemini-cli/dist/index.js
        path = words[0].replace("\\", "/")
        found = next((name for folder, name in _FOLDERS.items() if f"node_modules/{folder}/" in path), None)
    return found or COMMAND


def pool_of(argv: Sequence[str], runtime: str | None = None) -> str:
    """The pool a command line belongs to, by the agent it runs.

    >>> pool_of(["/usr/bin/codex", "exec"]), pool_of(["opencode", "run", "-m", "openai/gpt-5.5"])
    ('openai', 'openai')
    """
    name = runtime or runtime_of(argv)
    if name == "opencode":
        return _model_provider(program_words(argv)) or DEFAULT_POOL
    return _POOLS.get(name, DEFAULT_POOL)


def tells_refusals(argv: Sequence[str], runtime: str | None = None) -> bool:
    """Does this command line print at once that a call was refused? If not, only its end shows it.

    >>> tells_refusals(["claude", "-p", "--output-format=stream-json"]), tells_refusals(["claude", "-p"])
    (True, False)
    """
    name = runtime or runtime_of(argv)
    asked = STREAMING[name].rpartition(" ")[2] if name in TELLING else None
    return any(word.rpartition("=")[2] == asked for word in program_words(argv))


def is_headless(argv: Sequence[str], runtime: str | None = None) -> bool:
    """Does this command line run one prompt to its end, rather than talk to a person?

    >>> is_headless(["claude", "-cp", "go on"]), is_headless(["claude", "go on"])
    (True, False)
    """
    words = list(program_words(argv))[1:]
    options = words[: words.index("--")] if "--" in words else words
    asked = _HEADLESS.get(runtime or runtime_of(argv), ())
    return any(_is_asked(word, asked) for word in options)


def _is_asked(word: str, asked: Sequence[str]) -> bool:
    """Short options may stand together, and an option's value right behind it."""
    return word.partition("=")[0] in asked or ("-p" in asked and word.startswith(("-p", "-cp")))


def _model_provider(words: Sequence[str]) -> str:
    """opencode names its model ``provider/model``."""
    for flag, value in zip(words, [*words[1:], ""], strict=True):
        named = value if flag in ("-m", "--model") else ""
        named = flag.removeprefix("--model=") if flag.startswith("--model=") else named
        if "/" in named and not named.startswith("-"):
            return named.partition("/")[0]
    return ""


def load(name: str) -> Runtime:
    """A runtime by its name."""
    if name not in NAMES:
        raise UsageError(f"there is no runtime {name!r}; there are {', '.join(NAMES)}")
    return cast("Runtime", getattr(import_module(f"flyball.runtimes.{name}"), name.capitalize())())


def wrote(stdout: bytes, stderr: bytes = b"") -> Runtime:
    """The runtime whose output begins like this; ``command`` if it is not known."""
    return next(runtime for runtime in map(load, NAMES) if runtime.wrote(stdout, stderr))
