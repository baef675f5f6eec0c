"""``claude -p PROMPT``, as far as the bench ``agents`` needs it where the real one is not installed.

It asks the model, runs what it is told to, starts subagents and waits for them, and says how it ended. It
imports nothing of flyball: it is told where to call by its environment, as the real one is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

RETRIES = 10
TOOLS = [{"name": "Bash"}, {"name": "Agent"}]


def ask(messages: list[Any]) -> dict[str, Any]:
    """Raises HTTPError for a refusal that it does not get over."""
    body = {"model": "stand-in", "max_tokens": 100_000, "messages": messages, "tools": TOOLS}
    request = urllib.request.Request(
        f"{os.environ['ANTHROPIC_BASE_URL']}/v1/messages",
        data=json.dumps(body).encode(),
        headers={"content-type": "application/json", "x-api-key": os.environ["ANTHROPIC_API_KEY"]},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for left in reversed(range(RETRIES)):
        try:
            with opener.open(request, timeout=60) as answer:
                said: dict[str, Any] = json.load(answer)
                return said
        except urllib.error.HTTPError as error:
            if error.code != 429 or not left:
                raise
            time.sleep(float(error.headers.get("retry-after", 0.1)))
    raise AssertionError("the last try returns or raises")


def work(prompt: str) -> str:
    """A conversation to its end."""
    messages: list[Any] = [{"role": "user", "content": prompt}]
    while True:
        said = ask(messages)
        calls = [block for block in said["content"] if block["type"] == "tool_use"]
        if not calls:
            return str(said["content"][0]["text"])
        with ThreadPoolExecutor(len(calls)) as threads:
            results = list(threads.map(use, calls))
        messages += [{"role": "assistant", "content": said["content"]}, {"role": "user", "content": results}]


def use(call: dict[str, Any]) -> dict[str, str]:
    given = call["input"]
    if call["name"] == "Agent":
        result = work(given["prompt"])
    else:
        done = subprocess.run(given["command"], shell=True, capture_output=True, text=True, check=False)
        result = done.stdout
    return {"type": "tool_result", "tool_use_id": call["id"], "content": result}


def main() -> int:
    prompt = sys.argv[sys.argv.index("-p") + 1]
    try:
        result, wrong = work(prompt), False
    except urllib.error.HTTPError as error:
        result, wrong = f"API Error: {error.code} {error.read().decode()}", True
    print(json.dumps({"type": "result", "subtype": "success", "is_error": wrong, "result": result}))
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
