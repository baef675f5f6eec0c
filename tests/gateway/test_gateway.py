"""What a client of the gateway meets, over real sockets."""

from __future__ import annotations

import json
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flyball.errors import UsageError
from flyball.gateway.address import Route, base_address, parse_target
from flyball.gateway.environment import gateway_variables
from flyball.gateway.lifetime import ask_gateway
from flyball.integrations.model_call import is_model_call
from flyball.integrations.retry import RetryPolicy
from flyball.sim.provider.capacity import Capacity
from flyball.sim.provider.server import Manner, Provider
from tests.gateway.conftest import CALL, RunningGateway, ScriptedServer
from tests.waiting import until

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


@pytest.fixture
def scripted() -> Iterator[Callable[..., ScriptedServer]]:
    servers: list[ScriptedServer] = []

    def make(*answers: bytes) -> ScriptedServer:
        servers.append(ScriptedServer(*answers))
        return servers[-1]

    yield make
    for server in servers:
        server.close()


# -- the cap ---------------------------------------------------------------------------------------------


def test_calls_at_once_are_never_more_than_the_cap_and_all_are_served(running: RunningGateway) -> None:
    running.governor.set_pool("127.0.0.1", cap=2, adaptive=False)
    with Provider(Capacity.parse("20"), Manner(tokens_per_s=1000)) as provider:
        with ThreadPoolExecutor(16) as threads:
            answers = list(threads.map(lambda _: running.call(provider.url)[0], range(32)))
        assert answers == [200] * 32
        assert provider.tally().peak_open == 2


def test_a_refused_family_closes_its_own_pool_and_not_its_siblings(running: RunningGateway) -> None:
    running.governor.set_pool("127.0.0.1", families={"opus": "*opus*"})
    running.server.calls.families.refresh()
    with Provider(Capacity.parse("8"), Manner(tokens_per_s=1000), script="429:600") as provider:
        hurried = {"x-stainless-timeout": "1"}
        opus, haiku = ({**CALL, "model": f"claude-{name}-5"} for name in ("opus", "haiku"))
        assert running.call(provider.url, body=opus, headers=hurried)[0] == 429
        assert running.call(provider.url, body=haiku, headers=hurried)[0] == 200
        assert running.call(provider.url, body=opus, headers=hurried)[0] == 429
        assert provider.tally().accepted == 1
    assert running.pool("127.0.0.1:opus").closed_for_s
    assert not running.pool("127.0.0.1").closed_for_s


def test_a_refused_call_is_tried_again_and_its_client_sees_only_the_good_answer(
    running: RunningGateway,
) -> None:
    with Provider(Capacity.parse("8"), Manner(reject_s=0.0, retry_after_s=0.1), script="429x2") as provider:
        status, _, body = running.call(provider.url)
        assert (status, json.loads(body)["type"]) == (200, "message")
        assert provider.tally().accepted == 1
    assert running.pool().throttle_count == 1  # a repeat is not news


def test_a_refusal_that_lasts_longer_than_its_client_waits_is_handed_over_as_it_came(
    running: RunningGateway,
) -> None:
    with Provider(Capacity.parse("8"), Manner(reject_s=0.0, retry_after_s=60), script="429x*") as provider:
        status, headers, body = running.call(provider.url, headers={"x-stainless-timeout": "5"})
    assert (status, headers["retry-after"]) == (429, "60")
    assert "x-flyball" not in headers
    assert json.loads(body)["error"]["type"] == "rate_limit_error"


def test_a_refusal_is_handed_over_where_the_pause_before_the_next_try_is_longer_than_its_client_waits(
    running: RunningGateway,
) -> None:
    running.server.calls.policy = RetryPolicy(base_s=1e6, cap_s=1e6)
    with Provider(Capacity.parse("8"), Manner(reject_s=0.0, retry_after_s=None), script="429x*") as provider:
        status, headers, _ = running.call(provider.url, headers={"x-stainless-timeout": "5"})
    assert (status, "x-flyball" in headers) == (429, False)


