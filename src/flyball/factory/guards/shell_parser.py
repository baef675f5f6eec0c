"""A line of shell in its commands: words without their quotes, where output goes, what is nested in it.

Enough to look at what an agent is about to run, not enough to run it. What the shell would only know while
running (variables, patterns, the output of commands) makes a word *unsure*. Nested commands, ``$(...)``,
backticks and ``<(...)``, are commands of their own. ValueError for what cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

_ENDS = frozenset(";&|\n()")
_ESCAPES = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
}
_DEPTH = 20


class Word(NamedTuple):
    text: str
    sure: bool = True


class ShellCommand(NamedTuple):
    words: list[Word]
    writes: list[Word]
    """Files that its output goes to."""
    inputs: list[str]
    """What it is given to read: the bodies of here-documents."""


def commands_in(text: str, depth: int = 0) -> list[ShellCommand]:
    """Every simple command, in order, nested ones before the one they are in."""
    if depth > _DEPTH:
        raise ValueError("nested too deep")
    return list(_ShellReader(text, depth).commands())


class _ShellReader:
    def __init__(self, text: str, depth: int) -> None:
        self.text, self.at, self._depth = text.replace("\\\n", ""), 0, depth
        self._nested: list[ShellCommand] = []
        self._documents: list[tuple[str, bool, ShellCommand]] = []

    def commands(self) -> Iterator[ShellCommand]:
        current = ShellCommand([], [], [])
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t\r":
                self.at += 1
            elif char == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif char in "<>" or (char == "&" and self.text[self.at + 1 : self.at + 2] == ">"):
                self._redirect(current)
            elif char in _ENDS:
                self.at += 1
                if char == "\n":
                    self._take_documents()
                yield from self._take_commands(current)
                current = ShellCommand([], [], [])
            else:
                word = self._word()
                if not (word.text.isdigit() and self.text[self.at : self.at + 1] in ("<", ">")):
                    current.words.append(word)
        self._take_documents()
        yield from self._take_commands(current)

    def _take_commands(self, command: ShellCommand) -> Iterator[ShellCommand]:
        nested, self._nested = self._nested, []
        yield from nested
        if command.words or command.writes:
            yield command

    # -- redirections -----------------------------------------------------------------------------------

    def _redirect(self, command: ShellCommand) -> None:
        start = self.at
        while self.text[self.at : self.at + 1] in ("<", ">", "&", "|") and self.at - start < 3:
            self.at += 1
        operator = self.text[start : self.at]
        if operator in ("<", ">") and self.text[self.at : self.at + 1] == "(":
            self.at += 1
            self._nested += commands_in(self._until_closed(), self._depth + 1)
            command.words.append(Word("", sure=False))
            return
        if operator == "<<" and self.text[self.at : self.at + 1] == "-":
            self.at += 1
        while self.text[self.at : self.at + 1] in (" ", "\t"):
            self.at += 1
        target = self._word()
        if operator == "<<<":
            command.inputs.append(target.text)
        elif operator == "<<":
            self._documents.append((target.text, self.text[start : start + 3] == "<<-", command))
        elif ">" in operator and not (
            operator.endswith("&") and (target.text.isdigit() or target.text == "-")
        ):
            command.writes.append(target)

    def _take_documents(self) -> None:
        for end, tabs, command in self._documents:
            lines: list[str] = []
            while self.at < len(self.text):
                stop = self.text.find("\n", self.at)
                stop = len(self.text) if stop < 0 else stop
                line, self.at = self.text[self.at : stop], stop + 1
                line = line.lstrip("\t") if tabs else line
                if line == end:
                    break
                lines.append(line)
            command.inputs.append("\n".join(lines))
        self._documents = []

    # -- words ------------------------------------------------------------------------------------------

    def _word(self) -> Word:
        parts: list[str] = []
        sure, start = True, self.at
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t\r<>" or char in _ENDS:
                break
            text, certain = self._piece(char)
            parts.append(text)
            sure = sure and certain
        if self.at == start:
            raise ValueError("a word is missing")
        return Word("".join(parts), sure)

    def _piece(self, char: str) -> tuple[str, bool]:
        """The next bit of a word, and whether the shell would leave it like this."""
        self.at += 1
        if char == "\\":
            self.at += 1
            return self.text[self.at - 1 : self.at], True
        if char == "'":
            return self._upto("'"), True
        if char == '"':
            return self._double_quoted()
        if char == "`":
            self._nested += commands_in(self._upto("`").replace("\\`", "`"), self._depth + 1)
            return "`", False
        if char == "$":
            return self._dollar()
        return char, char not in "*?[{~"

    def _upto(self, quote: str) -> str:
        start = self.at
        while self.at < len(self.text) and self.text[self.at] != quote:
            self.at += 2 if quote == "`" and self.text[self.at] == "\\" else 1
        if self.at >= len(self.text):
            raise ValueError(f"no closing {quote}")
        self.at += 1
        return self.text[start : self.at - 1]

    def _double_quoted(self) -> tuple[str, bool]:
        parts: list[str] = []
        sure = True
        while True:
            char = self.text[self.at : self.at + 1]
            if not char:
                raise ValueError('no closing "')
            if char == '"':
                self.at += 1
                return "".join(parts), sure
            if char in "$`" or (char == "\\" and self.text[self.at + 1 : self.at + 2] in '$`"\\'):
                text, certain = self._piece(char)
                parts.append(text)
                sure = sure and certain
            else:
                parts.append(char)
                self.at += 1

    def _dollar(self) -> tuple[str, bool]:
        following = self.text[self.at : self.at + 1]
        if following == "'":
            self.at += 1
            return self._ansi_quoted(), True
        if following == '"':
            return "", True
        if following == "(":
            self.at += 1
            inside = self._until_closed()
            if not inside.startswith("("):
                self._nested += commands_in(inside, self._depth + 1)
            return f"$({inside})", False
        if following == "{":
            self.at += 1
            return "${" + self._read_braces() + "}", False
        return "$", not (following.isalnum() or following in "_@*#?!-$")

    def _read_braces(self) -> str:
        start, depth = self.at, 1
        while depth and self.at < len(self.text):
            depth += {"{": 1, "}": -1}.get(self.text[self.at], 0)
            self.at += 1
        return self.text[start : self.at - 1]

    def _ansi_quoted(self) -> str:
        parts: list[str] = []
        while True:
            char = self.text[self.at : self.at + 1]
            if not char:
                raise ValueError("no closing '")
            self.at += 1
            if char == "'":
                return "".join(parts)
            parts.append(self._escape() if char == "\\" else char)

    def _escape(self) -> str:
        char = self.text[self.at : self.at + 1]
        self.at += 1
        base, most = {"x": (16, 2), "u": (16, 4), "U": (16, 8)}.get(char, (8, 3))
        start = self.at if char in "xuU" else self.at - 1
        digits = "0123456789abcdefABCDEF" if base == 16 else "01234567"
        end = start
        while end < len(self.text) and end - start < most and self.text[end] in digits:
            end += 1
        if end > start:
            self.at = end
            return chr(int(self.text[start:end], base))
        return _ESCAPES.get(char, f"\\{char}")

    def _until_closed(self) -> str:
        """What is between parentheses that are open already, quotes minded."""
        start, depth = self.at, 1
        while self.at < len(self.text):
            char = self.text[self.at]
            self.at += 1
            if char == "\\":
                self.at += 1
            elif char == "'":
                self._upto("'")
            elif char == '"':
                while self.at < len(self.text) and self.text[self.at] != '"':
                    self.at += 2 if self.text[self.at] == "\\" else 1
                self.at += 1
            elif char in "()":
                depth += 1 if char == "(" else -1
                if not depth:
                    return self.text[start : self.at - 1]
        raise ValueError("no closing )")
