"""What it costs to find the tests, which every worker pays before its first one.

Three things are left until they are wanted, or not done at all:

- Examples in docstrings are looked for only in files that have some. Looking means to import the file and to
  go through all that it defines.
- The libraries in ``HEAVY`` are loaded when a test first uses something of theirs. A few tests do; each takes
  as long to load as a hundred tests take to run.
- What collecting makes lives as long as the process, and Python does not look through it for garbage: not
  meanwhile, and not again and again afterwards.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from pathlib import Path
from types import ModuleType

import pytest
from _pytest.doctest import DoctestModule

HEAVY = frozenset(
    {
        "agents",
        "anthropic",
        "langchain_anthropic",
        "langchain_openai",
        "openai",
        "pydantic_ai",
        "schemathesis",
    }
)
"""Imported whole: ``import openai``. With ``from openai import OpenAI`` a library is loaded at once."""
EXAMPLE = b">>> "

Collected = list[pytest.Collector]


NOT_LOADED_FOR = frozenset({"__class__", "__file__", "__spec__"})
"""What ``isinstance``, hypothesis and a second ``import`` ask every module for."""
NOT_THERE = frozenset({"__wrapped__", "_mock_name"})
"""What pytest asks all that a test module names for, in search of fixtures. No library has one."""


class LaterLoader(LazyLoader):
    """One that is not loaded either for questions which need no loading."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        lazy = type(module)

        class Unloaded(ModuleType):
            def __getattribute__(self, name: str) -> object:
                if name in NOT_THERE:
                    raise AttributeError(name)
                if name not in NOT_LOADED_FOR:
                    self.__class__ = lazy  # type: ignore[assignment]
                    return getattr(self, name)
                return super().__getattribute__(name)

        module.__class__ = Unloaded


class LazyFinder(MetaPathFinder):
    """Finds the libraries in ``HEAVY``, and loads them when an attribute of theirs is asked for."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in HEAVY else None
        if spec is not None and spec.loader is not None:
            spec.loader = LaterLoader(spec.loader)
        return spec


sys.meta_path.insert(0, LazyFinder())


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, Collected, Collected]:
    found = yield
    if file_path.suffix == ".py" and EXAMPLE not in file_path.read_bytes():
        return [each for each in found if not isinstance(each, DoctestModule)]
    return found


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(obj: object) -> list[pytest.Item] | None:
    """A module is not a test: it need not be loaded to see that."""
    return [] if issubclass(type(obj), ModuleType) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
