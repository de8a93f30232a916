// A copy of the cluster, changed; and what the changes mean for packets, as a list and on the map.

import { useCallback, useMemo, useRef, useState } from "preact/hooks";
import { embedded, post, useAnswer } from "../api.js";
import { Findings, Undecided, Unlisted } from "../compare/findings.jsx";
import { FoundMap, useWays } from "../compare/foundmap.jsx";
import { gathered, podNames, sidesOf } from "../compare/gather.js";
import { Busy, Close, Problem, Select, saveFile } from "../parts.jsx";
import { findingAt, go, href, placeOf } from "../route.js";
import { faultMarks, useAudited } from "../map/audited.js";
import { edgesBy, overlaid, withEndpoints } from "../map/shape.js";
import { count, plain } from "../words.js";
import { Verdict } from "./compare.jsx";

/** An exported file has no server to compute a copy. */
export const WhatIfView = embedded ? NotHere : Copy;

function NotHere() {
  return <section class="view"><h1>What if</h1><p class="note" data-test="not-here">This file was exported: it cannot compute what a change would mean; kproxy explore can.</p></section>;
}

function Copy({ route, map, source, revision, edits }) {
  const { query } = route;
  const question = useMemo(() => (edits.length ? { edits } : null), [query.edits]);
  const { data, error, busy } = useAnswer(question && "api/whatif", question ?? undefined, revision);
  // While another answer is on its way, nothing is said to be as before.
  const known = question && !(busy && data?.alike) ? data : null;
  const found = useMemo(() => foundIn(known), [known]);
  const [saved, setSaved] = useState(null);
  const to = (changes) => href("whatif", { ...query, ...changes });
  const withEdits = (list) => to({ edits: list.length ? JSON.stringify(list) : "", finding: "" });
  const add = (edit) => go(to({ edits: JSON.stringify([...edits, edit]), finding: "", sel: "" }));
  // A copy has the rules that its objects ask for: beside it stands what the objects ask for today, as in the list.
  const asked = data?.sides[0].source ?? "";
  const objects = useAnswer(asked && `api/map?source=${asked}`, undefined, revision);
  const before = useMemo(() => (question && data ? (asked ? objects.data && withEndpoints(objects.data) : map) : null), [question, data, asked, objects.data, map]);
  // What is wrong with the rules today is not the copy's: it is on the map when that is asked for.
  const { audited } = useAudited(asked && map, source, revision);
  const wrong = useMemo(() => (asked && map ? faultMarks(audited, map) : NO_MARKS), [asked, audited, map]);
  const withFaults = Boolean(query.faults);
  const today = withFaults ? wrong : NO_MARKS;
  const copy = useMemo(() => (before ? { ...overlaid(withEndpoints(data.map), before), ...(withFaults && asked && map && { faults: map.faults }) } : map), [before, data, map, asked, withFaults]);
  const findings = found?.findings ?? NO_FINDINGS;
  // Until the copy itself can be drawn they stand beside the map alone.
  const onCopy = before || !question ? findings : NO_FINDINGS;
  const touched = useMemo(() => new Set(data?.touched ?? []), [data]);
  // Of a switch of the mode the first reason is open, as in Compare.
  const chosen = placeOf(query.finding, found?.mode ? "0" : "");
  const choose = (place) => to({ finding: findingAt(place) || (found?.mode ? "none" : "") });
  const sides = found?.sides ?? NO_SIDES;
  const ways = useWays(findings, chosen, sides, copy, revision);
  const save = async () => {
    try {
      saveFile("what-if.yaml", "application/yaml", await post("api/whatif/save", { edits }, undefined, "text"));
      setSaved(null);
    } catch (failure) {
      setSaved(failure);
    }
  };
  return (
    <section class={`view split${edits.length ? " compared" : ""}`}>
      <div class="main">
        <div class="bar-top"><h1>What if</h1><p class="counts">Changes are made to a copy; the source stays as it is.</p><Busy busy={busy && question} words="Comparing all packets…" /></div>
        <Problem error={error ?? objects.error ?? saved} />
        {found && <Verdict cards={findings} chosen={chosen} choose={found.mode ? choose : null} undecided={found.alike ? [] : (found.undecided ?? [])} alike="Every packet is treated as before." />}
        {question && asked && map && <Today differs={wrong.size > 0 || map.faults.size > 0} shown={withFaults} href={to({ faults: withFaults ? "" : "1" })} />}
        {question && data?.notes?.length > 0 && <ul class={`hints about${edits.some((edit) => edit.do === "drop-node") ? " bad-text" : ""}`}>{data.notes.map((note) => <li key={note}>{note}</li>)}</ul>}
        {copy && <CopyMap map={copy} before={before} cards={onCopy} chosen={chosen} choose={choose} sides={sides} found={ways} touched={touched} today={today} query={query} to={to} />}
      </div>
      <aside class={query.sel ? "panel sheet" : "panel"} aria-label="Changes">
        {query.sel && <Close href={to({ sel: "" })} />}
        <h2 class="general">{edits.length ? count(edits.length, "change") : "Change something"}</h2>
        {edits.length > 0 && (
          <ol class="edits general">
            {edits.map((edit, place) => (
              <li key={place} class={error?.field?.startsWith(`edits[${place}]`) ? "refused" : undefined}>
                <span>{data?.edits?.[place]?.text ?? editWords(edit)}</span>
                <a href={withEdits(edits.filter((_, each) => each !== place))} aria-label={`Take back: ${editWords(edit)}`}>✕</a>
              </li>
            ))}
          </ol>
        )}
        {edits.length > 0 && (
          <p class="actions general">
            <a class="button" href={withEdits(edits.slice(0, -1))}>Undo</a>
            <a class="button" href={withEdits([])}>Undo all</a>
            <button type="button" onClick={save}>Save as manifests</button>
            <a class="button" href={href("ask", { edits: query.edits })}>Ask the copy</a>
          </p>
        )}
        {query.sel && map && <Chosen map={copy ?? map} add={add} sel={query.sel} />}
        {found && (
          <div class="general">
            <Findings findings={findings} sides={found.sides} names={podNames(map, data.map)} total={map?.nodes.length} chosen={chosen} choose={choose} />
            <Unlisted items={data.unlisted} />
            <Undecided items={found.undecided} />
          </div>
        )}
        {map && <General map={copy ?? map} source={source} edits={edits} add={add} sel={query.sel ?? ""} />}
      </aside>
    </section>
  );
}

