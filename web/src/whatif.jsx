// A copy of the cluster, changed; and what the changes mean for packets, as a list and on the map.

import { useCallback, useMemo, useRef, useState } from "preact/hooks";
import { post, useAnswer } from "./api.js";
import { Findings, Undecided, gathered, podNames, sidesOf } from "./findings.jsx";
import { Drawing, useLayout } from "./map.jsx";
import { Busy, Close, Problem, Select, saveFile } from "./parts.jsx";
import { go, href } from "./route.js";
import { edgesBy, nearTo, overlaid, withEndpoints } from "./shape.js";
import { count, plain } from "./words.js";

const EMPTY = new Set();

export function WhatIfView({ route, map, source, revision, edits }) {
  const { query } = route;
  // A switch of the mode alone is told by its reasons, as `kproxy migrate` does.
  const switched = edits.length === 1 && edits[0].do === "mode" && edits[0].mode !== source.modes?.[0] && source.compares?.includes("migrate") ? edits[0].mode : "";
  const question = useMemo(() => (edits.length ? { edits, compare: !switched } : null), [query.edits, switched]);
  const { data, error, busy } = useAnswer(question && "api/whatif", question ?? undefined, revision);
  const reasons = useAnswer(switched && "api/compare", switched ? { kind: "migrate", to: switched, nodes: [] } : undefined, revision);
  // While another answer is on its way, nothing is said to be as before.
  const known = question && !(busy && data?.alike) ? data : null;
  const found = useMemo(() => foundIn(known, switched, reasons.data), [known, switched, reasons.data]);
  const [saved, setSaved] = useState(null);
  const to = (changes) => href("whatif", { ...query, ...changes });
  const withEdits = (list) => to({ edits: list.length ? JSON.stringify(list) : "", finding: "" });
  const add = (edit) => go(withEdits([...edits, edit]));
  const copy = useMemo(() => (question && data ? overlaid(withEndpoints(data.map), map) : map), [question, data, map]);
  const findings = found?.findings ?? [];
  const finding = findings[Number(query.finding)] ?? null;
  const touched = useMemo(() => new Set(finding && query.finding ? [...(finding.services ?? []), ...(finding.nodes ?? []).map((name) => `node/${name}`)] : (found?.touched ?? data?.touched ?? [])), [data, found, query.finding]);
  const shown = useMemo(() => copy && nearTo(copy, touched), [copy, touched]);
  const save = async () => {
    try {
      saveFile("what-if.yaml", "application/yaml", await post("api/whatif/save", { edits }, undefined, "text"));
      setSaved(null);
    } catch (failure) {
      setSaved(failure);
    }
  };
  return (
    <section class="view split">
      <div class="main">
        <div class="bar-top"><h1>What if</h1><p class="counts">Changes are made to a copy; the source stays as it is.</p><Busy busy={(busy && question) || reasons.busy} words="Comparing all packets…" /></div>
        <Problem error={error ?? reasons.error ?? saved} />
        {found && (
          <p class={`outcome-line ${found.alike ? "" : findings.length ? "bad" : "open"}`} role="status" data-test="verdict">
            {found.alike ? "Every packet is treated as before." : findings.length ? `${count(findings.length, "difference")} for packets.` : "No difference was found, but not everything could be decided."}
          </p>
        )}
        {copy && <CopyMap map={shown} before={question && data ? map : null} touched={touched} query={query} to={to} />}
        {found && <Findings findings={findings} sides={found.sides} names={podNames(map, data.map)} chosen={query.finding ?? ""} choose={(place) => to({ finding: place })} />}
        {found && <Undecided items={found.undecided} />}
        {question && data?.notes?.length > 0 && <ul class="hints">{data.notes.map((note) => <li key={note}>{note}</li>)}</ul>}
      </div>
      <aside class={query.sel ? "panel sheet" : "panel"} aria-label="Changes">
        {query.sel && <Close href={to({ sel: "" })} />}
        <h2>{edits.length ? count(edits.length, "change") : "Change something"}</h2>
        {edits.length > 0 && (
          <ol class="edits">
            {edits.map((edit, place) => (
              <li key={place}>
                <span>{data?.edits?.[place]?.text ?? editWords(edit)}</span>
                <a href={withEdits(edits.filter((_, each) => each !== place))} aria-label={`Take back: ${editWords(edit)}`}>✕</a>
              </li>
            ))}
          </ol>
        )}
        {edits.length > 0 && (
          <p class="actions">
            <a class="button" href={withEdits(edits.slice(0, -1))}>Undo</a>
            <a class="button" href={withEdits([])}>Undo all</a>
            <button type="button" onClick={save}>Save as manifests</button>
            <a class="button" href={href("ask", { edits: query.edits })}>Ask the copy</a>
          </p>
        )}
        {map && <Editor map={copy ?? map} source={source} edits={edits} add={add} sel={query.sel ?? ""} />}
      </aside>
    </section>
  );
}

