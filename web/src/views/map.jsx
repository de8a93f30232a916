// The map view: what there is, where, and what is known of what is selected.

import { useCallback, useMemo } from "preact/hooks";
import { embedded, holds } from "../api.js";
import { onNodes } from "../compare/gather.js";
import { auditMarks, faultsElsewhere, linkTo, notChecked, useAudited } from "../map/audited.js";
import { clientsOf, useEachNode } from "../service/eachnode.js";
import { PartWords, ShareBar } from "../service/sharebar.jsx";
import { edgesOf, portsOf, toldOf } from "../service/shares.js";
import { isNode } from "../map/layout.js";
import { isOneHost } from "../map/onehost.js";
import { Drawing, useLayout } from "../map/drawing.jsx";
import { serviceTarget } from "../names.js";
import { Busy, Close, Field, Later, LongTable, NotSeen, Problem, Select } from "../parts.jsx";
import { go, href } from "../route.js";
import { faultOf } from "../map/faults.js";
import { edgesBy, narrow } from "../map/shape.js";
import { ENDS, count, percent, plain } from "../words.js";

const MAX_FOUND = 40;

export function MapView({ route, map, source, error, busy, revision }) {
  const { query } = route;
  const { ns = "", q = "", sel = "", open = "", only = "" } = query;
  const opened = useMemo(() => new Set(open ? open.split(",") : []), [open]);
  const onlyNodes = useMemo(() => (only ? new Set(only.split(",")) : null), [only]);
  const part = useMemo(() => narrow(map, { ns, q, only: onlyNodes, sel }), [map, ns, q, onlyNodes, sel]);
  const found = useMemo(() => search(map, q), [map, q]);
  const touched = useMemo(() => (q ? new Set(found.map((item) => item.id)) : null), [q, found]);
  const { audited, busy: auditing, left, unseen } = useAudited(map, source, revision);
  const shown = useMemo(() => part && { ...part, outside: asking(part, sel), faults: faultsElsewhere(audited, part), unchecked: left > 0 }, [part, audited, left > 0, sel]);
  const layout = useLayout(shown, opened);
  const marks = useMemo(() => (audited?.length && shown ? auditMarks(audited, shown) : null), [audited, shown]);
  const to = (changes) => href("map", { ...query, ...changes });
  const hrefOf = useCallback((id) => {
    if (id.startsWith("open ")) return to({ open: [...opened, id.slice(5)].join(",") });
    return to({ sel: id === sel ? "" : id });
  }, [route]);
  if (!map) return <section class="view"><h1>Map</h1><Problem error={error} /><Busy busy={busy} words="Reading…" /></section>;
  const nodes = map.nodes.filter(isNode).length;
  return (
    <section class="view split">
      <div class="main">
        <div class="bar-top">
          <h1>Map</h1>
          <p class="counts">{nodes ? count(nodes, "node") : count(map.nodes.length, "host")} · {isOneHost(map) ? "" : `${count(map.pods.filter((pod) => !pod.bare).length, "Pod")} · `}{count(map.services.length, "Service")}{isOneHost(map) ? " that its rules name" : ""}</p>
          {audited ? <Audited audited={audited} /> : auditing && <span class="counts">Auditing…</span>}
          {left > 0 && <span class="ending open" data-test="not-checked">? {notChecked(left)}</span>}
          <Busy busy={busy} words="Reading…" />
          <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
            <Field label="Search" name="q" value={q} hint="name or address" onEnter={(text) => go(to({ q: text }))} />
            <Select label="Namespace" value={ns} onChange={(value) => go(to({ ns: value }))} options={[["", "all"], ...source.namespaces.map((name) => [name, name])]} />
            {!embedded && map.nodes.length > 1 && (
              <Select label="For clients on" value={query.node ?? map.view} onChange={(value) => go(to({ node: value }))}
                options={map.nodes.filter(isNode).map((node) => [node.name, node.name])} />
            )}
            {(ns || q || only || open) && <a class="button" href={href("map", { sel, node: query.node })}>Clear</a>}
          </form>
        </div>
        <Problem error={error} />
        <NotSeen items={unseen} />
        {q && <Found found={found} q={q} to={to} />}
        <Drawing map={shown} layout={layout} hrefOf={hrefOf} selected={sel} touched={touched} marks={marks}
          label={`Map of ${count(map.nodes.length, "host")}, ${count(map.pods.length, "Pod")} and ${count(map.services.length, "Service")}; arrow keys go from one to the next`} />
        {layout.more > 0 && <p class="counts">{count(layout.more, "more Service")} {layout.more === 1 ? "is" : "are"} not drawn: search, or choose a namespace. The tables have all.</p>}
        {layout.ends > 0 && <p class="counts">{count(layout.ends, "more endpoint")} outside {layout.ends === 1 ? "is" : "are"} not drawn; the tables and Services have all.</p>}
        <Legend map={shown} size={layout.size} selected={sel} />
        <Tables map={shown} to={to} />
      </div>
      <aside class={sel ? "panel sheet" : "panel"} aria-label="What is selected">
        {sel && <Close href={to({ sel: "" })} />}
        {sel ? <Selected map={{ ...map, faults: shown.faults }} id={sel} to={to} query={query} revision={revision} pages={source.can?.services !== false} /> : <Empty audited={audited ?? []} total={nodes} alone={isOneHost(map)} />}
      </aside>
    </section>
  );
}

