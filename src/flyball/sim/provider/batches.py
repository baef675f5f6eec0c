"""Message batches of the fake provider: each look takes them one step further, so clients must look again."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flyball.sim.provider.dialect import ANSWER, ProviderReply

_ONE = re.compile(r"/v1/messages/batches(?:/([\w-]+))?(/results|/cancel)?")
_LOOKS = 2
"""A batch has ended after this many looks."""


@dataclass(slots=True)
class _Batch:
    id: str
    requests: list[Mapping[str, Any]]
    looks: int = 0
    cancelled: bool = False

    @property
    def ended(self) -> bool:
        return self.cancelled or self.looks >= _LOOKS

    def to_json(self) -> Mapping[str, object]:
        count, done = len(self.requests), self.ended
        kinds = {"succeeded": count * (done and not self.cancelled), "canceled": count * self.cancelled}
        return {
            "id": self.id,
            "type": "message_batch",
            "processing_status": "ended" if done else "in_progress",
            "request_counts": {"processing": 0 if done else count, "errored": 0, "expired": 0, **kinds},
            "created_at": "2026-01-01T00:00:00Z",
        }

    def results(self) -> ProviderReply:
        lines = []
        for request in self.requests:
            result: Mapping[str, object] = {"type": "canceled"}
            if not self.cancelled:
                said = f"{ANSWER} {request['params']['messages'][0]['content']}"
                message = {"content": [{"type": "text", "text": said}], "usage": {"output_tokens": 2}}
                result = {"type": "succeeded", "message": message}
            lines.append(json.dumps({"custom_id": request["custom_id"], "result": result}).encode() + b"\n")
        return ProviderReply(200, {}, {"content-type": "application/x-jsonl"}, events=lines)


@dataclass(slots=True)
class FakeBatches:
    keys: set[str] = field(default_factory=set)
    """Every key that a request carried, for tests."""
    _batches: dict[str, _Batch] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(
        self, method: str, path: str, body: Mapping[str, Any], headers: Mapping[str, str]
    ) -> ProviderReply | None:
        """None where the path is about something else."""
        found = _ONE.fullmatch(path.partition("?")[0])
        if found is None:
            return None
        with self._lock:
            self.keys.add(headers.get("x-api-key", ""))
            if not headers.get("x-api-key"):
                return _error(401, "authentication_error", "x-api-key header is required")
            return self._reply(method, found[1], found[2] or "", body)

    def _reply(self, method: str, name: str | None, rest: str, body: Mapping[str, Any]) -> ProviderReply:
        if name is None:
            if method == "POST":
                return self._create(body)
            listed = [batch.to_json() for batch in self._batches.values()]
            return ProviderReply(200, {"data": listed, "has_more": False})
        batch = self._batches.get(name)
        if batch is None:
            return _error(404, "not_found_error", f"no batch {name}")
        if rest == "/results":
            return batch.results() if batch.ended else _error(400, "invalid_request_error", "not ended")
        if rest == "/cancel":
            batch.cancelled = True
        else:
            batch.looks += 1
        return ProviderReply(200, batch.to_json())

    def _create(self, body: Mapping[str, Any]) -> ProviderReply:
        requests = body.get("requests")
        if not isinstance(requests, list) or not requests:
            return _error(400, "invalid_request_error", "requests: at least one is needed")
        batch = _Batch(f"msgbatch_{len(self._batches) + 1}", requests)
        self._batches[batch.id] = batch
        return ProviderReply(200, batch.to_json())


def _error(status: int, kind: str, words: str) -> ProviderReply:
    return ProviderReply(status, {"type": "error", "error": {"type": kind, "message": words}})
