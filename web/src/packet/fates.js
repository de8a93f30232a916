// Many ways in few words: those that fare alike as one, with the sum of their chances.

import { ENDS, count, endOf, fatalOf, failsOn, hostId, percent, plain, splitPort, sum } from "../words.js";

const FIRST = ["bad", "open", "ok"];

/** To whom a way leads: who answers, or who should have; an address where that is nobody that is known. */
export function nameOf(way, map) {
  if (way.end === "answered" && way.at !== "host") return hostId(way.at);
  return podsOf(map).get(splitPort(way.target)[0]) ?? way.target;
}

const known = new WeakMap();

function podsOf(map) {
  if (!map) return new Map();
  if (!known.has(map.pods)) known.set(map.pods, new Map(map.pods.filter((pod) => !pod.hostNetwork).flatMap((pod) => pod.addresses.map((address) => [address, pod.id]))));
  return known.get(map.pods);
}

/**
 * Ways by how they end, and where and why, unless they are answered: what is lost first, then by chance. `places` are those
 * of the ways in the answer, by whom they lead to.
 *
 * @returns [{key, end, kind, where, chance, places, ends}]
 */
export function fatesOf(journeys, map) {
  const names = journeys.map((way) => plain(nameOf(way, map)));
  const found = Map.groupBy(journeys.keys(), (place) => keyOf(journeys[place]));
  const fates = [...found].map(([key, places]) => {
    const way = journeys[places[0]];
    return {
      key, end: endOf(way), kind: ENDS[way.end]?.kind ?? "open", where: way.end === "answered" || way.at === "host" ? "" : plain(way.at),
      chance: sum(places.map((place) => journeys[place].probability)),
      ends: new Set(places.map((place) => names[place])).size,
      places: places.sort((one, other) => names[one].localeCompare(names[other], "en", { numeric: true }) || one - other),
    };
  });
  const weight = (fate) => FIRST.indexOf(fate.kind);
  return fates.sort((one, other) => weight(one) - weight(other) || other.places.length - one.places.length);
}

function keyOf(way) {
  if (way.end === "answered") return "answered";
  const fatal = fatalOf(way[failsOn(way)]?.at(-1));
  return JSON.stringify([way.end, way.at, fatal ? [fatal.table, fatal.chain, fatal.rule] : way.reason]);
}

/** "91.7% answered by 22 endpoints", "8.3% lost at worker-4". */
export function fateWords({ end, kind, where, chance, ends }) {
  return `${percent(chance)} ${ENDS[end]?.words ?? end}${where ? ` at ${where}` : kind === "ok" && end === "answered" ? ` by ${count(ends, "endpoint")}` : ""}`;
}
