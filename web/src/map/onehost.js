// The map of one host's rules: clients at the left, the host with its hooks and the Services that its rules name, and at the
// right the endpoints in the order of their Services, so that lines do not cross.
//
// The columns in the host are the order in which a packet meets hooks: nat chooses an endpoint at the first, routing comes
// after it. A packet moves along the row of its Service, or along the lowest row if its address is no Service's.

import { isNode } from "./layout.js";
import { stationsOf } from "../packet/moments.js";
import { plain, ratio, splitPort, sum } from "../words.js";

const WIDE = { client: [136, 46], before: 56, pad: 12, head: 46, hook: 26, card: 198, gaps: [24, 30, 12], after: 96, end: [134, 27], room: 104, top: 20 };
const SLIM = { client: [112, 46], before: 24, pad: 6, head: 42, hook: 18, card: 92, gaps: [8, 9, 4], after: 54, end: [94, 27], room: 6, top: 12 };
const BETWEEN = 8;
const LEAST = 150;
/** Of Services with many endpoints fewer are drawn, so that the rows are not much taller than this. */
const TALL = 620;
/** Where the packet's header stands above the map. */
const TALL_ASKED = 460;
/** So far before an endpoint a packet stops, for it covers no words there. */
const SHORT = 15;
/** Of so many Services each has a line of its own; and beside one are at most so many endpoints. */
const FEW = 8;
const HOOKS = [["PREROUTING", "OUTPUT"], ["FORWARD", "INPUT"], ["POSTROUTING"]];

/** Whether a map is that of one host's rules: nothing else is known of its network. */
export const isOneHost = (map) => map.nodes.length === 1 && !isNode(map.nodes[0]);

/** As `arrange` in layout.js; `room`, `hooks` and `rest`, the row of what is no Service's, are what only this map has. `holds`
 *  says of endpoints without a box which box stands for them. */
export function arrangeHost(map, shown, slim) {
  const is = slim ? SLIM : WIDE;
  const [host] = map.nodes;
  const dense = shown.length > FEW;
  const [card, row] = dense ? [24, 31] : [50, 64];
  const [ew, eh] = [is.end[0], dense ? 23 : is.end[1]];
  const step = eh + (dense ? 4 : BETWEEN);
  const blocks = blocksOf(map, shown, row, step);
  const clients = map.outside.filter((item) => !item.end);
  const boxes = new Map();
  const rows = Math.max(LEAST, blocks.reduce((sum, block) => sum + block.h, 0) + eh + BETWEEN);
  const [cw, ch] = is.client;
  const room = { kind: "host", node: host, x: slim ? 8 : 12 + cw + is.before, y: is.top + (slim ? ch + is.before : 0), h: is.head + rows + is.pad };
  const inner = { y: room.y + is.head, h: rows };
  let x = room.x + is.pad;
  const hook = (place) => ({ names: HOOKS[place], x, w: is.hook, ...inner });
  const hooks = [hook(0)];
  x += is.hook + is.gaps[0];
  const cards = x;
  x += is.card + is.gaps[1];
  hooks.push(hook(1));
  x += is.hook + is.gaps[2];
  hooks.push(hook(2));
  room.w = x + is.hook + is.pad - room.x;
  clients.forEach((item, place) => boxes.set(item.id, {
    kind: "outside", w: cw, h: ch, ...(slim ? { x: 8 + place * (cw + 8), y: is.top } : { x: 12, y: inner.y + (rows - clients.length * (ch + 20) + 20) / 2 + place * (ch + 20) }),
  }));
  boxes.set(host.id, room);
  const ends = room.x + room.w + is.after;
  const holds = new Map();
  let y = inner.y;
  for (const { service, own, more, h } of blocks) {
    boxes.set(service.id, { kind: "service", x: cards, y: y + (h - card) / 2, w: is.card, h: card });
    const drawn = [...own, ...(more.length ? [`more ${service.id}`] : [])];
    let top = y + (h - (drawn.length - 1) * step - eh) / 2;
    for (const id of drawn) {
      boxes.set(id, { kind: "end", x: ends, y: top, w: ew, h: eh, of: service.id, more: id === drawn[own.length] ? more.length : 0, all: !own.length });
      top += step;
    }
    for (const id of more) holds.set(id, `more ${service.id}`);
    y += h;
  }
  const rest = { x: cards, y: inner.y + rows - eh, w: is.card, h: eh };
  // Where packets go on to that are no Service's.
  let low = rest.y;
  for (const item of map.outside) {
    if (!item.end || boxes.has(item.id) || holds.has(item.id) || !item.rest) continue;
    boxes.set(item.id, { kind: "end", x: ends, y: low, w: ew, h: eh, of: "", more: 0 });
    low += step;
  }
  const all = [...boxes.values()];
  return {
    size: "room", slim, room, hooks, rest, holds, boxes, frames: [], bars: [], names: null, channel: 0, more: map.services.length - shown.length,
    width: Math.max(...all.map((box) => box.x + box.w)) + is.room, height: Math.max(...all.map((box) => box.y + box.h)) + (slim ? 48 : 40),
  };
}

