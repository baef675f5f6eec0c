"""A driver's error as ours, with the way out. Neither carries a password.

The server says what is wrong with a code of five characters (SQLSTATE); where no connection came about there
often are only words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import psycopg

from flyball.errors import (
    FlyballError,
    StoreBusyError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnreadableError,
    UsageError,
)
from flyball.stores.postgres.address import Address

AGAIN = ("40001", "40P01")
"""Nothing was done, and it may be done at once: two steps stood in each other's way."""
LONG_WAY = "FB001"
"""Nothing was done: it has to go the long way."""
VANISHED = ("42P01", "3F000", "42883")
"""A table, the schema or a function of ours is missing."""


class NoAnswerError(psycopg.OperationalError):
    """The server did not answer in time. Whether it did what it was told is not known."""


@dataclass(frozen=True, slots=True)
class _Diagnosis:
    codes: tuple[str, ...]
    """The beginning of a code is enough."""
    signs: tuple[str, ...]
    """In words, as patterns."""
    words: str
    error: type[StoreError] = StoreError


_DIAGNOSES = (
    _Diagnosis(
        (),
        ("no pg_hba.conf entry", "pg_hba.conf rejects"),
        "refuses this user or database ({reason}); its pg_hba.conf lists what it lets in"
        ", FLYBALL_URL names ours",
    ),
    _Diagnosis(
        ("28",),
        ("authentication failed", "no password supplied", 'role ".*" does not exist'),
        "refuses the user or password ({reason}); set them in FLYBALL_URL "
        "(postgresql://user:password@host/database)",
    ),
    _Diagnosis(
        ("3D000",),
        ('database ".*" does not exist',),
        "has no such database ({reason}); create it, or name another in FLYBALL_URL",
    ),
    _Diagnosis(
        (),
        ("SSL", "certificate", "TLS"),
        "gives no secure connection ({reason}); sslmode= in FLYBALL_URL says what is demanded, sslrootcert= "
        "names its certificate authority",
    ),
    _Diagnosis(
        ("25006",),
        ("read-only", "session is not read-write", "hot standby"),
        "only follows another server, or takes no writes; name the primary in FLYBALL_URL (several hosts and "
        "target_session_attrs=read-write find it)",
        StoreReadOnlyError,
    ),
    _Diagnosis(
        ("42501",),
        (),
        "forbids it ({reason}); flyball's user needs CREATE on the database, or a schema {space} of its own "
        "(CREATE SCHEMA {space} AUTHORIZATION user)",
    ),
    _Diagnosis(("53100",), (), "has no disk space left ({reason}); free some", StoreFullError),
    _Diagnosis(("53200",), (), "has no memory left ({reason})", StoreFullError),
    _Diagnosis(
        ("53300",),
        ("too many clients", "too many connections", "connection slots"),
        "has no connection left ({reason}); raise its max_connections, or lower connections= in FLYBALL_URL",
        StoreBusyError,
    ),
    _Diagnosis(
        ("57P03", "57P01", "57P02"),
        ("starting up", "shutting down", "recovery mode"),
        "is starting or stopping ({reason}); try again in a moment",
        StoreBusyError,
    ),
    _Diagnosis(
        ("55P03", "57014"),
        (),
        "did not get to it within {patience_s:g} s ({reason}); another step holds the pool, or the server "
        "is overloaded. socket_timeout= in FLYBALL_URL allows more",
        StoreBusyError,
    ),
    _Diagnosis(
        ("25P03",),
        (),
        "gave up on a step that stood still for {patience_s:g} s, and undid it; was this process stopped?",
        StoreBusyError,
    ),
    _Diagnosis(AGAIN, (), "changes all the time ({reason}); try again", StoreBusyError),
    _Diagnosis(
        VANISHED,
        (),
        "has lost flyball's schema {space} ({reason}); the next call makes it anew",
    ),
    _Diagnosis(
        ("42P07", "42723", "42710"),
        (),
        "has tables of another program in the schema {space} ({reason}); name another with ?space= in "
        "FLYBALL_URL",
        StoreUnreadableError,
    ),
)


def as_store_error(error: Exception, address: Address) -> FlyballError:
    code, reason = getattr(error, "sqlstate", None) or "", _reason(error, address)
    place = {"reason": reason, "space": address.space, "patience_s": address.patience_s}
    if isinstance(error, (NoAnswerError, psycopg.errors.ConnectionTimeout)):
        return StoreBusyError(
            f"{address.words} did not answer within {address.answer_s:g} s; is it paused, or the network "
            "down?"
        )
    if not code and (isinstance(error, psycopg.ProgrammingError) or re.search("invalid .* value", reason)):
        return UsageError(f"cannot use FLYBALL_URL for {address.words}: {reason}")
    for diagnosis in _DIAGNOSES:
        known = code.startswith(diagnosis.codes) if code and diagnosis.codes else False
        if known or (not code and any(re.search(sign, str(error)) for sign in diagnosis.signs)):
            return diagnosis.error(f"{address.words} {diagnosis.words.format(**place)}")
    if code and not code.startswith("08"):
        return StoreError(f"{address.words}: {reason} ({code})")
    return StoreError(f"{address.words} cannot be reached ({reason}); is it running? FLYBALL_URL names it")


_PREFIX = re.compile(
    r"^(connection (failed|is bad): )?(connection to server (at|on socket) .*? failed: )?"
    r"((FATAL|ERROR|PANIC): +)?"
)


def _reason(error: Exception, address: Address) -> str:
    """What went wrong in one line, without the address that the driver puts in front of it."""
    if "percent-encoded" in str(error):
        # The driver would quote the part that it cannot read, and that may be the password.
        return "it has a % that does not begin a %XX; write it as %25"
    lines = [line.strip(" \t-") for line in str(error).splitlines()]
    words = next((line for line in lines if line), type(error).__name__)
    words = _PREFIX.sub("", words).strip() or type(error).__name__
    for secret in address.secrets:
        words = words.replace(secret, "***")
    return words


def maybe_done(error: BaseException) -> bool:
    """Was it perhaps done although it failed? Where the server itself said that it failed, it was not."""
    code = getattr(error, "sqlstate", None) or ""
    return not code or code.startswith(("08", "57P"))
