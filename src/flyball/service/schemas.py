"""What goes over the wire beyond the status itself: small msgspec structs, and the settings of a pool.

The body of a change has the names and bounds of the table of settings, as Python and the command line have.
It is read strictly: ``"3"`` is not a number, an unknown name is refused with the nearest one.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar, cast

import msgspec

from flyball.core.pool.setting_table import SETTINGS, Setting
from flyball.core.pool.settings import NAME_LIMIT, PoolChanges, check_name
from flyball.core.suggestions import did_you_mean, nearest
from flyball.errors import UsageError
from flyball.governor.status import PoolStatus
from flyball.service.problems import ProblemError
from flyball.service.timeline import FactView
from flyball.stores.snapshot import PoolSnapshot

ENCODED_SLASH = "\x1f"
"""Stands for a slash inside a name while a path is taken apart (middleware.py); no name contains it."""


def _type_with_bounds(setting: Setting) -> Any:
    """The type of a setting for the OpenAPI document."""
    if setting.choices:
        return Literal[setting.choices]
    bounds = {"gt": setting.above, "ge": setting.at_least, "le": setting.at_most}
    given: dict[str, Any] = {name: bound for name, bound in bounds.items() if bound is not None}
    # An entry may also be 0, which removes it.
    return Annotated[setting.type, msgspec.Meta(**given)] if given and not setting.named_by else setting.type


PoolSettingsBody = msgspec.defstruct(
    "PoolSettingsBody",
    [
        (name, _type_with_bounds(setting) | msgspec.UnsetType, msgspec.UNSET)
        for name, setting in SETTINGS.items()
    ],
    forbid_unknown_fields=True,
    kw_only=True,
    module=__name__,
    namespace={"__doc__": "The settings to change; what is not named stays as it is."},
)


class PoolBrief(msgspec.Struct, frozen=True, kw_only=True):
    """A pool in a few words."""

    name: str
    cap: int
    in_use: int
    free: int
    waiting: int
    breaker: str
    named: PoolChanges
    """The settings that a person named."""
    settings: dict[str, Any]
    """Every setting in force."""


class PoolList(msgspec.Struct, frozen=True):
    """All pools with any state."""

    pools: list[PoolBrief]


class PoolRecord(PoolBrief, frozen=True, kw_only=True):
    """A pool: its settings, and how it stands."""

    status: PoolStatus
    notes: list[str] = []
    """What a person should know about a change that was just made."""


class FactList(msgspec.Struct, frozen=True):
    """What happened, newest first."""

    facts: list[FactView]


class Health(msgspec.Struct, frozen=True):
    """The server is there."""

    status: str


class Whoami(msgspec.Struct, frozen=True):
    """What this request was allowed to do."""

    name: str
    """Of the token; empty where none was sent."""
    scope: str
    token_needed: bool
    version: str
    """Of flyball."""


Brief = TypeVar("Brief", bound=PoolBrief)


def brief(kind: type[Brief], pool: PoolStatus, snapshot: PoolSnapshot, **more: Any) -> Brief:
    """What a view of this kind shows of a pool's status, with its settings."""
    shown = {name: getattr(pool, name) for name in kind.__struct_fields__ if hasattr(pool, name)}
    return kind(**shown, named=snapshot.named, settings=msgspec.to_builtins(snapshot.settings), **more)


# -- what clients send ------------------------------------------------------------------------------


def name_in_path(what: str, segment: str) -> str:
    """A name from a path, checked as everywhere; a slash in it was written ``%2F``."""
    if segment in (".", ".."):
        # Many clients take these out of a path before they send it, however they are written.
        raise UsageError(
            f"{what} must not be {segment!r}, which stands for a folder in a path; name it otherwise"
        )
    return check_name(what, segment.replace(ENCODED_SLASH, "/"))


def pool_changes(body: bytes) -> PoolChanges:
    """The settings that a body names."""
    try:
        given = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProblemError(400, "malformed", f"the body is not JSON: {error}") from error
    if not isinstance(given, dict):
        raise ProblemError(400, "malformed", 'the body must be an object, such as {"cap": 12}')
    for name in given:
        if name not in SETTINGS:
            raise _unknown(name)
    if not given:
        raise UsageError('nothing to set; for example: {"cap": 12}')
    _check_types(given)
    return cast(PoolChanges, given)


def _unknown(name: str) -> ProblemError:
    close = nearest(name, SETTINGS, at_most=1)
    shown = name if len(name) <= NAME_LIMIT else f"{name[:NAME_LIMIT]}..."
    hint = did_you_mean(name, SETTINGS) or f"known: {', '.join(sorted(SETTINGS))}"
    return ProblemError(
        400,
        "unknown-setting",
        f"unknown pool setting {shown!r}; {hint}",
        setting=shown,
        nearest=close[0] if close else None,
    )


def _check_types(given: dict[str, Any]) -> None:
    for name, value in given.items():
        try:
            setting = SETTINGS[name]
            msgspec.convert(value, setting.type)
            for entry in value if setting.named_by else ():
                check_name(setting.named_by or "", entry)
        except (msgspec.ValidationError, UsageError) as error:
            words = str(error)[:1].lower() + str(error)[1:]
            raise ProblemError(400, "bad-setting", f"{name}: {words}", setting=name) from error
