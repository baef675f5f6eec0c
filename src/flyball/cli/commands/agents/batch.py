"""``flyball batch``: prompts that need no repository, through the provider's message-batch API."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flyball.cli.parser import add_action
from flyball.cli.ui.render import Block, Column, Line, Table, Words, print_json, say, show
from flyball.cli.ui.units import command, counted, whole
from flyball.errors import UsageError
from flyball.factory.project.registry import ProjectRegistry
from flyball.governor.state_url import home
from flyball.integrations.message_batches import (
    KEY_VARIABLE,
    MAX_TOKENS,
    URL,
    URL_VARIABLE,
    Batches,
    MessageBatch,
    Prompt,
    prompts_in,
    read_key,
    tokens_estimated,
)

SUMMARY = f"""Send prompts that need no repository through the provider's message-batch API, which is slow and
cheap. It is paid per token with a key of its own ({KEY_VARIABLE}), and asks before each batch."""
EXAMPLE = """flyball batch submit prompts.jsonl --model claude-sonnet-4-5
flyball batch results msgbatch_123 > answers.jsonl"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    submit = add_action(
        actions,
        "submit",
        'send a file of prompts, one JSON object per line: {"prompt": "...", "id": "..."}',
        "flyball batch submit prompts.jsonl --model claude-sonnet-4-5",
    )
    submit.add_argument("file", metavar="FILE", help="the prompts; - reads them from stdin")
    submit.add_argument("--model", required=True, help="the model's full name, as the provider knows it")
    submit.add_argument(
        "--max-tokens", type=whole, default=MAX_TOKENS, metavar="N", help=f"longest answer ({MAX_TOKENS})"
    )
    submit.add_argument("--yes", action="store_true", help="the confirmation, for this one batch")
    listing = add_action(actions, "list", "show the batches of the key", "flyball batch list")
    look = add_action(actions, "show", "how far a batch is", "flyball batch show msgbatch_123")
    results = add_action(
        actions, "results", "the answers, one JSON object per line", "flyball batch results msgbatch_123"
    )
    cancel = add_action(actions, "cancel", "end a batch early", "flyball batch cancel msgbatch_123")
    for action in (look, results, cancel):
        action.add_argument("batch", metavar="BATCH", help="its id")
    for action in (submit, listing, look, cancel):
        action.add_argument("--json", action="store_true", help="the result as JSON")


def run(args: argparse.Namespace) -> int:
    batches = Batches(read_key(os.environ), os.environ.get(URL_VARIABLE) or URL)
    if args.action == "results":
        return _results(batches, args.batch)
    if args.action == "list":
        found = batches.all()
        if args.json:
            print_json({"batches": found})
        else:
            show(list_screen(found))
        return 0
    if args.action == "submit":
        batch = _submit(batches, args)
    else:
        batch = batches.look(args.batch) if args.action == "show" else batches.cancel(args.batch)
    if batch is None:
        say("nothing was sent")
        return 1
    if args.json:
        print_json(batch)
    else:
        show(batch_screen(batch))
    return 0


def _submit(batches: Batches, args: argparse.Namespace) -> MessageBatch | None:
    if args.max_tokens < 1:
        raise UsageError(f"--max-tokens must be at least 1, not {args.max_tokens}")
    try:
        text = sys.stdin.read() if args.file == "-" else Path(args.file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {args.file}: {error}") from error
    prompts = prompts_in(text.splitlines(), max_tokens=args.max_tokens)
    if not args.yes and not _confirm(prompts, args.model):
        return None
    # Before money is let go: what cannot be written down is not spent.
    ProjectRegistry(home()).audit("batch submit", prompts=str(len(prompts)), model=args.model)
    return batches.submit(prompts, model=args.model)


def _confirm(prompts: list[Prompt], model: str) -> bool:
    """Ask a person about this very batch: no setting agrees once and for all."""
    sent, answered = tokens_estimated(prompts)
    asked = (
        f"{counted(len(prompts), 'prompt')} to {model}: about {sent:,} tokens in, at most {answered:,} out"
    )
    if not sys.stdin.isatty():
        raise UsageError(f"{asked}, paid with {KEY_VARIABLE}; confirm this batch with --yes")
    print(f"{asked}, paid per token with {KEY_VARIABLE}.\nSend it? [yes/no] ", end="", file=sys.stderr)
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() == "yes"


def _results(batches: Batches, batch_id: str) -> int:
    batch = batches.look(batch_id)
    if not batch.ended:
        raise UsageError(
            f"{batch.id} is {batch.status}; {command('batch', 'show', batch.id)} says when it ended"
        )
    failed = 0
    for record in batches.results(batch_id):
        answer = _answer(record)
        failed += answer["result"] != "succeeded"
        print(json.dumps(answer, ensure_ascii=False))
    return 1 if failed else 0


def _answer(record: dict[str, Any]) -> dict[str, Any]:
    """The text where there is one; what came instead otherwise."""
    result = record.get("result") or {}
    message = result.get("message") or {}
    parts = [part.get("text", "") for part in message.get("content", []) if part.get("type") == "text"]
    plain = {"id": record.get("custom_id"), "result": result.get("type"), "text": "".join(parts)}
    if usage := message.get("usage"):
        plain["usage"] = usage
    return {**plain, "error": result["error"]} if result.get("error") else plain


def batch_screen(batch: MessageBatch) -> Iterator[Block]:
    yield Line(f"{batch.id} is {batch.status}: {_counts(batch)}")
    verb = "results" if batch.ended else "show"
    yield Line(command("batch", verb, batch.id), label="next")


def list_screen(found: list[MessageBatch]) -> list[Block]:
    if not found:
        return [Line("No batches under this key.")]
    rows: list[list[Words]] = [[each.id, each.status, _counts(each), each.created_at] for each in found]
    return [Table([Column("BATCH"), Column("IS"), Column("PROMPTS"), Column("SENT")], rows, indent=0)]


def _counts(batch: MessageBatch) -> str:
    named = [f"{count} {name}" for name, count in batch.counts.items() if count]
    return ", ".join(named) or "no prompts"
