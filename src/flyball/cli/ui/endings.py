"""How the ending of an agent's run is shown: as words for a person, as a record for a script."""

from __future__ import annotations

from flyball.core.pool.verdict import span_words
from flyball.core.signals import End
from flyball.runtimes.port import Ending


def ending_words(ending: Ending) -> str:
    """``limited: the provider throttled it (429), retry after 45 s``."""
    words = f"{ending.end.value}: {ending.reason}"
    signal = ending.signal
    if ending.end is End.LIMITED and signal is not None and signal.retry_after_s is not None:
        words += f", retry after {span_words(signal.retry_after_s)}"
    return words


def ending_record(ending: Ending) -> dict[str, object]:
    """An ending as scripts read it. Its word is under ``verdict``."""
    progress, signal, tokens = ending.progress, ending.signal, ending.progress.tokens
    counted = {"input": tokens.input, "output": tokens.output, "total": tokens.total} if tokens else None
    return {
        "verdict": ending.end.value,
        "signal": signal.kind.value if signal else None,
        "reason": ending.reason,
        "retry_after_s": signal.retry_after_s if signal else None,
        "session": progress.session,
        "tokens": counted,
        "cost_usd": progress.cost_usd,
        "model": progress.model,
        "last_activity": progress.activity,
        "scope": signal.scope if signal else "",
        "detail": signal.detail if signal else "",
        "certainty": signal.certainty.value if signal else None,
    }