/** Each Service with the endpoints that stand beside it: those that no Service above has, and of very many some. */
function blocksOf(map, shown, row, end) {
  const claimed = new Set();
  const found = shown.map((service) => {
    const ids = new Set(map.edges.filter((edge) => edge.service === service.id && (edge.used || edge.fault)).map((edge) => edge.target));
    const own = [...ids].filter((id) => !claimed.has(id));
    for (const id of own) claimed.add(id);
    return { service, all: own };
  });
  const height = (most) => found.map(({ all }) => Math.max(row, Math.min(all.length, most) * end + BETWEEN));
  let most = FEW;
  while (most > 1 && height(most).reduce((sum, each) => sum + each, 0) > (map.asker === undefined ? TALL : TALL_ASKED)) most -= 1;
  const heights = height(most);
  return found.map(({ service, all }, place) => {
    const cut = all.length > most ? most - 1 : all.length;
    return { service, own: all.slice(0, cut), more: all.slice(cut), h: heights[place] };
  });
}

/** The hooks that a packet is known to meet: of an answer no rules are told. */
export const metBy = (hop) => (hop.steps?.length ? stationsOf(hop).filter((name) => HOOKS.flat().includes(name)) : []);

const mid = (box) => box.y + box.h / 2;
const centre = (box) => box.x + box.w / 2;

/** The line from a Service's row out of the host to an endpoint. */
export function lineToEnd({ room }, service, end) {
  const [x, y] = [room.x + room.w, mid(service)];
  const bend = (end.x - x) / 2;
  return `M${service.x + service.w} ${y}H${x}C${x + bend} ${y} ${end.x - bend} ${mid(end)} ${end.x} ${mid(end)}`;
}

/** The points from a client to the first hook. */
export function pointsFrom(layout, client) {
  const [first] = layout.hooks;
  if (!layout.slim) return [[client.x + client.w, mid(client)], [centre(first), mid(client)]];
  const above = layout.room.y - 10;
  const x = Math.max(centre(first), client.x + 19);
  return [[x, client.y + client.h], [x, above], [centre(first), above], [centre(first), first.y]];
}

const addressed = (address) => `outside/${splitPort(address)[0] || address}`;

/** The box of what has an address at the right. */
function endBox(layout, address) {
  const id = addressed(address);
  const box = layout.boxes.get(layout.holds.get(id) ?? id);
  return box?.kind === "end" ? box : null;
}

/** What a packet meets outside of the host: who asks, and the endpoint that is chosen. */
export function onHostWay(layout, [hop], back) {
  return [layout.asker, addressed((back ? hop.src : hop.leftDst) ?? "")].filter(Boolean);
}

/**
 * As `walk` in paths.js; `spot` says where a packet is at a moment, and `passed` whether a leg is behind it.
 *
 * @param service the Service that is asked; "" if none
 * @param back whether it is the answer
 */
