"""How a no is said: RFC 9457 problem documents, one kind for each way out.

A problem's ``type`` is ``urn:flyball:`` and one word for scripts; ``detail`` is for people and names the way
out. Routes raise ``ProblemError`` or let flyball's own errors through: whose turn it is decides the
status, as it decides the exit code of the command line.

    UsageError      400   the request is wrong
    StoreError      503   the store cannot be read or written now; try again
    anything else   500   a bug; the log has the details, the answer has none
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, InternalServerException, ValidationException
from litestar.types import ExceptionHandlersMap

from flyball.errors import StoreError, UsageError

MEDIA_TYPE = "application/problem+json"
STORE_RETRY_S = 2
_URN = "urn:flyball:"
_log = logging.getLogger("flyball.service")


class Problem(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Why a request was refused. Members beyond the first four are there where they apply."""

    type: str
    title: str
    status: int
    detail: str
    nearest: str | None = None
    """A name that may have been meant."""
    setting: str | None = None
    pool: str | None = None
    lease: int | None = None
    scope: str | None = None
    """What a token would have to be allowed."""


class ProblemError(Exception):
    """An answer that says no."""

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        **members: Any,
    ) -> None:
        super().__init__(detail)
        self.kind, self.headers = kind, dict(headers or {})
        self.problem = Problem(
            type=f"{_URN}{kind}",
            title=HTTPStatus(status).phrase,
            status=status,
            detail=detail,
            **members,
        )


def answer(error: ProblemError) -> Response[bytes]:
    return Response(
        msgspec.json.encode(error.problem),
        status_code=error.problem.status,
        media_type=MEDIA_TYPE,
        headers=error.headers,
    )


def as_problem(error: Exception) -> ProblemError:
    """Any error as the problem that the client is told."""
    if isinstance(error, ProblemError):
        return error
    if isinstance(error, UsageError):
        return ProblemError(400, "bad-request", str(error))
    if isinstance(error, StoreError):
        return ProblemError(503, "store", str(error), headers={"Retry-After": str(STORE_RETRY_S)})
    if isinstance(error, InternalServerException) and "disconnected" in error.detail:
        return ProblemError(408, "left", "the client disconnected before its request was complete")
    if isinstance(error, HTTPException):
        return _framework_problem(error)
    return ProblemError(500, "internal", "something went wrong inside flyball; its log says what")


def _framework_problem(error: HTTPException) -> ProblemError:
    status = error.status_code
    kind, detail = _SAID.get(status, ("bad-request" if status < 500 else "internal", error.detail))
    if isinstance(error, ValidationException):
        detail = _validation_words(error)
    kept = {name.title(): value for name, value in (error.headers or {}).items() if name.lower() == "allow"}
    return ProblemError(status, kind, detail, headers=kept)


_SAID = {
    404: ("not-found", "there is nothing here; /v1/openapi.json lists what there is"),
    405: ("method", "this path does not allow this method; Allow names those that work"),
    413: ("too-large", "the body is larger than 64 KiB"),
}


def _validation_words(error: ValidationException) -> str:
    """
    >>> said = [{"message": "Expected `int`, got `str`", "key": "limit"}]
    >>> _validation_words(ValidationException(extra=said))
    'limit: expected `int`, got `str`'
    """
    found = error.extra if isinstance(error.extra, list) else []
    words = []
    for entry in found:
        message = str(entry.get("message", ""))
        words.append(f"{entry.get('key', 'request')}: {message[:1].lower()}{message[1:]}")
    return "; ".join(words) or "the request cannot be understood"


def _handle(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    problem = as_problem(error)
    if problem.problem.status >= 500 and not isinstance(error, ProblemError):
        trace = error if problem.kind == "internal" else None
        path = bytes(request.scope.get("raw_path") or b"").decode("ascii", "backslashreplace")
        _log.error("%s %s: %s", request.method, path, error, exc_info=trace)
    request.scope["state"]["refusal"] = problem.kind
    return answer(problem)


HANDLERS: ExceptionHandlersMap = {Exception: _handle, HTTPException: _handle}
