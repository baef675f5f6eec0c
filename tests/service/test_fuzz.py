"""Every parameter of every route, made up from the OpenAPI document: never an answer that is our fault."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.generation import GenerationMode

from flyball.governor.governor import Governor
from flyball.service.app import document
from tests.service.kit import PROBLEM, Running

SCHEMA = schemathesis.openapi.from_dict(document())
ENDLESS = "/v1/events"


def modes(operation: dict[str, Any]) -> list[GenerationMode]:
    """Where any text will do, nothing can be given that does not fit."""
    asked = [parameter for parameter in operation.get("parameters", []) if parameter["in"] == "query"]
    picky = asked or "requestBody" in operation
    return [GenerationMode.POSITIVE, *([GenerationMode.NEGATIVE] if picky else [])]


OPERATIONS = [
    (path, method.upper(), mode)
    for path, item in document()["paths"].items()
    for method, operation in item.items()
    for mode in modes(operation)
    if path != ENDLESS
]
EXAMPLES = 300 if os.environ.get("FLYBALL_SOAK") else 12


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(Governor("memory:"), tmp_path_factory.mktemp("home")) as server:
        server.service.governor.set_pool("anthropic", cap=4)
        yield server


@pytest.mark.parametrize(("path", "method", "mode"), OPERATIONS)
def test_nothing_that_is_sent_is_our_fault(
    fuzzed: Running, path: str, method: str, mode: GenerationMode
) -> None:
    operation = SCHEMA[path][method]
    cases = operation.as_strategy(generation_mode=mode)

    @given(case=cases)
    @settings(
        max_examples=EXAMPLES,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        deadline=None,
        derandomize=not os.environ.get("FLYBALL_SOAK"),
    )
    def sent(case: Any) -> None:
        answer = case.call(base_url=fuzzed.url)
        assert answer.status_code < 500, answer.text
        if answer.status_code >= 400:
            assert answer.headers["content-type"][0] == PROBLEM

    sent()
