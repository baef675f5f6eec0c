// What a pool did over time, one sample a second: what the server remembers, and then what the page sees itself.
// Times are seconds on the reader's clock. Bounded by the time that can be shown.

import { HISTORY_S } from "./live.js";

const GAP_S = 5;
const LEAST_SPAN_S = 60;

export class History {
  samples = [];
  #throttleCount = null;

  /** Take over the server's memory of a pool, kept in columns; what was seen since its last sample stays. */
  seed(times, columns, ahead) {
    const samples = times.map((time, row) => sampleOf(time + ahead, columns, row)).filter((x) => x.cap !== null);
    const last = samples.at(-1)?.at ?? -Infinity;
    this.samples = [...samples, ...this.samples.filter((sample) => sample.at > last)];
    this.#trim(Date.now() / 1000);
  }

  /** The state of this second. */
  add(pool, now) {
    const last = this.samples.at(-1);
    const before = this.#throttleCount ?? pool.throttle_count;
    const throttles = Math.max(0, pool.throttle_count - before);
    this.#throttleCount = pool.throttle_count;
    const sample = {
      at: now, cap: pool.cap, in_use: pool.in_use, waiting: pool.waiting, throttles, phase: pool.breaker,
    };
    if (last && now - last.at < 0.9) this.samples[this.samples.length - 1] = merged(last, sample);
    else this.samples.push(sample);
    this.#trim(now);
  }

  #trim(now) {
    const first = this.samples.findIndex((sample) => sample.at >= now - HISTORY_S - 2);
    if (first > 0) this.samples.splice(0, first);
  }

  /** Samples of the range, with a hole where nothing was seen. */
  between(from) {
    const seen = [];
    let last = null;
    for (const sample of this.samples) {
      if (last && sample.at - last.at > GAP_S) seen.push(hole(last.at + 1), hole(sample.at - 0.001));
      if (sample.at >= from - 1.5) seen.push(sample);
      last = sample;
    }
    return seen.filter((sample) => sample.at >= from - 1.5);
  }
}

function sampleOf(at, { cap, in_use: used, waiting, throttles, phase }, row) {
  return {
    at,
    cap: cap[row],
    in_use: used[row],
    waiting: waiting[row],
    throttles: throttles[row] ?? 0,
    phase: phase[row] ?? "closed",
  };
}

function merged(last, sample) {
  return { ...sample, at: last.at, throttles: last.throttles + sample.throttles };
}

function hole(at) {
  return { at, cap: null, in_use: null, waiting: null, throttles: 0, phase: "closed" };
}

/** From when to when all charts show: the span that was asked for, less where less is known of any pool. */
export function range(histories, span, now) {
  const firsts = histories.map((history) => history.samples[0]?.at ?? now);
  return [Math.max(now - span, Math.min(now - LEAST_SPAN_S, ...firsts)), now];
}

/** How long the breaker was open or half open, in seconds. */
export function lasted(samples, phase) {
  return breaks(samples).reduce((sum, stretch) => sum + (stretch.phase === phase ? stretch.to - stretch.from : 0), 0);
}

/** Stretches of time in which the breaker was not closed. */
export function breaks(samples) {
  const found = [];
  for (const { at, phase } of samples) {
    const last = found.at(-1);
    if (last && !last.over && last.phase === phase) last.to = at;
    else {
      if (last && !last.over) Object.assign(last, { to: at, over: true });
      if (phase !== "closed") found.push({ phase, from: at, to: at, over: false });
    }
  }
  return found;
}

/** One sentence for those who cannot see the chart. */
export function told(name, samples) {
  const seen = samples.filter((sample) => sample.cap !== null);
  if (!seen.length) return `${name}: nothing recorded yet`;
  const caps = seen.map((sample) => sample.cap);
  const [low, high] = [Math.min(...caps), Math.max(...caps)];
  const most = Math.max(...seen.map((sample) => sample.in_use));
  const throttles = seen.reduce((sum, sample) => sum + sample.throttles, 0);
  const opened = breaks(seen).filter((stretch) => stretch.phase === "open").length;
  const minutes = Math.max(1, Math.round((seen.at(-1).at - seen[0].at) / 60));
  const cap = low === high ? `cap ${low}` : `cap between ${low} and ${high}`;
  return `${name}, last ${minutes} min: ${cap}, at most ${most} in flight, ${throttles} throttles, `
    + `breaker opened ${opened} times`;
}
