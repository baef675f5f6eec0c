"""The rule in Lua beside the rule in Python: which function mirrors which, and when both were last looked at.

Each function of src/flyball/stores/redis/lua, and each script, says above itself what it mirrors::

    -- twin: stores/handoff.py _grant_waiting
    -- no twin: only a server can tell a channel itself

redis_twins.toml keeps a fingerprint of both sides, without comments, docstrings and white space. A side that
has changed since is a question: must the other change too? Once both were looked at::

    python -m tests.stores.twins --record
"""

from __future__ import annotations

import ast
import hashlib
import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "flyball"
LUA = PACKAGE / "stores" / "redis" / "lua"
RECORDED = Path(__file__).with_name("redis_twins.toml")
RECORD = "python -m tests.stores.twins --record"

_FUNCTION = re.compile(r"(?:local )?function ([\w.]+)\(")
_TWIN = re.compile(r"-- twin: (\S+\.py) (.+)")
_NO_TWIN = re.compile(r"-- no twin: \S+")
_LUA_WORD = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|--[^\n]*")


@dataclass(frozen=True)
class LuaPart:
    """One function, or the code of one file that is in none."""

    place: str
    head: str
    code: str

    @property
    def twins(self) -> tuple[str, ...]:
        """What it mirrors, as ``file qualified_name``."""
        found = _TWIN.findall(self.head)
        return tuple(f"{path} {name.strip()}" for path, names in found for name in names.split(","))

    @property
    def has_no_twin(self) -> bool:
        return _NO_TWIN.search(self.head) is not None

    @property
    def fingerprint(self) -> str:
        return _hashed(self.code)


# -- Lua ----------------------------------------------------------------------------------------------------


def lua_parts(folder: Path = LUA) -> list[LuaPart]:
    """Every function of the library; every other script as a whole."""
    return [
        part
        for path in sorted(folder.rglob("*.lua"))
        for part in parts_of(path.relative_to(folder).as_posix(), path.read_text(encoding="utf-8"))
    ]


def parts_of(name: str, text: str) -> Iterator[LuaPart]:
    if not name.startswith("lib/"):
        yield LuaPart(name, text, without_comments(text))
        return
    lines, outside, head = text.splitlines(), list[str](), list[str]()
    at = 0
    while at < len(lines):
        found = _FUNCTION.match(lines[at])
        if found is None:
            head = [*head, lines[at]] if lines[at].startswith("--") else []
            outside.append(lines[at])
            at += 1
            continue
        end = at
        # A function ends on its own line, or at the first "end" that is not indented.
        while not re.search(r"\bend$", lines[end]) or (end > at and lines[end] != "end"):
            end += 1
        body = "\n".join(lines[at : end + 1])
        yield LuaPart(f"{name} {found[1]}", "\n".join(head), without_comments(body))
        head, at = [], end + 1
    rest = without_comments("\n".join(outside))
    if any(line and not re.fullmatch(r"local [\w, ]+( = .*)?", line) for line in rest.splitlines()):
        yield LuaPart(name, text[: text.index("\n\n")] if "\n\n" in text else text, rest)


def without_comments(text: str) -> str:
    """The code: a quoted text may hold what looks like a comment."""
    return _LUA_WORD.sub(lambda word: "" if word[0].startswith("--") else word[0], text)


# -- Python -------------------------------------------------------------------------------------------------


def python_fingerprint(twin: str) -> str | None:
    """Of ``file qualified_name``; None if there is no such function or class."""
    path, name = twin.split(" ")
    file = PACKAGE / path
    found = _definitions(file).get(name) if file.exists() else None
    return _hashed(found) if found is not None else None


@lru_cache(maxsize=64)
def _definitions(file: Path) -> dict[str, str]:
    text = file.read_text(encoding="utf-8")
    return python_definitions(text)


def python_definitions(text: str) -> dict[str, str]:
    """The code of every function and class by its qualified name, without docstrings and comments."""
    tree = ast.parse(text)
    lines = _uncommented(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            for said in _docstrings(node):
                for line in range(said.lineno, (said.end_lineno or said.lineno) + 1):
                    lines[line - 1] = ""
    return dict(_named(tree, "", lines))


def _named(node: ast.AST, prefix: str, lines: list[str]) -> Iterator[tuple[str, str]]:
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            yield f"{prefix}{inner.name}", "\n".join(lines[inner.lineno - 1 : inner.end_lineno])
            yield from _named(inner, f"{prefix}{inner.name}.", lines)


def _docstrings(node: ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef) -> Iterable[ast.stmt]:
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and len(node.body) > 1:
        yield first


def _uncommented(text: str) -> list[str]:
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    return lines


# -- what was looked at -------------------------------------------------------------------------------------


def _hashed(code: str) -> str:
    return hashlib.sha256("".join(code.split()).encode()).hexdigest()[:16]


def recorded(file: Path = RECORDED) -> dict[str, dict[str, str]]:
    """By place of the Lua side: its fingerprint as ``lua``, and one for each twin."""
    return tomllib.loads(file.read_text(encoding="utf-8"))


def present() -> dict[str, dict[str, str]]:
    return {
        part.place: {
            "lua": part.fingerprint,
            **{twin: python_fingerprint(twin) or "missing" for twin in part.twins},
        }
        for part in lua_parts()
        if part.twins
    }


def unseen(was: dict[str, dict[str, str]], now: dict[str, dict[str, str]]) -> list[str]:
    """What changed since it was recorded, with the other side that has to be looked at; empty if nothing."""
    found = [f"redis/lua/{place} says no longer what it mirrors" for place in was if place not in now]
    for place, sides in now.items():
        before, lua = was.get(place, {}), f"src/flyball/stores/redis/lua/{place}"
        twins = [twin for twin in sides if twin != "lua"]
        if before.get("lua") != sides["lua"] or before.keys() != sides.keys():
            others = ", ".join(f"src/flyball/{twin}" for twin in twins)
            found.append(f"{lua} changed: look at {others}")
        found += [
            f"src/flyball/{twin} changed: look at {lua}"
            for twin in twins
            if twin in before and before[twin] != sides[twin]
        ]
    return found


def record(file: Path = RECORDED) -> None:
    lines = [f"# Written by `{RECORD}`: the sides of the rule as they were when both were looked at."]
    for place, sides in present().items():
        lines += ["", f'["{place}"]', *(f'"{side}" = "{seen}"' for side, seen in sides.items())]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] != ["--record"]:
        raise SystemExit(f"usage: {RECORD}")
    for line in unseen(recorded() if RECORDED.exists() else {}, present()):
        print(line)
    record()
