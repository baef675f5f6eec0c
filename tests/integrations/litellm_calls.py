"""Calls of LiteLLM under a governed module, as a program of its own: ``python litellm_calls.py URL``.

Prints what each call answered, and how many slots of the pool are in use after them.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import flyball
from flyball import Governor


def main(url: str) -> None:
    import litellm

    flyball.govern(litellm, "lite")
    ask: Any = {"api_key": "k", "messages": [{"role": "user", "content": "hello"}]}
    routes: dict[str, dict[str, Any]] = {
        "anthropic": {"model": "anthropic/claude-sonnet-5-5", "api_base": url, **ask},
        "openai": {"model": "openai/gpt-5.5", "api_base": f"{url}/v1", **ask},
    }

    async def later(route: dict[str, Any]) -> list[str]:
        whole = (await litellm.acompletion(**route)).choices[0].message.content
        return [whole, text([part async for part in await litellm.acompletion(stream=True, **route)])]

    for name, route in routes.items():
        said = [
            litellm.completion(**route).choices[0].message.content,
            text(list(litellm.completion(stream=True, **route))),
        ]
        print(json.dumps([name, *said, *asyncio.run(later(route)), in_use()]))


def in_use() -> int:
    return sum(pool.in_use for pool in Governor().status().pools if pool.name == "lite")


def text(parts: list[Any]) -> str:
    return "".join(part.choices[0].delta.content or "" for part in parts)


if __name__ == "__main__":
    main(sys.argv[1])
