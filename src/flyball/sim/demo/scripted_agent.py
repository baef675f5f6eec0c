"""An agent that does what its task says, literally: ``flyball demo --agent``.

It stands in for a real one wherever the factory is shown or tried out without any model. The task's text
holds lines for it, one action each; the rest of the text is for people:

    > sleep 1.5
    > write pages/hello.md Hello, world
    > on 1: write pages/count.txt not a number
    > on 2: write pages/count.txt 42
    > commit Add the hello page
    > exit 75
    > on 1: object pages/hello.md It has no greeting

``on N:`` does an action in that attempt only. It reads its prompt from stdin and knows its attempt by
``FLYBALL_ATTEMPT`` and its stage by ``FLYBALL_STAGE``, as any agent of the runtime ``command`` does. As a
reviewer it does nothing but object, where the task says so, and passes everything else.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

_ACTION = re.compile(r"^> (?:on (?P<attempt>\d+): )?(?P<verb>[a-z]+) ?(?P<rest>.*)$", re.MULTILINE)


def actions(prompt: str, attempt: int) -> Iterator[tuple[str, str]]:
    """What to do in an attempt, in order.

    >>> list(actions("Do it.\\n> on 1: sleep 1\\n> write a.txt A b", 2))
    [('write', 'a.txt A b')]
    """
    for match in _ACTION.finditer(prompt):
        if match["attempt"] is None or int(match["attempt"]) == attempt:
            yield match["verb"], match["rest"]


def main() -> int:
    attempt = int(os.environ.get("FLYBALL_ATTEMPT", "1"))
    prompt = sys.stdin.read()
    if file := os.environ.get("FLYBALL_REVIEW_FILE"):
        return _review(Path(file), prompt, attempt)
    for verb, rest in actions(prompt, attempt):
        if verb == "exit":
            return int(rest)
        print(f"{verb} {rest}", flush=True)
        _VERBS[verb](rest)
    return 0


def _review(file: Path, prompt: str, attempt: int) -> int:
    asked = prompt.rpartition("The criteria, by number:")[2]
    numbers = [int(number) for number in re.findall(r"^(\d+)\. ", asked, re.MULTILINE)]
    objections = [rest.partition(" ") for verb, rest in actions(prompt, attempt) if verb == "object"]
    findings = [{"severity": "blocking", "where": where, "what": what} for where, _, what in objections]
    criteria = [{"criterion": number, "met": True, "evidence": "it was looked at"} for number in numbers]
    verdict = "block" if findings else "pass"
    text = json.dumps({"verdict": verdict, "criteria": criteria, "findings": findings})
    file.write_text(text, encoding="utf-8")
    print(text, flush=True)
    return 0


def _write(rest: str) -> None:
    name, _, text = rest.partition(" ")
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text + "\n", encoding="utf-8")


def _commit(message: str) -> None:
    subprocess.run(["git", "add", "--all"], check=True)
    subprocess.run(["git", "commit", "--quiet", "--message", message], check=True)


_VERBS: Mapping[str, Callable[[str], object]] = {
    "sleep": lambda rest: time.sleep(float(rest)),
    "write": _write,
    "delete": lambda rest: Path(rest).unlink(),
    "commit": _commit,
    "say": str,
    "object": str,
}


if __name__ == "__main__":
    sys.exit(main())
