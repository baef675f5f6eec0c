"""The OpenAPI document, made from the routes: served at ``/v1/openapi.json``, source of the reference."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
from litestar import Litestar, Response, get
from litestar.di import Provide
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.spec import Components, SecurityScheme

from flyball import __version__
from flyball.client.policy import Policy
from flyball.service import acting, contract_policy, health, leases, orgs, reading, tickets
from flyball.service.access import OPEN
from flyball.service.bodies import PoolSettingsBody
from flyball.service.contract_bodies import BODIES
from flyball.service.fielddocs import describe
from flyball.service.problems import MEDIA_TYPE, Problem
from flyball.service.serving import Service
from flyball.service.tokens import Scope

ROUTES = [
    *reading.ROUTES,
    *leases.ROUTES,
    *tickets.ROUTES,
    *orgs.ROUTES,
    *contract_policy.ROUTES,
    *acting.ROUTES,
    *health.ROUTES,
]
_REFERENCE = "#/components/schemas/{name}"
_OURS = (PoolSettingsBody, Problem, Policy, *BODIES)
_UNTOLD = {"/healthz", "/readyz"}
_ALWAYS = {"400", "503"}
_SAID = {
    "400": "The request is wrong; `detail` says how.",
    "401": "A token is needed, or nobody has this one.",
    "403": "The token may not do this.",
    "404": "There is no such thing; `nearest` names one that may have been meant.",
    "409": "It is in use; `detail` says by what.",
    "413": "The body is larger than 64 KiB.",
    "503": "The store does not answer now, or the server is about to end; see `Retry-After`.",
}


def _word(scope: object) -> str:
    return scope.value if isinstance(scope, Scope) else str(scope)


@get("/v1/openapi.json", operation_id="openapi", tags=["read"], media_type="application/json")
async def get_document() -> Response[bytes]:
    """This document."""
    return Response(encoded(), media_type="application/json")


@lru_cache(maxsize=1)
def encoded() -> bytes:
    return msgspec.json.encode(document())


@lru_cache(maxsize=1)
def document() -> dict[str, Any]:
    """The whole document as plain values."""
    made: dict[str, Any] = _described().openapi_schema.to_schema()
    _, ours = msgspec.json.schema_components(_OURS, ref_template=_REFERENCE)
    made["components"]["schemas"] |= ours
    describe(made["components"]["schemas"])
    for path, item in made["paths"].items():
        for method, operation in item.items():
            _complete(path, method, operation)
    return made


def _described() -> Litestar:
    """An application that is never served: the framework describes routes only inside one."""
    bearer = SecurityScheme(type="http", scheme="bearer", description="`flyball token add` makes one.")
    return Litestar(
        [*ROUTES, get_document],
        dependencies={
            "service": Provide(_nobody, sync_to_thread=False),
            "admission": Provide(lambda: _nobody(), sync_to_thread=False),
        },
        openapi_config=OpenAPIConfig(
            title="flyball",
            version=__version__,
            description="Admission and state of the governor for AI agents.",
            components=Components(security_schemes={"token": bearer}),
            use_handler_docstrings=True,
            path="/described",
        ),
        # It would set up logging for the whole process otherwise.
        logging_config=None,
    )


_SCOPES = {
    str(route.operation_id): _word(route.opt.get("scope", Scope.READ)) for route in (*ROUTES, get_document)
}
"""What each operation needs."""


def _nobody() -> Service:
    raise NotImplementedError("this application is described, not served")


def _complete(path: str, method: str, operation: dict[str, Any]) -> None:
    """Every way to say no is a problem document, and most routes may need a token."""
    problem = {"content": {MEDIA_TYPE: {"schema": {"$ref": _REFERENCE.format(name="Problem")}}}}
    for status in _statuses(path, method):
        # What a route says itself stays; the framework's own word for 400 does not.
        if status == "400" or status not in operation["responses"]:
            operation["responses"][status] = {"description": _SAID[status], **problem}
    scope = _SCOPES[operation["operationId"]]
    if scope != OPEN:
        # On a loopback bind none is needed.
        operation["security"] = [{"token": [scope]}, {}]


def _statuses(path: str, method: str) -> list[str]:
    if path in _UNTOLD:
        return ["503"] if path == "/readyz" else []
    found = {*_ALWAYS, "401", "403"}
    if "{" in path:
        found.add("404")
    if method in ("put", "patch"):
        found.add("413")
    if method == "delete":
        found.add("409")
    return sorted(found)
