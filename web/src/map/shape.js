// A map as it is drawn: with boxes for what only endpoints name, a part of it, or one laid over the one before a change.

import { faultsOf } from "./faults.js";
import { MAX_SERVICES, byName } from "./layout.js";
import { isOneHost } from "./onehost.js";
import { hostId } from "../words.js";

/** Gives endpoints without a Pod object a box of their own: in their node's room, or beside the nodes. */
export function withEndpoints(map) {
  if (!map) return map;
  const known = new Set([...map.pods, ...map.nodes, ...map.outside].map((item) => item.id));
  const pods = [];
  const outside = [];
  const leaving = new Set();
  for (const edge of map.edges) {
    if (edge.state.includes("terminating")) leaving.add(edge.target);
    if (known.has(edge.target)) continue;
    known.add(edge.target);
    const address = hostOf(edge.endpoint);
    if (edge.node) {
      pods.push({
        id: edge.target, namespace: edge.service.slice(4, edge.service.indexOf("/", 4)), name: address, node: edge.node, addresses: [address], phase: "", ready: edge.state.startsWith("ready"),
        terminating: edge.state.includes("terminating"), hostNetwork: false, failed: false, bridge: "", bare: true,
      });
    } else outside.push({ id: edge.target, address, label: isOneHost(map) ? "an endpoint" : "an endpoint outside", links: [], end: true });
  }
  // What becomes of an endpoint is seen at its Pod.
  const all = [...map.pods, ...pods].map((pod) => (leaving.has(pod.id) && !pod.terminating ? { ...pod, terminating: true } : pod));
  return {
    ...map, services: inOrder(map.services), nodes: [...map.nodes].sort((one, other) => byName(one.name, other.name)), pods: all, outside: [...map.outside, ...outside],
    // Of a part of the map it is still known which Services have endpoints somewhere.
    served: new Set(map.edges.filter((edge) => edge.used).map((edge) => edge.service)),
    // Where the node's rules do not give what the objects ask for.
    faults: new Map([...stoppedOf(map), ...faultsOf(map.edges)]),
  };
}

/** Of one host's rules: Services whose packets lead nowhere, though they may have endpoints. */
const stoppedOf = (map) => (map.unreached ?? []).map(({ service, open }) => [service, open ? "not known" : "lost"]);

const LISTS = ["nodes", "pods", "services", "networks", "outside"];

/** A map of the same things as the one before, with other chances: it has the very lists of that one, so that what is made
 *  of them need not be made again. */
export function withKnown(map, before) {
  if (!map || !before || map.revision !== before.revision) return map;
  const same = LISTS.every((list) => map[list].length === before[list].length && map[list].every((item, place) => item.id === before[list][place].id));
  return same ? { ...map, ...Object.fromEntries(LISTS.map((list) => [list, before[list]])) } : map;
}

/** An endpoint without its port: "10.0.0.1:80", "[fd00::1]:80". */
function hostOf(endpoint) {
  const host = endpoint.slice(0, endpoint.lastIndexOf(":"));
  return host.startsWith("[") ? host.slice(1, -1) : host;
}

const MANY_NODES = 12;
const FEW_NODES = 6;

/** Of a large map the part around what is touched: its Services, and some of the nodes that have their endpoints. */
export function nearTo(map, touched) {
  if (map.nodes.length <= MANY_NODES || !touched.size) return map;
  const services = new Set(map.services.filter((service) => touched.has(service.id)).map((service) => service.id));
  const nodes = new Set([
    ...map.pods.filter((pod) => pod.node && touched.has(pod.id)).map((pod) => pod.node),
    ...map.edges.filter((edge) => edge.used && edge.node && services.has(edge.service)).map((edge) => edge.node),
    ...map.nodes.filter((node) => touched.has(node.id)).map((node) => node.id),
  ]);
  if (!nodes.size && !services.size) return map;
  return narrow(map, { only: nodes.size ? new Set([...nodes].slice(0, FEW_NODES)) : null, services: services.size ? services : null });
}

/** Of a map of more nodes than have rooms, those on the ways with the Pods there; null where these are too many, too. */
export function alongWays(map, ways, services) {
  const hosts = new Set(ways.lines.flatMap((line) => line.hops.map((hop) => hostId(hop.host))));
  const pods = map.pods.filter((pod) => hosts.has(pod.id));
  const nodes = new Set([...map.nodes.filter((node) => hosts.has(node.id)).map((node) => node.id), ...pods.map((pod) => pod.node)]);
  if (map.nodes.length <= FEW_NODES || nodes.size > FEW_NODES) return null;
  const networks = map.networks.filter((network) => network.members.some((member) => nodes.has(member.host)));
  return { ...narrow(map, { only: nodes, services: new Set(services) }), networks, pods, outside: [...hosts].some((id) => id.startsWith("outside/")) ? map.outside : [] };
}

