// Where what is said over the map stands: numbers of findings on the upper borders of boxes, ends of ways and chances where
// they cover no words.

import { coreOf } from "./layout.js";
import { BESIDE, anyClient } from "./paths.js";

/** So many numbers stand at one box. */
const FEW_MARKS = 4;
const STEP = 22;
const RADIUS = 10;
/** Pixels between a label and words. */
const NEAR = 2;

/**
 * Where the numbers of findings stand.
 *
 * @param marks {id: [{number, tone, href, current, label}]}
 * @returns [{id, items: [{…, x, y}], more: {left, x, y} or null, rect}]: centres of circles, and the room that all of them take
 */
export function markSpots(layout, marks) {
  const found = [];
  for (const [id, all] of marks ?? []) {
    const box = layout.boxes.get(id);
    // On a phone is no room beside interfaces.
    if (!box || box.kind === "dot" || (box.kind === "port" && box.slim)) continue;
    const shown = all.length > FEW_MARKS ? [...all].sort((one, other) => Number(other.current) - Number(one.current)).slice(0, FEW_MARKS - 1).sort((one, other) => one.number - other.number) : all;
    const left = all.length - shown.length;
    const wide = (shown.length + (left ? 1 : 0)) * STEP;
    const beside = box.kind === "service" && box.h < 40 && !layout.slim;
    const x = beside ? box.x + box.w + 5 : box.kind === "port" ? box.x + box.w - RADIUS : Math.max(2, Math.min(box.x + box.w + (box.kind === "service" ? 8 : -6), layout.width - 2) - wide);
    // Between interfaces is no room above them.
    const y = beside ? box.y + box.h / 2 : box.kind === "port" ? box.y + box.h + 1 : box.y - 6;
    const at = (place) => x + place * STEP + STEP / 2;
    found.push({
      id, items: shown.map((item, place) => ({ ...item, x: at(place), y })), more: left ? { left, x: at(shown.length), y } : null,
      rect: { x, y: y - RADIUS - 2, w: wide, h: 2 * RADIUS + 4 },
    });
  }
  return found;
}

export { RADIUS };

/** Between the upper border of a room and its name. */
const ABOVE = 10;

/** Where words are on the map; whole boxes count where all of them is words. */
function wordsOn(layout) {
  const found = [];
  for (const box of layout.boxes.values()) {
    if (box.kind === "room") found.push({ x: box.x, y: box.y + ABOVE, w: box.w, h: (box.core && !box.slim ? 42 : 40) - ABOVE }, box.core, ...(box.more > 0 ? [box.moreAt] : []));
    else if (box.kind === "tile") found.push({ ...box, h: 36 });
    else if (box.kind === "network") found.push({ x: box.x, y: box.y + box.h / 2 - 70, w: box.w, h: 140 });
    else if (box.kind !== "square") found.push(box);
  }
  for (const frame of layout.frames) found.push({ x: frame.x, y: frame.y, w: Math.min(frame.w, (frame.zone.length + 16) * 7.2), h: 24 });
  return found;
}

/**
 * Finds room for labels, one after the other.
 *
 * @param wanted [{host, w, h, first, spot}]: at which box, and how large; where it stands if there is room; at which "bridge", "cable" or "core" of a room
 * @param taken what else must not be covered: rectangles
 * @returns for each {x, y, w, h, leader: [from, to] or null}, null where its box is not drawn
 */
export function placed(layout, wanted, taken = []) {
  const full = [...wordsOn(layout), ...taken];
  const at = Map.groupBy(wanted, ({ host }) => host);
  return wanted.map(({ host, w, h, first, spot: part }) => {
    const box = layout.boxes.get(host) ?? anyClient(layout, host) ?? layout.frames.find((frame) => frame.id === host);
    if (!box) return null;
    const inside = ({ x, y }) => ({ x: Math.max(2, Math.min(x, layout.width - w - 2)), y: Math.max(2, Math.min(y, layout.height - h - 2)), w, h });
    let [best, least] = [null, Infinity];
    for (const spot of [...(first ? [first] : []), ...(part && box.kind === "room" ? ofPart(layout, box, w, h, part) : spotsOf(layout, box, w, h, at.get(host).filter((each) => !each.spot).length > 1))]) {
      const rect = { ...spot, ...inside(spot) };
      const covered = full.reduce((sum, each) => sum + common(rect, each), 0);
      if (covered < least) [best, least] = [rect, covered];
      if (!covered) break;
    }
    full.push(best);
    return { ...best, leader: leaderTo(best) };
  });
}

