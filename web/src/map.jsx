// The map as a drawing. It draws what it is given; what a click means is up to who shows it.

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { arrange } from "./layout.js";
import { rounded, walk } from "./paths.js";
import { count, fit, hostId, percent, plain, ratio, sum } from "./words.js";

/** Boxes of a map, kept in place: Services keep their order as long as the same ones are there. */
export function useLayout(map, open) {
  const kept = useRef({ key: "", order: null });
  return useMemo(() => {
    if (!map) return null;
    const ids = map.services.map((service) => service.id).sort().join(" ");
    const order = kept.current.key === ids ? kept.current.order : null;
    const found = arrange(map, { open, order });
    found.nodeOf = new Map(map.pods.map((pod) => [pod.id, pod.node]));
    found.linksOf = new Map(map.outside.map((item) => [item.id, item.links ?? []]));
    kept.current = { key: ids, order: found.order };
    return found;
  }, [map, open]);
}

/**
 * @param map, layout what is drawn and where
 * @param hrefOf what an item leads to, by its identifier
 * @param selected identifier of what is looked at; its Services' or endpoints' lines are drawn strong
 * @param way hops of a packet's way, and `moment` where on it the packet is
 * @param touched identifiers that a change touched
 * @param before the map before the change: chances that differ are drawn with both
 * @param picks {from, to}
 */
export function Drawing({ map, layout, hrefOf, selected = "", way = null, moment = null, touched = null, before = null, picks = {}, zoom = 1, label }) {
  const items = useMemo(() => [...layout.boxes.entries()].filter(([, box]) => box.kind !== "port"), [layout]);
  const [focus, setFocus] = useState("");
  const holder = useRef(null);
  const current = items.some(([id]) => id === focus) ? focus : (items.some(([id]) => id === selected) ? selected : items[0]?.[0]);
  const strong = useMemo(() => related(map, selected), [map, selected]);
  const served = useMemo(() => new Set(map.edges.filter((edge) => edge.used).map((edge) => edge.service)), [map]);
  const line = useMemo(() => (way ? walk(layout, way) : null), [layout, way]);
  const passed = useMemo(() => (way ? new Set(way.map((hop) => hostId(hop.host))) : null), [way]);
  const scale = zoom * useFit(holder, layout);
  useFollow(holder, layout, line, moment, scale);
  useSight(holder, layout, line ? "" : selected || [...(touched ?? [])].find((id) => layout.boxes.has(id)) || "", scale);

  const keys = (event) => {
    const direction = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!direction || event.altKey || event.ctrlKey || event.metaKey) return;
    const next = nearest(items, layout.boxes.get(current), direction);
    event.preventDefault();
    event.stopPropagation();
    if (!next) return;
    setFocus(next);
    holder.current.querySelector(`[data-id="${CSS.escape(next)}"]`)?.focus();
  };

  const common = { current, hrefOf, selected, touched, passed, picks, setFocus, strong };
  return (
    <div class="drawing" ref={holder} tabIndex={-1}>
      <svg
        viewBox={`0 0 ${Math.ceil(layout.width)} ${Math.ceil(layout.height)}`}
        width={Math.ceil(layout.width * scale)} height={Math.ceil(layout.height * scale)}
        role="group" aria-label={label} class={`map ${layout.size}${way ? " asked" : ""}`} onKeyDown={keys}
      >
        <defs>
          <marker id="tip" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="11" markerHeight="11" markerUnits="userSpaceOnUse" orient="auto">
            <path d="M0 0L8 4L0 8z" />
          </marker>
        </defs>
        {layout.frames.map((frame) => <Frame key={frame.id} frame={frame} prefix={layout.prefix} />)}
        <Cables map={map} layout={layout} />
        {layout.bars.map((bar) => <Bar key={bar.id} bar={bar} hrefOf={hrefOf} current={current} selected={selected} setFocus={setFocus} />)}
        {map.outside.map((item) => <Outside key={item.id} item={item} box={layout.boxes.get(item.id)} {...common} />)}
        {map.nodes.map((node) => <Node key={node.id} node={node} layout={layout} {...common} />)}
        {map.services.map((service) => {
          const box = layout.boxes.get(service.id);
          return box ? <Service key={service.id} service={service} box={box} served={served} {...common} /> : null;
        })}
        <ServiceLines map={map} layout={layout} selected={selected} faint={Boolean(way)} before={before} />
        {line && <Line line={line} way={way} moment={moment} />}
        {line && <Labels layout={layout} />}
        {line && moment && <Packet at={packetAt(line, moment)} wrapped={Boolean(moment.header.outer)} lit={moment.lit.size > 0} />}
      </svg>
    </div>
  );
}

