// Where everything on the map is, by dagre: clients outside, networks, nodes as rooms, Services, from left to right.
//
// Three sizes: "room" shows every Pod by name, "tile" shows a Pod as a square, "dot" a node as a small tile with a number.
// The order of nodes is that of their names and stays: dagre is given it as constraints, so a change moves nothing else.

import { graphlib, layout as dagre } from "@dagrejs/dagre";

const ROOM = { width: 404, head: 46, row: 28, pad: 12 };
const TILE = { width: 178, head: 42, square: 12, perRow: 11, gap: 14 };
const DOT = { width: 68, height: 40, gap: 8 };
const SERVICE = { width: 198, height: 50 };
const OUTSIDE = { width: 136, height: 46 };
const BAR = 24;
const LANE = 38;
const HOST_GAP = 20;
const SERVICE_GAP = 14;
/** More room before Services, for the lines to them. */
const BEFORE = 44;
const byName = new Intl.Collator("en", { numeric: true }).compare;
const MAX_PODS = 9;
const MAX_ROOMS = 6;
const MAX_TILES = 48;
/** More are not drawn one by one. */
const MAX_SQUARES = 3000;
export const MAX_SERVICES = 24;

/**
 * Boxes of everything that is drawn.
 *
 * @param map the server's map, with nodes and Services filtered already
 * @param open set of node identifiers whose room shows all Pods
 * @returns {size, width, height, boxes: Map of identifier to {x, y, w, h, kind, …}, groups, bars, more}
 */
export function arrange(map, { open = new Set(), order = null } = {}) {
  const nodes = map.nodes.filter(isNode).length;
  const size = nodes <= MAX_ROOMS ? "room" : nodes <= MAX_TILES && map.pods.length <= MAX_SQUARES ? "tile" : "dot";
  const podsOf = podsByNode(map);
  const groups = size === "room" ? null : grouped(map, podsOf, size);
  const graph = new graphlib.Graph();
  graph.setGraph({ rankdir: "LR", nodesep: size === "room" ? 20 : 22, ranksep: 34, marginx: 12, marginy: 12, ranker: "longest-path" });
  graph.setDefaultEdgeLabel(() => ({}));
  const anchors = addHosts(graph, map, podsOf, groups, size, open);
  // Where every group has endpoints of every Service, names are the better order.
  const kept = groups ? map.services.map((service) => service.id) : order;
  const shown = addServices(graph, map, anchors, kept);
  column(graph, [...anchors.hosts], SINK);
  dagre(graph, { constraints: [...inOrder(anchors.hosts), ...inOrder(anchors.outside), ...inOrder(kept ? shown : [])] });
  return read(graph, map, { size, podsOf, groups, anchors, shown, open });
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

function grouped(map, podsOf, size) {
  const zones = new Map();
  for (const node of map.nodes.filter(isNode)) {
    const zone = node.zone || "";
    if (!zones.has(zone)) zones.set(zone, []);
    zones.get(zone).push(node);
  }
  const across = zones.size > 1 ? 1.9 : 1.1;
  return [...zones.entries()].sort(([one], [other]) => byName(one, other)).map(([zone, nodes]) => {
    const tall = size === "dot" ? DOT.height : tileHeight(Math.max(...nodes.map((node) => podsOf.get(node.id)?.length ?? 0)));
    const wide = size === "dot" ? DOT.width : TILE.width;
    const gap = size === "dot" ? DOT.gap : TILE.gap;
    const columns = Math.max(1, Math.min(nodes.length, Math.ceil(Math.sqrt((nodes.length * across * (tall + gap)) / (wide + gap)))));
    const rows = Math.ceil(nodes.length / columns);
    return {
      id: `zone/${zone}`, zone, nodes, columns, wide, tall, gap,
      w: columns * (wide + gap) - gap + 28, h: rows * (tall + gap) - gap + 28 + 22,
    };
  });
}

function tileHeight(pods) {
  return TILE.head + Math.max(1, Math.ceil(pods / TILE.perRow)) * (TILE.square + 3) + 8;
}

function addHosts(graph, map, podsOf, groups, size, open) {
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
      graph.setNode(node.id, { width: ROOM.width, height: roomHeight(node, podsOf.get(node.id) ?? [], open.has(node.id), map) });
      hosts.push(node.id);
      anchor.set(node.id, node.id);
    }
  }
  const outside = [...map.nodes.filter((node) => !isNode(node)), ...map.outside].map((item) => item.id);
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
  for (const item of map.outside) for (const link of item.links ?? []) if (graph.hasNode(link)) graph.setEdge(item.id, link);
  const first = map.networks[0]?.id ?? hosts[0];
  for (const id of outside) if (first && !graph.outEdges(id)?.length) graph.setEdge(id, first, { weight: 0 });
  return { anchor, hosts, outside };
}