/** The places for a label of a box, the best ones first; `from`: the point that it is about, if that is apart. */
function* spotsOf(layout, box, w, h, several) {
  const middle = box.y + box.h / 2;
  if (box.kind === "room") {
    const [x, y] = coreOf(box);
    // In a tall room there is room below the rules.
    const under = box.core.y + box.core.h + 6;
    if (!several && under + h < box.y + box.h - 16) yield { x: x - w / 2, y: under };
    yield* along(box, w, h, several ? box.x : x - w / 2, several ? null : [x, y + (box.slim ? 7 : 13)]);
  } else if (box.kind === "pod") {
    const beside = box.x + box.w + 5;
    yield { x: beside, y: middle - h / 2 };
    const room = layout.boxes.get(box.node);
    const from = [box.x + box.w, middle];
    if (room?.kind === "room") for (const spot of along(room, w, h, room.x + room.w - w - 2, from)) yield { ...spot, beside: true };
    for (const offset of [h + 2, -h - 2, 2 * h + 4, -2 * h - 4]) yield { x: beside, y: middle - h / 2 + offset, from, beside: true };
  } else if (box.kind === "service") {
    yield { x: box.x + (box.w - w) / 2, y: box.y + box.h - 6 };
    yield { x: box.x - w - 6, y: middle - h / 2 };
  } else {
    const centred = box.x + (box.w - w) / 2;
    for (const y of [box.y + box.h + 3, box.y - h - 3, box.y + box.h + h + 6, box.y - 2 * h - 6]) {
      for (const offset of [0, -40, 40, -80, 80, -120, 120, -180, 180]) yield { x: centred + offset, y };
    }
    yield { x: box.x + box.w + 5, y: middle - h / 2 };
  }
}

/** The places for a label of a part of a room, on its lower border; of a cable on the upper one, where nothing else is said. */
function* ofPart(layout, box, w, h, part) {
  const [x, y] = coreOf(box);
  const bridge = box.bridge.x + box.bridge.w / 2;
  if (part === "bridge") yield* along(box, w, h, bridge - 14, [bridge, box.bridge.y + box.bridge.h]);
  const port = [...layout.boxes.values()].find((each) => each.kind === "port" && each.node === box.node.id);
  if (part === "cable" && port && !box.slim) yield { x: box.x + 8, y: box.y - h / 2 - 2, from: [port.x - BESIDE, port.y + port.h / 2] };
  yield* along(box, w, h, x - w / 2, [x, y + (box.slim ? 7 : 13)]);
}

/** On the lower border of a room, nearest to where it is wanted; then below it. */
function* along(room, w, h, wanted, from) {
  // Of several rows no more than the first one hides what is in the room.
  for (const y of [room.y + room.h - Math.min(h / 2, 12), room.y + room.h + h / 2 + 2]) {
    const least = Math.min(room.x + 4, room.x + room.w - w - 4);
    const most = Math.max(room.x + 4, room.x + room.w - w - 4);
    const first = Math.max(least, Math.min(wanted, most));
    yield { x: first, y, from };
    for (let offset = 12; offset <= room.w; offset += 12) for (const x of [first - offset, first + offset]) if (x >= least && x <= most) yield { x, y, from };
  }
}

/** The area that two rectangles share, with what should be free around words. */
function common(one, other) {
  const wide = Math.min(one.x + one.w, other.x + other.w + NEAR) - Math.max(one.x, other.x - NEAR);
  const tall = Math.min(one.y + one.h, other.y + other.h + NEAR) - Math.max(one.y, other.y - NEAR);
  return wide > 0 && tall > 0 ? wide * tall : 0;
}

/** A line from what a label is about to the label: of a Pod beside its row, else straight up or down. */
function leaderTo({ x, y, w, h, from, beside }) {
  if (!from) return null;
  const [fx, fy] = from;
  if (beside) return x + w < fx + 5 ? `M${fx} ${fy}h5V${y + h / 2}H${x + w}` : `M${fx} ${fy}h5V${y > fy ? y : y + h}`;
  const end = y > fy ? y : y + h;
  if (fx < x) return `M${fx} ${fy}V${y + h / 2}H${x}`;
  if (fx > x + 8 && fx < x + w - 8) return `M${fx} ${fy}V${end}`;
  return `M${fx} ${fy}V${(fy + end) / 2}H${fx <= x + 8 ? x + 10 : x + w - 10}V${end}`;
}

/** How large a label of these rows is. */
export function sizeOf(rows, slim) {
  const letter = slim ? 7 : 8;
  // Capitals, as in the name of a chain, are wider.
  const wide = (text) => text.length * letter + 2 * (text.match(/[A-Z]{3,}/g)?.join("").length ?? 0);
  return { w: Math.max(...rows.map(wide)) + 12, h: (slim ? 15 : 17) * rows.length + 2 };
}

export function Label({ at, rows, classes, slim }) {
  const step = slim ? 15 : 17;
  return (
    <g class={classes}>
      {at.leader && <path class="leader" d={at.leader} />}
      <rect x={at.x} y={at.y} width={at.w} height={at.h} rx={9.5} />
      {rows.map((text, place) => <text key={text} x={at.x + at.w / 2} y={at.y + step - 3 + step * place}>{text}</text>)}
    </g>
  );
}
