// A pool as a gauge: an arc from nothing to the ceiling, one segment per slot where they can be told apart; what is
// in use, what is free, what is reserved, and a line across the arc where the cap is.

import { put, s, say } from "./dom.js";

const SWEEP = 240;
const MOST_SEGMENTS = 40;
const CENTRE = { x: 70, y: 68 };
const RADIUS = 55;

export function makeGauge() {
  const arc = (name) => s("path", { class: name, d: ARC });
  const parts = {
    room: arc("room"), free: arc("free"), reserved: arc("reserved"), used: arc("used"), over: arc("over"),
    cap: s("line", { class: "capline", x1: CENTRE.x, x2: CENTRE.x, y1: CENTRE.y - 66, y2: CENTRE.y - 43 }),
    number: s("text", { class: "number", x: CENTRE.x, y: CENTRE.y + 5 }),
    of: s("text", { class: "of", x: CENTRE.x, y: CENTRE.y + 22 }),
  };
  const gauge = s("svg", { class: "gauge", viewBox: "0 0 140 104", role: "meter", "aria-valuemin": 0 });
  gauge.append(...Object.values(parts));
  gauge.parts = parts;
  return gauge;
}

export function updateGauge(gauge, pool) {
  const { parts } = gauge;
  const scale = Math.max(1, pool.cap_ceiling, pool.cap, pool.in_use);
  const used = Math.min(pool.in_use, pool.cap);
  const open = Math.max(used, pool.cap - pool.reserve);
  dash(parts.room, pool.cap, scale, scale);
  dash(parts.free, used, open, scale);
  dash(parts.reserved, open, pool.cap, scale);
  dash(parts.used, 0, used, scale);
  dash(parts.over, used, pool.in_use, scale);
  parts.cap.style.transform = `rotate(${(pool.cap / scale - 0.5) * SWEEP}deg)`;
  say(parts.number, pool.in_use);
  say(parts.of, `of ${pool.cap}`);
  put(gauge, "aria-label", `${pool.name}: slots in use`);
  put(gauge, "aria-valuenow", pool.in_use);
  put(gauge, "aria-valuemax", scale);
  put(gauge, "aria-valuetext", `${pool.in_use} of ${pool.cap} slots in use, ${pool.waiting} waiting`);
}

/** Draw the slots between two counts. The arc is `scale` long, so a slot is one unit. */
function dash(path, from, to, scale) {
  put(path, "pathLength", scale);
  put(path, "visibility", to > from ? null : "hidden");
  put(path, "stroke-dasharray", ["0", from, ...segments(from, to, scale), "0", scale + 1].join(" "));
}

function segments(from, to, scale) {
  if (scale > MOST_SEGMENTS) return [Math.max(0, to - from), 0];
  const gap = Math.min(0.3, scale * 0.011);
  return Array.from({ length: Math.max(0, to - from) }, () => [1 - gap, gap]).flat();
}

function onArc(degrees) {
  const turn = (degrees * Math.PI) / 180;
  return `${(CENTRE.x + RADIUS * Math.sin(turn)).toFixed(2)} ${(CENTRE.y - RADIUS * Math.cos(turn)).toFixed(2)}`;
}

const ARC = `M ${onArc(-SWEEP / 2)} A ${RADIUS} ${RADIUS} 0 1 1 ${onArc(SWEEP / 2)}`;
