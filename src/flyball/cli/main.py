"""``flyball VERB ...``: find the verb, parse its arguments, turn errors into exit codes.

0   done            75  limited: no slot now, try later (EX_TEMPFAIL)
1   something is wrong with what was looked at (doctor)
2   wrong usage     74  the state or the output could not be read or written (EX_IOERR)
70  a bug in flyball (EX_SOFTWARE)
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Protocol, cast

from flyball import __version__
from flyball.cli.parser import Parser
from flyball.errors import AgentError, FlyballError, InvariantError, RefusedError, StoreError, UsageError
from flyball.host import exit_status

VERBS = {
    "exec": "run a command under a slot",
    "env": "lead a command's model calls through the gateway, a slot for each call",
    "gateway": "run, show or stop the loopback gateway",
    "hooks": "count the sessions that you start yourself, and their subagents",
    "run": "turn ready tasks into merged code",
    "board": "show what a run is doing, or how the last one left things",
    "tail": "show what a task's agent prints",
    "nudge": "give a task's agent a message",
    "merge": "land a task's finished work",
    "pr": "open pull requests, and see what became of them",
    "land": "land a pull request that people approved",
    "review": "have a pull request reviewed by an agent, and show what it says",
    "stop": "pause a run, or one task of it; everything is kept",
    "drain": "let a run finish what it does and start nothing more",
    "resize": "change how many agents a run has at once",
    "gc": "remove worktrees, branches and run folders that are not needed any more",
    "metrics": "summarise results: pace, cost, waste, waits",
    "status": "show every pool: who runs, who waits, and why",
    "why": "say in words why a task or process runs or waits",
    "pool": "set, show, reset, remove or import a pool",
    "lease": "list the leases of every pool, or drop one whose holder is gone",
    "machine": "set or show the limits over all pools",
    "quota": "show or set what an account may spend in its windows",
    "init": "make a repository a project: show every file it would write, and write it",
    "project": "add, list, show or remove the projects of this machine",
    "audit": "show who changed projects, accounts and quotas, and when API keys were spent from",
    "account": "say whose account agents may use, and check who is logged in",
    "task": "add, list and show tasks, see which could start now, and why one does not run",
    "persona": "list, show and install what agents are told to be",
    "validate": "check flyball.toml and the tasks without running anything",
    "classify": "judge from its output how an agent's run ended",
    "doctor": "find what is wrong with the state, and fix it",
    "demo": "many agents against a provider that answers 429, with and without the governor",
    "simulate": "try settings against providers with hidden limits, in simulated time",
    "serve": "the state over HTTP: a web page, an API, metrics",
    "token": "add, list or remove the tokens of flyball serve",
    "batch": "send prompts that need no repository, slow and cheap, with a key of their own",
    "completion": "print a completion script for your shell",
}

ELSEWHERE = {"top": "status --watch", "watch": "status --watch", "ps": "status", "list": "status"}
"""Words that people try first, for what another verb does."""


class Verb(Protocol):
    SUMMARY: str
    EXAMPLE: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


def main(argv: Sequence[str] | None = None) -> int:
    """The console script. Returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        try:
            return _run(words)
        finally:
            # What cannot be written shows here, not after the last word of ours, as Python's complaint.
            if sys.stdout is not None:
                sys.stdout.flush()
    except UsageError as error:
        return _fail(words, error, exit_status.USAGE)
    except RefusedError as error:
        return _fail(words, error, exit_status.LIMITED)
    except StoreError as error:
        return _fail(words, error, exit_status.STORE)
    except InvariantError as error:
        return _fail(words, error, exit_status.BUG)
    except AgentError as error:
        return _fail(words, error, error.exit_code)
    except FlyballError as error:
        return _fail(words, error, 1)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output went away (`flyball status | head`); nothing more can be said.
        _forget_output()
        return 1
    except OSError as error:
        _forget_output()
        return _fail(words, OSError(_os_words(error)), exit_status.STORE)


