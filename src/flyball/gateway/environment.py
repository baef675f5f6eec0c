"""Which variables lead a program's model calls through the gateway, and to which servers.

A call with a key is led through the gateway. One with a subscription's login is not: its traffic must not go
anywhere but to its provider, so a vendor's variable is set only where the environment has a key for it.

For a program that is not known these variables are all there is. Agents that are known have settings of their
own that decide where they call: ``agent_route.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flyball.gateway.address import base_address
from flyball.gateway.no_proxy import spare_loopback


@dataclass(frozen=True, slots=True)
class Vendor:
    """How one vendor's programs are told where to call."""

    name: str
    variable: str
    base: str
    """Where its programs call if they are not told."""
    keys: tuple[str, ...]
    """Variables with a key; a login is in none of them."""


VENDORS = (
    Vendor(
        "anthropic",
        "ANTHROPIC_BASE_URL",
        "https://api.anthropic.com",
        ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    ),
    Vendor("openai", "OPENAI_BASE_URL", "https://api.openai.com/v1", ("OPENAI_API_KEY",)),
    Vendor(
        "google",
        "GOOGLE_GEMINI_BASE_URL",
        "https://generativelanguage.googleapis.com",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    ),
)


def has_key(vendor: Vendor, environment: Mapping[str, str]) -> bool:
    return any(environment.get(key) for key in vendor.keys)


def gateway_variables(
    environment: Mapping[str, str],
    gateway: str,
    *,
    project: str,
    name: str,
    pool: str | None = None,
    priority: int = 0,
) -> dict[str, str]:
    """What to add to an environment so that its calls pass the gateway at this address.

    >>> gateway_variables({"OPENAI_API_KEY": "k"}, "http://127.0.0.1:1/t", project="blog", name="t-1")
    {'OPENAI_BASE_URL': 'http://127.0.0.1:1/t/+/blog/t-1/https/api.openai.com/v1'}
    """
    led = {
        vendor.variable: base_address(
            gateway,
            environment.get(vendor.variable) or vendor.base,
            project=project,
            name=name,
            pool=pool,
            priority=priority,
        )
        for vendor in VENDORS
        if has_key(vendor, environment)
    }
    return {**led, **spare_loopback(environment)}
