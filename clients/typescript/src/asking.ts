/**
 * How a client gets its slots. It asks under one key, so that an answer that was lost is told again and
 * nothing starts twice:
 *
 *     201  ours             202  a ticket: wait for it           409  an earlier try is still being answered
 *     429  by the policy    503, no answer  by the policy        else  the caller's mistake, or the server's
 *     given up (timeout, abort): withdraw the ticket, or the lease that it just became
 */

import { AtCapacityError, PoolClosedError, StoreError, TooLargeError, UsageError, WaitTimeoutError } from "./errors.js";
import type { Refusal } from "./errors.js";
import { type Connection, GONE, GRACE_S, LOST, type Send, type ServiceResponse, retryAfterS } from "./http.js";
import { type Policy, delayS } from "./retry-policy.js";

const CLOSED_REASONS = new Set(["retry-after", "breaker", "trial", "fenced", "used-up-soon"]);
const LONGEST_NAP_S = 2_000_000;
const TRIES_TO_WITHDRAW = 5;

/** What to ask for. */
export interface LeaseRequest {
  readonly pool: string;
  readonly body: unknown;
  readonly timeoutS: number | undefined;
  readonly signal: AbortSignal | undefined;
}

/** A lease, as the server tells its holder. */
export interface ToldLease {
  readonly id: number;
  readonly pool: string;
  readonly project: string;
  readonly name: string;
  readonly slots: number;
  readonly ttl_s: number;
  readonly token: string;
}

/** One ask. One use. */
export class Asking {
  readonly #connection: Connection;
  readonly #wish: LeaseRequest;
  readonly #policy: Policy;
  readonly #path: string;
  readonly #beganS = monotonicS();
  #key = crypto.randomUUID();
  #attempt = 0;
  #refusedS = 0;
  /** Our place in line, or the lease that it became. */
  #place: ToldLease | undefined;
  /** A request was sent whose answer we do not know. */
  #isOpen = false;

  constructor(connection: Connection, wish: LeaseRequest, policy: Policy) {
    this.#connection = connection;
    this.#wish = wish;
    this.#policy = policy;
    this.#path = `/v1/pools/${encodeURIComponent(wish.pool)}/leases`;
  }

  async run(): Promise<ToldLease> {
    try {
      for (;;) {
        const lease = await this.#tryOnce();
        if (lease) return lease;
      }
    } catch (error) {
      // Whatever stops us, no place in line is left behind. The original error is what counts.
      await this.#leave().catch(() => undefined);
      throw error;
    }
  }

  /** The lease; undefined where it has to be asked for again. */
  async #tryOnce(): Promise<ToldLease | undefined> {
    const answer = await this.#ask();
    if (answer.status !== 201 && answer.status !== 202) {
      await this.#comeBack(answer);
      return undefined;
    }
    const place = toldLease(answer);
    this.#place = place;
    const isOurs =
      answer.status === 202
        ? await this.#standInLine(place, answer)
        : // What was granted to an earlier try may have ended before we heard of it.
          !answer.headers.has("idempotent-replayed") || (await this.#goesOn(place));
    if (isOurs) return place;
    this.#place = undefined;
    this.#key = crypto.randomUUID();
    return undefined;
  }

