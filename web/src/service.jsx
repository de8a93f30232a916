// One Service: what it becomes, in the order a packet meets it, and who reaches it from where.

import { useState } from "preact/hooks";
import { command, embedded, holds, useAnswer } from "./api.js";
import { serviceTarget } from "./names.js";
import { Busy, End, Field, LongTable, Problem, Select, Table } from "./parts.jsx";
import { go, href } from "./route.js";
import { count, fit, percent, plain, ratio } from "./words.js";

export function ServiceList({ route, map, error, busy }) {
  const { q = "", ns = "" } = route.query;
  if (!map) return <section class="view"><h1>Services</h1><Problem error={error} /><Busy busy={busy} words="Reading…" /></section>;
  const found = map.services.filter((item) => (!ns || item.namespace === ns) && plain(item.id).includes(q));
  const used = new Map();
  for (const edge of map.edges) {
    const known = used.get(edge.service) ?? { used: new Set(), left: new Set() };
    (edge.used ? known.used : known.left).add(edge.endpoint);
    used.set(edge.service, known);
  }
  const names = [...new Set(map.services.map((item) => item.namespace))].sort();
  return (
    <section class="view">
      <div class="bar-top"><h1>Services</h1><p class="counts">{count(found.length, "Service")}</p><span /></div>
      <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
        <Field label="Search" name="q" value={q} hint="a name" onEnter={(text) => go(href("services", { ...route.query, q: text }))} />
        <Select label="Namespace" value={ns} onChange={(value) => go(href("services", { ...route.query, ns: value }))} options={[["", "all"], ...names.map((name) => [name, name])]} />
      </form>
      <LongTable caption="Services" hidden head={["Service", "type", "addresses", "ports", "endpoints"]} rows={found} cells={(item) => {
        const ends = used.get(item.id);
        return [
          <a href={href(["service", item.namespace, item.name])}>{plain(item.id)}</a>, item.skipped || item.type,
          <code>{[...item.clusterIPs, ...item.externalIPs, ...item.loadBalancerIPs].join(" ")}</code>, item.ports.map((port) => `${port.port}/${port.protocol}`).join(" "),
          item.skipped ? "" : <span class={ends?.used.size ? "" : "bad-text"}>{ends?.used.size ? `${ends.used.size} used` : "none used"}{[...(ends?.left ?? [])].filter((each) => !ends.used.has(each)).length ? `, ${[...ends.left].filter((each) => !ends.used.has(each)).length} left out` : ""}</span>,
        ];
      }} />
      {found.length === 0 && <p class="note">No Service has “{q}” in its name.</p>}
    </section>
  );
}