const ends = new WeakMap();

/** The edges of a map by their Service, or by what they lead to; looked through once, for there may be tens of thousands. */
export function edgesBy(map, key, id) {
  if (!ends.has(map.edges)) ends.set(map.edges, {});
  const known = ends.get(map.edges);
  known[key] ??= Map.groupBy(map.edges, (edge) => edge[key]);
  return known[key].get(id) ?? [];
}

/** Makes ready what views look up in a map, step by step. */
export const lookAhead = ["service", "target", "node"].map((key) => (map) => edgesBy(map, key, ""));

const sortedOnes = new WeakMap();
let places = new Map();

/** Services by name, so that their order is the same on every map; sorted once, and not again when the next map has the same ones. */
function inOrder(services) {
  if (!sortedOnes.has(services)) {
    const same = services.length === places.size && services.every((service) => places.has(service.id));
    const found = [...services].sort(same ? (one, other) => places.get(one.id) - places.get(other.id) : (one, other) => byName(one.id, other.id));
    places = new Map(found.map((service, place) => [service.id, place]));
    sortedOnes.set(services, found);
    sortedOnes.set(found, found);
  }
  return sortedOnes.get(services);
}

/** The part of a map that is shown: of some nodes, one namespace, or what has a word in its name. */
export function narrow(map, { ns = "", only = null, q = "", services = null, sel = "" } = {}) {
  if (!map) return null;
  // Nothing is left out, nor drawn first that would not be.
  const place = sel.startsWith("svc/") ? map.services.findIndex((service) => service.id === sel) : 0;
  if (!ns && !only && !q && !services && place < MAX_SERVICES) return map;
  const nodes = only ? map.nodes.filter((node) => only.has(node.id)) : map.nodes;
  const shown = new Set(nodes.map((node) => node.id));
  // Of some nodes only the Services that have endpoints there.
  const near = only && !services ? new Set(map.edges.filter((edge) => edge.used && (!edge.node || shown.has(edge.node))).map((edge) => edge.service)) : services;
  const pods = map.pods.filter((pod) => (!ns || pod.namespace === ns) && (!only || shown.has(pod.node)));
  let found = map.services.filter((service) => (!ns || service.namespace === ns) && (!near || near.has(service.id) || service.id === sel));
  if (found.length > MAX_SERVICES) {
    // What is looked for is drawn, whatever its name.
    const wanted = (service) => service.id === sel || Boolean(q && `${service.namespace}/${service.name}`.includes(q));
    found = [...found.filter(wanted), ...found.filter((service) => !wanted(service))];
  }
  // The same list, where nothing is left out: what is looked up in it is known already.
  if (!ns && !only && !near) return { ...map, services: found };
  const held = new Set(found.map((service) => service.id));
  const edges = map.edges.filter((edge) => held.has(edge.service) && (!only || !edge.node || shown.has(edge.node)));
  return { ...map, nodes, pods, services: found, edges };
}

/** A changed map with what the change took away, marked as removed. */
export function overlaid(map, before) {
  if (!map || !before) return map;
  const both = (now, then) => {
    const known = new Set(now.map((item) => item.id));
    const gone = then.filter((item) => !known.has(item.id));
    return gone.length ? [...now, ...gone.map((item) => ({ ...item, removed: true }))] : now;
  };
  const [nodes, pods, services] = ["nodes", "pods", "services"].map((kind) => both(map[kind], before[kind]));
  const networks = map.networks.length ? map.networks.map((network) => ({ ...network, members: both(
    network.members.map((item) => ({ ...item, id: item.host })), (before.networks.find((item) => item.id === network.id)?.members ?? []).map((item) => ({ ...item, id: item.host })),
  ) })) : before.networks;
  return { ...map, nodes: sorted(nodes, before.nodes), pods: sorted(pods, before.pods), services: sorted(services, before.services), networks };
}

/** In the order of the map before, so that nothing moves; what is new comes last. */
function sorted(items, before) {
  const places = new Map(before.map((item, place) => [item.id, place]));
  const place = (item) => places.get(item.id) ?? places.size;
  return [...items].sort((one, other) => place(one) - place(other));
}
