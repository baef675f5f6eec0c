/**
 * The client, and slots that are held. A client is safe to share.
 *
 * Each lease is renewed three times in its time to live, by a timer. A renewal that fails is tried again soon;
 * a missed one is harmless as long as one comes in time. Timers need the event loop: work that blocks it for
 * longer than `ttlS` loses its lease. A lease that the server has taken back is told: `lease.lost`, and
 * `onLost`. Running work is never interrupted.
 *
 * Credentials go into one header and nowhere else: not into messages or logs.
 */

import { existsSync } from "node:fs";
import { basename, dirname, join } from "node:path";

import { Asking, type ToldLease, errorFor } from "./asking.js";
import { Throttled, UsageError } from "./errors.js";
import { Connection, GONE, LOST, type ServiceResponse } from "./http.js";
import { DEFAULT_POLICY, type Policy, checkedPolicy, namedPolicy, policyFrom } from "./retry-policy.js";

const BEATS = 3;
const AGAIN_S = 1;
const LONGEST_BEAT_S = 86_400;
const POLICY_KEPT_MS = 60_000;
const TRIES_TO_RELEASE = 3;
const NAME_LIMIT = 200;

const OUTCOMES = ["finished", "throttled", "failed", "abandoned"] as const;
/** How the work under a lease ended. */
export type Outcome = (typeof OUTCOMES)[number];

/** What a provider said, in one word. */
export type SignalKind = "ok" | "throttled" | "overloaded" | "timeout" | (string & {});

/** What a provider said, read by you. */
export interface Signal {
  readonly kind: SignalKind;
  readonly retryAfterS?: number;
  readonly detail?: string;
}

export interface ClientOptions {
  /** From `flyball token add`; not needed on the server's own machine. */
  readonly token?: string;
  /** A lease ends so long after its last renewal; 60 by default. */
  readonly ttlS?: number;
  /** How to try again; otherwise `FLYBALL_CLIENT_POLICY`, and then what the server says. */
  readonly policy?: Partial<Policy>;
}

/** What to ask for. Everything may be left out. */
export interface AskOptions {
  /** Who competes for fairness; the name of the git checkout's folder if not given. */
  readonly project?: string;
  /** The task's name in status and messages; the program and its pid if not given. */
  readonly name?: string;
  readonly slots?: number;
  /** Higher first; above 0 may use the reserve. */
  readonly priority?: number;
  readonly model?: string;
  /** What the call is expected to use of the pool's windows, such as `{ tokens: 1200 }`. */
  readonly cost?: Readonly<Record<string, number>>;
  /** How long to wait, at most; without it for ever. 0: now, or a `RefusedError`. */
  readonly timeoutS?: number;
  /** Ends the wait and leaves no place in line behind. It does not end a lease that was granted. */
  readonly signal?: AbortSignal;
  /** Called once where the server takes the lease back. */
  readonly onLost?: (lease: Lease) => void;
}

/** Asks a server for slots. */
export class Client {
  readonly url: string;
  readonly ttlS: number;
  readonly #connection: Connection;
  readonly #policy: Policy | undefined;
  readonly #held = new Set<Lease>();
  #told: Policy | undefined;
  #toldAtMs = -Infinity;

  constructor(url: string, options: ClientOptions = {}) {
    if (!/^https?:\/\//.test(url)) {
      throw new UsageError(`the address of a server begins with http:// or https://, not ${JSON.stringify(url.slice(0, 40))}`);
    }
    this.url = url.replace(/\/+$/, "");
    this.ttlS = options.ttlS ?? 60;
    this.#connection = new Connection(this.url, options.token);
    this.#policy = options.policy && checkedPolicy(options.policy);
  }

