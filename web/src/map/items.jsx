// What is drawn on the map, each as something that can be chosen: networks, hosts with what is in them, Services.

import { HostRoom } from "./hostroom.jsx";
import { coreOf } from "./layout.js";
import { count, fit, hostId, plain } from "../words.js";

/** One thing. Which of them Tab leads to is up to the map; see `drawing.jsx`. */
const Item = ({ id, label, kind, hrefOf, selected, touched, passed, picks, strong, children }) => {
  const classes = ["item", kind];
  if (selected === id) classes.push("selected");
  if (strong?.has(id)) classes.push("strong");
  if (touched?.has(id)) classes.push("touched");
  if (passed) classes.push(passed.has(id) ? "passed" : selected === id ? "" : "aside");
  if (picks?.from === id) classes.push("from");
  if (picks?.to === id) classes.push("to");
  return (
    <a
      href={hrefOf(id)} data-id={id} class={classes.join(" ")} tabindex="-1" aria-current={selected === id ? "true" : undefined}
    >
      <title>{label}</title>
      {children}
    </a>
  );
};

const Rect = ({ box, rx = 8, ...rest }) => <rect x={box.x} y={box.y} width={box.w} height={box.h} rx={rx} {...rest} />;

export function Frame({ frame, names }) {
  const words = `${frame.zone ? `${/^zone/.test(frame.zone) ? "" : "zone "}${frame.zone} · ` : ""}${count(frame.nodes, "node")}`;
  const most = Math.floor((frame.w - 12) / 7.1);
  const shared = names?.prefix || names?.suffix ? `, named ${names.prefix}…${names.suffix}` : "";
  return (
    <g class="frame">
      <Rect box={frame} rx={12} />
      <text x={frame.x + (frame.w < 220 ? 6 : 14)} y={frame.y + 18}>{words.length + shared.length < most ? `${words}${shared}` : fit(words, most)}</text>
    </g>
  );
}

