/**
 * The TypeScript client under a test's hand: each line of stdin is a command, each line of stdout an event.
 *
 *     {"do": "acquire", "as": "a", "pool": "p", "options": {...}}    held, or an error with its fields
 *     {"do": "abort" | "release" | "report" | "using" | "work" | "end", "as": "a", ...}
 */

import { createInterface } from "node:readline";

import { Client, type AskOptions, type ClientOptions, type Lease, type Outcome, Throttled } from "@flyball/client";

interface Command {
  readonly do: "acquire" | "abort" | "release" | "report" | "using" | "work" | "end";
  readonly as: string;
  readonly pool: string;
  readonly options?: Omit<AskOptions, "signal" | "onLost">;
  readonly outcome?: Outcome;
  readonly status?: number;
  readonly headers?: Record<string, string>;
  readonly fails?: "throttled" | "error";
}

const client = new Client(process.argv[2] ?? "", JSON.parse(process.argv[3] ?? "{}") as ClientOptions);
const leases = new Map<string, Lease>();
const stops = new Map<string, AbortController>();

function tell(event: string, command: Command, fields: object = {}): void {
  console.log(JSON.stringify({ event, as: command.as, ...fields }));
}

async function obey(command: Command): Promise<void> {
  const { as, pool, options = {} } = command;
  switch (command.do) {
    case "acquire": {
      const stop = new AbortController();
      stops.set(as, stop);
      const onLost = (lease: Lease) => tell("lost", command, { lost: lease.lost });
      const lease = await client.acquire(pool, { ...options, signal: stop.signal, onLost });
      leases.set(as, lease);
      return tell("held", command, { id: lease.id });
    }
    case "abort":
      return stops.get(as)?.abort();
    case "release":
      await leases.get(as)?.release(command.outcome);
      return tell("released", command);
    case "report":
      await leases.get(as)?.report(command.status ?? 200, command.headers);
      return tell("reported", command);
    case "using": {
      await using lease = await client.acquire(pool, options);
      return tell("in block", command, { id: lease.id });
    }
    case "work": {
      const done = await client.withSlot(pool, options, (lease) => {
        if (command.fails === "throttled") throw new Throttled("slow down", { retryAfterS: 7 });
        if (command.fails) throw new Error("it broke");
        return lease.id;
      });
      return tell("done", command, { id: done });
    }
    case "end":
      client.close();
      return commands.close();
  }
}

const commands = createInterface({ input: process.stdin });
commands.on("line", (line) => {
  const command = JSON.parse(line) as Command;
  obey(command).catch((error: Error) => tell("error", command, { ...error, name: error.name, message: error.message }));
});
