"""What people write about a project: ``flyball.toml``, one struct per section.

Settings only; what the factory learns lives in its ledger. Every key says here, once, what it means and what
it may be: the reference page, the JSON schema and the messages about a wrong value are made from these types
(``config_reference.py``, ``config_reader.py``). What no type can say, such as a key that needs another one,
is in ``config_checks.py``.
Keys that end in ``_s`` are durations: a number of seconds, or text such as ``"10m"`` or ``"1h30m"``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

BillingGuard = Literal["enforce", "advisory", "off"]
ApiSpend = Literal["never", "explicit"]
Sandbox = Literal["none", "bwrap"]
Tier = Literal["haiku", "sonnet", "opus", "fable"]


class AccountPart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose account the agents use."""

    profile: Annotated[
        str,
        Meta(
            description="The profile whose identity is verified before anything is touched; "
            "`flyball account` keeps them. Empty: the login that is there, unverified.",
            examples=["work"],
        ),
    ] = ""
    api_spend: Annotated[
        ApiSpend,
        Meta(
            description="`explicit`: when the account's windows are used up, `flyball run "
            "--allow-api-spend` may go on with the profile's API key. `never`: it may not."
        ),
    ] = "never"


class BudgetPart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the work may cost. Windows belong to the account: `flyball quota` shows and calibrates them."""

    guard: Annotated[
        BillingGuard,
        Meta(description="`enforce` what follows; `advisory`: only say it; `off`: do not look."),
    ] = "enforce"
    warn: Annotated[
        float, Meta(gt=0, le=1, description="From this part of a window on, fewer agents run at once.")
    ] = 0.80
    drain: Annotated[float, Meta(gt=0, le=1, description="From here on none is started.")] = 0.90
    stop: Annotated[float, Meta(gt=0, le=1, description="From here on the run pauses.")] = 0.95
    task_usd: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        Meta(description="What one task may cost over all its launches, stages and reviews included."),
    ] = None
    run_usd: Annotated[
        Annotated[float, Meta(gt=0)] | None, Meta(description="What one run may cost before it pauses.")
    ] = None


class GuardPart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What keeps an agent inside its workspace."""

    hooks: Annotated[
        bool,
        Meta(
            description="Refuse pushes, merges, other branches, closing of tasks and writing elsewhere: by "
            "hooks where the runtime has them, and by commands that stand in front of the real ones."
        ),
    ] = True
    sandbox: Annotated[
        Sandbox,
        Meta(
            description="`bwrap`: the agent sees everything but its workspace and its own folders as "
            "read-only, by bubblewrap. `none`: hooks and commands alone."
        ),
    ] = "none"
    writable: Annotated[
        list[str],
        Meta(
            description="Folders outside the workspace that an agent may write to.",
            examples=[["~/.cache/pip"]],
        ),
    ] = []
    env: Annotated[
        list[str],
        Meta(
            description="Variables of yours that agents get beside the harmless ones.",
            examples=[["CI", "NODE_OPTIONS"]],
        ),
    ] = []


class ModelsPart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which models are asked for. A task's label `model:<tier>` or `model:<stage>:<tier>` goes first."""

    allowed: Annotated[
        list[Tier],
        Meta(description="Tiers that may be used at all. `fable` must be named by a task or a flag besides."),
    ] = field(default_factory=lambda: ["haiku", "sonnet", "opus"])
    stages: Annotated[
        dict[str, str],
        Meta(
            description="The tier or model of a stage, over its default: planning, design, scoring and "
            "review opus; implement, docs and test sonnet; explore and debug haiku.",
            examples=[{"implement": "opus"}],
        ),
    ] = {}
    names: Annotated[
        dict[str, dict[str, str]],
        Meta(
            description="What a runtime calls a tier. claude knows them by their own names; a runtime "
            "without a name for one chooses itself, and a command has a model only where one was named.",
            examples=[{"codex": {"sonnet": "gpt-5-codex"}}],
        ),
    ] = {}
    upgrade: Annotated[
        bool, Meta(description="Give the last try of a task the largest tier that need not be named.")
    ] = True


Policy = Literal["auto", "manual", "pr"]
Host = Literal["auto", "github", "gitlab"]


