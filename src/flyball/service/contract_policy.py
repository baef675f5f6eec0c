"""How clients should try again: changed with one request, for all clients of a store, without a release."""

from __future__ import annotations

from functools import partial

import msgspec
from litestar import get, put
from litestar.params import RawBody

from flyball.client.policy import Policy, policy_of
from flyball.service.contract import read_body
from flyball.service.contract_bodies import takes
from flyball.service.leases_admission import Admitting
from flyball.service.tokens import Scope

_NOTE = "client-policy"


@get("/v1/policy", operation_id="policy", tags=["lease"])
async def get_policy(admission: Admitting) -> Policy:
    """How clients should try again after a refusal."""
    store = admission.service.governor.store
    said = (await admission.afar.call(partial(store.notes, _NOTE))).get(_NOTE)
    return policy_of(said.encode(), "the policy in the store") if said is not None else Policy()


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
    text = msgspec.json.encode(policy).decode()
    await admission.afar.call(partial(admission.service.governor.store.set_note, _NOTE, text))
    return policy


ROUTES = [get_policy, put_policy]
