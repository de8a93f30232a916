// Where everything on the map is, by dagre: clients outside, networks, nodes as rooms, Services, from left to right.
//
// Three sizes: "room" shows every Pod by name, "tile" shows a Pod as a square, "dot" a node as a small tile. On a phone
// (`slim`) the same columns are narrower, and clients outside stand above them, so that nothing scrolls sideways.
// The order of nodes and of Services is that of the map: dagre is given it as constraints, so a change moves nothing else,
// and maps of the same things look alike, whatever is wrong with them.

import { graphlib, layout as dagre } from "@dagrejs/dagre";
import { FEW_NODES } from "./marks.js";
import { arrangeHost, isOneHost } from "./onehost.js";

const ROOM = { width: 404, head: 46, row: 28, pad: 12, ports: [10, 74], core: [100, 70], bridge: [184, 9], pods: 206 };
const SLIM_ROOM = { ...ROOM, width: 200, ports: [7, 66], core: [7, 66], bridge: [81, 6], pods: 95, pad: 12 };
const TILE = { width: 178, head: 42, square: 12, perRow: 11, gap: 14, above: 24 };
const DOT = { letter: 7.2, least: 34, most: 84, height: 23, gap: 4 };
const SERVICE = { width: 198, height: 50 };
/** Beside nodes without rooms, where Services are many. */
const SERVICE_LINE = { width: 190, height: 25 };
const OUTSIDE = { width: 136, height: 46 };
const SLIM = { width: 98, frame: 200, bar: 22, before: 54, top: 20 };
const BAR = 24;
const LANE = 38;
/** Between a network without nodes and its hosts, to the left of them. */
const BEYOND = 16;
/** Above all: for numbers of findings, which stand on the upper border of what they are about. */
const TOP = 20;
/** Between hosts is room for such numbers, and for what is said at the lower border of a host. */
const HOST_GAP = 30;
const SLIM_HOST_GAP = 46;
const SERVICE_GAP = 20;
/** Beside Services in a list the numbers stand on the right. */
const BESIDE_LINES = 96;
/** More room before Services, for the lines to them and the chances on the lines. */
const BEFORE = 72;
/** Before groups of nodes, whose lines are for several endpoints. */
const BEFORE_GROUPED = 78;
const byName = new Intl.Collator("en", { numeric: true }).compare;
const MAX_PODS = 9;
const MAX_ROOMS = 6;
/** Of more endpoints outside some are drawn. */
const MAX_ENDS = 24;
const MAX_TILES = 48;
/** More are not drawn one by one. */
const MAX_SQUARES = 3000;
export const MAX_SERVICES = 24;

/**
 * Boxes of everything that is drawn.
 *
 * @param map the server's map, with nodes and Services filtered already
 * @param open set of node identifiers whose room shows all Pods
 * @param slim whether it is for a phone
 * @returns {size, slim, width, height, boxes: Map of identifier to {x, y, w, h, kind, …}, groups, bars, more}
 */
export function arrange(map, { open = new Set(), slim = false } = {}) {
  if (isOneHost(map)) return arrangeHost(map, map.services.slice(0, MAX_SERVICES), slim);
  const nodes = map.nodes.filter(isNode).length;
  const size = nodes <= MAX_ROOMS ? "room" : nodes <= MAX_TILES && map.pods.length <= MAX_SQUARES ? "tile" : "dot";
  const podsOf = podsByNode(map);
  const names = affixes(map.nodes.filter(isNode).map((node) => node.name));
  const groups = size === "room" ? null : grouped(map, podsOf, size, names, slim);
  const plan = { size, slim, groups, names, open, room: slim ? SLIM_ROOM : ROOM, card: { ...(groups ? SERVICE_LINE : SERVICE), ...(slim && { width: SLIM.width }) } };
  const graph = new graphlib.Graph();
  graph.setGraph({ rankdir: "LR", nodesep: size === "room" ? 20 : 22, ranksep: 34, marginx: 12, marginy: 12, ranker: "longest-path" });
  graph.setDefaultEdgeLabel(() => ({}));
  const anchors = addHosts(graph, map, podsOf, plan);
  const shown = addServices(graph, map, anchors, plan.card);
  column(graph, [...anchors.hosts], SINK);
  dagre(graph, { constraints: [...inOrder(anchors.hosts), ...inOrder(anchors.outside), ...inOrder(shown)] });
  return read(graph, map, { ...plan, podsOf, anchors, shown });
}

const SINK = "the end of the last column";

