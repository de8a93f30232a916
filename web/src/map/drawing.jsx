// The map as a drawing. It draws what it is given; what a click means is up to who shows it.

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { HostHooks } from "./hostroom.jsx";
import { Bar, Frame, Labels, Node, Outside, Service } from "./items.jsx";
import { Captures } from "./captures.jsx";
import { noneOf } from "./faults.js";
import { arrange, isNode } from "./layout.js";
import { Cables, Cross, Line, Packet, ServiceLines, packetAt } from "./lines.jsx";
import { markSpots } from "./labels.jsx";
import { Ends, Marks, Tips, Told, Ways } from "./ways.jsx";
import { Zoom } from "../parts.jsx";
import { onHostWay } from "./onehost.js";
import { walk } from "./paths.js";
import { parseHash } from "../route.js";
import { edgesBy } from "./shape.js";
import { hostId, ratio } from "../words.js";

/** Layouts by their list of Services. */
const laid = new WeakMap();

/** Boxes of a map, the same in each view. */
export function useLayout(map, open) {
  const slim = useSlim();
  return useMemo(() => (map ? layoutOf(map, open, slim) : null), [map, open, slim]);
}

function layoutOf(map, open, slim) {
  const known = open.size ? null : laid.get(map.services);
  const of = [map.nodes, map.pods, map.networks, map.outside];
  if (known?.slim === slim && of.every((list, place) => list === known.of[place])) return known;
  const found = arrange(map, { open, slim });
  found.nodeOf = new Map(map.pods.map((pod) => [pod.id, pod.node]));
  found.linksOf = new Map(map.outside.map((item) => [item.id, item.links ?? []]));
  found.asker = map.asker ?? map.outside.find((item) => !item.end)?.id;
  found.of = of;
  if (!open.size) laid.set(map.services, found);
  return found;
}

export const phone = matchMedia("(max-width: 620px)");
const NONE = new Set();

/** Lays out the whole map before a view asks for it. */
export const layAhead = (map) => layoutOf(map, NONE, phone.matches);

/** Whether the page is as narrow as on a phone. */
export const useSlim = () => useMatch(phone);

/** Whether a window is as a query of `matchMedia` says. */
export function useMatch(media) {
  const [matches, setMatches] = useState(media.matches);
  useEffect(() => {
    const changed = () => setMatches(media.matches);
    changed();
    media.addEventListener("change", changed);
    return () => media.removeEventListener("change", changed);
  }, [media]);
  return matches;
}

/**
 * @param map, layout what is drawn and where
 * @param hrefOf what an item leads to, by its identifier; as long as it is the same function nothing is drawn again
 * @param selected identifier of what is looked at; its Services' or endpoints' lines are drawn strong
 * @param way hops of a packet's way, and `moment` where on it the packet is
 * @param lost hops of the way to where the packet or its answer is lost; null if it is not
 * @param captured places where the packet was captured, with what the model says there: rows of `api/lab/follow`
 * @param touched identifiers that a change touched
 * @param before the map before the change: chances that differ are drawn with both
 * @param ways the ways of both sides of a comparison, as `bothWays` gives them, instead of chances
 * @param marks numbers of findings by identifier, as `markSpots` takes them
 * @param doubted interfaces that a finding is about: "node/NAME DEVICE"
 * @param told what is said at hosts: [{host, tone, rows}]
 * @param at {host, words, spot, tone}: what is said of a part of a node (`placed`), beside the ends of `ways`
 * @param picks {from, to}
 * @param around how many pixels of the window's height are not for the map: where there is room it is drawn larger
 * @param more what stands beside the buttons for its size
 */