export function ServiceView({ route, map, revision, edits = [] }) {
  const [, namespace = "", name = ""] = route.path;
  const { node = "", family = "" } = route.query;
  const path = `api/services/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
  const wanted = new URLSearchParams(Object.entries({ node, family }).filter(([, value]) => value)).toString();
  const { data, error, busy } = useAnswer(wanted ? `${path}?${wanted}` : path, undefined, revision);
  const service = map?.services.find((item) => item.namespace === namespace && item.name === name);
  const to = (changes) => href(route.path, { ...route.query, ...changes });
  return (
    <section class="view">
      <p class="crumbs">{command ? "Service" : <a href="#/services">Services</a>} / {namespace}</p>
      <div class="bar-top">
        <h1>{name}</h1>
        {service && <p class="counts">{service.type}{embedded && data ? `, ${data.explanation.family} on node ${data.explanation.node}` : ""}{service.affinity && service.affinity !== "None" ? ` · ${service.affinity} affinity` : ""}</p>}
        <Busy busy={busy} />
        <span class="actions">
          {service && !service.skipped && holds("ask") && <a class="button primary" href={href("ask", { to: serviceTarget(service) })}>Ask to here</a>}
          <a class="button" href={href("map", { sel: `svc/${namespace}/${name}` })}>On the map</a>
        </span>
      </div>
      {data && !embedded && (data.nodes.length > 1 || data.families.length > 1) && (
        <form class="filters" onSubmit={(event) => event.preventDefault()}>
          {data.nodes.length > 1 && <Select label="Rules of node" value={node || data.explanation.node} onChange={(value) => go(to({ node: value }))} options={data.nodes.map((item) => [item, item])} />}
          {data.families.length > 1 && <Select label="Family" value={family || data.explanation.family} onChange={(value) => go(to({ family: value }))} options={data.families.map((item) => [item, item])} />}
        </form>
      )}
      <Problem error={error} />
      {data && <Body data={data} />}
    </section>
  );
}

function Body({ data }) {
  const { explanation } = data;
  return (
    <>
      {explanation.skipped && <p class="note">kube-proxy does nothing for it: {explanation.skipped}</p>}
      {(explanation.notes ?? []).map((note) => <p key={note} class="note">{note}</p>)}
      {data.ports.map((port) => <Port key={`${port.name} ${port.protocol}`} port={port} explained={explained(explanation, port)} node={explanation.node} />)}
      {data.matrix && data.matrix.clients.length > 0 && data.matrix.addresses.length > 0 && <Matrix matrix={data.matrix} />}
    </>
  );
}

const explained = (explanation, port) => explanation.ports.find((item) => item.protocol === port.protocol && (item.name === port.name || item.name.endsWith(`:${port.name}`) || (!port.name && !item.name.includes(":"))));

function Port({ port, explained: facts, node }) {
  return (
    <section class="service-port">
      <h2>{port.name || "port"} <small>{port.protocol}</small></h2>
      {facts && <ul class="hints">{facts.facts.map((item) => <li key={item}>{item}</li>)}</ul>}
      {port.fan.length > 0 && <Fan port={port} />}
      <Table hidden caption={`Addresses of ${port.name || "the port"}, and what becomes of packets to them`} classes="fan-table" head={["address", "from", "policy", "becomes", "endpoints"]} rows={port.fan.map((item) => [
        `${item.kind} ${item.address}:${item.port}`, item.from, item.policy, item.verdict + (item.why ? `: ${item.why}` : ""), (item.endpoints ?? []).map((each) => `${each.address} ${percent(each.chance)}`).join(", "),
      ])} />
      {port.left.length > 0 && (
        <Table caption="Endpoints that are left out" head={["endpoint", "state", "node", "why"]} rows={port.left.map((item) => [<>{plain(item.target) || item.address} <code>{item.address}</code></>, item.state, plain(item.node), item.why])} />
      )}
      {facts?.rules?.length > 0 && (
        <details class="tables"><summary>{count(facts.rules.length, "rule")} of {node}</summary>
          <LongTable hidden caption={`Rules of ${port.name || "the port"}`} head={["chain", "what for", "rule"]} rows={facts.rules.map((rule) => [<>{rule.table} {rule.chain} {rule.rule}</>, rule.reason, <code>{rule.text}</code>])} />
        </details>
      )}
    </section>
  );
}

const KINDS = { clusterIP: "cluster IP", externalIP: "external IP", loadBalancerIP: "load balancer", nodePort: "node port" };
const MAX_FAN = 16;

/** The fan-out: addresses at the left, what the rules decide, endpoints with their chances at the right. */
function Fan({ port }) {
  const [all, setAll] = useState(false);
  const ends = [...new Map(port.fan.flatMap((item) => item.endpoints ?? []).map((item) => [item.address, item])).values()];
  const shown = all ? ends : ends.slice(0, MAX_FAN);
  const [rowA, rowE] = [66, 40];
  const height = Math.max(port.fan.length * rowA, shown.length * rowE, rowA) + 12;
  const yA = (place) => 6 + (height - 12) * ((place + 0.5) / port.fan.length);
  const yE = (place) => 6 + (height - 12) * ((place + 0.5) / Math.max(1, shown.length));
  const lines = port.fan.flatMap((item, place) => (item.endpoints ?? []).map((each) => [place, shown.findIndex((end) => end.address === each.address), each]).filter(([, end]) => end >= 0));
  const sameForAll = port.fan.every((item) => JSON.stringify((item.endpoints ?? []).map((each) => each.chance)) === JSON.stringify((port.fan[0].endpoints ?? []).map((each) => each.chance)));
  return (
    <>
      <div class="drawing fan-holder" tabIndex={0} role="group" aria-label="Fan-out of this port">
        <svg class="map fan" viewBox={`0 0 900 ${height}`} width={900} height={height} role="img" aria-label={`${count(port.fan.length, "address", "addresses")} and ${count(ends.length, "endpoint")}; the table that follows has them`}>
          {lines.map(([one, other, each]) => {
            const [y1, y2, share] = [yA(one), yE(other), ratio(each.chance)];
            return <path key={`${one} ${other}`} class="edge-line" d={`M508 ${y1}C590 ${y1} 560 ${y2} 638 ${y2}`} stroke-width={(1 + share * 5).toFixed(1)} />;
          })}
          {port.fan.map((item, place) => {
            const y = yA(place);
            const dead = item.verdict !== "endpoints";
            return (
              <g key={`${item.kind} ${item.address} ${item.port}`}>
                <g class="item service"><rect x={6} y={y - 25} width={236} height={50} rx={10} />
                  <text class="name" x={18} y={y - 4}>{fit(item.kind === "nodePort" ? `any node :${item.port}` : `${item.address}:${item.port}`, 28)}</text>
                  <text class="tiny" x={18} y={y + 14}>{KINDS[item.kind] ?? item.kind}{item.from ? ` · from ${fit(item.from, 26)}` : ""}</text></g>
                <path class="cable" d={`M242 ${y}H300`} />
                <g class={`policy ${dead ? item.verdict : ""}`}><title>{item.why}</title><rect x={300} y={y - 20} width={208} height={40} rx={8} />
                  <text x={404} y={y - 2}>{dead ? (item.verdict === "drop" ? "dropped" : "rejected") : `policy ${item.policy}`}</text>
                  <text class="tiny" x={404} y={y + 13}>{fit(dead ? item.why : `${count(item.endpoints?.length ?? 0, "endpoint")}`, 34)}</text></g>
              </g>
            );
          })}
          {shown.map((item, place) => {
            const y = yE(place);
            return (
              <g key={item.address} class="item pod"><rect x={638} y={y - 16} width={256} height={32} rx={7} />
                <text x={650} y={y + 4}>{fit(plain(item.target) || item.address, sameForAll ? 22 : 30)}</text>
                <text class="tiny end" x={884} y={y + 4}>{sameForAll ? percent(item.chance) : item.address}</text></g>
            );
          })}
        </svg>
      </div>
      {ends.length > MAX_FAN && <button type="button" onClick={() => setAll(!all)}>{all ? "Fewer" : `All ${ends.length} endpoints`}</button>}
    </>
  );
}

function Matrix({ matrix }) {
  return (
    <section>
      <h2>Who reaches it</h2>
      <Table classes="matrix" caption={holds("ask") ? "Clients and addresses; each cell leads to the question" : "Clients and addresses"} head={["from", ...matrix.addresses.map((item) => item.label)]} rows={matrix.clients.map((client, row) => [
        <><b>{client.label || plain(client.id)}</b>{client.kind && <small>{client.kind}</small>}</>,
        ...matrix.addresses.map((address, column) => {
          const cell = matrix.cells[row]?.[column];
          if (!cell) return "–";
          return (
            <a class="cell" href={holds("ask") ? href("ask", { from: client.id, to: address.to, proto: address.protocol }) : undefined}>
              <End end={cell.end} />
              <span class="cell-ways">{cell.ways?.length > 1 ? count(cell.ways.length, "way") : cell.ways?.[0]?.end === "answered" ? plain(cell.ways[0].at).split("/").pop() : ""}</span>
              {cell.reason && <small>{fit(cell.reason, 140)}</small>}
            </a>
          );
        }),
      ])} />
    </section>
  );
}
