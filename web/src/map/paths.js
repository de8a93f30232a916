// The packet's line over the map: from host to host along the links that it really takes.

import { coreOf } from "./layout.js";
import { hostWalk } from "./onehost.js";
import { tunnelBetween } from "./tunnels.js";
import { hostId } from "../words.js";

/**
 * The legs of a way between its hops.
 *
 * @param service, back of one host's rules: the Service that is asked, and whether it is the answer
 * @param lane of several ways on one map: so far from one another are what comes from the bridge to the rules and what goes there
 * @returns {stops: [x, y] for each hop, legs: [{points, casing, mid}] between them; casing: the points inside a tunnel, or null;
 *   end: [x, y] where it ends, with a leg of its own to the interface by which a packet leaves that nobody takes}
 */
export function walk(layout, hops, service = "", back = false, lane = 0) {
  if (layout.hooks) return hostWalk(layout, hops, service, back);
  const stops = hops.map((hop) => (hop.at === "bridge" && bridgeOf(layout, hop.host)) || stopOf(layout, hop.host));
  const legs = [];
  for (let number = 0; number + 1 < hops.length; number += 1) {
    legs.push(leg(layout, hops[number], hops[number + 1], stops[number], stops[number + 1], lane));
  }
  const last = hops.at(-1);
  const box = layout.boxes.get(hostId(last?.host));
  if (last?.local && box?.kind === "room" && !box.slim) {
    // Below the rules stands what becomes of it.
    const points = [stops.at(-1), [stops.at(-1)[0], box.y + box.h - PILL]];
    return { stops, legs: [...legs, { points, casing: null, mid: half(points) }], end: points.at(-1) };
  }
  if (lane && last?.at === "bridge" && legs.length && box?.kind === "room") {
    // To nobody: below the bridge stands whom it looked for.
    const end = [box.bridge.x + box.bridge.w / 2, box.y + box.h - PILL];
    const way = legs.pop();
    return { stops, legs: [...legs, { ...way, points: tidy([...way.points, end]) }], end };
  }
  if (last?.verdict !== "ACCEPT" || last.via !== "out" || box?.kind !== "room") return { stops, legs, end: stops.at(-1) };
  const start = stops.at(-1);
  // By the bridge to nobody, or by an interface that is drawn.
  const toBridge = !layout.boxes.has(`${hostId(last.host)} ${last.out}`);
  const points = tidy([start, ...(toBridge ? [[box.bridge.x + box.bridge.w / 2, start[1]]] : out(layout, hostId(last.host), last.out, start))]);
  if (!box.slim && !toBridge) points.push([points.at(-1)[0] - BESIDE, points.at(-1)[1]]);
  return { stops, legs: [...legs, { points, casing: null, mid: half(points) }], end: points.at(-1) };
}

/** How far what is said at a room's lower border reaches into it. */
const PILL = 10;

/** How far from an interface a packet is that has left by it, so that it hides no address. */
export const BESIDE = 26;

/** Where a packet is while a host handles it. */
export function stopOf(layout, host) {
  const id = hostId(host);
  const box = layout.boxes.get(id) ?? layout.boxes.get(podHolder(layout, id)) ?? anyClient(layout, id);
  if (!box) return [20, 20];
  if (box.kind === "room") return coreOf(box);
  // Where no name is.
  if (box.kind === "outside") return layout.slim ? [box.x + 11, box.y + box.h] : [box.x + box.w, box.y + box.h / 2];
  if (box.kind === "pod") return [box.x - 4, box.y + box.h / 2];
  return middle(box);
}

/** Where a packet of an unknown Pod comes from: the bridge of the node's Pods. */
function bridgeOf(layout, host) {
  const box = layout.boxes.get(hostId(host));
  return box?.kind === "room" ? [box.bridge.x + box.bridge.w / 2, coreOf(box)[1]] : null;
}

/** Of clients outside one is drawn; it stands for others. */
export const anyClient = (layout, id) => (id.startsWith("outside/") ? [...layout.boxes.values()].find((box) => box.kind === "outside") : undefined);

