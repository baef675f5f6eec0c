"""The routes that change what a person decides: scope admin. The same verbs as the command line's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from litestar import Request, delete, patch, post, put
from litestar.openapi.spec import OpenAPIMediaType, Operation, Reference, RequestBody
from litestar.params import FromPath, RawBody

from flyball.core.pool.model import Claim
from flyball.core.suggestions import did_you_mean
from flyball.errors import PoolInUseError, UsageError
from flyball.governor.governor import Governor
from flyball.governor.internals import internals
from flyball.governor.status import SILENT_S
from flyball.host.process import alive, host_name
from flyball.service.auth import ANYBODY, Caller
from flyball.service.problems import ProblemError
from flyball.service.routes.reads import known_pool, unknown_pool
from flyball.service.schemas import PoolRecord, PoolSettingsBody, name_in_path, pool_changes
from flyball.service.state import Service, Serving
from flyball.service.tokens import Scope

_ADMIN = {"scope": Scope.ADMIN}
_LARGEST_ID = 2**63


@dataclass
class _TakesSettings(Operation):
    """Bodies are read strictly by us, so the framework has to be told what they look like."""

    def __post_init__(self) -> None:
        schema = Reference(f"#/components/schemas/{PoolSettingsBody.__name__}")
        self.request_body = RequestBody(
            content={"application/json": OpenAPIMediaType(schema=schema)}, required=True
        )


@patch(
    "/v1/pools/{pool:str}",
    operation_id="set_pool",
    tags=["admin"],
    opt=_ADMIN,
    operation_class=_TakesSettings,
)
async def patch_pool(service: Serving, pool: FromPath[str], body: RawBody) -> PoolRecord:
    """Change the settings that the body names, as `flyball pool set` does. Makes the pool if need be."""
    return await _set(service, name_in_path("pool", pool), body)


@put(
    "/v1/pools/{pool:str}",
    operation_id="put_pool",
    tags=["admin"],
    opt=_ADMIN,
    operation_class=_TakesSettings,
)
async def put_pool(service: Serving, pool: FromPath[str], body: RawBody) -> PoolRecord:
    """The same as PATCH: what the body does not name stays as it is."""
    return await _set(service, name_in_path("pool", pool), body)


async def _set(service: Service, name: str, body: bytes) -> PoolRecord:
    changes = pool_changes(body)
    before = await service.watch.fresh()
    try:
        await service.call(partial(service.governor.set_pool, name, **changes))
    except UsageError as error:
        # Of a pair that does not fit, the one that this request names.
        named = error.settings or (tuple(changes) if len(changes) == 1 else ())
        setting = next((setting for setting in named if setting in changes), next(iter(named), None))
        raise ProblemError(400, "bad-setting", str(error), setting=setting, pool=name) from error
    known = [pool.name for pool in before.status.pools]
    # A new pool may be a name that was mistyped.
    meant = did_you_mean(name, known) if name not in known else ""
    notes = [f"this is a new pool; {meant}"] if meant else []
    return known_pool(await service.watch.fresh(), name, notes)


@post("/v1/pools/{pool:str}/reset", operation_id="reset_pool", tags=["admin"], opt=_ADMIN, status_code=200)
async def reset_pool(service: Serving, pool: FromPath[str]) -> PoolRecord:
    """Forget what the pool learned: throttles, settle, breaker. Settings and leases stay."""
    name = name_in_path("pool", pool)
    before = await service.watch.fresh()
    if before.pool(name) is None:
        raise unknown_pool(before, name)
    await service.call(partial(service.governor.reset_pool, name))
    return known_pool(await service.watch.fresh(), name)


@delete("/v1/pools/{pool:str}", operation_id="remove_pool", tags=["admin"], opt=_ADMIN)
async def remove_pool(service: Serving, pool: FromPath[str]) -> None:
    """Forget the pool with its settings and its history, as `flyball pool remove` does. One in use stays."""
    name = name_in_path("pool", pool)
    before = await service.watch.fresh()
    if before.pool(name) is None:
        raise unknown_pool(before, name)
    try:
        await service.call(partial(service.governor.remove_pool, name))
    except PoolInUseError as error:
        raise ProblemError(409, "in-use", str(error), pool=name) from error


@delete("/v1/leases/{lease:int}", operation_id="release_lease", tags=["admin"], opt=_ADMIN)
async def release_lease(service: Serving, request: Request[Any, Any, Any], lease: FromPath[int]) -> None:
    """Take back what a dead holder left: its slot, or its place in line. Running work is never touched."""
    caller: Caller = request.scope["state"].get("caller", ANYBODY)
    by = f"the token {caller.name!r}" if caller.name else "a user without a token"
    why = f"dropped by {by} over HTTP on {host_name()}"
    await service.call(partial(_reclaim, service.governor, lease, why))


def _reclaim(governor: Governor, lease_id: int, why: str) -> None:
    claim = internals(governor).store.claim(lease_id) if 0 < lease_id < _LARGEST_ID else None
    if claim is None:
        raise ProblemError(
            404,
            "unknown-lease",
            f"there is no lease {lease_id}; GET /v1/status lists those held",
            lease=lease_id,
        )
    living = _why_alive(claim, internals(governor).store.now())
    if living:
        raise ProblemError(409, "alive", f"lease {lease_id} is in use: {living}", lease=lease_id)
    internals(governor).reclaim([(claim.id, claim.holder)], why=why)


def _why_alive(claim: Claim, now: float) -> str:
    """What shows that work still goes on under it; empty where nothing does."""
    holder = claim.holder
    if alive(holder):
        return f"pid {holder.pid} runs; end it, and the slot comes back by itself"
    if alive(holder) is None and claim.confirmed_at is not None and now - claim.confirmed_at <= SILENT_S:
        return f"{holder.host} looks after it; end pid {holder.pid} there"
    return ""


ROUTES = [patch_pool, put_pool, reset_pool, remove_pool, release_lease]
