"""Is it there, may it get work, what does it count: for machines that look after machines."""

from __future__ import annotations

from litestar import Response, get
from litestar.openapi.datastructures import ResponseSpec

from flyball.observe import metrics, prometheus
from flyball.service.auth import OPEN
from flyball.service.problems import ProblemError
from flyball.service.schemas import Health
from flyball.service.state import Serving

_OPEN = {"scope": OPEN}


@get("/healthz", operation_id="healthz", tags=["health"], opt=_OPEN)
async def healthz() -> Health:
    """The process answers. Needs no token."""
    return Health("ok")


@get("/readyz", operation_id="readyz", tags=["health"], opt=_OPEN)
async def readyz(service: Serving) -> Health:
    """It can do its work: the store answers, and it is not about to end. Needs no token."""
    if service.draining:
        raise ProblemError(503, "draining", "the server is about to end", headers={"Retry-After": "5"})
    if service.watch.trouble:
        words = "the store does not answer; the server's log says why"
        raise ProblemError(503, "store", words, headers={"Retry-After": "2"})
    return Health("ready")


@get(
    "/metrics",
    operation_id="metrics",
    tags=["health"],
    responses={200: ResponseSpec(str, media_type="text/plain", description="For Prometheus.")},
)
async def get_metrics(service: Serving) -> Response[str]:
    """Everything that is counted, as Prometheus reads it."""
    service.registry.set(metrics.STREAMS, [({}, float(len(service.watch.streams)))])
    return Response(
        prometheus.text(service.registry),
        media_type="text/plain",
        headers={"Content-Type": prometheus.CONTENT_TYPE},
    )


ROUTES = [healthz, readyz, get_metrics]
