"""What a call really used, as the provider's own answer says: a whole body, or the events of a stream.

    Anthropic   "usage": {"input_tokens", "cache_creation_input_tokens", "output_tokens"}; in a stream first
                inside "message", then with the output so far
    OpenAI      "usage": {"prompt_tokens", "completion_tokens"}; of responses {"input_tokens",
                "output_tokens"}, in a stream inside "response"
    Gemini      "usageMetadata": {"promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount"}

What was read from a cache counts for nothing here: it does not count against the input limits either.
"""

from __future__ import annotations

from collections.abc import Mapping

from flyball.core.checks import AMOUNT_LIMIT

MARK = b'"usage'
"""Whatever tells of it has this. Inside a JSON string its quote would be escaped."""
_INSIDE = ("message", "response")
_INPUT = ("input_tokens", "cache_creation_input_tokens", "prompt_tokens", "promptTokenCount")
_OUTPUT = ("output_tokens", "completion_tokens", "candidatesTokenCount", "thoughtsTokenCount")


class Meter:
    """Adds up what one answer says. Later events of a stream say more, never less.

    >>> meter = Meter()
    >>> meter.note({"type": "message_start", "message": {"usage": {"input_tokens": 25, "output_tokens": 1}}})
    >>> meter.note({"type": "message_delta", "usage": {"output_tokens": 15}})
    >>> meter.used
    {'input-tokens': 25.0, 'output-tokens': 15.0, 'tokens': 40.0}
    """

    __slots__ = ("_input", "_output", "_told")

    def __init__(self) -> None:
        self._input = self._output = 0.0
        self._told = False

    def note(self, said: object) -> None:
        """Anything a provider may have said; what tells of nothing changes nothing."""
        if not isinstance(said, Mapping):
            return
        for record in (said, *(said.get(name) for name in _INSIDE)):
            if isinstance(record, Mapping):
                self._add(record.get("usage"))
                self._add(record.get("usageMetadata"))

    def _add(self, usage: object) -> None:
        if isinstance(usage, Mapping):
            self._told = True
            self._input = max(self._input, sum(_count(usage.get(name)) for name in _INPUT))
            self._output = max(self._output, sum(_count(usage.get(name)) for name in _OUTPUT))

    @property
    def used(self) -> dict[str, float]:
        """By the names of windows; empty where nothing was said."""
        if not self._told:
            return {}
        both = self._input + self._output
        return {"input-tokens": self._input, "output-tokens": self._output, "tokens": both}


def _count(value: object) -> float:
    # However many of them are added up, the sum is an amount (see checks.py).
    return float(value) if type(value) is int and 0 <= value < AMOUNT_LIMIT / 100 else 0.0