/** Puts all of these into one column: the one before that of Services, which have nothing after them. */
function column(graph, names, end) {
  graph.setNode(end, { width: 1, height: 1 });
  for (const name of names) graph.setEdge(name, end, { weight: 0 });
}

function inOrder(names) {
  return names.slice(1).map((name, place) => ({ left: names[place], right: name }));
}

function podsByNode(map) {
  const found = new Map();
  for (const pod of map.pods) {
    if (!pod.node) continue;
    if (!found.has(pod.node)) found.set(pod.node, []);
    found.get(pod.node).push(pod);
  }
  return found;
}

function grouped(map, podsOf, size, names, slim) {
  const zones = new Map();
  for (const node of map.nodes.filter(isNode)) {
    const zone = node.zone || "";
    if (!zones.has(zone)) zones.set(zone, []);
    zones.get(zone).push(node);
  }
  const across = zones.size > 1 ? 1.9 : 1.1;
  return [...zones.entries()].sort(([one], [other]) => byName(one, other)).map(([zone, nodes]) => {
    const tall = size === "dot" ? DOT.height : tileHeight(Math.max(...nodes.map((node) => podsOf.get(node.id)?.length ?? 0)));
    const wide = size === "dot" ? dotWidth(names) : TILE.width;
    const gap = size === "dot" ? DOT.gap : TILE.gap;
    // Few nodes have numbers of findings, above which is room for words about the tile before.
    const between = size === "dot" ? DOT.gap : map.nodes.length <= FEW_NODES ? SLIM_HOST_GAP : TILE.above;
    const fits = slim ? Math.floor((SLIM.frame + gap) / (wide + gap)) : size === "dot" ? Math.floor(DOT_ROW / (wide + gap)) : Infinity;
    const most = Math.max(1, Math.min(nodes.length, fits, size === "dot" ? Infinity : Math.ceil(Math.sqrt((nodes.length * across * (tall + between)) / (wide + gap)))));
    const rows = Math.ceil(nodes.length / most);
    const columns = Math.ceil(nodes.length / rows);
    const edge = slim ? 4 : 14;
    const head = size === "dot" ? 28 : 22 + TILE.above;
    return {
      id: `zone/${zone}`, zone, nodes, columns, wide, tall, gap, between, head, edge,
      w: columns * (wide + gap) - gap + 2 * edge, h: head + rows * (tall + between) - between + (size === "dot" ? 12 : 22),
    };
  });
}

const DOT_ROW = 470;

/** As wide as the longest name is without what all names share. */
function dotWidth(names) {
  return Math.min(DOT.most, Math.max(DOT.least, Math.ceil(Math.max(...names.short.map((name) => name.length)) * DOT.letter) + 10));
}

function tileHeight(pods) {
  return TILE.head + Math.max(1, Math.ceil(pods / TILE.perRow)) * (TILE.square + 3) + 8;
}

function addHosts(graph, map, podsOf, { groups, open, room }) {
  const anchor = new Map();
  const hosts = [];
  const nodes = map.nodes.filter(isNode);
  if (groups) {
    for (const group of groups) {
      graph.setNode(group.id, { width: group.w, height: group.h });
      hosts.push(group.id);
      for (const node of group.nodes) anchor.set(node.id, group.id);
    }
  } else {
    for (const node of nodes) {
      graph.setNode(node.id, { width: room.width, height: roomHeight(room, node, podsOf.get(node.id) ?? [], open.has(node.id), map) });
      hosts.push(node.id);
      anchor.set(node.id, node.id);
    }
  }
  const outside = [...map.nodes.filter((node) => !isNode(node)), ...drawnOutside(map)].map((item) => item.id);
  for (const id of outside) graph.setNode(id, { width: OUTSIDE.width, height: OUTSIDE.height });
  const known = new Set(outside);
  for (const network of map.networks) {
    graph.setNode(network.id, { width: BAR, height: 40 });
    for (const member of network.members) {
      const to = anchor.get(member.host);
      if (to) graph.setEdge(network.id, to, { weight: 4 });
      else if (known.has(member.host)) graph.setEdge(member.host, network.id);
    }
    if (hosts.length && !graph.outEdges(network.id)?.length) graph.setEdge(network.id, hosts[0], { weight: 0 });
  }
  for (const item of drawnOutside(map)) for (const link of item.links ?? []) if (graph.hasNode(link)) graph.setEdge(item.id, link);
  const first = map.networks[0]?.id ?? hosts[0];
  for (const id of outside) if (first && !graph.outEdges(id)?.length) graph.setEdge(id, first, { weight: 0 });
  return { anchor, hosts, outside };
}

