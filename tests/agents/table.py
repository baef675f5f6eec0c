"""The page docs/reference/agents.md, made from what the tests saw the real agents do in the factory.

    FLYBALL_WRITE_TABLE=1 make test-agents

writes it, if all of them passed. Each test tells one cell as a property of its report.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.agents.kit import REPOSITORY, Agent, Claude, Codex, Gemini, Opencode

PROPERTY = "table"
PAGE = REPOSITORY / "docs" / "reference" / "agents.md"
PINNED = REPOSITORY / "tests" / "agents" / "package.json"
AGENTS: Mapping[str, Agent] = {
    "@anthropic-ai/claude-code": Claude(),
    "@openai/codex": Codex(),
    "@google/gemini-cli": Gemini(),
    "opencode-ai": Opencode(),
}

_TOP = """\
# The real agents

`make test-agents` installs four command lines from npm into `.agents` and drives each of them, headless,
through whole runs of `flyball run`: a real repository, one task, the agent in its workspace, the gate, the
landing. They talk to the provider that comes with flyball (`python -m flyball.sim.provider.server`), on this
machine only; no account is needed.
"""
_WHAT = """\
## What happened

Each cell names how every launch of the agent ended, and what became of the task. *In its session*: it was
told the news only, and its first request carried the earlier conversation. Nothing was lost, landed twice or
left running in any of them.
"""
_NOT_RUN = """\
A cell with a dash was not run. gemini gives up at the first answer that breaks off, so the row above says it.
opencode asks again for more than a minute and cannot be told to do less.
"""
_MAY = """\
## What they may do

As flyball launches them they may change files in their workspace and nothing outside it, and run what they
are told to: the gate's commands, and `git status`, `diff`, `log`, `add`, `commit` and `rebase`. claude is
permitted exactly these commands; gemini and opencode permit a command by its parts, gemini by its beginning.
codex has a shell inside its sandbox, and cannot commit there, so flyball commits its work, under the task's
title. What claude was denied is told by `flyball run`, on the board, by `flyball task why` and under
`--json`. These arguments permit more:
"""
_CARE = """\
Mind what that opens. They take the place of what flyball permits, and each is a shell that may do anything:
git runs programs and writes files wherever its options name them (`-c alias.x='!...'`, `--output`,
`bisect run`), so `Bash(git *)` is one too. For codex there is nothing between: its sandbox keeps git's own
folder of a workspace read-only, even where `writable_roots` names it.
"""
_AGAIN = """\
## Again

```sh
make agents                              # install them only; needs Node 20 or newer, and about 1 GB
make test-agents                         # run all of it
FLYBALL_WRITE_TABLE=1 make test-agents   # and write this page, if everything passed
```

`make test` leaves these tests out. The versions are pinned in `tests/agents/package.json`.
"""


@dataclass(frozen=True, slots=True)
class Seen:
    """One cell; ``line`` is where its test stands, which is where its row stands."""

    scenario: str
    agent: str
    words: str
    line: int = 0


def installed() -> dict[str, str]:
    """The version of each package, as npm installed it."""
    modules = REPOSITORY / ".agents" / "node_modules"
    return {name: json.loads((modules / name / "package.json").read_text())["version"] for name in AGENTS}


def pinned() -> dict[str, str]:
    return dict(json.loads(PINNED.read_text())["dependencies"])


def page(seen: Sequence[Seen], versions: Mapping[str, str]) -> str:
    names = [agent.name for agent in AGENTS.values()]
    packages = [[agent.name, f"`{name}`", versions[name]] for name, agent in AGENTS.items()]
    cells = {(each.scenario, each.agent): each.words for each in seen}
    scenarios = dict.fromkeys(each.scenario for each in sorted(seen, key=lambda each: each.line))
    rows = [[scenario, *(cells.get((scenario, name), "-") for name in names)] for scenario in scenarios]
    may = [[agent.name, f"`{json.dumps(list(agent.may_commit))}`"] for agent in AGENTS.values()]
    parts = (
        _TOP,
        _table(["agent", "package", "version"], packages),
        _WHAT,
        _table(["scenario", *names], rows),
        _NOT_RUN,
        _MAY,
        _table(["runtime", "`agent.args`"], may),
        _CARE,
        _AGAIN,
    )
    return "\n".join(parts)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
