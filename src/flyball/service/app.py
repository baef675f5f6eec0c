"""The application: routes, guard, problems, and the middleware before all of them.

The OpenAPI document is made from the routes, and served at ``/v1/openapi.json``; the reference page is made
from it. What it says about a field is the sentence under that field, read from the source of its class.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from functools import lru_cache
from types import ModuleType
from typing import Any

import msgspec
from litestar import Litestar, Response, get
from litestar.datastructures import State
from litestar.di import Provide
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.spec import Components, SecurityScheme
from litestar.types import ASGIApp

from flyball import __version__
from flyball.client.retry_policy import Policy
from flyball.core.pool.setting_table import SETTINGS
from flyball.core.pool.settings import PoolChanges
from flyball.governor import status
from flyball.service import admission, problems, timeline
from flyball.service import schemas as bodies
from flyball.service.admission import Admission
from flyball.service.auth import OPEN, check_access
from flyball.service.lease_schemas import BODIES
from flyball.service.middleware import RequestMiddleware, Tracing
from flyball.service.problems import HANDLERS, MEDIA_TYPE, Problem
from flyball.service.routes import health, leases, orgs, pools, reads, tickets
from flyball.service.schemas import PoolSettingsBody
from flyball.service.state import Service
from flyball.service.static import page_routes
from flyball.service.tokens import Scope

_MODULES = (status, bodies, timeline, problems)
_HELP = {name: setting.help for name, setting in SETTINGS.items()}


def describe(schemas: dict[str, Any]) -> None:
    """Add what is known to the properties of OpenAPI schemas."""
    known = {PoolSettingsBody.__name__: _HELP, PoolChanges.__name__: _HELP}
    for module in _MODULES:
        known.update(_classes(module, known))
    for name, schema in schemas.items():
        for field, words in known.get(name, {}).items():
            if field in schema.get("properties", {}):
                schema["properties"][field].setdefault("description", words)


def _classes(module: ModuleType, known: dict[str, dict[str, str]]) -> Iterator[tuple[str, dict[str, str]]]:
    for found in ast.parse(inspect.getsource(module)).body:
        if isinstance(found, ast.ClassDef):
            told: dict[str, str] = {}
            for base in found.bases:
                told |= known.get(base.id, {}) if isinstance(base, ast.Name) else {}
            yield found.name, told | dict(_fields(found))


def _fields(found: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, below in zip(found.body, found.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
        ):
            yield field.target.id, " ".join(below.value.value.split())


ROUTES = [
    *reads.ROUTES,
    *leases.ROUTES,
    *tickets.ROUTES,
    *orgs.ROUTES,
    *admission.ROUTES,
    *pools.ROUTES,
    *health.ROUTES,
]
_REFERENCE = "#/components/schemas/{name}"
_OURS = (PoolSettingsBody, Problem, Policy, *BODIES)
_UNTOLD = {"/healthz", "/readyz"}
_ALWAYS = {"400", "503"}
_SAID = {
    "400": "The request is wrong; `detail` says how.",
    "401": "A token is needed, or this one is not known.",
    "403": "The token may not do this.",
    "404": "There is no such thing; `nearest` names one that may have been meant.",
    "409": "It is in use; `detail` says by what.",
    "413": "The body is larger than 64 KiB.",
    "503": "The store does not answer now, or the server is about to end; see `Retry-After`.",
}


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
    made: dict[str, Any] = _described_app().openapi_schema.to_schema()
    _, ours = msgspec.json.schema_components(_OURS, ref_template=_REFERENCE)
    made["components"]["schemas"] |= ours
    describe(made["components"]["schemas"])
    for path, item in made["paths"].items():
        for method, operation in item.items():
            _complete(path, method, operation)
    return made


def _described_app() -> Litestar:
    """An application that is never served: the framework describes routes only inside one."""
    bearer = SecurityScheme(type="http", scheme="bearer", description="`flyball token add` makes one.")
    return Litestar(
        [*ROUTES, get_document],
        dependencies={
            "service": Provide(_not_served, sync_to_thread=False),
            "admission": Provide(lambda: _not_served(), sync_to_thread=False),
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
    str(route.operation_id): str(getattr(scope := route.opt.get("scope", Scope.READ), "value", scope))
    for route in (*ROUTES, get_document)
}
"""What each operation needs."""


def _not_served() -> Service:
    raise NotImplementedError("this application is described, not served")


def _complete(path: str, method: str, operation: dict[str, Any]) -> None:
    """Every way to say no is a problem document, and most routes may need a token."""
    problem = {"content": {MEDIA_TYPE: {"schema": {"$ref": _REFERENCE.format(name="Problem")}}}}
    for code in _statuses(path, method):
        # What a route says itself stays; the framework's own word for 400 does not.
        if code == "400" or code not in operation["responses"]:
            operation["responses"][code] = {"description": _SAID[code], **problem}
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


BODY_BYTES = 64 * 1024


def build(service: Service, *, tracing: Tracing | None = None) -> ASGIApp:
    """An ASGI application for one service; its lifespan starts and stops the service."""
    admission = Admission(service)
    app = Litestar(
        [*ROUTES, get_document, *page_routes()],
        dependencies={
            "service": Provide(lambda: service, sync_to_thread=False),
            "admission": Provide(lambda: admission, sync_to_thread=False),
        },
        guards=[check_access],
        exception_handlers=HANDLERS,
        state=State({"access": service.access}),
        request_max_body_size=BODY_BYTES,
        on_startup=[service.start, admission.start],
        on_shutdown=[admission.stop, service.stop],
        openapi_config=None,
        logging_config=None,
        debug=False,
    )
    return RequestMiddleware(app, service.registry, tracing=tracing)
