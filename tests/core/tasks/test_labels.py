"""Labels that mean something: which policy holds, and what is doubted."""

from __future__ import annotations

from flyball.core.tasks.labels import POLICIES, LandingPolicy, Spelling, landing_policy, retry_tier
from flyball.core.tasks.task import Task
from tests.cases import every


def task(*labels: str) -> Task:
    return Task(id="t-1", title="x", labels=labels)


@every("label", ["merge:manuel", "merge:", "merge: auto", "merge:Auto", "MERGE:auto"])
@every("others", [(), ("merge:auto",)])
def test_a_policy_that_cannot_be_made_out_never_lands_by_itself(label: str, others: tuple[str, ...]) -> None:
    assert landing_policy([task(*others, label), task("merge:auto")], otherwise="auto") == LandingPolicy(
        "manual", label
    )


def test_the_nearest_that_says_one_decides() -> None:
    lineage = [task("merged", "area:web"), task("merge:pr", "merge:auto"), task("merge:manuel")]
    assert landing_policy(lineage, otherwise="auto") == LandingPolicy("pr")
    assert landing_policy([task("quick")], otherwise="auto") == LandingPolicy("auto")


def test_what_is_right_is_not_doubted() -> None:
    labels = [f"merge:{name}" for name in POLICIES] + [
        "rt:0",
        "model:o3",
        "model:sonar-pro",
        "model:docs:gpt-5",
    ]
    assert list(Spelling().problems([*labels, "res:docker=2", "gt:x", "fp:src/**", "mine:manuel"])) == []


def test_a_retry_tier_that_does_not_exist_is_not_read() -> None:
    assert retry_tier(["rt:9", "rt:3"]) == 3
    assert retry_tier(["rt:9", "rt:", "art:1"]) is None
