"""The locale that Python gives itself, and with it every command that it starts.

Under the C locale, as in cron or a bare container, Python puts ``LC_CTYPE=C.UTF-8`` into its own environment
(PEP 538). A command under flyball is to get the environment that flyball got.
"""

from __future__ import annotations

import os

_NAME = "LC_CTYPE"
_COERCED = frozenset({"C.UTF-8", "C.utf8", "UTF-8"})
_LEGACY = frozenset({"", "C", "POSIX"})


def forget_coerced_locale() -> None:
    """Take it out of the environment again. This process keeps the locale."""
    named = os.environ.get
    could_be = named(_NAME) in _COERCED and not named("LC_ALL") and named("LANG", "") in _LEGACY
    if could_be and not _was_given():
        del os.environ[_NAME]


def _was_given() -> bool:
    """By the process that started this one. True where that cannot be seen."""
    try:
        with open("/proc/self/environ", "rb") as file:
            return any(entry.startswith(f"{_NAME}=".encode()) for entry in file.read().split(b"\0"))
    except OSError:
        pass
    try:
        import psutil
    except ImportError:
        return True
    return _NAME in psutil.Process().environ()