export function Drawing({ map, layout, hrefOf, selected = "", way = null, moment = null, lost = null, captured = null, touched = null, before = null, ways = null, marks = null, doubted = null, told = null, at = null, picks = {}, around = 220, more = null, label }) {
  const [zoom, setZoom] = useState(1);
  const holder = useRef(null);
  const back = moment?.direction === "back";
  const line = useMemo(() => (way ? walk(layout, way, selected, back) : null), [layout, way, selected, back]);
  const hops = way ?? ways?.lines.flatMap((each) => each.hops);
  const spots = useMemo(() => markSpots(layout, marks), [layout, marks]);
  const scale = zoom * useFit(holder, layout, around);
  useFollow(holder, layout, line, moment, scale);
  useSight(holder, layout, line ? "" : selected || endOf(ways, layout) || [...(touched ?? [])].find((id) => layout.boxes.has(id)) || "", scale);
  const keys = useArrows(holder, layout, selected);
  // What stands still is drawn once, however the packet moves and the size changes.
  const still = useMemo(
    () => <Still map={map} layout={layout} hrefOf={hrefOf} selected={selected} touched={touched} way={way} back={back} ways={ways} before={before} doubted={doubted} picks={picks} />,
    [map, layout, hrefOf, selected, touched, way, back, ways, before, doubted, picks.from, picks.to],
  );
  return (
    <div class="map-frame">
      <div class="drawing" ref={holder} tabIndex={-1}>
        <svg
          viewBox={`0 0 ${Math.ceil(layout.width)} ${Math.ceil(layout.height)}`}
          width={Math.floor(layout.width * scale)} height={Math.ceil(layout.height * scale)}
          role="group" aria-label={label} class={`map ${layout.size}${layout.slim ? " slim" : ""}${way || ways ? " asked" : ""}`} {...keys}
        >
          <defs>
            <marker id="tip" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="11" markerHeight="11" markerUnits="userSpaceOnUse" orient="auto">
              <path d="M0 0L8 4L0 8z" />
            </marker>
            {ways && <Tips />}
          </defs>
          {still}
          {ways && <Ways layout={layout} ways={ways} />}
          {line && <Line line={line} way={way} moment={moment} />}
          {layout.hooks && <HostHooks layout={layout} hops={hops} />}
          {hops && <Labels layout={layout} hops={hops} doubted={doubted} />}
          {captured && <Captures layout={layout} rows={captured} />}
          {ways && <Ends layout={layout} ways={ways} at={at} spots={spots} />}
          {marks && <Marks spots={spots} />}
          {line && moment && <Packet at={packetAt(line, moment)} wrapped={Boolean(moment.header.outer)} lit={moment.lit.size > 0} />}
          {told && <Told layout={layout} labels={told} />}
          {lost && <Cross layout={layout} hops={lost} service={selected} back={lost === way ? back : !back} />}
        </svg>
      </div>
      <Zoom zoom={zoom} setZoom={setZoom}>{more}</Zoom>
    </div>
  );
}

/** Everything on the map but the packet and its way. */
function Still({ map, layout, hrefOf, selected, touched, way, back, ways, before, doubted, picks }) {
  const hops = way ?? ways?.lines.flatMap((line) => line.hops);
  const passed = hops ? new Set([...hops.map((hop) => hostId(hop.host)), ...hops.map((hop) => layout.nodeOf?.get(hostId(hop.host))).filter(Boolean), ...(layout.hooks ? onHostWay(layout, hops, back) : [])]) : null;
  const amounts = amountsOf(map, layout, selected);
  const several = map.nodes.filter(isNode).length > 1;
  // Of endpoints outside they run beneath the nodes.
  const lines = (under) => <ServiceLines map={map} layout={layout} selected={selected} asked={Boolean(hops)} before={ways ? null : before} under={under} />;
  const common = { hrefOf, selected, touched, passed, picks, strong: related(map, selected) };
  return (
    <>
      {lines(true)}
      {layout.frames.map((frame) => <Frame key={frame.id} frame={frame} names={layout.names} />)}
      <Cables map={map} layout={layout} doubted={doubted} />
      {layout.bars.map((bar) => <Bar key={bar.id} bar={bar} hrefOf={hrefOf} selected={selected} />)}
      {map.outside.map((item) => layout.boxes.has(item.id) && <Outside key={item.id} item={item} box={layout.boxes.get(item.id)} {...common} />)}
      {map.nodes.map((node) => <Node key={node.id} node={node} layout={layout} amount={amounts.get(node.id) ?? 0} doubted={doubted} viewed={!hops && several && node.name === map.view} {...common} />)}
      {map.services.map((service) => {
        const box = layout.boxes.get(service.id);
        return box ? <Service key={service.id} service={service} box={box} unchecked={map.unchecked} fault={map.faults.get(service.id) ?? ""} none={service.skipped || map.served.has(service.id) ? "" : noneOf(edgesBy(map, "service", service.id))} {...common} /> : null;
      })}
      {lines(false)}
    </>
  );
}

