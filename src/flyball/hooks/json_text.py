"""Edits of JSON files that people keep: what is not ours stays byte for byte, comments included.

A text is read into nodes that know where they begin and end; an edit changes the text between two places.
Comments of ``//`` and ``/* */`` are read over. What is not plain JSON otherwise, or names one key twice, is
refused: what cannot be understood is not changed.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

_SPACE = re.compile(r"(?:[ \t\r\n]|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_PLAIN = re.compile(r"true|false|null|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_BEHIND = re.compile(r"[ \t]*(?://[^\n]*|/\*[^\n]*?\*/)?")
_DEEPEST = 200


class JsonTextError(ValueError):
    """What is not understood, and in which line."""


@dataclass(slots=True)
class JsonNode:
    """A value and its place in the text."""

    start: int
    """Of a member: where its key begins."""
    opens: int
    """Where the value itself begins."""
    end: int
    value: Any
    """Of an object or a list: an empty one of its type; what is in it are the children."""
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
        """As json.loads would give it."""
        if self.is_object:
            return {child.key: child.plain() for child in self.children}
        return [child.plain() for child in self.children] if self.is_list else self.value


def parse_json_text(text: str) -> JsonNode:
    """Raises JsonTextError for what is not JSON with comments."""
    node, end = _value(text, _after_space(text, 0), 0)
    end = _after_space(text, end)
    if end != len(text):
        raise _error(text, end)
    return node


def insert_child(
    text: str, parent: JsonNode, value: object, *, key: str | None = None, depth: int = 0
) -> str:
    """The text with one more child at the end of an object or list; ``depth`` is that of the parent."""
    step = indent_step(text)
    inner, outer = "\n" + step * (depth + 1), "\n" + step * depth
    dumped = json.dumps(value, indent=step or None, ensure_ascii=False).replace("\n", inner)
    said = dumped if key is None else f"{json.dumps(key)}: {dumped}"
    if not parent.children:
        opened, closing = parent.opens + 1, parent.end - 1
        return f"{text[:opened]}{text[opened:closing].rstrip()}{inner}{said}{outer}{text[closing:]}"
    last = parent.children[-1]
    behind = _BEHIND.match(text, last.end)
    shown = behind.end() if behind is not None else last.end
    return f"{text[: last.end]},{text[last.end : shown]}{inner}{said}{text[shown:]}"


def remove_child(text: str, parent: JsonNode, child: JsonNode) -> str:
    """The text without one child of an object or list, and without the comma that it needed."""
    at = parent.children.index(child)
    start = child.start
    while start > 0 and text[start - 1] in " \t\r\n":
        start -= 1
    comment = text[start - 1 : start] not in ("[", "{", ",", "")
    if comment and not re.match(r"[ \t]*\n", text[child.end :]):
        start = child.start  # its line must not swallow what follows
    if at > 0:
        comma = text.index(",", _after_space(text, parent.children[at - 1].end))
        return text[:comma] + text[comma + 1 : max(start, comma + 1)] + text[child.end :]
    if len(parent.children) > 1:
        end = text.index(",", _after_space(text, child.end)) + 1
        return text[:start] + text[end:]
    end = child.end
    closing = _after_space(text, end)
    alone = not comment and not text[end:closing].strip()
    return text[:start] + text[closing if alone else end :]


def indent_step(text: str) -> str:
    """What one level is indented by: as the first indented line is.

    >>> indent_step('{\\n    "a": 1\\n}')
    '    '
    """
    found = re.search(r"^[{\[][ \t]*\n([ \t]+)\S", text)
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
