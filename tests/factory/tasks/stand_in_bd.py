"""A stand-in for ``bd`` with its issues in a file, for the few commands that a run uses.

    python stand_in_bd.py STATE ARGS...

It answers as the recordings of bd do. What it does not know ends with exit status 99.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

Issues = list[dict[str, Any]]


def main(state: str, argv: list[str]) -> int:
    issues: Issues = []
    if os.path.exists(state):
        with open(state, encoding="utf-8") as file:
            issues = json.load(file)
    verb, flags = argv[0], dict(word[2:].partition("=")[::2] for word in argv if word.startswith("--"))
    if verb == "list":
        found = [each for each in issues if flags.get("id", each["id"]) == each["id"]]
    elif verb in ("update", "close"):
        found = [each for each in issues if each["id"] == argv[1]]
        changes = {key: value for key, value in flags.items() if key in ("status", "assignee")}
        for each in found:
            each.update({"status": "closed"} if verb == "close" else changes)
    else:
        print(f"the stand-in for bd does not know {argv}", file=sys.stderr)
        return 99
    print(json.dumps(found))
    with open(state, "w", encoding="utf-8") as file:
        json.dump(issues, file)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
