// The list of Services: what becomes of packets to each, and how its endpoints fare.

import { useMemo } from "preact/hooks";
import { embedded } from "../api.js";
import { auditMarks, faultsElsewhere, notChecked, useAudited } from "../map/audited.js";
import { noneOf } from "../map/faults.js";
import { isNode } from "../map/layout.js";
import { isOneHost } from "../map/onehost.js";
import { edgesBy } from "../map/shape.js";
import { Busy, Field, LongTable, NotSeen, Problem, Select } from "../parts.jsx";
import { go, href } from "../route.js";
import { fewNodes, useEachNode } from "../service/eachnode.js";
import { BarKeys, BriefWords, PartWords, ShareBar } from "../service/sharebar.jsx";
import { asOfOneNode, edgesOf, endsOf, isOpen, portsOf, toldOf } from "../service/shares.js";
import { ENDS, count, plain } from "../words.js";

export function ServiceList({ route, map, source, revision, error, busy }) {
  const { query } = route;
  const { q = "", ns = "" } = query;
  const { told, audited, left, unseen } = useAudited(map, source, revision, map ? Math.max(1, query.node ? 1 : fewNodes(map).length) : 1);
  const marks = useMemo(() => (told?.length && map ? auditMarks(told, map) : new Map()), [told, map]);
  // One node that is chosen is looked at closely; else each has a column.
  const all = useMemo(() => fewNodes(map), [map]);
  const few = query.node ? NO_NODES : all;
  const asked = useEachNode(few, map, revision);
  if (!map) return <section class="view"><h1>Services</h1><Problem error={error} /><Busy busy={busy} words="Reading…" /></section>;
  const views = few.length ? asked.filter(Boolean) : [map];
  const edges = (item) => views.flatMap((view) => edgesOf(view, item.id).map((edge) => ({ ...edge, view: view.view })));
  const elsewhere = few.length ? map.faults : faultsElsewhere(audited, map);
  const wrong = (item) => Number(elsewhere.has(item.id)) * 4 + Number(views.some((view) => view.faults.has(item.id))) * 2 + Number((marks.get(item.id) ?? []).some((mark) => mark.tone !== "quiet"));
  // What is wrong stands first, and is asked once of each.
  const byHowWrong = Map.groupBy(map.services.filter((item) => (!ns || item.namespace === ns) && (!q || isNamed(item, q.toLowerCase()))), wrong);
  const found = [...byHowWrong.keys()].sort((one, other) => other - one).flatMap((each) => byHowWrong.get(each));
  const nodes = embedded ? [] : map.nodes.filter(isNode);
  const to = (changes) => go(href("services", { ...query, ...changes }));
  const names = [...new Set(map.services.map((item) => item.namespace))].sort();
  // One host's rules do not tell whether anybody answers.
  const answered = isOneHost(map) ? ENDS.accepted.words : ENDS.answered.words;
  const other = (item) => (!few.length && !map.faults.has(item.id) && elsewhere.get(item.id)) || "";
  const packets = (view, item) => (item.skipped || !view ? "" : <Packets view={view} item={item} answered={answered} brief={few.length > 0} other={query.node ? "" : other(item)} left={query.node ? 0 : left} />);
  const columns = few.length ? few.map((node) => `from ${node.label ?? node.name}`) : [`at its cluster IP${map.view && map.nodes.length > 1 ? `, for clients on ${map.view}` : ""}`];
  const each = all.length ? [["", "every node"]] : [];
  return (
    <section class="view">
      <div class="bar-top"><h1>Services</h1><p class="counts">{count(found.length, "Service")}</p><span /></div>
      <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
        <Field label="Search" name="q" value={q} hint="name or address" onEnter={(text) => to({ q: text })} />
        <Select label="Namespace" value={ns} onChange={(value) => to({ ns: value })} options={[["", "all"], ...names.map((name) => [name, name])]} />
        {left > 0 && <span class="ending open" data-test="not-checked">? {notChecked(left)}</span>}
        {nodes.length > 1 && <Select label="For clients on" value={query.node ?? (each.length ? "" : map.view)} onChange={(value) => to({ node: value })} options={[...each, ...nodes.map((node) => [node.name, node.name])]} />}
      </form>
      <NotSeen items={unseen} />
      <LongTable caption="Services" most={ROWS} few={AT_ONCE} hidden classes={`service-list cards-on-phone ${few.length ? "each-node" : ""}`} head={["Service", "type", "addresses", "ports", ...columns, "endpoints", ...(marks.size ? ["audit"] : [])]} rows={found} cells={(item) => [
        <a href={source.can?.services === false ? href("map", { sel: item.id }) : href(["service", item.namespace, item.name], { node: query.node })}>{plain(item.id)}</a>,
        <span>{item.skipped || item.type} {item.externalPolicy === "Local" && /^(NodePort|LoadBalancer)$/.test(item.type) && <small class="small-word">external Local</small>} {item.internalPolicy === "Local" && <small class="small-word">internal Local</small>}</span>,
        <code>{[...item.clusterIPs, ...item.externalIPs, ...item.loadBalancerIPs].join(" ")}</code>,
        item.ports.map((port) => `${port.port}/${port.protocol}${port.nodePort ? ` (node port ${port.nodePort})` : ""}`).join(", "),
        ...(few.length ? asked : views).map((view) => packets(view, item)),
        item.skipped ? "" : <Ends edges={edges(item)} views={few.length} unsure={left > 0 && !query.node} />,
        ...(marks.size ? [<span class="audit-marks">{(marks.get(item.id) ?? []).map((mark) => <a key={mark.number} class={`number ${mark.tone}`} href={mark.href} title={mark.label} aria-label={mark.label}>{mark.number}</a>)}</span>] : []),
      ]} />
      {found.length === 0 ? <p class="note">{noneFound(map, q, ns)}</p> : <Legend views={views} from={few.length > 0} answered={answered} marks={marks} alone={isOneHost(map)} />}
    </section>
  );
}

