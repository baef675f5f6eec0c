"""Which requests a transport governs, which pool they count against, and the doors that make one."""

from __future__ import annotations

from typing import Any, ClassVar

import anthropic
import httpx
import httpx2
import pytest

import flyball
from flyball import Governor, Pool, UsageError
from flyball.core.signals import SignalKind
from tests.integrations.kit import Listener, Night, Scripted
from tests.integrations.transports import OVER, URL, client_of

# -- which requests, which pool ----------------------------------------------------------------------


def test_prefixes_given_as_one_text_are_refused_not_read_by_letter(lib: Any, night: Night) -> None:
    with pytest.raises(UsageError, match=r"only=\['/v1/messages'\]"):
        client_of(lib, Listener(), Scripted(lib, [200]), night, only="/v1/messages")


def test_only_the_named_paths_and_addresses_are_governed(lib: Any, night: Night) -> None:
    gate = Listener()
    only = ["/v1/messages", "https://api.example.com/v2/"]
    with client_of(lib, gate, Scripted(lib, [200]), night, only=only) as client:
        for path in ("/v1/messages/batches", "/v1/models", "/v2/any"):
            client.get(f"https://api.example.com{path}")
        client.get("https://other.example.com/v2/any")
    assert len(gate.ends) == 2


def test_an_estimate_goes_to_a_gate_that_asks_for_one(lib: Any, gov: Governor, night: Night) -> None:
    rules: Any = {"estimate": lambda request: {"tokens": len(request.content)}}

    class Windowed(Listener):
        costs: ClassVar[list[Any]] = []

        def slot(self, *, timeout: float | None = None, cost: Any = None) -> Any:
            self.costs.append(cost)
            return super().slot(timeout=timeout)

    with client_of(lib, Windowed(), Scripted(lib, [200]), night, **rules) as client:
        client.post(URL, content=b"12345")
    assert Windowed.costs == [{"tokens": 5}]
    Windowed.costs.clear()
    client = client_of(lib, Listener(), Scripted(lib, [200]), night, **rules)
    with client, pytest.raises(UsageError, match="Limiter"):
        client.post(URL)


def test_an_estimate_is_spent_from_the_windows_of_a_pool(lib: Any, gov: Governor, night: Night) -> None:
    gov.set_pool("p", windows={"tokens": "100/d"})
    rules: Any = {"estimate": lambda request: {"tokens": len(request.content)}}
    with client_of(lib, Pool(gov, "p"), Scripted(lib, [200]), night, **rules) as client:
        client.post(URL, content=b"12345")
    (window,) = next(pool for pool in gov.status().pools if pool.name == "p").windows
    assert (window.source, round(window.left)) == ("declared", 95)


def test_without_a_gate_the_host_decides_the_pool(
    lib: Any, gov: Governor, night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flyball.integrations.gate.shared_governor", lambda: gov)
    with client_of(lib, None, Scripted(lib, [429, 200, 429, 200]), night) as client:
        client.get("https://api.anthropic.com/v1/models")
        client.get("http://localhost:8000/v1/chat/completions")
    throttled = {pool.name: pool.throttle_count for pool in gov.status().pools}
    assert throttled == {"anthropic": 1, "localhost": 1, "p": 0}


def test_a_call_that_gets_no_slot_in_time_says_so(lib: Any, gov: Governor, night: Night) -> None:
    client = client_of(lib, Pool(gov, "p"), Scripted(lib, [200]), night, slot_timeout_s=0.0)
    with gov.slot("p"), pytest.raises(flyball.WaitTimeoutError):
        client.get(URL)


def test_what_an_sdk_repeats_is_not_told_again(lib: Any, night: Night) -> None:
    gate = Listener()
    with client_of(lib, gate, Scripted(lib, [429]), night, retry=None) as client:
        for count in ("0", "1", "2"):
            client.post(URL, headers={"x-stainless-retry-count": count})
    assert gate.kinds == [SignalKind.THROTTLED]


# -- the door ---------------------------------------------------------------------------------------


def test_a_client_that_exists_can_be_governed_with_its_proxies(lib: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    for make, name in ((lib.Client, "GovernedTransport"), (lib.AsyncClient, "AsyncGovernedTransport")):
        client = flyball.govern(make(), "p")
        cls = getattr(OVER[lib], name)
        assert isinstance(client._transport, cls)
        assert [mounted for mounted in client._mounts.values() if mounted is not None]
        assert all(m is None or isinstance(m, cls) for m in client._mounts.values())


def test_a_client_is_governed_once(lib: Any) -> None:
    with flyball.govern(lib.Client(), "p") as client, pytest.raises(UsageError, match="two slots"):
        flyball.govern(client, "p")


def test_what_is_not_a_client_is_refused() -> None:
    with pytest.raises(UsageError, match=r"object is not a client .* http_client=flyball\.httpx_client\("):
        flyball.govern(object(), "p")


def test_a_class_is_not_its_client() -> None:
    with pytest.raises(UsageError, match="the class Anthropic is not a client that govern knows"):
        flyball.govern(anthropic.Anthropic, "p")


def test_the_door_opens_on_httpx2_and_on_httpx_if_asked() -> None:
    assert isinstance(flyball.httpx_client("p"), httpx2.Client)
    assert isinstance(flyball.httpx_async_client("p"), httpx2.AsyncClient)
    assert isinstance(flyball.httpx_client("p", library="httpx"), httpx.Client)
    assert isinstance(flyball.httpx_async_client("p", library="httpx"), httpx.AsyncClient)


def test_without_either_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flyball.integrations.transport.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"flyball-governor\[http\]"):
        flyball.httpx_client("p")
