"""What an agent may ask of git: everything on its own branch in its own worktree, and reading anything.

Values in, a refusal in words or None out. What cannot be told from the words alone (is this a branch, what
does this alias stand for, which repository is it) is asked of the real git through ``Asks``.

Verbs that are not listed pass: the wall inside git (``guard.py``) stands behind this.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from flyball.factory.guards.policy import GuardPolicy
from flyball.factory.guards.policy import words as words_of

_WITH_VALUE = frozenset(
    {"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--config-env", "--attr-source"}
)
_HARMLESS_KEYS = re.compile(
    r"^(user|color|advice|column|log|status|alias|init)\.[^=]*$|^(commit|tag)\.gpgsign$|^core\.(quotepath|pager|editor|abbrev)$"
    r"|^(sequence\.editor|diff\.(renames|context|algorithm|nopathprefix)|merge\.conflictstyle|rebase\.autosquash)$",
    re.IGNORECASE,
)
"""Settings that an agent may give on a command line. Others name programs, or take the wall away."""
_RUNS_PROGRAM = re.compile(r"^(core\.pager|core\.editor|sequence\.editor)$", re.IGNORECASE)
_PLAIN_PROGRAMS = frozenset({"", "cat", "true", ":", "less", "vi", "vim", "nano"})
_NEVER = {
    "push": "an agent does not push: flyball lands its branch",
    "send-pack": "an agent does not push: flyball lands its branch",
    "http-push": "an agent does not push: flyball lands its branch",
    "send-email": "an agent sends nothing away",
    "pull": "an agent does not merge; to take up news from the default branch, rebase onto it",
    "subtree": "an agent neither merges nor pushes",
    "update-ref": "an agent moves its own branch by committing, and no other",
    "replace": "an agent does not rewrite what commits stand for",
    "filter-branch": "an agent does not rewrite history",
    "filter-repo": "an agent does not rewrite history",
    "fast-import": "an agent moves its own branch by committing, and no other",
    "pack-refs": "what all worktrees share is not an agent's to tidy",
    "gc": "what all worktrees share is not an agent's to tidy",
    "prune": "what all worktrees share is not an agent's to tidy",
    "prune-packed": "what all worktrees share is not an agent's to tidy",
    "repack": "what all worktrees share is not an agent's to tidy",
    "maintenance": "what all worktrees share is not an agent's to tidy",
    "sparse-checkout": "its settings are shared with every worktree",
    "credential": "an agent needs no login of yours",
    "receive-pack": "an agent does not push",
    "difftool": "an agent looks at differences with git diff: a difftool is a program",
    "mergetool": "an agent solves conflicts in the files: a mergetool is a program",
    "daemon": "an agent serves no repository",
    "instaweb": "an agent serves no repository",
    "shell": "an agent has a shell of its own",
}
PLAIN_REFUSALS = frozenset({*_NEVER, "merge", "worktree"})
"""Verbs that tell git from any other program."""
READS = words_of(
    "status diff log show blame grep ls-files ls-tree ls-remote cat-file rev-parse rev-list describe "
    "merge-base diff-tree diff-index diff-files for-each-ref show-ref check-ignore check-attr var version "
    "add commit rm mv restore reset clean apply am cherry-pick revert hash-object write-tree read-tree "
    "update-index commit-tree range-diff cherry name-rev count-objects fsck format-patch archive init clone "
    "help shortlog annotate whatchanged rerere"
)
"""Verbs that read, or change nothing but the agent's own: with plain options, and while the wall stands, the
shim lets them pass without a look."""
_CHANGING_BRANCH = words_of(
    "-d -D -m -M -c -C -f -u --delete --move --copy --force --set-upstream-to --unset-upstream "
    "--edit-description -t --track --no-track --create-reflog"
)
_LISTING_TAGS = words_of(
    "-l --list -n --contains --no-contains --points-at --merged --no-merged --sort -v --verify"
)

_CHANGING_CONFIG = words_of(
    "--unset --unset-all --add --replace-all --edit -e --rename-section --remove-section set unset edit "
    "rename-section remove-section"
)
_READING: dict[str, tuple[str, ...]] = {
    "worktree": ("list",),
    "remote": ("", "show", "get-url", "-v", "--verbose"),
    "notes": ("", "list", "show"),
    "reflog": ("", "show", "exists", "list"),
    "submodule": ("", "status", "init", "update", "summary", "foreach"),
}
_MAKING = re.compile(r"^-[a-zA-Z]*[bBcC]$")
_DEPTH = 5


class GitQueries(NamedTuple):
    """Questions for the real git, with the options that stood before the verb."""

    alias: Callable[[Sequence[str], str], str]
    """What an alias stands for; empty: nothing."""
    branch: Callable[[Sequence[str], str], bool]
    """Is there such a local branch?"""
    common: Callable[[Sequence[str]], str]
    """The folder that the repository's worktrees share; empty: there is no repository."""
    text: Callable[[str], str | None]
    """What is wrong with a line of shell."""
    writes: Callable[[Sequence[str], str], bool]
    """May the agent write to this path, as seen from where git would run?"""