/** Of one host's rules who asks, if the Service that is chosen is worst for somebody: all others are as they are for whom they are worst. */
function asking({ clients, services, outside }, sel) {
  const worst = clients?.find(({ id }) => id === services.find((service) => service.id === sel)?.asker);
  const drawn = outside.find((item) => !item.end);
  if (!worst || worst.label === drawn?.label) return outside;
  // The host itself is drawn anyway.
  const asks = worst.id === "node" ? [] : [{ id: `outside/${worst.sender}`, address: worst.sender, label: worst.label, links: [] }];
  return [...asks, ...outside.filter((item) => item !== drawn)];
}

function search(map, q) {
  if (!map || !q) return [];
  const has = (...texts) => texts.some((text) => text?.includes(q));
  return [
    ...map.services.filter((item) => has(plain(item.id), ...item.clusterIPs, ...item.externalIPs, ...item.loadBalancerIPs)),
    ...map.pods.filter((item) => has(plain(item.id), ...item.addresses)),
    ...map.nodes.filter((item) => has(item.name, ...item.addresses)),
    ...map.outside.filter((item) => has(item.address, item.label)),
  ];
}

function Found({ found, q, to }) {
  return (
    <div class="found">
      <p role="status">{found.length ? `${count(found.length, "thing")} with “${q}”${found.length > MAX_FOUND ? `, the first ${MAX_FOUND}` : ""}` : `Nothing has “${q}” in its name or addresses`}</p>
      <ul class="chips">
        {found.slice(0, MAX_FOUND).map((item) => (
          <li key={item.id}><a href={to({ sel: item.id, ...(item.node ? { only: "" } : {}) })}><small>{item.id.split("/")[0]}</small> {plain(item.id)}</a></li>
        ))}
      </ul>
    </div>
  );
}

/** How much the audit found; leads there. */
function Audited({ audited }) {
  const of = (severity) => audited.filter((item) => item.severity === severity).length;
  const [errors, warnings] = [of("error"), of("warning")];
  const words = [errors && count(errors, "error"), warnings && count(warnings, "warning")].filter(Boolean).join(", ");
  return <a class={`audited ${errors ? "bad" : warnings ? "open" : "ok"}`} href="#/audit"><b>Audit:</b> {words || "nothing wrong"}</a>;
}

const MAX_AUDITED = 6;

function Empty({ audited, total, alone }) {
  return (
    <>
      {audited.length > 0 && (
        <section class="audited-list">
          <h2>What is wrong</h2>
          <ol class="plain">
            {audited.slice(0, MAX_AUDITED).map((item) => (
              <li key={item.place}><span class={`number ${item.tone}`}>{item.place + 1}</span><span><a href={linkTo(item)}>{item.title}</a> <small>{[item.services.slice(0, 3).join(", "), item.services.length > 3 ? `and ${item.services.length - 3} more` : "", onNodes(item.nodes, total)].filter(Boolean).join(" ")}</small></span></li>
            ))}
          </ol>
          {audited.length > MAX_AUDITED && <p><a href="#/audit">All {audited.length}</a></p>}
        </section>
      )}
      <h2>Look around</h2>
      <p>Choose anything on the map: {alone ? "the host, a Service, an endpoint" : "a node, a Pod, a Service, a network"}. Then ask where packets go.</p>
      {!audited.length && (
        <ul class="hints">
          {alone ? <>
            <li>From left to right: who asks, the host with the Services that its rules name, and the endpoints that they choose. Packets meet the hooks in this order.</li>
            <li>A green line leads to an endpoint that the rules send packets to; the wider it is, the more of them. A Service is as it is for whom it serves worst: a Pod, the host, or a client outside; its list has a bar for each. A cross is where packets are lost. Whether they arrive there one host’s rules do not tell.</li>
          </> : <>
            <li>From left to right: who is outside, the network, nodes with their interfaces, rules and Pods, and Services.</li>
            <li>A green line joins a Service to a Pod that gets its packets; the wider it is, the more of them. Where no packet goes is no line. Of a large cluster the lines of what is chosen are drawn.</li>
          </>}
          <li>Tab to the map, then arrow keys and Enter. <kbd>?</kbd> lists all keys.</li>
        </ul>
      )}
      <p><a class="button primary" href="#/ask">Ask a question</a></p>
    </>
  );
}