/** What belongs to what is selected: a Service's endpoints, a Pod's Services, a node's Pods. */
function related(map, selected) {
  const found = new Set();
  for (const edge of map.edges) {
    if (!edge.used) continue;
    if (edge.service === selected) found.add(edge.target).add(edge.node);
    if (edge.target === selected || edge.node === selected) found.add(edge.service);
  }
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

/** How much smaller the map must be to fit its frame; never so small that it cannot be read. */
function useFit(holder, layout) {
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const measure = () => setWidth(holder.current?.clientWidth ?? 0);
    measure();
    const watch = new ResizeObserver(measure);
    watch.observe(holder.current);
    return () => watch.disconnect();
  }, []);
  return width ? Math.min(1, Math.max(SMALLEST, width / layout.width)) : 1;
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

/** Brings what is chosen into sight where the map is larger than its frame, as on a phone. */
function useSight(holder, layout, id, zoom) {
  useLayoutEffect(() => {
    const box = layout.boxes.get(id);
    if (!holder.current || !box) return;
    const frame = holder.current;
    if (box.x * zoom < frame.scrollLeft || (box.x + box.w) * zoom > frame.scrollLeft + frame.clientWidth) {
      frame.scrollLeft = Math.max(0, (box.x + box.w) * zoom - frame.clientWidth + 12);
    }
    if (box.y * zoom < frame.scrollTop || box.y * zoom > frame.scrollTop + frame.clientHeight - 30) frame.scrollTop = box.y * zoom - 40;
  }, [id, zoom, layout]);
}

const Item = ({ id, label, kind, current, hrefOf, selected, touched, passed, picks, setFocus, strong, children }) => {
  const classes = ["item", kind];
  if (selected === id) classes.push("selected");
  if (strong?.has(id)) classes.push("strong");
  if (touched?.has(id)) classes.push("touched");
  if (passed) classes.push(passed.has(id) ? "passed" : "aside");
  if (picks?.from === id) classes.push("from");
  if (picks?.to === id) classes.push("to");
  return (
    <a
      href={hrefOf(id)} data-id={id} class={classes.join(" ")} tabIndex={current === id ? 0 : -1}
      aria-current={selected === id ? "true" : undefined} onFocus={() => setFocus?.(id)}
    >
      <title>{label}</title>
      {children}
    </a>
  );
};

const Rect = ({ box, rx = 8, ...rest }) => <rect x={box.x} y={box.y} width={box.w} height={box.h} rx={rx} {...rest} />;

function Frame({ frame, prefix }) {
  return (
    <g class="frame">
      <Rect box={frame} rx={12} />
      <text x={frame.x + 14} y={frame.y + 20}>{frame.zone ? `${/^zone/.test(frame.zone) ? "" : "zone "}${frame.zone} · ` : ""}{count(frame.nodes, "node")}{prefix ? `, named ${prefix}…` : ""}</text>
    </g>
  );
}

function Bar({ bar, ...rest }) {
  return (
    <Item id={bar.id} kind="bar" label={`network ${networkName(bar.network)}, ${count(bar.network.members.length, "host")}`} {...rest}>
      <Rect box={bar} rx={9} class={bar.network.known ? "" : "unknown"} />
      <BarName bar={bar} />
    </Item>
  );
}

function BarName({ bar }) {
  const name = networkName(bar.network);
  return <text transform={`translate(${bar.x + bar.w / 2 + 4} ${bar.y + bar.h / 2}) rotate(-90)`}>{fit(name, Math.floor(bar.h / 7.2))}</text>;
}

const networkName = (network) => network.cidr || (network.known ? "network" : "node network");

/** What the packet's line runs through is drawn again above it, so that it can still be read. */
function Labels({ layout }) {
  return (
    <g class="above" aria-hidden="true">
      {[...layout.boxes.values()].filter((item) => item.kind === "port").map((port) => <Port key={`${port.node} ${port.port.name}`} port={port} />)}
      {layout.bars.map((bar) => <g key={bar.id} class="item bar"><BarName bar={bar} /></g>)}
    </g>
  );
}

