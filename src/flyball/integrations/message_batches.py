"""Prompts that need no repository, through the provider's message-batch API: half the price, within a day.

A batch spends a key's money per token, outside every window and every pool. So it is a road of its own: it
has a key with a name of its own (``FLYBALL_BATCH_API_KEY``), never the one that happens to be around, and
nothing in flyball takes it but a person who says yes.

    prompts -> submit -> in_progress ... -> ended -> results, one line per prompt, in any order
"""

from __future__ import annotations

import http.client
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from flyball.errors import AgentError, UsageError

KEY_VARIABLE = "FLYBALL_BATCH_API_KEY"
URL_VARIABLE = "FLYBALL_BATCH_URL"
URL = "https://api.anthropic.com"
AMBIENT_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
MAX_TOKENS = 4096
PROMPTS_LIMIT = 10_000
_VERSION = "2023-06-01"
_PATH = "/v1/messages/batches"
_TIMEOUT_S = 60.0
_CHARS_PER_TOKEN = 4
_ID_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    id: str
    text: str
    system: str = ""
    max_tokens: int = MAX_TOKENS

    def params(self, model: str) -> dict[str, Any]:
        said = {"role": "user", "content": self.text}
        plain = {"model": model, "max_tokens": self.max_tokens, "messages": [said]}
        return {**plain, "system": self.system} if self.system else plain


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageBatch:
    """One batch as the provider tells it."""

    id: str
    status: str
    """in_progress, canceling or ended."""
    counts: Mapping[str, int]
    created_at: str = ""

    @property
    def ended(self) -> bool:
        return self.status == "ended"


def read_key(environ: Mapping[str, str]) -> str:
    """The key that was made for this; UsageError where there is none, or only one of another use."""
    key = environ.get(KEY_VARIABLE, "").strip()
    if not key:
        raise UsageError(
            f"a batch is paid per token: set {KEY_VARIABLE} to a key made for it "
            f"({' and '.join(AMBIENT_KEYS)} are never used)"
        )
    if borrowed := next((name for name in AMBIENT_KEYS if environ.get(name, "").strip() == key), None):
        raise UsageError(
            f"{KEY_VARIABLE} is the key of {borrowed}; make one of its own, to tell its spend apart"
        )
    return key


def prompts_in(lines: Iterable[str], *, max_tokens: int = MAX_TOKENS) -> list[Prompt]:
    """One prompt per line: an object with ``prompt``, and if you like ``id``, ``system``, ``max_tokens``."""
    found: list[Prompt] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            found.append(_prompt(line, number, max_tokens))
    if not found:
        raise UsageError('there is no prompt in it; write one JSON object per line: {"prompt": "..."}')
    if len(found) > PROMPTS_LIMIT:
        raise UsageError(f"{len(found)} prompts are more than a batch may have ({PROMPTS_LIMIT}); split it")
    name, times = Counter(prompt.id for prompt in found).most_common(1)[0]
    if times > 1:
        raise UsageError(f"the id {name!r} is there {times} times; results are told apart by it")
    return found


def _prompt(line: str, number: int, max_tokens: int) -> Prompt:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise UsageError(f"line {number} is not JSON: {error}") from error
    if not isinstance(record, dict) or not isinstance(record.get("prompt"), str) or not record["prompt"]:
        raise UsageError(f'line {number} has no "prompt" that is text')
    unknown = record.keys() - {"id", "prompt", "system", "max_tokens"}
    if unknown:
        raise UsageError(f"line {number} has {min(unknown)!r}; there are id, prompt, system, max_tokens")
    name, system = str(record.get("id", f"prompt-{number}")), record.get("system", "")
    if not 1 <= len(name) <= 64 or not _ID_CHARS.issuperset(name):
        raise UsageError(f"line {number}: the id {name!r} must be up to 64 letters, digits, - and _")
    most = record.get("max_tokens", max_tokens)
    if not isinstance(system, str) or not isinstance(most, int) or isinstance(most, bool) or most < 1:
        raise UsageError(f"line {number}: system must be text, and max_tokens a whole number above 0")
    return Prompt(id=name, text=record["prompt"], system=system, max_tokens=most)


