"""The sections of ``flyball.toml`` about whose account is used, what it may cost, and what agents are kept
from."""

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
            "`flyball account` keeps them. Empty: whoever is logged in, unverified.",
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
    """What keeps an agent inside its worktree."""

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
            description="`bwrap`: the agent sees everything but its worktree and its own folders as "
            "read-only, by bubblewrap. `none`: the fence alone."
        ),
    ] = "none"
    writable: Annotated[
        list[str],
        Meta(
            description="Folders outside the worktree that an agent may write to.",
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
