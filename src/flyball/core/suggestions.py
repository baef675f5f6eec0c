"""Names a person may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], *, at_most: int = 3) -> list[str]:
    """The known names that look most like ``name``, best first."""
    return difflib.get_close_matches(name, sorted(set(known)), n=at_most, cutoff=0.6)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question to put behind an error; empty where nothing comes close.

    >>> did_you_mean("antropic", ["anthropic", "openai"])
    "did you mean 'anthropic'?"
    """
    found = nearest(name, known, at_most=1)
    return f"did you mean {found[0]!r}?" if found else ""