class GitCall(NamedTuple):
    before: list[str]
    """Options of git itself."""
    settings: dict[str, str]
    verb: str
    args: list[str]


def read_call(argv: Sequence[str]) -> GitCall:
    """``git -C . -c k=v verb args`` in its parts."""
    words, before, settings = list(argv[1:]), [], {}
    while words and words[0].startswith("-"):
        word = words.pop(0)
        taken = [word, words.pop(0)] if word in _WITH_VALUE and words else [word]
        before += taken
        if taken[0] in ("-c", "--config-env") and len(taken) == 2:
            key, _, value = taken[1].partition("=")
            settings[key] = value
        elif word.startswith("--config-env="):
            settings[word.removeprefix("--config-env=").partition("=")[0]] = ""
    return GitCall(before, settings, words[0] if words else "", words[1:])


def refusal(argv: Sequence[str], policy: GuardPolicy, asks: GitQueries, depth: int = 0) -> str | None:
    """Why an agent may not run this, or None."""
    call = read_call(argv)
    if words := _settings_refusal(call) or _option_refusal(call, asks):
        return words
    if call.verb in READS or not call.verb:
        return None
    common = asks.common(call.before)
    if not common or not policy.is_guarded(common):
        return _elsewhere(call, common, policy)
    if call.verb in _NEVER:
        return _NEVER[call.verb]
    if call.verb in _RULES:
        return _RULES[call.verb](call, policy, asks)
    if call.verb in _READING:
        return _reading_refusal(call, asks)
    return _alias_refusal(argv, call, policy, asks, depth)


def _settings_refusal(call: GitCall) -> str | None:
    for key, value in call.settings.items():
        plain = not _RUNS_PROGRAM.match(key) or value.strip() in _PLAIN_PROGRAMS
        plain = plain and not (key.lower().startswith("alias.") and value.lstrip().startswith("!"))
        if not _HARMLESS_KEYS.match(key) or not plain:
            return f"an agent does not set {key}"
    return None


_WRITES = ("--output", "--output-directory", "--prefix")
_WRITES_SHORT = {"archive": "o", "format-patch": "o", "bugreport": "o", "diagnose": "o"}
_RUNS = (
    "--upload-pack",
    "--receive-pack",
    "--exec",
    "--extcmd",
    "--open-files-in-pager",
    "--ext-diff",
    "--remote",
)
_RUNS_SHORT = {"grep": "O", "clone": "u", "difftool": "x"}
_MAKES_FOLDER = frozenset({"init", "clone"})


def _option_refusal(call: GitCall, asks: GitQueries) -> str | None:
    """Options of any verb that start a program, or write where the agent may not."""
    before = _pairs(call.before)
    for flag, value in before:
        if flag == "--work-tree" and not asks.writes([], value):
            return f"an agent writes in its workspace, and not to {value}"
    letters_run, letters_write = _RUNS_SHORT.get(call.verb, ""), _WRITES_SHORT.get(call.verb, "")
    for flag, value in _pairs(call.args):
        if _abbreviates(flag, _RUNS, call.verb) or _short(flag, letters_run):
            return f"git {call.verb} {flag} starts a program"
        path = ""
        if _abbreviates(flag, _WRITES, call.verb):
            path = value
        elif letters_write and _short(flag, letters_write):
            path = flag.partition(letters_write)[2] or value
        if path and not asks.writes(call.before, path):
            return f"an agent writes in its workspace, and not to {path}"
    if call.verb == "bisect" and "run" in call.args[:1]:
        return asks.text(" ".join(call.args[1:]))
    if call.verb in _MAKES_FOLDER:
        named = _positionals(call.args, _FOLDER_VALUED)
        path = named[-1] if len(named) > (call.verb == "clone") else ""
        if path and not asks.writes(call.before, path):
            return f"an agent makes repositories in its worktree, and not in {path}"
    return None


