"""A stand-in for ``gh`` with one repository in a file, for the few commands that flyball uses.

    python stand_in_gh.py STATE ARGS...

It answers as gh does by its documentation and its source: unknown labels are refused, a new issue is told by
its address, closing twice is a remark on stderr. What it does not know ends with exit status 99.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from typing import Any

FIELDS = ["number", "title", "body", "state", "labels", "createdAt", "url"]


class Refused(Exception):  # noqa: N818
    pass


def main(state: str, argv: list[str]) -> int:
    repository: dict[str, Any] = {"labels": ["flyball", "bug"], "issues": []}
    if os.path.exists(state):
        with open(state, encoding="utf-8") as file:
            repository = json.load(file)
    verb, positional, flags = " ".join(argv[:2]), *parsed(argv[2:])
    act = {
        "issue list": list_issues,
        "issue view": view,
        "issue create": create,
        "issue edit": edit,
        "issue close": close,
        "label create": create_label,
    }.get(verb)
    if act is None:
        print(f"the stand-in for gh does not know {argv}", file=sys.stderr)
        return 99
    try:
        act(repository, positional, flags)
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 1
    with open(state, "w", encoding="utf-8") as file:
        json.dump(repository, file)
    return 0


def parsed(words: list[str]) -> tuple[list[str], dict[str, list[str]]]:
    positional: list[str] = []
    flags: dict[str, list[str]] = {}
    for n, word in enumerate(words):
        if word == "--":
            return positional + words[n + 1 :], flags
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            flags.setdefault(name, []).append(value)
        else:
            positional.append(word)
    return positional, flags


def split(values: list[str]) -> list[str]:
    """Lists are written as one line of CSV per flag."""
    return [name for row in csv.reader(values) for name in row]


def issue(repository: dict[str, Any], number: str) -> dict[str, Any]:
    issues: list[dict[str, Any]] = repository["issues"]
    for each in issues:
        if each["number"] == int(number):
            return each
    words = f"Could not resolve to an issue or pull request with the number of {number}."
    raise Refused(f"GraphQL: {words} (repository.issue)")


def shown(each: dict[str, Any], flags: dict[str, list[str]]) -> dict[str, Any]:
    asked = flags["json"][0].split(",")
    if unknown := set(asked) - set(FIELDS):
        raise Refused(f'Unknown JSON field: "{min(unknown)}"')
    labels = [
        {"id": f"L{name}", "name": name, "description": "", "color": "ededed"} for name in each["labels"]
    ]
    return {name: labels if name == "labels" else each[name] for name in asked}


def list_issues(repository: dict[str, Any], _: list[str], flags: dict[str, list[str]]) -> None:
    wanted, state = split(flags["label"]), flags["state"][0].upper()
    found = [
        each
        for each in reversed(repository["issues"])
        if set(wanted) <= set(each["labels"]) and state in (each["state"], "ALL")
    ]
    print(json.dumps([shown(each, flags) for each in found[: int(flags["limit"][0])]]))


def view(repository: dict[str, Any], positional: list[str], flags: dict[str, list[str]]) -> None:
    print(json.dumps(shown(issue(repository, positional[0]), flags)))


def known(repository: dict[str, Any], names: list[str], prefix: str = "") -> list[str]:
    for name in names:
        if name not in repository["labels"]:
            raise Refused(f"{prefix}'{name}' not found")
    return names


def create(repository: dict[str, Any], _: list[str], flags: dict[str, list[str]]) -> None:
    labels = known(repository, split(flags["label"]), "could not add label: ")
    number = len(repository["issues"]) + 1
    url = f"https://github.com/ada/blog/issues/{number}"
    body = sys.stdin.buffer.read().decode()
    made = {"number": number, "title": flags["title"][0], "body": body, "state": "OPEN", "labels": labels}
    repository["issues"].append({**made, "createdAt": f"2026-11-01T10:00:{number:02}Z", "url": url})
    print(url)


def edit(repository: dict[str, Any], positional: list[str], flags: dict[str, list[str]]) -> None:
    each = issue(repository, positional[0])
    for name in known(repository, split(flags.get("add-label", []))):
        each["labels"] = [*dict.fromkeys([*each["labels"], name])]
    for name in known(repository, split(flags.get("remove-label", []))):
        each["labels"] = [other for other in each["labels"] if other != name]
    print(each["url"])


def close(repository: dict[str, Any], positional: list[str], flags: dict[str, list[str]]) -> None:
    each = issue(repository, positional[0])
    words = "is already closed" if each["state"] == "CLOSED" else flags["comment"][0]
    each["state"] = "CLOSED"
    print(f"! Issue ada/blog#{each['number']} ({each['title']}) {words}", file=sys.stderr)


def create_label(repository: dict[str, Any], positional: list[str], _: dict[str, list[str]]) -> None:
    [name] = positional
    if name in repository["labels"]:
        raise Refused(f'label with name "{name}" already exists; use `--force` to update its color')
    repository["labels"].append(name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
