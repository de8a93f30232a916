// Where a packet was captured: a dot at each interface, red where the model says something else.

import { coreOf } from "./layout.js";
import { hostId } from "../words.js";

export function Captures({ layout, rows }) {
  const found = new Map();
  for (const { host, device, place, same } of rows) {
    const at = placeOf(layout, hostId(host), device);
    if (!at) continue;
    const key = at.join(" ");
    const known = found.get(key) ?? { at, same: true, places: [] };
    found.set(key, { at, same: known.same && same, places: [...known.places, `${place}${same ? "" : ": not as the model says"}`] });
  }
  return (
    <g class="captures">
      {[...found].map(([key, { at: [x, y], same, places }]) => <circle key={key} class={same ? "same" : "differs"} cx={x} cy={y} r={same ? 4.5 : 6.5}><title>{places.join("\n")}</title></circle>)}
    </g>
  );
}

/** Where an interface is; of a host beside the nodes the side on which its network is. */
function placeOf(layout, id, device) {
  const port = layout.boxes.get(`${id} ${device}`);
  if (port) return [port.x, port.y + port.h / 2];
  const box = layout.boxes.get(id);
  if (box?.kind === "outside") {
    const bar = layout.bars.find((item) => item.network.members.some((member) => hostId(member.host) === id && member.device === device));
    return [bar && bar.x < box.x ? box.x : box.x + box.w, box.y + box.h / 2];
  }
  if (box?.kind === "room") return [box.bridge.x + box.bridge.w / 2, coreOf(box)[1]];
  return box?.kind === "pod" ? [box.x, box.y + box.h / 2] : null;
}
