// The pools: one card each, with gauge, chart, what decides the cap, and what an admin may do.

import { Chart } from "./chart.js";
import { byId, h, keyed, put, say, show } from "./dom.js";
import { makeGauge, updateGauge } from "./gauge.js";
import { lasted, told } from "./history.js";
import { capWords, maximumWords, spacingWords, standing, throttleWords, usageWords, windowWords } from "./standing.js";
import { clock, counted, span } from "./words.js";

const cards = byId("cards");
const parts = new WeakMap();

/** `view`: {pools, later, range, admin, histories}; `act`: what the buttons do. */
export function paintPools(view, act) {
  put(cards, "data-count", Math.min(view.pools.length, 3));
  keyed(cards, view.pools, {
    key: (pool) => pool.name,
    make: (pool) => makeCard(pool.name, act),
    update: (card, pool) => updateCard(card, pool, view),
  });
}

function makeCard(name, act) {
  const id = `pool-${crypto.getRandomValues(new Uint32Array(1))[0]}`;
  const made = {
    link: h("a", { href: `#pool=${encodeURIComponent(name)}` }, name),
    badge: h("span.badge"),
    gauge: makeGauge(),
    waiting: h("p.waiting"),
    plot: h("div.plot", { role: "img" }),
    read: h("figcaption"),
    why: h("p.why"),
    windows: h("ul.windows"),
    account: h("ul.windows"),
    setCap: h("button", { type: "button" }, "Set cap…"),
    reset: h("button", { type: "button" }, "Close breaker…"),
    chart: null,
    looked: null,
    samples: [],
  };
  made.actions = h("div.buttons", {}, made.reset, made.setCap);
  made.setCap.addEventListener("click", () => act.setCap(name));
  made.reset.addEventListener("click", () => act.reset(name));
  const card = h("article.card", { "aria-labelledby": id },
    h("header", {}, h("h3", { id }, made.link), made.badge),
    h("div.dial", {}, made.gauge, made.waiting),
    h("figure.chart", {}, made.plot, made.read),
    h("footer", {}, made.why, made.windows, made.account, made.actions));
  parts.set(card, made);
  return card;
}

function updateCard(card, pool, view) {
  const made = parts.get(card);
  const how = standing(pool, view.later);
  put(card, "data-is", how.kind);
  put(made.link, "aria-current", view.only === pool.name ? "true" : null);
  say(made.badge, how.word);
  updateGauge(made.gauge, pool);
  say(made.waiting, pool.waiting ? `${pool.waiting} waiting` : "none waiting");
  put(made.waiting, "data-some", pool.waiting > 0);
  const why = [
    how.why, maximumWords(pool), capWords(pool), spacingWords(pool, view.later), throttleWords(pool, view.later),
  ];
  say(made.why, why.filter(Boolean).join(" · "));
  keyed(made.windows, pool.windows, { key: (window) => window.name, make: makeWindow, update: updateWindow });
  show(made.windows, pool.windows.length > 0);
  const used = pool.usage_windows ?? [];
  keyed(made.account, used, {
    key: (window) => `${window.account} ${window.name}`,
    make: makeWindow,
    update: (item, window) => updateUsage(item, window, view.later),
  });
  show(made.account, used.length > 0);
  show(made.actions, view.admin);
  show(made.reset, pool.breaker !== "closed");
  drawChart(card, made, pool, view);
}

function drawChart(card, made, pool, view) {
  const history = view.histories.get(pool.name);
  if (!history || !card.isConnected) return;
  made.chart ??= new Chart(made.plot, (sample) => {
    made.looked = sample;
    read(made);
  });
  const samples = history.between(view.range[0]);
  const most = samples.reduce((top, { cap, in_use: used }) => Math.max(top, cap, used), 1);
  made.chart.draw(samples, view.range, most * 1.15);
  made.samples = samples;
  put(made.plot, "aria-label", told(pool.name, samples));
  read(made);
}

/** Under the chart: what it shows; or the moment that the reader points at. */
function read(made) {
  const values = made.looked ? momentWords(made.looked) : spanWords(made.samples);
  keyed(made.read, values.filter(([, words]) => words), {
    key: ([kind]) => kind,
    make: ([kind]) => h(`span.key.${kind}`),
    update: (element, [, words]) => say(element, words),
  });
}

function momentWords(sample) {
  if (sample.cap === null) return [["when", `${clock(sample.at)}, not seen`]];
  return [
    ["used", `${sample.in_use} in flight`],
    ["cap", `cap ${sample.cap}`],
    ["bad", sample.throttles ? counted(sample.throttles, "throttle") : ""],
    [sample.phase, sample.phase === "closed" ? "" : `breaker ${sample.phase}`],
    ["none", sample.waiting ? `${sample.waiting} waiting` : ""],
    ["when", clock(sample.at)],
  ];
}

function spanWords(samples) {
  const throttles = samples.reduce((sum, sample) => sum + sample.throttles, 0);
  const [open, trial] = ["open", "trial"].map((phase) => lasted(samples, phase));
  return [
    ["used", "in flight"],
    ["cap", "cap"],
    ["bad", throttles ? counted(throttles, "throttle") : ""],
    ["open", open ? `open ${span(open)}` : ""],
    ["trial", trial ? `trial ${span(trial)}` : ""],
  ];
}

function makeWindow() {
  return h("li", {}, h("meter", { min: 0 }), h("span"));
}

function updateWindow(item, window) {
  const [meter, words] = item.children;
  put(meter, "max", window.limit);
  put(meter, "value", window.left);
  put(meter, "aria-label", `left of the window ${window.name}`);
  say(words, windowWords(window));
}

/** How full a window of the account is. */
function updateUsage(item, window, later) {
  const [meter, words] = item.children;
  put(meter, "max", 1);
  put(meter, "value", window.used);
  put(meter, "aria-label", `used of the account's ${window.name}`);
  say(words, usageWords(window, later));
}
