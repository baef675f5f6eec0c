"""``flyball exec -- CMD``: wait for a slot, then be as if CMD had been called directly."""

from __future__ import annotations

import argparse
import os
import sys
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from flyball.core.pool.model import Outcome
from flyball.core.pool.settings import PoolSettings
from flyball.core.pool.verdict import Reason, Verdict, span_words
from flyball.errors import AgentError, StoreError, UsageError
from flyball.governor import inherited_lease
from flyball.governor.ask import AskRequest, default_name, default_project
from flyball.governor.governor import Governor
from flyball.governor.internals import internals, thread_mail
from flyball.governor.launch.gated_child import (
    NOT_FOUND,
    NOT_RUNNABLE,
    GatedChild,
    become,
    die_like,
    passing_on,
    stopped_by_signals,
)
from flyball.governor.lease import Lease
from flyball.runtimes.registry import COMMAND, NAMES, is_headless, pool_of, runtime_of, tells_refusals

if TYPE_CHECKING:
    from flyball.cli.shared.usage_windows import WindowWatch
    from flyball.gateway.agent_calls import AgentCalls

POOL_VARIABLE = "FLYBALL_POOL"
"""The pool where ``--pool`` names none."""
SUMMARY = """Run a command under a slot of a pool. Waits for the slot; from then on input, output, signals
and exit status are the command's own. An agent that runs one prompt to its end (claude -p, codex exec,
gemini -p, opencode run) is read on the way, in a terminal too: throttles reach the pool, at once if it prints
events, else when it ends, and one line says why it ended. An interactive one holds its slot and is left
untouched: its limits are not heard, and it does not raise the cap."""
EXAMPLE = """flyball exec -- claude -p "fix the failing tests"
flyball exec --pool openai --project blog --wait 10m -- codex exec "..."
flyball exec --retry-limited 3 -- claude -p "..." --output-format stream-json --verbose > run.jsonl
exit status: the command's own; 75 if no slot came in time or a limit ended it; 126, 127 if it cannot run"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from flyball.cli.ui.units import count, duration, key_count, whole

    parser.add_argument(
        "--pool", help="the limited resource (default: FLYBALL_POOL, else by the command, else anthropic)"
    )
    parser.add_argument("--project", help="who competes for fairness (default: the repository's name)")
    parser.add_argument("--name", help="the task's name in status and messages (default: command and pid)")
    parser.add_argument(
        "--priority",
        type=whole,
        help="higher first; above 0 may use the reserve (default: 0; 1 for an agent that talks to you)",
    )
    parser.add_argument(
        "--slots", type=whole, default=1, metavar="N", help="how many slots it takes (default 1)"
    )
    parser.add_argument("--model", default="", help="the model it uses, shown in status")
    parser.add_argument(
        "--resource",
        type=key_count,
        action="append",
        default=[],
        metavar="KIND[=N]",
        help="also take a resource",
    )
    waiting = parser.add_mutually_exclusive_group()
    waiting.add_argument(
        "--wait", type=duration, metavar="10m", help="give up after this long (default: never)"
    )
    waiting.add_argument("--no-wait", action="store_true", help="give up at once if there is no slot")
    parser.add_argument(
        "--replace", action="store_true", help="become the command instead of staying around it"
    )
    parser.add_argument("--runtime", choices=NAMES, help="which agent it is (default: by the command)")
    parser.add_argument(
        "--retry-limited",
        type=count,
        default=0,
        metavar="N",
        help="when a limit ends it, wait and go on with its session, up to N times",
    )
    parser.add_argument("--quiet", action="store_true", help="do not say why it waits or why it ended")
    parser.add_argument("--json", action="store_true", help="say it as JSON lines on stderr")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- CMD ...", help="what to run")


def run(args: argparse.Namespace) -> int:
    argv = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not argv:
        raise UsageError('no command given; for example: flyball exec -- claude -p "..."')
    _check_runnable(argv[0])
    runtime = args.runtime or runtime_of(argv)
    args.pool = args.pool or os.environ.get(POOL_VARIABLE) or None
    read, headless = False, runtime != COMMAND and is_headless(argv, runtime)
    if runtime != COMMAND and not args.replace:
        from flyball.governor.launch.output_files import readable_descriptors

        read = bool(readable_descriptors(headless=headless))
    own = runtime != COMMAND and not headless and sys.stdin is not None and sys.stdin.isatty()
    governor, asking = Governor(), _asking(args, argv, runtime, read=read, own=own)
    internals(governor).on_kept = lambda lease, error: _say_kept(args, lease, error)
    if args.replace and (args.retry_limited or args.runtime):
        raise UsageError(
            "--replace leaves no process behind that reads or retries; drop it, or the other option"
        )
    if runtime != COMMAND and not args.replace:
        return _run_agent(governor, asking, args, argv, runtime, read=read, headless=headless)
    if runtime == COMMAND:
        _say_default_pool(args, argv[0], asking.pool)
    lease = _acquire(governor, asking, args)
    env = {
        **os.environ,
        inherited_lease.VARIABLE: internals(governor).variable_value(lease),
    }
    if not args.replace:
        return _stay(governor, lease, argv, env)
    if runtime == "claude" and "FLYBALL_GATEWAY" not in env:
        named = internals(governor).named_settings(lease.pool)
        env |= _subagent_bound(runtime, named.get("subagents", PoolSettings().subagents))
    return _replace(governor, lease, argv, env)


def _subagent_bound(runtime: str, most: int) -> dict[str, str]:
    """What is added to an agent's environment so that it has few subagents which nothing counts."""
    from flyball.hooks.native_limit import are_counted, bound_variables

    return {} if are_counted(runtime, os.environ) else bound_variables(runtime, most, os.environ)


