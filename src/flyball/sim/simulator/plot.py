"""A run as a picture: the cap against what the provider could serve, rejections, and jobs that wait.

SVG written by hand: no library, small, readable on light and dark pages. Everything is drawn in one unit,
calls at once. Below it lie narrow strips on the same time axis: rejections (one bar per two pixels, as
high as there were many), and refused jobs that wait.

``curve`` says what a provider could serve at each moment, as calls at once; recovery times are measured
against it too. Seats are that already; an outage is zero. A quota of tokens or requests is converted: calls
a second at their mean cost, times how long one takes. What a neighbour takes of a quota is averaged over
a minute, so the curve of a shared quota is an estimate; everything else is exact.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from flyball.core.pool.settings import PoolChanges
from flyball.sim.simulator.compare import play
from flyball.sim.simulator.engine import Moment
from flyball.sim.simulator.jobs import Mix
from flyball.sim.simulator.limits import INFINITY, Outages, Refilling, Rule, Seats
from flyball.sim.simulator.scenario import Scenario

BIN_S = 60.0


def curve(scenario: Scenario, seed: int) -> list[tuple[float, float]]:
    """Steps of (from this second on, this many calls at once), the first at 0."""
    rules = scenario.provider(seed).rules
    limits = [limit for rule in rules if (limit := _limit(rule, scenario.mix)) is not None]
    times = sorted({0.0, *(t_s for rule in rules for t_s in _changes(rule, scenario.horizon_s))})
    steps: list[tuple[float, float]] = []
    for t_s in times:
        height = min((limit(t_s) for limit in limits), default=0.0)
        if t_s < scenario.horizon_s and (not steps or steps[-1][1] != height):
            steps.append((t_s, height))
    return steps


def at(steps: Sequence[tuple[float, float]], t_s: float) -> float:
    return steps[max(0, bisect_right(steps, (t_s, INFINITY)) - 1)][1]


def _limit(rule: Rule, mix: Mix) -> Callable[[float], float] | None:
    if isinstance(rule, Seats):
        return lambda t_s: float(rule.capacity(t_s))
    if isinstance(rule, Outages):
        return lambda t_s: 0.0 if rule.over_at(t_s) is not None else INFINITY
    if isinstance(rule, Refilling):
        cost = 1.0 if rule.unit == "requests" else mix.tokens_mean
        taken: dict[float, float] = {}  # what the neighbour takes per second, by minute
        for draw in rule.neighbour:
            taken[draw.at_s // BIN_S] = taken.get(draw.at_s // BIN_S, 0.0) + draw.amount / BIN_S
        return lambda t_s: max(0.0, rule.per_s - taken.get(t_s // BIN_S, 0.0)) / cost * mix.service_mean_s
    return None


def _changes(rule: Rule, horizon_s: float) -> list[float]:
    if isinstance(rule, Seats):
        return [t_s for t_s, _ in rule.steps]
    if isinstance(rule, Outages):
        return [t_s for span in rule.spans for t_s in span]
    if isinstance(rule, Refilling) and rule.neighbour:
        return [n * BIN_S for n in range(int(horizon_s / BIN_S) + 1)]
    return []


WIDTH, LEFT, RIGHT, TOP, HEIGHT = 860, 56, 30, 76, 240
STRIP, GAP = 22, 22
MOMENTS = 720
BAR = 2
Points = Sequence[tuple[float, float]]
_NO_CHANGES = PoolChanges()

_STYLE = """
text{font:12px system-ui,sans-serif;fill:#343a40}.title{font-size:16px;font-weight:600}.quiet{fill:#868e96}
.back{fill:#fff}.grid{stroke:#868e96;stroke-opacity:.25}.axis{stroke:#adb5bd}.hidden{fill:#d0d7de}
.line{fill:none;stroke-width:1.5;stroke-linejoin:round}.served{stroke:#74a9d8;stroke-width:1.1}
.c0{stroke:#1864ab}.c1{stroke:#e8590c}.c2{stroke:#2b8a3e}.c3{stroke:#862e9c}.bar{stroke:none}
.b0{fill:#c92a2a}.waiting{fill:#f59f00}
@media(prefers-color-scheme:dark){text{fill:#dee2e6}.quiet{fill:#909296}.back{fill:#1a1b1e}
.axis{stroke:#5c5f66}.hidden{fill:#373a40}.served{stroke:#4f7ba5}
.c0{stroke:#74c0fc}.c1{stroke:#ffa94d}.c2{stroke:#8ce99a}.c3{stroke:#e599f7}.b0{fill:#ff6b6b}}
""".replace("\n", "")


@dataclass(frozen=True, slots=True)
class Course:
    """How one contender's run went."""

    name: str
    moments: Sequence[Moment]
    rejected_at_s: Sequence[float]


@dataclass(frozen=True, slots=True)
class Picture:
    title: str
    words: str
    horizon_s: float
    hidden: Points
    """Steps of what the provider could serve."""
    courses: Sequence[Course]


def picture(
    scenario: Scenario, contenders: Sequence[str], seed: int, *, changes: PoolChanges = _NO_CHANGES
) -> Picture:
    """Run it and keep what a plot needs."""
    courses = []
    for name in contenders:
        run = play(scenario, name, seed, changes=changes, moments=MOMENTS)
        courses.append(Course(name, run.moments, run.rejected_at_s))
    words = f"{scenario.name}: {scenario.words}; seed {seed}"
    return Picture(scenario.title, words, scenario.horizon_s, curve(scenario, seed), courses)


@dataclass(frozen=True, slots=True)
class _Scale:
    """From seconds and calls to pixels."""

    horizon_s: float
    most: float

    def x(self, t_s: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * t_s / self.horizon_s

    def y(self, value: float) -> float:
        return TOP + HEIGHT * (1 - min(value, self.most) / self.most)


def draw(shown: Picture) -> str:
    """The picture as one SVG document."""
    # The axis reaches above the hidden capacity; a cap far beyond it is cut off.
    hidden = max((value for _, value in shown.hidden), default=1.0)
    caps = max((m.level for course in shown.courses for m in course.moments), default=1.0)
    scale = _Scale(shown.horizon_s, max(1.0, min(max(hidden, caps) * 1.1, hidden * 2.0)))
    alone = len(shown.courses) == 1
    strips = [strip for course in shown.courses for strip in _strips(course, scale, alone=alone)]
    bottom = TOP + HEIGHT + 22
    height = bottom + len(strips) * (STRIP + GAP) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(shown.title)}</title><style>{_STYLE}</style>",
        f'<rect class="back" width="{WIDTH}" height="{height}"/>',
        f'<text class="title" x="{LEFT}" y="24">{escape(shown.title)}</text>',
        f'<text class="quiet" x="{LEFT}" y="42">{escape(shown.words)}</text>',
        *_legend(shown, alone=alone),
        _area("hidden", _stairs(shown.hidden, shown.horizon_s), scale),
        *_axes(scale),
    ]
    for n, course in enumerate(shown.courses):
        if alone:
            parts.append(_line("line served", [(m.t_s, m.served) for m in course.moments], scale))
        levels = _stairs([(m.t_s, m.level) for m in course.moments], shown.horizon_s)
        parts.append(_line(f"line c{n % 4}", levels, scale))
    for n, strip in enumerate(strips):
        parts.append(f'<g transform="translate(0 {bottom + n * (STRIP + GAP) + GAP})">{strip}</g>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend(shown: Picture, *, alone: bool) -> Iterator[str]:
    entries = [('<rect class="hidden" width="14" height="10" y="-9"/>', "what the provider could serve")]
    for n, course in enumerate(shown.courses):
        mark = f'<line class="line c{n % 4}" x2="14" y1="-4" y2="-4"/>'
        entries.append((mark, f"cap, {course.name}"))
    if alone:
        entries.append(('<line class="line served" x2="14" y1="-4" y2="-4"/>', "served"))
    x = LEFT
    for mark, words in entries:
        yield f'<g transform="translate({x} 64)">{mark}<text x="20">{escape(words)}</text></g>'
        x += 20 + 7 * len(words) + 24


def _axes(scale: _Scale) -> Iterator[str]:
    step = _nice(scale.most / 5)
    for n in range(int(scale.most / step) + 1):
        y = scale.y(n * step)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="quiet" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{n * step:g}</text>'
    yield (
        f'<text class="quiet" transform="translate(14 {TOP + HEIGHT / 2}) rotate(-90)" '
        f'text-anchor="middle">calls at once</text>'
    )
    unit_s, unit = (3600.0, "h") if scale.horizon_s > 3 * 3600 else (60.0, "min")
    every = _nice(scale.horizon_s / unit_s / 7)
    for n in range(int(scale.horizon_s / unit_s / every + 1e-9) + 1):
        x = scale.x(n * every * unit_s)
        words = f"{n * every:g} {unit}"
        yield f'<text class="quiet" x="{x:.1f}" y="{TOP + HEIGHT + 17}" text-anchor="middle">{words}</text>'
    yield f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{TOP + HEIGHT}" y2="{TOP + HEIGHT}"/>'


def _nice(least: float) -> float:
    """The smallest of 1, 2, 3, 5, 10, 20, 30, 50 ... that is not less.

    >>> [_nice(value) for value in (0.7, 2.5, 7.0, 17.1)]
    [1.0, 3.0, 10.0, 20.0]
    """
    power = 1.0
    while True:
        for factor in (1, 2, 3, 5):
            if factor * power >= least:
                return factor * power
        power *= 10


def _strips(course: Course, scale: _Scale, *, alone: bool) -> Iterator[str]:
    yield _bars(course, scale, alone=alone)
    if alone:
        points = [(m.t_s, float(m.waiting)) for m in course.moments]
        most = max((value for _, value in points), default=0.0)
        strip = _Scale(scale.horizon_s, max(1.0, most))
        area = " ".join(f"{strip.x(t):.1f},{STRIP * (1 - v / strip.most):.1f}" for t, v in points)
        ends = f"{WIDTH - RIGHT},{STRIP} {LEFT},{STRIP}"
        words = f"refused and waiting to try again (at most {most:g})"
        yield f'{_strip_frame(words)}<polygon class="waiting" points="{area} {ends}"/>'


def _bars(course: Course, scale: _Scale, *, alone: bool) -> str:
    counts: dict[int, int] = {}
    for t_s in course.rejected_at_s:
        x = int(scale.x(t_s)) // BAR * BAR
        counts[x] = counts.get(x, 0) + 1
    most = max(counts.values(), default=1)
    bars = []
    for x, count in sorted(counts.items()):
        high = max(4.0, STRIP * count / most)
        bars.append(f"M{x} {STRIP}v{-high:.1f}h{BAR}v{high:.1f}z")
    whose = "" if alone else f", {course.name}"
    words = f"rejected{whose}: {len(course.rejected_at_s):,} in all"
    return f'{_strip_frame(words)}<path class="b0" d="{"".join(bars)}"/>'


def _strip_frame(words: str) -> str:
    line = f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{STRIP}" y2="{STRIP}"/>'
    return f'<text class="quiet" x="{LEFT}" y="-4">{escape(words)}</text>{line}'


def _stairs(points: Points, until_s: float) -> list[tuple[float, float]]:
    """Steps as a line with corners; points that change nothing are left out."""
    corners: list[tuple[float, float]] = []
    for t_s, value in points:
        if corners and corners[-1][1] == value:
            continue
        if corners:
            corners.append((t_s, corners[-1][1]))
        corners.append((t_s, value))
    return [*corners, (until_s, corners[-1][1])] if corners else []


def _line(css: str, points: Points, scale: _Scale) -> str:
    path = " ".join(f"{scale.x(t_s):.1f},{scale.y(value):.1f}" for t_s, value in points)
    return f'<polyline class="{css}" points="{path}"/>'


def _area(css: str, points: Points, scale: _Scale) -> str:
    path = " ".join(f"{scale.x(t_s):.1f},{scale.y(value):.1f}" for t_s, value in points)
    floor = scale.y(0.0)
    return f'<polygon class="{css}" points="{path} {scale.x(scale.horizon_s):.1f},{floor} {LEFT},{floor}"/>'
