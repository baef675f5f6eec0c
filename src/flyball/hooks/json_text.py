"""Edits of JSON files that people keep: what is not ours stays byte for byte, comments included.

A text is read into nodes that know where they begin and end; an edit changes the text between two places.
What ``insert_child`` puts in is a comma, and one piece that begins with an end of line; ``remove_child``
takes out just these, so the two undo each other whatever else was changed meanwhile.

Comments of ``//`` and ``/* */``, a byte order mark and ends of line of either kind are read over. What is not
plain JSON otherwise, or names one key twice, is refused: what cannot be understood is not changed.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

_SPACE = re.compile(r"(?:[ \t\r\n]|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_PLAIN = re.compile(r"true|false|null|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_BEHIND = re.compile(r"[ \t]*(?://[^\r\n]*|/\*[^\r\n]*?\*/)")
"""A comment that belongs to what stands before it on its line."""
_LINE_START = re.compile(r"(?:\r?\n)?[ \t]*\Z")
_LINE_END = re.compile(r"(?:\r?\n)?[ \t]*")
_OPEN_COMMENT = re.compile(r"(?:[ \t\r\n]|//[^\r\n]*[\r\n]|/\*.*?\*/)*//[^\r\n]*\Z", re.DOTALL)
_MARK = "\ufeff"
_DEEPEST = 200


class JsonTextError(ValueError):
    """What is not understood, and in which line."""


@dataclass(slots=True)
class JsonNode:
    """A value and its place in the text."""

    start: int
    """Where the key of a member begins."""
    opens: int
    """Where the value itself begins."""
    end: int
    value: Any
    """An empty object or list where it is one; what is in it are the children."""
    key: str | None = None
    children: list[JsonNode] = field(default_factory=list)

    @property
    def is_object(self) -> bool:
        return isinstance(self.value, dict)

    @property
    def is_list(self) -> bool:
        return isinstance(self.value, list)

    def member(self, key: str) -> JsonNode | None:
        return next((child for child in self.children if child.key == key), None)

    def plain(self) -> Any:
        """The value that json.loads would give."""
        if self.is_object:
            return {child.key: child.plain() for child in self.children}
        return [child.plain() for child in self.children] if self.is_list else self.value


def parse_json_text(text: str) -> JsonNode:
    """Raises JsonTextError for what is not JSON with comments."""
    node, end = _value(text, _after_space(text, len(_MARK) if text.startswith(_MARK) else 0), 0)
    end = _after_space(text, end)
    if end != len(text):
        raise _error(text, end)
    return node


def insert_child(
    text: str, parent: JsonNode, value: object, *, key: str | None = None, depth: int = 0
) -> str:
    """The text with one more child at the end of an object or list; ``depth`` is that of the parent."""
    step, newline = indent_step(text), "\r\n" if "\r\n" in text else "\n"
    inner, outer = newline + step * (depth + 1), newline + step * depth
    dumped = json.dumps(value, indent=step, ensure_ascii=False).replace("\n", inner)
    said = dumped if key is None else f"{json.dumps(key)}: {dumped}"
    if not parent.children:
        closing = parent.end - 1
        return f"{text[:closing]}{inner}{said}{outer}{text[closing:]}"
    last = parent.children[-1]
    behind = _BEHIND.match(text, last.end)
    shown = behind.end() if behind is not None else last.end
    return f"{text[: last.end]},{text[last.end : shown]}{inner}{said}{text[shown:]}"


def remove_child(text: str, parent: JsonNode, child: JsonNode) -> str:
    """The text without one child of an object or list, and without the comma that it needed."""
    at = parent.children.index(child)
    since = parent.opens + 1 if at == 0 else _after_space(text, parent.children[at - 1].end) + 1
    before, rest = text[since : child.start], text[child.end :]
    if at < len(parent.children) - 1:
        comma = _after_space(text, child.end)
        rest = text[child.end : comma] + text[comma + 1 :]
    elif at > 0:
        since -= 1
    elif (end := _LINE_END.match(rest)) is not None and child.end + end.end() == parent.end - 1:
        rest = rest[end.end() :]
    kept = _LINE_START.sub("", before, count=1)
    if _OPEN_COMMENT.match(kept) and not rest.startswith(("\r", "\n")):
        kept = before  # what follows must not become a part of the comment
    return text[:since] + kept + rest


def indent_step(text: str) -> str:
    """What one level is indented by: as the first indented line is.

    >>> indent_step('{\\n    "a": 1\\n}')
    '    '
    """
    found = re.search(r"[{\[][ \t]*\r?\n([ \t]+)\S", text)
    return found[1] if found else "  "


# -- reading ------------------------------------------------------------------------------------------------


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found is not None else at


def _error(text: str, at: int) -> JsonTextError:
    line = text.count("\n", 0, at) + 1
    found = repr(text[at : at + 20]) if at < len(text) else "the end of the file"
    return JsonTextError(f"line {line} is not JSON: {found}")


def _value(text: str, at: int, depth: int) -> tuple[JsonNode, int]:
    if depth > _DEEPEST:
        raise JsonTextError(f"it is nested more than {_DEEPEST} deep")
    first = text[at : at + 1]
    if first in ("{", "["):
        node = JsonNode(at, at, at, {} if first == "{" else [])
        node.children, node.end = _children(text, at, depth)
        return node, node.end
    found = _STRING.match(text, at) or _PLAIN.match(text, at)
    if found is None:
        raise _error(text, at)
    try:
        value = json.loads(found[0])
    except ValueError:
        raise _error(text, at) from None
    return JsonNode(at, at, found.end(), value), found.end()


def _children(text: str, at: int, depth: int) -> tuple[list[JsonNode], int]:
    closing = "}" if text[at] == "{" else "]"
    children: list[JsonNode] = []
    at = _after_space(text, at + 1)
    if text[at : at + 1] == closing:
        return children, at + 1
    while True:
        child, at = _member(text, at, depth) if closing == "}" else _value(text, at, depth + 1)
        if child.key is not None and any(other.key == child.key for other in children):
            raise JsonTextError(f"it names {child.key!r} twice")
        children.append(child)
        at = _after_space(text, at)
        mark = text[at : at + 1]
        if mark == closing:
            return children, at + 1
        if mark != ",":
            raise _error(text, at)
        at = _after_space(text, at + 1)


def _member(text: str, at: int, depth: int) -> tuple[JsonNode, int]:
    found = _STRING.match(text, at)
    if found is None:
        raise _error(text, at)
    colon = _after_space(text, found.end())
    if text[colon : colon + 1] != ":":
        raise _error(text, colon)
    node, end = _value(text, _after_space(text, colon + 1), depth + 1)
    node.key, node.start = str(json.loads(found[0])), at
    return node, end
