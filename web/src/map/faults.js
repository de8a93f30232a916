// What is wrong with a Service where a node's rules and the objects differ, in the words of the server; and what a Service
// without endpoints lacks.

import { percent, ratio, sum } from "../words.js";

/** What is wrong with an endpoint: "50% lost: dropped by filter FORWARD 1", "rules missing on worker-2". "" if nothing is. */
export function faultOf(item) {
  if (!item.fault) return "";
  return item.lost ? `${percent(item.lost)} lost: ${item.why}` : item.why;
}

/** In a few words what is wrong with Services: those of a map's edges that have a fault, by Service. */
export function faultsOf(edges) {
  const found = new Map();
  for (const edge of edges) {
    if (!edge.fault) continue;
    if (!found.has(edge.service)) found.set(edge.service, []);
    found.get(edge.service).push(edge);
  }
  return new Map([...found].map(([service, faulty]) => [service, inShort(faulty)]));
}

/** The worst of one Service. */
function inShort(faulty) {
  const of = (fault) => faulty.filter((edge) => edge.fault === fault);
  const [missing] = of("missing");
  if (missing) return missing.why;
  if (of("refused").length) return "refused by rules";
  const lost = of("lost");
  if (lost.length) {
    const ports = Map.groupBy(lost, (edge) => `${edge.port} ${edge.protocol} ${edge.family}`);
    const shares = [...ports.values()].map((edges) => sum(edges.map((edge) => edge.lost)));
    return `${percent(shares.sort((one, other) => ratio(other) - ratio(one))[0])} lost`;
  }
  return faulty.some((edge) => edge.state === "no Pod has this address") ? "to an address nobody has" : "wrong endpoints";
}

/** Why a Service gets no packets of clients on the node, though nothing is wrong with the rules. */
export function noneOf(edges) {
  if (!edges.length) return "no endpoints";
  if (edges.some((edge) => /traffic policy is Local/.test(edge.why))) return "none on this node";
  return edges.every((edge) => !edge.state.startsWith("ready")) ? "none ready" : "none used";
}
