// What is broken in a lab now; nodes, links and Pods are broken and healed.

import { useState } from "preact/hooks";
import { post, useAnswer } from "../api.js";
import { Busy, Problem } from "../parts.jsx";
import { href } from "../route.js";
import { plain } from "../words.js";

/**
 * @param told what changes when something may have been broken or healed
 */
export function Faults({ map, query, told }) {
  const { data, error } = useAnswer("api/lab/broken", undefined, told);
  const [said, setSaid] = useState(null);
  const [busy, setBusy] = useState(false);
  const act = async (verb, items) => {
    setBusy(true);
    setSaid(null);
    try {
      const done = [];
      for (const { kind, name } of items) done.push((await post(`api/lab/${verb}`, { kind, name })).done);
      setSaid({ words: done.join("; ") });
    } catch (failure) {
      setSaid({ error: failure });
    }
    setBusy(false);
  };
  const broken = data?.broken ?? [];
  const waiting = data ? awaited(map, broken) : [];
  const heals = (item, words) => <button type="button" disabled={busy} aria-label={`Heal ${words}`} onClick={() => act("heal", [item])}>Heal</button>;
  return (
    <>
      {(broken.length > 0 || waiting.length > 0) && (
        <section data-test="broken">
          <h2>{broken.length ? "Broken now" : "Healed, and awaited"}</h2>
          {broken.map((item) => <p class="fault" key={`${item.kind} ${item.name}`}><span class="bad-text"><a href={href("live", { ...query, sel: idOf(item) })}>{item.words}</a></span>{heals(item, `what is broken: ${item.words}`)}</p>)}
          {broken.length > 1 && <p><button type="button" disabled={busy} onClick={() => act("heal", broken)}>Heal all</button></p>}
          {waiting.map((words) => <p class="counts" key={words}>{words}</p>)}
        </section>
      )}
      <section data-test="faults">
        <h2>Break and heal</h2>
        <Chosen sel={query.sel ?? ""} broken={broken} busy={busy || !data} heals={heals} breaks={(item) => act("fail", [item])} />
        <Busy busy={busy} words="Working…" />
        {said?.words && <p class="note" role="status">{said.words}</p>}
        <Problem error={said?.error ?? error} />
      </section>
    </>
  );
}

/** What is chosen on the map, with its state, and what can be done to it. */
function Chosen({ sel, broken, busy, heals, breaks }) {
  const [kind, name] = [sel.split("/")[0], plain(sel)];
  const is = (other) => broken.some((item) => item.kind === other && item.name === name);
  const row = (item, words, good, bad) => (
    <p class="fault" key={item.kind}>
      <span>{words} {is(item.kind) ? <b class="bad-text">{bad}</b> : <b>{good}</b>}</span>
      {is(item.kind) ? heals(item, words) : <button type="button" class="breaks" disabled={busy} aria-label={`Break ${words}`} onClick={() => breaks(item)}>Break</button>}
    </p>
  );
  if (kind === "pod") return row({ kind, name }, `Pod ${name}`, "runs", "has crashed");
  if (kind !== "node" || !/^node-\d+$/.test(name)) return <p>Choose a node or a Pod on the map.</p>;
  return <>{!is("node") && row({ kind: "link", name }, `the link of ${name}`, "is up", "is down")}{row({ kind: "node", name }, `node ${name}`, "is on", "is off")}</>;
}

/** The map's identifier of what is broken. */
const idOf = ({ kind, name }) => (kind === "pod" ? `pod/${name}` : name && `node/${name}`);

/** What is not broken any more and not ready yet. */
function awaited(map, broken) {
  const ids = new Set(broken.map(idOf));
  const nodes = map.nodes.filter((node) => node.ready === false && !ids.has(node.id));
  const pods = map.pods.filter((pod) => pod.ready === false && pod.phase === "Running" && !pod.terminating && !ids.has(pod.id) && !ids.has(pod.node));
  return [...nodes.map((node) => `${node.name} is not ready yet.`), ...pods.map((pod) => `Pod ${plain(pod.id)} runs, and is not ready yet.`)];
}