export function hostWalk(layout, [hop], service, back) {
  const row = layout.boxes.get(service) ?? layout.rest;
  const y = mid(row);
  const [first, , last] = layout.hooks;
  const asker = layout.boxes.get(layout.asker);
  const enters = [...(asker ? pointsFrom(layout, asker) : []), [centre(first), y]];
  const end = endBox(layout, back ? hop.src : hop.leftDst);
  const turn = layout.room.x + layout.room.w + (layout.slim ? SLIM : WIDE).after / 2;
  const leaves = end ? [[turn, y], [turn, mid(end)], [end.x, mid(end)]] : [[turn, y]];
  const arrived = end ? [end.x - SHORT, mid(end)] : leaves.at(-1);
  const at = (name) => [centre(layout.hooks[Math.max(0, HOOKS.findIndex((names) => names.includes(name)))]), y];
  const [left, right] = [[row.x, y], [row.x + row.w, y]];
  const met = metBy(hop);
  const through = hop.verdict === "ACCEPT" && hop.via !== "local";
  // What says that a packet is rejected begins in the host.
  const begin = back ? (end ? arrived : right) : enters[0];
  const stop = back ? (through ? enters[0] : [centre(last), y]) : through ? arrived : at(hop.verdict === "ACCEPT" ? "INPUT" : met.at(-1));
  const legs = back
    ? [...(end ? [[...leaves.toReversed(), right]] : []), ...(through ? [[left, ...enters.toReversed()]] : [])]
    : stop[0] <= left[0] ? [enters] : [[...enters, left], [right, ...(through ? leaves : [stop])]];
  const spot = (moment) => {
    if (moment.kind === "end") return stop;
    if (back || moment.kind === "arrive") return begin;
    if (moment.kind === "route") return [(right[0] + layout.hooks[1].x) / 2, y];
    // Its Service's rules have chosen.
    return HOOKS[0].includes(moment.hook) && moment.lit.has("dst") ? right : at(moment.hook);
  };
  const passed = (moment, place) => (back ? spot(moment)[0] <= legs[place].at(-1)[0] : spot(moment)[0] >= legs[place].at(-1)[0] - SHORT);
  return { stops: [stop], end: stop, legs: legs.map((points) => ({ points, casing: null, mid: points[0] })), spot, passed };
}

/**
 * The map of a question: with who asks, and with where the way leads to, if the rules name neither.
 *
 * @param service the Service that is asked; "" if none
 * @param alone whether no other is drawn
 */
export function askedOfHost(map, { from, answer, way, service, alone }) {
  const edges = service && answer ? [...map.edges.filter((edge) => edge.service !== service), ...edgesOf(answer, service, way)] : map.edges;
  const own = /^(node\/)?host$/.test(from ?? "");
  const address = plain(from);
  const known = map.outside.find((item) => !item.end && (item.address === address || (from === "outside" && item.label === "a client outside")));
  const asker = own ? map.nodes[0].id : !from ? "" : (known?.id ?? "asker");
  const clients = map.outside.filter((item) => !item.end && (asker !== "asker"));
  const ends = map.outside.filter((item) => item.end);
  if (asker === "asker") clients.push({ id: asker, address, label: "who asks", links: [] });
  const target = way?.end === "answered" ? splitPort(way.target)[0] : "";
  if (target && !ends.some((item) => item.address === target && edges.some((edge) => edge.target === item.id))) {
    ends.push({ id: `outside/${target}`, address: target, label: "", links: [], end: true, rest: true });
  }
  const services = alone ? map.services.filter((item) => item.id === service) : map.services;
  return { ...map, edges, services, outside: [...clients, ...ends], asker: own ? "" : asker, lit: asker };
}

/** Where the rules send what is asked, and what of it they drop or reject after that; first the way that is shown, so that it
 *  is drawn. */
function edgesOf(answer, service, shown) {
  const all = [...(shown ? [shown] : []), ...answer.journeys.filter((way) => way !== shown)];
  const sent = Map.groupBy(all.filter((way) => way.target && way.target !== answer.to), (way) => way.target);
  return [...sent].map(([endpoint, ways]) => {
    const chance = sum(ways.filter((way) => way.end === "answered").map((way) => way.probability));
    const lost = sum(ways.filter((way) => /^(lost|refused)$/.test(way.end)).map((way) => way.probability));
    const fault = ratio(lost) > 0 ? { fault: "lost", lost } : { fault: "", lost: "" };
    return { service, port: "", protocol: answer.protocol, family: "", node: "", target: addressed(endpoint), endpoint, state: "", why: "", used: ratio(chance) > 0, chance, ...fault };
  });
}
