// What a change of the mode does to a packet: whether it still arrives.

import { percentOf, ratio } from "../words.js";
import { fatesOf, outcomesOf } from "./fates.jsx";

const NO_NAMES = new Map();
const UNKNOWN = { tone: "open", words: "depends on that rule" };

/**
 * @param part of a card
 * @returns {tone: "bad" where what arrived does so no longer, or a host is open to what was kept out, "changed", "quiet" where nobody is reached on either side, "open" where no
 *   packet shows it; words}
 */
export function harmOf({ witness, services }) {
  const [was, is] = [0, 1].map((side) => (outcomesOf(witness, side).length ? fatesOf(witness, side, NO_NAMES, services.length > 0) : null));
  if (!was || !is) return UNKNOWN;
  const [before, after] = [was, is].map(reaching);
  if (after < before) return { tone: "bad", words: after ? `${percentOf(before - after)} no longer arrives` : "no longer arrives" };
  if (after > before) return { tone: "changed", words: "arrives now" };
  if (before) return { tone: "changed", words: otherwise(witness) };
  const [got, gets] = [was, is].map((fates) => fates.some((fate) => fate.arrives));
  if (got && !gets) return { tone: "bad", words: `now ${is[0].words}` };
  if (gets && !got) return outcomesOf(witness, 1).some((outcome) => outcome.local) ? { tone: "bad", words: "now reaches the node" } : { tone: "changed", words: "now passed on" };
  const [refused, refuses] = [was, is].map((fates) => fates.every((fate) => fate.words === "refused"));
  return { tone: "quiet", words: refuses && !refused ? "refused, where it timed out" : refused && !refuses ? "times out, where it was refused" : "fails otherwise" };
}

const reaching = (fates) => fates.reduce((total, fate) => total + (fate.kind === "ok" ? ratio(fate.chance) : 0), 0);

/** What is another where as much arrives. */
function otherwise(witness) {
  const of = (name) => [0, 1].map((side) => JSON.stringify(outcomesOf(witness, side).map((outcome) => outcome[name]).sort()));
  const [[to, toThen], [from, fromThen]] = [of("dst"), of("src")];
  return to !== toThen ? "arrives elsewhere" : from !== fromThen ? "arrives with another source" : "another source port";
}