/** Whether a Service has such a name or address. */
const isNamed = (item, words) => [plain(item.id), ...item.clusterIPs, ...item.externalIPs, ...item.loadBalancerIPs].some((each) => each.includes(words));

function noneFound(map, q, ns) {
  if (!map.services.length) return "There is no Service.";
  const where = ns ? ` in the namespace ${ns}` : "";
  return q ? `No Service${where} has “${q}” in its name or address.` : `There is no Service${where}.`;
}

const NO_NODES = [];
/** Rows that are drawn before the others: more take longer than a tenth of a second. */
const AT_ONCE = 24;
const ROWS = 50;

/** Of so many ports that fare otherwise each has a bar. */
const PORTS = 3;

/** What becomes of packets to a Service: a bar, and one for each port where these differ; `brief`: in a narrow column. */
function Packets({ view, item, answered, brief, other, left }) {
  const found = portsOf(item, edgesOf(view, item.id), answered, view.unreached);
  const ports = other || left > 0 ? asOfOneNode(found) : found;
  const none = item.clusterIPs.length ? "" : "no cluster IP in the rules";
  const Words = brief ? BriefWords : PartWords;
  return (
    <div class="packet-shares">
      {ports.slice(0, PORTS).map(({ parts, edges, names }) => (
        <div key={names[0]} class="packet-share" title={parts.length ? toldOf(parts) : undefined}>
          <ShareBar parts={parts} />
          <span>{ports.length > 1 && <b>{names.join(", ")}: </b>}{parts.length ? <Words parts={parts} /> : <span class="soft">– {none || noneOf(edges)}</span>}</span>
        </div>
      ))}
      {other && <span class="ending bad"><span aria-hidden="true">✕ </span>{other}</span>}
      {ports.length > PORTS && <small>and {count(ports.slice(PORTS).reduce((all, { names }) => all + names.length, 0), "more port")}</small>}
    </div>
  );
}

const MANY = 6;
const SIZE = 15;

