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

/**
 * What becomes of a witness's packet on one side; many endpoints are one.
 *
 * @returns [{kind: "ok", "bad", "open", or "here" where no Pod gets it, words, chance, arrives}]: `arrives` is whether anybody
 *   gets it, as what is sent to a Service's address and not translated is got by nobody; `short`: the words without its source
 */
export function fatesOf(witness, side, names, service) {
  const fates = outcomesOf(witness, side).map((outcome) => ({ ...fateOf(outcome, witness, names, service), chance: outcome.probability ?? outcome.chance }));
  const reached = fates.filter((each) => each.kind === "ok");
  if (reached.length <= FEW) return fates;
  return [{ kind: "ok", words: `${reached.length} endpoints`, chance: sum(reached.map((each) => each.chance)), arrives: true }, ...fates.filter((each) => each.kind !== "ok")];
}

function fateOf(outcome, witness, names, service) {
  if (STOPPED[outcome.verdict]) return { kind: "bad", words: STOPPED[outcome.verdict], arrives: false };
  if (outcome.verdict !== "ACCEPT") return { kind: "open", words: "open", arrives: false };
  const [to] = splitPort(outcome.dst ?? "");
  const [from] = splitPort(outcome.src ?? "");
  const [sender] = splitPort(witness.src);
  const kept = outcome.dst === witness.dst;
  if (outcome.local) return { kind: kept ? "here" : "ok", words: "the node’s own programs", short: kept ? "the node’s programs, if any" : "the node’s own programs", arrives: true };
  if (to === from) return { kind: "bad", words: `${names.get(to) ?? to}, from its own address`, short: names.get(to) ?? outcome.dst, arrives: false };
  // Nobody has a ClusterIP; what is sent to another address of a Service untranslated may arrive elsewhere.
  const isNobodys = witness.addressKind === undefined ? service : witness.addressKind === "ClusterIP";
  if (kept && isNobodys) return { kind: "here", words: "passed on untranslated", arrives: false };
  const words = kept ? "passed on" : (names.get(to) ?? outcome.dst);
  // Where no Pods are known, what is translated goes to an endpoint all the same.
  const known = names.has(to) || !names.size;
  // Which of a node's addresses a packet gets is not always known.
  // Where modes are compared the node's routes do not count, by which it is chosen.
  const source = from === sender ? "" : from === "?" || witness.addressKind !== undefined ? ", masqueraded" : `, from ${from}`;
  return { kind: !kept && known ? "ok" : "here", words: words + source, short: words, arrives: true };
}