/** Who is outside, without endpoints for which there is no room. */
const drawnOutside = (map) => {
  const left = new Set(map.outside.filter((item) => item.end).slice(MAX_ENDS));
  return left.size ? map.outside.filter((item) => !left.has(item)) : map.outside;
};

/** Whether a host is a node, and not one beside the nodes: a router, or a client. */
export const isNode = (host) => host.isNode !== false;

function roomHeight(room, node, pods, open, map) {
  const rows = Math.max(1, shownPods(pods, open).length + (pods.length > MAX_PODS ? 1 : 0));
  const ports = portsOf(node, map).length + (room === SLIM_ROOM ? 1 : 0);
  return room.head + Math.max(rows * room.row, ports * 34, 60) + room.pad;
}

function shownPods(pods, open) {
  return open || pods.length <= MAX_PODS ? pods : pods.slice(0, MAX_PODS - 1);
}

/** A node's devices that lead out of it: those on a network, and tunnels. */
export function portsOf(node, map) {
  const tunnels = new Map((node.tunnels ?? []).map((tunnel) => [tunnel.device, tunnel]));
  const wired = new Set(map.networks.flatMap((network) => network.members.filter((member) => member.host === node.id).map((member) => member.device)));
  return (node.devices ?? [])
    .filter((device) => tunnels.has(device.name) || wired.has(device.name))
    .map((device) => ({ ...device, tunnel: tunnels.get(device.name) ?? null }))
    .sort((one, other) => Number(Boolean(one.tunnel)) - Number(Boolean(other.tunnel)));
}

function addServices(graph, map, { anchor, outside }, card) {
  const ids = map.services.slice(0, MAX_SERVICES).map((service) => service.id);
  for (const id of ids) graph.setNode(id, { width: card.width, height: card.height });
  const known = new Set(ids);
  const weights = new Map();
  for (const edge of map.edges) {
    if (!edge.used || !known.has(edge.service)) continue;
    const from = anchor.get(edge.node) ?? (graph.hasNode(edge.target) ? edge.target : null);
    if (!from || graph.node(from) === undefined) continue;
    const key = JSON.stringify([from, edge.service]);
    weights.set(key, (weights.get(key) ?? 0) + 1);
  }
  for (const [key, weight] of weights) graph.setEdge(...JSON.parse(key), { weight });
  // A Service without endpoints stands in the same column; where there is no node, beyond who is outside.
  const before = [...anchor.values()][0] ?? outside[0];
  if (before) for (const id of ids) if (!graph.inEdges(id)?.length) graph.setEdge(before, id, { weight: 0 });
  return ids;
}

function read(graph, map, { size, slim, podsOf, groups, names, anchors, shown, open, room, card }) {
  const boxes = new Map();
  restack(graph, anchors, shown, Boolean(groups), slim, card);
  const lanes = lanesOf(graph, map, anchors, slim);
  const lane = slim ? SLIM.bar + 8 : LANE;
  // Where there is room networks without nodes stand on the far side of their hosts, so that no cable crosses another network.
  const far = slim ? 0 : -Math.min(0, ...lanes.values()) * lane;
  const shift = far + Math.max(0, ...lanes.values()) * lane;
  if (slim) columns(graph, map, anchors, shown);
  else for (const id of anchors.outside) graph.node(id).x = Math.min(...anchors.outside.map((each) => graph.node(each).x));
  const moved = new Map([...anchors.outside.map((id) => [id, far]), ...map.networks.map((network) => [network.id, far]), ...anchors.hosts.map((id) => [id, shift]), ...shown.map((id) => [id, shift + (slim ? 0 : groups ? BEFORE_GROUPED : BEFORE)])]);
  const box = (id) => {
    const found = graph.node(id);
    return { x: found.x - found.width / 2 + (moved.get(id) ?? 0), y: found.y - found.height / 2, w: found.width, h: found.height };
  };
  for (const id of anchors.outside) boxes.set(id, { ...box(id), kind: "outside" });
  for (const id of shown) boxes.set(id, { ...box(id), kind: "service" });
  const frames = [];
  if (groups) for (const group of groups) frames.push(placeGroup(group, box(group.id), boxes, podsOf, size));
  else for (const node of map.nodes.filter(isNode)) placeRoom(room, node, box(node.id), boxes, podsOf.get(node.id) ?? [], open.has(node.id), map);
  const bars = placeBars(map, box, boxes, frames, lanes, lane, slim);
  const all = [...boxes.values(), ...frames, ...bars];
  const right = Math.max(300, ...all.map((item) => item.x + item.w)) + (groups && !slim && shown.length ? BESIDE_LINES : 14);
  // Where nothing is left of the nodes the buttons are below.
  const lowest = Math.max(160, ...all.map((item) => item.y + item.h));
  // Below all nodes is a channel for lines of endpoints outside; where there are no nodes nothing is in their way.
  const around = anchors.hosts.length > 0 && map.edges.some((edge) => edge.used && boxes.get(edge.target)?.kind === "outside");
  const bottom = lowest + (slim || !anchors.outside.length ? 48 : around ? 30 : 14);
  return { size, slim, channel: around ? lowest + 14 : 0, names: size === "dot" ? names : null, width: right, height: bottom, boxes, frames, bars, more: map.services.length - shown.length, ends: map.outside.length - drawnOutside(map).length };
}

