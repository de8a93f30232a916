// What of a finding's packet is seen on its map: where other findings stop it, and how its Service fares.

import { STOPPED, hostId, percentOf, plain, ratio, shortName, splitPort } from "../words.js";
import { outcomesOf } from "./fates.jsx";
import { stopsPackets } from "./gather.js";

const NO_FAULTS = new Map();

/** Without what is wrong for clients of one node: the packet's ways say what is, and where; its Service is as it fares. */
export function withFound(map, ways, ask, card) {
  const bare = { ...map, served: new Set([...map.served, ...map.faults.keys()]), faults: NO_FAULTS };
  const arrives = (side) => ways.ends.reduce((all, end) => all + (end.kind === "ok" && !end.words ? ratio(end[side]) : 0), 0);
  const [address] = splitPort(ask?.to ?? "");
  const asked = map.services.find((service) => card.services.includes(service.id) && [...service.clusterIPs, ...service.loadBalancerIPs, ...service.externalIPs].includes(address));
  if (!asked || card.harm || arrives("is") >= arrives("was")) return bare;
  // What stops all that a node forwards stops other Services’ packets, too.
  const others = stopsPackets(card) ? card.services.filter((id) => id !== asked.id && bare.served.has(id)).map((id) => [id, `lost on ${card.nodes.join(", ")}`]) : [];
  const share = arrives("is") ? percentOf(arrives("is")) : "nothing";
  return { ...bare, faults: new Map([...others, [asked.id, `${share} from ${shortName(ask.from)}`]]) };
}

/** As one node's rules treat a packet it may arrive where another finding stops it: there it says which. */
export function onward({ ways, only }, card, cards, map) {
  if (!only || card.harm) return ways;
  const nodeOf = (id) => map.pods.find((pod) => pod.id === id)?.node ?? "";
  const stopper = (end) => {
    const name = plain(nodeOf(end.host));
    if (end.kind !== "ok" || !name || name === only) return -1;
    return cards.findIndex((other) => other !== card && other.nodes.includes(name) && other.services.some((id) => card.services.includes(id)) && (stopsPackets(other) || allStopped(other.witness)));
  };
  const stopped = new Map(ways.ends.filter((end) => ratio(end.is) > 0).map((end) => [end.host, stopper(end)]).filter(([, place]) => place >= 0));
  if (!stopped.size) return ways;
  const lines = ways.lines.flatMap((line) => {
    const last = line.hops.at(-1);
    if (line.side === "was" || line.end !== "ok" || !stopped.has(hostId(last.host))) return [line];
    const cut = { ...line, key: `${line.key} stopped`, side: "is", end: "bad", hops: [...line.hops.slice(0, -1), { ...last, host: nodeOf(hostId(last.host)) }] };
    return line.side === "both" ? [{ ...line, side: "was" }, cut] : [cut];
  });
  const ends = ways.ends.flatMap((end) => (stopped.has(end.host) ? [{ ...end, is: "0/1" }, { host: nodeOf(end.host), kind: "bad", words: `finding ${stopped.get(end.host) + 1}`, was: "0/1", is: end.is }] : [end]));
  return { ...ways, lines, ends, others: [...new Set(stopped.values())].map((place) => place + 1) };
}

const allStopped = (witness) => outcomesOf(witness, 1).length > 0 && outcomesOf(witness, 1).every((outcome) => STOPPED[outcome.verdict]);