_FOLDER_VALUED = (
    *("-b", "--branch", "--initial-branch", "-o", "--origin", "--depth", "-c", "--config", "--template"),
    *("--object-format", "--reference", "--separate-git-dir", "--filter", "-j", "--jobs", "--shallow-since"),
)
# What else begins like one of the options above.
_OTHERS = frozenset(
    {"--oneline", "--only", "--ours", "--outdated", "--others", "--object", "--objects", "--onto"}
)


def _abbreviates(flag: str, options: Sequence[str], verb: str) -> bool:
    """Does git take this for one of these options? It understands what they begin with."""
    name = flag.partition("=")[0]
    if not name.startswith("--") or len(name) < 4 or name in _OTHERS or name.startswith("--exec-path"):
        return False
    if verb == "rebase" and name == "--exec":
        return False  # what it runs is read
    return any(option.startswith(name) for option in options)


def _short(flag: str, letters: str) -> bool:
    """Is one of these letters among the short options? Behind another that takes a value it is not."""
    return (
        bool(letters) and flag[:1] == "-" and flag[1:2] != "-" and any(each in flag[1:] for each in letters)
    )


def _pairs(args: Sequence[str]) -> list[tuple[str, str]]:
    """Each option with the value that it has or may have; what stands behind ``--`` is none."""
    found: list[tuple[str, str]] = []
    for word, following in zip(args, [*args[1:], ""], strict=False):
        if word == "--":
            break
        if word.startswith("-"):
            flag, equals, value = word.partition("=")
            found.append((flag, value) if word.startswith("--") and equals else (word, following))
    return found


def _elsewhere(call: GitCall, common: str, policy: GuardPolicy) -> str | None:
    """A repository of the agent's own making is its own, but for where it pushes to; any other is not."""
    if common and not policy.may_change(common, cwd="/"):
        return "this repository is not the agent's: it works in its own worktree"
    if call.verb == "push":
        place = next(iter(_positionals(call.args, ("-o", "--push-option", "--repo"))), "")
        if any(word in policy.remotes for word in call.args) or _is_afar(place):
            return _NEVER["push"]
        return None
    if call.verb in ("send-pack", "http-push", "send-email"):
        return _NEVER[call.verb]
    if call.verb == "config" and {"--global", "--system"}.intersection(call.args):
        return _config(call, policy, None)
    return None


def _is_afar(place: str) -> bool:
    """Is it an address and no path or name of a remote? The hook of git knows where those lead."""
    return "://" in place or bool(re.match(r"^[^/.][^/]*:", place))


def _alias_refusal(
    argv: Sequence[str], call: GitCall, policy: GuardPolicy, asks: GitQueries, depth: int
) -> str | None:
    stands_for = {key.lower(): value for key, value in call.settings.items()}.get(
        f"alias.{call.verb.lower()}"
    )
    stands_for = stands_for or asks.alias(call.before, call.verb)
    if not stands_for:
        return None
    if depth >= _DEPTH:
        return f"git {call.verb} is an alias of an alias too often"
    if stands_for.startswith("!"):
        return asks.text(f"{stands_for[1:]} {' '.join(call.args)}")
    return refusal([argv[0], *call.before, *stands_for.split(), *call.args], policy, asks, depth + 1)


def _reading_refusal(call: GitCall, asks: GitQueries) -> str | None:
    first = next((word for word in call.args if not word.startswith("-")), "")
    first = first or next((word for word in call.args if word in _READING[call.verb]), "")
    if call.verb == "submodule" and first == "foreach":
        return asks.text(" ".join(call.args[call.args.index(first) + 1 :]))
    if first in _READING[call.verb]:
        return None
    return f"an agent reads with git {call.verb}, and changes nothing: the repository is shared"


def _positionals(args: Sequence[str], valued: Sequence[str] = ()) -> list[str]:
    found, skip = [], False
    for word in args:
        if skip:
            skip = False
        elif word == "--":
            break
        elif word in valued:
            skip = True
        elif not word.startswith("-") or word == "-":
            found.append(word)
    return found


def _stay(policy: GuardPolicy) -> str:
    return f"an agent stays on its own branch, {policy.branch}"


def _other_branch(name: str, call: GitCall, policy: GuardPolicy, asks: GitQueries) -> bool:
    plain = name.removeprefix("refs/heads/").removeprefix("heads/")
    if plain == policy.branch:
        return False
    return name == "-" or name.startswith("@{-") or plain == policy.default or asks.branch(call.before, plain)