const CHANGED = ["now", "after the change"];
/** Of nodes whose rules were read: what their objects ask for, which these rules may not follow. */
const ASKED = ["should be now", "should be after the change"];
const NO_FINDINGS = [];
const NO_MARKS = new Map();
const NO_SIDES = sidesOf(CHANGED, null);

/** What a change means for packets: {mode (switched to, alone), findings, undecided, alike, sides}; null as long as it is not known. */
function foundIn(data) {
  if (!data) return null;
  // A switch of the mode alone is told by the reasons for which the modes differ.
  const mode = data.findings.some((item) => item.reason) ? data.sides[1].edits.at(-1).mode : "";
  const words = mode ? ["today", `in ${mode} mode`] : data.sides[0].source ? ASKED : CHANGED;
  return { mode, findings: gathered(data.findings, { kind: mode ? "migrate" : "whatif", words }), undecided: data.undecided, alike: data.alike, sides: sidesOf(words, data) };
}

/** That what is shown is not what the nodes' rules do now; whether what is wrong with these is on the map, too. */
function Today({ differs, shown, href: toggle }) {
  const drift = (words) => <a href={href("compare", { kind: "drift" })}>{words}</a>;
  if (!differs) return <p class="about">Both sides are what the objects ask for; {drift("compare them with today’s rules")}</p>;
  return <p class="about today" data-test="today"><span>Compared as if the rules were what the objects ask for. <b>Today’s rules are not</b>: {drift("drift")}</span><a href={toggle} aria-current={shown ? "true" : undefined}>{shown ? "Hide today’s faults" : "Show today’s faults on the map"}</a></p>;
}

