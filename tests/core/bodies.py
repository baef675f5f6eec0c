"""Error bodies as the providers write them; the shapes are those of fixtures/agents/fake_provider.py."""

from __future__ import annotations

from typing import Any

DAY_ID = "GenerateRequestsPerDayPerProjectPerModel-FreeTier"
MINUTE_ID = "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"

Body = dict[str, Any]


def anthropic(kind: str, message: str = "", **more: object) -> Body:
    return {"type": "error", "error": {"type": kind, "message": message, **more}, "request_id": "req_429"}


def openai(kind: str | None, code: str | None, message: str = "", **more: object) -> Body:
    return {"error": {"message": message, "type": kind, "param": None, "code": code, **more}}


def gemini(
    code: int, status: str, message: str = "", *, quota: str = "", delay: str = "", reason: str = ""
) -> Body:
    rpc = "type.googleapis.com/google.rpc."
    metric = "generativelanguage.googleapis.com/generate_content_free_tier_requests"
    details: list[Body] = [{"@type": f"{rpc}Help", "links": [{"url": "https://ai.google.dev/rate-limits"}]}]
    if quota:
        violation = {"quotaMetric": metric, "quotaId": quota, "quotaDimensions": {"model": "m"}}
        details.append({"@type": f"{rpc}QuotaFailure", "violations": [violation]})
    if delay:
        details.append({"@type": f"{rpc}RetryInfo", "retryDelay": delay})
    if reason:
        details.append({"@type": f"{rpc}ErrorInfo", "reason": reason, "domain": "googleapis.com"})
    return {"error": {"code": code, "message": message, "status": status, "details": details}}
