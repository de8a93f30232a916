// Lines on the map: cables and tunnels, Services' packets to their endpoints, and the way of one packet.

import { useEffect, useMemo, useRef } from "preact/hooks";
import { Label, placed, sizeOf } from "./labels.jsx";
import { lineToEnd } from "./onehost.js";
import { rounded, walk } from "./paths.js";
import { edgesBy } from "./shape.js";
import { tunnelsOf } from "./tunnels.js";
import { hostId, percent, ratio, sum } from "../words.js";

export function Cables({ map, layout, doubted }) {
  const lines = [];
  for (const bar of layout.bars) {
    const x = bar.x + bar.w;
    for (const member of bar.network.members) {
      const id = hostId(member.host);
      const port = layout.boxes.get(`${id} ${member.device}`);
      const box = layout.boxes.get(id);
      const kind = `cable${member.removed ? " removed" : member.up === false ? " down" : ""}`;
      if (port) lines.push(<path key={`${bar.id} ${id}`} class={kind} d={`M${x} ${port.y + 14}H${port.x}`} />);
      else if (box?.kind === "outside") lines.push(<path key={`${bar.id} ${id}`} class={kind} d={toBar(box, bar, layout.slim)} />);
      else if (box?.kind === "room") lines.push(<path key={`${bar.id} ${id}`} class={kind} d={`M${x} ${box.y + 24}H${box.x}`} />);
    }
    for (const item of map.outside) {
      const box = layout.boxes.get(item.id);
      if ((item.links ?? []).includes(bar.id)) lines.push(<path key={`${bar.id} ${item.id}`} class="cable" d={toBar(box, bar, layout.slim)} />);
    }
    if (layout.frames.length) for (const frame of layout.frames) lines.push(<path key={`${bar.id} ${frame.id}`} class="cable" d={`M${x} ${frame.y + 20}H${frame.x}`} />);
  }
  return <g class="cables">{lines}<Tunnels map={map} layout={layout} doubted={doubted} /></g>;
}

function toBar(box, bar, slim) {
  if (slim && bar.x > box.x + box.w) return `M${box.x + box.w} ${box.y + box.h / 2}H${bar.x}`;
  if (slim) return `M${box.x + 11} ${box.y + box.h}L${bar.x + bar.w / 2} ${bar.y}`;
  const [x, y] = [box.x + box.w, box.y + box.h / 2];
  if (bar.x < box.x) return `M${box.x} ${y}H${bar.x + bar.w}`;
  return `M${x} ${y}C${x + 20} ${y} ${bar.x - 20} ${clamp(y, bar)} ${bar.x} ${clamp(y, bar)}`;
}

const clamp = (y, box) => Math.min(box.y + box.h - 12, Math.max(box.y + 12, y));

function Tunnels({ map, layout, doubted }) {
  const removed = new Set(map.nodes.filter((node) => node.removed).map((node) => node.id));
  return tunnelsOf(layout).map(({ key, x, ports: all }) => {
    const ports = all.filter((port) => !removed.has(port.node));
    if (ports.length < 2) return null;
    const ys = ports.map((port) => port.y + port.h / 2);
    const stubs = ports.map((port) => `M${x} ${port.y + port.h / 2}H${port.x}`).join("");
    return <path key={key} class={`tunnel${ports.some((port) => doubted?.has(`${port.node} ${port.port.name}`)) ? " touched" : ""}`} d={`M${x} ${Math.min(...ys)}V${Math.max(...ys)}${stubs}`}><title>{key}</title></path>;
  });
}

/** Edges from endpoints to their Services, as wide as their chance. All of them where they are few, else the selected one's;
 *  of a question only those of the Service that is asked. */
