"""The governed transports over ``httpx2``. What they do is in ``exchange.py`` and ``httpx_wire.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2

from flyball.integrations.exchange import Exchange, Rules
from flyball.integrations.httpx_wire import HttpxWire

if TYPE_CHECKING:
    from typing import Unpack

    from flyball.integrations.exchange import RuleOptions
    from flyball.integrations.gate import Gate

_WIRE = HttpxWire(httpx2, is_async=False)
_ASYNC_WIRE = HttpxWire(httpx2, is_async=True)


class GovernedTransport(httpx2.BaseTransport):
    """Sends what another transport sends, through a gate. Without one, the host decides the pool."""

    def __init__(
        self,
        gate: Gate | str | None = None,
        *,
        over: httpx2.BaseTransport | None = None,
        **rules: Unpack[RuleOptions],
    ) -> None:
        self._over = over if over is not None else httpx2.HTTPTransport()
        self._exchange = Exchange(_WIRE, Rules(gate=gate, **rules))

    @classmethod
    def under(cls, over: httpx2.BaseTransport, rules: Rules) -> GovernedTransport:
        """One of several transports of one client: they share the rules and the budget."""
        made = cls(over=over)
        made._exchange = Exchange(_WIRE, rules)
        return made

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        return self._exchange.send(request, self._over.handle_request)

    def close(self) -> None:
        self._over.close()


class AsyncGovernedTransport(httpx2.AsyncBaseTransport):
    """``GovernedTransport`` for an event loop."""

    def __init__(
        self,
        gate: Gate | str | None = None,
        *,
        over: httpx2.AsyncBaseTransport | None = None,
        **rules: Unpack[RuleOptions],
    ) -> None:
        self._over = over if over is not None else httpx2.AsyncHTTPTransport()
        self._exchange = Exchange(_ASYNC_WIRE, Rules(gate=gate, **rules))

    @classmethod
    def under(cls, over: httpx2.AsyncBaseTransport, rules: Rules) -> AsyncGovernedTransport:
        """One of several transports of one client: they share the rules and the budget."""
        made = cls(over=over)
        made._exchange = Exchange(_ASYNC_WIRE, rules)
        return made

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return await self._exchange.send_async(request, self._over.handle_async_request)

    async def aclose(self) -> None:
        await self._over.aclose()
