// Several ways of packets on one map: what only one side has, and what both have; and the numbers of findings on it.

import { useMemo } from "preact/hooks";
import { Label, RADIUS, placed, sizeOf } from "./labels.jsx";
import { before, halfway, rounded, walk } from "./paths.js";
import { OWN_PROGRAMS, byNode, toneOf } from "./waysof.js";
import { hostId, percent, ratio } from "../words.js";

/**
 * The ways as lines, those of the first side above those of the second; a cross where a packet is lost. Dashes tell the
 * sides apart, and red is for loss, and for what goes astray: that a packet arrives does not mean that it should.
 */
export function Ways({ layout, ways }) {
  const several = new Set(ways.lines.map((line) => line.side)).size > 1;
  const drawn = ways.lines.map((line) => ({ ...line, path: walk(layout, line.hops, "", false, layout.slim ? 0 : LANE) }));
  // Ways through the same tunnel have one casing: several over one another would hide what is below.
  const cased = new Set();
  const first = (casing) => !cased.has(casing) && cased.add(casing);
  // What several ways have in common is drawn once: dashes over dashes are no longer such.
  const run = new Set();
  const fresh = (line, leg) => {
    const key = `${line.side} ${line.end} ${rounded(leg.points)}`;
    return !run.has(key) && run.add(key);
  };
  const shift = { was: several ? -4 : 0, is: several ? 4 : 0, both: 0 };
  return (
    <g class={`ways-drawn${ways.calm ? " calm" : ""}`}>
      {["both", "was", "is"].map((side) => drawn.filter((line) => line.side === side).map((line) => (
        <g key={line.key} class={`drawn ${side} ${line.end}`} transform={`translate(${shift[side]} ${shift[side]})`}>
          {line.path.legs.map((leg, number) => fresh(line, leg) && <Leg key={number} leg={leg} line={line} last={number + 1 === line.path.legs.length} cased={leg.casing && first(`${line.end} ${rounded(leg.casing)}`)} apart={several} calm={ways.calm} />)}
          {line.path.legs.length > 0 && <circle class="start" cx={line.path.legs[0].points[0][0]} cy={line.path.legs[0].points[0][1]} r="5" />}
          {line.end === "bad" && !line.path.legs.length && <Begun at={line.path.end} />}
        </g>
      )))}
    </g>
  );
}

/** What is stopped where it begins. */
const Begun = ({ at: [x, y] }) => <><circle class="start" cx={x} cy={y} r="5" /><path class="run" d={`M${x + 5} ${y}h10`} /><path class="cross" d={crossAt([x + 22, y], SMALL + 1)} /></>;

