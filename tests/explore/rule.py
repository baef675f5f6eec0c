"""The shipped rule of share leases, or the same with a line of it broken.

A broken rule is a copy of a shipped module's source with one line replaced, compiled in memory: what is
searched stays the shipped code but for that line, and a line that is no longer there is an error.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import ModuleType

from flyball.core.share_lease import allotment, holder, renewal, timing

_numbers = count()


@dataclass(frozen=True)
class Rule:
    """The modules whose functions the model drives."""

    renewal: ModuleType = renewal
    holder: ModuleType = holder
    allotment: ModuleType = allotment
    timing: ModuleType = timing


SHIPPED = Rule()


def broken(module: str, *lines: tuple[str, str]) -> Rule:
    """The rule with lines of one module replaced, each ``(line, by)``. A line must be there, exactly once."""
    shipped: ModuleType = getattr(SHIPPED, module)
    source = Path(str(shipped.__file__)).read_text(encoding="utf-8")
    for line, by in lines:
        if source.count(line) != 1:
            raise LookupError(f"{module}.py has this {source.count(line)} times instead of once: {line!r}")
        source = source.replace(line, by)
    name = f"tests.explore.broken_{module}_{next(_numbers)}"
    copy = ModuleType(name)
    sys.modules[name] = copy  # dataclasses look their module up
    exec(compile(source, name, "exec"), copy.__dict__)
    return Rule(**{module: copy})