const podHolder = (layout, id) => layout.nodeOf?.get(id);

/** `lane`: see `walk`. */
function leg(layout, from, to, start, end, lane) {
  const points = [start];
  const [one, other] = [hostId(from.host), hostId(to.host)];
  let casing = null;
  const [oneNode, otherNode] = [nodeOf(layout, one), nodeOf(layout, other)];
  if (one === other && (from.at || to.at)) {
    // Between the node's bridge and its rules.
    const y = start[1] + (from.at ? -lane : lane);
    points.push([start[0], y], [end[0], y]);
  } else if (one === other) {
    // To itself, over the loopback interface; below, where no words are.
    points.push([start[0], start[1] + 22], [start[0] + 26, start[1] + 22], [start[0] + 26, start[1]]);
  } else if (oneNode && oneNode === otherNode) {
    const room = layout.boxes.get(oneNode);
    if (room?.kind === "room") {
      const x = room.bridge.x + room.bridge.w / 2;
      // The rules are left of the bridge; of the two ends one is a Pod.
      if (start[0] > x) points.push([x, start[1]], [x, end[1] - lane], [end[0], end[1] - lane]);
      else points.push([start[0], start[1] + lane], [x, start[1] + lane], [x, end[1]]);
    }
  } else if (tunnelBetween(layout, oneNode, from.out, otherNode)) {
    const { x, one: first, other: last } = tunnelBetween(layout, oneNode, from.out, otherNode);
    const [enters, leaves] = [out(layout, oneNode, from.out, start, -lane), out(layout, otherNode, last.port.name, end, lane).reverse()];
    casing = [enters.at(-1), [x, first.y + first.h / 2], [x, last.y + last.h / 2], leaves[0]];
    points.push(...enters, ...casing, ...leaves);
  } else {
    const bar = sharedBar(layout, oneNode ?? one, otherNode ?? other);
    points.push(...out(layout, oneNode ?? one, from.out, start, -lane));
    // To a network on its other side a host beside the nodes has no way through itself.
    if (isBeyond(layout, one, bar)) points.splice(0, 2, [layout.boxes.get(one).x, start[1]]);
    if (bar) {
      const x = bar.x + bar.w / 2;
      points.push([x, points.at(-1)[1]]);
      const way = out(layout, otherNode ?? other, to.in, end, lane).reverse();
      points.push([x, (way[0] ?? end)[1]], ...(isBeyond(layout, other, bar) ? [] : way));
      if (isBeyond(layout, other, bar)) end = [layout.boxes.get(other).x, end[1]];
    } else {
      points.push(...out(layout, otherNode ?? other, to.in, end, lane).reverse());
    }
  }
  points.push(end);
  // Of a tunnel that has no line of its own, as between small nodes, the whole leg is inside.
  if (from.outer) casing ??= tidy(points);
  return { points: tidy(points), casing, mid: half(casing ?? tidy(points)) };
}

/** Whether a network is to the left of a host outside, where others have none. */
const isBeyond = (layout, id, bar) => !layout.slim && layout.boxes.get(id)?.kind === "outside" && bar?.x < layout.boxes.get(id).x;

/** The points by which a packet leaves a host: where it is drawn as a room from the bridge, if it is of a Pod there, by the
 *  rules, whose words it does not touch, to its port. */
function out(layout, id, device, from, lane = 0) {
  const box = layout.boxes.get(id);
  if (box?.kind === "room") {
    const port = layout.boxes.get(`${id} ${device}`) ?? [...layout.boxes.values()].find((item) => item.kind === "port" && item.node === id);
    const [x, y] = coreOf(box);
    const bridge = box.bridge.x + box.bridge.w / 2;
    const inside = from[0] > bridge ? [[bridge, from[1]], [bridge, y + lane]] : [];
    inside.push([box.slim ? x : box.core.x - 5, from[0] > bridge ? y + lane : y]);
    return [...inside, ...(port ? through(port) : [[box.x, y]])];
  }
  if (box?.kind === "outside") return [layout.slim ? [box.x + 11, box.y + box.h] : [box.x + box.w, box.y + box.h / 2]];
  if (box) {
    // Between two rows of tiles, where nothing stands.
    const y = box.y - 6;
    return [[box.x + box.w / 2, y]];
  }
  return [];
}

