"""The real four under ``flyball exec`` in a terminal, as a person runs them: in plain text."""

from __future__ import annotations

import os
import pty
from pathlib import Path

import pytest

from flyball.sim.provider.dialect import ANSWER
from tests.agents.bench import FLYBALL, Bench, Benches
from tests.agents.kit import PROMPT, Agent, ClaudeOnSubscription, Codex, Gemini, Opencode

PLAIN = {
    "claude": ["claude", "-p", PROMPT, "--model", "sonnet"],
    "codex": [
        *("codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"),
        PROMPT,
    ],
    "gemini": ["gemini", "-p", PROMPT, "--skip-trust", "-m", Gemini.model],
    "opencode": ["opencode", "run", "--model", Opencode.model, "--title", "a test", PROMPT],
}
four = pytest.mark.parametrize(
    "agent", [ClaudeOnSubscription(), Codex(), Gemini(), Opencode()], ids=lambda agent: agent.name
)


def in_terminal(bench: Bench, agent: Agent, *options: str) -> tuple[int, str]:
    """Its exit code and what was shown. Agents are counted, as where they run with a login."""
    bench.flyball("pool", "set", agent.pool, "--counts", "agents")
    env = {**bench.environment(agent), "TERM": "xterm-256color"}
    argv = [*FLYBALL, "exec", *options, "--", *PLAIN[agent.name]]
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(Path(env["HOME"]).parent / "work")
        os.execvpe(argv[0], argv, env)
    shown = b""
    try:
        while piece := os.read(terminal, 65536):
            shown += piece
    except OSError:
        pass
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), shown.decode()


@four
def test_a_limit_in_a_terminal_is_75_one_line_and_lowers_the_cap(agent: Agent, bench_of: Benches) -> None:
    bench = bench_of("429:1x*")
    code, shown = in_terminal(bench, agent)
    assert code == 75, shown
    (line,) = [each for each in shown.splitlines() if "flyball:" in each]
    assert line.removeprefix("\x1b[?25h").startswith("flyball: limited: the provider throttled it (429)")
    pool = bench.pool(agent.pool)
    assert pool["throttle_count"] == 1
    assert pool["cap"] < 8


@pytest.mark.parametrize("agent", [ClaudeOnSubscription(), Codex()], ids=lambda agent: agent.name)
def test_a_retry_in_a_terminal_goes_on(agent: Agent, bench_of: Benches) -> None:
    bench = bench_of("429:1")
    bench.flyball("pool", "set", agent.pool, "--confirm", "1s")
    bench.door.set()
    code, shown = in_terminal(bench, agent, "--retry-limited", "2")
    assert code == 0, shown
    assert "(1 of 2)" in shown
    assert ANSWER in shown
    assert bench.provider.tally().rejected == 1