function Outside({ item, box, ...rest }) {
  return (
    <Item id={item.id} kind="outside" label={`outside client ${item.address}`} {...rest}>
      <Rect box={box} rx={23} />
      <text x={box.x + box.w / 2} y={box.y + 20}>{fit(item.label || "outside", 20)}</text>
      <text class="small" x={box.x + box.w / 2} y={box.y + 36}>{fit(item.address, 22)}</text>
    </Item>
  );
}

function Node({ node, layout, ...rest }) {
  const box = layout.boxes.get(node.id);
  const bad = node.ready === false || node.linkUp === false;
  const state = [node.removed && "gone", node.ready === false && "not ready", node.linkUp === false && "link down", node.rulesKnown === false && "rules not known"].filter(Boolean).join(", ");
  const label = `${node.isNode === false ? "host" : "node"} ${node.name}${state ? `, ${state}` : ""}`;
  const kind = `${box.kind} node${node.removed ? " removed" : ""}${bad ? " bad" : ""}${node.rulesKnown === false ? " unknown" : ""}`;
  if (box.kind === "outside") return <Beside node={node} box={box} label={label} {...rest} />;
  if (box.kind !== "room") return <Tile node={node} box={box} layout={layout} state={state} label={label} kind={kind} {...rest} />;
  const pods = [...layout.boxes.entries()].filter(([, item]) => item.kind === "pod" && item.node === node.id);
  const ports = [...layout.boxes.values()].filter((item) => item.kind === "port" && item.node === node.id);
  const bridged = pods.some(([, item]) => !item.pod.hostNetwork);
  return (
    <g>
      <Item id={node.id} label={label} kind={kind} {...rest}>
        <Rect box={box} rx={12} />
        <text class="name" x={box.x + 14} y={box.y + 21}>{fit(node.name, 30)}</text>
        <text class="small" x={box.x + 14} y={box.y + 37}>{fit(node.addresses.join(" "), 34)}</text>
        <text class="small end" x={box.x + box.w - 14} y={box.y + 21}>{state}</text>
        {node.podCIDRs.length > 0 && <text class="small end" x={box.x + box.w - 14} y={box.y + 37}>Pods {fit(node.podCIDRs.join(" "), 28)}</text>}
      </Item>
      <g class="inner">
        {ports.map((port) => <path key={port.port.name} class="wire" d={`M${port.x + port.w} ${port.y + 14}C${port.x + port.w + 14} ${port.y + 14} ${box.core.x - 14} ${box.core.y + 43} ${box.core.x} ${box.core.y + 43}`} />)}
        {bridged && <path class="wire" d={`M${box.core.x + box.core.w} ${box.core.y + 43}H${box.bridge.x}`} />}
        {pods.map(([id, item]) => item.pod.hostNetwork
          ? null
          : <path key={id} class="wire" d={`M${box.bridge.x + box.bridge.w} ${item.y + item.h / 2}H${item.x}`} />)}
        {ports.map((port) => <Port key={port.port.name} port={port} />)}
        <g class="core">
          <Rect box={box.core} rx={8} />
          <text x={box.core.x + box.core.w / 2} y={box.core.y + 17}>{node.rulesKnown === false ? "rules" : node.mode || "rules"}</text>
          <text class="small" x={box.core.x + box.core.w / 2} y={box.core.y + 30}>{node.rulesKnown === false ? "not known" : "routing"}</text>
        </g>
        {bridged && (
          <g class="bridge">
            <title>{bridgeName(node)}</title>
            <Rect box={box.bridge} rx={4} />
          </g>
        )}
      </g>
      {pods.map(([id, item]) => <Pod key={id} pod={item.pod} box={item} {...rest} />)}
      {box.more > 0 && (
        <a class="item more" href={rest.hrefOf(`open ${node.id}`)}>
          <title>{`show ${box.more} more Pods of ${node.name}`}</title>
          <Rect box={box.moreAt} rx={6} />
          <text x={box.moreAt.x + 10} y={box.moreAt.y + 16}>and {box.more} more Pods…</text>
        </a>
      )}
    </g>
  );
}

/** A host beside the nodes: a router, or a client. */
function Beside({ node, box, label, ...rest }) {
  return (
    <Item id={node.id} kind="outside beside" label={label} {...rest}>
      <Rect box={box} rx={10} />
      <text x={box.x + box.w / 2} y={box.y + 20}>{fit(node.name, 17)}</text>
      <text class="small" x={box.x + box.w / 2} y={box.y + 36}>{fit(node.addresses[0] ?? "", 19)}</text>
    </Item>
  );
}

