"""The public names of flyball and the types that stand in their signatures, read from the code itself."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass

import flyball

MADE_BY_FLYBALL = {"CallSlot", "Gate", "Lease", "Share", "Slot"}
"""Classes whose objects come from a method or a protocol, not from a constructor."""

_NAME = re.compile(r"\b[A-Z]\w+")


def public_members(name: str) -> Iterator[tuple[str, object]]:
    """The public methods and properties of a public class, in the order of their definition."""
    owner = getattr(flyball, name)
    found: dict[str, object] = {}
    for base in reversed(owner.__mro__):
        if base.__module__.startswith("flyball."):
            found.update({key: value for key, value in vars(base).items() if not key.startswith("_")})
    for key, value in found.items():
        if isinstance(value, property):
            yield key, value.fget
        elif inspect.isfunction(value) or isinstance(value, classmethod):
            yield key, getattr(owner, key)


def types_in(function: Callable[..., object]) -> set[str]:
    """The names of types in the annotations of a function."""
    signature = inspect.signature(function)
    annotations = [*(each.annotation for each in signature.parameters.values()), signature.return_annotation]
    return {name for each in annotations for name in _NAME.findall(str(each))}


def signatures() -> Iterator[tuple[str, Callable[..., object]]]:
    """Every public function and method with its dotted name."""
    for name in flyball.__all__:
        value = getattr(flyball, name)
        if inspect.isfunction(value):
            yield name, value
        elif inspect.isclass(value) and not issubclass(value, BaseException):
            if "__init__" in vars(value) and not is_dataclass(value) and name not in MADE_BY_FLYBALL:
                yield name, value.__init__
            for key, member in public_members(name):
                if callable(member):
                    yield f"{name}.{key}", member