function CopyMap({ map, before, cards, chosen, choose, sides, found, touched, today, query, to }) {
  const hrefOf = useCallback((id) => (id.startsWith("open ") ? to({}) : to({ sel: id })), [to({})]);
  return (
    <>
      {!before && <p class="counts">Choose on the map what to change.</p>}
      <FoundMap map={map} before={before} cards={cards} chosen={chosen} choose={choose} sides={sides} found={found} touched={touched} more={today} faults hrefOf={hrefOf} selected={query.sel ?? ""} label="Map of the changed copy" />
      {before && !found.ways && !found.busy && (
        <ul class="legend" aria-label="Legend">
          <li><svg viewBox="0 0 12 10" aria-hidden="true"><rect class="touched-box" width="12" height="10" rx="2" /></svg> what the change touches</li>
          <li><b>50% → 100%</b> chances before and after, for clients on {map.view}</li>
          {query.sel && <li><svg viewBox="0 0 12 10" aria-hidden="true"><rect class="passed-box" width="12" height="10" rx="2" /></svg> what is chosen, and belongs to it</li>}
          <li><svg viewBox="0 0 26 10" aria-hidden="true"><path class="gone-line" d="M0 5H26" /></svg> what gets nothing any more</li>
        </ul>
      )}
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

/** What can be done to what is chosen; it stands before what the changes so far mean. */
function Chosen({ map, add, sel }) {
  const pod = map.pods.find((item) => item.id === sel);
  const node = map.nodes.find((item) => item.id === sel && item.isNode !== false);
  const service = map.services.find((item) => item.id === sel);
  const edge = edgesBy(map, "target", sel)[0];
  return (
    <>
      {pod && (
        <section>
          <h3>Pod {plain(pod.id)}</h3>
          {edge ? <div class="choices">{STATES.map(([key, set, words]) => <button key={key} type="button" onClick={() => add({ do: "endpoint", pod: plain(pod.id), set })}>{words}</button>)}</div> : <p class="note">It is an endpoint of no Service.</p>}
        </section>
      )}
      {node && <section><h3>Node {node.name}</h3><div class="choices"><button type="button" onClick={() => add({ do: "drop-node", node: node.name })}>Take the node away</button></div></section>}
      {service && <ServiceEditor service={service} add={add} />}
    </>
  );
}

/** What can be done to the whole. */
function General({ map, source, edits, add, sel }) {
  const known = [...map.pods, ...map.nodes, ...map.services].some((item) => item.id === sel);
  const mode = edits.findLast((edit) => edit.do === "mode")?.mode ?? source.modes?.[0];
  const other = mode === "nftables" ? "iptables" : "nftables";
  return (
    <>
      {!known && <p>Choose a Pod, a node or a Service on the map, or do one of these.</p>}
      <section class="general">
        <h3>All nodes</h3>
        <div class="choices"><button type="button" onClick={() => add({ do: "mode", mode: other })}>Switch kube-proxy to {other} mode</button></div>
      </section>
      <Manifest edits={edits} add={add} />
    </>
  );
}

/** A manifest is tried before it becomes a change: what is refused stays where it was typed. */
function Manifest({ edits, add }) {
  const field = useRef(null);
  const [refused, setRefused] = useState(null);
  const apply = async () => {
    const manifest = field.current.value;
    if (!manifest.trim()) return;
    const edit = { do: "apply", manifest };
    try {
      await post("api/whatif", { edits: [...edits, edit], compare: false });
      setRefused(null);
      add(edit);
    } catch (failure) {
      setRefused(failure);
    }
  };
  return (
    <details class="general" open={Boolean(refused)}>
      <summary>Paste a manifest</summary>
      <label class="visually-hidden" for="manifest">Manifest in YAML or JSON</label>
      <textarea id="manifest" ref={field} placeholder={"apiVersion: v1\nkind: Service\n…"} spellcheck={false} aria-invalid={refused ? "true" : undefined} />
      <Problem error={refused} />
      <button type="button" onClick={apply}>Apply to the copy</button>
    </details>
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


