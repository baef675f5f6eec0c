"""Governed clients over either library, answered from a script."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import httpx2

from flyball import RetryBudget, RetryPolicy
from flyball.integrations import httpx2_transport, httpx_transport
from tests.integrations.kit import Night

OVER = {httpx: httpx_transport, httpx2: httpx2_transport}
URL = "https://api.example.com/v1/messages"
PATIENT = RetryPolicy(budget=RetryBudget(least=1000))


def client_of(lib: Any, gate: Any, answers: Callable[[Any], Any], night: Night, **rules: Any) -> Any:
    rules = {"retry": PATIENT, "environment": night.world, **rules}
    transport = OVER[lib].GovernedTransport(gate, over=lib.MockTransport(answers), **rules)
    return lib.Client(transport=transport)


def async_client_of(lib: Any, gate: Any, answers: Callable[[Any], Any], night: Night, **rules: Any) -> Any:
    rules = {"retry": PATIENT, "environment": night.world_async, **rules}
    transport = OVER[lib].AsyncGovernedTransport(gate, over=lib.MockTransport(answers), **rules)
    return lib.AsyncClient(transport=transport)
