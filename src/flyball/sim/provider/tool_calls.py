"""The tool calls of a fake model: it calls the tools it is offered, where the prompt asks for it.

    errand: write pages/hello.md = Hello there.
    errand: run git log --oneline
    errand: delegate general-purpose = Say that you are done.
    errand: delegate and wait Explore = Say that you are done.
    errand: delegate 8 general-purpose = Say that you are done.

A subagent works beside its session, or its session waits for it.

Each such line of the latest prompt that has any is one action. The model makes one tool call for each, in
order, and then says that it is done. Several subagents of one line are calls of one answer; where an API
takes one call at a time, they are started one after the other. Nothing is remembered between two requests:
the tool results that follow the prompt say how far it has come. So any number of agents can be served at
once, each by what its own prompt asks for, and a session that is resumed goes on where it stopped.

A write makes a new file with one line in it; most agents refuse to write over a file that they have not read.
A path with a star in it stands for the path that the prompt names like that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

_ACTION = re.compile(
    r"^errand: (?:write (?P<path>\S+) = (?P<text>.*)|run (?P<command>.+)"
    r"|delegate (?P<count>\d+ )?(?P<wait>and wait )?(?P<kind>\S+) = (?P<prompt>.+))$",
    re.MULTILINE,
)
_RESULTS = ("tool_result", "function_call_output", "custom_tool_call_output")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call. ``given`` is text where the tool takes no fields."""

    tool: str
    given: Mapping[str, object] | str
    namespace: str = ""
    """Of a tool that stands among others of its kind."""


@dataclass(frozen=True, slots=True)
class _Result:
    """A tool's result; ``call`` is the id of the call it belongs to."""

    call: str


@dataclass(frozen=True, slots=True)
class PromptAction:
    path: str = ""
    text: str = ""
    command: str = ""
    kind: str = ""
    """Of a subagent."""
    prompt: str = ""
    wait: bool = False
    count: int = 1

    def calls(self, offered: frozenset[str]) -> list[ToolCall]:
        """Calls of the first known tool that is offered; none if there is none for this action."""
        tools = _RUNNING if self.command else _DELEGATING if self.prompt else _WRITING
        known = ((name, given(self)) for name, given in tools.items() if name in offered)
        found = (ToolCall(name, given, _NAMESPACES.get(name, "")) for name, given in known)
        return list(islice(found, 1)) * self.count


_SEARCHED = ("spawn_agent",)
"""Tools of codex that are offered through a search among them, and can be called without one."""
_NAMESPACES = {"spawn_agent": "multi_agent_v1"}
Given = Callable[[PromptAction], Mapping[str, object] | str]
_WRITING: Mapping[str, Given] = {
    "Write": lambda action: {"file_path": action.path, "content": f"{action.text}\n"},
    "write_file": lambda action: {"file_path": action.path, "content": f"{action.text}\n"},
    "write": lambda action: {"filePath": action.path, "content": f"{action.text}\n"},
    "apply_patch": lambda action: (
        f"*** Begin Patch\n*** Add File: {action.path}\n+{action.text}\n*** End Patch\n"
    ),
}
_RUNNING: Mapping[str, Given] = {
    "Bash": lambda action: {"command": action.command, "description": "Run an errand"},
    "run_shell_command": lambda action: {"command": action.command},
    "bash": lambda action: {"command": action.command},
    "exec_command": lambda action: {"cmd": action.command},
}
_DELEGATING: Mapping[str, Given] = {
    "Agent": lambda action: {
        "description": "Run an errand",
        "prompt": action.prompt,
        "subagent_type": action.kind,
        **({"run_in_background": False} if action.wait else {}),
    },
    "invoke_agent": lambda action: {"agent_name": action.kind, "prompt": action.prompt},
    "task": lambda action: {
        "description": "Run an errand",
        "prompt": action.prompt,
        "subagent_type": action.kind,
    },
    "spawn_agent": lambda action: {"message": action.prompt, "agent_type": action.kind},
}


def next_call(body: Mapping[str, object]) -> ToolCall | None:
    """The next tool call, for an API that takes one at a time; None: nothing is left to do.

    >>> next_call({"messages": [{"role": "user", "content": "errand: run ls"}], "tools": [{"name": "bash"}]})
    ToolCall(tool='bash', given={'command': 'ls'}, namespace='')
    """
    return next(iter(next_calls(body)), None)


def next_calls(body: Mapping[str, object]) -> list[ToolCall]:
    """The next tool calls of one answer. An action that no offered tool can do is skipped."""
    todo: list[PromptAction] = []
    results: set[str] = set()
    for said in _conversation(body):
        if isinstance(said, _Result):
            # A set: clients that resume have been seen to send a result twice.
            results.add(said.call)
        elif found := [
            PromptAction(
                _match_star(match["path"] or "", said),
                match["text"] or "",
                match["command"] or "",
                match["kind"] or "",
                match["prompt"] or "",
                wait=bool(match["wait"]),
                count=int(match["count"] or 1),
            )
            for match in _ACTION.finditer(said)
        ]:
            todo, results = found, set()
    offered = frozenset(_tool_names(body))
    done = len(results)
    for action in todo:
        calls = action.calls(offered)
        if done < len(calls):
            return calls[done:]
        done -= len(calls)
    return []


def _match_star(path: str, prompt: str) -> str:
    """The path in the prompt that a path with stars stands for.

    >>> _match_star("*/answer-*.json", "Write it to /tmp/answer-7.json, please.")
    '/tmp/answer-7.json'
    """
    if "*" not in path:
        return path
    like = r"[^\s*]*".join(map(re.escape, path.split("*")))
    named = re.search(rf"(?<!\S){like}", prompt)
    return named[0] if named else path


def _conversation(body: Mapping[str, object]) -> Iterator[str | _Result]:
    """The user's texts and the tools' results, in order, in any vendor's format."""
    entries = body.get("messages") or body.get("input") or body.get("contents")
    if isinstance(entries, str):
        yield entries
    for entry in _mappings(entries):
        result = _result(entry)
        if result is not None:
            yield result
        elif entry.get("role") == "user":
            yield from _pieces(entry.get("content") or entry.get("parts"))


def _pieces(content: object) -> Iterator[str | _Result]:
    if isinstance(content, str):
        yield content
    for piece in _mappings(content):
        result = _result(piece)
        if result is not None:
            yield result
        elif isinstance(piece.get("text"), str):
            yield str(piece["text"])


def _result(piece: Mapping[str, object]) -> _Result | None:
    within = piece.get("functionResponse")
    if isinstance(within, dict):
        return _Result(str(within.get("id")))
    if piece.get("role") != "tool" and piece.get("type") not in _RESULTS:
        return None
    return _Result(str(piece.get("tool_use_id") or piece.get("tool_call_id") or piece.get("call_id")))


def _tool_names(body: Mapping[str, object]) -> Iterator[str]:
    for tool in _mappings(body.get("tools")):
        if tool.get("type") == "tool_search":
            yield from _SEARCHED
        within = tool.get("functionDeclarations") or [tool.get("function") or tool]
        yield from (str(each.get("name")) for each in _mappings(within))


def _mappings(value: object) -> Iterator[Mapping[str, object]]:
    return (each for each in value if isinstance(each, dict)) if isinstance(value, list) else iter(())
