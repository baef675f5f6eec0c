// The page, joined together: what the server says goes into one view, and the view is painted. Painting happens at
// most once a frame, and once a second so that ages and countdowns move; never while the page is hidden.

import { actions, enterToken, tryToken } from "./actions.js";
import { token } from "./api.js";
import { readColours } from "./chart.js";
import { byId, put, say, show } from "./dom.js";
import { History, range } from "./history.js";
import { paintTables } from "./lists.js";
import { Live } from "./live.js";
import { paintPools } from "./pools.js";
import { machineWords } from "./standing.js";
import { announced, Facts, listenToTimeline, paintTimeline } from "./timeline.js";
import { paintTrouble, troubleWords } from "./trouble.js";
import { counted } from "./words.js";

let beat = 0;
const seen = {
  status: null,
  takenAt: 0,
  link: { is: "connecting" },
  caller: { name: "", scope: "read" },
  facts: new Facts(),
  histories: new Map(),
  ahead: 0,
};

// -- hearing ------------------------------------------------------------------------------------------

const live = new Live({
  link(link) {
    // What the page shows in another place is only said to screen readers.
    if (link.trouble && link.trouble.kind !== seen.link.trouble?.kind) {
      announce(troubleWords(link.trouble).title, "quiet");
    }
    if (link.is === "live" && seen.link.trouble) announce("Connected again.");
    seen.link = link.is === "connecting" ? { ...link, trouble: seen.link.trouble } : link;
    repaint();
  },
  caller(caller) {
    seen.caller = caller;
  },
  ahead(seconds) {
    seen.ahead = seconds;
  },
  state(status) {
    seen.status = status;
    seen.takenAt = Date.now();
    put(byId("link"), "data-beat", (beat = 1 - beat));
    const names = new Set(status.pools.map((pool) => pool.name));
    for (const name of seen.histories.keys()) if (!names.has(name)) seen.histories.delete(name);
    for (const pool of status.pools) {
      if (!seen.histories.has(pool.name)) seen.histories.set(pool.name, new History());
    }
    sample();
    repaint();
  },
  fact(fact) {
    seen.facts.add(fact);
    if (announced(fact)) announce(`${fact.pool}: ${fact.words}`);
    repaint();
  },
  facts(facts) {
    seen.facts.catchUp(facts);
    repaint();
  },
  history({ time, pools }) {
    for (const columns of pools) {
      if (!seen.histories.has(columns.name)) seen.histories.set(columns.name, new History());
      seen.histories.get(columns.name).seed(time, columns, seen.ahead);
    }
    repaint();
  },
});

function sample() {
  for (const pool of seen.status?.pools ?? []) seen.histories.get(pool.name)?.add(pool, Date.now() / 1000);
}

// -- doing --------------------------------------------------------------------------------------------

const act = actions({
  found: (name) => seen.status?.pools.find((pool) => pool.name === name),
  done: announce,
});

async function useToken(value) {
  await tryToken(value);
  live.nudge();
  announce("The token is accepted.");
}

function announce(words, how = "shown") {
  const said = byId("said");
  said.textContent = words;
  put(said, "data-new", how === "shown");
  clearTimeout(announce.timer);
  announce.timer = setTimeout(() => put(said, "data-new", null), 6000);
}

// -- painting -----------------------------------------------------------------------------------------

let asked = false;

function repaint() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    const began = performance.now();
    paint();
    performance.clearMeasures("paint");
    performance.measure("paint", { start: began });
  });
}

function paint() {
  const { status, link } = seen;
  const trouble = link.is === "live" ? null : link.trouble;
  paintTrouble({ link, trouble, blank: status === null, takenAt: seen.takenAt });
  paintBar();
  show(byId("empty"), status !== null && status.pools.length === 0);
  show(byId("board"), status !== null && status.pools.length > 0);
  if (status === null) return;
  say(byId("empty-place"), placeWords(status.location));
  const view = viewOf(status);
  paintOnly(view.only);
  say(byId("machine"), machineWords(status.machine));
  paintPools(view, act);
  paintTables(view, act);
  paintTimeline(view);
}

