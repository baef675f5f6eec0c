"""A program whose environment names a proxy would send its calls to the gateway there, with its key."""

from __future__ import annotations

from collections.abc import Mapping

from flyball.host.loopback_port import HOST

_NAMES = ("http_proxy", "https_proxy", "all_proxy")


def spare_loopback(environment: Mapping[str, str]) -> dict[str, str]:
    """What to add to a program's environment so that it calls the gateway itself.

    >>> spare_loopback({"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": "intern.example"})["NO_PROXY"]
    'intern.example,127.0.0.1'
    """
    if not any(environment.get(name) or environment.get(name.upper()) for name in _NAMES):
        return {}
    added = {}
    for name, other in (("no_proxy", "NO_PROXY"), ("NO_PROXY", "no_proxy")):
        spared = environment.get(name) or environment.get(other) or ""
        if spared.strip() != "*" and HOST not in (each.strip() for each in spared.split(",")):
            added[name] = f"{spared},{HOST}" if spared else HOST
    return added