export function Bar({ bar, ...rest }) {
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
export function Labels({ layout, hops, doubted }) {
  const small = [...new Set(hops.map((hop) => hostId(hop.host)))].map((id) => layout.boxes.get(layout.boxes.has(id) ? id : layout.nodeOf.get(id))).filter((box) => box?.kind === "tile" || box?.kind === "dot");
  return (
    <g class="above" aria-hidden="true">
      {[...layout.boxes.values()].filter((item) => item.kind === "port").map((port) => <Port key={`${port.node} ${port.port.name}`} port={port} touched={doubted?.has(`${port.node} ${port.port.name}`)} />)}
      {layout.slim && [...layout.boxes.values()].filter((item) => item.kind === "room").map((box) => <g key={box.node.id} class="core"><CoreName box={box} /></g>)}
      {small.map((box) => <g key={box.node.id} class={`item node ${box.kind}`}>{box.kind === "tile" ? <TileName box={box} /> : <DotName box={box} names={layout.names} />}</g>)}
      {layout.bars.map((bar) => <g key={bar.id} class="item bar"><BarName bar={bar} /></g>)}
    </g>
  );
}

function CoreName({ box }) {
  const { core, node, slim } = box;
  return <text x={core.x + core.w / 2} y={core.y + (slim ? 13 : 15)}>{node.rulesKnown === false ? "rules" : node.mode || "rules"}</text>;
}

export function Outside({ item, box, ...rest }) {
  if (box.kind === "end") {
    return (
      <Item id={item.id} kind="outside" label={`endpoint ${item.address}`} {...rest}>
        <Rect box={box} rx={8} />
        <text x={box.x + box.w / 2} y={box.y + box.h / 2 + 4.5}>{fit(item.address, Math.floor((box.w - 8) / 6.6))}</text>
      </Item>
    );
  }
  return (
    <Item id={item.id} kind="outside" label={`${item.label?.startsWith("a Pod") ? item.label : "outside client"} ${item.address}`} {...rest}>
      <Rect box={box} rx={23} />
      <text x={box.x + box.w / 2} y={box.y + 20}>{fit(item.label?.replace(/^a Pod .*/, "a Pod") || "outside", 20)}</text>
      <text class="small" x={box.x + box.w / 2} y={box.y + 36}>{fit(item.address, 22)}</text>
    </Item>
  );
}

export function Node({ node, layout, viewed = false, ...rest }) {
  const box = layout.boxes.get(node.id);
  const { slim } = box;
  const bad = node.ready === false || node.linkUp === false;
  const state = [node.removed && "gone", node.ready === false && "not ready", node.linkUp === false && "link down", node.rulesKnown === false && "rules not known"].filter(Boolean).join(", ");
  const label = `${node.isNode === false ? "host" : "node"} ${node.name}${state ? `, ${state}` : ""}`;
  const kind = `${box.kind} node${node.removed ? " removed" : ""}${bad ? " bad" : ""}${node.rulesKnown === false ? " unknown" : ""}`;
  if (box.kind === "host") return <HostRoom node={node} layout={layout} label={`this host, ${node.mode} rules`} item={Item} {...rest} />;
  if (box.kind === "outside") return <Beside node={node} box={box} label={label} {...rest} />;
  if (box.kind !== "room") return <Tile node={node} box={box} layout={layout} state={state} label={label} kind={kind} {...rest} />;
  const pods = [...layout.boxes.entries()].filter(([, item]) => item.kind === "pod" && item.node === node.id);
  const ports = [...layout.boxes.values()].filter((item) => item.kind === "port" && item.node === node.id);
  const bridged = pods.some(([, item]) => !item.pod.hostNetwork);
  return (
    <g>
      <Item id={node.id} label={label} kind={kind} {...rest}>
        <Rect box={box} rx={12} />
        <text class="name" x={box.x + (slim ? 9 : 14)} y={box.y + 21}>{fit(node.name, slim ? 21 : 30)}</text>
        <text class="small" x={box.x + (slim ? 9 : 14)} y={box.y + 37}>{slim && state ? fit(state, 26) : fit(node.addresses.join(" "), slim ? 26 : 34)}</text>
        {!slim && <text class="small end" x={box.x + box.w - 14} y={box.y + 21}>{[viewed && "clients here", state].filter(Boolean).join(" · ")}</text>}
        {!slim && node.podCIDRs.length > 0 && <text class="small end" x={box.x + box.w - 14} y={box.y + 37}>Pods {fit(node.podCIDRs.join(" "), 28)}</text>}
      </Item>
      <g class="inner">
        {ports.map((port) => <path key={port.port.name} class="wire" d={wireOf(port, box)} />)}
        {bridged && <path class="wire" d={`M${box.core.x + box.core.w} ${coreOf(box)[1]}H${box.bridge.x}`} />}
        {pods.map(([id, item]) => item.pod.hostNetwork
          ? null
          : <path key={id} class="wire" d={`M${box.bridge.x + box.bridge.w} ${item.y + item.h / 2}H${item.x}`} />)}
        {ports.map((port) => <Port key={port.port.name} port={port} touched={rest.doubted?.has(`${port.node} ${port.port.name}`)} />)}
        <g class="core">
          <Rect box={box.core} rx={8} />
          <CoreName box={box} />
          {!slim && <text class="small" x={box.core.x + box.core.w / 2} y={box.core.y + 28}>{node.rulesKnown === false ? "not known" : "routing"}</text>}
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

/** From an interface to the rules, which are beside it, or below it in a slim room. */
function wireOf(port, { core, slim }) {
  if (slim) return `M${port.x + port.w / 2} ${port.y + 28}V${core.y}`;
  return `M${port.x + port.w} ${port.y + 14}C${port.x + port.w + 14} ${port.y + 14} ${core.x - 14} ${core.y + 43} ${core.x} ${core.y + 43}`;
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

function Port({ port, touched = false }) {
  const tunnel = port.port.tunnel;
  const kind = `port${tunnel ? " tunnel" : ""}${port.port.up === false ? " down" : ""}${touched ? " touched" : ""}`;
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
  const shown = box.slim ? "" : pod.terminating && !pod.removed ? "terminating" : pod.bare ? "endpoint" : fit(pod.hostNetwork ? "host network" : address, 15);
  return (
    <Item id={pod.id} label={`${pod.bare ? "endpoint" : "Pod"} ${pod.bare ? "" : `${pod.namespace}/`}${pod.name}, ${pod.addresses.join(" ") || "no address"}${state ? `, ${state}` : ""}`}
      kind={`pod${pod.removed ? " removed" : ""}${bad ? " bad" : ""}${pod.terminating ? " leaving" : ""}${pod.hostNetwork ? " hostnet" : ""}`} {...rest}>
      <Rect box={box} rx={6} />
      <text x={box.x + (box.slim ? 6 : 10)} y={box.y + 16}>{fit(pod.name, box.slim ? 11 : room(box.w, shown))}</text>
      <text class="tiny end" x={box.x + box.w - 8} y={box.y + 16}>{shown}</text>
    </Item>
  );
}

/** A node of very many: its name without what all names share, filled by an amount. */
function Dot({ node, box, names, label, kind, amount, ...rest }) {
  return (
    <Item id={node.id} label={`${label}, ${count(box.pods, "Pod")}`} kind={kind} {...rest}>
      <Rect box={box} rx={5} />
      {amount > 0 && <rect class="amount" x={box.x} y={box.y} width={box.w} height={box.h} rx={5} fill-opacity={amount.toFixed(2)} />}
      <DotName box={box} names={names} />
    </Item>
  );
}

function DotName({ box, names }) {
  const { name } = box.node;
  return <text x={box.x + box.w / 2} y={box.y + 16}>{fit(name.slice(names.prefix.length, name.length - names.suffix.length), Math.floor((box.w - 6) / 7))}</text>;
}

const TileName = ({ box }) => <text class="name" x={box.x + 9} y={box.y + 18}>{fit(box.node.name, 20)}</text>;

function Tile({ node, box, layout, state, label, kind, amount, ...rest }) {
  if (box.kind === "dot") return <Dot node={node} box={box} names={layout.names} label={label} kind={kind} amount={amount} {...rest} />;
  const squares = [...layout.boxes.entries()].filter(([, item]) => item.kind === "square" && item.node === node.id);
  return (
    <g>
      <Item id={node.id} label={`${label}, ${box.pods} Pods`} kind={kind} {...rest}>
        <Rect box={box} rx={8} />
        <TileName box={box} />
        <text class="tiny" x={box.x + 9} y={box.y + 33}>{state || (node.addresses[0] ?? "")}</text>
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

/** `fault`: what is wrong with it; `none`: why it has no endpoint; both in a few words. */
export function Service({ service, box, fault, none, unchecked, ...rest }) {
  const kind = `service${service.removed ? " removed" : ""}${service.skipped ? " skipped" : ""}${fault === "not known" ? " unchecked" : fault ? " faulty" : none ? " empty" : unchecked ? " unchecked" : ""}`;
  // The lines are of packets to the cluster IP.
  const address = service.clusterIPs[0] ?? service.loadBalancerIPs[0] ?? service.externalIPs[0] ?? (service.type === "ExternalName" ? "a DNS name" : "no cluster IP");
  const shown = fit(address, 16);
  const words = fault || none;
  const type = none && !fault ? none : (TYPES[service.type] ?? "");
  return (
    <Item id={service.id} label={`Service ${service.namespace}/${service.name}, ${service.type}${service.skipped ? `: ${service.skipped}` : ""}${words ? `: ${words}` : ""}`} kind={kind} {...rest}>
      <Rect box={box} rx={box.h < 40 ? 6 : 10} />
      {box.h < 40 || box.w < 150 ? <ShortService service={service} box={box} words={words} /> : <LongService service={service} box={box} type={type} shown={shown} fault={fault} />}
    </Item>
  );
}

function LongService({ service, box, type, shown, fault }) {
  return (
    <>
      <text class="name" x={box.x + 13} y={box.y + 21}>{fit(service.name, Math.floor((box.w - 34 - (fault ? shown : type).length * 6.3) / 7.9))}</text>
      <text class="tiny end" x={box.x + box.w - 11} y={box.y + 20}>{fault ? shown : type}</text>
      {fault ? <text class="tiny fault" x={box.x + 13} y={box.y + 38}>{fit(fault, Math.floor((box.w - 24) / 6.3))}</text> : (
        <>
          <text class="tiny" x={box.x + 13} y={box.y + 38}>{fit(service.namespace, room(box.w, shown))}</text>
          <text class="tiny end" x={box.x + box.w - 11} y={box.y + 38}>{shown}</text>
        </>
      )}
    </>
  );
}

/** A Service in one line of a long list, or on a phone: its name, and its namespace where there is room. */
function ShortService({ service, box, words }) {
  const low = box.h < 40;
  const beside = fit((low ? words.replace(/ on \S+$/, "") : words) || service.namespace, low ? 14 : 40);
  const most = Math.floor((box.w - (low && box.w > 150 ? beside.length * 6.3 + 26 : 16)) / 7.6);
  return (
    <>
      <text class="name" x={box.x + 8} y={box.y + (low ? 17 : 20)}>{fit(service.name, most)}</text>
      {!low && <text class={`tiny${words ? " fault" : ""}`} x={box.x + 8} y={box.y + 38}>{fit(beside, Math.floor((box.w - 14) / 6.3))}</text>}
      {low && box.w > 150 && <text class={`tiny end${words ? " fault" : ""}`} x={box.x + box.w - 8} y={box.y + 16.5}>{beside}</text>}
    </>
  );
}
