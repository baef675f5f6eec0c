/**
 * The class of an error says whose turn it is: you (`UsageError`), the normal no (`RefusedError`),
 * the world (`StoreError`). Errors carry fields as well as prose, so callers never parse a message.
 * A wait that its `AbortSignal` ends rejects with the signal's own reason.
 */

/** Base of everything this client throws on purpose. */
export class FlyballError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** The caller asked for something that makes no sense; the message names the way out. */
export class UsageError extends FlyballError {}

/** The server, or the state behind it, could not be reached. */
export class StoreError extends FlyballError {}

/** As much of a refusal as the server told. */
export interface Refusal {
  readonly pool: string;
  /** One word: `cap`, `queue`, `breaker`, ... */
  readonly reason: string;
  /** When asking again could help; undefined where it is not known. */
  readonly retryAfterS: number | undefined;
  readonly inUse: number;
  readonly cap: number;
  /** 1 is next in line. */
  readonly position: number;
}

/** No slot now. */
export class RefusedError extends FlyballError implements Refusal {
  readonly pool: string;
  readonly reason: string;
  readonly retryAfterS: number | undefined;
  readonly inUse: number;
  readonly cap: number;
  readonly position: number;

  constructor(message: string, refusal: Refusal) {
    super(message);
    this.pool = refusal.pool;
    this.reason = refusal.reason;
    this.retryAfterS = refusal.retryAfterS;
    this.inUse = refusal.inUse;
    this.cap = refusal.cap;
    this.position = refusal.position;
  }
}

/** No free slot for this ask, and the caller did not want to wait. */
export class AtCapacityError extends RefusedError {}

/** The pool admits no ask now: breaker open, trial running, or Retry-After not over. */
export class PoolClosedError extends RefusedError {}

/** The ask is larger than the pool can ever grant; waiting is useless. */
export class TooLargeError extends RefusedError {}

/** The caller's timeout passed while the ask was waiting. */
export class WaitTimeoutError extends RefusedError {
  readonly waitedS: number;

  constructor(message: string, refusal: Refusal, waitedS: number) {
    super(`gave up after ${waitedS} s, ${message}`, refusal);
    this.waitedS = waitedS;
  }
}

/** Throw it inside `withSlot` when the provider said to slow down in a way only you can read. */
export class Throttled extends FlyballError {
  readonly retryAfterS: number | undefined;

  constructor(message = "throttled", options: { retryAfterS?: number } = {}) {
    super(message);
    this.retryAfterS = options.retryAfterS;
  }
}