  async #ask(): Promise<ServiceResponse> {
    const waitS = this.#holdS();
    const headers: Record<string, string> = { "Idempotency-Key": this.#key };
    if (waitS >= 1) headers["Prefer"] = `wait=${Math.floor(waitS)}`;
    this.#isOpen = true;
    const answer = await this.#send({
      method: "POST",
      path: this.#path,
      body: this.#wish.body,
      headers,
      timeoutS: waitS + GRACE_S,
    });
    this.#isOpen = answer.status === LOST || answer.status === 409;
    return answer;
  }

  /** True: it became a lease. False: the place was lost. */
  async #standInLine(ticket: ToldLease, asked: ServiceResponse): Promise<boolean> {
    let answer = asked;
    const path = `/v1/tickets/${ticket.id}`;
    while (this.#leftS() !== 0) {
      const waitS = this.#holdS();
      const headers: Record<string, string> = { "Lease-Token": ticket.token };
      if (waitS >= 1) headers["Prefer"] = `wait=${Math.floor(waitS)}`;
      answer = await this.#send({ method: "GET", path, headers, timeoutS: waitS + GRACE_S });
      if (answer.status === 200 && answer.body["state"] === "held") return this.#goesOn(ticket);
      if (answer.status === 404) return false;
      if (answer.status !== 200) await this.#comeBack(answer);
      else if (waitS < 1) await nap(Math.min(0.1, this.#leftS() ?? 0.1), this.#wish.signal);
    }
    throw new WaitTimeoutError(sentence(answer), refusal(this.#wish.pool, answer), this.#wish.timeoutS ?? 0);
  }

  /** Say how long we need it from now; false where it is gone and has to be asked for anew. */
  async #goesOn(lease: ToldLease): Promise<boolean> {
    const path = `/v1/leases/${lease.id}/renew`;
    const headers = { "Lease-Token": lease.token };
    const answer = await this.#send({ method: "POST", path, body: { ttl_s: lease.ttl_s }, headers });
    return answer.status !== GONE;
  }

  /** Wait as the policy says, or throw. */
  async #comeBack(answer: ServiceResponse): Promise<void> {
    const { pool, timeoutS, signal } = this.#wish;
    if (![409, 429, 502, 503, 504, LOST].includes(answer.status)) throw errorFor(pool, answer);
    this.#attempt += 1;
    const waitS = delayS(this.#policy, this.#attempt, retryAfterS(answer), Math.random());
    const leftS = this.#leftS();
    if (waitS === undefined || this.#refusedS + waitS > this.#policy.budgetS) throw errorFor(pool, answer);
    if (leftS !== undefined && waitS > leftS) {
      if (answer.status === 429 && timeoutS) {
        throw new WaitTimeoutError(sentence(answer), refusal(pool, answer), timeoutS);
      }
      throw errorFor(pool, answer);
    }
    this.#refusedS += waitS;
    await nap(waitS, signal);
  }

  /** Give back the place in line, and a lease of which we were not told. */
  async #leave(): Promise<void> {
    if (this.#place) return this.#withdraw(this.#place);
    if (!this.#isOpen || !this.#wish.signal?.aborted) return;
    // Dropping the connection gave the place back. A slot that was handed to it just before is kept under
    // our key: asked again without a wait, the server tells of it, or says that it knows nothing (429).
    for (let attempt = 0; attempt < TRIES_TO_WITHDRAW; attempt += 1) {
      const headers = { "Idempotency-Key": this.#key };
      const send = { method: "POST", path: this.#path, body: this.#wish.body, headers } as const;
      const answer = await this.#connection.send(send);
      if (answer.status === 201 || answer.status === 202) return this.#withdraw(toldLease(answer));
      if (answer.status !== 409) return;
      await nap(0.2, undefined);
    }
  }

  async #withdraw(place: ToldLease): Promise<void> {
    const headers = { "Lease-Token": place.token };
    await this.#connection.send({ method: "DELETE", path: `/v1/tickets/${place.id}`, headers });
  }

  #send(send: Send): Promise<ServiceResponse> {
    return this.#connection.send({ ...send, signal: this.#wish.signal });
  }

  #holdS(): number {
    return Math.min(this.#policy.waitS, this.#leftS() ?? Infinity);
  }

  /** Until the caller's timeout; undefined where there is none. */
  #leftS(): number | undefined {
    const { timeoutS } = this.#wish;
    return timeoutS === undefined ? undefined : Math.max(0, this.#beganS + timeoutS - monotonicS());
  }
}

/** The error for an answer: whose turn it is. */
export function errorFor(pool: string, answer: ServiceResponse): Error {
  const words = sentence(answer);
  const told = refusal(pool, answer);
  if (answer.status === 429) {
    return CLOSED_REASONS.has(told.reason) ? new PoolClosedError(words, told) : new AtCapacityError(words, told);
  }
  if (answer.body["type"] === "urn:flyball:never") {
    return new TooLargeError(words, { ...told, reason: "too-large" });
  }
  if (answer.status === LOST || answer.status === 409 || answer.status >= 500) return new StoreError(words);
  return new UsageError(words);
}

function sentence(answer: ServiceResponse): string {
  const told = answer.body["detail"] ?? answer.body["words"];
  return String(told || answer.detail || `the server answered ${answer.status}`);
}

function refusal(pool: string, answer: ServiceResponse): Refusal {
  const told = answer.body;
  const number = (name: string) => (typeof told[name] === "number" ? told[name] : undefined);
  return {
    pool,
    reason: typeof told["reason"] === "string" ? told["reason"] : "queue",
    retryAfterS: number("estimate_s") ?? retryAfterS(answer),
    inUse: number("active") ?? 0,
    cap: number("limit") ?? 0,
    position: number("position") ?? (number("queued") ?? 0) + 1,
  };
}

function toldLease(answer: ServiceResponse): ToldLease {
  return answer.body as unknown as ToldLease;
}

/** Ends early, with the signal's reason, when that is aborted. */
function nap(forS: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const wake = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(
      () => {
        signal?.removeEventListener("abort", wake);
        resolve();
      },
      Math.min(forS, LONGEST_NAP_S) * 1000,
    );
    signal?.addEventListener("abort", wake, { once: true });
  });
}

function monotonicS(): number {
  return performance.now() / 1000;
}
