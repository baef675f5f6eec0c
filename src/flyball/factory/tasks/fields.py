"""What the keys of a task mean, wherever they are written: a file's front matter, a block in an issue.

Everything that is wrong with a task is said at once, not one thing per look. An unknown key is wrong too,
with the nearest known one: ``need:`` for ``needs:`` would start a task too early. Keys that begin with ``x-``
are the user's own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from sys import intern

from flyball.core.suggestions import did_you_mean
from flyball.core.tasks.footprint import Footprint, check_footprint
from flyball.core.tasks.task import DEFAULT_PRIORITY, DEFAULT_TYPE, Task, TaskStatus, check_task_id
from flyball.errors import UsageError
from flyball.factory.tasks.front_matter import Value

KEYS = (
    "id",
    "title",
    "status",
    "type",
    "priority",
    "needs",
    "parent",
    "labels",
    "footprint",
    "acceptance",
    "created",
)
PRIORITY_LIMIT = 99
TITLE_LIMIT = 500
_SYNONYMS = {"done": TaskStatus.CLOSED, "todo": TaskStatus.OPEN}
_STATUSES = {status.value: status for status in TaskStatus} | _SYNONYMS


class Fields:
    """Reads the keys one by one and keeps what is wrong in ``wrong``, in words."""

    def __init__(self, values: Mapping[str, Value], *, known: Collection[str] = KEYS) -> None:
        self._values = values
        self.wrong: list[str] = []
        for key in values:
            if key not in known and not key.startswith("x-"):
                meant = did_you_mean(key.casefold(), known) or f"known are {', '.join(known)}"
                self.wrong.append(f"{key!r} is not a key of a task; {meant}")

    def text(self, key: str) -> str | None:
        """One piece of text; None where there is none."""
        value = self._values.get(key)
        if value is None or isinstance(value, str):
            return value.strip() or None if value else None
        self.wrong.append(f"{key} must be one text")
        return None

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of names; one line with commas is a list too."""
        value = self._values.get(key)
        if isinstance(value, str):
            value = list(value.split(","))
        return self._list(key, value)

    def _list(self, key: str, value: Value) -> tuple[str, ...]:
        found: list[str] = []
        for item in value if isinstance(value, list) else [] if value is None else [value]:
            if isinstance(item, str) and item.strip():
                found.append(intern(item.strip()))
            elif item is not None and item != "":
                self.wrong.append(f"{key} must be a list of texts, such as [a, b]")
                return ()
        return tuple(dict.fromkeys(found))

    def id(self) -> str:
        value = self.text("id")
        if value is None:
            self.wrong.append("there is no id; add one, such as 'id: t-1'")
            return ""
        try:
            return check_task_id(value)
        except UsageError as error:
            self.wrong.append(str(error))
            return ""

    def title(self) -> str:
        value = self.text("title") or ""
        if why := title_problem(value):
            self.wrong.append(why)
        return value

    def status(self) -> TaskStatus:
        written = self.text("status")
        if written is None:
            return TaskStatus.OPEN
        word = written.casefold().replace("-", "_").replace(" ", "_")
        if word in _STATUSES:
            return _STATUSES[word]
        meant = did_you_mean(word, _STATUSES)
        self.wrong.append(f"the status {written!r} is unknown; {meant or f'use one of {_STATUS_WORDS}'}")
        return TaskStatus.BLOCKED

    def type(self) -> str:
        return intern((self.text("type") or DEFAULT_TYPE).casefold())

    def priority(self) -> int:
        written = self.text("priority")
        if written is None:
            return DEFAULT_PRIORITY
        number = parse_priority(written)
        if number is None:
            self.wrong.append(
                f"the priority {written!r} is not a whole number from 0 (first) to {PRIORITY_LIMIT}"
            )
            return DEFAULT_PRIORITY
        return number

    def footprint(self) -> Footprint | None:
        value = self._values.get("footprint")
        if value is None:
            return None
        if not isinstance(value, dict) or set(value) - {"write", "read"}:
            self.wrong.append('footprint must be {write: ["src/a*"], read: ["lib/**"]}')
            return None
        sides = [self._list(f"footprint.{side}", value.get(side)) for side in ("write", "read")]
        try:
            return check_footprint(Footprint(*sides))
        except UsageError as error:
            self.wrong.append(f"footprint: {error}")
            return None

    def acceptance(self) -> str:
        """One text; a list becomes one line per item."""
        value = self._values.get("acceptance")
        if isinstance(value, list):
            return "\n".join(f"- {item}" for item in self._list("acceptance", value))
        return self.text("acceptance") or ""

    def created_s(self) -> float | None:
        written = self.text("created")
        if written is None:
            return None
        moment = parse_moment(written)
        if moment is None:
            self.wrong.append(
                f"created is {written!r}; write a time such as 2026-11-01 or 2026-11-01T10:00:00Z"
            )
        return moment

    def task(self, *, body: str, where: str) -> Task:
        """The whole task. Look at ``wrong`` before using it."""
        status = self.status()
        return Task(
            id=self.id(),
            title=self.title(),
            status=status,
            type=self.type(),
            priority=self.priority(),
            needs=self.texts("needs"),
            parent=self.text("parent"),
            labels=self.texts("labels"),
            footprint=self.footprint(),
            acceptance=self.acceptance(),
            body=body,
            created=self.created_s(),
            where=where,
        )

    def words(self) -> str:
        """All that is wrong, in one line."""
        ended = [words if words.endswith("?") else f"{words}." for words in self.wrong]
        return " Also: ".join(ended).removesuffix(".")


_STATUS_WORDS = ", ".join(status.value for status in TaskStatus)


def title_problem(title: str) -> str:
    """Why this cannot be a title; empty if it can."""
    if not title.strip():
        return "there is no title; add one, such as 'title: Add the hello page'"
    if not title.isprintable():
        return "the title must be one line of printable text"
    if len(title) > TITLE_LIMIT:
        return f"the title is {len(title)} characters long; at most {TITLE_LIMIT}, the rest belongs below"
    return ""


def parse_priority(written: str) -> int | None:
    """
    >>> parse_priority("1"), parse_priority("P0"), parse_priority("high")
    (1, 0, None)
    """
    digits = written.strip().removeprefix("P").removeprefix("p")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 4 or int(digits) > PRIORITY_LIMIT:
        return None
    return int(digits)


def parse_moment(written: str) -> float | None:
    """Seconds since 1970 of an ISO date or time; UTC where it names no zone.

    >>> parse_moment("1970-01-02"), parse_moment("1970-01-01T01:00:00+01:00"), parse_moment("soon")
    (86400.0, 0.0, None)
    """
    try:
        moment = datetime.fromisoformat(written)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
