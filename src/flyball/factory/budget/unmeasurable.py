"""Ceilings in dollars that nothing could measure, because the runtime does not report what its calls cost.

They are named before anything is started: a ceiling without a figure to compare it with stops nothing.

    agent.max_cost_usd                          always keeps a run from starting
    budget.task_usd, run_usd, declared windows  do so where budgets are enforced; else they are only said
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flyball.core.budget.limits import BudgetAction
from flyball.errors import UsageError
from flyball.factory.accounts.account import open_account
from flyball.factory.budget.port import billing_account
from flyball.factory.budget.quotas import QuotaBook
from flyball.factory.project.config import ProjectConfig
from flyball.runtimes.registry import NAMES, load


@dataclass(frozen=True, slots=True)
class Unmeasurable:
    """``str()`` of it is a sentence: the ceiling, what is wrong, the way out."""

    key: str
    words: str
    guarded: bool
    """Only a run that enforces budgets would keep to it."""

    def __str__(self) -> str:
        return f"{self.key} {self.words}"

    def refuses(self, guard: BudgetAction) -> bool:
        return guard is BudgetAction.ENFORCE or not self.guarded


def unmeasurable(config: ProjectConfig, home: Path) -> list[Unmeasurable]:
    """The ceilings of a project and of its account that could not be kept."""
    payer = billing_account(open_account(config, home))
    if not payer.unpriced:
        return []
    cannot = f"cannot be kept: {payer.unpriced}"
    bounds = "agent.max_turns and agent.max_s bound an agent without dollars"
    reporting = " and ".join(name for name in NAMES if load(name).reports_cost)
    others = f"{reporting} report them"
    anyway = "flyball run --budget-guard advisory starts without it"
    budget, found = config.budget, []
    if config.agent.max_cost_usd is not None:
        words = f"{cannot}; remove it ({bounds}), or use another runtime ({others})"
        found.append(Unmeasurable("agent.max_cost_usd", words, guarded=False))
    for key, ceiling in (("budget.task_usd", budget.task_usd), ("budget.run_usd", budget.run_usd)):
        if ceiling is not None:
            words = f"{cannot}; remove it ({bounds}), or use another runtime ({others}); {anyway}"
            found.append(Unmeasurable(key, words, guarded=True))
    for quota in QuotaBook(home, payer.name).quotas():
        words = f"(${quota.ceiling_usd:.2f}) {cannot}; flyball quota forget {quota.name} removes it; {anyway}"
        found.append(Unmeasurable(f"the {quota.name} window of {payer.name}", words, guarded=True))
    return found


def check_measurable(config: ProjectConfig, home: Path, guard: BudgetAction) -> None:
    """UsageError where a run would have to keep to a ceiling that it cannot measure."""
    refused = [str(each) for each in unmeasurable(config, home) if each.refuses(guard)]
    if refused:
        raise UsageError("\n".join(refused))
