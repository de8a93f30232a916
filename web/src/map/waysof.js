// The ways of one packet on both sides of a comparison: which only one side has, and where they end.

import { ENDS, endOf, hostId, percent, ratio, splitPort, STOPPED, sum } from "../words.js";

/** So many ways are drawn, first those that are lost. */
const MOST = 40;
/** So many Pods have a label each, and so many nodes one of their Pods. */
const FEW_PODS = 6;
const FEW_NODES = 4;

/**
 * The ways of both sides, told apart: "was" has only the first, "is" only the second, "both" both.
 *
 * @param one, other answers to questions
 * @param map with the addresses of Services, for words
 * @returns {alike, lines: [{key, side, end, hops}], ends: [{host, kind, spot, words, was, is, sources}]}: where ways end, with
 *   their chances on both sides, and with both sources that are seen there if they differ; `spot`: "bridge" or "cable" of the host
 */
export function bothWays(one, other, map = null) {
  const addresses = new Set((map?.services ?? []).flatMap((service) => service.clusterIPs));
  const lines = new Map();
  const ends = new Map();
  [one, other].forEach((data, place) => {
    for (const way of data.journeys) {
      const kind = ENDS[endOf(way)]?.kind ?? "open";
      const words = endingOf(way, addresses) ?? (kind === "ok" ? undefined : endOf(way));
      const key = JSON.stringify([way.there.map((hop) => hop.host), endOf(way), words ?? ""]);
      const line = lines.get(key) ?? { key, end: kind, words: words ?? "", hops: way.there, sides: [false, false] };
      line.sides[place] = true;
      lines.set(key, line);
      const last = way.there.at(-1);
      const host = hostId(last?.host);
      const at = `${host} ${endOf(way)} ${words ?? ""}`;
      // Where a packet is lost in its host: on the bridge of its Pods, or on the cable by which it leaves.
      const spot = kind === "ok" ? "" : last?.at === "bridge" ? "bridge" : last?.verdict === "ACCEPT" && last.via === "out" ? "cable" : "";
      const end = ends.get(at) ?? { host, kind, spot, words: words ?? "", chances: [[], []], seen: [new Set(), new Set()] };
      end.chances[place].push(way.probability);
      if (kind === "ok" && way.source) end.seen[place].add(splitPort(way.source)[0]);
      ends.set(at, end);
    }
  });
  const drawn = [...lines.values()].map(({ sides: [first, second], ...line }) => ({ ...line, side: first && second ? "both" : first ? "was" : "is" }));
  const met = [...ends.values()].map(({ chances, seen, ...end }) => ({ ...end, was: sum(chances[0]), is: sum(chances[1]), sources: sourcesOf(seen) }));
  return { alike: drawn.every((line) => line.side === "both") && met.every((end) => end.was === end.is && !end.sources), lines: drawn.sort((a, b) => Number(b.end !== "ok") - Number(a.end !== "ok")).slice(0, MOST), ends: met };
}

/**
 * The same ways where a Pod that is reached on one side, and loses the packet on the other by its source, has one label.
 */
export function joined(ways) {
  const lost = ways.ends.find((end) => end.words === OWN_SOURCE);
  const before = lost && ways.ends.find((end) => end.host === lost.host && end.kind === "ok");
  if (!before || ways.ends.filter((end) => end.words === OWN_SOURCE).length > 1) return ways;
  const words = `${percent(lost.is)} → 0%: comes from its own address`;
  // Both go over the same hosts: one line, with a cross at its end.
  const [was, is] = [lineTo(ways, lost.host, "ok"), lineTo(ways, lost.host, "bad")];
  const lines = was && is ? [...ways.lines.filter((line) => line !== was && line !== is), { ...is, side: "both" }] : ways.lines;
  return { ...ways, lines, ends: [{ ...lost, words, was: lost.is, lost: true }, ...ways.ends.filter((end) => end !== before && end !== lost)], same: Boolean(was && is) };
}

const lineTo = (ways, host, end) => ways.lines.find((line) => line.end === end && hostId(line.hops.at(-1).host) === host);

/** The same ways where arriving anywhere but at an endpoint is as bad as being lost. */
export function astray(ways) {
  const found = (each) => each.words !== "" && (each.kind ?? each.end) === "ok";
  return { ...ways, lines: ways.lines.map((line) => (line.side === "is" && found(line) ? { ...line, end: "astray" } : line)), ends: ways.ends.map((end) => (found(end) || arrivesLess(end) ? { ...end, astray: true } : end)) };
}

