"""Every parameter of every route, made up from the OpenAPI document: never an answer that is our fault."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings

from flyball.governor.governor import Governor
from flyball.service.app import ROUTES, document, get_document
from tests.service.kit import PROBLEM, Running

if TYPE_CHECKING:
    from schemathesis.generation import GenerationMode

ENDLESS = "/v1/events"
OPERATIONS = sorted(
    (re.sub(r":\w+}", "}", path), method)
    for route in (*ROUTES, get_document)
    for path in route.paths
    for method in route.http_methods
    if path != ENDLESS
)
EXAMPLES = 300 if os.environ.get("FLYBALL_SOAK") else 12


@lru_cache(maxsize=1)
def schema() -> Any:
    return schemathesis.openapi.from_dict(document())


def modes(operation: dict[str, Any]) -> list[GenerationMode]:
    """Where any text will do, nothing can be given that does not fit."""
    asked = [parameter for parameter in operation.get("parameters", []) if parameter["in"] == "query"]
    picky = asked or "requestBody" in operation
    kinds = schemathesis.GenerationMode
    return [kinds.POSITIVE, *([kinds.NEGATIVE] if picky else [])]


def test_every_operation_of_the_document_is_tried() -> None:
    told = document()["paths"].items()
    known = {(path, method.upper()) for path, item in told for method in item if path != ENDLESS}
    assert known == set(OPERATIONS)


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(Governor("memory:"), tmp_path_factory.mktemp("home")) as server:
        server.service.governor.set_pool("anthropic", cap=4)
        yield server


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_nothing_that_is_sent_is_our_fault(fuzzed: Running, path: str, method: str) -> None:
    for mode in modes(document()["paths"][path][method.lower()]):
        cases = schema()[path][method].as_strategy(generation_mode=mode)

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
