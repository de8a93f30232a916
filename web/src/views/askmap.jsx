// The map of a question: the way of its packet, and which endpoints get how much of what is asked.

import { useCallback, useMemo } from "preact/hooks";
import { Drawing, useLayout, useMatch, useSlim } from "../map/drawing.jsx";
import { askedOfHost, isOneHost } from "../map/onehost.js";
import { narrow } from "../map/shape.js";
import { serviceOf, serviceTarget } from "../names.js";
import { stoppedAt } from "../packet/stopped.js";
import { href } from "../route.js";
import { ENDS, count, failsOn, hostId, percent, shortName, splitPort, sum } from "../words.js";

const FEW_HOSTS = 6;
/** Between what is said above the map and the steps below it is no room for three hosts. */
const low = matchMedia("(max-height: 800px)");

/** The map with the way on it; of an answer only the Service that is asked, and of a large cluster, or in a small window, only
 *  the hosts that its ways touch, unless the whole is asked for. */
export function AskMap({ map, query, answer, way, moment, ask, to }) {
  const slim = useSlim();
  const small = useMatch(low) || slim;
  const hosts = useMemo(() => (answer ? hostsOf(map, answer, way) : null), [map, answer, way]);
  const target = useMemo(() => (answer ? askedService(map, answer, query.to) : ""), [map, answer, query.to]);
  const many = !isOneHost(map) && (map.nodes.length > FEW_HOSTS || map.services.length > 12);
  const large = many || (small && !isOneHost(map) && map.nodes.length > 1);
  const narrowed = Boolean(answer && !query.whole);
  const shown = useMemo(() => {
    if (isOneHost(map)) return askedOfHost(map, { from: query.from, answer, way, service: target, alone: narrowed });
    if (!narrowed) return map;
    const only = many || (large && hosts.own) ? new Set(hosts.nodes.slice(0, slim ? hosts.own : FEW_HOSTS)) : null;
    const found = narrow(map, { only, services: new Set(target ? [target] : []) });
    // An endpoint that is no Pod is drawn for its Service, and on a phone no client but the one that asks.
    const ends = new Set(found.edges.map((edge) => edge.target));
    const near = (item) => hosts.all.has(item.id) || (!many && (item.bare || item.end ? ends.has(item.id) : !(slim && item.id.startsWith("outside/"))));
    return { ...found, pods: found.pods.filter(near), outside: map.outside.filter(near) };
  }, [map, narrowed, many, large, hosts, target, slim, answer, way, query.from]);
  const opened = useMemo(() => new Set(hosts && ((narrowed && large) || hosts.nodes.length <= 4) ? hosts.nodes : []), [hosts, narrowed, large]);
  const told = useMemo(() => (way && ENDS[way.end]?.kind === "bad" && !isOneHost(map) ? stoppedAt(way, slim) : null), [map, way, slim]);
  const boxes = useLayout(shown, opened);
  const layout = useMemo(() => (told ? withRoom(boxes, told) : boxes), [boxes, told]);
  // Where a thing on the map leads to does not hang on the step, so that a step draws only what moves.
  const hrefOf = useCallback((id) => {
    if (id.startsWith("open ")) return href("ask", { ...query, step: "", whole: "1" });
    const name = id.startsWith("svc/") ? serviceTarget(map.services.find((item) => item.id === id)) : id.startsWith("net/") ? "" : id;
    if (!name) return undefined;
    if (!query.from && !id.startsWith("svc/")) return ask({ from: name });
    if (query.from && query.to && !id.startsWith("svc/")) return ask({ from: name, to: query.to });
    return ask({ to: name });
  }, [map, ask({})]);
  const drawn = useMemo(() => (answer ? askedOf(answer, shown, target, slim) : shown), [answer, shown, target, slim]);
  const hops = way && moment ? (moment.direction === "there" ? way.there : way.back) : way?.there;
  const left = map.services.length - (target ? 1 : 0);
  return (
    <Drawing map={drawn} layout={layout} hrefOf={hrefOf} selected={target} way={hops} moment={moment} lost={ENDS[way?.end]?.kind === "bad" ? way[failsOn(way)] : null} told={told} picks={{ from: shown.lit ?? query.from, to: query.to }} around={way ? AROUND : 190}
      more={answer && (large || left > 0) ? <a class="button small" href={to({ whole: query.whole ? "" : "1" })}>{moreWords(map, large, query.whole)}</a> : null}
      label={way ? `The way of the packet: ${way.there.map((hop) => shortName(hostId(hop.host))).join(", ")}` : "Choose who asks, and whom"} />
  );
}

