"""A driver's errors in our words, with the way out. Neither carries a password."""

from __future__ import annotations

from dataclasses import dataclass

from flyball.errors import StoreBusyError, StoreError, StoreFullError, StoreReadOnlyError


class NotSentError(Exception):
    """There was no connection, so nothing was sent. ``error`` is the driver's."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def maybe_done(error: Exception) -> bool:
    """Was it perhaps done although it failed? Not where it was not sent, or the server refused it."""
    return type(error).__name__ in ("TimeoutError", "ConnectionError")


def as_store_error(error: Exception, server: str, answer_s: float, space: str) -> StoreError:
    """A driver's error as ours, with the way out. Neither carries a password."""
    kind, words = type(error).__name__, str(error)
    said = f"{getattr(error, 'code', '')} {words}"
    if kind in ("TimeoutError", "ReadTimeout"):
        secure = server.startswith(("rediss", "valkeys"))
        maybe = "does it speak no TLS (then redis://), or is it paused" if secure else "is it paused"
        return StoreBusyError(f"{server} did not answer within {answer_s:g} s; {maybe}, or the network down?")
    for diagnosis in _DIAGNOSES:
        if kind in diagnosis.kinds or any(sign in said for sign in diagnosis.signs):
            return diagnosis.error(f"{server} {diagnosis.words.format(reason=_reason(words), space=space)}")
    return StoreError(f"{server}: {words or kind}")


def _reason(words: str) -> str:
    """What went wrong, without the address that the driver puts in front of it."""
    return words.rpartition("connecting to ")[2].strip() or words


@dataclass(frozen=True, slots=True)
class _Diagnosis:
    """How a driver says it, by class or in words (a script's error has only words), and how we do."""

    kinds: tuple[str, ...]
    signs: tuple[str, ...]
    words: str
    error: type[StoreError] = StoreError


_DIAGNOSES = (
    _Diagnosis(
        ("AuthenticationError", "AuthenticationWrongNumberOfArgsError"),
        ("WRONGPASS", "NOAUTH", "invalid username-password", "Authentication required"),
        "refuses the user or password; set them in FLYBALL_URL (redis://user:password@host)",
    ),
    _Diagnosis(
        ("NoPermissionError",),
        ("NOPERM", "no permissions", "can't publish"),
        "forbids a command ({reason}); flyball's user needs these rights: "
        "~{space}:* &{space}:* +@all -@admin -@dangerous +info",
    ),
    _Diagnosis(
        (),
        ("SSL", "CERTIFICATE"),
        "gives no secure connection ({reason}); rediss:// needs a server that speaks TLS, ?ssl_ca_certs= "
        "names its certificate authority",
    ),
    _Diagnosis(("OutOfMemoryError",), ("OOM",), "has no memory left; raise its maxmemory", StoreFullError),
    _Diagnosis(
        (), ("MISCONF",), "cannot save to its disk and takes no writes; free its disk", StoreFullError
    ),
    _Diagnosis(
        ("ReadOnlyError",),
        ("READONLY", "read only replica"),
        "only follows another server; name the primary in FLYBALL_URL",
        StoreReadOnlyError,
    ),
    _Diagnosis(
        ("BusyLoadingError",),
        ("LOADING",),
        "is still loading its data; try again in a moment",
        StoreBusyError,
    ),
    _Diagnosis(("MovedError",), ("MOVED",), "is part of a cluster; write redis+cluster:// in FLYBALL_URL"),
    _Diagnosis(
        ("ClusterDownError",), ("CLUSTERDOWN",), "is a cluster that is not whole ({reason}); mend it first"
    ),
    _Diagnosis(
        ("ConnectionError", "RedisClusterException", "MaxConnectionsError"),
        (),
        "cannot be reached ({reason}); is it running? FLYBALL_URL names it",
    ),
)
