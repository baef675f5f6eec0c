"""``flyball completion SHELL``: a completion script made from the real arguments of every verb."""

from __future__ import annotations

import argparse

from flyball.cli.render import print_json
from flyball.errors import UsageError

SUMMARY = "Print a completion script for your shell."
EXAMPLE = """flyball completion bash > ~/.local/share/bash-completion/completions/flyball
flyball completion zsh > ~/.zfunc/_flyball      # with fpath+=~/.zfunc before compinit
flyball completion fish > ~/.config/fish/completions/flyball.fish
flyball completion tcsh > ~/.flyball.tcsh       # and source it from ~/.tcshrc"""

SHELLS = ("bash", "zsh", "fish", "tcsh")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", help=f"one of {', '.join(SHELLS)}")
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
    return shtab.complete(build_parser(whole=True), shell=shell)
