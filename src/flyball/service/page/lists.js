// The tables of the page, and what each of their columns says.

import { h, put, say, show } from "./dom.js";
import { askWords, inFamilies, leaseWords, nodeWords, releasable } from "./standing.js";
import { Table } from "./tables.js";
import { amount, running, span, who } from "./words.js";

let later = 0;
let many = false;
let admin = false;
let act;

const poolColumn = { id: "pool", title: "Pool", text: (row) => (many ? row.pool.name : "") };
const nameColumn = {
  id: "who", title: "Project / name", always: true, text: (row) => who(row),
  cell: {
    make: () => h("span", {}, h("span.project"), h("b")),
    update: (element, row) => {
      say(element.children[0], row.below || !row.project ? "" : `${row.project}/`);
      say(element.children[1], row.below || row.name);
      put(element, "data-below", row.below ? true : null);
      put(element, "title", who(row));
    },
  },
};
const pidColumn = { id: "pid", title: "Pid", number: true, text: (row) => row.pid || "" };

const waiting = new Table("waiting", {
  title: "Waiting",
  key: (ask) => `${ask.pool.name}/${ask.id}`,
  none: "Nothing waits.",
  rowKind: (ask) => (ask.alive === false ? "dead" : ""),
  columns: [
    { id: "place", title: "Place", unseen: true, number: true, always: true, text: (ask) => ask.position || "" },
    poolColumn,
    nameColumn,
    pidColumn,
    { id: "age", title: "Waits", number: true, always: true, text: (ask) => running(ask.waiting_s + later) },
    {
      id: "estimate", title: "Slot in", number: true, always: true,
      text: (ask) => (ask.estimate_s === null ? "unknown" : `~${span(Math.max(0, ask.estimate_s - later))}`),
      kind: (ask) => (ask.estimate_s === null ? "quiet" : ""),
    },
    { id: "reason", title: "Reason", always: true, text: (ask) => ask.reason, cell: reasonCell() },
    { id: "words", title: "Why", always: true, text: askWords },
  ],
});

const leases = new Table("running", {
  title: "Running",
  key: (lease) => `${lease.pool.name}/${lease.id}`,
  none: "Nothing runs.",
  rowKind: (lease) => (lease.alive === false ? "dead" : ""),
  columns: [
    poolColumn,
    nameColumn,
    pidColumn,
    { id: "age", title: "Runs", number: true, always: true, text: (lease) => running(lease.held_s + later) },
    { id: "waited", title: "Waited", number: true, text: (lease) => (lease.waited_s < 1 ? "" : span(lease.waited_s)) },
    { id: "slots", title: "Slots", number: true, text: (lease) => (lease.slots === 1 ? "" : lease.slots) },
    { id: "model", title: "Model", text: (lease) => lease.model },
    { id: "words", title: "Note", always: true, text: leaseWords },
    {
      id: "action", title: "Action", unseen: true, text: (lease) => (admin && releasable(lease) ? "release" : ""),
      cell: releaseCell(),
    },
  ],
});

const resting = new Table("resting", {
  title: "Resting",
  key: (rest) => `${rest.pool.name}/${rest.id}`,
  rowKind: (rest) => (rest.alive === false ? "dead" : ""),
  columns: [
    poolColumn,
    nameColumn,
    pidColumn,
    { id: "age", title: "Rests", number: true, always: true, text: (rest) => running(rest.resting_s + later) },
    {
      id: "estimate", title: "Again in", number: true, always: true,
      text: (rest) => span(Math.max(0, rest.tries_again_in_s - later)),
    },
    {
      id: "words", title: "Why", always: true,
      text: (rest) => (rest.alive === false ? "dead, will not be tried again" : rest.words),
    },
  ],
});

const projects = new Table("projects", {
  title: "Projects",
  key: (project) => `${project.pool.name}/${project.name}`,
  columns: [
    poolColumn,
    { id: "who", title: "Project", always: true, text: (project) => project.name },
    { id: "share", title: "In use │ share", always: true, text: () => "bar", cell: shareCell() },
    { id: "uses", title: "Uses", number: true, always: true, text: (project) => project.in_use },
    { id: "fair", title: "Share", number: true, always: true, text: (project) => project.fair_share },
    { id: "waits", title: "Waits", number: true, text: (project) => project.waiting || "" },
    { id: "weight", title: "Weight", number: true, text: (project) => (project.weight === 1 ? "" : project.weight) },
    { id: "max", title: "Max", number: true, text: (project) => project.maximum ?? "" },
    { id: "words", title: "Note", text: demandWords },
  ],
});

