"""YAML between two lines of ``---``, read without YAML's surprises and changed without touching the rest.

Every scalar stays the text that was written: ``id: 007`` is ``"007"``, ``title: no`` is ``"no"`` and a date
is its digits. What a value means is decided where its key is known (``fields.py``). Only an unquoted
``null``, ``~`` or nothing at all is None.

The text is not trusted, so it is read from the parser's events and never constructed: aliases are refused
(a few lines of them could grow into gigabytes), nesting and length are bounded, and a key that is there twice
is an error, not a choice.

``with_value`` changes one value in place. Every other byte stays as it was: comments, line ends, quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from flyball.errors import InvariantError

if TYPE_CHECKING:
    from yaml import Event, Mark, ScalarEvent
    from yaml._yaml import Mark as CMark

Value: TypeAlias = "str | list[Value] | dict[str, Value] | None"

LENGTH_LIMIT = 65_536
DEPTH_LIMIT = 20
_NULLS = frozenset(["", "~", "null", "Null", "NULL"])
_NEWLINE = r"(?:\r\n?|\n)"
_OPENING = re.compile(rf"\A\ufeff?(?:[ \t]*{_NEWLINE})*---[ \t]*{_NEWLINE}")
_CLOSING = re.compile(rf"(?:\A|(?<=[\r\n]))---[ \t]*(?:{_NEWLINE}|\Z)")


class MalformedError(Exception):
    """Words for a person: what is wrong, in which line, and the way out."""


@dataclass(slots=True)
class Block:
    """What a front matter says."""

    values: dict[str, Value] = field(default_factory=dict)
    spans: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Per key of the outermost mapping that has one scalar: where its value begins and ends."""
    flow: bool = False
    """Written with braces, ``{id: t-1, ...}``."""
    start: int = 0
    """Where the mapping begins."""
    indent: int = 0


@dataclass(frozen=True, slots=True)
class Parts:
    """A text taken apart: ``text[begin:end]`` is the front matter, ``text[rest:]`` what follows it."""

    begin: int
    end: int
    rest: int
    first_line: int
    """The number of its first line in the text, for messages."""


def has_front_matter(text: str) -> bool:
    return _OPENING.match(text) is not None


def split(text: str) -> Parts | None:
    """Where the front matter lies; None where there is none. One that never ends is malformed."""
    opened = _OPENING.match(text)
    if opened is None:
        return None
    closed = _CLOSING.search(text, opened.end())
    if closed is None:
        raise MalformedError("the front matter begins with --- and never ends; put --- behind its last line")
    if closed.start() - opened.end() > LENGTH_LIMIT:
        raise MalformedError(
            f"the front matter is longer than {LENGTH_LIMIT // 1024} KiB; move text below it"
        )
    lines = len(re.findall(_NEWLINE, opened[0]))
    return Parts(opened.end(), closed.start(), closed.end(), lines + 1)


def parse(yaml_text: str, *, first_line: int = 1) -> Block:
    """The mapping that a piece of YAML says."""
    import yaml

    try:
        return _build(_events(yaml_text), first_line)
    except yaml.MarkedYAMLError as error:
        raise MalformedError(_yaml_words(error, yaml_text, first_line)) from None
    except yaml.YAMLError as error:
        reason = getattr(error, "reason", None) or str(error)
        raise MalformedError(f"the front matter cannot be read: {reason}") from None


def _events(yaml_text: str) -> Iterator[Event]:
    import yaml

    # libyaml where it is there: it is twenty times as fast.
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    events: Iterator[Event] = yaml.parse(yaml_text, Loader=loader)
    return events


# -- from events to values ------------------------------------------------------------------------


@dataclass(slots=True)
class _Frame:
    """A list or a mapping that is not finished yet."""

    into: list[Value] | dict[str, Value]
    key: str | None = None


def _build(events: Iterator[Event], first_line: int) -> Block:
    import yaml

    block = Block()
    frames: list[_Frame] = []
    documents = 0
    for event in events:
        if isinstance(event, yaml.ScalarEvent):
            _take_scalar(event, frames, block, first_line)
        elif isinstance(event, yaml.CollectionStartEvent):
            _refuse_tag(event.tag, event, first_line)
            into: list[Value] | dict[str, Value] = {} if isinstance(event, yaml.MappingStartEvent) else []
            if not frames:
                _begin(event, into, block)
            else:
                _put(frames[-1], into, event, first_line)
            frames.append(_Frame(into))
            if len(frames) > DEPTH_LIMIT:
                raise MalformedError(_at(event, first_line) + f"nested deeper than {DEPTH_LIMIT}")
        elif isinstance(event, yaml.CollectionEndEvent):
            frames.pop()
        elif isinstance(event, yaml.AliasEvent):
            raise MalformedError(_at(event, first_line) + _STAR)
        elif isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise MalformedError(_at(event, first_line) + "a second document begins; write one mapping")
    return block


def _begin(event: Event, into: list[Value] | dict[str, Value], block: Block) -> None:
    if not isinstance(into, dict):
        raise MalformedError(_NO_MAPPING)
    block.values = into
    block.flow = bool(getattr(event, "flow_style", False))
    block.start = _mark(event).index
    block.indent = _mark(event).column


