"""Orgs and their runs: N at once for each tenant, and nothing started twice.

    PUT     /v1/orgs/{org}                            {"max_concurrent_runs": 2}
    POST    /v1/orgs/{org}/runs                       200 with a run_id, 429, 503
    POST    /v1/orgs/{org}/runs/{run_id}/heartbeat    200, or 410 once it has ended
    DELETE  /v1/orgs/{org}/runs/{run_id}              204

A run is a lease of one slot in the pool ``runs``. Its id also proves who started it: the
claim, the time to live it was started with, and a mark that only this store's servers make for this org.
"""

from __future__ import annotations

from functools import partial
from urllib.parse import quote

from litestar import Response, delete, get, post, put
from litestar.params import FromPath, RawBody

from flyball.governor.remote.leases import RemoteAsk
from flyball.service.admission import Admission, Admitted, Admitting, AnyRequest, gone_error, tenant_name
from flyball.service.lease_requests import REPLAYED, parse_key, parse_wait, read_body, refusal_error
from flyball.service.lease_schemas import OrgSettings, OrgView, Renewed, RunAsk, RunView, takes
from flyball.service.org_settings import POOL
from flyball.service.problems import ProblemError
from flyball.service.routes.leases import GONE, LEASE, REFUSALS, IdempotencyKey, Prefer
from flyball.service.schemas import name_in_path
from flyball.service.tokens import Scope

_ADMIN = {"scope": Scope.ADMIN}


@put(
    "/v1/orgs/{org:str}",
    operation_id="set_org",
    tags=["orgs"],
    opt=_ADMIN,
    operation_class=takes(OrgSettings),
)
async def put_org(admission: Admitting, org: FromPath[str], body: RawBody) -> OrgView:
    """Say how many runs an org may have at once, and on which terms. What is left out stays."""
    name, given = name_in_path("org", org), read_body(body, OrgSettings)
    return await admission.orgs.put(name, given)


@get("/v1/orgs/{org:str}", operation_id="org", tags=["orgs"])
async def get_org(admission: Admitting, org: FromPath[str]) -> OrgView:
    """One org, and how it stands."""
    return await admission.orgs.view(name_in_path("org", org))


@post(
    "/v1/orgs/{org:str}/runs",
    operation_id="start_run",
    tags=["orgs"],
    opt=LEASE,
    status_code=200,
    operation_class=takes(RunAsk),
    responses=REFUSALS,
)
async def start_run(
    admission: Admitting,
    request: AnyRequest,
    org: FromPath[str],
    body: RawBody,
    idempotency_key: IdempotencyKey = None,  # noqa: ARG001 (read from the headers; here for the document)
    prefer: Prefer = None,  # noqa: ARG001
) -> Response[RunView]:
    """Start a run if the org has room. With `Prefer: wait=N` it stands in line for so long before the 429."""
    name, asked = name_in_path("org", org), read_body(body, RunAsk)
    await admission.orgs.limit(name)  # 404 for an org that has none
    terms = await admission.orgs.terms(name)
    key = parse_key(request.headers, body, tenant=tenant_name(request), route=f"POST /v1/orgs/{name}/runs")
    order = RemoteAsk(
        pool=POOL,
        project=name,
        name=asked.name,
        priority=asked.priority,
        ttl_s=terms.ttl_s,
        key=key.key,
        fingerprint=key.fingerprint,
    )
    wait_s = parse_wait(request.headers)
    admitted = await admission.ask(request, order, park=wait_s > 0, wait_s=wait_s, tickets=False)
    if not admitted.held:
        await _serve_or_refuse(admission, order, admitted)
    await admission.remote.ready_async()
    verdict, ttl_ms = admitted.verdict, round(terms.ttl_s * 1000)
    token = admission.remote.token(verdict.claim_id, verdict.asked_at, about=f"{name}:{ttl_ms}")
    run_id = f"{verdict.claim_id}.{ttl_ms}.{token}"
    view = RunView(run_id=run_id, org=name, name=asked.name, ttl_s=terms.ttl_s, heartbeat_s=terms.heartbeat_s)
    headers = {"Location": f"/v1/orgs/{quote(name, safe='')}/runs/{run_id}"}
    return Response(view, headers=headers | (REPLAYED if admitted.replayed else {}))


async def _serve_or_refuse(admission: Admission, order: RemoteAsk, admitted: Admitted) -> None:
    """An ask that was not served in time leaves the line: this route has no tickets."""
    remote, verdict = admission.remote, admitted.verdict
    if verdict.claim_id:
        found = await remote.call(partial(remote.look, verdict.claim_id, asked_at=verdict.asked_at))
        if found is not None and found.granted:
            return
        verdict = found if found is not None else verdict
        if await admission.withdraw(order, admitted.verdict):
            return
    raise refusal_error(verdict)


@post(
    "/v1/orgs/{org:str}/runs/{run_id:str}/heartbeat",
    operation_id="renew_run",
    tags=["orgs"],
    opt=LEASE,
    status_code=200,
    responses=GONE,
)
async def renew_run(admission: Admitting, org: FromPath[str], run_id: FromPath[str]) -> Renewed:
    """The run goes on: for its time to live from now."""
    claim_id, asked_at, ttl_s = await _parse_run_id(admission, org, run_id)
    if not await admission.remote.extend_async(claim_id, ttl_s=ttl_s, asked_at=asked_at):
        raise gone_error(claim_id)
    return Renewed(id=claim_id, ttl_s=ttl_s)


@delete("/v1/orgs/{org:str}/runs/{run_id:str}", operation_id="end_run", tags=["orgs"], opt=LEASE)
async def end_run(admission: Admitting, org: FromPath[str], run_id: FromPath[str]) -> None:
    """The run is over. Saying it again changes nothing."""
    claim_id, asked_at, _ = await _parse_run_id(admission, org, run_id)
    await admission.remote.end_async(claim_id, asked_at=asked_at)


async def _parse_run_id(admission: Admission, org: str, run_id: str) -> tuple[int, float, float]:
    """The claim behind a run's id, when it was asked for, and its time to live."""
    name = name_in_path("org", org)
    claim, _, rest = run_id.partition(".")
    ttl_ms, _, mark = rest.partition(".")
    if claim.isdecimal() and ttl_ms.isdecimal() and claim.isascii() and len(claim) < 19 and len(ttl_ms) < 12:
        about = f"{name}:{int(ttl_ms)}"
        await admission.remote.ready_async()
        asked_at = admission.remote.vouched_at(int(claim), mark, about=about)
        if asked_at is not None:
            return int(claim), asked_at, int(ttl_ms) / 1000
    raise ProblemError(404, "unknown-run", f"the org {name!r} has no such run")


ROUTES = [put_org, get_org, start_run, renew_run, end_run]