def test_a_call_that_finds_no_slot_in_its_clients_time_gets_a_429_with_retry_after(
    running: RunningGateway,
) -> None:
    running.governor.set_pool("127.0.0.1", cap=1, adaptive=False)
    with running.governor.slot("127.0.0.1", project="other", name="holder"):
        status, headers, body = running.call("http://127.0.0.1:9", headers={"x-stainless-timeout": "0.5"})
    assert status == 429
    assert int(headers["retry-after"]) >= 1
    error = json.loads(body)["error"]
    assert error["type"] == "rate_limit_error"
    assert "other/holder" in error["message"]


def test_status_tells_the_calls_under_way_and_those_whose_clients_were_refused(
    running: RunningGateway,
) -> None:
    running.governor.set_pool("127.0.0.1", cap=1, adaptive=False)
    counts = {"calls": 0, "waiting": 0, "refused": 0}

    def counted() -> dict[str, int]:
        said = ask_gateway(running.gateway, "status") or {}
        return {name: said[name] for name in counts}

    with (
        Provider(Capacity.parse("8"), Manner(reject_s=0.0, retry_after_s=60), script="ok,429") as provider,
        ThreadPoolExecutor(1) as threads,
    ):
        with running.governor.slot("127.0.0.1", project="other", name="holder"):
            waiting = threads.submit(running.call, provider.url)
            until(lambda: counted() == {"calls": 1, "waiting": 1, "refused": 0}, "the call waits")
        assert waiting.result()[0] == 200
        assert running.call(provider.url, headers={"x-stainless-timeout": "5"})[0] == 429
        # The pool is closed now: this one is refused by the gateway.
        assert running.call(provider.url, headers={"x-stainless-timeout": "0.5"})[0] == 429
    until(lambda: counted() == {**counts, "refused": 2}, "both refusals are counted")


@pytest.mark.parametrize("parts", [1, 2])
def test_an_error_in_a_stream_that_began_well_is_told_to_the_pool(
    running: RunningGateway, scripted: Callable[..., ScriptedServer], parts: int
) -> None:
    error = (
        b'event: error\ndata: {"type": "error", "error": {"type": "rate_limit_error", "message": "x"}}\n\n'
    )
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(error)
    answer = (head + error,) if parts == 1 else (head, error)
    server = scripted(b"<pause>".join(answer))
    status, _, body = running.call(server.url)
    assert (status, body) == (200, error)
    until(lambda: running.pool().throttle_count, "the pool knows of it")
    until(lambda: running.pool().in_use == 0, "the slot is free")


