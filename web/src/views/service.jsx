// One Service: what it becomes, in the order a packet meets it, and who reaches it from where.

import { useEffect, useState } from "preact/hooks";
import { command, embedded, holds, useAnswer } from "../api.js";
import { faultOf } from "../map/faults.js";
import { serviceTarget } from "../names.js";
import { Busy, Later, LongTable, Problem, Select, Table } from "../parts.jsx";
import { go, href } from "../route.js";
import { KINDS, Matrix } from "../service/matrix.jsx";
import { isOpen, partsOfEnds, wordsOf } from "../service/shares.js";
import { count, fit, percent, plain, ratio, sum } from "../words.js";

/** Of a source without objects what its rules tell of a Service is on the map. */
const onMap = (namespace, name) => href("map", { sel: `svc/${namespace}/${name}` });

export function ServiceView({ route, map, source, revision }) {
  const [, namespace = "", name = ""] = route.path;
  const elsewhere = source.can?.services === false;
  useEffect(() => {
    if (elsewhere) go(onMap(namespace, name), true);
  }, [elsewhere]);
  const { node = "", family = "", source: side = "" } = route.query;
  const path = `api/services/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
  const wanted = new URLSearchParams(Object.entries({ node, family, source: side }).filter(([, value]) => value)).toString();
  const { data, error, busy } = useAnswer(!elsewhere && (wanted ? `${path}?${wanted}` : path), undefined, revision);
  const service = side ? null : map?.services.find((item) => item.namespace === namespace && item.name === name);
  const labels = source?.against?.kind && source.against.kind !== "rules" ? [source.label, source.against.label] : [];
  const several = data && !embedded && (data.nodes.length > 1 || data.families.length > 1);
  const to = (changes) => href(route.path, { ...route.query, ...changes });
  return (
    <section class="view">
      <p class="crumbs">{command ? "Service" : <a href="#/services">Services</a>} / {namespace}</p>
      <div class="bar-top">
        <h1>{name}</h1>
        {service && <p class="counts">{service.type}{embedded && data ? `, ${data.explanation.family} on node ${data.explanation.node}` : ""}{service.affinity && service.affinity !== "None" ? ` · ${service.affinity} affinity` : ""}</p>}
        <Busy busy={busy} />
        {(labels.length > 0 || several) && (
          <form class="filters" onSubmit={(event) => event.preventDefault()}>
            {labels.length > 0 && <Select label="Source" value={side} onChange={(value) => go(to({ source: value, node: "" }))} options={[["", labels[0] === labels[1] ? "first" : labels[0]], ["against", labels[0] === labels[1] ? "second" : labels[1]]]} />}
            {several && data.nodes.length > 1 && <Select label="For clients on" value={node || data.explanation.node} onChange={(value) => go(to({ node: value }))} options={data.nodes.map((item) => [item, item])} />}
            {several && data.families.length > 1 && <Select label="Family" value={family || data.explanation.family} onChange={(value) => go(to({ family: value }))} options={data.families.map((item) => [item, item])} />}
          </form>
        )}
        <span class="actions">
          {service && !service.skipped && holds("ask") && <a class="button primary" href={href("ask", { to: serviceTarget(service) })}>Ask to here</a>}
          {!side && <a class="button" href={onMap(namespace, name)}>On the map</a>}
        </span>
      </div>
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
      {data.ports.map(withBy).map((port) => <Port key={`${port.name} ${port.protocol}`} port={port} explained={explained(explanation, port)} node={explanation.node} />)}
      {data.matrix && data.matrix.clients.length > 0 && data.matrix.addresses.length > 0 && <Matrix matrix={data.matrix} />}
    </>
  );
}

/** Each endpoint by what its chance is known, as the map's edges have it. */
const withBy = (port) => ({ ...port, fan: port.fan.map((item) => ({ ...item, endpoints: (item.endpoints ?? []).map((each) => ({ ...each, by: item.by })) })) });

const explained = (explanation, port) => explanation.ports.find((item) => item.protocol === port.protocol && (item.name === port.name || item.name.endsWith(`:${port.name}`) || (!port.name && !item.name.includes(":"))));

function Port({ port, explained: facts, node }) {
  const left = leftOut(port);
  return (
    <section class="service-port">
      <h2>{port.name || "port"} <small>{port.protocol}</small></h2>
      {port.fan.length + port.left.length > 0 && <Fan port={port} node={node} />}
      <Table hidden caption={`Addresses of ${port.name || "the port"}, and what becomes of packets to them`} classes="fan-table cards-on-phone" head={["address", "from", "policy", "becomes", "endpoints"]} rows={port.fan.map((item) => [
        `${KINDS[item.kind] ?? item.kind} ${item.address}:${item.port}`, item.from, item.policy, (DEAD[item.verdict] ?? "endpoints") + (item.why ? `: ${item.why}` : ""), (item.endpoints ?? []).map((each) => `${plain(each.target) || each.address} ${percent(each.chance)}${each.fault ? ` (${faultOf(each)})` : isOpen(each) ? ` (${each.why})` : ""}`).join(", "),
      ])} />
      {left.length > 0 && (
        <Table caption="Endpoints that are left out" classes="fan-table cards-on-phone" head={["endpoint", "state", "node", "why"]} rows={left.map((item) => [<>{plain(item.target) || item.address} <code>{item.address}</code></>, item.state, plain(item.node), item.why])} />
      )}
      {facts && <ul class="hints">{facts.facts.map((item) => <li key={item}>{item}</li>)}</ul>}
      {port.fan.some((item) => item.fault) && holds("compare") && !embedded && <p>Red and amber are not as the objects ask for. <a href={href("compare", { kind: "drift" })}>Compare the nodes’ rules with what they should be</a></p>}
      {facts?.rules?.length > 0 && (
        <Later class="tables" summary={`${count(facts.rules.length, "rule")} that kube-proxy ${port.fan.some((item) => item.by === "rules") ? "should write" : "writes"} on ${node}`}>{() => (
          <LongTable hidden caption={`Rules of ${port.name || "the port"}`} classes="cards-on-phone" head={["chain", "what for", "rule"]} rows={facts.rules.map((rule) => [<>{rule.table} {rule.chain} {rule.rule}</>, rule.reason, <code>{rule.text}</code>])} />
        )}</Later>
      )}
    </section>
  );
}

const MAX_FAN = 8;

/** The fan-out: addresses at the left, what the rules decide, endpoints with their chances, and those left out with the reason. */
function Fan({ port, node }) {
  const [all, setAll] = useState(false);
  const used = chosenOf(port);
  const left = leftOut(port);
  const ends = [...used, ...left];
  const shown = all ? ends : ends.slice(0, MAX_FAN);
  const told = new Map(shown.map((end) => [end.address, toldOf(port.fan, end.address)]));
  const tallest = Math.max(0, ...[...told.values()].map((each) => each.length)) * LINE;
  const [rowA, rowE] = [66, Math.max(42, tallest + 14)];
  const height = Math.max(port.fan.length * rowA, shown.length * rowE, rowA) + 12;
  const yA = (place) => 6 + (height - 12) * ((place + 0.5) / port.fan.length);
  const yE = (place) => 6 + (height - 12) * ((place + 0.5) / Math.max(1, shown.length));
  // Each line ends beside what is said of its address.
  const lines = port.fan.flatMap((item, place) => (item.endpoints ?? []).flatMap((each) => {
    const end = shown.findIndex((found) => found.address === each.address);
    if (end < 0 || Math.max(ratio(each.chance), ratio(each.lost || "0")) === 0) return [];
    const said = told.get(each.address);
    return [[place, yE(end) + lineAt(said.findIndex(({ addresses }) => addresses.includes(item)), said.length), each]];
  }));
  return (
    <>
      <div class="drawing fan-holder" tabIndex={0} role="group" aria-label="Fan-out of this port">
        <svg class="map fan" viewBox={`0 0 1290 ${height}`} width={1290} height={height} role="img" aria-label={`${count(port.fan.length, "address", "addresses")}, ${count(used.length, "endpoint")} used and ${left.length} left out; the tables that follow have them`}>
          {lines.map(([one, other, each]) => {
            const [y1, y2] = [yA(one), other];
            const broken = each.lost ? " lost" : each.fault ? " wrong" : isOpen(each) ? " open" : "";
            return (
              <g key={`${one} ${other}`}>
                <path class={`edge-line${broken}`} d={`M488 ${y1}C580 ${y1} 520 ${y2} 612 ${y2}`} stroke-width={(1 + Math.max(ratio(each.chance), ratio(each.lost || "0")) * 5).toFixed(1)} />
                {each.lost && <path class="cross" d={`M596 ${y2 - 6}l12 12m0 -12l-12 12`} />}
              </g>
            );
          })}
          {port.fan.map((item, place) => <FanAddress key={`${item.kind} ${item.address} ${item.port}`} item={item} node={node} y={yA(place)} />)}
          {shown.map((item, place) => <FanEnd key={item.address} item={item} y={yE(place)} told={told.get(item.address)} fan={port.fan} />)}
        </svg>
      </div>
      {ends.length > MAX_FAN && <button type="button" onClick={() => setAll(!all)}>{all ? "Fewer" : `All ${ends.length} endpoints`}</button>}
    </>
  );
}

/** The endpoints that rules choose, or objects ask for, of any address. */
const chosenOf = (port) => [...new Map(port.fan.flatMap((each) => each.endpoints ?? []).map((item) => [item.address, item])).values()];

/** What an endpoint gets, and what is wrong with it; addresses that give it the same are together. */
function toldOf(fan, endpoint) {
  const found = new Map();
  for (const item of fan) {
    for (const each of (item.endpoints ?? []).filter((end) => end.address === endpoint)) {
      // Where rules cannot decide, the chance is only what the objects ask for.
      const open = isOpen(each) ? each.why || "not asked yet" : "";
      const [gets, wrong] = [!open && (!each.fault || ratio(each.chance) > 0) ? percent(each.chance) : "", faultOf(each)];
      const key = `${gets} ${wrong} ${open}`;
      if (!found.has(key)) found.set(key, { gets, wrong, open, addresses: [] });
      found.get(key).addresses.push(item);
    }
  }
  return [...found.values()];
}

/** Addresses by what they are; by themselves where another one of the kind is treated otherwise. */
function namesOf(addresses, fan) {
  const kinds = Map.groupBy(addresses, (item) => item.kind);
  return [...kinds].map(([kind, some]) => `${KINDS[kind] ?? kind}${fan.filter((item) => item.kind === kind).length > some.length ? ` ${some.map((item) => item.address).join(", ")}` : ""}`).join(", ");
}

const LINE = 15;
/** Where the line of a number of lines is that are around the middle. */
const lineAt = (place, of) => (place - (of - 1) / 2) * LINE;

const leftOut = (port) => {
  const chosen = new Set(chosenOf(port).map((item) => item.address));
  return port.left.filter((item) => !chosen.has(item.address));
};

/** Who an address takes packets from: with the external policy Local Pods are treated as with the cluster IP. */
const fromWords = (item) => (item.from === "anywhere" && item.kind !== "clusterIP" && item.policy === "Local" ? "outside" : item.from);

const DEAD = { drop: "dropped", reject: "rejected", missing: "not translated", open: "not known" };

function FanAddress({ item, node, y }) {
  const dead = item.verdict !== "endpoints";
  const end = DEAD[item.verdict] ?? item.verdict;
  const ends = (item.endpoints ?? []).filter((each) => ratio(each.chance) > 0 || each.lost).length;
  const parts = partsOfEnds(item.endpoints ?? []);
  const bad = parts.filter((part) => part.kind === "bad");
  const open = parts.some((part) => part.kind === "open");
  const lost = bad.length === 1 ? wordsOf(bad[0]) : `${percent(sum(bad.map((part) => part.chance)))} lost or sent elsewhere`;
  // Where a part still arrives it is amber.
  const tone = item.fault ? ` faulty${parts.some((part) => part.kind === "ok") ? " partly" : ""}` : open ? " partly" : "";
  const told = `${count(ends, "endpoint")}: ${lost}`;
  const where = item.by === "rules" ? ` in ${node}’s rules` : "";
  return (
    <g>
      <g class={`item service${tone}`}><rect x={6} y={y - 25} width={236} height={50} rx={10} />
        <text class="name" x={18} y={y - 4}>{fit(item.kind === "nodePort" ? `${item.by === "rules" ? node : "any node"} :${item.port}` : `${item.address}:${item.port}`, 28)}</text>
        <text class="tiny" x={18} y={y + 14}>{KINDS[item.kind] ?? item.kind}{item.from && !(item.kind === "clusterIP" && item.from === "anywhere") ? ` · from ${fit(fromWords(item), 26)}` : ""}</text></g>
      <path class="cable" d={`M242 ${y}H280`} />
      <g class={`policy ${dead ? item.verdict : ""}`}><title>{item.why}</title><rect x={280} y={y - 20} width={208} height={40} rx={8} />
        <text x={384} y={y - 2}>{dead ? end : `policy ${item.policy}`}</text>
        <text class="tiny" x={384} y={y + 13}>{fit(dead ? item.why : bad.length ? (told.length > 30 ? lost : told) : open ? "not known" : `${count(ends, "endpoint")}${where}`, 34)}</text></g>
    </g>
  );
}

/** An endpoint: what each of the addresses gives it, or why it gets no packets. It is red if something is wrong by all. */
function FanEnd({ item, y, told, fan }) {
  const node = plain(item.node);
  const bad = told.length > 0 && told.every((each) => each.wrong);
  const half = Math.max(34, told.length * LINE + 4) / 2;
  return (
    <g class={`item pod${told.length ? "" : " left-out"}${bad ? " bad" : ""}`}>
      <rect x={612} y={y - half} width={280} height={half * 2} rx={7} />
      <text x={624} y={y - 2}>{fit(plain(item.target) || item.address, 26)}</text>
      <text class="tiny" x={624} y={y + 11}>{fit(`${item.target ? item.address : ""}${node ? ` on ${node}` : ""}`.trim(), 40)}</text>
      {told.map((each, place) => {
        const whose = told.length > 1 ? `${namesOf(each.addresses, fan)}: ` : "";
        return (
          <text key={place} class={each.wrong ? "tiny why broken" : each.open ? "tiny why not-known" : "gets"} x={906} y={y + 5 + lineAt(place, told.length)}>
            <title>{whose}{each.gets} {each.wrong || each.open}</title>
            {whose && <tspan class="whose">{fit(whose, 30)}</tspan>}{each.gets && <tspan class="share">{each.gets}{each.wrong ? " " : ""}</tspan>}{(each.wrong || each.open) && fit(each.wrong || each.open, 66 - Math.min(30, whose.length) - each.gets.length)}
          </text>
        );
      })}
      {told.length === 0 && <text class="why" x={906} y={y + 4}><title>{item.why}</title>{fit(item.why, 46)}</text>}
    </g>
  );
}
