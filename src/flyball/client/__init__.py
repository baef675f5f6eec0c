"""A thin client for ``flyball serve``: the same ``slot()``, over HTTP.

    from flyball.client import Client

    with Client("http://governor:8790", token="flyball_...") as flyball:
        with flyball.slot("anthropic", project="blog") as lease:
            ...  # call the model
            lease.report(200)

    retry_policy.py  how to try again, changed without a release
    requests.py      the order of things, written once for threads and event loops
    lease.py         slots that are held, and the ``with`` block around them
    renewer.py       renewals, on a thread of their own
    client.py        the two clients

Needs the extra ``[http]``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["AsyncClient", "AsyncRemoteLease", "Client", "Policy", "RemoteLease"]

if TYPE_CHECKING:
    from flyball.client.client import AsyncClient, Client
    from flyball.client.lease import AsyncRemoteLease, RemoteLease
    from flyball.client.retry_policy import Policy
else:
    _WHERE = {
        "AsyncClient": "client",
        "AsyncRemoteLease": "lease",
        "Client": "client",
        "Policy": "retry_policy",
        "RemoteLease": "lease",
    }

    def __getattr__(name):
        # The server reads the policy too, and needs no HTTP client for that.
        if name not in _WHERE:
            raise AttributeError(f"module 'flyball.client' has no attribute {name!r}")
        from importlib import import_module

        try:
            return getattr(import_module(f"flyball.client.{_WHERE[name]}"), name)
        except ModuleNotFoundError as error:
            if error.name != "httpx2":
                raise
            from flyball.errors import UsageError
            from flyball.host.install_hints import extra_command

            raise UsageError(
                f"a client of flyball serve needs httpx2; install it with: {extra_command('http')}"
            ) from error
