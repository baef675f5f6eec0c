"""What a provider's answer says was used, whatever it says."""

from __future__ import annotations

from flyball.core.pool.settings import check_amounts
from flyball.core.provider.stream_events import TokenCounter
from tests.cases import every


@every("count", [10**13 - 1, 10**15, 2**60, -1, True, "9", None])
def test_whatever_an_answer_counts_its_use_is_an_amount(count: object) -> None:
    meter = TokenCounter()
    meter.note({"usage": {"input_tokens": count, "prompt_tokens": count, "output_tokens": count}})
    check_amounts("what was used", meter.used)
