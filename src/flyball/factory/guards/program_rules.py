"""What an agent may ask of gh, glab, bd and flyball: reading. Whatever is not listed as reading is refused.

They reach where no worktree ends: pull requests, issues, the tracker's database, flyball's own state.
"""

from __future__ import annotations

from collections.abc import Sequence

from flyball.factory.guards.policy import words as words_of

_ASKING = frozenset({"--help", "-h", "--version", "help", "version", ""})
_READS: dict[str, dict[str, tuple[str, ...]]] = {
    "gh": {
        "issue": ("view", "list", "status"),
        "pr": ("view", "list", "status", "diff", "checks"),
        "repo": ("view", "list", "clone"),
        "run": ("view", "list", "watch", "download"),
        "workflow": ("view", "list"),
        "release": ("view", "list", "download"),
        "label": ("list",),
        "search": ("*",),
        "status": ("*",),
    },
    "glab": {
        "issue": ("view", "list"),
        "mr": ("view", "list", "diff"),
        "repo": ("view", "clone", "list", "search"),
        "ci": ("view", "list", "status", "trace", "get"),
        "release": ("view", "list", "download"),
        "label": ("list",),
    },
    "bd": dict.fromkeys(
        words_of("show list ready blocked search stats status count stale info where prime"), ("*",)
    )
    | {"dep": ("tree", "list", "cycles"), "label": ("list", "list-all"), "comments": ("list",)},
    "flyball": dict.fromkeys(
        words_of("exec status why board tail validate classify simulate demo completion"), ("*",)
    )
    | {
        "task": ("list", "show", "ready", "why"),
        "project": ("list", "show"),
        "pool": ("show",),
        "lease": ("list",),
        "machine": ("show",),
        "account": ("list", "show", "verify"),
        "quota": ("show",),
        "doctor": ("", "--json"),
        "metrics": ("*",),
    },
}
PROGRAMS = frozenset(_READS)
_VALUED = frozenset({"-R", "--repo", "--hostname", "--db", "--actor", "-g", "--group"})
_WHY = {
    "flyball": "is flyball's to do, not an agent's",
    "bd": "is not an agent's to do: flyball closes a task when its work has landed",
}
_WRITES = frozenset({"-f", "-F", "--field", "--raw-field", "--input"})


def refusal(argv: Sequence[str]) -> str | None:
    """Why an agent may not run this, or None."""
    name = argv[0].rsplit("/", 1)[-1]
    verb, action = _parts(argv[1:])
    if _asks_for_help(argv[1:]):
        return None
    if (name, verb) == ("flyball", "doctor") and any(word.startswith("--f") for word in argv):
        return "flyball doctor --fix changes something, and an agent only looks"
    reads = _READS[name].get(verb, ())
    if "*" in reads or action in reads:
        return None
    if verb == "api" and name in ("gh", "glab"):
        return _api(name, argv)
    why = _WHY.get(name, "is not an agent's to do: flyball lands branches and closes tasks")
    return f"{name} {verb} {action}".rstrip() + f" {why}"


def _asks_for_help(words: Sequence[str]) -> bool:
    """Help or the version, and nothing before that an option could take it for its value."""
    for word in words[:3]:
        if word in _ASKING:
            return True
        if word.startswith("-"):
            return False
    return not words


def _parts(words: Sequence[str]) -> tuple[str, str]:
    """Verb and action, whatever options stand between them."""
    found: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in _VALUED:
            skip = True
        elif not word.startswith("-") or word == "--json":
            found.append(word)
    return (found[0] if found else "", found[1] if len(found) > 1 else "")


def _api(name: str, argv: Sequence[str]) -> str | None:
    words = list(argv)
    for flag, value in zip(words, [*words[1:], ""], strict=True):
        method = (
            value
            if flag in ("-X", "--method")
            else flag.partition("=")[2]
            if flag.startswith("--method=")
            else ""
        )
        method = method or (flag[2:] if flag.startswith("-X") and len(flag) > 2 else "")
        if method and method.upper() not in ("GET", "HEAD"):
            return f"{name} api may read; {method} changes something"
        if flag.partition("=")[0] in _WRITES or (flag.startswith(("-f", "-F")) and len(flag) > 2):
            return f"{name} api may read; with fields it changes something"
    return f"{name} api graphql can change things" if "graphql" in words else None
