"""The reference page of the pool settings, made from their table.

    python -m tests.pool_settings_reference

writes it; a test fails while the page does not say what the code says.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from flyball.cli.ui.pool_settings import value_words
from flyball.core.pool.control.port import TUNING
from flyball.core.pool.control.registry import load_controller
from flyball.core.pool.setting_table import SETTING_GROUPS, Setting, resolve_pool
from flyball.core.pool.settings import CONTROLLERS, PROFILES
from flyball.core.share_lease.timing import BEATS_PER_TTL, timing_for

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "pool-settings.md"

_TOP = """\
# Settings of a pool

`flyball pool set NAME --cap 12` and `governor.set_pool("NAME", cap=12)` change exactly what they name;
`flyball pool show NAME` lists what is in force and where each value comes from. `flyball pool reset NAME
--settings` (`governor.reset_pool("NAME", settings=True)`) goes back to the defaults, `flyball pool remove
NAME` (`governor.remove_pool("NAME")`) forgets a pool that is not in use. This page is made from the code.

Where a profile has another default it is given behind the first. A setting without an option is set from
Python or [over HTTP](service.md). Options take durations as people write them (`500ms`, `90s`, `1h30m`); in
Python they are seconds. If only some controllers use a setting, they are named first.
"""

_TIMES = """
## Times of a share lease

The settings of share leases must be the same for all holders that divide a pool, so they are kept with it.
A process that names one in `governor.share(...)` sets it if no process has, and is refused if it differs.
All times of a share lease follow from the heartbeat:

| | beats |
| --- | --- |
| a renewal every | 1 |
| after one that failed, again after | 1/{retry:g} |
| renewals that do not wait for the beat are apart by at least | 1/{eager:g} |
| a holder that was silent for this long is promised nothing more | 2 |
| counted from the send of the last answered renewal, the holder admits nothing more after | {fence:g} |
| counted from when the store handled it, the slots are free for others after | {ttl:g}, and the grace |
"""


def reference_page() -> str:
    parts = [_TOP]
    for title, settings in SETTING_GROUPS.items():
        parts.append(f"\n## {title[0].upper()}{title[1:]}\n\n")
        parts.append("| option | in Python | may be | default | |\n| --- | --- | --- | --- | --- |\n")
        parts.extend(_row(setting) for setting in settings)
    terms = timing_for(1.0)
    per_beat = {"retry": 1 / terms.retry_s, "eager": 1 / terms.eager_s}
    parts.append(_TIMES.format(**per_beat, fence=terms.fence_s, ttl=BEATS_PER_TTL))
    return "".join(parts)


def _row(setting: Setting) -> str:
    flags = [flag for flag in (setting.flag, *(setting.negation or ())[:1]) if flag is not None]
    users = [name for name in CONTROLLERS if setting.name in load_controller(name).tuned_by]
    only_for = ", ".join(f"`{name}`" for name in users) + ": " if setting.name in TUNING else ""
    cells = [
        ", ".join(f"`{flag}`" for flag in flags),
        f"`{setting.name}`",
        f"by {setting.named_by}: {setting.expected}" if setting.named_by else setting.expected,
        "; ".join(_defaults(setting.name)),
        only_for + setting.help,
    ]
    return f"| {' | '.join(cells)} |\n"


def _defaults(key: str) -> Iterator[str]:
    """The default, and where the default of a profile differs from it."""
    found = {profile: _default_words(key, profile) for profile in PROFILES}
    common = found.pop("mixed")
    yield common
    if key != "profile":
        yield from (f"{profile}: {words}" for profile, words in found.items() if words != common)


def _default_words(key: str, profile: str) -> str:
    value: Any = getattr(resolve_pool({"profile": profile}), key)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value_words(key, value.value if isinstance(value, Enum) else value)


def main() -> None:
    PAGE.write_text(reference_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
