// What a person may do here: set a cap, close a breaker, release what a dead process holds; and enter a token. Each
// is a dialog that says what will happen, does it only when confirmed, and stays open with the reason if it failed.

import { ask, token } from "./api.js";
import { byId, say } from "./dom.js";
import { counted, who } from "./words.js";

/**
 * Open a dialog; `confirm(form)` runs when it is confirmed and may throw. The focus goes back to where it was,
 * which the browser does for us.
 */
function open(id, { what = "", confirm }) {
  const dialog = byId(id);
  const wrong = dialog.querySelector(".wrong");
  const form = dialog.querySelector("form");
  const named = dialog.querySelector(".what");
  if (named) say(named, what);
  say(wrong, "");
  form.onsubmit = async (event) => {
    event.preventDefault();
    const button = form.querySelector("[type=submit]");
    button.disabled = true;
    try {
      await confirm(form);
      dialog.close();
    } catch (error) {
      say(wrong, [error.title ?? "That did not work", error.detail].filter(Boolean).join(": "));
    } finally {
      button.disabled = false;
    }
  };
  form.querySelector("[value=cancel]").onclick = () => dialog.close();
  dialog.showModal();
  return dialog;
}

/** `found(name)` gives a pool as it is now; `done(words)` tells the person. */
export function actions({ found, done }) {
  return {
    setCap(name) {
      const pool = found(name);
      if (!pool) return;
      const field = byId("cap-field");
      field.value = pool.cap;
      say(byId("cap-words"), capConsequences(pool));
      open("cap-dialog", {
        what: name,
        confirm: async () => {
          await ask(`pools/${encodeURIComponent(name)}`, { method: "PATCH", body: { cap: field.valueAsNumber } });
          done(`The cap of ${name} is set to ${field.value}.`);
        },
      });
      field.select();
    },
    reset(name) {
      open("reset-dialog", {
        what: name,
        confirm: async () => {
          await ask(`pools/${encodeURIComponent(name)}/reset`, { method: "POST" });
          done(`The breaker of ${name} is closed.`);
        },
      });
    },
    release(lease) {
      say(byId("release-words"), releaseConsequences(lease));
      open("release-dialog", {
        what: who(lease),
        confirm: async () => {
          await ask(`leases/${lease.id}`, { method: "DELETE" });
          done(`${who(lease)} is released.`);
        },
      });
    },
  };
}

function capConsequences(pool) {
  const moving = pool.adaptive
    ? `It adapts between ${pool.cap_floor} and ${pool.cap_ceiling}, and goes on from the new value.`
    : "It is fixed and stays where you put it.";
  return `${moving} Running work is never interrupted; a lower cap only holds back what starts next.`;
}

function releaseConsequences(lease) {
  const known = !lease.pid
    ? "It was asked for over HTTP; if its holder still works, the pool will run more than its cap."
    : lease.alive === false
    ? `Its process (pid ${lease.pid} on ${lease.host}) is dead.`
    : `Whether its process (pid ${lease.pid} on ${lease.host}) still runs cannot be told from here; if it does, the `
      + "pool will run more than its cap.";
  return `${known} ${counted(lease.slots, "slot")} of ${lease.pool.name} will go to the next in line.`;
}

/** Ask for a token; `use(value)` tries it. */
export function enterToken(use) {
  const field = byId("token-field");
  field.value = "";
  open("token-dialog", {
    confirm: async () => {
      await use(field.value.trim());
      field.value = "";
    },
  });
}

/** Try a token: kept only if the server knows it. */
export async function tryToken(value) {
  const before = token.get();
  token.set(value);
  try {
    await ask("whoami");
  } catch (error) {
    if (error.kind === "token" || error.kind === "scope") {
      token.set(before);
      throw Object.assign(error, { title: "This token is not accepted here", detail: error.detail });
    }
  }
}
