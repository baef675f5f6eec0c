// A pool over time, drawn by uPlot (vendored): what was in flight under the cap, throttles as ticks on the floor,
// and the time the breaker was open or half open as a band behind everything. All charts share one cursor.
//
// A canvas knows no style sheet: colours are asked of one, and asked again when they change.

import { breaks } from "./history.js";
import { timeOfDay } from "./words.js";

const { uPlot } = globalThis;
const HEIGHT = 122;
const TICK = 9;
const probe = document.createElement("i");
probe.hidden = true;

let colours = {};

/** Ask the style sheet for the colours; to be called at the start and whenever they change. */
export function readColours() {
  document.body.append(probe);
  const names = ["used", "used-soft", "ink", "muted", "grid", "bad", "bad-soft", "trial", "trial-soft"];
  colours = Object.fromEntries(names.map((name) => [name, resolved(name)]));
  probe.remove();
}

function resolved(name) {
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

export class Chart {
  #plot;
  #seen = [];
  #box;

  /** `onLook(sample | null)` hears which moment the reader points at. */
  constructor(box, onLook) {
    this.#box = box;
    this.#plot = new uPlot(this.#options(onLook), [[], [], []], box);
    // Asking an element for its width while the page changes would lay everything out twice.
    new ResizeObserver(([{ contentRect }]) => this.#fit(Math.floor(contentRect.width))).observe(box);
  }

  #fit(width) {
    if (width > 0 && width !== this.#plot.width) this.#plot.setSize({ width, height: HEIGHT });
  }

  draw(samples, [from, to], most) {
    this.#seen = samples;
    this.#plot.batch(() => {
      this.#plot.setData(
        [samples.map((x) => x.at), samples.map((x) => x.in_use), samples.map((x) => x.cap)], false,
      );
      this.#plot.setScale("x", { min: from, max: to });
      this.#plot.setScale("y", { min: 0, max: most });
    });
  }

  #options(onLook) {
    const [paths, points] = [uPlot.paths.stepped({ align: 1 }), { show: false }];
    const font = `11px ${getComputedStyle(document.body).fontFamily}`;
    const axis = { font, stroke: () => colours.muted, ticks: { show: false } };
    return {
      width: Math.max(60, this.#box.clientWidth),
      height: HEIGHT,
      padding: [8, 24, 0, 0],
      legend: { show: false },
      cursor: { sync: { key: "flyball" }, drag: { x: false, y: false }, y: false, points },
      scales: { x: { time: true, auto: false }, y: { auto: false } },
      axes: [
        { ...axis, size: 22, gap: 4, space: 58, incrs: TIMES, grid: { show: false }, values: times },
        { ...axis, size: 26, gap: 4, space: 26, incrs: STEPS, grid: { stroke: () => colours.grid, width: 1 } },
      ],
      series: [
        {},
        { paths, points, stroke: () => colours.used, fill: () => colours["used-soft"], width: 1.5 },
        { paths, points, stroke: () => colours.ink, width: 1.5 },
      ],
      hooks: {
        drawClear: [(plot) => this.#drawBreaks(plot)],
        draw: [(plot) => this.#drawThrottles(plot)],
        setCursor: [(plot) => onLook(this.#seen[plot.cursor.idx] ?? null)],
      },
    };
  }

  #drawBreaks(plot) {
    const { ctx, bbox } = plot;
    ctx.save();
    for (const { phase, from, to } of breaks(this.#seen)) {
      const left = Math.max(bbox.left, plot.valToPos(from, "x", true));
      const right = Math.min(bbox.left + bbox.width, plot.valToPos(to, "x", true));
      const kind = phase === "open" ? "bad" : "trial";
      const width = Math.max(right - left, devicePixelRatio);
      ctx.fillStyle = colours[`${kind}-soft`];
      ctx.fillRect(left, bbox.top, width, bbox.height);
      ctx.fillStyle = colours[kind];
      ctx.fillRect(left, bbox.top, width, 2 * devicePixelRatio);
    }
    ctx.restore();
  }

  #drawThrottles(plot) {
    const { ctx, bbox } = plot;
    const floor = bbox.top + bbox.height;
    const width = Math.max(1, Math.round(1.5 * devicePixelRatio));
    ctx.save();
    ctx.fillStyle = colours.bad;
    for (const { at, throttles } of this.#seen) {
      const x = Math.round(plot.valToPos(at, "x", true));
      if (!throttles || x < bbox.left || x > bbox.left + bbox.width) continue;
      const height = TICK * devicePixelRatio * Math.min(2, 1 + (throttles - 1) / 4);
      ctx.fillRect(x - width / 2, floor - height, width, height);
    }
    ctx.restore();
  }
}

const TIMES = [5, 10, 15, 30, 60, 120, 300, 600];
/** Seconds only where minutes would repeat. */
function times(_plot, moments, _axis, _space, step) {
  return moments.map((at) => timeOfDay(at).slice(0, step < 60 ? 8 : 5));
}

const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000];