const nodes = new Table("nodes", {
  title: "Nodes",
  key: (node) => `${node.pool.name}/${node.node}/${node.incarnation}`,
  rowKind: (node) => (node.fenced ? "dead" : ""),
  columns: [
    poolColumn,
    { id: "who", title: "Node", always: true, text: (node) => node.node },
    { id: "incarnation", title: "Life", text: (node) => node.incarnation.slice(0, 6), kind: () => "quiet" },
    { id: "slots", title: "Slots", number: true, always: true, text: (node) => node.slots },
    { id: "target", title: "Target", number: true, always: true, text: (node) => node.target },
    { id: "flight", title: "In flight", number: true, always: true, text: (node) => node.in_flight },
    { id: "wants", title: "Wants", number: true, always: true, text: (node) => node.wants },
    { id: "weight", title: "Weight", number: true, text: (node) => (node.weight === 1 ? "" : node.weight) },
    {
      id: "throttles", title: "Throttles", number: true,
      text: (node) => (node.throttles ? amount(node.throttles) : ""),
    },
    {
      // Not counted down: it is renewed all the time, and that alone is not worth showing.
      id: "expires", title: "Expires", number: true, always: true, text: (node) => span(node.expires_in_s),
    },
    { id: "words", title: "Note", always: true, text: nodeWords },
  ],
});

const hosts = new Table("hosts", {
  title: "Hosts",
  key: (host) => `${host.pool.name}/${host.host}/${host.boot}`,
  columns: [
    poolColumn,
    { id: "who", title: "Host", always: true, text: (host) => host.host },
    { id: "leases", title: "Leases", number: true, always: true, text: (host) => host.leases },
    { id: "slots", title: "Slots", number: true, always: true, text: (host) => host.slots },
    { id: "words", title: "Heard", always: true, text: hostWords },
  ],
});

/** `view`: {pools, later, filter, admin}; `doing`: what the buttons do. */
export function paintTables(view, doing) {
  ({ later, admin } = view);
  many = view.pools.length > 1;
  act = doing;
  const all = (field) => view.pools.flatMap((pool) => (pool[field] ?? []).map((row) => ({ ...row, pool })));
  const wanted = (rows) => rows.filter((row) => matches(row, view.filter));
  const filtered = view.filter !== "";
  const asks = all("asks");
  const unlisted = view.pools.reduce((sum, pool) => sum + pool.waiting - pool.asks.length, 0);
  waiting.paint(wanted(asks), { total: asks.length + Math.max(0, unlisted), filtered });
  const held = all("leases").sort((a, b) => (a.alive === false ? 0 : 1) - (b.alive === false ? 0 : 1));
  leases.paint(inFamilies(wanted(held)), { total: held.length, filtered });
  resting.paint(wanted(all("resting")));
  projects.paint(view.pools.flatMap(projectsOf));
  nodes.paint(all("shares").filter((node) => !(node.draining && !node.slots)));
  hosts.paint(all("hosts").filter((host) => host.pool.hosts.some((one) => !one.here)));
}

/** What was searched for, in any part of a name. */
export function matches(row, filter) {
  return filter === "" || `${row.project ?? ""}/${row.name ?? ""}`.toLowerCase().includes(filter);
}

/** A single project without terms of its own has nothing to share. */
function projectsOf(pool) {
  const terms = pool.projects.some((project) => project.weight !== 1 || project.maximum !== null);
  if (pool.projects.length < 2 && !pool.demand.length && !terms) return [];
  const scale = Math.max(1, ...pool.projects.map((project) => Math.max(project.in_use, project.fair_share)));
  return pool.projects.map((project) => ({ ...project, project: project.name, pool, scale }));
}

function demandWords(project) {
  return project.pool.demand
    .filter((demand) => demand.project === project.name)
    .map((demand) => `ready work announced by pid ${demand.pid}`
      + (demand.alive === false ? ", dead" : `, ${span(Math.max(0, demand.expires_in_s - later))} left`))
    .join(", ");
}

function hostWords(host) {
  if (host.heard_s_ago === null) return host.here ? "here" : "not yet";
  const ago = span(host.heard_s_ago);
  return host.heard_s_ago > 4 ? `not for ${ago}; its leases stay counted` : `${ago} ago`;
}

function reasonCell() {
  return {
    make: () => h("span.chip"),
    update: (chip, ask) => {
      say(chip, ask.alive === false ? "dead" : ask.reason);
      put(chip, "data-reason", ask.alive === false ? "dead" : ask.reason);
    },
  };
}

function releaseCell() {
  const rows = new WeakMap();
  return {
    make: () => {
      const button = h("button.small", { type: "button" }, "Release…");
      button.addEventListener("click", () => act.release(rows.get(button)));
      return button;
    },
    update: (button, lease) => {
      rows.set(button, lease);
      put(button, "aria-label", `Release ${who(lease)}…`);
      show(button, admin && releasable(lease));
    },
  };
}

function shareCell() {
  return {
    make: () => h("span.part", {}, h("i.use"), h("i.tick")),
    update: (bar, project) => {
      const [use, tick] = bar.children;
      use.style.inlineSize = `${(project.in_use / project.scale) * 100}%`;
      tick.style.insetInlineStart = `${(project.fair_share / project.scale) * 100}%`;
      put(bar, "data-over", project.in_use > project.fair_share);
    },
  };
}
