"""boto3 and botocore: every attempt of a client, Bedrock's for one, takes a slot.

A slot is taken before the request is signed, because a signature is good for five minutes and a line may be
longer. So it is the step from the request's values to the parsed answer that is governed
(``Endpoint._send_request``), once for each attempt. botocore's own retries are inside that step; they are
switched off, and each attempt of ours is signed anew.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any
from urllib.parse import urlsplit

from botocore.exceptions import (
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    ReadTimeoutError,
)

from flyball.errors import UsageError
from flyball.integrations.bedrock_stream import listener_for_answer
from flyball.integrations.exchange import Call, Exchange, Rules
from flyball.integrations.outcome import JudgedResponse, broken_signal, judge_http, no_answer_signal
from flyball.integrations.urllib3_body import RawRelay

_NO_ANSWER = (ConnectTimeoutError, ReadTimeoutError, EndpointConnectionError)


class BotocoreWire:
    """A request is ``(its values, the operation)``, an answer ``(the HTTP response, the parsed one)``."""

    is_async = False

    def call(self, request: Any) -> Call:
        said, _ = request
        url, body = urlsplit(said["url"]), said.get("body") or b""
        return Call(
            said["method"],
            said["url"],
            url.hostname or "",
            url.path,
            resendable=isinstance(body, bytes | bytearray | str),
            body=lambda: body.encode() if isinstance(body, str) else bytes(body),
        )

    def judge_error(self, error: Exception) -> JudgedResponse | None:
        if isinstance(error, _NO_ANSWER):
            return JudgedResponse(no_answer_signal(error))
        broken = isinstance(error, ConnectionClosedError) or type(error) is HTTPClientError
        return JudgedResponse(broken_signal(error)) if broken else None

    def is_error(self, response: Any) -> bool:
        return bool(response[0].status_code >= 400)

    def read_error(self, response: Any) -> Any:
        return response[0].content

    def judge_answer(self, response: Any, body: bytes | None) -> JudgedResponse:
        return judge_http(response[0].status_code, list(response[0].headers.items()), body)

    def close(self, response: Any) -> None:
        response[0].raw.close()

    def hand_over(
        self,
        response: Any,
        body: bytes | None,
        hold: Any,
        rules: Rules,  # noqa: ARG002 - the port
    ) -> Generator[Any, Any, Any]:
        http = response[0]
        if body is None:
            listener = listener_for_answer(http.headers)
            if isinstance(http.raw, RawRelay) and http._content is None:
                http.raw.hand_over(hold, listener)
                return response
            listener.hear(http.content)
            listener.end()
            hold.settle(listener.used)
        yield hold.free()
        return response


_WIRE = BotocoreWire()


def change(client: Any, rules: Rules) -> None:
    """Govern a client."""
    endpoint = client._endpoint
    if "_send_request" in vars(endpoint):
        raise UsageError("this client is governed already; a call would take two slots")
    exchange, send_request, send = Exchange(_WIRE, rules), endpoint._send_request, endpoint._send

    def governed_send_request(request_dict: Any, operation_model: Any) -> Any:
        return exchange.send((request_dict, operation_model), lambda request: send_request(*request))

    def send_with_relay(request: Any) -> Any:
        response = send(request)
        if request.stream_output:
            response.raw = RawRelay(response.raw)
        return response

    endpoint._send_request, endpoint._send = governed_send_request, send_with_relay
    service = client.meta.service_model.service_id.hyphenize()
    client.meta.events.unregister(f"needs-retry.{service}", unique_id=f"retry-config-{service}")