function Legend({ map, size, selected }) {
  // On tiles tunnels are not drawn, nor lines before something is chosen.
  const rooms = size === "room";
  const alone = isOneHost(map);
  const lines = rooms || Boolean(selected);
  return (
    <ul class="legend" aria-label="Legend">
      {alone && <li><svg viewBox="0 0 12 10" aria-hidden="true"><g class="hook"><rect width="12" height="10" rx="2" /></g></svg> hooks, in the order in which packets meet them</li>}
      {map.networks.length > 0 && <li><svg viewBox="0 0 26 10" aria-hidden="true"><path class="cable" d="M0 5H26" /></svg> cable</li>}
      {rooms && map.nodes.some((node) => node.tunnels?.length) && <li><svg viewBox="0 0 26 10" aria-hidden="true"><path class="tunnel" d="M0 5H26" /></svg> tunnel between nodes</li>}
      {lines && <li><svg viewBox="0 0 26 10" aria-hidden="true"><path class="chance-line" d="M0 5H26" /></svg> a Service’s packets, the wider the likelier</li>}
      {!alone && <li><svg viewBox="0 0 12 10" aria-hidden="true"><rect class="bad-box" width="12" height="10" rx="2" /></svg> not ready, down, or not as the objects ask for</li>}
      {map.services.some((service) => !service.skipped && !map.served.has(service.id) && !map.faults.has(service.id)) && <li><svg viewBox="0 0 12 10" aria-hidden="true"><rect class="empty-box" width="12" height="10" rx="2" /></svg> no endpoints</li>}
      {lines && map.edges.some((edge) => edge.lost) && <li><svg viewBox="0 0 26 10" aria-hidden="true"><g class="edge gone"><path d="M0 5H26" stroke-width="3" /></g></svg> packets that are lost</li>}
      {size === "dot" && <li><svg viewBox="0 0 12 10" aria-hidden="true"><rect class={selected.startsWith("svc/") ? "amount chosen" : "amount"} width="12" height="10" rx="2" /></svg> a node, the fuller the more {selected.startsWith("svc/") ? "packets of the Service" : "Pods"}</li>}
    </ul>
  );
}

/** `pages`: whether Services have pages of their own. */
function Selected({ map, id, to, query, revision, pages }) {
  const node = map.nodes.find((item) => item.id === id);
  if (node) return <NodePanel node={node} map={map} to={to} query={query} />;
  const pod = map.pods.find((item) => item.id === id);
  if (pod) return <PodPanel pod={pod} map={map} to={to} />;
  const service = map.services.find((item) => item.id === id);
  if (service) return <ServicePanel service={service} map={map} to={to} query={query} revision={revision} pages={pages} />;
  const outside = map.outside.find((item) => item.id === id);
  if (outside) return <><h2>{outside.label || "Outside"}</h2><Facts rows={[["address", outside.address]]} /><Asks id={id} /></>;
  const network = map.networks.find((item) => item.id === id);
  if (network) {
    return (
      <>
        <h2>Network {network.cidr}</h2>
        {!network.known && <p class="note">That these hosts share a network is taken for granted; nothing in the source says so.</p>}
        <ul class="plain">{network.members.slice(0, 60).map((item) => <li key={`${item.host} ${item.device}`}><a href={to({ sel: item.host })}>{plain(item.host)}</a> {item.device} <code>{item.address}</code>{item.up === false ? " · down" : ""}</li>)}</ul>
      </>
    );
  }
  return <><h2>{plain(id)}</h2><p class="note">It is not there any more, or never was.</p></>;
}

const Asks = ({ id, target = id }) => holds("ask") && (
  <p class="actions">
    <a class="button primary" href={href("ask", { from: id })}>Ask from here</a>
    <a class="button" href={href("ask", { to: target })}>Ask to here</a>
  </p>
);