const bridgeName = (node) => (node.devices ?? []).filter((device) => device.kind === "bridge").map((device) => `bridge ${device.name} ${(device.addresses ?? []).join(" ")}`).join(", ") || "bridge";

function Port({ port }) {
  const tunnel = port.port.tunnel;
  const kind = `port${tunnel ? " tunnel" : ""}${port.port.up === false ? " down" : ""}`;
  return (
    <g class={kind}>
      <title>{`${port.port.kind || "device"} ${port.port.name} ${(port.port.addresses ?? []).join(" ")}${port.port.mtu ? `, MTU ${port.port.mtu}` : ""}`}</title>
      <Rect box={port} rx={6} />
      <text x={port.x + port.w / 2} y={port.y + 12}>{fit(port.port.name, 11)}</text>
      <text class="tiny" x={port.x + port.w / 2} y={port.y + 23}>{port.port.up === false ? "down" : tunnel ? `${tunnel.kind}${tunnel.vni ? ` ${tunnel.vni}` : ""}` : fit((port.port.addresses?.[0] ?? port.port.kind ?? "").replace(/\/.*/, ""), 14)}</text>
    </g>
  );
}

function Pod({ pod, box, ...rest }) {
  const bad = pod.ready === false || pod.failed;
  const state = pod.terminating ? "terminating" : pod.failed ? "failed" : pod.ready === false ? "not ready" : "";
  const address = pod.addresses[0] ?? "no address";
  const shown = pod.bare ? "endpoint" : fit(pod.hostNetwork ? "host network" : address, 15);
  return (
    <Item id={pod.id} label={`${pod.bare ? "endpoint" : "Pod"} ${pod.bare ? "" : `${pod.namespace}/`}${pod.name}, ${pod.addresses.join(" ") || "no address"}${state ? `, ${state}` : ""}`}
      kind={`pod${pod.removed ? " removed" : ""}${bad ? " bad" : ""}${pod.terminating ? " leaving" : ""}${pod.hostNetwork ? " hostnet" : ""}`} {...rest}>
      <Rect box={box} rx={6} />
      <text x={box.x + 10} y={box.y + 16}>{fit(pod.name, room(box.w, shown))}</text>
      <text class="tiny end" x={box.x + box.w - 8} y={box.y + 16}>{shown}</text>
    </Item>
  );
}

function Tile({ node, box, layout, state, label, kind, ...rest }) {
  const dot = box.kind === "dot";
  const name = dot && layout.prefix ? node.name.slice(layout.prefix.length) : node.name;
  const squares = [...layout.boxes.entries()].filter(([, item]) => item.kind === "square" && item.node === node.id);
  return (
    <g>
      <Item id={node.id} label={`${label}, ${box.pods} Pods`} kind={kind} {...rest}>
        <Rect box={box} rx={8} />
        <text class="name" x={box.x + 9} y={box.y + 18}>{fit(name, dot ? 7 : 20)}</text>
        <text class="tiny" x={box.x + 9} y={box.y + 33}>{dot ? (state ? fit(state, 10) : count(box.pods, "Pod")) : state || (node.addresses[0] ?? "")}</text>
      </Item>
      {squares.map(([id, item]) => (
        <Item key={id} id={id} label={`Pod ${plain(id)} ${item.pod.addresses.join(" ")}`} kind={`square${item.pod.ready === false ? " bad" : ""}`} {...rest}>
          <Rect box={item} rx={2.5} />
        </Item>
      ))}
    </g>
  );
}

const TYPES = { NodePort: "node port", LoadBalancer: "load balancer", ExternalName: "external name" };

/** How many letters fit beside a smaller text in a box. */
const room = (width, beside) => Math.max(4, Math.floor((width - 34 - beside.length * 6.3) / 7));

