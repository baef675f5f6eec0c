"""The verbs, in the groups that ``flyball --help`` shows. A group is a folder of ``commands``.

Only names and summaries are here: a verb's module is imported when the verb is used.
"""

from __future__ import annotations


class VerbGroup:
    """A plain class: every start of ``flyball`` makes these."""

    def __init__(self, folder: str, title: str, verbs: dict[str, str]) -> None:
        self.folder, self.title, self.verbs = folder, title, verbs


GROUPS = (
    VerbGroup(
        "agents",
        "run agents and model calls under a slot",
        {
            "exec": "run a command under a slot",
            "env": "lead a command's model calls through the gateway, a slot for each call",
            "gateway": "run, show or stop the loopback gateway",
            "hooks": "count the sessions that you start yourself, and their subagents",
            "batch": "send prompts that need no repository, slow and cheap, with a key of their own",
            "classify": "judge from its output how an agent's run ended",
        },
    ),
    VerbGroup(
        "pools",
        "see what runs and waits, and set the limits",
        {
            "status": "show every pool: who runs, who waits, and why",
            "statusline": "print one short line for Claude Code's status line",
            "why": "say in words why a task or process runs or waits",
            "pool": "set, show, reset, remove or import a pool",
            "lease": "list the leases of every pool, or drop one whose holder is gone",
            "machine": "set or show the limits over all pools",
        },
    ),
    VerbGroup(
        "factory",
        "turn ready tasks into merged code",
        {
            "run": "turn ready tasks into merged code",
            "board": "show what a run is doing, or how the last one left things",
            "tail": "show what a task's agent prints",
            "nudge": "give a task's agent a message",
            "stop": "pause a run, or one task of it; everything is kept",
            "drain": "let a run finish what it does and start nothing more",
            "resize": "change how many agents a run has at once",
            "merge": "land a task's finished work",
            "pr": "open pull requests, and see what became of them",
            "review": "have a pull request reviewed by an agent, and show what it says",
            "land": "land a pull request that people approved",
            "metrics": "summarise results: pace, cost, waste, waits",
            "gc": "remove workspaces, branches and run folders that are not needed any more",
        },
    ),
    VerbGroup(
        "projects",
        "projects, their tasks, accounts and money",
        {
            "init": "make a repository a project: show every file it would write, and write it",
            "project": "add, list, show or remove the projects of this machine",
            "task": "add, list and show tasks, see which could start now, and why one does not run",
            "validate": "check flyball.toml and the tasks without running anything",
            "persona": "list, show and install what agents are told to be",
            "account": "say whose account agents may use, and check who is logged in",
            "quota": "show or set what an account may spend in its windows",
            "audit": "show who changed projects, accounts and quotas, and when API keys were spent from",
        },
    ),
    VerbGroup(
        "service",
        "serve the state over HTTP",
        {
            "serve": "the state over HTTP: a web page, an API, metrics",
            "token": "add, list or remove the tokens of flyball serve",
        },
    ),
    VerbGroup(
        "installation",
        "try flyball out, check it, set it up",
        {
            "demo": "many agents against a provider that answers 429, with and without the governor",
            "simulate": "try settings against providers with hidden limits, in simulated time",
            "doctor": "find what is wrong with the state, and fix it",
            "completion": "print a completion script for your shell",
        },
    ),
)
FOLDERS = {verb: group.folder for group in GROUPS for verb in group.verbs}
"""Every verb, and the folder it is in."""
