// What the page asks of the server, and what went wrong with it, told apart by whose turn it is:
//
//   gone        no answer comes, or something else than flyball does
//   store       the server answers and cannot read its state (503)
//   token       a token is needed, or this one is not known (401)
//   scope       this may not be done with this token, or from here (403)
//   refused     the server understood and says no, with its reason
//
// The server says no in problem documents (RFC 9457); their `detail` is a sentence for people.
//
// The token lives in sessionStorage: it ends with the tab, and no other tab or site sees it. It is only ever put
// into the Authorization header of a request to where the page came from.

const KEY = "flyball.token";
const PATIENCE_MS = 10_000;

export class Trouble extends Error {
  constructor(kind, title, detail = "") {
    super(title);
    Object.assign(this, { kind, title, detail });
  }
}

export const token = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

/** One request; the answer if it is a good one, otherwise a Trouble. */
export async function ask(path, { method = "GET", body, signal } = {}) {
  const headers = new Headers();
  if (token.get()) headers.set("authorization", `Bearer ${token.get()}`);
  if (body !== undefined) headers.set("content-type", "application/json");
  let answer;
  try {
    answer = await fetch(`v1/${path}`, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ?? AbortSignal.timeout(PATIENCE_MS),
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Trouble("gone", "flyball does not answer");
  }
  if (answer.ok) return answer;
  throw await troubleOf(answer);
}

export async function json(path, options) {
  const answer = await ask(path, options);
  try {
    return await answer.json();
  } catch {
    throw new Trouble("gone", "What answers here is not flyball");
  }
}

async function troubleOf(answer) {
  const problem = await answer.json().catch(() => ({}));
  const title = typeof problem.title === "string" ? problem.title : `HTTP ${answer.status}`;
  const detail = typeof problem.detail === "string" ? sentence(problem.detail) : "";
  return new Trouble(kindOf(answer.status), title, detail);
}

/** Words of the server as a sentence of their own. */
export function sentence(words) {
  const begun = words.replace(/^[a-z]+(?=[ ,])/, (word) => word[0].toUpperCase() + word.slice(1));
  return begun && `${begun}${/[.!?]$/.test(begun) ? "" : "."}`;
}

function kindOf(status) {
  if (status === 401) return "token";
  if (status === 403) return "scope";
  if (status === 503) return "store";
  return status === 502 || status === 504 ? "gone" : "refused";
}
