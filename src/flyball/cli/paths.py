"""Paths, and words with paths in them, as text that can be shown and stored."""

from __future__ import annotations

from pathlib import Path


def shown_path(path: Path) -> str:
    """A path, whatever bytes it is made of.

    >>> shown_path(Path("/a\\udcff"))
    '/a\\\\udcff'
    """
    return shown_words(str(path))


def shown_words(words: str) -> str:
    return words.encode("utf-8", "backslashreplace").decode()
