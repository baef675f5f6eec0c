// What a pool's numbers mean, in one word and one sentence: pure, from values of the status to words. The order is
// the order of urgency: what stops all work comes before what slows some of it.

import { amount, counted, span } from "./words.js";

/** How a pool stands: {kind, word, why}. `later` is how many seconds ago the state was taken. */
export function standing(pool, later) {
  const left = (seconds) => span(Math.max(0, seconds - later));
  const again = pool.breaker_reopens ? `; re-opened ${counted(pool.breaker_reopens, "time")}` : "";
  if (pool.breaker === "open") {
    const wait = pool.closed_for_s === null ? "" : ` for ${left(pool.closed_for_s)}`;
    return { kind: "open", word: `breaker open${wait}`, why: `${pool.breaker_why || "throttled"}${again}` };
  }
  if (pool.breaker === "trial") {
    const why = pool.trial ? `${pool.trial} is the trial, others wait for it` : "the next ask becomes the trial";
    return { kind: "trial", word: "breaker half open", why: `${why}${again}` };
  }
  if (pool.closed_for_s !== null) {
    return { kind: "closed", word: `closed for ${left(pool.closed_for_s)}`, why: pool.closed_why };
  }
  const startIn = nextStartIn(pool, later);
  if (pool.waiting && pool.free > 0 && startIn > 0) {
    return { kind: "spaced", word: `next start in ${span(startIn)}`, why: `${pool.free} free, but starts are spaced` };
  }
  if (pool.learning_for_s !== null && pool.learning_for_s !== undefined) {
    return { kind: "settling", word: `learning for ${left(pool.learning_for_s)}`, why: "the store has just begun" };
  }
  if (pool.settle_ends_in_s !== null) {
    const held = pool.settling === "cut" ? "no change" : "no growth";
    return {
      kind: "settling", word: `settling ${left(pool.settle_ends_in_s)}`, why: `after a ${pool.settling}: ${held}`,
    };
  }
  if (pool.in_use > pool.cap) return { kind: "full", word: "above the cap", why: "starts wait until it fits" };
  if (pool.free === 0) return { kind: "full", word: "full", why: "" };
  if (pool.free <= pool.reserve) {
    return { kind: "full", word: `full, ${pool.free} in reserve`, why: "kept for priority above 0" };
  }
  return { kind: "ready", word: `${pool.free} free`, why: "" };
}

/** What decides the cap. */
export function capWords(pool) {
  const reserve = pool.reserve ? `, ${pool.reserve} reserved` : "";
  if (!pool.adaptive) return `cap ${pool.cap}, fixed${reserve}`;
  const mover = pool.controller === "measured" ? "adaptive" : pool.controller;
  return `cap ${pool.cap}, ${mover} between ${pool.cap_floor} and ${pool.cap_ceiling}${reserve}`;
}

function nextStartIn(pool, later) {
  return pool.next_start_in_s === null ? 0 : Math.max(0, pool.next_start_in_s - later);
}

/** How starts are kept apart; empty where they are not. */
export function spacingWords(pool, later) {
  if (!pool.spacing_s) return "";
  const startIn = nextStartIn(pool, later);
  return `${amount(pool.spacing_s)} s between starts${startIn > 0 ? `, next in ${span(startIn)}` : ""}`;
}

/** Who may hold no more although the pool may have room; empty where there is no such project. */
export function maximumWords(pool) {
  const names = pool.projects
    .filter((project) => project.maximum !== null && project.in_use >= project.maximum)
    .map((project) => project.name);
  if (names.length === 0) return "";
  const few = names.slice(0, 3).join(", ");
  return names.length > 3 ? `${few} and ${names.length - 3} more are at their maximum` : `at the maximum: ${few}`;
}

/** What the provider said lately; empty where it said nothing. */
export function throttleWords(pool, later) {
  if (!pool.throttle_count) return "";
  const last = pool.last_throttle_s_ago;
  const when = last === null ? "" : `, last ${span(last + later)} ago`;
  return `${counted(pool.throttle_count, "throttle")}${when}`;
}

export function windowWords(window) {
  return `${window.name}: ${amount(window.left)} of ${amount(window.limit)} left, ${amount(window.per_min)}/min `
    + `(${window.source})`;
}

/** Why an ask waits, without what the table says in other columns. */
export function askWords(ask) {
  if (ask.alive === false) return "dead, will be dropped";
  const slots = ask.slots > 1 ? `${ask.slots} slots; ` : "";
  const priority = ask.priority ? `priority ${ask.priority}; ` : "";
  return `${slots}${priority}${ask.why}`;
}

