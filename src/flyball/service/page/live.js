// The connection: one session after the other, for as long as the page is open.
//
//   connecting --state--> live --ended, silent--> retrying --timer, nudge--> connecting
//        |                |  ^                        ^
//        |        outage  v  | state                  |      token, scope: stopped until a nudge
//        |               outage                       |
//        +------------------ trouble -----------------+
//
// A session asks who we are and how things are first, because the status code says what is wrong, and then listens.
// Whatever has been shown stays on the page while the server does not answer; `link` says how old it is. A stream that says
// nothing for a while is not believed: the state is asked for, and if that fails the session is over.

import { ask, json, sentence, Trouble } from "./api.js";
import { events } from "./stream.js";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15_000;
const SILENCE_MS = 20_000;
const CONNECT_MS = 10_000;
export const FACTS = 500;
export const HISTORY_S = 900;

/** How many seconds our clock is ahead of the server's; 0 where that is only rounding. */
function ahead(answer) {
  const theirs = Date.parse(answer.headers.get("date") ?? "") / 1000;
  const seconds = Date.now() / 1000 - theirs;
  return Math.abs(seconds) > 2 ? seconds : 0;
}

function told(data) {
  return sentence(String(JSON.parse(data).detail ?? ""));
}

export class Live {
  #hear;
  #session = new AbortController();
  #wake = () => {};
  #nudged = false;
  #tries = 0;
  #heardAt = 0;

  /** `hear` has: link(how), caller(who), ahead(seconds), state(status), fact(fact), facts(list), history(view). */
  constructor(hear) {
    this.#hear = hear;
    setInterval(() => this.#doubt(), SILENCE_MS / 4);
    addEventListener("online", () => this.nudge());
    // A page that the browser keeps for the way back would keep its connection, of which there are only a few.
    addEventListener("pagehide", () => this.#session.abort());
    addEventListener("pageshow", ({ persisted }) => persisted && this.nudge());
    document.addEventListener("visibilitychange", () => document.hidden || this.#wake());
  }

  /** Begin a new session now: a person asks for it, or the token is another one. */
  nudge() {
    this.#tries = 0;
    this.#nudged = true;
    this.#session.abort();
    this.#wake();
  }

  async run() {
    for (;;) {
      this.#nudged = false;
      this.#hear.link({ is: "connecting" });
      const trouble = await this.#one();
      // A session that was ended to begin another one is not an error.
      if (this.#nudged) continue;
      const stopped = trouble.kind === "token" || trouble.kind === "scope";
      const wait = stopped ? Infinity : this.#backoff();
      this.#hear.link({ is: stopped ? "stopped" : "retrying", trouble, nextAt: Date.now() + wait });
      await this.#pause(wait);
    }
  }

  #backoff() {
    const wait = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** this.#tries++);
    return wait * (0.75 + Math.random() / 2);
  }

  #pause(ms) {
    return new Promise((resolve) => {
      this.#wake = resolve;
      if (ms !== Infinity) setTimeout(resolve, ms);
    });
  }

  /** One session from beginning to end; what ended it. */
  async #one() {
    this.#session = new AbortController();
    const { signal } = this.#session;
    const guard = setTimeout(() => this.#session.abort(), CONNECT_MS);
    try {
      await this.#look();
      const stream = await ask("events", { signal });
      clearTimeout(guard);
      this.#hear.link({ is: "live" });
      this.#catchUp(signal);
      for await (const { event, data } of events(stream.body)) this.#take(event, data);
      return new Trouble("gone", "flyball has closed the connection");
    } catch (error) {
      return error instanceof Trouble ? error : new Trouble("gone", "flyball does not answer");
    } finally {
      clearTimeout(guard);
      this.#session.abort();
    }
  }

  async #look() {
    this.#hear.caller(await json("whoami"));
    const answer = await ask("status");
    const status = await answer.json().catch(() => null);
    if (!Array.isArray(status?.pools)) throw new Trouble("gone", "What answers here is not flyball");
    this.#hear.ahead(ahead(answer));
    this.#state(status);
  }

  #state(status) {
    this.#heardAt = Date.now();
    this.#tries = 0;
    this.#hear.state(status);
  }

  #take(event, data) {
    this.#heardAt = Date.now();
    if (event === "state") {
      this.#hear.link({ is: "live" });
      this.#state(JSON.parse(data));
    }
    if (event === "fact") this.#hear.fact(JSON.parse(data));
    if (event === "outage") this.#hear.link({ is: "outage", trouble: new Trouble("store", "", told(data)) });
    if (event === "end") throw new Trouble("gone", "flyball serve is stopping", told(data));
  }

  /** What happened before we listened. Without it the page still shows what is now. */
  async #catchUp(signal) {
    try {
      this.#hear.facts((await json(`facts?limit=${FACTS}`, { signal })).facts);
      this.#hear.history(await json(`history?seconds=${HISTORY_S}`, { signal }));
    } catch {
      // The next session asks again.
    }
  }

  async #doubt() {
    if (this.#session.signal.aborted || Date.now() - this.#heardAt < SILENCE_MS) return;
    try {
      await this.#look();
    } catch {
      this.#session.abort();
    }
  }
}