def _run_agent(
    governor: Governor,
    asking: AskRequest,
    args: argparse.Namespace,
    argv: list[str],
    runtime: str,
    *,
    read: bool,
    headless: bool,
) -> int:
    from flyball.cli.shared.agent_exec import AgentRun
    from flyball.runtimes.registry import load

    calls, variables = _agent_calls(governor, asking, args, argv, runtime)
    windows = _window_watch(governor, asking.pool, args, runtime)
    if calls is not None:
        asking = replace(asking, pool=calls.pool, unread=True)
    run = AgentRun(
        governor=governor,
        load=lambda: load(runtime),
        acquire=lambda: _acquire(governor, asking, args),
        rest=lambda for_s, why: internals(governor).rest(asking, for_s=for_s, why=why),
        let_run=lambda lease, child: _let_run(governor, lease, child),
        runtime=runtime,
        read=read,
        headless=headless,
        retries=args.retry_limited,
        quiet=args.quiet,
        as_json=args.json,
        change=None
        if calls is None
        else calls.change(project=asking.project, name=asking.name, priority=asking.priority),
        gateway_connection=None if calls is None else calls.gateway_connection(),
        windows=windows,
        variables=variables,
    )
    return run.until_done(argv)


def _window_watch(governor: Governor, pool: str, args: argparse.Namespace, runtime: str) -> WindowWatch:
    from flyball.cli.shared.usage_windows import WindowWatch, account_name
    from flyball.governor.state_url import home

    def say(words: str, record: dict[str, object]) -> None:
        if not args.quiet:
            with suppress(OSError):
                _print(args, words, {**record, "words": words})

    return WindowWatch(governor, pool, account_name(runtime, os.environ, home()), say)


def _agent_calls(
    governor: Governor, asking: AskRequest, args: argparse.Namespace, argv: list[str], runtime: str
) -> tuple[AgentCalls | None, dict[str, str]]:
    """How its calls are counted; None: it holds a slot of the pool itself, as long as it lives. And what is
    added to its environment then."""
    from flyball.gateway.agent_calls import NotCounted, open_agent_calls

    calls = open_agent_calls(governor, asking.pool, runtime=runtime, argv=argv, env=os.environ)
    if not isinstance(calls, NotCounted):
        return calls, {}
    if calls.asked_for and not args.quiet:
        words = (
            f"the calls of {runtime} are not counted one by one: {calls.why}; it holds a slot while it lives"
        )
        _print(args, words, {"counts": "agents", "words": words})
    return None, _subagent_bound(runtime, calls.subagents)


def _asking(args: argparse.Namespace, argv: list[str], runtime: str, *, read: bool, own: bool) -> AskRequest:
    """``own``: the session of the person at this terminal."""
    return AskRequest(
        pool=args.pool if args.pool is not None else pool_of(argv, runtime),
        project=args.project if args.project is not None else default_project(),
        name=args.name if args.name is not None else default_name(argv[0]),
        slots=args.slots,
        priority=args.priority if args.priority is not None else int(own),
        resources=_resource_totals(args.resource),
        model=args.model,
        pid=os.getpid(),
        unread=not (read and tells_refusals(argv, runtime)),
    )


def _resource_totals(units: list[tuple[str, int]]) -> dict[str, int]:
    """A kind that is named twice is wanted twice."""
    kinds = {kind for kind, _ in units}
    return {kind: sum(count for other, count in units if other == kind) for kind in sorted(kinds)}


def _acquire(governor: Governor, asking: AskRequest, args: argparse.Namespace) -> Lease:
    """Wait for the slot, saying why; being told to stop meanwhile gives the place in line back."""
    started, told = time.monotonic(), []

    def on_wait(verdict: Verdict) -> None:
        told.append(verdict)
        _say(args, f"{verdict.words()}{_window_words(governor, verdict)}", verdict)

    with stopped_by_signals():
        lease = internals(governor).acquire(asking, wait=not args.no_wait, timeout=args.wait, on_wait=on_wait)
    if told:
        waited_s = time.monotonic() - started
        _say(args, f"granted after {span_words(waited_s)}: {lease.pool}", lease.verdict)
    if args.pool is not None and not lease.nested:
        _doubt_new_pool(governor, lease, args)
    return lease


