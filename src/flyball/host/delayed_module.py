"""Modules of the standard library that others import and rarely use.

``dataclasses`` imports ``inspect`` for the sake of classes without a docstring: it puts their signature
there. With ``ast``, ``dis`` and ``tokenize`` behind it that is a tenth of the memory of an ``exec`` that
waits. ``urllib.parse``, which ``pathlib`` imports, needs ``ipaddress`` for addresses in brackets alone.

``importlib.util.LazyLoader`` is of no use here: up to Python 3.12 a second import loads what it had put off.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

RARELY_USED = ("inspect", "ipaddress")


def delay_rarely_used() -> None:
    """Let these be loaded when something of them is first used. For programs, before they import the rest."""
    for name in RARELY_USED:
        sys.modules.setdefault(name, _DelayedModule(name))


class _DelayedModule(ModuleType):
    """Stands in the place of a module until something of it is asked for."""

    def __getattr__(self, attribute: str) -> object:
        name = self.__name__
        if sys.modules.get(name) is self:
            del sys.modules[name]
        module = import_module(name)
        self.__dict__.update(vars(module))
        return getattr(module, attribute)
