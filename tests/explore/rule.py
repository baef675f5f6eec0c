"""The shipped rule of share leases, or the same with a line of it broken."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import ModuleType

from flyball.core import allotment, holding, renewal, terms

_numbers = count()


@dataclass(frozen=True)
class Rule:
    """The modules whose functions the model drives."""

    renewal: ModuleType = renewal
    holding: ModuleType = holding
    allotment: ModuleType = allotment
    terms: ModuleType = terms


SHIPPED = Rule()


def broken(module: str, *, line: str, by: str) -> Rule:
    """The rule with ``line`` of one module's source replaced. The line must be there, exactly once."""
    shipped: ModuleType = getattr(SHIPPED, module)
    source = Path(str(shipped.__file__)).read_text()
    if source.count(line) != 1:
        raise LookupError(f"{module}.py has this {source.count(line)} times instead of once: {line!r}")
    name = f"tests.explore.broken_{module}_{next(_numbers)}"
    copy = ModuleType(name)
    sys.modules[name] = copy  # dataclasses look their module up
    exec(compile(source.replace(line, by), name, "exec"), copy.__dict__)
    return Rule(**{module: copy})
