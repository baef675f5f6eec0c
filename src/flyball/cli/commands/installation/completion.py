"""``flyball completion SHELL``: a completion script made from the real arguments of every verb.

Options, actions and choices are argparse's own. What a value is the help says by its placeholder: ``FILE`` is
completed by files, ``FOLDER`` and ``PATH`` by folders, what follows ``--`` by commands and then by files.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

from flyball.cli.ui.render import print_json
from flyball.errors import UsageError

SUMMARY = "Print a completion script for your shell."
EXAMPLE = """flyball completion bash > ~/.local/share/bash-completion/completions/flyball
flyball completion zsh > ~/.zfunc/_flyball      # with fpath+=~/.zfunc before compinit
flyball completion fish > ~/.config/fish/completions/flyball.fish
flyball completion tcsh > ~/.flyball.tcsh       # and source it from ~/.tcshrc"""

SHELLS = ("bash", "zsh", "fish", "tcsh")
_COMMAND_LINE = {
    "bash": "_flyball_command_or_files",
    "zsh": "_files",
    "fish": "(__fish_complete_path (commandline -ct))",
    "tcsh": "c",
}
_PREAMBLES = {
    "bash": """\
# the first word after -- is a command, what follows are most often files
_flyball_command_or_files() {
  if [[ "${COMP_WORDS[COMP_CWORD-1]}" == -- ]]; then
    compgen -c -- "$1" | sort -u
  else
    compgen -f -- "$1"
  fi
}"""
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=f"one of {', '.join(SHELLS)}")
    parser.add_argument("--json", action="store_true", help="the script inside a JSON object")


def run(args: argparse.Namespace) -> int:
    script = script_for(args.shell)
    if args.json:
        print_json({"shell": args.shell, "script": script})
    else:
        print(script)
    return 0


def script_for(shell: str) -> str:
    import shtab

    from flyball.cli.main import build_parser

    if shell not in SHELLS or shell not in shtab.SUPPORTED_SHELLS:
        usable = ", ".join(name for name in SHELLS if name in shtab.SUPPORTED_SHELLS)
        raise UsageError(f"there is no completion for {shell!r}; there is for {usable}")
    parser = build_parser(whole=True)
    for action in _actions(parser):
        if values := _values(str(action.metavar)):
            vars(action)["complete"] = values
    script = shtab.complete(parser, shell=shell, preamble=_PREAMBLES.get(shell, ""))
    # Where we know nothing better, files: the shell's own way for a command that has no completion at all.
    return script.replace("complete -o bashdefault -F", "complete -o bashdefault -o default -F")


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Of a parser and of all below it."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _actions(below)


def _values(placeholder: str) -> Mapping[str, object]:
    """How each shell completes what a placeholder stands for; empty where the shell cannot know."""
    import shtab

    if placeholder.startswith("FILE"):
        return shtab.FILE
    if placeholder in ("FOLDER", "PATH"):
        return shtab.DIRECTORY
    return _COMMAND_LINE if placeholder.startswith("-- CMD") else {}