class GatePart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What must be green before work lands."""

    commands: Annotated[
        list[str] | None,
        Meta(
            description="Commands that all must succeed. An empty list lands work unchecked; to land by "
            "itself (`merge.policy`), a project must say one or the other.",
            examples=[["make test"]],
        ),
    ] = None
    timeout_s: Annotated[float, Meta(gt=0, description="Time for each of them.")] = 1800.0
    check_base: Annotated[
        bool,
        Meta(
            description="Run them on the default branch before the first agent of a run starts, and start "
            "none where they are red there. A commit on which they were green is not tried again."
        ),
    ] = True
    env: Annotated[
        list[str],
        Meta(
            description="Variables of yours that the commands, and those of `worktree.bootstrap`, get beside "
            "the harmless ones. They run what agents wrote.",
            examples=[["DATABASE_URL"]],
        ),
    ] = []
    sandbox: Annotated[
        bool,
        Meta(
            description="Run the commands, and those of `worktree.bootstrap` before them, behind the wall "
            "that agents are kept behind, where `guard.sandbox` asks for one. They run what agents wrote."
        ),
    ] = True
    writable: Annotated[
        list[str],
        Meta(
            description="Folders outside the landing's own that they may write to behind the wall. Not those "
            "of `guard.writable`: what agents write there would decide what is green.",
            examples=[["~/.cargo/registry"]],
        ),
    ] = []
    protect: Annotated[
        bool,
        Meta(description="Protect the files that the commands name: who changes one decides what is green."),
    ] = True


class StagePart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Further agents that work in a task's workspace after its own one, in the order in which they stand
    here, such as `[stages.docs]`. Each takes a slot as every agent does."""

    persona: Annotated[
        str, Meta(description="Who does it: the name of a persona. Empty: the one called like the stage.")
    ] = ""
    prompt: Annotated[str, Meta(description="What it is told beside its persona and the task.")] = ""
    types: Annotated[
        list[str], Meta(description="Only for tasks of these types. Empty: for all.", examples=[["bug"]])
    ] = []
    max_s: Annotated[float, Meta(gt=0, description="Stop its agent after this time.")] = 3600.0
    required: Annotated[
        bool, Meta(description="A stage that fails sends the task back; otherwise it is only noted.")
    ] = True


class ReviewPart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether another agent reviews finished work before it lands."""

    on: Annotated[
        bool, Meta(description="Review every task. Where it is on, nothing lands unreviewed by itself.")
    ] = False
    persona: Annotated[str, Meta(min_length=1, description="Who reviews: the name of a persona.")] = (
        "reviewer"
    )
    rounds: Annotated[
        int,
        Meta(
            ge=0,
            le=10,
            description="How often blocking findings go back to the agent before a person is asked.",
        ),
    ] = 2
    max_s: Annotated[float, Meta(gt=0, description="Stop the reviewer after this time.")] = 1800.0


class MergePart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How finished work lands."""

    policy: Annotated[
        Policy,
        Meta(
            description="`auto`: lands when the gate is green. `manual`: waits for `flyball merge`. "
            "`pr`: is pushed and opened as a pull request. A label `merge:auto`, `merge:manual` or "
            "`merge:pr` of the task goes first, then one of its parents. A `merge:` label with another word "
            "counts as `merge:manual`."
        ),
    ] = "auto"
    protected: Annotated[
        list[str],
        Meta(
            description="Paths that no agent may change, beside those that always are. "
            "A folder means everything below it too, with or without a `/` at its end.",
            examples=[["secrets/"]],
        ),
    ] = []
    push: Annotated[
        bool,
        Meta(
            description="Push the default branch after each landing, commits of your own that are on it "
            "included."
        ),
    ] = False
    batch: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            description="How many green branches that wait are landed behind one run of the gate. 1: each "
            "by itself.",
        ),
    ] = 8
    squash: Annotated[bool, Meta(description="Land each task as one commit.")] = False
    signed: Annotated[
        bool,
        Meta(description="Refuse branches with a commit that has no good signature (`git verify-commit`)."),
    ] = False
    submodules: Annotated[
        bool,
        Meta(
            description="Let work change which commit a submodule stands at. Never where a protected path is "
            "or lies below."
        ),
    ] = False
    host: Annotated[
        Host,
        Meta(
            description="Where pull requests are opened: `github` through `gh`, `gitlab` through `glab`. "
            "`auto`: by origin's address."
        ),
    ] = "auto"


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
        str, Meta(description="Where workspaces are made. Empty: `worktrees/<project>` in `FLYBALL_HOME`.")
    ] = ""
    bootstrap: Annotated[
        list[str],
        Meta(
            description="Commands that make a workspace ready, run in it when it is new, and again when lock "
            "files, manifests such as `package.json`, files that the commands name, or the commands "
            "themselves have changed; before the gate too.",
            examples=[["npm ci"]],
        ),
    ] = []
    bootstrap_timeout_s: Annotated[float, Meta(gt=0, description="Time for each of them.")] = 600.0
    copy: Annotated[
        list[str],
        Meta(
            description="Files that git does not track and that every workspace needs, by their path in the "
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
