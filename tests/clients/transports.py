"""Governed clients over either library, answered from a script."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import httpx2

from flyball import RetryBudget, RetryPolicy
from flyball.clients import over_httpx, over_httpx2
from tests.clients.kit import Night

OVER = {httpx: over_httpx, httpx2: over_httpx2}
URL = "https://api.example.com/v1/messages"
PATIENT = RetryPolicy(budget=RetryBudget(least=1000))


def client_of(lib: Any, gate: Any, answers: Callable[[Any], Any], night: Night, **rules: Any) -> Any:
    rules = {"retry": PATIENT, "world": night.world, **rules}
    transport = OVER[lib].GovernedTransport(gate, over=lib.MockTransport(answers), **rules)
    return lib.Client(transport=transport)


def async_client_of(lib: Any, gate: Any, answers: Callable[[Any], Any], night: Night, **rules: Any) -> Any:
    rules = {"retry": PATIENT, "world": night.world_async, **rules}
    transport = OVER[lib].AsyncGovernedTransport(gate, over=lib.MockTransport(answers), **rules)
    return lib.AsyncClient(transport=transport)