/** The same ways where what one side loses does not arrive at others: that is no mere change. */
export function losing(ways) {
  if (!ways.ends.some((end) => end.kind === "bad" && ratio(end.is) > ratio(end.was))) return ways;
  return { ...ways, ends: ways.ends.map((end) => (arrivesLess(end) ? { ...end, astray: true } : end)) };
}

const arrivesLess = (end) => end.kind === "ok" && ratio(end.is) < ratio(end.was);

/** Whether an end is met more, or less, often on the second side: "was", "is", "lost", "both", or "source". */
export function toneOf(end) {
  if (end.lost) return "lost";
  if (end.sources) return "source";
  if (percent(end.was) === percent(end.is)) return "both";
  const more = ratio(end.is) > ratio(end.was);
  if (end.kind === "ok") return end.astray ? "lost" : more ? "is" : "was";
  return more ? "lost" : "was";
}

/**
 * Of many Pods those of a node that fare alike are one end, at the node; of many such nodes one sentence.
 *
 * @returns {ends, said: ["24 Pods on 12 nodes: 100% → 0%"]}
 */
export function byNode(ends, nodeOf) {
  const nodeFor = (end) => (end.kind === "ok" && !end.sources && !end.words ? nodeOf?.get(end.host) : undefined);
  const pods = ends.filter(nodeFor);
  if (pods.length <= FEW_PODS) return { ends, said: [] };
  const left = ends.filter((end) => !nodeFor(end));
  const together = (of) => ({ ...of[0], host: nodeFor(of[0]), words: `${of.length} Pods`, was: sum(of.map((end) => end.was)), is: sum(of.map((end) => end.is)) });
  const nodes = [...Map.groupBy(pods, (end) => `${nodeFor(end)} ${toneOf(end)}`).values()].map((of) => (of.length === 1 ? of[0] : together(of)));
  if (nodes.length <= FEW_NODES) return { ends: [...nodes, ...left], said: [] };
  const said = [...Map.groupBy(pods, toneOf).values()].map((of) => {
    const [was, is] = [sum(of.map((end) => end.was)), sum(of.map((end) => end.is))].map(percent);
    return `${of.length} Pods on ${new Set(of.map(nodeFor)).size} nodes: ${was === is ? was : `${was} → ${is}`}`;
  });
  return { ends: left, said };
}

/** "from 10.0.0.1 → from 10.0.0.2", if another source is seen. */
function sourcesOf([was, is]) {
  const [one, other] = [was, is].map((each) => [...each].sort().join(", "));
  return one && other && one !== other ? `from ${one} → from ${other}` : "";
}

/** Whether a packet with the address of another node's Pod arrives by a device that leads to this node's Pods only. */
function comesFromPods(map, node, sender, device) {
  const pod = map.pods.find((each) => each.id === sender);
  if (!device || !node?.devices.length || !pod || pod.node === node.id) return false;
  const outside = [...node.tunnels.map((each) => each.device), ...map.networks.flatMap((each) => each.members.filter((member) => member.host === node.id).map((member) => member.device))];
  return !outside.includes(device);
}

/** Who sends the packet of a witness that one node meets: the identifier on the map, or, of a Pod that is not there, whose it would be. */
export function senderOf(witness, name, map, owners = ownersOf(map)) {
  const here = `node/${name}`;
  if (witness.origin === "local") return { from: here, start: { host: here } };
  const sender = ownerOf(owners, witness.src ?? "");
  // Of a Pod that is not there it is known at most whose it would be; so also where a Pod's address comes by the node's own Pods.
  const node = map.nodes.find((each) => each.id === here);
  const fromPods = inNetwork(sender.slice(8), node) || comesFromPods(map, node, sender, witness.in);
  return fromPods ? { from: `a Pod of ${name}`, start: { host: here, at: "bridge" } } : { from: sender, start: { host: sender } };
}

/** How the rules of one node treat the packet of a witness on both sides, as ways over the map; null if that is not known. */
export function witnessWays(witness, name, map) {
  const sides = [witness.a ?? witness.today, witness.b ?? witness.then];
  if (!name || !sides.every((each) => Array.isArray(each) && each.length)) return null;
  const owners = ownersOf(map);
  const here = `node/${name}`;
  const { from, start } = senderOf(witness, name, map, owners);
  const [one, other] = sides.map((outcomes) => ({ journeys: outcomes.map((outcome) => treated(outcome, witness, start, here, owners, map)) }));
  const [source] = splitPort(witness.src ?? "");
  const own = map.nodes.find((node) => node.id === here)?.addresses.includes(source);
  return { ...bothWays(one, other), ask: { from, as: from === here && !own ? source : "", to: witness.dst } };
}

