"""The page on why the bound holds quotes counts word for word from where they were counted."""

from __future__ import annotations

from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
EXPLANATION = REPOSITORY / "docs/explanation/why-the-bound-holds.md"


def quoted(mark: str) -> str:
    """What stands between the marks now."""
    text = EXPLANATION.read_text(encoding="utf-8")
    return text.partition(f"<!-- {mark} -->")[2].partition(f"<!-- /{mark} -->")[0].strip()


def quote(mark: str, words: str) -> None:
    """Put words between the marks."""
    text = EXPLANATION.read_text(encoding="utf-8")
    before, _, rest = text.partition(f"<!-- {mark} -->")
    _, _, after = rest.partition(f"<!-- /{mark} -->")
    marked = f"<!-- {mark} -->\n{words}\n<!-- /{mark} -->"
    EXPLANATION.write_text(f"{before}{marked}{after}", encoding="utf-8")
