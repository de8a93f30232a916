// The list of Services: what becomes of packets to each, and how its endpoints fare.

import { useMemo } from "preact/hooks";
import { embedded } from "../api.js";
import { auditMarks, useAudited } from "../map/audited.js";
import { noneOf } from "../map/faults.js";
import { isNode } from "../map/layout.js";
import { isOneHost } from "../map/onehost.js";
import { edgesBy } from "../map/shape.js";
import { Busy, Field, LongTable, Problem, Select } from "../parts.jsx";
import { go, href } from "../route.js";
import { BarKeys, PartWords, ShareBar } from "../service/sharebar.jsx";
import { edgesOf, endsOf, isOpen, portsOf, toldOf } from "../service/shares.js";
import { ENDS, count, plain } from "../words.js";

export function ServiceList({ route, map, source, revision, error, busy }) {
  const { query } = route;
  const { q = "", ns = "" } = query;
  const { told } = useAudited(map, source, revision);
  const marks = useMemo(() => (told?.length && map ? auditMarks(told, map) : new Map()), [told, map]);
  if (!map) return <section class="view"><h1>Services</h1><Problem error={error} /><Busy busy={busy} words="Reading…" /></section>;
  const wrong = (item) => Number(map.faults.has(item.id)) * 2 + Number((marks.get(item.id) ?? []).some((mark) => mark.tone !== "quiet"));
  const found = map.services.filter((item) => (!ns || item.namespace === ns) && plain(item.id).includes(q)).sort((one, other) => wrong(other) - wrong(one));
  const nodes = embedded ? [] : map.nodes.filter(isNode);
  const to = (changes) => go(href("services", { ...query, ...changes }));
  const names = [...new Set(map.services.map((item) => item.namespace))].sort();
  // One host's rules do not tell whether anybody answers.
  const answered = isOneHost(map) ? ENDS.accepted.words : ENDS.answered.words;
  return (
    <section class="view">
      <div class="bar-top"><h1>Services</h1><p class="counts">{count(found.length, "Service")}</p><span /></div>
      <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
        <Field label="Search" name="q" value={q} hint="a name" onEnter={(text) => to({ q: text })} />
        <Select label="Namespace" value={ns} onChange={(value) => to({ ns: value })} options={[["", "all"], ...names.map((name) => [name, name])]} />
        {nodes.length > 1 && <Select label="For clients on" value={query.node ?? map.view} onChange={(value) => to({ node: value })} options={nodes.map((node) => [node.name, node.name])} />}
      </form>
      <LongTable caption="Services" hidden classes="service-list cards-on-phone" head={["Service", "type", "addresses", "ports", `at its cluster IP${map.view && map.nodes.length > 1 ? `, for clients on ${map.view}` : ""}`, "endpoints", ...(marks.size ? ["audit"] : [])]} rows={found} cells={(item) => [
        <a href={source.can?.services === false ? href("map", { sel: item.id }) : href(["service", item.namespace, item.name], { node: query.node })}>{plain(item.id)}</a>,
        <span>{item.skipped || item.type} {item.externalPolicy === "Local" && /^(NodePort|LoadBalancer)$/.test(item.type) && <small class="small-word">external Local</small>} {item.internalPolicy === "Local" && <small class="small-word">internal Local</small>}</span>,
        <code>{[...item.clusterIPs, ...item.externalIPs, ...item.loadBalancerIPs].join(" ")}</code>,
        item.ports.map((port) => `${port.port}/${port.protocol}${port.nodePort ? ` (node port ${port.nodePort})` : ""}`).join(", "),
        item.skipped ? "" : <Packets ports={portsOf(item, edgesOf(map, item.id), answered)} none={item.clusterIPs.length ? "" : "no cluster IP in the rules"} />,
        item.skipped ? "" : <Ends edges={edgesOf(map, item.id)} />,
        ...(marks.size ? [<span class="audit-marks">{(marks.get(item.id) ?? []).map((mark) => <a key={mark.number} class={`number ${mark.tone}`} href={mark.href} title={mark.label} aria-label={mark.label}>{mark.number}</a>)}</span>] : []),
      ]} />
      {found.length === 0 ? <p class="note">No Service has “{q}” in its name.</p> : <Legend map={map} answered={answered} marks={marks} />}
    </section>
  );
}

/** Of so many ports that fare otherwise each has a bar. */
const PORTS = 3;