/** The arrow keys go from one thing to the next. Tab leads to one of them: where the focus was, or what is chosen, or the first. */
function useArrows(holder, layout, selected) {
  const items = useMemo(() => [...layout.boxes.entries()].filter(([, box]) => box.kind !== "port"), [layout]);
  const focus = useRef("");
  const current = () => [focus.current, selected].find((id) => layout.boxes.has(id)) ?? items[0]?.[0];
  const found = (id) => holder.current.querySelector(`[data-id="${CSS.escape(id)}"]`);
  const stop = useRef(null);
  const mark = () => {
    const next = current();
    const element = next && found(next);
    if (stop.current !== element) stop.current?.setAttribute("tabindex", "-1");
    element?.setAttribute("tabindex", "0");
    stop.current = element;
  };
  useLayoutEffect(mark);
  const onFocusIn = (event) => {
    const id = event.target.closest?.("[data-id]")?.dataset.id;
    if (!id || id === focus.current) return;
    focus.current = id;
    mark();
  };
  const onKeyDown = (event) => {
    const direction = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!direction || event.altKey || event.ctrlKey || event.metaKey) return;
    const next = nearest(items, layout.boxes.get(current()), direction);
    event.preventDefault();
    event.stopPropagation();
    if (next) found(next)?.focus();
  };
  return { onFocusIn, onKeyDown };
}

/** Of small tiles, how strong each is filled: by the chance that a Service's packet goes there, or by its number of Pods. */
function amountsOf(map, layout, selected) {
  const found = new Map();
  if (layout.size !== "dot") return found;
  const edges = edgesBy(map, "service", selected).filter((edge) => edge.used);
  const port = edges[0];
  for (const edge of edges) if (edge.port === port.port && edge.protocol === port.protocol && edge.family === port.family) found.set(edge.node, (found.get(edge.node) ?? 0) + ratio(edge.chance));
  if (!edges.length) for (const node of map.nodes) if (layout.boxes.get(node.id)?.pods) found.set(node.id, layout.boxes.get(node.id).pods);
  const most = Math.max(...found.values());
  return new Map([...found].map(([id, value]) => [id, edges.length ? 0.3 + 0.7 * (value / most) : 0.08 + 0.5 * (value / most)]));
}

/** What belongs to what is selected: a Service's endpoints, a Pod's Services, a node's Pods. */
function related(map, selected) {
  const found = new Set();
  if (!selected) return found;
  for (const edge of edgesBy(map, "service", selected)) if (edge.used) found.add(edge.target).add(edge.node);
  for (const end of ["target", "node"]) for (const edge of edgesBy(map, end, selected)) if (edge.used) found.add(edge.service);
  return found;
}

function nearest(items, from, [dx, dy]) {
  if (!from) return items[0]?.[0];
  const [x, y] = [from.x + from.w / 2, from.y + Math.min(from.h, 60) / 2];
  let best = null;
  let least = Infinity;
  for (const [id, box] of items) {
    if (box === from) continue;
    const [bx, by] = [box.x + box.w / 2 - x, box.y + Math.min(box.h, 60) / 2 - y];
    const along = bx * dx + by * dy;
    if (along <= 2) continue;
    const cost = along + 2.5 * Math.abs(bx * dy + by * dx);
    if (cost < least) [best, least] = [id, cost];
  }
  return best;
}