/** A square for each endpoint, and how many fare how; `views`: of so many nodes only how many have a fault, as columns say where. */
function Ends({ edges, views = 0, unsure }) {
  const ends = endsOf(edges).map((end) => (unsure && end.fares === "used" ? { ...end, fares: "unsure" } : end));
  const of = (...fares) => ends.filter((end) => fares.includes(end.fares)).length;
  if (!ends.length) return <span class="soft">none</span>;
  const [faults, foreign] = [of("loses", "none"), of("wrong")];
  const said = (views && faults + foreign + of("part") ? [[faults, "bad-text", "with a fault"], [of("part"), "bad-text", faults ? "from some" : "with a fault from some"], [foreign, "bad-text", "foreign"]] : [
    [of("used", "unsure", "loses", "wrong"), "", "used"], [of("loses"), "bad-text", of("loses") === 1 ? "loses" : "lose"], [of("wrong"), "bad-text", "wrong"],
    [of("none"), "bad-text", of("none") === 1 ? "gets nothing" : "get nothing"], [of("open"), "open-text", "not known"], [of("left"), "soft", "left out"],
  ]).filter(([number]) => number > 0);
  return <span class="ends-told"><Squares ends={ends} /><span>{said.map(([number, tone, words], place) => <span key={words}><span class={`one-part ${tone}`}>{number} {words}</span>{place < said.length - 1 && ", "}</span>)}</span></span>;
}

/** Of many endpoints some squares in proportion, at least one of each kind. */
function Squares({ ends }) {
  const some = (alike) => Array(Math.max(1, Math.floor((alike.length * MANY) / ends.length))).fill({ fares: alike[0].fares, told: `${alike.length} of ${count(ends.length, "endpoint")}` });
  const shown = ends.length <= MANY ? ends : [...Map.groupBy(ends, (end) => end.fares).values()].flatMap(some);
  return (
    <svg class="squares" width={shown.length * SIZE} height={14} role="img">
      <title>{[...new Set(shown.map((end) => end.told))].join("\n")}</title>
      <Drawn fares={shown.map((end) => end.fares)} />
    </svg>
  );
}

const LOOKS = { used: "full", left: "", open: "open", unsure: "open", part: "part", wrong: "foreign" };
const lookOf = (fares) => LOOKS[fares] ?? "bad";

/** One path for all squares that look alike: a list has thousands. A cross, and not the colour alone, is what is wrong. */
function Drawn({ fares }) {
  const places = Map.groupBy(fares.keys(), (place) => lookOf(fares[place]));
  const each = (look, line) => places.get(look).map((place) => `M${place * SIZE + 1.5} 1.5${line}`).join("");
  return [...places.keys()].map((look) => [
    <path key={look} class={look} d={each(look, "h11v11h-11z")} />,
    look === "part" && <path key="half" class="bad" d={each(look, "m11 0v11h-11z")} />,
    /bad|foreign/.test(look) && <path key="cross" class={`cross ${look}`} d={each(look, "m3 3l5 5m0 -5l-5 5")} />,
  ]);
}

const Key = ({ fares }) => <svg class="squares" width={14} height={14} aria-hidden="true"><Drawn fares={[fares]} /></svg>;

const TONES = [["bad", "error"], ["open", "warning"], ["quiet", "note"]];

function Legend({ views, from, answered, marks, alone }) {
  const has = useMemo(() => {
    const edges = views.flatMap((view) => view.edges);
    return {
      open: views.some((view) => view.pending) || edges.some(isOpen), bad: views.some((view) => view.faults.size > 0), foreign: edges.some((edge) => edge.fault === "wrong"), left: edges.some((edge) => !edge.used && !edge.fault),
      many: views[0]?.services.some((item) => {
        const own = edgesBy(views[0], "service", item.id);
        return own.length > MANY && new Set(own.map((edge) => edge.target)).size > MANY;
      }),
    };
  }, views);
  const tones = new Set([...marks.values()].flat().map((mark) => mark.tone));
  return (
    <ul class="legend list-legend" aria-label="Legend">
      {from && !alone && <li>from a node: packets to the cluster IP, of clients there</li>}
      <BarKeys answered={answered} kinds={new Set(["ok", has.bad && "bad", has.open && "open"])} />
      <li><Key fares="used" /> endpoint that is used</li>
      {has.bad && <li><Key fares="loses" /> endpoint with a fault</li>}
      {from && has.bad && <li><Key fares="part" /> with a fault from some</li>}
      {has.foreign && <li><Key fares="wrong" /> foreign: no endpoint of it</li>}
      {has.left && <li><Key fares="left" /> left out, as it should be</li>}
      {has.open && <li><Key fares="open" /> not known</li>}
      {TONES.filter(([tone]) => tones.has(tone)).map(([tone, words]) => <li key={tone}><span class={`number ${tone}`} aria-hidden="true">n</span> {words} in the audit</li>)}
      {has.many && <li>more than {MANY} endpoints: squares in proportion</li>}
    </ul>
  );
}