/** On a phone: each column where the one before it ends, whatever their ranks. */
function columns(graph, map, { hosts, outside }, shown) {
  const wide = (ids) => Math.max(0, ...ids.map((id) => graph.node(id).width));
  let x = 8;
  for (const id of outside) graph.node(id).x = x + graph.node(id).width / 2;
  for (const network of map.networks) Object.assign(graph.node(network.id), { width: SLIM.bar, x: x + SLIM.bar / 2 });
  x += (map.networks.length ? SLIM.bar : 0) + 12;
  for (const id of hosts) graph.node(id).x = x + graph.node(id).width / 2;
  x += wide(hosts) + SLIM.before;
  for (const id of shown) graph.node(id).x = x + graph.node(id).width / 2;
}

/** Lets all columns begin at the top; where Services are few they stand across from the nodes. */
function restack(graph, { hosts, outside }, shown, grouped, slim, card) {
  const top = slim && outside.length ? stack(graph, outside, 8) + SLIM.top + 8 : 0;
  hosts.forEach((id, number) => (graph.node(id).y = number));
  const tall = stack(graph, hosts, slim ? SLIM_HOST_GAP : HOST_GAP, top) - top;
  const gap = grouped && !slim ? 5 : SERVICE_GAP;
  const cards = shown.length * (card.height + gap) - gap;
  const free = Math.max(0, Math.min(tall, 900) - cards) / Math.max(1, shown.length + 1);
  shown.forEach((id, number) => (graph.node(id).y = number));
  stack(graph, shown, gap + Math.min(free, 30), top + Math.min(free, 40));
  if (!outside.length || slim) return;
  const first = Math.min(...outside.map((id) => graph.node(id).y));
  const room = Math.max(0, Math.min(tall, 700) - outside.length * (OUTSIDE.height + HOST_GAP)) / (outside.length + 1);
  stack(graph, outside, HOST_GAP + Math.min(room, first > 0 ? 60 : 0), Math.min(room, 60));
}

function stack(graph, ids, gap, top = 0) {
  let y = TOP + top;
  for (const id of [...ids].sort((one, other) => graph.node(one).y - graph.node(other).y)) {
    const item = graph.node(id);
    item.y = y + item.height / 2;
    y += item.height + gap;
  }
  return y - gap - TOP;
}

/** Networks beside one another where their hosts' heights overlap: a lane for each. Those without nodes have others, -1, -2
 *  and so on, beyond the clients outside; on a phone they stand beside these. */
function lanesOf(graph, map, { anchor }, slim) {
  const [near, far] = [[], []];
  const lanes = new Map();
  for (const network of map.networks) {
    // Of a part of the map a network may have nobody that is drawn.
    const apart = !network.members.some((member) => anchor.has(member.host)) && network.members.some((member) => graph.hasNode(member.host));
    if (slim && apart) {
      lanes.set(network.id, 0);
      continue;
    }
    const ends = apart ? far : near;
    const members = network.members.map((member) => graph.node(anchor.get(member.host) ?? member.host)).filter(Boolean);
    const top = Math.min(...members.map((item) => item.y - item.height / 2), Infinity);
    const end = Math.max(...members.map((item) => item.y + item.height / 2), -Infinity);
    let lane = 0;
    while (ends[lane]?.some(([one, other]) => top < other + 8 && one < end + 8)) lane += 1;
    (ends[lane] ??= []).push([top, end]);
    lanes.set(network.id, apart ? -1 - lane : lane);
  }
  return lanes;
}

export { byName };

