/** One request to the server, and what came of it. A request that gets no answer is an answer, too: `LOST`. */

import { FlyballError } from "./errors.js";

/** The status of a request that got no answer. */
export const LOST = 0;
export const GONE = 410;
/** How much longer than the server holds a request open we wait for its answer. */
export const GRACE_S = 10;

export interface Send {
  readonly method: "GET" | "POST" | "DELETE";
  readonly path: string;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  readonly timeoutS?: number;
  /** Ends the request early; its reason is thrown. */
  readonly signal?: AbortSignal | undefined;
}

export interface ServiceResponse {
  readonly status: number;
  readonly headers: Headers;
  readonly body: Readonly<Record<string, unknown>>;
  /** Why there is none. */
  readonly detail: string;
}

export class Connection {
  readonly #url: string;
  readonly #headers: Readonly<Record<string, string>>;

  constructor(url: string, token: string | undefined) {
    this.#url = url;
    this.#headers = token ? { Authorization: `Bearer ${token}` } : {};
  }

  async send(send: Send): Promise<ServiceResponse> {
    send.signal?.throwIfAborted();
    const headers: Record<string, string> = { ...this.#headers, ...send.headers };
    if (send.body !== undefined) headers["Content-Type"] = "application/json";
    // Not `AbortSignal.any`: it came with Node 20.3.
    const ending = new AbortController();
    const end = () => ending.abort();
    const timer = setTimeout(end, (send.timeoutS ?? GRACE_S) * 1000);
    send.signal?.addEventListener("abort", end);
    try {
      const answer = await fetch(this.#url + send.path, {
        method: send.method,
        headers,
        body: send.body === undefined ? null : JSON.stringify(send.body),
        signal: ending.signal,
      });
      return response(answer, await answer.text());
    } catch (error) {
      if (error instanceof FlyballError) throw error;
      send.signal?.throwIfAborted();
      const detail = `the server does not answer (${words(error)})`;
      return { status: LOST, headers: new Headers(), body: {}, detail };
    } finally {
      clearTimeout(timer);
      send.signal?.removeEventListener("abort", end);
    }
  }
}

/** When the server said to come back. */
export function retryAfterS(answer: ServiceResponse): number | undefined {
  const toldMs = answer.body["retry_after_ms"];
  if (typeof toldMs === "number") return toldMs / 1000;
  const text = answer.headers.get("retry-after") ?? "";
  return /^\d+$/.test(text) ? Number(text) : undefined;
}

function response(answer: Response, text: string): ServiceResponse {
  let body: unknown = {};
  try {
    body = text ? JSON.parse(text) : {};
  } catch (error) {
    // A proxy says in words of its own that the server is away.
    if (answer.status < 500) {
      throw new FlyballError(
        `what answers at that address is not a flyball server (status ${answer.status})`,
        { cause: error },
      );
    }
  }
  const isObject = typeof body === "object" && body !== null && !Array.isArray(body);
  const members = isObject ? (body as Record<string, unknown>) : {};
  return { status: answer.status, headers: answer.headers, body: members, detail: "" };
}

/** The cause in one word: `fetch` itself only says that it failed. */
function words(error: unknown): string {
  const cause = error instanceof Error ? (error.cause ?? error) : error;
  if (typeof cause === "object" && cause !== null) {
    if ("code" in cause && typeof cause.code === "string") return cause.code;
    if ("name" in cause && typeof cause.name === "string") return cause.name;
  }
  return String(cause);
}