export const OWN_PROGRAMS = "its own programs";
const OWN_SOURCE = "lost, its own address as source";

const VERDICTS = { DROP: "lost", REJECT: "refused", INDETERMINATE: "open" };

/** How a way of a question ends, in the words of findings; undefined where its end says it. `addresses`: of Services. */
function endingOf(way, addresses) {
  const last = way.there.at(-1);
  if (way.end === "answered" || way.words) return way.words;
  if (STOPPED[last?.verdict]) return STOPPED[last.verdict];
  const kept = !way.there.some((hop) => hop.dnat);
  return way.end === "lost" && kept && addresses.has(splitPort(way.there[0]?.dst ?? "")[0]) ? "not translated" : undefined;
}

function treated(outcome, witness, first, here, owners, map) {
  const probability = outcome.probability ?? outcome.chance;
  const start = first.host === here && !first.at ? [] : [first];
  const end = VERDICTS[outcome.verdict];
  if (end) return { probability, end, at: here, words: STOPPED[outcome.verdict], there: [...start, { host: here }] };
  const to = outcome.dst || witness.dst;
  const target = outcome.local ? here : ownerOf(owners, to);
  // Nobody has a Service's address: such a packet is on its way to nowhere.
  if (target.startsWith("svc/")) return { probability, end: "lost", at: here, words: "not translated", there: [...start, { host: here, verdict: "ACCEPT", via: "out", out: uplinkOf(map, here) }] };
  const address = splitPort(to)[0];
  const room = target.startsWith("outside/") ? map.nodes.find((node) => inNetwork(address, node))?.id : undefined;
  if (room) {
    const [out, into] = tunnelTo(map, here, room);
    const last = [{ host: room, at: "bridge" }];
    return { probability, end: "lost", at: room, words: `no Pod has ${address}`, there: [...start, { host: here, out }, ...(room === here ? last : [{ host: room, in: into }, ...last])] };
  }
  // A host outside sees who has sent it, unless that is masqueraded.
  const [seen] = splitPort(outcome.src ?? "");
  const isPod = first.host.startsWith("pod/") && seen === splitPort(witness.src ?? "")[0];
  // One host outside is drawn: where packets come from there, its address is not that to which they go.
  const passedOn = isPod ? `comes from ${seen}` : `passed on${first.host.startsWith("outside/") ? ` to ${to}` : ""}`;
  const words = target === here ? OWN_PROGRAMS : target.startsWith("outside/") ? passedOn : undefined;
  const [out, into] = tunnelTo(map, here, map.pods.find((pod) => pod.id === target)?.node);
  const there = [...start, { host: here, out, local: target === here }, ...(target === here ? [] : [{ host: target, in: into }])];
  // A host takes nothing from its own address that comes from elsewhere.
  if (target !== here && address === splitPort(outcome.src ?? "")[0]) return { probability, end: "lost", at: target, words: OWN_SOURCE, there };
  return { probability, end: "answered", at: target, source: outcome.src ?? "", words, there };
}

/** The tunnels of both nodes, if a packet goes to the Pod network of another node and there are tunnels. */
function tunnelTo(map, here, there) {
  if (!there || there === here) return [];
  return [here, there].map((id) => map.nodes.find((node) => node.id === id)?.tunnels?.[0]?.device);
}

/** The interface by which a node reaches its network: what it does not translate leaves there. */
const uplinkOf = (map, node) => map.networks.flatMap((network) => network.members).find((member) => `node/${member.host}` === node || member.host === node)?.device;

function ownersOf(map) {
  const found = new Map();
  for (const service of map.services) for (const address of service.clusterIPs) found.set(address, service.id);
  for (const node of map.nodes) for (const address of node.addresses) found.set(address, node.id);
  for (const pod of map.pods) if (!pod.hostNetwork) for (const address of pod.addresses) found.set(address, pod.id);
  return found;
}

const ownerOf = (owners, endpoint) => owners.get(splitPort(endpoint)[0]) ?? `outside/${splitPort(endpoint)[0]}`;

/** Whether an IPv4 address is of a node's Pods. */
function inNetwork(address, node) {
  const bits = (text) => text.split(".").reduce((sum, part) => sum * 256 + Number(part), 0);
  return (node?.podCIDRs ?? []).some((cidr) => {
    const [start, length] = cidr.split("/");
    return /^[\d.]+$/.test(address) && /^[\d.]+$/.test(start) && Math.floor(bits(address) / 2 ** (32 - length)) === Math.floor(bits(start) / 2 ** (32 - length));
  });
}
