"""The OpenAPI document and the pages made from the code say what the code does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flyball.observe.metrics import METRICS
from flyball.service.app import ROUTES, document
from flyball.service.reference import PAGE, main, reference_page
from flyball.service.tokens import Scope
from tests.service.kit import Running

DOCS = Path(__file__).parents[2] / "docs" / "reference"
AGAIN = "stale; run: python -m flyball.service.reference docs/reference"


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (path, method, operation)
        for path, item in document()["paths"].items()
        for method, operation in item.items()
    ]


def test_the_reference_page_is_up_to_date() -> None:
    assert (DOCS / PAGE).read_text(encoding="utf-8") == reference_page(), AGAIN


def test_the_page_is_written_where_it_is_asked_for(tmp_path: Path) -> None:
    main(tmp_path / "new")
    assert (tmp_path / "new" / PAGE).read_text(encoding="utf-8") == reference_page()


def test_the_page_names_every_route_and_every_metric() -> None:
    page = reference_page()
    for path, method, _ in operations():
        assert f"`{method.upper()} {path}`" in page
    for metric in METRICS:
        assert f"`{metric.name}`" in page


def test_the_document_is_served(running: Running) -> None:
    assert running.client.get("/v1/openapi.json").json()["paths"].keys() == document()["paths"].keys()


def test_every_reference_leads_somewhere() -> None:
    known = document()["components"]["schemas"]

    def check(found: Any) -> None:
        if isinstance(found, dict):
            if "$ref" in found:
                assert found["$ref"].removeprefix("#/components/schemas/") in known
            for value in found.values():
                check(value)
        elif isinstance(found, list):
            for value in found:
                check(value)

    check(document())


def test_every_operation_says_what_it_does_and_what_it_needs() -> None:
    for path, method, operation in operations():
        name = f"{method.upper()} {path}"
        assert operation["description"].strip().endswith((".", "`.")), name
        if path not in ("/healthz", "/readyz"):
            (needed,) = operation["security"][0]["token"]
            assert needed in [scope.value for scope in Scope], name
            assert {"401", "403", "503"} <= operation["responses"].keys(), name


def test_whatever_changes_something_needs_more_than_reading() -> None:
    for route in ROUTES:
        if route.http_methods - {"GET"}:
            assert route.opt.get("scope") in (Scope.LEASE, Scope.ADMIN), route.operation_id


def test_the_settings_of_a_pool_are_those_of_the_command_line() -> None:
    from flyball.core.pool.settings import PoolChanges

    body = document()["components"]["schemas"]["PoolSettingsBody"]
    assert body["properties"].keys() == PoolChanges.__annotations__.keys()
    assert body["additionalProperties"] is False