def tokens_estimated(prompts: Sequence[Prompt]) -> tuple[int, int]:
    """What goes in, roughly, and what comes out at most."""
    sent = sum(len(prompt.text) + len(prompt.system) for prompt in prompts) // _CHARS_PER_TOKEN
    return sent, sum(prompt.max_tokens for prompt in prompts)


class Batches:
    """The provider's batches under one key."""

    def __init__(self, key: str, url: str = URL) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{URL_VARIABLE} must be an address such as {URL}, not {url!r}")
        self._key, self._parts = key, parts

    def submit(self, prompts: Sequence[Prompt], *, model: str) -> MessageBatch:
        requests = [{"custom_id": prompt.id, "params": prompt.params(model)} for prompt in prompts]
        return _batch(self._ask("POST", "", {"requests": requests}))

    def look(self, batch_id: str) -> MessageBatch:
        return _batch(self._ask("GET", f"/{_check_id(batch_id)}"))

    def cancel(self, batch_id: str) -> MessageBatch:
        return _batch(self._ask("POST", f"/{_check_id(batch_id)}/cancel"))

    def all(self) -> list[MessageBatch]:
        return [_batch(each) for each in self._ask("GET", "?limit=100").get("data", [])]

    def results(self, batch_id: str) -> Iterator[dict[str, Any]]:
        """One record per prompt, as they come."""
        with _OpenAnswer(self, "GET", f"/{_check_id(batch_id)}/results") as answer:
            for line in answer:
                if line.strip():
                    yield json.loads(line)

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        with _OpenAnswer(self, method, path, body) as answer:
            try:
                found = json.loads(answer.read())
            except ValueError as error:
                raise AgentError(
                    f"{self._parts.hostname} answered with something that is not JSON"
                ) from error
        if not isinstance(found, dict):
            raise AgentError(f"{self._parts.hostname} answered with something that is not a JSON object")
        return found

    def connect(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        return kind(str(self._parts.hostname), self._parts.port, timeout=_TIMEOUT_S)

    def headers(self) -> dict[str, str]:
        return {"x-api-key": self._key, "anthropic-version": _VERSION, "content-type": "application/json"}

    def path(self, rest: str) -> str:
        return f"{self._parts.path.rstrip('/')}{_PATH}{rest}"


class _OpenAnswer:
    """One answer while it is read; what the provider refuses is said in its words."""

    def __init__(
        self, batches: Batches, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> None:
        self._batches, self._method, self._path = batches, method, path
        self._body = json.dumps(body).encode() if body is not None else None
        self._connection = batches.connect()

    def __enter__(self) -> http.client.HTTPResponse:
        batches, connection = self._batches, self._connection
        try:
            connection.request(self._method, batches.path(self._path), self._body, batches.headers())
            answer = connection.getresponse()
            if answer.status >= 300:
                raise AgentError(f"the provider refused it ({answer.status}): {_words(answer.read())}")
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise AgentError(f"cannot reach {connection.host}: {error}; nothing was sent twice") from error
        except AgentError:
            connection.close()
            raise
        return answer

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def _words(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode(errors="replace") or "it does not say why"


def _check_id(batch_id: str) -> str:
    if not batch_id or not _ID_CHARS.issuperset(batch_id):
        raise UsageError(f"{batch_id!r} is not the id of a batch; flyball batch list shows them")
    return batch_id


def _batch(record: Mapping[str, Any]) -> MessageBatch:
    try:
        counts = {str(name): int(count) for name, count in record.get("request_counts", {}).items()}
        return MessageBatch(
            id=str(record["id"]),
            status=str(record["processing_status"]),
            counts=counts,
            created_at=str(record.get("created_at") or ""),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise AgentError(f"the provider's answer is not a batch ({error})") from error