def _forget_output() -> None:
    """Python writes what is left of it when it ends, and would fail again."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _os_words(error: OSError) -> str:
    """What the system refused, and where."""
    try:
        os.getcwd()
    except OSError:
        return "the current folder does not exist any more; go to another one"
    where = f" {error.filename}" if error.filename is not None else ""
    return f"cannot read or write{where}: {error.strerror or error}"


def _run(words: list[str]) -> int:
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    elif words == ["version"]:
        words = ["--version"]
    verb = next((word for word in words if not word.startswith("-")), None)
    if "FLYBALL_GUARD" in os.environ:
        _refuse_agents(words)
    if verb in VERBS and words[0] == verb:
        module = load_verb(verb)
        parser = verb_parser(verb, module)
        return module.run(parser.parse_args(words[1:]))
    if verb in VERBS and words[0] not in ("-h", "--help", "-V", "--version"):
        raise UsageError(f"options come after the verb: flyball {verb} {words[0]}")
    if verb in ELSEWHERE:
        raise UsageError(f"there is no verb {verb!r}; try: flyball {ELSEWHERE[verb]}")
    build_parser().parse_args(words)
    build_parser().print_help()
    return 0


def _refuse_agents(words: list[str]) -> None:
    """An agent that found another way here than the shim on its PATH is told the same."""
    from flyball.factory.guards.program_rules import refusal

    if why := refusal(["flyball", *words]):
        raise UsageError(why)


def load_verb(name: str) -> Verb:
    # What is loaded here is never garbage, and looking for it would cost a tenth of the start.
    gc.disable()
    try:
        return cast(Verb, import_module(f"flyball.cli.commands.{name.replace('exec', 'exec_')}"))
    finally:
        gc.freeze()
        gc.enable()


class Help(argparse.RawDescriptionHelpFormatter):
    """Sentences are wrapped to the terminal, examples are left as they are."""

    def __init__(self, prog: str) -> None:
        # argparse makes one for every option, and would ask shutil for the width, which loads compressors.
        super().__init__(prog, width=_columns() - 2)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("example:"):
            return super()._fill_text(text, width, indent)
        return argparse.HelpFormatter._fill_text(self, text, width, indent)


def _columns() -> int:
    """The terminal's width, as shutil would find it."""
    try:
        return int(os.environ["COLUMNS"]) or 80
    except (KeyError, ValueError):
        pass
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or 80  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):
        return 80


def verb_parser(name: str, module: Verb) -> argparse.ArgumentParser:
    parser = Parser(
        prog=f"flyball {name}",
        description=module.SUMMARY,
        epilog=f"example:\n  {module.EXAMPLE.replace(chr(10), chr(10) + '  ')}",
        formatter_class=Help,
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    return parser


def build_parser(*, whole: bool = False) -> argparse.ArgumentParser:
    """The list of verbs, for ``--help``; the ``whole`` tree imports every verb, for completion scripts."""
    parser = Parser(
        prog="flyball",
        description="Run as many agents as your limits really allow, no more and no fewer.",
        epilog='example:\n  flyball exec -- claude -p "fix the tests"',
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("-V", "--version", action="version", version=f"flyball {__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", dest="verb")
    for name, summary in VERBS.items():
        verb = verbs.add_parser(name, help=summary, add_help=whole, allow_abbrev=False)
        if whole:
            load_verb(name).add_arguments(verb)
    return parser


def _fail(words: list[str], error: Exception, code: int) -> int:
    """One line for a person on stderr; with ``--json`` an object on stdout beside it. The output of ``exec``
    is its command's own: there the object goes to stderr, in place of the line."""
    ours = words[: words.index("--")] if "--" in words else words
    if "--json" in ours:
        import json

        fields = {
            name: getattr(error, name) for name in ("pool", "reason", "retry_after_s") if hasattr(error, name)
        }
        said = json.dumps({"error": type(error).__name__, "message": str(error), "exit": code, **fields})
        if words[0] == "exec":
            print(said, file=sys.stderr)
            return code
        print(said)
    print(f"flyball: {error}", file=sys.stderr)
    return code
