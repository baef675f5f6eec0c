"""``flyball validate``: what is wrong with a project, without running anything."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from flyball.cli.ui.render import Block, Line, Piece, Style, print_json, show
from flyball.cli.ui.units import counted, shown_words
from flyball.factory.project.config_reference import json_schema
from flyball.factory.project.paths import find_root
from flyball.factory.validation import ConfigFinding, validate

SUMMARY = "Check flyball.toml and the tasks without running anything. Exit 1 if something would stop a run."
EXAMPLE = """flyball validate
flyball validate --schema > flyball.schema.json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--schema", action="store_true", help="print the JSON schema of flyball.toml instead")
    parser.add_argument("--json", action="store_true", help="the findings as JSON")


def run(args: argparse.Namespace) -> int:
    if args.schema:
        sys.stdout.write(json_schema())
        return 0
    root = find_root(Path.cwd())
    findings = validate(root)
    sound = all(finding.severity != "problem" for finding in findings)
    if args.json:
        records = [
            {name: shown_words(words) for name, words in asdict(finding).items()} for finding in findings
        ]
        print_json({"ok": sound, "findings": records})
    else:
        show(_screen(findings, root))
    return 0 if sound else 1


def _screen(findings: Sequence[ConfigFinding], root: Path) -> Iterator[Block]:
    problems = sum(finding.severity == "problem" for finding in findings)
    for finding in findings:
        style = Style.BAD if finding.severity == "problem" else Style.WARN
        yield Line(
            [Piece(f"{finding.severity}: ", style), Piece(finding.where, Style.STRONG), f": {finding.words}"]
        )
    yield Line(f"{root}: {counted(problems, 'problem') if problems else 'nothing is wrong'}")
