"""The files of a new project, as text."""

from __future__ import annotations

import json
from collections.abc import Sequence

_COMMENT_COLUMN = 30


def config_text(project_id: str, *, runtime: str, gate: Sequence[str], bootstrap: Sequence[str]) -> str:
    """A ``flyball.toml`` with the few keys that most projects change; every other has a default."""
    return f"""\
# How flyball works on this project. `flyball validate` checks this file and the tasks.

[project]
id = {_toml(project_id)}

[agent]
{_agent(runtime)}

[run]
{_line("width = 3", "tasks worked on at once, as far as the pool allows")}
{_worktree(bootstrap)}
[gate]
{_gate(gate)}

[merge]
{_line('policy = "auto"', '"manual": nothing lands before `flyball merge TASK`')}
{_line("protected = []", 'more paths that no agent may change, such as "secrets/"')}
"""


def _agent(runtime: str) -> str:
    others = "claude, codex, gemini, opencode, or command: any program of yours"
    line = _line(f"runtime = {_toml(runtime)}", others)
    if runtime != "command":
        return line
    return (
        line
        + "\n"
        + _line(
            'command = ["flyball", "demo", "--agent"]', "a stand-in that obeys literally; name your program"
        )
    )


def _worktree(bootstrap: Sequence[str]) -> str:
    if not bootstrap:
        return ""
    return f"""
[worktree]
# A worktree has only what git tracks; these commands make a new one ready.
bootstrap = {_toml_list(bootstrap)}
"""


def _gate(commands: Sequence[str]) -> str:
    if commands:
        return f"# What must succeed before work lands.\ncommands = {_toml_list(commands)}"
    return """\
# What must succeed before work lands, such as ["make test"].
# Nothing was found that tests this project. An empty list means: work lands unchecked.
commands = []"""


def _line(setting: str, comment: str) -> str:
    return f"{setting:<{_COMMENT_COLUMN - 2}}  # {comment}"


def _toml(value: str) -> str:
    """Text as TOML writes it: JSON's way, but for one character that JSON does not escape."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_list(values: Sequence[str]) -> str:
    return f"[{', '.join(map(_toml, values))}]"


TASKS_README = """\
# Tasks

One Markdown file per task, here or in a folder below. This file is not a task.
`flyball task add "Add the hello page"` writes one; so does any editor:

```markdown
---
id: t-1
title: Add the hello page
status: open
priority: 1
needs: []
footprint: {write: ["pages/hello*"], read: ["lib/**"]}
---
What to do, in words. The agent reads this.
```

| key | meaning |
|---|---|
| `id` | its name, one of a kind; the branch is `agent/<id>` |
| `title` | one line |
| `status` | `open`, `in_progress`, `blocked`, `deferred` or `closed`; a task is closed with its landing |
| `type` | `task` if not given; an `epic`, `feature`, `decision` or `merge-request` is never started |
| `priority` | 0 is first; 2 if not given |
| `needs` | ids of tasks that must be closed first |
| `parent` | the id of the task it is a part of; a parent with open children is not started |
| `labels` | such as `no-dispatch` (never start it) or `area:api` (see `[areas]` in flyball.toml) |
| `footprint` | paths it writes and paths it only reads; two tasks that would clash never run at once |
| `acceptance` | how to tell that it is done |

A task without a footprint may touch anything, so it runs alone.
"""
