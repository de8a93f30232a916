// Two sides: another source (diff), the objects and what is programmed (drift), or both modes (migrate).

import { useMemo } from "preact/hooks";
import { useAnswer } from "./api.js";
import { Findings, Undecided, gathered, podNames, sidesOf } from "./findings.jsx";
import { Drawing, useLayout } from "./map.jsx";
import { Busy, Later, Problem } from "./parts.jsx";
import { href } from "./route.js";
import { nearTo, overlaid, withEndpoints } from "./shape.js";
import { count } from "./words.js";

const EMPTY = new Set();
const onMap = (id) => (id.startsWith("open ") ? href("map", { open: id.slice(5) }) : href("map", { sel: id }));
/** Services times nodes: more are compared when that is asked for. */
const FEW = 600;
/** Notes that stand before what was found: the others are opened. */
const NOTES = 3;

/** What can be compared here: {kind, title, about, question, words of both sides}. */
function kinds(source) {
  const other = source.modes?.[0] === "nftables" ? "iptables" : "nftables";
  const found = [
    { kind: "drift", title: "Rules as they should be, and as they are", about: "What kube-proxy would program for the Services, against the rules that the nodes have (kproxy drift)", question: { kind: "drift", node: "" }, words: ["should be", "is"] },
    { kind: "migrate", title: `Today, and in ${other} mode`, about: `What changes for packets when kube-proxy is switched to ${other} mode (kproxy migrate)`, question: { kind: "migrate", to: other, nodes: [] }, words: ["today", `in ${other} mode`] },
  ];
  if (source.against?.label) {
    const names = [source.label, source.against.label];
    const words = names[0] === names[1] ? ["first", "second"] : names;
    found.unshift({ kind: "diff", title: "Both sources", about: `${source.label} against ${source.against.label} (kproxy diff)`, question: { kind: "diff", a: {}, b: { source: "against" } }, words });
  }
  return found.filter((item) => source.compares?.includes(item.kind));
}

export function CompareView({ route, map, source, revision }) {
  const { query } = route;
  const offered = kinds(source);
  // What takes long begins when it is asked for.
  const first = (source.services ?? 0) * Math.max(1, source.nodes ?? 1) <= FEW || source.against ? offered[0]?.kind : "";
  const chosenKind = offered.find((item) => item.kind === (query.kind ?? first));
  const kind = chosenKind?.kind ?? "";
  const { data, error, busy } = useAnswer(kind && "api/compare", chosenKind?.question, revision);
  const to = (changes) => href("compare", { ...query, ...changes });
  const shown = data && (data.kind ?? kind) === kind ? data : null;
  const findings = useMemo(() => (shown ? gathered(shown.findings ?? shown.report?.findings ?? [], shown.asks) : []), [shown]);
  const undecided = shown?.undecided ?? shown?.report?.undecided ?? [];
  const sides = sidesOf(chosenKind?.words ?? ["", ""], shown);
  const notes = [...(shown?.remarks ?? []), ...(shown?.notes ?? [])];
  return (
    <section class={`view${findings.length && map ? " split compared" : ""}`}>
      <div class="main">
        <div class="bar-top"><h1>{source.fixed ? chosenKind?.about.replace(/ \(.*/, "") : "Compare"}</h1><Busy busy={busy && kind} words="Comparing all packets…" /></div>
        {!source.fixed && (
          <ul class="cards">
            {offered.map((item) => (
              <li key={item.kind}><a class="card" href={to({ kind: item.kind, finding: "" })} aria-current={item.kind === kind ? "true" : undefined}><b>{item.title}</b><span>{item.about}</span></a></li>
            ))}
          </ul>
        )}
        {!kind && <p class="note">Choose what to compare. All packets are compared, not a sample; of many Services that takes a while.</p>}
        <Problem error={error} />
        {kind && shown && (
          <p class={`outcome-line ${findings.length ? "bad" : undecided.length ? "open" : ""}`} role="status" data-test="verdict">
            {findings.length ? `${count(findings.length, "difference")} for packets.` : undecided.length ? "No difference was found, but not everything could be decided." : "Both sides treat every packet alike."}
          </p>
        )}
        {kind && shown && notes.length > 0 && (
          <ul class="hints">
            {notes.slice(0, NOTES).map((item) => <li key={item}>{item}</li>)}
            {notes.length > NOTES && <li><Later summary={count(notes.length - NOTES, "more note")}>{() => <ul class="hints">{notes.slice(NOTES).map((item) => <li key={item}>{item}</li>)}</ul>}</Later></li>}
          </ul>
        )}
        {kind && shown && map && <ComparedMap map={map} other={sides[1].source === "against" ? "api/map?source=against" : ""} revision={revision} findings={findings} chosen={query.finding ?? ""} words={sides.map((side) => side.words)} />}
      </div>
      {kind && shown && (
        <div class="beside">
          <Findings findings={findings} sides={sides} names={podNames(map)} chosen={query.finding ?? ""} choose={map ? (place) => to({ finding: place }) : null} />
          <Undecided items={undecided} />
        </div>
      )}
    </section>
  );
}

/** The map, on which what differs is marked; of two sources both are laid over one another. */
function ComparedMap({ map, other, revision, findings, chosen, words }) {
  const { data, error } = useAnswer(other, undefined, revision);
  const finding = chosen ? findings[Number(chosen)] : null;
  const touched = useMemo(() => new Set((finding ? [finding] : findings).flatMap((item) => [...item.services, ...(finding && item.nodes.length < map.nodes.length ? item.nodes.map((name) => `node/${name}`) : [])])), [findings, finding, map]);
  const shown = useMemo(() => {
    const both = other && data ? overlaid(withEndpoints(data), map) : map;
    return nearTo(both, touched);
  }, [map, other, data, touched]);
  const layout = useLayout(shown, EMPTY);
  if (!findings.length) return null;
  return (
    <>
      <div class="map-tools">
        <p class="counts">Marked: {finding ? `finding ${Number(chosen) + 1}` : "Services whose packets are treated differently"}.{other && data ? ` Chances are “${words[0]} → ${words[1]}”; what only the first has is crossed out.` : ""}</p>
        <Problem error={error} />
      </div>
      <Drawing map={shown} layout={layout} hrefOf={onMap} touched={touched} before={other && data ? map : null} around={400} label="Map with what differs marked" />
    </>
  );
}
