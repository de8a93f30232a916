// Two sides: the objects and what is programmed (drift), both modes (migrate), or another source (diff).

import { useMemo, useState } from "preact/hooks";
import { useAnswer } from "./api.js";
import { Findings, Undecided } from "./findings.jsx";
import { Drawing, useLayout } from "./map.jsx";
import { Zoom, narrow } from "./mapview.jsx";
import { Busy, Problem } from "./parts.jsx";
import { href } from "./route.js";
import { count } from "./words.js";

const EMPTY = new Set();

function kinds(source) {
  const other = source.modes?.[0] === "nftables" ? "iptables" : "nftables";
  const found = [
    ["drift", "Asked for and programmed", "Rules that the objects ask for, against those that are there", { kind: "drift", node: "" }, ["asked for", "there"]],
    ["migrate", `This mode and ${other}`, `What changes for packets when kube-proxy is switched to ${other} mode`, { kind: "migrate", to: other, nodes: [] }, ["now", other]],
  ];
  if (source.with) found.push(["diff", "Another source", `This source against ${source.with}`, { kind: "diff", a: { now: true }, b: { path: source.with } }, ["here", "there"]]);
  return found.filter(([kind]) => source.compares?.includes(kind) ?? true);
}

export function CompareView({ route, map, source, revision }) {
  const { query } = route;
  const offered = kinds(source);
  const [kind, , about, question, sides] = offered.find(([name]) => name === query.kind) ?? [];
  const { data, error, busy } = useAnswer(kind && "api/compare", question, revision);
  const [zoom, setZoom] = useState(1);
  const to = (changes) => href("compare", { ...query, ...changes });
  const findings = useMemo(() => (kind && data ? (data.findings ?? data.report?.findings ?? data.report?.differences ?? []).map(asFinding) : []), [data, kind]);
  const chosen = findings[Number(query.finding)] && query.finding ? findings[Number(query.finding)] : null;
  const touched = useMemo(() => new Set((chosen ? [chosen] : findings).flatMap((item) => [...(item.services ?? []), ...(item.nodes ?? []).map((name) => `node/${name}`)])), [findings, query.finding]);
  const shown = useMemo(() => (map && map.nodes.length > 12 && touched.size ? narrow(map, { only: new Set([...touched].filter((id) => id.startsWith("node/")).slice(0, 6)), services: touched }) : map), [map, touched]);
  return (
    <section class="view">
      <div class="bar-top"><h1>Compare</h1><Busy busy={busy && kind} words="Comparing all packets…" /></div>
      <ul class="cards">
        {offered.map(([name, title, words]) => (
          <li key={name}><a class="card" href={to({ kind: name, finding: "" })} aria-current={name === kind ? "true" : undefined}><b>{title}</b><span>{words}</span></a></li>
        ))}
      </ul>
      <Problem error={error} />
      {kind && data && (
        <>
          <p class={`outcome-line ${findings.length ? "bad" : data.undecided?.length ? "open" : ""}`} role="status">
            {findings.length ? `${count(findings.length, "difference")} for packets.` : data.undecided?.length ? "No difference was found, but not everything could be decided." : "Both sides treat every packet alike."}
          </p>
          <p class="counts">{about}.</p>
          <Findings findings={findings} sides={sides} chosen={query.finding ?? ""} choose={map ? (place) => to({ finding: place }) : null} />
          <Undecided items={data.undecided} />
          {(data.remarks ?? data.notes ?? []).length > 0 && <ul class="hints">{(data.remarks ?? data.notes).map((item) => <li key={item}>{item}</li>)}</ul>}
          {map && findings.length > 0 && <ComparedMap map={shown} touched={touched} zoom={zoom} setZoom={setZoom} />}
        </>
      )}
    </section>
  );
}

function ComparedMap({ map, touched, zoom, setZoom }) {
  const layout = useLayout(map, EMPTY);
  return (
    <>
      <div class="map-tools"><p class="counts">Marked: where packets are treated differently.</p><Zoom zoom={zoom} setZoom={setZoom} /></div>
      <Drawing map={map} layout={layout} hrefOf={(id) => href("map", { sel: id })} touched={touched} zoom={zoom} label="Map with what differs marked" />
    </>
  );
}

/** Findings of all three comparisons in one form. */
function asFinding(item) {
  return {
    ...item,
    statement: item.statement ?? item.title ?? item.what ?? (item.destinations ?? []).join(", "),
    before: item.before ?? item.today ?? "", after: item.after ?? item.then ?? "", advice: item.advice ?? [],
    services: (item.services ?? []).map((name) => (name.startsWith("svc/") ? name : `svc/${name.replace(/:[^/]*$/, "")}`)),
  };
}
