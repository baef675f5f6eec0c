/**
 * How a client tries again. A setting, not code: it is rolled back without a release.
 *
 *     none       a 429 is handed over at once
 *     fixed      come back after `baseS`, every time
 *     jittered   come back when the server said, or after a doubling wait; never together with others
 *
 * The first that says something decides: the caller's own `policy`, then `FLYBALL_CLIENT_POLICY` (a word,
 * or JSON such as `{"retry": "fixed", "base_s": 1}`), then what the server answers to `GET /v1/policy`.
 */

import { UsageError } from "./errors.js";

export const VARIABLE = "FLYBALL_CLIENT_POLICY";
const KINDS = ["none", "fixed", "jittered"] as const;

/** How to try again. What is left out is as it is out of the box. */
export interface Policy {
  readonly retry: (typeof KINDS)[number];
  readonly baseS: number;
  readonly capS: number;
  /** How long one ask may come back after refusals and outages, in all. */
  readonly budgetS: number;
  /** How long one request stands in line before it is sent again; at most 60. */
  readonly waitS: number;
}

export const DEFAULT_POLICY: Policy = { retry: "jittered", baseS: 0.5, capS: 30, budgetS: 120, waitS: 30 };

const MEMBERS: Readonly<Record<string, keyof Policy>> = {
  retry: "retry",
  base_s: "baseS",
  cap_s: "capS",
  budget_s: "budgetS",
  wait_s: "waitS",
};

/** How long to wait after a refusal; undefined: hand it over. */
export function delayS(
  policy: Policy,
  attempt: number,
  toldS: number | undefined,
  chance: number,
): number | undefined {
  if (policy.retry === "none") return undefined;
  if (policy.retry === "fixed") return policy.baseS;
  const backoffS = Math.min(policy.capS, policy.baseS * 2 ** Math.min(attempt - 1, 60));
  return (toldS ?? 0) + chance * backoffS;
}

/** What the environment says; undefined where it says nothing. */
export function namedPolicy(): Policy | undefined {
  const text = (process.env[VARIABLE] ?? "").trim();
  if (!text) return undefined;
  const isWord = (KINDS as readonly string[]).includes(text);
  const policy = isWord ? policyFrom({ retry: text }) : policyFrom(parsed(text));
  if (policy) return policy;
  throw new UsageError(
    `${VARIABLE} is not a retry policy; write none, fixed, jittered, or JSON such as {"retry": "fixed", "base_s": 1}`,
  );
}

/** A policy as the server and the environment write it; undefined for what is none. */
export function policyFrom(told: unknown): Policy | undefined {
  if (typeof told !== "object" || told === null || Array.isArray(told)) return undefined;
  const policy: Partial<Record<keyof Policy, unknown>> = { ...DEFAULT_POLICY };
  for (const [name, value] of Object.entries(told)) {
    const member = MEMBERS[name];
    if (!member) return undefined;
    policy[member] = value;
  }
  return isPolicy(policy) ? policy : undefined;
}

/** The caller's own policy, complete. */
export function checkedPolicy(given: Partial<Policy>): Policy {
  const policy = { ...DEFAULT_POLICY, ...given };
  if (isPolicy(policy)) return policy;
  throw new UsageError(
    "policy: retry is none, fixed or jittered; baseS, capS and budgetS are from 0 to 86400, waitS from 0 to 60",
  );
}

function isPolicy(policy: Partial<Record<keyof Policy, unknown>>): policy is Policy {
  const isWithin = (seconds: unknown, most: number) =>
    typeof seconds === "number" && seconds >= 0 && seconds <= most;
  return (
    (KINDS as readonly unknown[]).includes(policy.retry) &&
    [policy.baseS, policy.capS, policy.budgetS].every((seconds) => isWithin(seconds, 86_400)) &&
    isWithin(policy.waitS, 60)
  );
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