def _window_words(governor: Governor, verdict: Verdict) -> str:
    """Which usage window it waits for, and the way out."""
    if verdict.reason is not Reason.USED_UP_SOON:
        return ""
    from flyball.cli.shared.usage_windows import pool_status
    from flyball.cli.ui.pool_status import closed_words

    found = pool_status(governor, verdict.pool)
    closed_for_s = found.closed_for_s if found is not None else None
    return f"; {closed_words(found, closed_for_s)}" if found is not None and closed_for_s is not None else ""


def _doubt_new_pool(governor: Governor, lease: Lease, args: argparse.Namespace) -> None:
    """A pool made by this very ask may be a slip of the pen. The first lease of a pool begins a block of ids,
    so all others are not even looked at."""
    from flyball.stores.rows import ID_BLOCK

    if lease.id % ID_BLOCK != 1:
        return
    from flyball.core.suggestions import did_you_mean

    try:
        pools = {pool.name: pool for pool in internals(governor).store.snapshot().pools}
    except StoreError:
        return
    ours = pools.pop(lease.pool, None)
    # Settings were named on purpose, and a pool whose slots were held before is not new.
    new = ours is not None and not ours.named and not ours.hold_mean_s
    if new and (meant := did_you_mean(lease.pool, pools)):
        _say(args, f"this is a new pool; {meant}", lease.verdict)


def _stay(governor: Governor, lease: Lease, argv: list[str], env: dict[str, str]) -> int:
    child = GatedChild(argv, env)
    try:
        with passing_on(child.pid):
            _let_run(governor, lease, child)
            status = child.wait()
    except BaseException:
        lease.release(Outcome.ABANDONED)
        raise
    outcome, words = _outcome(status)
    lease.release(outcome, words=words)
    thread_mail.close()  # death by a signal runs nothing that would sweep up behind us
    return die_like(status)


def _let_run(governor: Governor, lease: Lease, child: GatedChild) -> None:
    if not internals(governor).rebind(lease, child.pid):
        child.cancel()
        raise AgentError(
            f"the lease {lease.id} on {lease.pool} was taken away before its command could start"
        )
    child.open_gate()


def _replace(governor: Governor, lease: Lease, argv: list[str], env: dict[str, str]) -> int:
    """From here on no process releases: the lease ends with the process, which is the command itself."""
    governor.close()
    thread_mail.close()
    try:
        become(argv, env)
    except AgentError:
        lease.release(Outcome.ABANDONED)
        raise


def _outcome(status: int) -> tuple[Outcome, str]:
    """With its words for the lease."""
    if os.WIFSIGNALED(status):
        return Outcome.ABANDONED, f"killed by signal {os.WTERMSIG(status)}"
    code = os.waitstatus_to_exitcode(status)
    return (Outcome.FAILED, f"failed: exit status {code}") if code else (Outcome.FINISHED, "finished")


def _check_runnable(command: str) -> None:
    """Find out before waiting in line that the command does not exist."""
    folders = [""] if os.sep in command else os.get_exec_path()
    paths = [os.path.join(folder, command) for folder in folders]
    if any(os.path.isfile(path) and os.access(path, os.X_OK) for path in paths):
        return
    if not command:
        raise AgentError("the command is an empty word; say what to run after --", exit_code=NOT_FOUND)
    if os.sep not in command or not os.path.exists(command):
        raise AgentError(f"{command} was not found", exit_code=NOT_FOUND)
    words = "is a folder, not a command" if os.path.isdir(command) else "is not executable"
    raise AgentError(f"{command} {words}", exit_code=NOT_RUNNABLE)


def _say_default_pool(args: argparse.Namespace, command: str, pool: str) -> None:
    """To a person: which provider a command that is not known calls is a guess."""
    guessed = args.pool is None and inherited_lease.VARIABLE not in os.environ
    if guessed and not args.quiet and sys.stderr is not None and sys.stderr.isatty():
        words = f"{os.path.basename(command)} takes a slot of {pool}; --pool names another"
        _print(args, words, {"pool": pool, "guessed": True, "words": words})


def _say_kept(args: argparse.Namespace, lease: Lease, error: StoreError) -> None:
    """We are about to end, as its command did: the next ask takes back what the dead hold."""
    words = (
        f"the slot of {lease.project}/{lease.name} on {lease.pool} could not be given back now ({error}); "
        "its command has ended, so the next ask takes it back"
    )
    # Whether or not it is read, the exit status stays the command's.
    with suppress(OSError):
        _print(args, words, {"release": "kept", "words": words, "pool": lease.pool})


def _say(args: argparse.Namespace, words: str, verdict: Verdict) -> None:
    if not args.quiet:
        fields = {"pool": verdict.pool, "reason": verdict.reason.value, "estimate_s": verdict.estimate_s}
        _print(args, words, {"verdict": verdict.kind.value, "words": words, **fields})


def _print(args: argparse.Namespace, words: str, record: dict[str, object]) -> None:
    if args.json:
        import json

        print(json.dumps(record), file=sys.stderr, flush=True)
    else:
        print(f"flyball: {words}", file=sys.stderr, flush=True)
