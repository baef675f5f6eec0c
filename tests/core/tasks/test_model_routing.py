"""Which model a launch asks for: who wins, what is refused, and what recovery cannot reach."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.core.tasks.model_routing import EXPLICIT_ONLY, STAGE_TIERS, TIERS, Routing, resolve, tier_in_name
from flyball.errors import UsageError
from tests.cases import every

LABELS = ["area:api", "model:haiku", "model:review:opus"]


def test_stages_have_the_tiers_of_their_kind_of_work() -> None:
    by_tier = {tier: {stage for stage, each in STAGE_TIERS.items() if each == tier} for tier in TIERS}
    assert by_tier["opus"] == {"planning", "design", "scoring", "review"}
    assert by_tier["sonnet"] == {"implement", "docs", "test"}
    assert by_tier["haiku"] == {"explore", "debug"}
    assert by_tier["fable"] == set()


def test_the_last_try_of_a_program_without_a_model_has_none_either() -> None:
    assert resolve(Routing(runtime="command"), "implement", last_try=True).model == ""
    assert (
        resolve(Routing(runtime="command", run_default="haiku"), "implement", last_try=True).model == "opus"
    )


@every(
    "routing, stage, labels, model, why",
    [
        (Routing(flag="opus"), "review", LABELS, "opus", "--model opus"),
        (Routing(), "review", LABELS, "opus", "label model:review:opus"),
        (Routing(), "implement", LABELS, "haiku", "label model:haiku"),
        (Routing(run_default="opus"), "implement", LABELS, "haiku", "label model:haiku"),
        (Routing(run_default="opus"), "implement", [], "opus", "--default-model opus"),
        (Routing(stages={"docs": "haiku"}), "docs", [], "haiku", "the project's default for docs"),
        (Routing(run_default="opus", stages={"docs": "haiku"}), "docs", [], "opus", "--default-model opus"),
        (Routing(), "docs", [], "sonnet", "stage default (docs)"),
        (Routing(runtime="command"), "implement", [], "", "no model was named"),
        (Routing(runtime="command"), "implement", LABELS, "haiku", "label model:haiku"),
        (Routing(runtime="command", names={"sonnet": "m-2"}), "docs", [], "m-2", "stage default (docs)"),
        (Routing(), "a stage of the project's own", [], "sonnet", "stage default (a stage of"),
    ],
)
def test_the_more_explicit_word_wins(
    routing: Routing, stage: str, labels: list[str], model: str, why: str
) -> None:
    route = resolve(routing, stage, labels)
    assert route.model == model
    assert route.rationale.startswith(why)


def test_a_runtime_gets_its_own_name_for_a_tier() -> None:
    routing = Routing(runtime="codex", names={"sonnet": "gpt-5-codex"})
    assert resolve(routing, "implement").model == "gpt-5-codex"


def test_a_runtime_without_a_name_for_a_tier_chooses_itself() -> None:
    route = resolve(Routing(runtime="codex"), "implement")
    assert (route.model, route.tier) == ("", "sonnet")
    assert "models.names" in route.rationale


def test_a_name_that_is_not_a_tier_is_passed_on() -> None:
    route = resolve(Routing(runtime="codex", flag="gpt-5-codex"), "implement")
    assert (route.model, route.tier) == ("gpt-5-codex", "")


@pytest.mark.parametrize("asked", ["fable", "claude-fable-5", "CLAUDE-Fable"])
def test_a_tier_that_is_not_allowed_is_refused_however_it_is_spelt(asked: str) -> None:
    for routing, labels in ((Routing(flag=asked), []), (Routing(), [f"model:{asked}"])):
        with pytest.raises(UsageError, match=r"models\.allowed has haiku, sonnet, opus"):
            resolve(routing, "implement", labels)


def test_an_explicit_only_tier_comes_from_a_flag_or_a_label_alone() -> None:
    allowed = ("haiku", "sonnet", "opus", "fable")
    assert resolve(Routing(flag="fable", allowed=allowed), "implement").tier == "fable"
    assert resolve(Routing(allowed=allowed), "implement", ["model:implement:fable"]).tier == "fable"
    for routing in (
        Routing(run_default="fable", allowed=allowed),
        Routing(stages={"implement": "fable"}, allowed=allowed),
    ):
        with pytest.raises(UsageError, match="only a task's label or --model may"):
            resolve(routing, "implement")


def test_a_last_try_goes_up_and_says_so() -> None:
    route = resolve(Routing(), "implement", last_try=True)
    assert (route.model, route.rationale) == (
        "opus",
        "the last try, upgraded from sonnet (stage default (implement))",
    )
    assert resolve(Routing(upgrade=False), "implement", last_try=True).model == "sonnet"


def test_a_last_try_leaves_an_explicit_choice_alone() -> None:
    assert resolve(Routing(), "implement", ["model:haiku"], last_try=True).model == "haiku"


def test_a_runtimes_name_for_a_tier_is_not_a_way_around_the_allowlist() -> None:
    with pytest.raises(UsageError, match="asks for fable"):
        resolve(Routing(names={"sonnet": "claude-fable-5"}), "implement")


_names = st.sampled_from([*TIERS, "gpt-5-codex", "claude-fable-5", ""])


@given(
    flag=_names,
    default=_names,
    stages=st.dictionaries(st.sampled_from(["implement", "review"]), _names.filter(bool)),
    labels=st.lists(st.sampled_from(["model:haiku", "model:fable", "model:review:fable", "model:", "x"])),
    allowed=st.sets(st.sampled_from(TIERS)),
    stage=st.sampled_from(["implement", "review", "docs"]),
    last=st.booleans(),
)
def test_nothing_reaches_a_tier_that_is_not_allowed_and_no_recovery_one_that_must_be_named(
    flag: str,
    default: str,
    stages: dict[str, str],
    labels: list[str],
    allowed: set[str],
    stage: str,
    last: bool,
) -> None:
    routing = Routing(flag=flag, run_default=default, stages=stages, allowed=allowed)
    try:
        route = resolve(routing, stage, labels, last_try=last)
    except UsageError:
        return
    assert route.rationale
    assert not route.tier or route.tier in allowed
    assert tier_in_name(route.model) in ("", route.tier)
    if route.tier in EXPLICIT_ONLY:
        assert route.explicit
