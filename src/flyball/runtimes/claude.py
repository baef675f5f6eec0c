"""claude (Claude Code): its command line. What it prints is read in ``claude_stream.py``."""

from __future__ import annotations

from collections.abc import Sequence

from flyball.runtimes import launch_arguments as command_line
from flyball.runtimes.claude_stream import ClaudeReader, any_line
from flyball.runtimes.port import Assignment, Launch

_ONE_OPTIONS = (
    "--model --output-format --input-format --permission-mode --append-system-prompt --system-prompt "
    "--max-turns --fallback-model --settings --agents --agent --session-id -r --resume --debug-file "
    "--setting-sources --permission-prompt-tool --json-schema --max-budget-usd --effort"
)
_MANY_OPTIONS = (
    "--allowedTools --allowed-tools --disallowedTools --disallowed-tools --add-dir --mcp-config --tools "
    "--betas --plugin-dir"
)


_ANYTHING = "--dangerously-skip-permissions"


def _rules(assignment: Assignment) -> list[str]:
    """Its rules for the commands of an assignment. A parenthesis in a command must not end the rule."""
    beginnings = [f"Bash({each}:*)" for each in assignment.command_beginnings]
    escaped = [
        each.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)") for each in assignment.commands
    ]
    return [*beginnings, *(f"Bash({each})" for each in escaped)]


class Claude:
    name = "claude"
    reports_cost = True
    _ONE = frozenset(_ONE_OPTIONS.split())
    _MANY = frozenset(_MANY_OPTIONS.split())

    def reader(self) -> ClaudeReader:
        return ClaudeReader()

    def wrote(self, stdout: bytes, stderr: bytes) -> bool:  # noqa: ARG002 - it says nothing there
        for line in stdout.splitlines()[:50]:
            event = any_line.read(line) if line.startswith(b"{") else None
            if event is not None and event.session_id is not None:
                if event.type in ("system", "assistant", "user", "stream_event"):
                    return True
                if event.type == "result" and event.is_error is not None:
                    return True
        return stdout.startswith(b"API Error:")

    def launch(self, assignment: Assignment) -> Launch:
        """It edits what is in its working directory, runs what it is told to, and is told no where it would
        have to ask."""
        model, session = assignment.model, assignment.session
        turns, cost_usd, effort = assignment.max_turns, assignment.max_cost_usd, assignment.effort
        options = command_line.defaults(
            assignment.args,
            ("--output-format=stream-json",),
            ("--verbose",),
            ("--permission-mode=acceptEdits", _ANYTHING),
            (model and f"--model={model}",),
            (effort and f"--effort={effort}",),
            (f"--max-turns={turns}" if turns is not None else "",),
            (f"--max-budget-usd={cost_usd:.10g}" if cost_usd is not None else "",),
            (f"--resume={session}" if session else "", "-r", "--continue", "-c"),
            ("--fork-session" if session else "",),
        )
        ours = command_line.defaults(assignment.args, ("--allowedTools", "--allowed-tools", _ANYTHING))
        if ours and (rules := _rules(assignment)):
            # First, so that an option ends the list of rules.
            options = [*ours, *rules, *options]
        return Launch((*(assignment.program or (self.name,)), "-p", *options, *assignment.args))

    def resuming(self, argv: Sequence[str], session: str) -> list[str]:
        """``--resume`` with the same options; the prompt is in the session already."""
        launcher, program = command_line.split(argv)
        program = command_line.without(
            program,
            flags=("-c", "--continue", "--fork-session"),
            valued=("-r", "--resume", "--session-id"),
        )
        prompts = command_line.positions(program, one=self._ONE, many=self._MANY)
        if prompts:
            program[prompts[-1]] = "Continue."
        # Before a variable list of tools a bare word at the end would become one of them.
        asked = [] if prompts else ["-p", "Continue."]
        return [*launcher, *program, *asked, "--resume", session]
