/**
 * A thin client for `flyball serve`: a slot of a pool, over HTTP.
 *
 *     const flyball = new Client("http://127.0.0.1:8790");
 *     await flyball.withSlot("gpu", { project: "blog" }, async (lease) => {
 *       ... // call the model
 *       await lease.report(200);
 *     });
 *
 * The words and the behaviour are those of the Python client (`flyball.client`):
 *
 *     errors.ts        whose turn it is: yours, the pool's, the server's
 *     retry-policy.ts  how to try again, changed without a release
 *     http.ts          one request, and what came of it
 *     asking.ts        the order of requests by which an ask becomes a lease, or an error
 *     client.ts        the client, and slots that are held
 */

export { Client, Lease } from "./client.js";
export type { AskOptions, ClientOptions, Outcome, Signal, SignalKind } from "./client.js";
export {
  AtCapacityError,
  FlyballError,
  PoolClosedError,
  RefusedError,
  StoreError,
  Throttled,
  TooLargeError,
  UsageError,
  WaitTimeoutError,
} from "./errors.js";
export type { Refusal } from "./errors.js";
export type { Policy } from "./retry-policy.js";
