// What the page says when it cannot show what is: whose turn it is, and the way out. With nothing to show yet it is
// the page; later it is a banner over what was last seen.

import { token } from "./api.js";
import { byId, say, show } from "./dom.js";
import { clock } from "./words.js";

export function troubleWords({ kind, title, detail }) {
  const server = location.origin;
  if (kind === "token") {
    return token.get()
      ? { title: "This token is not accepted here", words: detail || "It may have been revoked. Enter another one." }
      : { title: "This page needs a token", words: "The operator of this server can make one: flyball token add." };
  }
  if (kind === "scope") {
    return { title: "This may not be looked at", words: detail || "The token lacks the scope read." };
  }
  if (kind === "store") {
    return {
      title: "The server runs, but cannot read its state",
      words: `${detail || `${title}.`} On its machine, flyball doctor says more. The page tries again by itself.`,
    };
  }
  return {
    title,
    words: `Is flyball serve running at ${server}? Work that runs is not affected. The page tries again by itself.`,
  };
}

/** `blank`: nothing has been seen yet. */
export function paintTrouble({ link, trouble, blank, takenAt }) {
  show(byId("loading"), blank && !trouble);
  const came = byId("trouble").hidden;
  show(byId("trouble"), blank && Boolean(trouble));
  show(byId("banner"), !blank && Boolean(trouble));
  if (!trouble) return;
  const { title, words } = troubleWords(trouble);
  const locked = trouble.kind === "token" || trouble.kind === "scope";
  say(byId("trouble-title"), title);
  say(byId("trouble-words"), words);
  show(byId("trouble-form"), locked);
  show(byId("trouble-retry"), !locked);
  say(byId("banner-title"), title);
  say(byId("banner-words"), `This is the state of ${clock(takenAt / 1000)}. ${words}`);
  show(byId("banner-token"), locked);
  byId("banner-retry").disabled = link.is === "connecting";
  if (blank && came && locked && document.activeElement === document.body) byId("trouble-token").focus();
}