  /** Slots, to be released: by `release`, or by `await using`. */
  async acquire(pool: string, options: AskOptions = {}): Promise<Lease> {
    const body = this.#body(options);
    const { timeoutS, signal, onLost } = options;
    signal?.throwIfAborted();
    const wish = { pool, body, timeoutS, signal };
    const told = await new Asking(this.#connection, wish, await this.policy()).run();
    const lease = new Lease(this.#connection, told, onLost, (ended) => this.#held.delete(ended));
    this.#held.add(lease);
    return lease;
  }

  /** Runs `work` under a lease, which is released as it ends: finished, or failed where it throws. */
  async withSlot<T>(pool: string, work: (lease: Lease) => Promise<T> | T): Promise<T>;
  async withSlot<T>(pool: string, options: AskOptions, work: (lease: Lease) => Promise<T> | T): Promise<T>;
  async withSlot<T>(
    pool: string,
    first: AskOptions | ((lease: Lease) => Promise<T> | T),
    second?: (lease: Lease) => Promise<T> | T,
  ): Promise<T> {
    const [options, work] = typeof first === "function" ? [{}, first] : [first, second];
    if (!work) throw new UsageError("withSlot needs the work to do: withSlot(pool, options, async (lease) => ...)");
    const lease = await this.acquire(pool, options);
    let result: T;
    try {
      result = await work(lease);
    } catch (error) {
      // The caller's own error goes on up, whatever fails besides.
      if (error instanceof Throttled) await lease.report(throttle(error)).catch(() => undefined);
      // Being stopped from outside says nothing about the work.
      await lease.release(options.signal?.aborted ? "abandoned" : "failed").catch(() => undefined);
      throw error;
    }
    await lease.release();
    return result;
  }

  /** How it tries again now. */
  async policy(): Promise<Policy> {
    const named = this.#policy ?? namedPolicy();
    if (named) return named;
    if (!this.#told || Date.now() - this.#toldAtMs >= POLICY_KEPT_MS) {
      const answer = await this.#connection.send({ method: "GET", path: "/v1/policy" });
      // An older server, or one that does not answer, says nothing: then the defaults hold.
      this.#told = (answer.status === 200 && policyFrom(answer.body)) || DEFAULT_POLICY;
      this.#toldAtMs = Date.now();
    }
    return this.#told;
  }

  /** Stop renewing. Leases that are still held end with their time. */
  close(): void {
    for (const lease of this.#held) stopRenewing(lease);
    this.#held.clear();
  }

  #body(options: AskOptions): Record<string, unknown> {
    const { timeoutS } = options;
    if (timeoutS !== undefined && !(typeof timeoutS === "number" && timeoutS >= 0)) {
      throw new UsageError(`timeoutS must be 0 or more seconds, or left out to wait for ever; not ${String(timeoutS)}`);
    }
    const body: Record<string, unknown> = {
      project: options.project ?? defaultProject(),
      name: options.name ?? defaultName(),
      slots: options.slots ?? 1,
      priority: options.priority ?? 0,
      ttl_s: this.ttlS,
    };
    if (options.model) body["model"] = options.model;
    if (options.cost) body["cost"] = options.cost;
    return body;
  }
}

let stopRenewing: (lease: Lease) => void;

/** Slots of a pool, held until released; renewed meanwhile. */
export class Lease {
  static {
    stopRenewing = (lease) => lease.#stop();
  }

  readonly id: number;
  readonly pool: string;
  readonly project: string;
  readonly name: string;
  readonly slots: number;
  readonly ttlS: number;
  readonly #connection: Connection;
  readonly #token: string;
  readonly #onLost: ((lease: Lease) => void) | undefined;
  readonly #onEnd: (lease: Lease) => void;
  #isLost = false;
  #isReleased = false;
  #hasReported = false;
  #timer: NodeJS.Timeout | undefined;

  /** @internal */
  constructor(
    connection: Connection,
    told: ToldLease,
    onLost: ((lease: Lease) => void) | undefined,
    onEnd: (lease: Lease) => void,
  ) {
    this.#connection = connection;
    this.id = told.id;
    this.pool = told.pool;
    this.project = told.project;
    this.name = told.name;
    this.slots = told.slots;
    this.ttlS = told.ttl_s;
    this.#token = told.token;
    this.#onLost = onLost;
    this.#onEnd = onEnd;
    this.#renewIn(this.ttlS / BEATS);
  }

  /** The server took it back: it was not renewed in time, or it was released elsewhere. */
  get lost(): boolean {
    return this.#isLost;
  }

  /** Tell the pool what the provider said: an HTTP status with headers and body, or a signal. */
  async report(
    status: number | Signal,
    headers: Headers | Readonly<Record<string, string>> = {},
    body = "",
  ): Promise<void> {
    const first = !this.#hasReported;
    this.#hasReported = true;
    const answer = await this.#tell("signals", { ...said(status, headers, body), first });
    if (answer.status < 200 || answer.status >= 300) throw errorFor(this.pool, answer);
  }

  /** Give the slots back. A second call does nothing. `words`: how it ended, for `flyball why`. */
  async release(outcome: Outcome = "finished", options: { words?: string } = {}): Promise<void> {
    if (!OUTCOMES.includes(outcome)) {
      throw new UsageError(`outcome must be one of ${OUTCOMES.join(", ")}, not ${JSON.stringify(outcome)}`);
    }
    if (this.#isReleased) return;
    this.#isReleased = true;
    this.#stop();
    const body = { outcome, words: (options.words ?? "").slice(0, 1000) };
    // Saying it again changes nothing. A server that cannot be reached takes the slots back by itself.
    for (let attempt = 0; attempt < TRIES_TO_RELEASE; attempt += 1) {
      if ((await this.#tell("release", body)).status !== LOST) return;
    }
  }

  /** `await using lease = await client.acquire(...)`: released as the block ends. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  #renewIn(seconds: number): void {
    this.#timer = setTimeout(() => void this.#renew(), Math.min(seconds, LONGEST_BEAT_S) * 1000);
    // A lease that was forgotten does not keep a program from its end.
    this.#timer.unref();
  }

  async #renew(): Promise<void> {
    const timer = this.#timer;
    let status = LOST;
    try {
      status = (await this.#tell("renew", { ttl_s: this.ttlS })).status;
    } catch {
      // Something between us and the server answered in its place.
    }
    if (this.#timer !== timer || timer === undefined) return;
    if (status === GONE) {
      this.#stop();
      this.#isLost = true;
      try {
        this.#onLost?.(this);
      } catch (error) {
        process.emitWarning(`onLost of lease ${this.id} of ${this.pool} failed: ${String(error)}`);
      }
      return;
    }
    const beatS = this.ttlS / BEATS;
    this.#renewIn(status === 200 ? beatS : Math.min(AGAIN_S, beatS / 4));
  }

  #stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#onEnd(this);
  }

  #tell(verb: string, body: unknown): Promise<ServiceResponse> {
    const headers = { "Lease-Token": this.#token };
    return this.#connection.send({ method: "POST", path: `/v1/leases/${this.id}/${verb}`, body, headers });
  }
}

function said(
  status: number | Signal,
  headers: Headers | Readonly<Record<string, string>>,
  body: string,
): Record<string, unknown> {
  if (typeof status === "number") {
    const lines = headers instanceof Headers ? Object.fromEntries(headers) : headers;
    return { status, headers: lines, body: body.slice(0, 16_384) };
  }
  const told: Record<string, unknown> = { kind: status.kind, detail: (status.detail ?? "").slice(0, 1000) };
  if (status.retryAfterS !== undefined) told["retry_after_s"] = status.retryAfterS;
  return told;
}

function throttle(error: Throttled): Signal {
  const { message: detail, retryAfterS } = error;
  return { kind: "throttled", detail, ...(retryAfterS === undefined ? {} : { retryAfterS }) };
}

/** The git checkout that this program runs in, or else its folder. */
function defaultProject(): string {
  const here = process.cwd();
  for (let folder = here; ; folder = dirname(folder)) {
    if (existsSync(join(folder, ".git"))) return basename(folder).slice(0, NAME_LIMIT) || "node";
    if (dirname(folder) === folder) return basename(here).slice(0, NAME_LIMIT) || "node";
  }
}

function defaultName(): string {
  return `${basename(process.argv[1] ?? "node").slice(0, NAME_LIMIT - 12)}-${process.pid}`;
}