/** In and out by an interface; of a slim room its rules are below. */
const through = (port) => [[port.slim ? port.x + port.w / 2 : port.x + port.w, port.y + port.h / 2], [port.x, port.y + port.h / 2]];

function nodeOf(layout, id) {
  if (id.startsWith("node/")) return id;
  const box = layout.boxes.get(id);
  return box?.node && typeof box.node === "string" ? box.node : layout.nodeOf?.get(id);
}

function sharedBar(layout, one, other) {
  const joins = (bar, id) => bar.network.members.some((member) => hostId(member.host) === id) || layout.linksOf?.get(id)?.includes(bar.id);
  return layout.bars.find((bar) => joins(bar, one) && joins(bar, other)) ?? layout.bars.find((bar) => joins(bar, one)) ?? layout.bars[0];
}

const middle = (box) => [box.x + box.w / 2, box.y + box.h / 2];

function tidy(points) {
  return points.filter(([x, y], place) => !place || x !== points[place - 1][0] || y !== points[place - 1][1]);
}

/** The line up to a point so many pixels before its end. */
export function before(points, pixels) {
  const [[x1, y1], [x2, y2]] = points.slice(-2);
  const length = Math.hypot(x2 - x1, y2 - y1);
  return length < 2 * pixels ? points : [...points.slice(0, -1), [x2 - ((x2 - x1) * pixels) / length, y2 - ((y2 - y1) * pixels) / length]];
}

/** A short piece of a line that ends halfway along it, for an arrow head. */
export function halfway(points) {
  const [x, y] = half(points);
  const on = points.slice(1).findIndex(([x2, y2], place) => between(x, points[place][0], x2) && between(y, points[place][1], y2));
  const [x1, y1] = points[Math.max(0, on)];
  const length = Math.hypot(x - x1, y - y1);
  return length < 1 ? [[x, y], points[on + 1] ?? [x, y]] : [[x - (x - x1) / length, y - (y - y1) / length], [x, y]];
}

const between = (value, one, other) => value >= Math.min(one, other) - 0.01 && value <= Math.max(one, other) + 0.01;

/** The point halfway along a line. */
function half(points) {
  const lengths = points.slice(1).map(([x, y], place) => Math.hypot(x - points[place][0], y - points[place][1]));
  let left = lengths.reduce((sum, item) => sum + item, 0) / 2;
  for (let place = 0; place < lengths.length; place += 1) {
    if (left <= lengths[place]) {
      const share = lengths[place] ? left / lengths[place] : 0;
      const [[x1, y1], [x2, y2]] = [points[place], points[place + 1]];
      return [x1 + (x2 - x1) * share, y1 + (y2 - y1) * share];
    }
    left -= lengths[place];
  }
  return points[0];
}

/** A line with rounded corners, as an SVG path. */
export function rounded(points, radius = 9) {
  if (points.length < 2) return "";
  let text = `M${f(points[0])}`;
  for (let place = 1; place + 1 < points.length; place += 1) {
    const [before, here, after] = [points[place - 1], points[place], points[place + 1]];
    const one = toward(here, before, radius);
    const other = toward(here, after, radius);
    text += `L${f(one)}Q${f(here)} ${f(other)}`;
  }
  return `${text}L${f(points.at(-1))}`;
}

function toward([x, y], [tx, ty], most) {
  const length = Math.hypot(tx - x, ty - y);
  const share = length ? Math.min(most, length / 2) / length : 0;
  return [x + (tx - x) * share, y + (ty - y) * share];
}

const f = ([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`;