/** The values to paint, narrowed to what the reader asked for. */
function viewOf(status) {
  const only = new URLSearchParams(location.hash.slice(1)).get("pool");
  const known = status.pools.some((pool) => pool.name === only);
  const now = Date.now();
  // What is not heard of any more does not grow older on the page either.
  const heard = seen.link.trouble ? seen.takenAt : now;
  return {
    ...seen,
    later: Math.max(0, (heard - seen.takenAt) / 1000),
    only: known ? only : "",
    many: status.pools.length > 1,
    pools: known ? status.pools.filter((pool) => pool.name === only) : status.pools,
    // Where no token is needed every visitor may act; this page still wants to be told on purpose.
    admin: token.get() !== "" && seen.caller.scope === "admin",
    filter: byId("filter").value.trim().toLowerCase(),
    range: range([...seen.histories.values()], chosenSpan(), now / 1000),
  };
}

function chosenSpan() {
  return Number(document.querySelector("#span input:checked").value);
}

function paintBar() {
  const { status, link } = seen;
  put(byId("link"), "data-is", link.is);
  const wait = Math.max(0, Math.ceil((link.nextAt - Date.now()) / 1000));
  const words = {
    connecting: "connecting",
    live: "live",
    outage: "no state",
    stopped: "needs a token",
    retrying: `trying again in ${wait} s`,
  };
  say(byId("link-words"), words[link.is]);
  say(byId("token-button"), token.get() ? `Forget the token ${seen.caller.name}` : "Enter a token");
  put(document.body, "data-stale", link.is !== "live" && status !== null && Boolean(link.trouble));
  if (status === null) return;
  const leases = status.pools.reduce((sum, pool) => sum + pool.leases.length, 0);
  const waiting = status.pools.reduce((sum, pool) => sum + pool.waiting, 0);
  const shut = status.pools.filter((pool) => pool.breaker === "open");
  say(byId("place"), placeWords(status.location));
  say(byId("sums"), `${counted(status.pools.length, "pool")}, ${leases} running, ${waiting} waiting`);
  const news = [shut[0] && `${shut[0].name} open`, waiting && `${waiting} waiting`, leases && `${leases} running`];
  const title = link.is === "live" ? news.find(Boolean) : "no connection";
  document.title = [title, "flyball"].filter(Boolean).join(" · ");
}

function paintOnly(only) {
  show(byId("only"), only !== "");
  say(byId("only-name"), only);
}

function placeWords(location) {
  return location.replace(/^sqlite:\/\//, "");
}

// -- listening to the reader --------------------------------------------------------------------------

function remembered(group, key, otherwise, change) {
  const inputs = [...byId(group).querySelectorAll("input")];
  const value = localStorage.getItem(key) ?? otherwise;
  (inputs.find((input) => input.value === value) ?? inputs[0]).checked = true;
  byId(group).addEventListener("change", (event) => {
    localStorage.setItem(key, event.target.value);
    change(event.target.value);
  });
}

remembered("theme", "flyball.theme", "auto", (value) => {
  document.documentElement.dataset.theme = value;
  readColours();
  repaint();
});
remembered("span", "flyball.span", "300", repaint);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  readColours();
  repaint();
});
addEventListener("hashchange", repaint);
byId("filter").addEventListener("input", repaint);
listenToTimeline(repaint);

byId("token-button").addEventListener("click", () => {
  if (!token.get()) return enterToken(useToken);
  token.set("");
  seen.caller = { name: "", scope: "read" };
  announce("The token is forgotten.");
  live.nudge();
});
byId("banner-token").addEventListener("click", () => enterToken(useToken));
for (const id of ["banner-retry", "trouble-retry"]) byId(id).addEventListener("click", () => live.nudge());
byId("trouble-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const field = byId("trouble-token");
  try {
    await useToken(field.value.trim());
    field.value = "";
  } catch (error) {
    announce(error.title);
    field.select();
  }
});

setInterval(() => {
  if (seen.link.is === "live") sample();
  if (!document.hidden) repaint();
}, 1000);
document.addEventListener("visibilitychange", repaint);

readColours();
live.run();