/** Below the lowest host is room for what is said of it. */
function withRoom(layout, told) {
  const ends = told.map(({ host }) => layout.boxes.get(host)).filter(Boolean).map((box) => box.y + box.h + BELOW);
  return { ...layout, height: Math.max(layout.height, ...ends) };
}

const BELOW = 30;

/** The Service that is asked, by its address or as a node port; "" if none. */
function askedService(map, answer, to) {
  if (to.startsWith("nodeport/")) return `svc/${to.slice(9).replace(/[:@].*$/, "")}`;
  const [address, number] = splitPort(answer.to);
  const atNode = (port) => port.nodePort && String(port.nodePort) === number && port.protocol.toLowerCase() === answer.protocol.toLowerCase();
  return serviceOf(map, answer.to) || (map.nodes.some((node) => node.addresses.includes(address)) && map.services.find((service) => service.ports.some(atNode))?.id) || "";
}

/** What stands above and below the map of an answer, where it has no height of its own: see `.ask .drawing` in style.css. */
const AROUND = 464;

function moreWords(map, large, whole) {
  if (whole) return large ? "Only the hosts on the way" : "Only what is asked";
  return large ? `Whole map (${count(map.nodes.length, "host")})` : `All ${count(map.services.length, "Service")}`;
}

/** The map with what the answer says as what is known of the Service that is asked. */
function askedOf(answer, map, target, slim) {
  // What is wrong with Services that are not asked is not the answer.
  const faults = faultsOf(answer, target, slim);
  // What is known of each node's rules is told by chances of all its clients; the answer has those of the one who asks.
  if (!target || isOneHost(map)) return { ...map, faults };
  const chances = new Map();
  for (const way of answer.journeys) if (way.end === "answered") chances.set(way.target, { at: hostId(way.at), all: [...(chances.get(way.target)?.all ?? []), way.probability] });
  const nodeOf = new Map(map.pods.map((pod) => [pod.id, pod.node]));
  const found = [...chances].map(([endpoint, { at, all }]) => {
    const known = map.edges.find((edge) => edge.service === target && edge.endpoint === endpoint);
    return { service: target, port: "", protocol: answer.protocol, family: "", node: nodeOf.get(at) ?? (at.startsWith("node/") ? at : ""), target: at, endpoint, ...known && { node: known.node, target: known.target }, used: true, chance: sum(all) };
  });
  return { ...map, edges: [...map.edges.filter((edge) => edge.service !== target), ...found], faults, served: found.length ? new Set([...map.served, target]) : map.served };
}

/** What is wrong with the Service that is asked; on a phone it has room for one kind of loss. */
function faultsOf(answer, target, slim) {
  const bad = answer.journeys.filter((way) => ENDS[way.end]?.kind === "bad");
  if (!target || !bad.length) return new Map();
  const share = (ways) => percent(sum(ways.map((way) => way.probability)));
  const words = [...Map.groupBy(bad, (way) => way.end)].map(([end, ways]) => `${share(ways)} ${end}`).join(", ");
  return new Map([[target, slim && words.length > MOST_SLIM ? `${share(bad)} lost` : words]]);
}

const MOST_SLIM = 13;

/** What the ways touch: all of it, and its nodes; first those of the way that is shown, of which there are `own`. */
function hostsOf(map, answer, shown) {
  const nodeOf = new Map(map.pods.map((pod) => [pod.id, pod.node]));
  const [all, nodes] = [new Set(), new Set()];
  let own = 0;
  for (const way of [...(shown ? [shown] : []), ...answer.journeys]) {
    for (const hop of [...way.there, ...(way.back ?? [])]) {
      const id = hostId(hop.host);
      all.add(id);
      const node = id.startsWith("node/") ? id : nodeOf.get(id);
      if (node) nodes.add(node);
    }
    own ||= nodes.size;
  }
  return { all, nodes: [...nodes], own };
}
