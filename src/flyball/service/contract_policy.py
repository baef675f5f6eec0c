"""How clients should try again: changed with one request, for all clients, without a release."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec
from litestar import get, put
from litestar.params import RawBody

from flyball.client.policy import Policy, policy_of
from flyball.errors import StoreReadOnlyError
from flyball.governor.location import mail_home
from flyball.host.wholefile import replace_file
from flyball.service.contract import read_body
from flyball.service.contract_bodies import takes
from flyball.service.leases_admission import Admission, Admitting
from flyball.service.tokens import Scope

FILE_NAME = "client-policy.json"


@get("/v1/policy", operation_id="policy", tags=["lease"])
async def get_policy(admission: Admitting) -> Policy:
    """How clients should try again after a refusal."""
    return await admission.afar.call(partial(_read, _path(admission)))


@put(
    "/v1/policy",
    operation_id="set_policy",
    tags=["admin"],
    opt={"scope": Scope.ADMIN},
    operation_class=takes(Policy),
)
async def put_policy(admission: Admitting, body: RawBody) -> Policy:
    """Replace it; what is left out is as it is out of the box. Clients ask once a minute."""
    policy = read_body(body, Policy)
    await admission.afar.call(partial(_write, _path(admission), policy))
    return policy


def _path(admission: Admission) -> Path:
    return mail_home(admission.service.governor.address) / FILE_NAME


def _read(path: Path) -> Policy:
    try:
        return policy_of(path.read_bytes(), str(path))
    except FileNotFoundError:
        return Policy()


def _write(path: Path, policy: Policy) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(path, msgspec.json.encode(policy), mode=0o600)
    except OSError as error:
        raise StoreReadOnlyError(f"cannot write {path} ({error.strerror})") from error


ROUTES = [get_policy, put_policy]
