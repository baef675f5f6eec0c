"""What the code says about each field: the sentence under it, read from the source of its class.

One place to write it. The OpenAPI document and the reference page repeat it.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from flyball.core import settings
from flyball.governor import fleet_status, status
from flyball.service import bodies, history, problems, timeline

_MODULES = (settings, status, fleet_status, bodies, history, problems, timeline)
_SAME = {bodies.PoolSettingsBody.__name__: settings.PoolSettings.__name__}


def describe(schemas: dict[str, Any]) -> None:
    """Add what is known to the properties of OpenAPI schemas."""
    known: dict[str, dict[str, str]] = {}
    for module in _MODULES:
        known.update(_classes(module, known))
    for name, schema in schemas.items():
        for field, words in known.get(_SAME.get(name, name), {}).items():
            if field in schema.get("properties", {}):
                schema["properties"][field].setdefault("description", words)


def _classes(module: ModuleType, known: dict[str, dict[str, str]]) -> Iterator[tuple[str, dict[str, str]]]:
    for found in ast.parse(inspect.getsource(module)).body:
        if isinstance(found, ast.ClassDef):
            told: dict[str, str] = {}
            for base in found.bases:
                told |= known.get(base.id, {}) if isinstance(base, ast.Name) else {}
            yield found.name, told | dict(_fields(found))


def _fields(found: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, below in zip(found.body, found.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
        ):
            yield field.target.id, " ".join(below.value.value.split())