/** What a person should know about a lease; empty where all is well. */
export function leaseWords(lease) {
  if (lease.alive === false) return "dead, still counted";
  const notes = callWords(lease);
  notes.push(...Object.entries(lease.resources ?? {}).map(([kind, units]) => `${kind}=${units}`));
  if (lease.priority) notes.push(`priority ${lease.priority}`);
  if (lease.alive === null) notes.push(`on ${lease.host}${elsewhere(lease)}`);
  if (lease.expires_in_s !== null && !lookedAfter(lease)) {
    notes.push(`expires in ${span(lease.expires_in_s)}`);
  }
  if (lease.launcher_pid && lease.launcher_pid !== lease.pid) notes.push(`launched by ${lease.launcher_pid}`);
  return notes.join(", ");
}

/** What an agent's calls do, where they are counted one by one. */
function callWords(lease) {
  if (lease.calls === null || lease.calls === undefined) return [];
  const words = Object.entries(lease.calls).map(([pool, number]) => `${counted(number, "call")} in ${pool}`);
  if (lease.calls_waiting) words.push(`${lease.calls_waiting} waiting`);
  return words.length ? words : ["no call now"];
}

/** A session's subagents behind it, with `below`: what they are; all else in the order it has. */
export function inFamilies(leases) {
  const isChild = (lease, parent) => lease.parent === parent.name && lease.project === parent.project
    && lease.pid === parent.pid && lease.pool.name === parent.pool.name;
  const children = new Set(leases.filter((lease) => lease.parent && leases.some((each) => isChild(lease, each))));
  if (children.size === 0) return leases;
  return leases.filter((lease) => !children.has(lease)).flatMap((lease) => [
    lease,
    ...leases.filter((each) => children.has(each) && isChild(each, lease))
      .map((each) => ({ ...each, below: each.name.slice(lease.name.length).trim() })),
  ]);
}

const SILENT_S = 4;

function lookedAfter(lease) {
  return lease.confirmed_s_ago !== null && lease.confirmed_s_ago !== undefined && lease.confirmed_s_ago <= SILENT_S;
}

function elsewhere(lease) {
  if (lookedAfter(lease)) return "";
  if (lease.confirmed_s_ago === null || lease.confirmed_s_ago === undefined) return ", cannot be checked from here";
  return `, not heard of for ${span(lease.confirmed_s_ago)}`;
}

/** Whether a person may say that a lease is over: not while anybody shows that its process runs. */
export function releasable(lease) {
  return lease.alive === false || (lease.alive === null && !lookedAfter(lease));
}

export function nodeWords(node) {
  const notes = [];
  if (node.fenced) notes.push(`fenced, silent for ${span(node.renewed_s_ago)}`);
  else if (node.silent) notes.push(`silent for ${span(node.renewed_s_ago)}`);
  if (node.draining) notes.push("draining");
  else if (node.target < node.slots) notes.push(`asked to go to ${node.target}`);
  if (node.owed) notes.push(`${node.owed} more than it was granted`);
  return notes.join(", ");
}

export function machineWords(machine) {
  const parts = [];
  if (machine.ceiling !== null) parts.push(`${machine.in_use} of at most ${machine.ceiling} slots over all pools`);
  if (machine.cpu_pressure !== null) parts.push(`starts need CPU pressure below ${machine.cpu_pressure} %`);
  if (machine.memory_floor_bytes !== null) parts.push(`starts need ${size(machine.memory_floor_bytes)} of free memory`);
  const kinds = new Set([...Object.keys(machine.resources), ...Object.keys(machine.resources_in_use)]);
  for (const kind of [...kinds].sort()) {
    parts.push(`${kind} ${machine.resources_in_use[kind] ?? 0} of ${machine.resources[kind] ?? 0}`);
  }
  return parts.join("; ");
}

function size(bytes) {
  const [unit, letters] = bytes >= 2 ** 30 ? [2 ** 30, "GiB"] : [2 ** 20, "MiB"];
  return `${Number((bytes / unit).toFixed(1))} ${letters}`;
}

/** One usage window of the account: how full, when it resets, how and when that was said. */
export function usageWords(window, later) {
  const whose = window.account ? `${window.account}: ` : "";
  const resets = window.resets_in_s === null
    ? "reset not known" : `resets in ${span(Math.max(0, window.resets_in_s - later))}`;
  const said = `${window.certainty} ${span(window.measured_s_ago + later)} ago`;
  return `${whose}${Math.round(window.used * 100)} % of ${window.name} used, ${resets} (${said})`;
}
