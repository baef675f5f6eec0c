"""What people write about a project: ``flyball.toml``, one struct per section.

Settings only; what the factory learns lives in its ledger. Every key says here, once, what it means and what
it may be: the reference page, the JSON schema and the messages about a wrong value are made from these types
(``config_reference.py``, ``config_words.py``). What no type can say, such as a key that needs another one, is
in ``config_checks.py``. The sections about finished work are in ``config_landing.py``, those about accounts,
money and guards in ``config_account.py``.

Keys that end in ``_s`` are durations: a number of seconds, or text such as ``"10m"`` or ``"1h30m"``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from flyball.factory.config_account import AccountPart, BudgetPart, GuardPart, ModelsPart
from flyball.factory.config_landing import GatePart, MergePart, ReviewPart, StagePart

FILE_NAME = "flyball.toml"

Runtime = Literal["claude", "codex", "gemini", "opencode", "command"]
SourceName = Literal["files", "beads", "github"]
Mode = Literal["rolling", "wave"]


class ProjectPart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which project this is."""

    id: Annotated[
        str,
        Meta(
            description="The project's name in the registry and in every pool: letters and digits, "
            "with `.` `_` `-` between them.",
            examples=["blog"],
        ),
    ]
    engine: Annotated[
        str,
        Meta(
            description="The oldest flyball that may run this project. Empty: any.",
            examples=["0.2+", ">=0.2.3"],
        ),
    ] = ""
    default_branch: Annotated[
        str, Meta(description="The branch that finished work lands on. Empty: the one git names.")
    ] = ""


class TasksPart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the tasks are kept."""

    source: Annotated[
        SourceName,
        Meta(
            description="`files`: Markdown with front matter in this repository. "
            "`beads`: the `bd` command. `github`: issues, through the `gh` command."
        ),
    ] = "files"
    folder: Annotated[
        str, Meta(min_length=1, description="For `files`: the folder of the task files, inside the project.")
    ] = "tasks"
    label: Annotated[
        str, Meta(min_length=1, description="For `github`: only issues with this label are tasks.")
    ] = "flyball"


class AgentPart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who does the work, and how long it may take."""

    runtime: Annotated[
        Runtime, Meta(description="The agent. `command` is any program of yours: name it in `command`.")
    ] = "claude"
    command: Annotated[
        list[str],
        Meta(
            description="The program and its first arguments. For a known runtime: how to call it instead "
            "of by its name.",
            examples=[["python3", "agent.py"]],
        ),
    ] = []
    model: Annotated[
        str,
        Meta(
            description="The model or tier that implements tasks, over `models.stages`. Empty: that of the "
            "stage `implement`.",
            examples=["opus"],
        ),
    ] = ""
    args: Annotated[list[str], Meta(description="More arguments for the agent.")] = []
    env: Annotated[
        dict[str, str],
        Meta(description="More environment variables for the agent, beside those of `flyball run`."),
    ] = {}
    pool: Annotated[
        str, Meta(description="The pool that its slots come from. Empty: the one of the runtime's provider.")
    ] = ""
    max_turns: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="Stop the agent after so many turns.")
    ] = None
    max_s: Annotated[float, Meta(gt=0, description="Stop the agent after this time.")] = 14400.0
    max_cost_usd: Annotated[
        Annotated[float, Meta(gt=0)] | None, Meta(description="Stop the agent once it has cost this much.")
    ] = None
    stuck_s: Annotated[
        float, Meta(gt=0, description="Say that an agent seems stuck after this long without progress.")
    ] = 900.0
    silence_s: Annotated[
        float, Meta(ge=0, description="Stop an agent that has printed nothing for this long. 0: never.")
    ] = 3600.0
    grace_s: Annotated[
        float, Meta(ge=0, description="Time between asking an agent to stop and ending it by force.")
    ] = 10.0


