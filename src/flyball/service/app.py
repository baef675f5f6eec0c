"""The application: routes, guard, problems, and the front before all of them."""

from __future__ import annotations

from litestar import Litestar
from litestar.datastructures import State
from litestar.di import Provide
from litestar.types import ASGIApp

from flyball.service import document
from flyball.service.access import check_access
from flyball.service.front import Front, Tracing
from flyball.service.leases_admission import Admission
from flyball.service.pagefiles import page_routes
from flyball.service.problems import HANDLERS
from flyball.service.serving import Service

BODY_BYTES = 64 * 1024


def build(service: Service, *, tracing: Tracing | None = None) -> ASGIApp:
    """An ASGI application for one service; its lifespan starts and stops the service."""
    admission = Admission(service)
    app = Litestar(
        [*document.ROUTES, document.get_document, *page_routes()],
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
    return Front(app, service.registry, tracing=tracing)
