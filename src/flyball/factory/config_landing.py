"""The sections of ``flyball.toml`` about finished work: what is done with it before it lands, and how it
lands."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

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
    protect: Annotated[
        bool,
        Meta(description="Protect the files that the commands name: who changes one decides what is green."),
    ] = True


class StagePart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Further agents that work in a task's worktree after its own one, in the order in which they stand here,
    such as `[stages.docs]`. Each takes a slot like everyone."""

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
    """Whether somebody else looks at finished work before it lands."""

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