function Service({ service, box, served, ...rest }) {
  const empty = !service.skipped && !served.has(service.id);
  const kind = `service${service.removed ? " removed" : ""}${service.skipped ? " skipped" : ""}${empty ? " empty" : ""}`;
  const address = service.loadBalancerIPs[0] ?? service.externalIPs[0] ?? service.clusterIPs[0] ?? (service.type === "ExternalName" ? "a DNS name" : "no cluster IP");
  const shown = fit(address, 16);
  const type = empty ? "no endpoints" : (TYPES[service.type] ?? "");
  return (
    <Item id={service.id} label={`Service ${service.namespace}/${service.name}, ${service.type}${service.skipped ? `: ${service.skipped}` : ""}${empty ? ", no endpoint gets packets" : ""}`} kind={kind} {...rest}>
      <Rect box={box} rx={10} />
      <text class="name" x={box.x + 13} y={box.y + 21}>{fit(service.name, Math.floor((box.w - 34 - type.length * 6.3) / 7.9))}</text>
      <text class="tiny end" x={box.x + box.w - 11} y={box.y + 20}>{type}</text>
      <text class="tiny" x={box.x + 13} y={box.y + 38}>{fit(service.namespace, room(box.w, shown))}</text>
      <text class="tiny end" x={box.x + box.w - 11} y={box.y + 38}>{shown}</text>
    </Item>
  );
}

function Cables({ map, layout }) {
  const lines = [];
  for (const bar of layout.bars) {
    const x = bar.x + bar.w;
    for (const member of bar.network.members) {
      const id = hostId(member.host);
      const port = layout.boxes.get(`${id} ${member.device}`);
      const box = layout.boxes.get(id);
      if (port) lines.push(<path key={`${bar.id} ${id}`} class={member.up === false ? "cable down" : "cable"} d={`M${x} ${port.y + 14}H${port.x}`} />);
      else if (box?.kind === "outside") lines.push(<path key={`${bar.id} ${id}`} class={member.up === false ? "cable down" : "cable"} d={toBar(box, bar)} />);
      else if (box?.kind === "room") lines.push(<path key={`${bar.id} ${id}`} class={member.up === false ? "cable down" : "cable"} d={`M${x} ${box.y + 24}H${box.x}`} />);
    }
    for (const item of map.outside) {
      const box = layout.boxes.get(item.id);
      if ((item.links ?? []).includes(bar.id)) lines.push(<path key={`${bar.id} ${item.id}`} class="cable" d={toBar(box, bar)} />);
    }
    if (layout.frames.length) for (const frame of layout.frames) lines.push(<path key={`${bar.id} ${frame.id}`} class="cable" d={`M${x} ${frame.y + 20}H${frame.x}`} />);
  }
  return <g class="cables">{lines}<Tunnels layout={layout} /></g>;
}

function toBar(box, bar) {
  const [x, y] = [box.x + box.w, box.y + box.h / 2];
  return `M${x} ${y}C${x + 20} ${y} ${bar.x - 20} ${clamp(y, bar)} ${bar.x} ${clamp(y, bar)}`;
}

const clamp = (y, box) => Math.min(box.y + box.h - 12, Math.max(box.y + 12, y));

/** Tunnels of one kind and identifier, as a line beside the network from each to each. */
function Tunnels({ layout }) {
  const nets = new Map();
  for (const [id, box] of layout.boxes) {
    if (box.kind !== "port" || !box.port.tunnel) continue;
    const key = `${box.port.tunnel.kind} ${box.port.tunnel.vni ?? ""}`;
    if (!nets.has(key)) nets.set(key, []);
    nets.get(key).push(box);
  }
  const bar = layout.bars[0];
  if (!bar) return null;
  return [...nets.entries()].map(([key, ports], number) => {
    if (ports.length < 2) return null;
    const x = bar.x + bar.w + 9 + number * 7;
    const ys = ports.map((port) => port.y + port.h / 2);
    const stubs = ports.map((port) => `M${x} ${port.y + port.h / 2}H${port.x}`).join("");
    return <path key={key} class="tunnel" d={`M${x} ${Math.min(...ys)}V${Math.max(...ys)}${stubs}`}><title>{key}</title></path>;
  });
}