export function ServiceLines({ map, layout, selected, asked, before, under }) {
  const all = useMemo(() => (before ? changedLines(map, before, layout) : linesOf(map, layout, selected)), [map, before, layout, selected]);
  const lines = all.filter((line) => (line.from.kind === "outside") === under && (line.strong || !asked || line.from.kind === "end"));
  return (
    <g class={`edges${all.some((item) => item.strong) ? " chosen" : ""}${asked ? " faint" : ""}`}>
      {lines.map(({ key, from, to, width, strong, gone, less, wrong, lost }) => {
        const [x1, y1] = from.moreAt ? [from.x + from.w, from.more > 0 ? from.moreAt.y + 10 : from.y + from.h / 2] : [from.x + from.w, from.y + from.h / 2];
        const [x2, y2] = [to.x, to.y + to.h / 2];
        const bend = Math.max(30, (x2 - x1) / 2);
        const line = from.kind === "end" ? lineToEnd(layout, to, from) : from.kind === "outside" && layout.channel ? aroundNodes(layout, [x1, y1], [x2, y2]) : `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
        return (
          <g key={key} class={`edge${strong ? " strong" : ""}${gone ? " gone" : less ? " gone less" : lost ? " part" : ""}${wrong ? " wrong" : ""}`}>
            <path d={line} stroke-width={under && !strong && layout.channel ? 1.2 : (1 + width * 4).toFixed(1)} />
            {lost && <path class="cross" d={`M${from.kind === "end" ? from.x - 13 : x1 + 3} ${y1 - 5}l10 10m0 -10l-10 10`} />}
          </g>
        );
      })}
      {!under && <Shares layout={layout} lines={all.filter((line) => line.strong)} />}
    </g>
  );
}

/** The line of an endpoint outside: below all nodes, and on a phone, where it is above them, between nodes and Services. */
function aroundNodes(layout, [x1, y1], [x2, y2]) {
  if (layout.slim) return rounded([[x1, y1], [x2 - 18, y1], [x2 - 18, y2], [x2, y2]]);
  return rounded([[x1, y1], [x1 + 12, y1], [x1 + 12, layout.channel], [x2 - 26, layout.channel], [x2 - 26, y2], [x2, y2]]);
}

/** Lines' chances, where they leave their endpoints: there no two of them meet. Beside a client outside are networks, so there
 *  they are below it; and beside a group of nodes on a phone are Services, so there they are in its heading. */
function Shares({ layout, lines }) {
  const { slim } = layout;
  const said = lines.map(({ key, host, from, gone, less, wrong, lost, words }) => {
    const grouped = slim && from.zone !== undefined;
    const rows = words.map((text) => (grouped ? text.replace(/ \(.*/, "") : slim ? text.replace(/^.*→ /, "→ ") : text)).slice(0, grouped ? 1 : MOST_ROWS);
    const size = sizeOf(rows, slim);
    const y = (from.moreAt && from.more > 0 ? from.moreAt.y + 10 : from.y + from.h / 2) - size.h / 2;
    const first = slim && from.kind === "end" ? { x: from.x - size.w - 4, y } : grouped ? { x: from.x + from.w - size.w - 4, y: from.y + 4 } : from.kind === "outside" && !slim && layout.channel ? null : { x: from.x + from.w + 5, y };
    return { key, rows, host, ...size, first, kind: gone ? " gone" : less ? " gone less" : wrong ? " wrong" : lost ? " part" : "" };
  });
  const places = placed(layout, said);
  return said.map(({ key, rows, kind }, place) => places[place] && <Label key={key} at={places[place]} rows={rows} classes={`edge strong share${kind}`} slim={slim} />);
}

/** Lines of both maps; those whose chance is another one are drawn strong, with both numbers; `less`: none is left, which
 *  may be meant so. */
function changedLines(map, before, layout) {
  const now = new Map(linesOf(map, layout, "", true).map((line) => [line.key, line]));
  const then = new Map(linesOf(before, layout, "", true).map((line) => [line.key, line]));
  const found = [];
  for (const key of new Set([...then.keys(), ...now.keys()])) {
    const [one, other] = [then.get(key), now.get(key)];
    const ports = [...new Map([...(one?.ports ?? []), ...(other?.ports ?? [])]).values()];
    const pairs = ports.map(({ key: port, label }) => ({ label, was: one?.ports.get(port)?.chance ?? "0/1", is: other?.ports.get(port)?.chance ?? "0/1" }));
    const changed = pairs.filter(({ was, is }) => was !== is);
    const words = changed.map(({ label, was, is }) => `${changed.length < pairs.length ? `${label} ` : ""}${percent(was)} → ${percent(is)}`);
    found.push({ ...(other ?? one), strong: changed.length > 0, less: !other || (changed.length > 0 && changed.every(({ is }) => ratio(is) === 0)), gone: false, wrong: false, lost: false, words: [...new Set(words)] });
  }
  const changed = found.filter((line) => line.strong);
  return found.length <= FEW_LINES ? found : changed.slice(0, FEW_LINES);
}

const FEW_LINES = 60;
/** Of so many ports the chances stand at one line. */
const MOST_ROWS = 3;

/** One line for each endpoint and Service; from a group of small nodes one line for all of its endpoints. */
function linesOf(map, layout, selected, whole = false) {
  const used = map.services.filter((service) => layout.boxes.has(service.id)).flatMap((service) => edgesBy(map, "service", service.id)).filter((edge) => edge.used || edge.fault);
  const all = whole || layout.hooks || (used.length <= FEW_LINES && layout.size === "room");
  const frames = new Map();
  for (const frame of layout.frames) for (const id of frame.ids) frames.set(id, frame);
  const merged = new Map();
  for (const edge of used) {
    const strong = Boolean(selected) && [edge.service, edge.target, edge.node].includes(selected);
    if (!all && !strong) continue;
    const frame = frames.get(edge.node);
    const target = frame ? frame.id : [edge.target, edge.node, layout.holds?.get(edge.target)].find((id) => layout.boxes.has(id));
    if (!target) continue;
    const key = `${edge.service} ${target}`;
    if (!merged.has(key)) merged.set(key, { key, host: target, from: frame ?? layout.boxes.get(target), to: layout.boxes.get(edge.service), strong: false, wrong: false, ports: new Map() });
    const line = merged.get(key);
    line.strong ||= strong;
    line.wrong ||= edge.fault === "wrong";
    const port = `${edge.port} ${edge.protocol} ${edge.family}`;
    if (!line.ports.has(port)) line.ports.set(port, { key: port, label: edge.port || edge.protocol, chances: [], lost: [], ends: 0 });
    const share = line.ports.get(port);
    share.chances.push(edge.chance);
    if (edge.lost) share.lost.push(edge.lost);
    if (edge.used) share.ends += 1;
  }
  return [...merged.values()].map(withShares).filter((line) => line.width > 0);
}

/** Each port has chances of its own, which are not added up; where they are alike one stands for all. */
function withShares(line) {
  const ports = new Map([...line.ports].map(([key, port]) => [key, { ...port, chance: sum(port.chances), lost: sum(port.lost) }]));
  const shares = [...ports.values()];
  const texts = shares.map(shareWords);
  const words = new Set(texts).size === 1 ? [texts[0]] : shares.map(({ label }, place) => `${label} ${texts[place]}`);
  // A line has one width; where ports differ it is the widest one's.
  const width = Math.max(...shares.map(({ chance, lost }) => Math.max(ratio(chance), ratio(lost))));
  const lost = shares.some((port) => ratio(port.lost) > 0);
  return { ...line, ports, width, words: [...new Set(words)], lost, gone: lost && shares.every(({ chance }) => ratio(chance) === 0) };
}

function shareWords({ chance, lost, ends }) {
  const here = ends > 1 ? `${percent(chance)} (${ends})` : percent(chance);
  if (ratio(lost) === 0) return here;
  return ratio(chance) === 0 ? `${percent(lost)} lost` : `${here}, ${percent(lost)} lost`;
}

export function packetAt(line, moment) {
  if (line.spot) return line.spot(moment);
  if (moment.wire) return line.legs[moment.hop].mid;
  return (moment.kind === "end" ? line.end : line.stops[moment.hop]) ?? [0, 0];
}

export function Line({ line, way, moment }) {
  return (
    <g class={`way ${moment?.direction ?? "there"}`}>
      {line.legs.map((leg, number) => (
        <g key={number} class={moment && (line.passed ? line.passed(moment, number) : number < moment.hop || (number === moment.hop && (moment.wire || moment.kind === "end"))) ? "gone" : ""}>
          {leg.casing && <path class="casing" d={rounded(leg.casing)} />}
          <path class="track" d={rounded(leg.points)} marker-end="url(#tip)" />
        </g>
      ))}
    </g>
  );
}

/** A cross where a packet gets no further, above the packet itself; `hops` lead there. */
export function Cross({ layout, hops, service, back }) {
  const [x, y] = walk(layout, hops, service, back).end;
  return <path class="cross" d={`M${x - 9} ${y - 9}l18 18m0 -18l-18 18`} />;
}

/** The packet moves by CSSOM, since the page's policy allows no style attributes; see `style.css` for its transition. */
export function Packet({ at: [x, y], wrapped, lit }) {
  const holder = useRef(null);
  useEffect(() => {
    holder.current.style.transform = `translate(${x}px, ${y}px)`;
  }, [x, y]);
  return (
    <g ref={holder} class={`packet${wrapped ? " wrapped" : ""}${lit ? " lit" : ""}`}>
      <rect class="envelope" x={-17} y={-13} width={34} height={26} rx={5} />
      <rect class="letter" x={-11} y={-8} width={22} height={16} rx={3} />
      <path class="flap" d="M-11 -6L0 2L11 -6" />
    </g>
  );
}