const SMALLEST = 0.66;
const LARGEST = 1.4;
/** What is wide enough is not drawn smaller than this to be seen whole. */
const LOWEST = 0.72;
/** How much of the window's height the frame has at most (`.drawing` in style.css), and what its border takes. */
const FRAME = 0.74;
const BORDER = 2;
/** How large the map's frame was, by view and window: so it need not be drawn twice to know. */
const sizes = new Map();

/** How much smaller the map must be to fit its frame, never so small that it cannot be read; or larger, on a large screen. */
function useFit(holder, layout, around) {
  const place = `${parseHash(location.hash).path[0]} ${innerWidth}`;
  const [[width, height], setSize] = useState(sizes.get(place) ?? [0, 0]);
  useLayoutEffect(() => {
    const measure = () => {
      const frame = holder.current;
      // Where it fills what others leave of the window its height does not hang on the map, which may take all of it.
      const now = frame ? [frame.clientWidth, getComputedStyle(frame.parentElement).flexGrow === "1" ? frame.clientHeight : 0] : [0, 0];
      if (now[0]) sizes.set(place, now);
      setSize((old) => (old[0] === now[0] && old[1] === now[1] ? old : now));
    };
    if (!width) measure();
    const watch = new ResizeObserver(measure);
    watch.observe(holder.current);
    return () => watch.disconnect();
  }, []);
  if (!width) return 1;
  const tall = height || Math.min(innerHeight - around, innerHeight * FRAME) - BORDER;
  const [wide, high] = [width / layout.width, tall / layout.height];
  return Math.max(SMALLEST, layout.slim ? Math.min(1, wide) : Math.min(LARGEST, wide, Math.max(LOWEST, high)));
}

/** Keeps the packet in sight where the map is larger than its frame. */
function useFollow(holder, layout, line, moment, zoom) {
  useLayoutEffect(() => {
    if (!holder.current || !line || !moment) return;
    const [x, y] = packetAt(line, moment);
    const box = holder.current;
    const margin = 70;
    const [px, py] = [x * zoom, y * zoom];
    if (px < box.scrollLeft + margin || px > box.scrollLeft + box.clientWidth - margin) box.scrollLeft = px - box.clientWidth / 2;
    if (py < box.scrollTop + margin || py > box.scrollTop + box.clientHeight - margin) box.scrollTop = py - box.clientHeight / 2;
  }, [line, moment, zoom, layout]);
}

/** Where a packet of these ways is lost, or else arrives. */
function endOf(ways, layout) {
  const ends = (ways?.ends ?? []).filter((end) => layout.boxes.has(end.host));
  return (ends.find((end) => end.kind === "bad" && ratio(end.is) > 0) ?? ends.at(-1))?.host ?? "";
}

/** Brings what is chosen into sight where the map is larger than its frame, as on a phone. */
function useSight(holder, layout, id, zoom) {
  useLayoutEffect(() => {
    const box = layout.boxes.get(id);
    if (!holder.current || !box) return;
    const frame = holder.current;
    if (box.x * zoom < frame.scrollLeft || (box.x + box.w) * zoom > frame.scrollLeft + frame.clientWidth) {
      frame.scrollLeft = Math.max(0, (box.x + box.w) * zoom - frame.clientWidth + 12);
    }
    // On a phone the page scrolls, and what is known of it covers the lower half.
    const hidden = layout.slim ? frame.getBoundingClientRect().top + (box.y + Math.min(box.h, 60)) * zoom - innerHeight / 2 : 0;
    if (hidden > 0 && frame.closest(".view").querySelector(".sheet")) scrollBy(0, hidden + 12);
    if (box.y * zoom < frame.scrollTop || (box.y + Math.min(box.h, 150)) * zoom > frame.scrollTop + frame.clientHeight) frame.scrollTop = box.y * zoom - 40;
  }, [id, zoom, layout]);
}