/** Edges from endpoints to their Services, as wide as their chance. All of them where they are few, else the selected one's. */
function ServiceLines({ map, layout, selected, faint, before }) {
  const lines = useMemo(() => (before ? changedLines(map, before, layout) : linesOf(map, layout, selected)), [map, before, layout, selected]);
  return (
    <g class={`edges${selected && lines.some((item) => item.strong) ? " chosen" : ""}${faint ? " faint" : ""}`}>
      {lines.map(({ key, from, to, chance, strong, gone, words }) => {
        const [x1, y1] = from.moreAt ? [from.x + from.w, from.more > 0 ? from.moreAt.y + 10 : from.y + from.h / 2] : [from.x + from.w, from.y + from.h / 2];
        const [x2, y2] = [to.x, to.y + to.h / 2];
        const bend = Math.max(30, (x2 - x1) / 2);
        return (
          <g key={key} class={`edge${strong ? " strong" : ""}${gone ? " gone" : ""}`}>
            <path d={`M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`} stroke-width={(1 + ratio(chance) * 4).toFixed(1)} />
            {strong && <text x={x1 + (x2 - x1) * (words.length > 8 ? 0.52 : 0.42)} y={y1 + (y2 - y1) * 0.36 - 4}>{words}</text>}
          </g>
        );
      })}
    </g>
  );
}

/** Lines of both maps; those whose chance is another one are drawn strong, with both numbers. */
function changedLines(map, before, layout) {
  const now = new Map(linesOf(map, layout, "", true).map((line) => [line.key, line]));
  const then = new Map(linesOf(before, layout, "", true).map((line) => [line.key, line]));
  const found = [];
  for (const key of new Set([...then.keys(), ...now.keys()])) {
    const [one, other] = [then.get(key), now.get(key)];
    const [was, is] = [one?.chance ?? "0", other?.chance ?? "0"];
    const same = was === is;
    found.push({ ...(other ?? one), chance: other ? is : was, strong: !same, gone: !other, words: same ? "" : `${percent(was)} → ${percent(is)}` });
  }
  const changed = found.filter((line) => line.strong);
  return found.length <= FEW_LINES ? found : changed.slice(0, FEW_LINES);
}

const FEW_LINES = 60;

/** One line for each endpoint and Service; from a group of small nodes one line for all of its endpoints. */
function linesOf(map, layout, selected, whole = false) {
  const used = map.edges.filter((edge) => edge.used && layout.boxes.has(edge.service));
  const all = whole || (used.length <= FEW_LINES && layout.size === "room");
  const frames = new Map();
  for (const frame of layout.frames) for (const id of frame.ids) frames.set(id, frame);
  const merged = new Map();
  for (const edge of used) {
    const strong = edge.service === selected || edge.target === selected || edge.node === selected;
    if (!all && !strong) continue;
    const frame = frames.get(edge.node);
    const target = frame ? frame.id : [edge.target, edge.node].find((id) => layout.boxes.has(id));
    if (!target) continue;
    const key = `${edge.service} ${target}`;
    if (!merged.has(key)) merged.set(key, { key, from: frame ?? layout.boxes.get(target), to: layout.boxes.get(edge.service), strong: false, ports: new Map() });
    const line = merged.get(key);
    line.strong ||= strong;
    const port = `${edge.port} ${edge.protocol} ${edge.family}`;
    line.ports.set(port, [...(line.ports.get(port) ?? []), edge.chance]);
  }
  return [...merged.values()].map((line) => {
    // A line has one width; where ports differ it is the widest one's.
    const [chance, ends] = [...line.ports.values()].map((chances) => [sum(chances), chances.length]).sort(([one], [other]) => ratio(other) - ratio(one))[0];
    return { ...line, chance, words: ends > 1 ? `${percent(chance)} (${ends})` : percent(chance) };
  });
}

export function packetAt(line, moment) {
  const leg = moment.wire ? line.legs[moment.hop] : null;
  return leg ? leg.mid : (line.stops[moment.hop] ?? [0, 0]);
}

function Line({ line, way, moment }) {
  const last = way.at(-1);
  const lost = last.verdict !== "ACCEPT" || last.held;
  return (
    <g class={`way ${moment?.direction ?? "there"}`}>
      {line.legs.map((leg, number) => (
        <g key={number} class={moment && (number < moment.hop || (number === moment.hop && moment.wire)) ? "gone" : ""}>
          {leg.outer && <path class="casing" d={rounded(leg.points)} />}
          <path class="track" d={rounded(leg.points)} marker-end="url(#tip)" />
        </g>
      ))}
      {lost && last.verdict !== "INDETERMINATE" && <path class="cross" d={`M${line.stops.at(-1)[0] - 9} ${line.stops.at(-1)[1] - 9}l18 18m0 -18l-18 18`} />}
    </g>
  );
}

/** The packet moves by CSSOM, since the page's policy allows no style attributes; see `style.css` for its transition. */
function Packet({ at: [x, y], wrapped, lit }) {
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

