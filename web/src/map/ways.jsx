// Several ways of packets on one map: what only one side has, and what both have; and the numbers of findings on it.

import { useMemo } from "preact/hooks";
import { Label, RADIUS, placed, sizeOf } from "./labels.jsx";
import { rounded, walk } from "./paths.js";
import { byNode, toneOf } from "./waysof.js";
import { percent, ratio } from "../words.js";

/**
 * The ways as lines, those of the first side above those of the second; a cross where a packet is lost. Dashes tell the
 * sides apart, and red is for loss, and for what goes astray: that a packet arrives does not mean that it should.
 */
export function Ways({ layout, ways }) {
  const several = new Set(ways.lines.map((line) => line.side)).size > 1;
  const drawn = ways.lines.map((line) => ({ ...line, path: walk(layout, line.hops) }));
  // Ways through the same tunnel have one casing: several over one another would hide what is below.
  const cased = new Set();
  const first = (casing) => !cased.has(casing) && cased.add(casing);
  const shift = { was: several ? -3 : 0, is: several ? 3 : 0, both: 0 };
  return (
    <g class="ways-drawn">
      {["both", "was", "is"].map((side) => drawn.filter((line) => line.side === side).map((line) => (
        <g key={line.key} class={`drawn ${side} ${line.end}`} transform={`translate(0 ${shift[side]})`}>
          {line.path.legs.map((leg, number) => (
            <g key={number}>
              {leg.casing && first(`${line.end} ${rounded(leg.casing)}`) && <path class="casing" d={rounded(leg.casing)} />}
              <path class="run" d={rounded(leg.points)} marker-end={`url(#tip-${side === "is" && line.end !== "ok" ? "lost" : side})`} />
            </g>
          ))}
          {line.path.legs.length > 0 && <circle class="start" cx={line.path.legs[0].points[0][0]} cy={line.path.legs[0].points[0][1]} r="5" />}
          {line.end === "bad" && <path class="cross" d={crossAt(line.path.end)} />}
        </g>
      )))}
    </g>
  );
}

/** How many packets end where on the one side, and on the other. */
export function Ends({ layout, ways, spots }) {
  const labels = useMemo(() => byNode(ways.ends, layout.nodeOf).ends.map((end) => ({ host: end.host, tone: toneOf(end), rows: [wordsOf(end, layout)] })), [layout, ways]);
  return <Told layout={layout} labels={labels} spots={spots} />;
}

const NONE = [];

/** What is said at hosts, where it covers no words; `spots` are those of numbers. */
export function Told({ layout, labels: said, spots = NONE }) {
  const labels = useMemo(() => {
    const places = placed(layout, said.map(({ host, rows }) => ({ host, ...sizeOf(rows, layout.slim) })), spots.map((spot) => spot.rect));
    return said.map((label, place) => ({ ...label, at: places[place] })).filter((label) => label.at);
  }, [layout, said, spots]);
  return <g class="ways-drawn">{labels.map((label, place) => <Label key={place} at={label.at} rows={label.rows} classes={`end-label ${label.tone}`} slim={layout.slim} />)}</g>;
}

const crossAt = ([x, y]) => `M${x - 9} ${y - 9}l18 18m0 -18l-18 18`;

/** Arrow heads of the ways, in their colours. */
export const Tips = () => ["both", "was", "is", "lost"].map((side) => (
  <marker key={side} id={`tip-${side}`} class={`tip ${side}`} viewBox="0 0 8 8" refX="6" refY="4" markerWidth="11" markerHeight="11" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L8 4L0 8z" /></marker>
));

function wordsOf(end, layout) {
  const [was, is] = [percent(end.was), percent(end.is)];
  // On a phone is no room beside a Pod for both numbers.
  const beside = layout.slim && layout.boxes.get(end.host)?.kind === "pod";
  const chances = was === is ? was : beside ? `→ ${is}` : `${was} → ${is}`;
  if (end.sources) return end.sources;
  if (end.kind === "ok") return [end.words, chances].filter(Boolean).join(": ");
  return was === is || ratio(end.is) === 1 ? end.words : `${end.words}: ${chances}`;
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