def _take_scalar(event: ScalarEvent, frames: list[_Frame], block: Block, first_line: int) -> None:
    if not frames:
        if event.value:
            raise MalformedError(_NO_MAPPING)
        return
    if event.tag not in (None, "!", "tag:yaml.org,2002:str"):
        raise MalformedError(
            _at(event, first_line) + f"the tag {event.tag} has no meaning here; take it away"
        )
    frame = frames[-1]
    if isinstance(frame.into, dict) and frame.key is None:
        if event.value in frame.into:
            raise MalformedError(_at(event, first_line) + f"{event.value!r} is there twice; keep one")
        frame.key = event.value
        return
    if len(frames) == 1 and frame.key is not None:
        block.spans[frame.key] = (_mark(event).index, _mark(event, end=True).index)
    plain = event.implicit[0] and event.value in _NULLS
    _put(frame, None if plain else event.value, event, first_line)


def _refuse_tag(tag: str | None, event: Event, first_line: int) -> None:
    if tag not in (None, "!", "tag:yaml.org,2002:str"):
        raise MalformedError(_at(event, first_line) + f"the tag {tag} has no meaning here; take it away")


def _put(frame: _Frame, value: Value, event: Event, first_line: int) -> None:
    if isinstance(frame.into, list):
        frame.into.append(value)
    elif frame.key is None:
        raise MalformedError(
            _at(event, first_line) + "a key must be a word; quote a value that begins with [ or {"
        )
    else:
        frame.into[frame.key] = value
        frame.key = None


# -- words ----------------------------------------------------------------------------------------

_STAR = 'a value that begins with * must be quoted, "*.py" (anchors and aliases are not used here)'
_NO_MAPPING = "the front matter is not a list of keys and values, such as 'id: t-1'"


def _at(event: Event, first_line: int) -> str:
    return f"line {_mark(event).line + first_line}: "


def _mark(event: Event, *, end: bool = False) -> Mark | CMark:
    mark = event.end_mark if end else event.start_mark
    if mark is None:
        raise InvariantError("the YAML parser says where each event lies")
    return mark


def _yaml_words(error: object, yaml_text: str, first_line: int) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    number = mark.line if mark is not None else 0
    context, problem = getattr(error, "context", None) or "", getattr(error, "problem", None) or ""
    lines = re.split(_NEWLINE, yaml_text)
    line = lines[number] if number < len(lines) else ""
    hint = _hint(context, problem, line)
    return f"line {number + first_line}: " + (hint or f"{problem}{f' ({context})' if context else ''}")


def _hint(context: str, problem: str, line: str) -> str:
    """The way out of what people run into; empty where only YAML's own words are left."""
    if "alias" in context:
        return _STAR
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return "indented with a tab; use spaces"
    if "mapping values are not allowed" in problem:
        return 'a value with ": " in it must be quoted'
    if "cannot start any token" in problem:
        return "a value that begins with one of @ ` % or a tab must be quoted"
    return ""


# -- changing one value ---------------------------------------------------------------------------


def with_value(text: str, key: str, word: str) -> str:
    """The text with ``key: word`` in its front matter; everything else stays, byte for byte.

    >>> with_value("---\\nid: t-1\\nstatus: open # soon\\n---\\n", "status", "closed")
    '---\\nid: t-1\\nstatus: closed # soon\\n---\\n'
    """
    parts = split(text)
    if parts is None:
        raise MalformedError("there is no front matter")
    old = text[parts.begin : parts.end]
    block = parse(old, first_line=parts.first_line)
    line_end = re.findall(_NEWLINE, text[: parts.begin])[-1]
    entry = f"{key}: {word}"
    new = (
        _replace_word(old, block.spans[key], word)
        if key in block.spans
        else _add_entry(old, block, entry, line_end)
    )
    if parse(new).values != {**block.values, key: word}:
        raise MalformedError(f"{key!r} is written in a way that cannot be changed; write '{key}: {word}'")
    return text[: parts.begin] + new + text[parts.end :]


def _replace_word(old: str, span: tuple[int, int], word: str) -> str:
    before, was, after = old[: span[0]], old[slice(*span)], old[span[1] :]
    gap = "" if before.endswith((" ", "\t", "\n", "\r")) else " "
    # A block scalar's span ends behind its last line.
    line_end = found[0] if (found := re.search(rf"{_NEWLINE}\Z", was)) else ""
    return before + gap + word + line_end + after


def _add_entry(old: str, block: Block, entry: str, line_end: str) -> str:
    if block.flow:
        inside = block.start + 1
        return f"{old[:inside]}{entry}, {old[inside:]}"
    return f"{old}{' ' * block.indent}{entry}{line_end}"


# -- writing --------------------------------------------------------------------------------------

_PLAIN = re.compile(r"[^\W\d_](?:[\w ./()'+-]*[\w./)])?")
_OTHER_MEANINGS = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"])


def scalar(value: str) -> str:
    """A text as YAML that any reader takes for exactly this text.

    >>> scalar("Add the hello page"), scalar("no"), scalar("007"), scalar("a: b")
    ('Add the hello page', '"no"', '"007"', '"a: b"')
    """
    if _PLAIN.fullmatch(value) and value.isprintable() and value.casefold() not in _OTHER_MEANINGS:
        return value
    return '"' + "".join(_escape(char) for char in value) + '"'


def _escape(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