/** A room: interfaces, rules and routing, the bridge, Pods. Of a slim one the rules stand below the interfaces. */
function placeRoom(room, node, at, boxes, pods, open, map) {
  const slim = room === SLIM_ROOM;
  const top = at.y + room.head;
  const ports = portsOf(node, map);
  const inner = at.h - room.head - room.pad;
  const list = shownPods(pods, open);
  const podX = at.x + room.pods;
  const podW = at.w - room.pods - room.pad;
  const core = slim ? [top + inner - 30, 30] : [top + inner / 2 - 28, 56];
  boxes.set(node.id, {
    ...at, kind: "room", node, slim,
    core: { x: at.x + room.core[0], y: core[0], w: room.core[1], h: core[1] },
    bridge: { x: at.x + room.bridge[0], y: top, w: room.bridge[1], h: inner },
    more: pods.length - list.length,
    moreAt: { x: podX, y: top + list.length * room.row, w: podW, h: room.row - 5 },
  });
  ports.forEach((port, number) => {
    const step = (slim ? inner - 34 : inner) / ports.length;
    boxes.set(`${node.id} ${port.name}`, { x: at.x + room.ports[0], y: top + step * (number + 0.5) - 14, w: room.ports[1], h: 28, kind: "port", port, node: node.id, slim });
  });
  list.forEach((pod, number) => {
    boxes.set(pod.id, { x: podX, y: top + number * room.row, w: podW, h: room.row - 5, kind: "pod", pod, node: node.id, slim });
  });
}

/** Where rules and routing handle a packet that is in this room. */
export const coreOf = (box) => [box.core.x + box.core.w / 2, box.core.y + (box.slim ? 23 : 43)];

function placeGroup(group, at, boxes, podsOf, size) {
  group.nodes.forEach((node, number) => {
    const x = at.x + group.edge + (number % group.columns) * (group.wide + group.gap);
    const y = at.y + group.head + Math.floor(number / group.columns) * (group.tall + group.between);
    boxes.set(node.id, { x, y, w: group.wide, h: group.tall, kind: size, node, pods: podsOf.get(node.id)?.length ?? 0 });
    if (size !== "tile") return;
    (podsOf.get(node.id) ?? []).forEach((pod, each) => {
      const left = x + 9 + (each % TILE.perRow) * (TILE.square + 3);
      const down = y + TILE.head + Math.floor(each / TILE.perRow) * (TILE.square + 3) - 2;
      boxes.set(pod.id, { x: left, y: down, w: TILE.square, h: TILE.square, kind: "square", pod, node: node.id });
    });
  });
  return { ...at, id: group.id, zone: group.zone, nodes: group.nodes.length, ids: group.nodes.map((node) => node.id) };
}

function placeBars(map, box, boxes, frames, lanes, lane, slim) {
  return map.networks.map((network) => {
    const at = box(network.id);
    const members = network.members.map((member) => boxes.get(member.host)).filter(Boolean);
    const inside = frames.length ? frames : members.filter((item) => item.kind !== "outside");
    // Clients outside stand above the networks on a phone, else beside them.
    const apart = slim && !inside.length && members.length > 0;
    const spans = slim && inside.length ? inside : [...inside, ...members.filter((item) => item.kind === "outside")];
    const top = Math.min(...spans.map((item) => item.y), spans.length ? Infinity : at.y);
    const end = Math.max(...spans.map((item) => item.y + item.h), spans.length ? -Infinity : at.y + at.h);
    const number = lanes.get(network.id);
    const beside = number < 0 ? Math.min(...members.map((item) => item.x)) - BEYOND - at.w + (number + 1) * lane : at.x + number * lane;
    const found = { x: apart ? Math.max(...members.map((item) => item.x + item.w)) + 10 : beside, y: top, w: at.w, h: end - top, id: network.id, network };
    boxes.set(network.id, { ...found, kind: "network" });
    return found;
  });
}

/** What all names begin and end with, up to a dash or dot, which says nothing on a small tile; and the names without it. */
function affixes(names) {
  const shared = (turned) => {
    let prefix = turned[0] ?? "";
    for (const name of turned) while (!name.startsWith(prefix)) prefix = prefix.slice(0, -1);
    return prefix;
  };
  const turn = (text) => [...text].reverse().join("");
  const long = names.length > 1 && names.some((name) => name.length > 5);
  const prefix = long ? (/^.*[-.]/.exec(shared(names))?.[0] ?? "") : "";
  const rest = names.map((name) => name.slice(prefix.length));
  const suffix = long ? turn(/^.*[-.]/.exec(shared(rest.map(turn)))?.[0] ?? "") : "";
  return { prefix, suffix, short: rest.map((name) => (suffix ? name.slice(0, -suffix.length) : name)) };
}
