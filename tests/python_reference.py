"""The reference page of the Python library, made from its signatures and docstrings.

    python -m tests.python_reference

writes it; a test fails while the page does not say what the code says.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, is_typeddict

import flyball
from tests.public_signatures import MADE_BY_FLYBALL, public_members

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "python.md"

_TOP = """\
# The Python library

Every name can be imported from `flyball`. This page is made from the code.

A plain name blocks its thread, and the coroutine of the same job has `_async` behind it: `acquire`,
`acquire_async`. `acquire` waits, `acquire_nowait` does not, on every class. A `slot` serves both a `with` and
an `async with` block. The client of `flyball serve` has two classes, as httpx has: `flyball.client.Client`
and `flyball.client.AsyncClient`.
"""

_GROUPS = (
    (
        "Slots and leases",
        ("slot", "Governor", "Lease", "Slot", "AskOptions", "Outcome", "Verdict", "Reason", "Blocker"),
    ),
    ("Inside one process", ("Limiter", "CallSlot", "LimiterStats", "Share", "ShareOptions", "ShareStats")),
    (
        "Clients and retries",
        (
            "govern",
            "httpx_client",
            "httpx_async_client",
            "RuleOptions",
            "Pool",
            "Gate",
            "retry",
            "retry_async",
            "retried",
            "RetryPolicy",
            "RetryBudget",
            "RetryEnvironment",
        ),
    ),
    (
        "Settings and status",
        ("PoolChanges", "MachineSettings", "MachineChanges", "Status", "PoolStatus", "MachineStatus", "Fact"),
    ),
    ("What a provider said", ("Signal", "SignalKind", "Certainty", "Bucket")),
)


def reference_page() -> str:
    grouped = {name for _, names in _GROUPS for name in names}
    errors = [name for name in flyball.__all__ if _is_error(name)]
    aliases = [name for name in flyball.__all__ if name not in grouped and name not in errors]
    parts = [_TOP]
    for title, names in _GROUPS:
        parts.append(f"\n## {title}\n")
        parts.extend(_entry(name) for name in names)
    parts.append("\n## Errors\n\n| error | is a | when |\n| --- | --- | --- |\n")
    parts.extend(_error_row(name) for name in errors)
    parts.append("\n## Types of arguments\n\n| name | is |\n| --- | --- |\n")
    parts.extend(f"| `{name}` | `{_cell(_alias(getattr(flyball, name)))}` |\n" for name in aliases)
    return "".join(parts)


def _is_error(name: str) -> bool:
    value = getattr(flyball, name)
    return inspect.isclass(value) and issubclass(value, BaseException)


def _error_row(name: str) -> str:
    value = getattr(flyball, name)
    return f"| `{name}` | `{value.__bases__[0].__name__}` | {_first_paragraph(value)} |\n"


def _alias(value: object) -> str:
    """A type as people write it: without the modules of its names."""
    text = str(getattr(value, "__forward_arg__", value))
    text = re.sub(r"ForwardRef\('([^']+)'[^)]*\)", r"\1", text)
    return re.sub(r"\b(?:[a-z_]+\.)+([A-Z])", r"\1", text)


def _entry(name: str) -> str:
    value = getattr(flyball, name)
    if not inspect.isclass(value):
        return f"\n### `{name}{_signature(value)}`\n\n{_text(value)}\n"
    lines = [f"\n### `{name}`\n\n{_text(value)}\n"]
    rows = list(_rows(name, value))
    if rows:
        lines.append("\n| name | is |\n| --- | --- |\n")
        lines.extend(f"| `{_cell(left)}` | {_cell(right)} |\n" for left, right in rows)
    return "".join(lines)


def _rows(name: str, value: Any) -> Iterator[tuple[str, str]]:
    documented = _documented_fields(value)
    if issubclass(value, Enum):
        yield from ((member.name, documented.get(member.name, f"`{member.value}`")) for member in value)
        return
    if is_typeddict(value):
        for key, kind in value.__annotations__.items():
            yield f"{key}: {_alias(kind)}", documented.get(key, "")
    elif is_dataclass(value):
        for each in fields(value):
            if not each.name.startswith("_"):
                yield f"{each.name}: {_alias(each.type)}", documented.get(each.name, "")
    elif value.__init__ is not object.__init__ and name not in MADE_BY_FLYBALL:
        yield f"{name}{_signature(value)}", _first_paragraph(value.__init__)
    if not is_typeddict(value):
        for key, member in public_members(name):
            is_property = isinstance(inspect.getattr_static(value, key), property)
            yield (
                key if is_property else f"{_awaited(member)}{key}{_signature(member)}",
                _first_paragraph(member),
            )


def _awaited(member: Any) -> str:
    returned = str(inspect.signature(member).return_annotation)
    return "await " if inspect.iscoroutinefunction(member) or returned.startswith("Coroutine") else ""


def _signature(function: Any) -> str:
    signature = inspect.signature(function)
    parameters = [
        each.replace(annotation=_Written(_alias(each.annotation)), default=_written_default(each.default))
        for each in signature.parameters.values()
        if each.name != "self"
    ]
    return str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))


class _Written(str):
    """Text that stands in a signature as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _written_default(value: object) -> object:
    """A default as people write it: members and functions by name, records as their class."""
    if value is inspect.Parameter.empty:
        return value
    if isinstance(value, Enum):
        return _Written(f"{type(value).__name__}.{value.name}")
    if inspect.isroutine(value):
        return _Written(value.__name__)
    return _Written(f"{type(value).__name__}()") if is_dataclass(value) else value


def _documented_fields(value: Any) -> dict[str, str]:
    """The texts that stand below the fields or members of a class."""
    source = inspect.getsource(value)
    found = re.findall(r'^    (\w+)(?::| =)[^\n]*\n    """(.*?)"""', source, flags=re.MULTILINE | re.DOTALL)
    return {name: " ".join(text.split()).replace("``", "`") for name, text in found}


def _text(value: object) -> str:
    """The docstring with its examples as code blocks."""
    lines, inside = list[str](), False
    for line in (inspect.getdoc(value) or "").replace("``", "`").splitlines():
        begins = line.startswith(">>>")
        if begins and not inside:
            lines.append("```pycon")
            inside = True
        if inside and not line:
            lines.append("```")
            inside = False
        lines.append(line)
    return "\n".join([*lines, "```"] if inside else lines)


def _first_paragraph(value: object) -> str:
    text = (inspect.getdoc(value) or "").split("\n\n")[0]
    return " ".join(text.split()).replace("``", "`")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> None:
    PAGE.write_text(reference_page())


if __name__ == "__main__":
    main()
