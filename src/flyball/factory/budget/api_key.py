"""Paying for calls one by one, when the account's windows are used up: only if three switches say so.

    flyball run --allow-api-spend      this run
    account.api_spend = "explicit"     this project
    the profile's api_key_env is set   this account

An ambient ``ANTHROPIC_API_KEY`` is none of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from flyball.core.budget.limits import api_spend_refusal
from flyball.errors import UsageError
from flyball.factory.budget.port import API_KEYS, BillingAccount
from flyball.factory.project.config import ProjectConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """``value`` is never printed."""

    allowed: bool = False
    variable: str = ""
    value: str = field(default="", repr=False)
    words: str = ""

    @property
    def variables(self) -> dict[str, str]:
        return {self.variable: self.value} if self.allowed else {}


def api_key_for(
    config: ProjectConfig, payer: BillingAccount, *, wanted: bool, environ: Mapping[str, str] | None = None
) -> ApiKey:
    """UsageError where a run asks for it and a switch says no."""
    around = os.environ if environ is None else environ
    value = around.get(payer.key_env, "") if payer.key_env else ""
    refused = api_spend_refusal(
        flag=wanted, setting=config.account.api_spend, key_env=payer.key_env, key_there=bool(value)
    )
    variable = API_KEYS.get(payer.runtime, "")
    if wanted and not refused and not variable:
        refused = f"{payer.runtime} takes no API key from us"
    if wanted and refused:
        raise UsageError(f"the API key may not be charged: {refused}")
    if refused:
        return ApiKey()
    words = (
        f"API KEY SPEND IS ON: when the windows of {payer.name} are used up, every call is paid for with "
        f"{payer.key_env}"
    )
    return ApiKey(allowed=True, variable=variable, value=value, words=words)