const Facts = ({ rows }) => <dl class="facts">{rows.filter(([, value]) => value).map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>;

function NodePanel({ node, map, to, query }) {
  const pods = map.pods.filter((pod) => pod.node === node.id);
  const only = query.only ? query.only.split(",") : [];
  const near = [...new Set([...only, node.id])];
  return (
    <>
      <h2>{isOneHost(map) ? "This host" : `${node.isNode === false ? "Host" : "Node"} ${node.name}`}</h2>
      {node.reason && <p class="problem">{node.reason}</p>}
      <Facts rows={[
        ["addresses", node.addresses.join(" ")], ["Pod network", node.podCIDRs.join(" ")], ["zone", node.zone], ["rules", node.rulesKnown === false ? "not known" : node.mode],
        ["state", [node.ready === false ? "not ready" : "", node.linkUp === false ? "its link is down" : ""].filter(Boolean).join(", ")],
      ]} />
      <p class="actions">
        <a class="button primary" href={href("ask", { from: node.id })}>Ask from here</a>
        {map.nodes.length > 6 && near.length > only.length && <a class="button" href={to({ only: near.join(",") })}>Show as a room</a>}
      </p>
      {(node.devices ?? []).length > 0 && (
        <details><summary>{count(node.devices.length, "device")}</summary>
          <ul class="plain">{node.devices.map((device) => <li key={device.name}><b>{device.name}</b> {device.kind} <code>{(device.addresses ?? []).join(" ")}</code>{device.bridge ? ` · port of ${device.bridge}` : ""}{device.up === false ? " · down" : ""}</li>)}</ul>
        </details>
      )}
      {isOneHost(map) ? <p class="note">Its rules are all that is known of it.</p> : (
        <details open={pods.length < 20}><summary>{count(pods.length, "Pod")}</summary>
          <ul class="plain">{pods.slice(0, 300).map((pod) => <li key={pod.id}><a href={to({ sel: pod.id })}>{plain(pod.id)}</a> <code>{pod.addresses[0] ?? ""}</code></li>)}</ul>
        </details>
      )}
    </>
  );
}

function PodPanel({ pod, map, to }) {
  const edges = edgesBy(map, "target", pod.id);
  return (
    <>
      <h2>{pod.bare ? "Endpoint" : "Pod"} {pod.name}</h2>
      {pod.bare && <p class="note">EndpointSlices name it; the source has no Pod of this address.</p>}
      <Facts rows={[
        ["namespace", pod.namespace], ["node", pod.node ? <a href={to({ sel: pod.node })}>{plain(pod.node)}</a> : "none yet"], ["addresses", pod.addresses.join(" ")],
        ["state", [pod.removed ? "gone" : "", pod.phase, pod.ready === false ? "not ready" : "", pod.terminating ? "terminating" : "", pod.hostNetwork ? "in the host’s network" : ""].filter(Boolean).join(", ")],
      ]} />
      <Asks id={pod.id} />
      {edges.length > 0 && <h3>Endpoint of</h3>}
      <ul class="plain">
        {edges.map((edge, place) => (
          <li key={place}><a href={href(["service", ...plain(edge.service).split("/")])}>{plain(edge.service)}</a> {edge.port} {edge.protocol} · {edge.fault ? <span class="bad-text">{edge.used ? `${percent(edge.chance)}, ` : ""}{faultOf(edge)}</span> : edge.used ? percent(edge.chance) : `no packets: ${edge.why}`}</li>
        ))}
      </ul>
    </>
  );
}

function ServicePanel({ service, map, to, query, revision, pages }) {
  const edges = edgesBy(map, "service", service.id);
  // A file has the map of one node's clients.
  const view = (!embedded && query.node) || map.view;
  return (
    <>
      <h2>Service {service.name}</h2>
      {service.skipped && <p class="note">{service.skipped}</p>}
      {map.faults.has(service.id) && <p class="problem">{map.faults.get(service.id)}{isOneHost(map) || / on \S+$/.test(map.faults.get(service.id)) ? "" : `, for clients on ${view}`}</p>}
      <Facts rows={[
        ["namespace", service.namespace], ["type", service.type], ["cluster IP", service.clusterIPs.join(" ")], ["external IPs", service.externalIPs.join(" ")], ["load balancer", service.loadBalancerIPs.join(" ")],
        ["policies", [service.internalPolicy === "Local" ? "internal Local" : "", service.externalPolicy === "Local" ? "external Local" : ""].filter(Boolean).join(", ")],
        ["affinity", service.affinity === "None" ? "" : service.affinity],
      ]} />
      <p class="actions">
        {holds("services") && pages && <a class="button primary" href={href(["service", service.namespace, service.name], { node: query.node })}>Open its page</a>}
        {holds("ask") && <a class="button" href={href("ask", { to: serviceTarget(service) })}>Ask to here</a>}
      </p>
      {map.clients?.length > 0 && (holds("clients") ? <ByClient service={service} map={map} revision={revision} /> : <p class="note">This file holds how it is for whom it is worst; who fares how needs kproxy explore.</p>)}
      {service.ports.map((port) => {
        const of = edges.filter((edge) => edge.port === port.name && edge.protocol === port.protocol);
        return (
          <section key={`${port.name} ${port.protocol}`}>
            <h3>{port.name || "port"} {port.port}/{port.protocol}{port.nodePort ? ` · node port ${port.nodePort}` : ""}</h3>
            {of.length === 0 && <p class="note">{unreachedOf(map, service, port) || "no endpoints"}</p>}
            <ul class="plain shares">
              {of.slice(0, 100).map((edge, place) => (
                <li key={place} class={edge.fault ? "bad" : edge.used ? "" : "unused"}>
                  {edge.used ? <b>{percent(edge.chance)}</b> : <b aria-hidden="true">–</b>}
                  <span><a href={to({ sel: edge.target })}>{plain(edge.target)}</a> <code>{edge.endpoint}</code> {edge.fault ? <i class="bad-text">{faultOf(edge)}</i> : !edge.used && <i>{edge.why || edge.state}</i>}</span>
                </li>
              ))}
            </ul>
          </section>
        );
      })}
      {!isOneHost(map) && edges.some((edge) => edge.varies) && <p class="note">Chances as a client on {view} has them; other nodes have others.</p>}
    </>
  );
}

/** Of one host's rules: what becomes of packets of each who may ask. */
function ByClient({ service, map, revision }) {
  const maps = useEachNode(clientsOf(map), map, revision);
  return (
    <section class="by-client" data-test="by-client">
      <h3>At its cluster IP, for</h3>
      {map.clients.map((client, place) => (
        <div key={client.id} class="packet-shares">
          {maps[place] && portsOf(service, edgesOf(maps[place], service.id), ENDS.accepted.words, maps[place].unreached).map(({ parts, names }, each, all) => (
            <div key={names[0]} class="packet-share" title={parts.length ? toldOf(parts) : undefined}>
              <ShareBar parts={parts} />
              <span><a href={href("ask", { from: client.sender, to: `svc/${service.namespace}/${service.name}${service.ports.length > 1 ? `:${names[0]}` : ""}` })}>{client.label}</a>{all.length > 1 ? `, ${names.join(", ")}` : ""}: {parts.length ? <PartWords parts={parts} /> : <span class="soft">– no endpoints</span>}</span>
            </div>
          ))}
        </div>
      ))}
    </section>
  );
}

/** Why one host's rules lead packets to a port nowhere. */
function unreachedOf(map, service, port) {
  const found = (map.unreached ?? []).find((each) => each.service === service.id && each.port === port.name && each.protocol === port.protocol);
  return found && (found.open ? `not decided: ${found.open}` : found.stopped);
}

function Tables({ map, to }) {
  const link = (id) => <a href={to({ sel: id })}>{plain(id)}</a>;
  return (
    <Later class="tables" summary="The same as tables">{() => <>
      <LongTable caption="Services" head={["Service", "type", "addresses", "ports", "endpoints with chances"]} rows={map.services} cells={(service) => [
        link(service.id), service.type, [...service.clusterIPs, ...service.externalIPs, ...service.loadBalancerIPs].join(" "),
        service.ports.map((port) => `${port.port}/${port.protocol}${port.nodePort ? ` (${port.nodePort})` : ""}`).join(" "),
        edgesBy(map, "service", service.id).filter((edge) => edge.used).slice(0, 12).map((edge) => `${edge.endpoint} ${percent(edge.chance)}`).join(", "),
      ]} />
      <LongTable caption="Pods" head={["Pod", "node", "addresses", "state"]} rows={map.pods} cells={(pod) => [link(pod.id), plain(pod.node), pod.addresses.join(" "), pod.terminating ? "terminating" : pod.ready === false ? "not ready" : pod.phase]} />
      <LongTable caption="Nodes and other hosts" head={["Host", "addresses", "Pod network", "tunnels", "state"]} rows={map.nodes} cells={(node) => [
        link(node.id), node.addresses.join(" "), node.podCIDRs.join(" "), (node.tunnels ?? []).map((tunnel) => `${tunnel.device} ${tunnel.kind}${tunnel.vni ? ` ${tunnel.vni}` : ""}`).join(" "),
        [node.ready === false ? "not ready" : "", node.linkUp === false ? "link down" : ""].filter(Boolean).join(", "),
      ]} />
    </>}</Later>
  );
}