/** Whether a host is a node, and not one beside the nodes: a router, or a client. */
export const isNode = (host) => host.isNode !== false;

function roomHeight(node, pods, open, map) {
  const rows = Math.max(1, shownPods(pods, open).length + (pods.length > MAX_PODS ? 1 : 0));
  const ports = portsOf(node, map).length;
  return ROOM.head + Math.max(rows * ROOM.row, ports * 34, 60) + ROOM.pad;
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

function addServices(graph, map, { anchor }, order) {
  const places = new Map((order ?? []).map((id, number) => [id, number]));
  const place = (service) => places.get(service.id) ?? places.size;
  const wanted = order ? [...map.services].sort((one, other) => place(one) - place(other)) : map.services;
  const cards = wanted.slice(0, MAX_SERVICES);
  const ids = cards.map((service) => service.id);
  for (const id of ids) graph.setNode(id, { width: SERVICE.width, height: SERVICE.height });
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
  // A Service without endpoints stands in the same column.
  const host = [...anchor.values()][0];
  if (host) for (const id of ids) if (!graph.inEdges(id)?.length) graph.setEdge(host, id, { weight: 0 });
  return ids;
}

function read(graph, map, { size, podsOf, groups, anchors, shown, open }) {
  const boxes = new Map();
  restack(graph, anchors, shown, Boolean(groups));
  const lanes = lanesOf(graph, map, anchors);
  const shift = Math.max(0, ...lanes.values()) * LANE;
  const moved = new Map([...anchors.hosts.map((id) => [id, shift]), ...shown.map((id) => [id, shift + BEFORE])]);
  const box = (id) => {
    const found = graph.node(id);
    return { x: found.x - found.width / 2 + (moved.get(id) ?? 0), y: found.y - found.height / 2, w: found.width, h: found.height };
  };
  for (const id of anchors.outside) boxes.set(id, { ...box(id), kind: "outside" });
  const cards = shown.map((id) => [id, box(id)]).sort((one, other) => one[1].y - other[1].y);
  for (const [id, found] of cards) boxes.set(id, { ...found, kind: "service" });
  const frames = [];
  if (groups) for (const group of groups) frames.push(placeGroup(group, box(group.id), boxes, podsOf, size));
  else for (const node of map.nodes.filter(isNode)) placeRoom(node, box(node.id), boxes, podsOf.get(node.id) ?? [], open.has(node.id), map);
  const bars = placeBars(map, box, boxes, frames, lanes);
  const all = [...boxes.values(), ...frames, ...bars];
  const right = Math.max(300, ...all.map((item) => item.x + item.w)) + 14;
  const bottom = Math.max(160, ...all.map((item) => item.y + item.h)) + 14;
  return { size, prefix: size === "dot" ? commonPrefix(map.nodes.filter(isNode).map((node) => node.name)) : "", width: right, height: bottom, boxes, frames, bars, order: cards.map(([id]) => id), more: map.services.length - shown.length };
}

/** Lets all columns begin at the top, in dagre's order; where Services are few they stand across from the nodes. */
function restack(graph, { hosts, outside }, shown, inOrder) {
  hosts.forEach((id, number) => (graph.node(id).y = number));
  const tall = stack(graph, hosts, HOST_GAP);
  const cards = shown.length * (SERVICE.height + SERVICE_GAP) - SERVICE_GAP;
  const free = Math.max(0, Math.min(tall, 900) - cards) / Math.max(1, shown.length + 1);
  if (inOrder) shown.forEach((id, number) => (graph.node(id).y = number));
  stack(graph, shown, SERVICE_GAP + Math.min(free, 30), Math.min(free, 40));
  if (!outside.length) return;
  const first = Math.min(...outside.map((id) => graph.node(id).y));
  const room = Math.max(0, Math.min(tall, 700) - outside.length * (OUTSIDE.height + HOST_GAP)) / (outside.length + 1);
  stack(graph, outside, HOST_GAP + Math.min(room, first > 0 ? 60 : 0), Math.min(room, 60));
}

function stack(graph, ids, gap, top = 0) {
  let y = 12 + top;
  for (const id of [...ids].sort((one, other) => graph.node(one).y - graph.node(other).y)) {
    const item = graph.node(id);
    item.y = y + item.height / 2;
    y += item.height + gap;
  }
  return y - gap - 12;
}

/** Networks beside one another where their hosts' heights overlap: a lane for each. */
function lanesOf(graph, map, { anchor }) {
  const ends = [];
  const lanes = new Map();
  for (const network of map.networks) {
    const members = network.members.map((member) => graph.node(anchor.get(member.host) ?? member.host)).filter(Boolean);
    const top = Math.min(...members.map((item) => item.y - item.height / 2), Infinity);
    const end = Math.max(...members.map((item) => item.y + item.height / 2), -Infinity);
    let lane = 0;
    while (ends[lane]?.some(([one, other]) => top < other + 8 && one < end + 8)) lane += 1;
    (ends[lane] ??= []).push([top, end]);
    lanes.set(network.id, lane);
  }
  return lanes;
}

export { byName };

function placeRoom(node, at, boxes, pods, open, map) {
  const top = at.y + ROOM.head;
  const ports = portsOf(node, map);
  const inner = at.h - ROOM.head - ROOM.pad;
  const list = shownPods(pods, open);
  const podX = at.x + 206;
  const podW = at.w - 206 - 12;
  boxes.set(node.id, {
    ...at, kind: "room", node,
    core: { x: at.x + 100, y: top + inner / 2 - 28, w: 70, h: 56 },
    bridge: { x: at.x + 184, y: top, w: 9, h: inner },
    more: pods.length - list.length,
    moreAt: { x: podX, y: top + list.length * ROOM.row, w: podW, h: ROOM.row - 5 },
  });
  ports.forEach((port, number) => {
    const step = inner / ports.length;
    boxes.set(`${node.id} ${port.name}`, { x: at.x + 10, y: top + step * (number + 0.5) - 14, w: 74, h: 28, kind: "port", port, node: node.id });
  });
  list.forEach((pod, number) => {
    boxes.set(pod.id, { x: podX, y: top + number * ROOM.row, w: podW, h: ROOM.row - 5, kind: "pod", pod, node: node.id });
  });
}

function placeGroup(group, at, boxes, podsOf, size) {
  group.nodes.forEach((node, number) => {
    const x = at.x + 14 + (number % group.columns) * (group.wide + group.gap);
    const y = at.y + 30 + Math.floor(number / group.columns) * (group.tall + group.gap);
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

function placeBars(map, box, boxes, frames, lanes) {
  return map.networks.map((network) => {
    const at = box(network.id);
    const members = network.members.map((member) => boxes.get(member.host)).filter(Boolean);
    const spans = frames.length ? [...frames, ...members.filter((item) => item.kind === "outside")] : members;
    const top = Math.min(...spans.map((item) => item.y), spans.length ? Infinity : at.y);
    const end = Math.max(...spans.map((item) => item.y + item.h), spans.length ? -Infinity : at.y + at.h);
    const found = { x: at.x + lanes.get(network.id) * LANE, y: top, w: at.w, h: end - top, id: network.id, network };
    boxes.set(network.id, { ...found, kind: "network" });
    return found;
  });
}

/** What all names begin with, up to a dash: it says nothing on a small tile. */
function commonPrefix(names) {
  let prefix = names[0] ?? "";
  for (const name of names) while (!name.startsWith(prefix)) prefix = prefix.slice(0, -1);
  const cut = prefix.lastIndexOf("-") + 1;
  return names.some((name) => name.length > 8) ? prefix.slice(0, cut) : "";
}
