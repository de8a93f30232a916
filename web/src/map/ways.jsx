// Several ways of packets on one map: what only one side has, and what both have; and the numbers of findings on it.

import { coreOf } from "./layout.js";
import { anyClient, rounded, walk } from "./paths.js";
import { percent, ratio } from "../words.js";

/**
 * The ways as lines, those of the first side above those of the second; a cross where a packet is lost. Dashes tell the
 * sides apart, and red is for loss alone: that a packet arrives does not mean that it should.
 */
export function Ways({ layout, ways }) {
  const several = new Set(ways.lines.map((line) => line.side)).size > 1;
  const drawn = ways.lines.map((line) => ({ ...line, path: walk(layout, line.hops) }));
  const shift = { was: several ? -3 : 0, is: several ? 3 : 0, both: 0 };
  return (
    <g class="ways-drawn">
      {["both", "was", "is"].map((side) => drawn.filter((line) => line.side === side).map((line) => (
        <g key={line.key} class={`drawn ${side} ${line.end}`} transform={`translate(0 ${shift[side]})`}>
          {line.path.legs.map((leg, number) => (
            <g key={number}>
              {leg.outer && <path class="casing" d={rounded(leg.points)} />}
              <path class="run" d={rounded(leg.points)} marker-end={number === line.path.legs.length - 1 ? `url(#tip-${side === "is" && line.end !== "ok" ? "lost" : side})` : undefined} />
            </g>
          ))}
          {line.end === "bad" && <path class="cross" d={crossAt(line.path.stops.at(-1))} />}
        </g>
      )))}
      {ways.ends.map((end, place) => <EndLabel key={place} end={end} layout={layout} above={ways.ends.slice(0, place).filter((each) => each.host === end.host).length} />)}
    </g>
  );
}

const crossAt = ([x, y]) => `M${x - 9} ${y - 9}l18 18m0 -18l-18 18`;

/** Arrow heads of the ways, in their colours. */
export const Tips = () => ["both", "was", "is", "lost"].map((side) => (
  <marker key={side} id={`tip-${side}`} class={`tip ${side}`} viewBox="0 0 8 8" refX="6" refY="4" markerWidth="11" markerHeight="11" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L8 4L0 8z" /></marker>
));

/** How many packets end here on the one side, and on the other. */
function EndLabel({ end, layout, above }) {
  const box = layout.boxes.get(end.host) ?? anyClient(layout, end.host);
  if (!box) return null;
  const [was, is] = [percent(end.was), percent(end.is)];
  const chances = was === is ? was : `${was} → ${is}`;
  const words = end.sources ? end.sources : end.kind === "ok" ? [end.words, chances].filter(Boolean).join(": ") : was === is || ratio(end.is) === 1 ? end.words : `${end.words}: ${chances}`;
  const tone = end.sources ? "source" : was === is ? "both" : end.kind === "ok" ? (ratio(end.is) > ratio(end.was) ? "is" : "was") : ratio(end.is) < ratio(end.was) ? "was" : "lost";
  const w = words.length * 7.6 + 14;
  let [x, y] = [box.x + box.w + 5, box.y + box.h / 2];
  if (box.kind === "room") {
    const [cx] = coreOf(box);
    [x, y] = [cx - w / 2, box.core.y + box.core.h + (box.slim ? -4 : 12)];
  } else if (box.kind === "outside") [x, y] = [box.x + (box.w - w) / 2, box.y + box.h + 5];
  y += 23 * above;
  x = Math.max(2, Math.min(x, layout.width - w - 2));
  return (
    <g class={`end-label ${tone}`}>
      <rect x={x} y={y - 10} width={w} height={20} rx={10} />
      <text x={x + w / 2} y={y + 4.5}>{words}</text>
    </g>
  );
}

const FEW_MARKS = 4;

/**
 * Numbers of findings at what they are about; each leads to its finding.
 *
 * @param marks {id: [{number, tone, href, current, label}]}
 */
export function Marks({ layout, marks }) {
  return (
    <g class="marks">
      {[...marks.entries()].map(([id, items]) => {
        const box = layout.boxes.get(id);
        if (!box || box.kind === "dot") return null;
        const shown = items.length > FEW_MARKS ? [...items].sort((one, other) => Number(other.current) - Number(one.current)).slice(0, FEW_MARKS - 1).sort((one, other) => one.number - other.number) : items;
        const left = items.length - shown.length;
        const from = box.x + box.w - (shown.length + (left ? 1 : 0)) * 22 + (box.kind === "room" ? -6 : 8);
        const y = box.y + (box.kind === "room" ? 0 : -1);
        return (
          <g key={id}>
            {shown.map((item, place) => (
              <a key={item.number} href={item.href} class={`mark ${item.tone}${item.current ? " current" : ""}`} tabindex="-1" aria-label={item.label} aria-current={item.current ? "true" : undefined}>
                <title>{item.label}</title>
                <circle cx={from + place * 22 + 10} cy={y} r={10} />
                <text x={from + place * 22 + 10} y={y + 4.2}>{item.number}</text>
              </a>
            ))}
            {left > 0 && <text class="more-marks" x={from + shown.length * 22 + 10} y={y + 4}>+{left}</text>}
          </g>
        );
      })}
    </g>
  );
}
