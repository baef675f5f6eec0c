"""``requests``: every adapter of a session sends through a gate.

Retries that an adapter was given (``HTTPAdapter(max_retries=...)``) happen where no refusal is seen, so they
are switched off unless ``retry=None`` says otherwise.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import BaseAdapter

from flyball.errors import UsageError
from flyball.integrations.exchange import Call, Exchange, Rules, is_repeat
from flyball.integrations.outcome import JudgedResponse, broken_signal, judge_http, no_answer_signal
from flyball.integrations.response_stream import listener_for
from flyball.integrations.urllib3_body import RawRelay, plain_headers


class RequestsWire:
    """Sends a call with requests, and reads its answer."""

    is_async = False

    def call(self, request: requests.PreparedRequest) -> Call:
        url, body = urlsplit(request.url or ""), request.body
        whole = body is None or isinstance(body, bytes | str)
        return Call(
            request.method or "GET",
            request.url,
            url.hostname or "",
            url.path,
            repeats=is_repeat(request.headers),
            resendable=whole,
            body=lambda: body.encode() if isinstance(body, str) else body if isinstance(body, bytes) else b"",
        )

    def judge_error(self, error: Exception) -> JudgedResponse | None:
        if isinstance(error, requests.exceptions.SSLError):
            return None
        if isinstance(error, requests.Timeout) or (
            isinstance(error, requests.ConnectionError) and _was_refused(error)
        ):
            return JudgedResponse(no_answer_signal(error))
        broken = (requests.ConnectionError, requests.exceptions.ChunkedEncodingError)
        return JudgedResponse(broken_signal(error)) if isinstance(error, broken) else None

    def is_error(self, response: requests.Response) -> bool:
        return response.status_code >= 400

    def read_error(self, response: requests.Response) -> bytes:
        return response.content

    def judge_answer(self, response: requests.Response, body: bytes | None) -> JudgedResponse:
        return judge_http(response.status_code, list(response.headers.items()), body)

    def close(self, response: requests.Response) -> None:
        response.close()

    def hand_over(
        self,
        response: requests.Response,
        body: bytes | None,
        hold: Any,
        rules: Rules,  # noqa: ARG002 - the port
    ) -> Generator[Any, Any, requests.Response]:
        if body is not None:
            yield hold.free()
            return response
        relay = RawRelay(response.raw)
        relay.hand_over(hold, listener_for(plain_headers(response.headers)))
        response.raw = relay  # type: ignore[assignment, unused-ignore]
        return response


def _was_refused(error: requests.ConnectionError) -> bool:
    reason = getattr(error.args[0] if error.args else None, "reason", None)
    return type(reason).__name__ in ("NewConnectionError", "NameResolutionError", "ConnectTimeoutError")


_WIRE = RequestsWire()


class GovernedAdapter(BaseAdapter):
    """Sends what another adapter sends, through a gate."""

    def __init__(self, over: BaseAdapter, rules: Rules) -> None:
        super().__init__()
        self._over, self._exchange = over, Exchange(_WIRE, rules)

    def send(self, request: requests.PreparedRequest, *given: Any, **more: Any) -> requests.Response:
        response: requests.Response = self._exchange.send(
            request, lambda request: self._over.send(request, *given, **more)
        )
        return response

    def close(self) -> None:
        self._over.close()


def change(session: requests.Session, rules: Rules) -> None:
    """Govern a session."""
    adapters: Mapping[str, BaseAdapter] = dict(session.adapters)
    if any(isinstance(adapter, GovernedAdapter) for adapter in adapters.values()):
        raise UsageError("this session is governed already; a call would take two slots")
    for prefix, adapter in adapters.items():
        retries: Any = getattr(adapter, "max_retries", None)
        if rules.retry is not None and retries is not None:
            adapter.max_retries = type(retries)(0, read=False)  # type: ignore[attr-defined]
        session.adapters[prefix] = GovernedAdapter(adapter, rules)