def test_what_headers_say_of_a_usage_window_holds_up_the_next_call(
    running: RunningGateway, scripted: Callable[..., ScriptedServer]
) -> None:
    running.governor.set_pool("127.0.0.1", cap=4, adaptive=False, usage_drain=0.9)
    said = b"anthropic-ratelimit-unified-5h-utilization: 0.93\r\nanthropic-ratelimit-unified-5h-reset: %d\r\n"
    reset = int(time.time()) + 3600
    server = scripted(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n" + said % reset + b"\r\n{}")
    assert running.call(server.url)[0] == 200
    until(lambda: running.pool().usage_windows, "the window is known")
    (window,) = running.pool().usage_windows
    assert (window.name, window.used, window.certainty) == ("5h", 0.93, "reported")
    status, headers, body = running.call(server.url, headers={"x-stainless-timeout": "0.5"})
    assert (status, headers["x-flyball"]) == (429, "gateway")
    assert 3500 < int(headers["retry-after"]) <= 3600
    assert "a usage window of the account is nearly used up" in json.loads(body)["error"]["message"]
    assert len(server.heard) == 1


def test_a_full_line_refuses_at_once(running: RunningGateway) -> None:
    running.server.calls.waiting_limit = 0
    status, headers, _ = running.call("http://127.0.0.1:9")
    assert (status, headers["x-flyball"]) == (429, "gateway")


def test_a_client_that_hangs_up_in_line_leaves_the_line(running: RunningGateway) -> None:
    running.governor.set_pool("127.0.0.1", cap=1, adaptive=False)
    with running.governor.slot("127.0.0.1"):
        connection = running.connect()
        connection.request("POST", running.path("http://127.0.0.1:9", "/v1/messages"), json.dumps(CALL))
        until(lambda: running.pool().waiting == 1, "the call stands in line")
        connection.close()
        until(lambda: running.pool().waiting == 0, "the call left the line")


def test_a_client_that_hangs_up_in_an_answer_gives_the_slot_back(running: RunningGateway) -> None:
    with Provider(Capacity.parse("8"), Manner(tokens_per_s=100)) as provider:
        connection = running.connect()
        body = json.dumps({**CALL, "stream": True, "max_tokens": 10_000})
        connection.request("POST", running.path(provider.url, "/v1/messages"), body)
        with connection.getresponse() as answer:
            assert answer.status == 200
            assert running.pool().in_use == 1
        connection.close()
        until(lambda: running.pool().in_use == 0, "the slot came back")


def test_requests_that_no_model_answers_take_no_slot(running: RunningGateway) -> None:
    running.governor.set_pool("127.0.0.1", cap=1, adaptive=False)
    with Provider(Capacity.parse("8"), Manner()) as provider, running.governor.slot("127.0.0.1"):
        status, _, body = running.call(provider.url, rest="/v1/messages/count_tokens")
    assert (status, json.loads(body)) == (200, {"input_tokens": 1234})


def test_the_calls_of_a_session_with_priority_may_use_the_reserve(running: RunningGateway) -> None:
    running.governor.set_pool("127.0.0.1", cap=2, adaptive=False, reserve=1)
    with (
        Provider(Capacity.parse("8"), Manner(tokens_per_s=1000)) as provider,
        running.governor.slot("127.0.0.1"),
    ):
        hurried = {"x-stainless-timeout": "0.5"}
        assert running.call(provider.url, headers=hurried)[0] == 429
        assert running.call(provider.url, priority=1)[0] == 200


# -- bytes -----------------------------------------------------------------------------------------------


def test_headers_and_bodies_pass_as_they_are(
    running: RunningGateway, scripted: Callable[..., ScriptedServer]
) -> None:
    answer = (
        b"HTTP/1.1 200 Quite OK\r\nX-Odd-CASE:  two  spaces\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n"
        b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3;ext=1\r\nab\n\r\n0\r\nTrailer: x\r\n\r\n"
    )
    server = scripted(answer)
    with socket.create_connection(("127.0.0.1", running.gateway.port)) as client:
        target = running.path(server.url, "/v1/messages?beta=true")
        client.sendall(
            f"POST {target} HTTP/1.1\r\nHost: x\r\nX-API-Key: k\r\nAnthropic-BETA: a,b\r\n"
            'Content-Length: 9\r\nAccept-Encoding: br\r\n\r\n{ "a": 1}'.encode()
        )
        got = b""
        while len(got) < len(answer):
            got += client.recv(65536)
    assert got == answer
    head, _, body = server.heard[0].partition(b"\r\n\r\n")
    assert body == b'{ "a": 1}'
    assert head.split(b"\r\n") == [
        b"POST /v1/messages?beta=true HTTP/1.1",
        f"Host: {server.url.removeprefix('http://')}".encode(),
        b"X-API-Key: k",
        b"Anthropic-BETA: a,b",
        b"Content-Length: 9",
        b"Accept-Encoding: br",
    ]


def test_a_chunked_request_stays_chunked(
    running: RunningGateway, scripted: Callable[..., ScriptedServer]
) -> None:
    server = scripted(OK)
    connection = running.connect()
    connection.request(
        "POST", running.path(server.url, "/v1/messages"), iter([b"one ", b"two"]), encode_chunked=True
    )
    assert connection.getresponse().read() == b"{}"
    head, _, body = server.heard[0].partition(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head.lower()
    assert body == b"7\r\none two\r\n0\r\n\r\n"


def test_a_connection_serves_several_calls_on_both_sides(
    running: RunningGateway, scripted: Callable[..., ScriptedServer]
) -> None:
    server = scripted(OK, OK, OK)
    connection = running.connect()
    assert [running.call(server.url, connection=connection)[0] for _ in range(3)] == [200] * 3
    assert server.connections == 1


def test_a_kept_connection_that_the_server_closed_is_not_an_error(
    running: RunningGateway, scripted: Callable[..., ScriptedServer]
) -> None:
    server = scripted(OK + b"<close>", OK)
    assert running.call(server.url)[0] == 200
    assert running.call(server.url)[0] == 200


def test_an_answer_that_ends_with_the_connection_is_whole(
    running: RunningGateway, scripted: Callable[..., ScriptedServer]
) -> None:
    server = scripted(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\nall of it<close>")
    assert running.call(server.url)[2] == b"all of it"


def test_interim_answers_are_passed_over(
    running: RunningGateway, scripted: Callable[..., ScriptedServer]
) -> None:
    server = scripted(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK)
    assert running.call(server.url)[0] == 200


def test_an_answer_that_breaks_off_breaks_off_at_the_client(
    running: RunningGateway, scripted: Callable[..., ScriptedServer]
) -> None:
    server = scripted(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf<close>")
    with pytest.raises(Exception, match="IncompleteRead"):
        running.call(server.url)
    until(lambda: running.pool().in_use == 0, "the slot came back")


def test_a_large_answer_and_a_slow_reader_do_not_fill_the_gateways_memory(running: RunningGateway) -> None:
    size = 64 * 1024 * 1024
    sent = threading.Event()
    place = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        client, _ = place.accept()
        with client:
            client.recv(65536)
            client.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
            client.sendall(bytes(size))
            sent.set()

    threading.Thread(target=serve, daemon=True).start()
    with place:
        connection = running.connect()
        url = f"http://127.0.0.1:{place.getsockname()[1]}"
        connection.request("POST", running.path(url, "/v1/messages"), json.dumps(CALL))
        answer = connection.getresponse()
        assert not sent.wait(0.5), "the gateway took all of it although the client does not read"
        assert len(answer.read()) == size
        assert sent.wait(10)


# -- the unhappy paths -----------------------------------------------------------------------------------


def test_a_server_that_cannot_be_reached_is_a_502_that_names_it(running: RunningGateway) -> None:
    status, headers, body = running.call("http://127.0.0.1:9")
    assert (status, headers["x-flyball"]) == (502, "gateway")
    assert "127.0.0.1:9" in json.loads(body)["error"]["message"]
    assert running.pool().in_use == 0


def test_an_answer_that_is_not_http_is_a_502(
    running: RunningGateway, scripted: Callable[..., ScriptedServer]
) -> None:
    server = scripted(b"nonsense\r\n\r\n<close>")
    assert running.call(server.url)[0] == 502


def test_a_wrong_token_is_refused_and_reaches_no_server(
    running: RunningGateway, scripted: Callable[..., ScriptedServer]
) -> None:
    server = scripted(OK)
    connection = running.connect()
    path = running.path(server.url, "/v1/messages").replace(running.gateway.token, "guess")
    connection.request("POST", path, json.dumps(CALL))
    assert connection.getresponse().status == 403
    assert server.heard == []


def test_what_is_not_a_request_gets_a_400_and_the_connection_ends(running: RunningGateway) -> None:
    with socket.create_connection(("127.0.0.1", running.gateway.port)) as client:
        client.sendall(b"hello there\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 400")


def test_the_token_is_in_a_private_file(running: RunningGateway, tmp_path: Path) -> None:
    assert stat.S_IMODE((tmp_path / "gateway.json").stat().st_mode) == 0o600


def test_the_next_gateway_has_the_same_port_and_token(tmp_path: Path) -> None:
    first = RunningGateway(tmp_path, f"sqlite:///{tmp_path}/governor.db")
    first.close()
    second = RunningGateway(tmp_path, f"sqlite:///{tmp_path}/governor.db")
    second.close()
    assert second.gateway == first.gateway


# -- addresses -------------------------------------------------------------------------------------------


def test_an_address_keeps_project_name_and_server_whatever_they_are_made_of() -> None:
    given = base_address("http://h:1/k", "https://proxy.example:8443/llm", project="a/b ü", name="x?#%")
    route = parse_target(given.removeprefix("http://h:1") + "/v1/messages", "k")
    assert isinstance(route, Route)
    assert (route.project, route.name, route.path) == ("a/b ü", "x?#%", "/llm/v1/messages")
    assert route.upstream.authority == "proxy.example:8443"


@pytest.mark.parametrize(("pool", "priority"), [(None, 1), ("a!2", 0), ("a!2", -3), ("mine", 7)])
def test_an_address_keeps_pool_and_priority(pool: str | None, priority: int) -> None:
    given = base_address("/k", "https://h", project="a", name="b", pool=pool, priority=priority)
    route = parse_target(f"{given}/v1/messages", "k")
    assert isinstance(route, Route)
    assert (route.pool, route.priority) == (pool or "h", priority)


def test_an_address_that_leads_through_the_gateway_gets_the_new_name_and_no_second_way() -> None:
    once = base_address("http://h:1/k", "https://api.openai.com/v1", project="a", name="b")
    twice = base_address("http://h:1/k", once, project="c", name="d")
    assert twice == "http://h:1/k/+/c/d/https/api.openai.com/v1"


@pytest.mark.parametrize(
    "base", ["api.openai.com", "ftp://x/", "https://", "https://user@host", "http://h:x"]
)
def test_what_is_not_a_base_address_is_an_error_that_says_so(base: str) -> None:
    with pytest.raises(UsageError):
        base_address("http://h:1/k", base, project="a", name="b")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/messages",
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/responses/compact",
        "/v1/embeddings",
        "/v1/images/generations",
        "/v1/audio/transcriptions",
        "/v1beta/models/gemini-2.5-pro:generateContent",
        "/v1beta/interactions",
        "/proxy/v1/messages",
        "/v1beta/openai/chat/completions",
        "/inference/chat/completions",
        "/v1/account/gate/anthropic/v1/messages",
        "/openai/deployments/mine/chat/completions?api-version=1",
    ],
)
def test_calls_that_a_model_answers_are_counted_whatever_stands_before_their_name(path: str) -> None:
    assert is_model_call("POST", path)
    assert not is_model_call("GET", path)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/models",
        "/v1/messages/count_tokens",
        "/v1/messages/batches",
        "/v1beta/models/m:countTokens",
        "/v1beta/models/m:batchGenerateContent",
        "/v1/files",
        "/v1/batches",
        "/v1/responses/r1/cancel",
        "/v1/responses/input_tokens",
        "/v1/threads/t1/messages",
        "/",
    ],
)
def test_requests_that_no_model_answers_are_not_counted(path: str) -> None:
    assert not is_model_call("POST", path)


def test_a_login_without_a_key_is_not_led_through_the_gateway() -> None:
    env = {"CLAUDE_CODE_OAUTH_TOKEN": "t", "HOME": "/home/me", "OPENAI_API_KEY": "k"}
    assert set(gateway_variables(env, "http://h:1/k", project="a", name="b")) == {"OPENAI_BASE_URL"}