/** What a change means for packets: {findings, undecided, alike, sides, touched}; null as long as it is not known. */
function foundIn(data, switched, reasons) {
  if (!data) return null;
  if (!switched) return { findings: gathered(data.findings), undecided: data.undecided, alike: data.alike, sides: sidesOf(["now", "after the change"], data) };
  if (reasons?.report?.to !== switched) return null;
  const { report } = reasons;
  const findings = gathered(report.findings, reasons.asks);
  return { findings, undecided: report.undecided, alike: !findings.length && !report.undecided?.length, sides: sidesOf(["today", `in ${switched} mode`], reasons), touched: findings.flatMap((item) => item.services) };
}

function CopyMap({ map, before, touched, query, to }) {
  const layout = useLayout(map, EMPTY);
  const hrefOf = useCallback((id) => (id.startsWith("open ") ? to({}) : to({ sel: id })), [to({})]);
  return (
    <>
      <div class="map-tools"><p class="counts">{before ? "Marked: what the change touches. Chances that change have both numbers." : "Choose on the map what to change."}</p></div>
      <Drawing map={map} layout={layout} hrefOf={hrefOf} selected={query.sel ?? ""} touched={touched} before={before} label="Map of the changed copy" />
    </>
  );
}

function editWords(edit) {
  const target = edit.address ?? edit.pod ?? edit.node ?? edit.service ?? edit.mode ?? "";
  return { endpoint: `endpoint ${target}`, "drop-node": `node ${target} is gone`, policy: `policies of ${target}`, apply: "a manifest", delete: `Service ${target} is gone`, mode: `mode ${target}` }[edit.do] ?? edit.do;
}

const STATES = [
  ["terminating", { ready: false, serving: true, terminating: true }, "Terminating, still serving"],
  ["unready", { ready: false, serving: false, terminating: false }, "Not ready"],
  ["gone", { ready: false, serving: false, terminating: true }, "Terminating, not serving"],
  ["ready", { ready: true, serving: true, terminating: false }, "Ready"],
];

/** What can be done to what is selected, and to the whole. */
function Editor({ map, source, edits, add, sel }) {
  const pod = map.pods.find((item) => item.id === sel);
  const node = map.nodes.find((item) => item.id === sel && item.isNode !== false);
  const service = map.services.find((item) => item.id === sel);
  const manifest = useRef(null);
  const edge = edgesBy(map, "target", sel)[0];
  const mode = edits.findLast((edit) => edit.do === "mode")?.mode ?? source.modes?.[0];
  const other = mode === "nftables" ? "iptables" : "nftables";
  return (
    <>
      {!pod && !node && !service && <p>Choose a Pod, a node or a Service on the map, or do one of these.</p>}
      {pod && (
        <section>
          <h3>Pod {plain(pod.id)}</h3>
          {edge ? <div class="choices">{STATES.map(([key, set, words]) => <button key={key} type="button" onClick={() => add({ do: "endpoint", pod: plain(pod.id), set })}>{words}</button>)}</div> : <p class="note">It is an endpoint of no Service.</p>}
        </section>
      )}
      {node && <section><h3>Node {node.name}</h3><div class="choices"><button type="button" onClick={() => add({ do: "drop-node", node: node.name })}>Take the node away</button></div></section>}
      {service && <ServiceEditor service={service} add={add} />}
      <section>
        <h3>All nodes</h3>
        <div class="choices"><button type="button" onClick={() => add({ do: "mode", mode: other })}>Switch kube-proxy to {other} mode</button></div>
      </section>
      <section>
        <h3>A manifest</h3>
        <label class="visually-hidden" for="manifest">Manifest in YAML or JSON</label>
        <textarea id="manifest" ref={manifest} placeholder={"apiVersion: v1\nkind: Service\n…"} spellcheck={false} />
        <button type="button" onClick={() => manifest.current.value.trim() && add({ do: "apply", manifest: manifest.current.value })}>Apply to the copy</button>
      </section>
    </>
  );
}

function ServiceEditor({ service, add }) {
  const name = plain(service.id);
  const set = (key, value) => add({ do: "policy", service: name, set: { [key]: value } });
  const external = service.type !== "ClusterIP" || service.externalIPs.length > 0;
  return (
    <section>
      <h3>Service {name}</h3>
      <div class="two">
        <Select label="Internal policy" value={service.internalPolicy || "Cluster"} onChange={(value) => set("internalTrafficPolicy", value)} options={[["Cluster", "Cluster"], ["Local", "Local"]]} />
        {external && <Select label="External policy" value={service.externalPolicy || "Cluster"} onChange={(value) => set("externalTrafficPolicy", value)} options={[["Cluster", "Cluster"], ["Local", "Local"]]} />}
        <Select label="Session affinity" value={service.affinity || "None"} onChange={(value) => set("sessionAffinity", value)} options={[["None", "None"], ["ClientIP", "ClientIP"]]} />
      </div>
      <div class="choices"><button type="button" onClick={() => add({ do: "delete", service: name })}>Delete it</button></div>
    </section>
  );
}


