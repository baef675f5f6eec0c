"""The parser of every verb: what it cannot read is a ``UsageError`` like any other, with a way out.

argparse prints its errors itself and leaves. Raised instead, they reach ``main``, which knows of ``--json``
and exit codes. A word that comes close to a known one is asked about.

Verbs with actions of their own (``pool set``): each action with its help and its example.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, NoReturn

from flyball.errors import UsageError

# What argparse says is read below, so it has to stay English. And where it looks for a translation it loads
# the names of all locales: 0.36 MB in each exec that waits.
vars(argparse).update(_=str, ngettext=lambda one, many, count: one if count == 1 else many)

_UNKNOWN = "unrecognized arguments: "
_CHOICES_LISTED = 12
"""More choices than this are left to --help."""


class Parser(argparse.ArgumentParser):
    """Actions of a verb get parsers of this class too."""

    def error(self, message: str) -> NoReturn:
        if message.startswith(_UNKNOWN):
            message = self._unknown(message.removeprefix(_UNKNOWN))
        end = "" if message.endswith("?") else f"; see {self.prog} --help"
        raise UsageError(f"{message}{end}")

    def _unknown(self, words: str) -> str:
        """A value that follows an unknown option is not worth a word."""
        option = next((word.partition("=")[0] for word in words.split() if word.startswith("-")), "")
        if not option:
            return f"too many words: {words}"
        known = list(_options(self))
        if option in known:
            return f"{option} is in the wrong place; options come after the action and before any --"
        hint = _hint(option.lstrip("-"), [other.lstrip("-") for other in known], dashes="--")
        return f"unknown option {option}; {hint}" if hint else f"unknown option {option}"

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        hint = _hint(str(value), choices)
        if not hint and len(choices) <= _CHOICES_LISTED:
            hint = f"choose one of {', '.join(choices)}"
        if isinstance(action, argparse._SubParsersAction):
            what = f"there is no {action.dest} {value!r}"
            raise argparse.ArgumentError(None, f"{what}; {hint}" if hint else what)
        raise argparse.ArgumentError(
            action, f"cannot be {value!r}; {hint}" if hint else f"cannot be {value!r}"
        )


def _hint(word: str, known: list[str], *, dashes: str = "") -> str:
    from flyball.core.suggestions import nearest

    found = nearest(word, known, at_most=1)
    return f"did you mean {dashes}{found[0]}?" if found else ""


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Of a parser and of its actions."""
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _options(below)


def add_action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str, example: str
) -> argparse.ArgumentParser:
    return actions.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog="example:\n  " + example.replace("\n", "\n  "),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