class RunPart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many at once, and what is tried again."""

    width: Annotated[int, Meta(ge=1, description="Tasks worked on at once, as far as the pool allows.")] = 3
    mode: Annotated[
        Mode,
        Meta(
            description="`rolling`: a finished task makes room for the next one. "
            "`wave`: the next batch starts when the last one has ended."
        ),
    ] = "rolling"
    stagger_s: Annotated[float, Meta(ge=0, description="Least time between two starts.")] = 0.0
    attempts: Annotated[int, Meta(ge=1, description="Tries per task before it is blocked.")] = 3
    tier: Annotated[
        int,
        Meta(
            ge=0,
            le=3,
            description="How eagerly work is retried, from 0 (least) to 3 (most). "
            "A task's label `rt:0` to `rt:3` goes first.",
        ),
    ] = 2
    limited_retries: Annotated[
        int, Meta(ge=0, description="Further tries after a rate limit; none of them is an attempt.")
    ] = 5
    gate_retries: Annotated[
        int, Meta(ge=0, description="How often a task goes back to its agent after a red gate.")
    ] = 2
    conflict_retries: Annotated[
        int, Meta(ge=0, description="How often a task goes back to its agent after a conflict.")
    ] = 2
    backoff_s: Annotated[
        float, Meta(ge=0, description="Wait after a limit that named no time; n times this after the n-th.")
    ] = 15.0
    patience_s: Annotated[
        float,
        Meta(
            ge=0,
            description="How long a run waits for a closed pool, or for the reset of a window that is used "
            "up, while nothing else goes on, before it pauses with exit status 75.",
        ),
    ] = 21600.0
    priority: Annotated[
        int, Meta(description="Of its asks in the pool: higher first, and above 0 the reserve may be used.")
    ] = 0


class WorktreePart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The folder that each task is worked on in."""

    folder: Annotated[
        str, Meta(description="Where worktrees are made. Empty: `worktrees/<project>` in `FLYBALL_HOME`.")
    ] = ""
    bootstrap: Annotated[
        list[str],
        Meta(
            description="Commands that make a worktree ready, run in it when it is new, and again when lock "
            "files, manifests such as `package.json`, files that the commands name, or the commands "
            "themselves have changed; before the gate too. Not again where an agent in a sandbox has been.",
            examples=[["npm ci"]],
        ),
    ] = []
    bootstrap_timeout_s: Annotated[float, Meta(gt=0, description="Time for each of them.")] = 600.0
    copy: Annotated[
        list[str],
        Meta(
            description="Files that git does not track and that every worktree needs, by their path in the "
            "project. Copied again when they have changed.",
            examples=[[".env"]],
        ),
    ] = []


class PromptPart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every agent of this project is told beside its task. One of the two, or neither."""

    text: Annotated[str, Meta(description="The words themselves.")] = ""
    file: Annotated[str, Meta(description="A file with them, by its path in the project.")] = ""


class ProjectConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole of flyball.toml."""

    project: ProjectPart
    tasks: TasksPart = field(default_factory=TasksPart)
    agent: AgentPart = field(default_factory=AgentPart)
    run: RunPart = field(default_factory=RunPart)
    worktree: WorktreePart = field(default_factory=WorktreePart)
    stages: dict[str, StagePart] = {}
    review: ReviewPart = field(default_factory=ReviewPart)
    gate: GatePart = field(default_factory=GatePart)
    merge: MergePart = field(default_factory=MergePart)
    models: ModelsPart = field(default_factory=ModelsPart)
    account: AccountPart = field(default_factory=AccountPart)
    budget: BudgetPart = field(default_factory=BudgetPart)
    guard: GuardPart = field(default_factory=GuardPart)
    prompt: PromptPart = field(default_factory=PromptPart)
    areas: Annotated[
        dict[str, list[str]],
        Meta(
            description="What the label `area:<name>` of a task stands for: the paths it writes.",
            examples=[{"api": ["src/api/**"]}],
        ),
    ] = {}
