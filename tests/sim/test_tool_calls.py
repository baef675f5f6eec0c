"""What a prompt asks of the fake model's tools, and answers that break off."""

from __future__ import annotations

import http.client
import json
from typing import Any

import pytest

from flyball.sim.provider.capacity import Capacity
from flyball.sim.provider.dialect import ANSWER, Anthropic, Dialect, ProviderReply
from flyball.sim.provider.dialect_gemini import GeminiDialect
from flyball.sim.provider.dialect_openai import ChatCompletions, Responses
from flyball.sim.provider.server import DIALECTS, Provider
from flyball.sim.provider.tool_calls import ToolCall, next_call

PROMPT = "Do it.\nerrand: write a/b.txt = Hello = you\nerrand: run make test\nThank you."
WRITE = {"file_path": "a/b.txt", "content": "Hello = you\n"}
PATCH = "*** Begin Patch\n*** Add File: a/b.txt\n+Hello = you\n*** End Patch\n"
dialects = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: type(dialect).__name__)

Body = dict[str, Any]


def anthropic(*results: str) -> Body:
    answers = [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": id}]} for id in results]
    said = {"role": "user", "content": [{"type": "text", "text": PROMPT}]}
    return {"messages": [said, *answers], "tools": [{"name": "Write"}, {"name": "Bash"}]}


def chat(*results: str) -> Body:
    tools = [{"type": "function", "function": {"name": name}} for name in ("write", "bash")]
    answers = [{"role": "tool", "tool_call_id": id, "content": "ok"} for id in results]
    return {"messages": [{"role": "user", "content": PROMPT}, *answers], "tools": tools}


def responses(*results: str) -> Body:
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": PROMPT}]}
    answers = [{"type": "custom_tool_call_output", "call_id": id, "output": "ok"} for id in results]
    tools = [{"type": "custom", "name": "apply_patch"}, {"type": "function", "name": "exec_command"}]
    return {"input": [said, *answers], "tools": tools}


def gemini(*results: str) -> Body:
    answers = [{"role": "user", "parts": [{"functionResponse": {"id": id}}]} for id in results]
    tools = [{"functionDeclarations": [{"name": "write_file"}, {"name": "run_shell_command"}]}]
    return {"contents": [{"role": "user", "parts": [{"text": PROMPT}]}, *answers], "tools": tools}


@pytest.mark.parametrize(
    ("body", "first", "second"),
    [
        (anthropic, ToolCall("Write", WRITE), {"command": "make test", "description": "Run an errand"}),
        (
            chat,
            ToolCall("write", {"filePath": "a/b.txt", "content": "Hello = you\n"}),
            {"command": "make test"},
        ),
        (responses, ToolCall("apply_patch", PATCH), {"cmd": "make test"}),
        (gemini, ToolCall("write_file", WRITE), {"command": "make test"}),
    ],
)
def test_errands_are_done_one_by_one_in_every_vendors_words(
    body: Any, first: ToolCall, second: object
) -> None:
    assert next_call(body()) == first
    call = next_call(body("1"))
    assert call is not None
    assert call.given == second
    assert next_call(body("1", "2")) is None


def test_a_result_that_comes_twice_is_one_result() -> None:
    assert next_call(gemini("1", "1")) == next_call(gemini("1"))


def test_a_later_prompt_with_errands_counts_afresh_and_one_without_changes_nothing() -> None:
    body = anthropic("1")
    body["messages"].append({"role": "user", "content": "Go on."})
    assert next_call(body) == next_call(anthropic("1"))
    body["messages"].append({"role": "user", "content": "errand: write c = d"})
    assert next_call(body) == ToolCall("Write", {"file_path": "c", "content": "d\n"})


def test_what_no_tool_is_for_is_left_undone() -> None:
    body = anthropic()
    body["tools"] = [{"name": "Bash"}]
    call = next_call(body)
    assert call is not None
    assert call.tool == "Bash"
    assert next_call({**body, "tools": []}) is None


@pytest.mark.parametrize("said", ["an errand: write x = y", "errand: write x", "errand:", "errand: sleep"])
def test_other_words_are_not_an_errand(said: str) -> None:
    assert next_call({"messages": [{"role": "user", "content": said}], "tools": [{"name": "Write"}]}) is None


def test_what_the_model_said_itself_is_not_an_errand() -> None:
    said = {"role": "assistant", "content": "errand: write x = y"}
    assert next_call({"messages": [said], "tools": [{"name": "Write"}]}) is None


# -- in the dialects -------------------------------------------------------------------------------------


def events(reply: ProviderReply) -> list[Any]:
    datas = [part.decode().partition("data: ")[2] for part in reply.parts()]
    return [json.loads(data) for data in datas if not data.startswith("[")]


@pytest.mark.parametrize("stream", [False, True])
def test_anthropic_spells_a_tool_call(stream: bool) -> None:
    reply = Anthropic().answer({**anthropic(), "stream": stream}, number=7)
    body: Any = reply.body
    assert body["stop_reason"] == "tool_use"
    (block,) = body["content"]
    assert (block["type"], block["name"], block["input"]) == ("tool_use", "Write", WRITE)
    if stream:
        started = {each["type"]: each for each in events(reply)}
        assert started["content_block_start"]["content_block"]["input"] == {}
        assert json.loads(started["content_block_delta"]["delta"]["partial_json"]) == WRITE
        assert started["message_delta"]["delta"]["stop_reason"] == "tool_use"


def test_chat_completions_spell_a_tool_call() -> None:
    whole: Any = ChatCompletions().answer(chat(), number=7).body
    (call,) = whole["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "write"
    assert whole["choices"][0]["finish_reason"] == "tool_calls"
    *_, said, last = events(ChatCompletions().answer({**chat(), "stream": True}, number=7))
    assert said["choices"][0]["delta"]["tool_calls"] == [call]
    assert last["choices"][0]["finish_reason"] == "tool_calls"


def test_responses_spell_a_function_and_a_custom_tool() -> None:
    patch: Any = Responses().answer(responses(), number=7).body
    run: Any = Responses().answer({**responses("1"), "stream": True}, number=8)
    (item,) = patch["output"]
    assert (item["type"], item["input"]) == ("custom_tool_call", PATCH)
    kinds = [each["type"].removeprefix("response.") for each in events(run)]
    assert kinds == ["created", "output_item.added", "output_item.done", "completed"]
    done = events(run)[2]["item"]
    assert (done["type"], json.loads(done["arguments"])) == ("function_call", {"cmd": "make test"})


@pytest.mark.parametrize("stream", [False, True])
def test_gemini_spells_a_tool_call(stream: bool) -> None:
    reply = GeminiDialect().answer({**gemini(), "stream": stream}, number=7)
    piece: Any = events(reply)[0] if stream else reply.body
    (part,) = piece["candidates"][0]["content"]["parts"]
    assert part == {"functionCall": {"name": "write_file", "args": WRITE}}


# -- answers that break off ------------------------------------------------------------------------------


@dialects
@pytest.mark.parametrize("stream", [False, True])
def test_a_cut_answer_promises_all_of_it_and_brings_about_half(dialect: Dialect, stream: bool) -> None:
    path = "/v1beta/models/m:streamGenerateContent" if stream else "/v1beta/models/m:generateContent"
    path = path if isinstance(dialect, GeminiDialect) else str(getattr(dialect, "path", "/v1/messages"))
    body = json.dumps({"stream": stream, "max_tokens": 10})
    with Provider(Capacity.parse("1"), script="cut", sleep=lambda _: None) as provider:
        host, _, port = provider.url.removeprefix("http://").partition(":")
        first, second = (_asked(host, int(port), path, body) for _ in range(2))
        assert (provider.tally().accepted, provider.tally().inside) == (2, 0)
    assert first[0] == second[0] == 200
    assert 0 < len(first[1]) < len(second[1])
    assert ANSWER[-1].encode() in second[1]


def _asked(host: str, port: int, path: str, body: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(host, port, timeout=10)
    try:
        connection.request("POST", path, body, {"content-type": "application/json"})
        reply = connection.getresponse()
        try:
            return reply.status, reply.read()
        except http.client.IncompleteRead as cut:
            return reply.status, cut.partial
    finally:
        connection.close()
