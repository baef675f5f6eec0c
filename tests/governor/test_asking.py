"""What a caller may say about an ask."""

from __future__ import annotations

from typing import Any

import pytest

from flyball import Governor


def test_a_misspelt_option_is_refused_not_ignored(gov: Governor) -> None:
    misspelt: dict[str, Any] = {"prioritty": 3}
    with pytest.raises(TypeError, match="prioritty"):
        gov.acquire_nowait("p", **misspelt)
