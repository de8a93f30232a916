// How the map of one host's rules is drawn: the host with its hooks, and what leads to them.

import { metBy, pointsFrom } from "./onehost.js";
import { rounded } from "./paths.js";
import { count, fit } from "../words.js";

const mid = (box) => box.y + box.h / 2;

/** The host without its hooks, which are above all lines. */
export function HostRoom({ node, layout, label, hrefOf, item: Item, ...rest }) {
  const { room, rest: other, slim, hooks: [first] } = layout;
  const text = slim ? first.x + first.w + 6 : room.x + 12;
  const boxes = [...layout.boxes.entries()];
  const rows = [...boxes.filter(([, box]) => box.kind === "service").map(([, box]) => box), other];
  return (
    <g>
      {boxes.filter(([, box]) => box.kind === "outside").map(([id, box]) => <path key={id} class="cable" d={rounded(pointsFrom(layout, box))} />)}
      <Item id={node.id} label={label} kind="room node" hrefOf={hrefOf} {...rest}>
        <rect x={room.x} y={room.y} width={room.w} height={room.h} rx={12} />
        <text class="name" x={text} y={room.y + 20}>this host{boxes.some(([, box]) => box.kind === "outside") ? "" : ", which asks"}</text>
        <text class="small" x={text} y={room.y + 36}>{fit(node.mode ? `${node.mode} rules` : "rules", slim ? 26 : 44)}</text>
      </Item>
      <g class="inner">
        {boxes.filter(([, box]) => box.kind === "outside").map(([id, box]) => <path key={id} class="cable" d={rounded(inside(pointsFrom(layout, box), room, slim))} />)}
        {rows.map((box) => <path key={box.y} class="wire" d={`M${first.x + first.w} ${mid(box)}H${box.x}`} />)}
        <path class="wire" d={`M${other.x + other.w} ${mid(other)}H${room.x + room.w}`} />
        <g class="rest">
          <rect x={other.x} y={other.y} width={other.w} height={other.h} rx={6} />
          <text class="tiny" x={other.x + other.w / 2} y={other.y + other.h / 2 + 4}>{slim ? "others" : "addresses of no Service"}</text>
        </g>
      </g>
      {boxes.filter(([, box]) => box.more > 0).map(([id, box]) => (
        <a key={id} class="item more" data-id={id} href={hrefOf(box.of)} tabindex="-1">
          <title>{box.all ? count(box.more, "endpoint") : count(box.more, "more endpoint")}</title>
          <rect x={box.x} y={box.y} width={box.w} height={box.h} rx={8} />
          <text x={box.x + 10} y={box.y + box.h / 2 + 4.5}>{box.all ? count(box.more, "endpoint") : `and ${box.more} more`}</text>
        </a>
      ))}
    </g>
  );
}

/** The part of a client's line that is in the host. */
const inside = (points, room, slim) => (slim ? [[points.at(-1)[0], room.y], points.at(-1)] : [[room.x, points[0][1]], points.at(-1)]);

/** The hooks, in the order in which packets meet them; of a way those that it meets are lit. */
export function HostHooks({ layout, hops }) {
  const met = new Set((hops ?? []).flatMap(metBy));
  return (
    <g class="host-hooks" aria-hidden="true">
      {layout.hooks.map((hook) => {
        const of = hook.names.filter((name) => met.has(name));
        return (
          <g key={hook.x} class={`hook${of.length ? " met" : ""}`}>
            <rect x={hook.x} y={hook.y} width={hook.w} height={hook.h} rx={7} />
            <text transform={`translate(${hook.x + hook.w / 2 + 4} ${hook.y + hook.h / 2}) rotate(-90)`}>{(of.length ? of : hook.names).join(" or ")}</text>
          </g>
        );
      })}
    </g>
  );
}
