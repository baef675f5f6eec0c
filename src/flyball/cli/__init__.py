"""The command line: one file per verb, each with ``SUMMARY``, ``EXAMPLE``, ``add_arguments`` and ``run``.

``main`` imports only the verb that is used, so ``flyball exec`` stays quick.
"""

from __future__ import annotations

from flyball.host.delayed_module import delay_rarely_used

delay_rarely_used()