def _checkout(call: GitCall, policy: GuardPolicy, asks: GitQueries) -> str | None:
    if "--ignore-other-worktrees" in call.args:
        return _stay(policy)
    for flag, name in zip(call.args, [*call.args[1:], ""], strict=True):
        made = flag in ("--orphan", "--create", "--force-create") or _MAKING.match(flag)
        if made and name != policy.branch:
            return _stay(policy)
        if flag.startswith(("--orphan=", "--create=", "--force-create=")):
            return _stay(policy)
    if {"--detach", "-d", "-p", "--patch"}.intersection(call.args) or "--" in call.args:
        return None
    named = _positionals(call.args, ("--conflict", "--pathspec-from-file"))
    alone = len(named) == 1 or call.verb == "switch"
    if named and alone and _other_branch(named[0], call, policy, asks):
        return _stay(policy)
    return None


def _rebase(call: GitCall, policy: GuardPolicy, asks: GitQueries) -> str | None:
    """Onto whatever it likes, as long as it is its own branch that moves."""
    valued = ("--onto", "-s", "--strategy", "-X", "--strategy-option", "-x", "--exec", "-C", "--whitespace")
    for flag, value in zip(call.args, [*call.args[1:], ""], strict=True):
        text = (
            value
            if flag in ("-x", "--exec")
            else flag.partition("=")[2]
            if flag.startswith("--exec=")
            else ""
        )
        if text and (words := asks.text(text)):
            return words
    named = _positionals(call.args, valued)
    moved = named[1] if len(named) > 1 else named[0] if named and "--root" in call.args else policy.branch
    return None if moved in (policy.branch, "HEAD") else _stay(policy)


def _merge(call: GitCall, policy: GuardPolicy, asks: GitQueries) -> str | None:  # noqa: ARG001
    if {"--abort", "--continue", "--quit"}.intersection(call.args):
        return None
    return f"an agent does not merge; to take up news from {policy.default}, git rebase {policy.default}"


def _branch(call: GitCall, policy: GuardPolicy, asks: GitQueries) -> str | None:  # noqa: ARG001
    changing = any(
        word.partition("=")[0] in _CHANGING_BRANCH or _has_short_flag(word, "dDmMcCfut") for word in call.args
    )
    listing = {"--list", "-l", "--contains", "--no-contains", "--merged", "--no-merged", "--points-at"}
    named = _positionals(call.args, ("--sort", "--format", "--color", "--column"))
    if changing or (named and not listing.intersection(word.partition("=")[0] for word in call.args)):
        return f"{_stay(policy)}, and makes, moves and deletes none"
    return None


def _has_short_flag(word: str, letters: str) -> bool:
    return word.startswith("-") and not word.startswith("--") and bool(set(word[1:]).intersection(letters))


def _tag(call: GitCall, policy: GuardPolicy, asks: GitQueries) -> str | None:  # noqa: ARG001
    listing = any(word.partition("=")[0] in _LISTING_TAGS or word.startswith("-n") for word in call.args)
    if not listing and (_positionals(call.args) or "-d" in call.args):
        return "an agent makes and deletes no tags"
    return None


def _config(call: GitCall, policy: GuardPolicy, asks: GitQueries | None) -> str | None:  # noqa: ARG001
    named = _positionals(call.args, ("--type", "--default", "-f", "--file", "--blob", "--comment"))
    reads = {"--get", "--get-all", "--get-regexp", "--get-urlmatch", "--list", "-l", "get", "list"}
    if reads.intersection(call.args):
        return None
    if _CHANGING_CONFIG.intersection(call.args) or len(named) > 1:
        return "git's settings are shared with every worktree and with you; an agent changes none"
    return None


def _symbolic_ref(call: GitCall, policy: GuardPolicy, asks: GitQueries) -> str | None:  # noqa: ARG001
    changes = len(_positionals(call.args, ("-m",))) > 1 or {"-d", "--delete"}.intersection(call.args)
    return _stay(policy) if changes else None


def _stash(call: GitCall, policy: GuardPolicy, asks: GitQueries) -> str | None:  # noqa: ARG001
    return "stashes are shared with you; an agent does not clear them" if "clear" in call.args[:1] else None


_Rule = Callable[[GitCall, GuardPolicy, GitQueries], str | None]
_RULES: dict[str, _Rule] = {
    "checkout": _checkout,
    "switch": _checkout,
    "rebase": _rebase,
    "merge": _merge,
    "branch": _branch,
    "tag": _tag,
    "config": _config,
    "symbolic-ref": _symbolic_ref,
    "stash": _stash,
}


def program(word: str) -> str:
    """``/usr/bin/git`` -> ``git``."""
    return os.path.basename(word)
