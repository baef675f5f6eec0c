"""Screens: lines, labelled lines and tables, as plain text or through rich on a terminal.

A verb says *what* to show as blocks; only this file knows how. Plain text is never wrapped or shortened,
so that it can be searched; a terminal gets colour and its own width. rich is imported for terminals only.

Names come from anywhere, so nothing in them is taken for markup or for a terminal's control code.
"""

from __future__ import annotations

import errno
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

WIDEST = 140
"""Beyond this a table's reading line is too long to follow; wider terminals stay empty on the right."""
NARROW = 70
"""Below this a table's wrapping column goes under its row instead of beside it."""


class Style(Enum):
    """What a piece of text means; the value is rich's word for how it looks."""

    PLAIN = ""
    STRONG = "bold"
    GOOD = "green"
    WARN = "yellow"
    BAD = "bold red"
    QUIET = "dim"


@dataclass(frozen=True, slots=True)
class Piece:
    text: str
    style: Style = Style.PLAIN


Words = str | Piece | Sequence[str | Piece]


@dataclass(frozen=True, slots=True)
class Line:
    """A sentence. ``label`` puts a word in front and hangs the rest behind it."""

    words: Words
    label: str | Piece = ""
    indent: int = 0


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    right: bool = False
    wraps: bool = False
    """Takes the room that is left and breaks into several lines; the others are cut short."""


@dataclass(frozen=True, slots=True)
class Table:
    columns: Sequence[Column]
    rows: Sequence[Sequence[Words]]
    indent: int = 2


Block = Line | Table
LABEL_WIDTH = 10
BLANK = Line("")


def show(blocks: Iterable[Block], stream: TextIO | None = None) -> None:
    """Print blocks the way the stream can take them."""
    out = stream if stream is not None else _stdout()
    allow_any_name(out)
    if out.isatty():
        screen = console(out)
        screen.print(renderable(blocks, width=screen.width))
    else:
        out.write(plain(blocks))


def say(line: str) -> None:
    """One line on stdout."""
    out = _stdout()
    allow_any_name(out)
    print(safe(line), file=out)


def print_json(record: object) -> None:
    """A record on stdout, indented."""
    import msgspec

    out = _stdout()
    allow_any_name(out)
    print(msgspec.json.format(msgspec.json.encode(record), indent=2).decode(), file=out)


def _stdout() -> TextIO:
    """Python has none for a caller that closed it, and would print to nowhere without a word."""
    if sys.stdout is None:
        raise OSError(errno.EBADF, "standard output is closed")
    return sys.stdout


def allow_any_name(out: TextIO) -> None:
    """A terminal that cannot show a letter shows its number instead of failing."""
    with suppress(AttributeError, ValueError):
        out.reconfigure(errors="backslashreplace")  # type: ignore[attr-defined]


def safe(text: str) -> str:
    """Text in which nothing steers the terminal: control and direction codes become visible.

    >>> safe("t-1\\x1b[2J")
    't-1\\\\x1b[2J'
    """
    if text.isprintable():
        return text
    shown = []
    for char in text:
        kind = unicodedata.category(char)
        # Joiners of letters and emoji are format characters too, and harmless.
        steers = kind in ("Cc", "Cs", "Zl", "Zp") or (kind == "Cf" and char not in "\u200c\u200d\u00ad")
        shown.append(char.encode("unicode_escape").decode() if steers else char)
    return "".join(shown)


def pieces(words: Words) -> list[Piece]:
    if isinstance(words, str):
        return [Piece(safe(words))]
    if isinstance(words, Piece):
        return [Piece(safe(words.text), words.style)]
    return [piece for part in words for piece in pieces(part)]


def plain_words(words: Words) -> str:
    return "".join(piece.text for piece in pieces(words))


# -- plain text -----------------------------------------------------------------------------------


def plain(blocks: Iterable[Block]) -> str:
    lines: list[str] = []
    for block in blocks:
        if isinstance(block, Line):
            label = f"{plain_words(block.label):<{LABEL_WIDTH}}" if block.label else ""
            lines.append(f"{' ' * block.indent}{label}{plain_words(block.words)}")
        else:
            lines.extend(_plain_table(block))
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _plain_table(table: Table) -> list[str]:
    from rich.cells import cell_len  # a table of character widths, nothing else of rich

    texts = [[column.title for column in table.columns]]
    texts += [[plain_words(cell) for cell in row] for row in table.rows]
    widths = [max(cell_len(cell) for cell in column) for column in zip(*texts, strict=True)]
    lines = []
    for row in texts:
        cells = []
        for text, width, column in zip(row, widths, table.columns, strict=True):
            gap = " " * (width - cell_len(text))
            cells.append(gap + text if column.right else text + gap)
        lines.append(" " * table.indent + "  ".join(cells))
    return lines


# -- terminals ------------------------------------------------------------------------------------


def console(stream: TextIO) -> Console:
    """rich's console for a terminal; NO_COLOR and dumb terminals are its business."""
    from rich.console import Console

    made = Console(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=False)
    if made.width > WIDEST:
        made.width = WIDEST
    return made


def renderable(blocks: Iterable[Block], *, width: int) -> RenderableType:
    from rich.console import Group

    parts: list[RenderableType] = []
    for block in blocks:
        if isinstance(block, Line):
            parts.append(_rich_line(block))
        elif width < NARROW and any(plain_words(row[-1]) for row in block.rows) and block.columns[-1].wraps:
            parts.extend(_rich_line(line) for line in _stacked_lines(block))
        else:
            parts.append(_rich_table(block, width))
    return Group(*parts)


def _text(words: Words) -> Text:
    from rich.text import Text

    return Text.assemble(*((piece.text, piece.style.value) for piece in pieces(words)))


def _rich_line(line: Line) -> RenderableType:
    from rich.padding import Padding
    from rich.table import Table as Grid

    if not line.label:
        return Padding(_text(line.words), (0, 0, 0, line.indent))
    grid = Grid.grid(padding=0)
    grid.add_column(width=LABEL_WIDTH, style=Style.QUIET.value)
    grid.add_column()
    grid.add_row(_text(line.label), _text(line.words))
    return Padding(grid, (0, 0, 0, line.indent))


def _rich_table(table: Table, width: int) -> RenderableType:
    from rich.padding import Padding
    from rich.table import Table as RichTable

    made = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=Style.QUIET.value)
    for column in table.columns:
        made.add_column(
            column.title,
            justify="right" if column.right else "left",
            no_wrap=not column.wraps,
            overflow="fold" if column.wraps else "ellipsis",
            max_width=None if column.wraps else width // 2 - 4,
        )
    for row in table.rows:
        made.add_row(*(_text(cell) for cell in row))
    return Padding(made, (0, 0, 0, table.indent))


def _stacked_lines(table: Table) -> Iterator[Line]:
    titles = [column.title for column in table.columns]
    yield Line(Piece("  ".join(filter(None, titles)), Style.QUIET), indent=table.indent)
    for *cells, last in table.rows:
        words: list[str | Piece] = []
        for cell in cells:
            words += [*pieces(cell), "  "] if plain_words(cell) else []
        yield Line(words, indent=table.indent)
        if plain_words(last):
            yield Line(last, indent=table.indent + 4)
