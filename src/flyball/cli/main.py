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
from flyball.cli.verbs import FOLDERS, GROUPS
from flyball.errors import AgentError, FlyballError, InvariantError, RefusedError, StoreError, UsageError
from flyball.host import exit_status

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
    if "LC_CTYPE" in os.environ:
        from flyball.host.coerced_locale import forget_coerced_locale

        forget_coerced_locale()
    if "FLYBALL_GUARD" in os.environ:
        _refuse_agents(words)
    if verb in FOLDERS and words[0] == verb:
        module = load_verb(verb)
        parser = verb_parser(verb, module)
        return module.run(parser.parse_args(words[1:]))
    if verb in FOLDERS and words[0] not in ("-h", "--help", "-V", "--version"):
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
        module = "exec_" if name == "exec" else name
        return cast(Verb, import_module(f"flyball.cli.commands.{FOLDERS[name]}.{module}"))
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


class VerbsParser(Parser):
    """Its help lists the verbs by group; argparse knows one list only."""

    def format_help(self) -> str:
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        for group in GROUPS:
            formatter.start_section(group.title)
            formatter.add_arguments(
                argparse.Action([], name, help=summary, metavar=name) for name, summary in group.verbs.items()
            )
            formatter.end_section()
        formatter.start_section("options")
        formatter.add_arguments(action for action in self._actions if action.option_strings)
        formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()


def build_parser(*, whole: bool = False) -> argparse.ArgumentParser:
    """The list of verbs, for ``--help``; the ``whole`` tree imports every verb, for completion scripts."""
    parser = VerbsParser(
        prog="flyball",
        description="Run as many agents as your limits really allow, no more and no fewer.",
        epilog="flyball VERB --help tells more of one, with examples.\n\n"
        'example:\n  flyball exec -- claude -p "fix the tests"',
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("-V", "--version", action="version", version=f"flyball {__version__}")
    verbs = parser.add_subparsers(metavar="VERB", dest="verb")
    for group in GROUPS:
        for name, summary in group.verbs.items():
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
