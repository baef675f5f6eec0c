// What happened: the facts, newest first. Those about single asks come by the thousand, so they are kept apart from
// the moves of a pool, which are rare and never pushed out by them.

import { byId, h, keyed, put, say, show } from "./dom.js";
import { matches } from "./lists.js";
import { clock, counted, who } from "./words.js";

const ASK_KINDS = new Set(["granted", "refused", "gave up", "reclaimed", "unanswered", "held", "rests", "ended"]);
const TOLD = new Set(["open", "close", "person"]);
const MOST = 1000;
const FIRST_ROWS = 60;
const MORE_ROWS = 200;

const rowsAt = byId("facts");
const more = byId("facts-more");
const none = byId("facts-none");
const asksToo = byId("asks-too");
const asksTooWords = byId("asks-too-words");
let rows = FIRST_ROWS;

export class Facts {
  #moves = [];
  #asks = [];
  #number = 0;

  /** One that has just happened. */
  add(fact) {
    const kept = this.#dated(fact);
    const list = this.#listOf(kept);
    list.unshift(kept);
    list.length = Math.min(list.length, MOST);
  }

  /**
   * What the server remembers, newest first. It takes the place of what we knew of that time; what is older stays,
   * and so does what has come since it was asked.
   */
  catchUp(facts) {
    const told = facts.map((fact) => this.#dated(fact));
    const ids = new Set(facts.map((fact) => fact.id));
    const oldest = told.at(-1)?.at ?? Infinity;
    const [newest] = told;
    const stays = (fact) => fact.at < oldest || (fact.at > (newest?.at ?? 0) && !ids.has(fact.id));
    const all = [...told, ...this.#moves.filter(stays), ...this.#asks.filter(stays)].sort((a, b) => b.at - a.at);
    this.#moves = all.filter((fact) => !ASK_KINDS.has(fact.kind)).slice(0, MOST);
    this.#asks = all.filter((fact) => ASK_KINDS.has(fact.kind)).slice(0, MOST);
  }

  /** With its time in seconds of the server's clock, and a key of our own: the server's ids end with the server. */
  #dated(fact) {
    return { ...fact, at: Date.parse(fact.time) / 1000, key: ++this.#number };
  }

  #listOf(fact) {
    return ASK_KINDS.has(fact.kind) ? this.#asks : this.#moves;
  }

  /** Those about single asks. */
  get asks() {
    return this.#asks;
  }

  /** Newest first. */
  list(withAsks) {
    if (!withAsks) return this.#moves;
    return [...this.#moves, ...this.#asks].sort((a, b) => b.at - a.at).slice(0, MOST);
  }
}

/** Whether a fact is worth saying aloud when it happens. */
export function announced(fact) {
  return TOLD.has(fact.kind);
}

/** `view`: {facts, only, filter, many, ahead}. */
export function paintTimeline(view) {
  const shown = (fact) => (!view.only || fact.pool === view.only) && matches(fact, view.filter);
  const wanted = view.facts.list(asksToo.checked).filter(shown);
  const asks = view.facts.asks.filter(shown);
  const refused = asks.filter((fact) => fact.kind === "refused").length;
  keyed(rowsAt, wanted.slice(0, rows), {
    key: (fact) => fact.key,
    make,
    update: (item, fact) => update(item, fact, view),
  });
  say(asksTooWords, refused ? `asks too (${refused} refused)` : "asks too");
  show(none, wanted.length === 0);
  say(none, noneWords(view, asks.length, refused));
  show(more, wanted.length > rows);
  say(more, `Show ${Math.min(MORE_ROWS, wanted.length - rows)} older`);
}

/** What an empty list means: what is only hidden has happened all the same. */
function noneWords(view, asks, refused) {
  if (asks) {
    const refusals = refused ? `, ${counted(refused, "refusal")} among them` : "";
    return `${counted(asks, "fact")} about single asks${refusals}: tick “asks too” to see them.`;
  }
  if (view.only || view.filter) return "Nothing has happened here yet.";
  return "Nothing has happened yet: no cap has moved, and no ask was refused.";
}

export function listenToTimeline(repaint) {
  more.addEventListener("click", () => {
    rows += MORE_ROWS;
    repaint();
  });
  asksToo.addEventListener("change", () => {
    rows = FIRST_ROWS;
    repaint();
  });
}

function make(fact) {
  return h("li", { "data-kind": fact.kind },
    h("time"), h("span.chip", {}, fact.kind), h("span.about"), h("p", {}, fact.words));
}

function update(item, fact, view) {
  const [time, , about] = item.children;
  say(time, clock(fact.at + view.ahead));
  put(time, "datetime", fact.time);
  say(about, [view.many ? fact.pool : "", who(fact)].filter(Boolean).join(" · "));
}