/** Whether a way leaves its last host by the side on which it came. */
function turns({ hops }) {
  const [previous, last] = hops.slice(-2);
  return (!hops[0].at && hostId(hops[0].host) === hostId(last.host)) || (last.via === "out" && /^(outside|node)\//.test(hostId(previous.host)));
}

/**
 * One leg, with a head halfway where others follow, which begin where it ends; the last one ends with a head or a cross,
 * where the other side goes on a bit `apart` from there. What comes back over the same hosts is beside the way out, and
 * red where only the second side loses it.
 */
function Leg({ leg, line, last, cased, apart, calm }) {
  const back = last && line.path.legs.length > 1 && turns(line);
  // What nobody has is named where the line ends.
  const lost = last && line.end === "bad" && line.hops.at(-1).at !== "bridge";
  const points = lost && (apart || back) ? before(leg.points, STOP) : leg.points;
  const red = line.end !== "ok" && (line.side === "is" || (back && line.side === "both"));
  const shift = line.side === "was" ? -BACK : BACK;
  const tip = `url(#tip-${red && !calm ? "lost" : red ? "was" : line.side})`;
  return (
    <g class={back && red ? "drawn is bad" : ""} transform={back ? `translate(${shift} ${shift})` : undefined}>
      {cased && <path class="casing" d={rounded(leg.casing)} />}
      <path class="run" d={rounded(points)} marker-end={last && !lost ? tip : undefined} />
      {(!last || back) && <path class="run head" d={rounded(halfway(leg.casing ?? leg.points))} marker-end={tip} />}
      {back && red && <circle class="fork" cx={points[0][0]} cy={points[0][1]} r="4" />}
      {lost && <path class="cross" d={crossAt(points.at(-1), line.side === "was" ? SMALL : LARGE)} />}
    </g>
  );
}

/** Pixels. */
const LANE = 5;
const STOP = 16;
const BACK = 6;
const SMALL = 6;
const LARGE = 9;

/** How many packets end where on the one side, and on the other; `at`: {host, words, spot, tone} of what is else to be said of a node. */
export function Ends({ layout, ways, at, spots }) {
  const labels = useMemo(() => [...byNode(ways.ends, layout.nodeOf).ends.map((end) => ({ host: end.host, tone: toneOf(end), rows: rowsOf(end, layout), spot: end.spot, led: end.words === OWN_PROGRAMS })), ...(at ? [{ host: at.host, tone: at.tone ?? "plain", rows: [at.words], spot: at.spot }] : [])], [layout, ways, at]);
  return <Told layout={layout} labels={labels} spots={spots} calm={ways.calm} />;
}

const NONE = [];

/** What is said at hosts, where it covers no words; `spots` are those of numbers. */
export function Told({ layout, labels: said, spots = NONE, calm = false }) {
  const labels = useMemo(() => {
    const places = placed(layout, said.map(({ host, rows, spot }) => ({ host, spot, ...sizeOf(rows, layout.slim) })), spots.map((spot) => spot.rect));
    // To some a line of a way leads.
    return said.map((label, place) => ({ ...label, at: places[place] && { ...places[place], leader: label.led ? null : places[place].leader } })).filter((label) => label.at);
  }, [layout, said, spots]);
  return <g class={`ways-drawn${calm ? " calm" : ""}`}>{labels.map((label, place) => label.at.leader && <path key={place} class="leader" d={label.at.leader} />)}{labels.map((label, place) => <Label key={place} at={{ ...label.at, leader: null }} rows={label.rows} classes={`end-label ${label.tone}`} slim={layout.slim} />)}</g>;
}

const crossAt = ([x, y], half = LARGE) => `M${x - half} ${y - half}l${2 * half} ${2 * half}m0 -${2 * half}l-${2 * half} ${2 * half}`;

/** Arrow heads of the ways, in their colours. */
export const Tips = () => ["both", "was", "is", "lost"].map((side) => (
  <marker key={side} id={`tip-${side}`} class={`tip ${side}`} viewBox="0 0 8 8" refX="6" refY="4" markerWidth="11" markerHeight="11" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L8 4L0 8z" /></marker>
));

/** Beside a host outside is room for short rows alone. */
function rowsOf(end, layout) {
  const words = wordsOf(end, layout);
  if (!end.host.startsWith("outside/") || words.length <= SHORT) return [words];
  const cut = words.lastIndexOf(": ");
  return cut < 0 ? [words] : [words.slice(0, cut), words.slice(cut + 2)];
}

const SHORT = 24;

function wordsOf(end, layout) {
  const [was, is] = [percent(end.was), percent(end.is)];
  // On a phone is no room beside a Pod for both numbers.
  const beside = layout.slim && layout.boxes.get(end.host)?.kind === "pod";
  const chances = was === is ? was : beside ? `→ ${is}` : `${was} → ${is}`;
  if (end.sources) return end.sources;
  if (end.kind === "ok") return [end.words, chances].filter(Boolean).join(": ");
  return was === is ? end.words : `${end.words}: ${chances}`;
}

/** Numbers of findings at what they are about, where `markSpots` put them; each leads to its finding. */
export function Marks({ spots }) {
  return (
    <g class="marks">
      {spots.map(({ id, items, more }) => (
        <g key={id}>
          {items.map((item) => (
            <a key={item.number} href={item.href} class={`mark ${item.tone}${item.current ? " current" : ""}`} tabindex="-1" aria-label={item.label} aria-current={item.current ? "true" : undefined}>
              <title>{item.label}</title>
              <circle cx={item.x} cy={item.y} r={RADIUS} />
              <text x={item.x} y={item.y + 4.2}>{item.number}</text>
            </a>
          ))}
          {more && <text class="more-marks" x={more.x} y={more.y + 4}>+{more.left}</text>}
        </g>
      ))}
    </g>
  );
}
