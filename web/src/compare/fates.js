// What becomes of the packet of a witness on one side, in a few words.

import { splitPort } from "../words.js";

const STOPPED = { DROP: "dropped", REJECT: "refused" };

/** What becomes of a witness's packet on one side, as `kproxy diff` and `kproxy migrate` have it. */
export const outcomesOf = (witness, side) => (side ? (witness?.b ?? witness?.then) : (witness?.a ?? witness?.today)) ?? [];

/**
 * The fates of a witness's packet.
 *
 * @param names of addresses, for people
 * @returns {kind: "ok", "bad", "open", or "here" where it is the node's or nobody's, words, chance} of each
 */
export function fatesOf(witness, side, names) {
  return outcomesOf(witness, side).map((outcome) => ({ ...fateOf(outcome, witness, names), chance: outcome.probability ?? outcome.chance }));
}

function fateOf(outcome, witness, names) {
  if (STOPPED[outcome.verdict]) return { kind: "bad", words: STOPPED[outcome.verdict] };
  if (outcome.verdict !== "ACCEPT") return { kind: "open", words: "open" };
  const [to] = splitPort(outcome.dst ?? "");
  const [from] = splitPort(outcome.src ?? "");
  const [sender] = splitPort(witness.src);
  if (outcome.local) return { kind: "here", words: "the node itself" };
  if (to === from) return { kind: "bad", words: `${names.get(to) ?? to}, from its own address` };
  const kept = outcome.dst === witness.dst;
  const words = kept ? "passed on as it is" : (names.get(to) ?? outcome.dst);
  return { kind: kept ? "here" : "ok", words: from === sender ? words : `${words}, from ${from}` };
}