/** What becomes of packets to a Service: a bar, and one for each port where these differ; `none`: why there are none. */
function Packets({ ports, none }) {
  return (
    <div class="packet-shares">
      {ports.slice(0, PORTS).map(({ parts, edges, names }) => (
        <div key={names[0]} class="packet-share" title={parts.length ? toldOf(parts) : undefined}>
          <ShareBar parts={parts} />
          <span>{ports.length > 1 && <b>{names.join(", ")}: </b>}{parts.length ? <PartWords parts={parts} /> : <span class="soft">– {none || noneOf(edges)}</span>}</span>
        </div>
      ))}
      {ports.length > PORTS && <small>and {count(ports.slice(PORTS).reduce((all, { names }) => all + names.length, 0), "more port")}</small>}
    </div>
  );
}

const MANY = 6;
const SIZE = 15;

/** A square for each endpoint, and how many fare how. */
function Ends({ edges }) {
  const ends = endsOf(edges);
  const of = (...fares) => ends.filter((end) => fares.includes(end.fares)).length;
  if (!ends.length) return null;
  const said = [
    [of("used", "loses", "wrong"), "", "used"], [of("loses"), "bad-text", of("loses") === 1 ? "loses" : "lose"], [of("wrong"), "bad-text", "wrong"],
    [of("none"), "bad-text", of("none") === 1 ? "gets nothing" : "get nothing"], [of("open"), "open-text", "not known"], [of("left"), "soft", "left out"],
  ].filter(([number]) => number > 0);
  return <span class="ends-told"><Squares ends={ends} /><span>{said.map(([number, tone, words], place) => <span key={words}><span class={`one-part ${tone}`}>{number} {words}</span>{place < said.length - 1 && ", "}</span>)}</span></span>;
}

/** Of many endpoints some squares in proportion, at least one of each kind. */
function Squares({ ends }) {
  const some = (alike) => Array(Math.max(1, Math.floor((alike.length * MANY) / ends.length))).fill({ fares: alike[0].fares, told: `${alike.length} of ${count(ends.length, "endpoint")}` });
  const shown = ends.length <= MANY ? ends : [...Map.groupBy(ends, (end) => end.fares).values()].flatMap(some);
  return (
    <svg class="squares" viewBox={`0 0 ${shown.length * SIZE} 14`} width={shown.length * SIZE} height={14} role="img" aria-label={[...new Set(shown.map((end) => end.told))].join(", ")}>
      {shown.map((end, place) => <g key={place} transform={`translate(${place * SIZE + 1} 1)`}><title>{end.told}</title><Square fares={end.fares} /></g>)}
    </svg>
  );
}

const LOOKS = { used: "full", left: "", open: "open" };

/** A cross, and not the colour alone, is what is wrong. */
const Square = ({ fares }) => {
  const look = LOOKS[fares] ?? "bad";
  return <><rect class={look} width={12} height={12} rx={2.5} />{look === "bad" && <path d="M3.5 3.5l5 5m0 -5l-5 5" />}</>;
};

const Key = ({ fares }) => <svg class="squares" viewBox="-1 -1 14 14" width={14} height={14} aria-hidden="true"><Square fares={fares} /></svg>;

const TONES = [["bad", "error"], ["open", "warning"], ["quiet", "note"]];

function Legend({ map, answered, marks }) {
  const has = useMemo(() => ({
    open: map.pending || map.edges.some(isOpen), bad: map.faults.size > 0, left: map.edges.some((edge) => !edge.used && !edge.fault),
    many: map.services.some((item) => new Set(edgesBy(map, "service", item.id).map((edge) => edge.target)).size > MANY),
  }), [map]);
  const tones = new Set([...marks.values()].flat().map((mark) => mark.tone));
  return (
    <ul class="legend list-legend" aria-label="Legend">
      <BarKeys answered={answered} kinds={new Set(["ok", has.bad && "bad", has.open && "open"])} />
      <li><Key fares="used" /> endpoint that is used</li>
      {has.bad && <li><Key fares="loses" /> endpoint with a fault</li>}
      {has.left && <li><Key fares="left" /> left out, as it should be</li>}
      {has.open && <li><Key fares="open" /> not known</li>}
      {TONES.filter(([tone]) => tones.has(tone)).map(([tone, words]) => <li key={tone}><span class={`number ${tone}`} aria-hidden="true">n</span> {words} in the audit</li>)}
      {has.many && <li>more than {MANY} endpoints: squares in proportion</li>}
    </ul>
  );
}
