// Where on the map a way is lost, in so few words that they stand there.

import { failsOn, fatalOf, fit, hostId } from "../words.js";

/** On a phone a host is not wider. */
const MOST = { wide: 38, slim: 26 };
const DID = { DROP: "dropped", REJECT: "rejected" };

/**
 * @returns [{host, tone, rows}]: where no rule was for a Service's address, and where the packet, or its answer, gets no
 *   further; one if both are the same host
 */
export function stoppedAt(way, slim = false) {
  const most = slim ? MOST.slim : MOST.wide;
  const found = new Map();
  const say = (host, text) => found.set(hostId(host), [...(found.get(hostId(host)) ?? []), fit(text, most)]);
  const missing = way.untranslated;
  if (missing) say(way.there[missing.hop].host, `no rule for ${way.there[missing.hop].dst}`);
  const last = way[failsOn(way)]?.at(-1);
  if (last) say(last.host, whyAt(last, way, slim));
  return [...found].map(([host, rows]) => ({ host, tone: "lost", rows: rows.filter(Boolean) }));
}

function whyAt(hop, way, slim) {
  const fatal = fatalOf(hop);
  if (fatal) return `${DID[hop.verdict]}: ${fatal.chain} ${fatal.kind === "policy" ? "policy" : fatal.rule}`;
  // Why nobody takes it is that no rule was for it, which is said already.
  if (way.untranslated && hop.verdict === "ACCEPT") return `${slim ? `${hop.out}:` : `leaves by ${hop.out},`} nobody answers`;
  return way.reason.replace(/^the (answer|error): /, "").split(/[;:] |, and /)[0];
}
