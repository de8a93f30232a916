// What becomes of the packet of a witness on both sides, in a few words.

import { percent, ratio, splitPort, STOPPED, sum } from "../words.js";

/** So many destinations have a name each. */
const FEW = 4;

/** What becomes of a witness's packet on one side, as `kproxy diff`, `migrate` and `audit` have it. */
export const outcomesOf = (witness, side) => (side ? (witness?.b ?? witness?.then) : (witness?.a ?? witness?.today)) ?? [];

/** Before and after, in one line. */
export function Change({ witness, names, service = true }) {
  if (!outcomesOf(witness, 0).length || !outcomesOf(witness, 1).length) return null;
  return <><Fates witness={witness} side={0} names={names} service={service} /> <span class="arrow">→</span> <Fates witness={witness} side={1} names={names} service={service} /></>;
}

/** What one side does; `names` of addresses are for people; `service`: whether the packet is sent to one. */
export const Fates = ({ witness, side, names, service = true }) => (
  <span class="fates">
    {fatesOf(witness, side, names, service).map(({ kind, words, chance }) => <span key={words} class={`fate ${kind}`}>{ratio(chance) === 1 ? "" : `${percent(chance)} `}{words}</span>)}
  </span>
);

/** {kind: "ok", "bad", "open", or "here" where no Pod gets it, words, chance} of each; many endpoints are one. */
function fatesOf(witness, side, names, service) {
  const fates = outcomesOf(witness, side).map((outcome) => ({ ...fateOf(outcome, witness, names, service), chance: outcome.probability ?? outcome.chance }));
  const reached = fates.filter((each) => each.kind === "ok");
  if (reached.length <= FEW) return fates;
  return [{ kind: "ok", words: `${reached.length} endpoints`, chance: sum(reached.map((each) => each.chance)) }, ...fates.filter((each) => each.kind !== "ok")];
}

function fateOf(outcome, witness, names, service) {
  if (STOPPED[outcome.verdict]) return { kind: "bad", words: STOPPED[outcome.verdict] };
  if (outcome.verdict !== "ACCEPT") return { kind: "open", words: "open" };
  const [to] = splitPort(outcome.dst ?? "");
  const [from] = splitPort(outcome.src ?? "");
  const [sender] = splitPort(witness.src);
  if (outcome.local) return { kind: "here", words: "the node itself" };
  if (to === from) return { kind: "bad", words: `${names.get(to) ?? to}, from its own address` };
  const kept = outcome.dst === witness.dst;
  const words = kept ? (service ? "not translated" : "passed on") : (names.get(to) ?? outcome.dst);
  return { kind: !kept && names.has(to) ? "ok" : "here", words: from === sender ? words : `${words}, from ${from}` };
}
