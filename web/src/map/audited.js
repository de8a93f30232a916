// What the audit found, on the Map: how much there is, and its numbers at what it is about.

import { useEffect, useMemo, useState } from "preact/hooks";
import { embedded, get, holds, useAnswer } from "../api.js";
import { onNodes } from "../compare/gather.js";
import { findingAt, href } from "../route.js";
import { count } from "../words.js";
import { marksOf } from "./marks.js";

/** So many nodes times Services and Pods at most are audited at once; of more the server does it by itself, in parts, and says
 *  how far it is. Of a snapshot it audits more than the first number in a process of its own, for some ten seconds. */
const FEW = 600;
const FEW_OF_SNAPSHOT = 6000;
const TONES = { error: "bad", warning: "open", info: "quiet" };
/** Milliseconds between two looks at how far it is. */
const LOOK = 1500;

/**
 * The audit, by itself.
 *
 * @returns {data, error, busy, checked: {done, of}}: `checked` says of how many nodes it is known what is wrong
 */
export function useAudit(map, source, revision) {
  const can = Boolean(map && (embedded ? holds("audit") : source.can?.audit));
  const few = embedded || ((source.services ?? 0) + (source.pods ?? 0)) * Math.max(1, source.nodes ?? 1) <= (source.kind === "snapshot" ? FEW_OF_SNAPSHOT : FEW);
  const [told, setTold] = useState(null);
  // The map comes first: rules that it asks for are not kept waiting.
  const asks = can && (few || told?.known);
  const { data, error, busy } = useAnswer(asks && `api/audit${few ? "" : "?known=1"}`, undefined, revision);
  useEffect(() => {
    if (!can || few) return undefined;
    const stop = new AbortController();
    let timer = 0;
    const look = async () => {
      const found = await get("api/audit?progress=1", stop.signal).catch((failure) => ({ failed: failure.message }));
      if (stop.signal.aborted) return;
      setTold(found);
      if (!found.known && !found.failed) timer = setTimeout(look, LOOK);
    };
    look();
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [can, few, revision]);
  const of = source.nodes ?? 0;
  const done = data ? data.judged.length : Math.min(told?.done ?? 0, of);
  const failed = !data && told?.failed ? { message: `The audit ended early: ${told.failed}` } : null;
  return { data, error: error ?? failed, busy: Boolean(busy || (can && !few && !data && !failed)), checked: map && source.can?.audit ? { done, of } : null };
}

/** {audited, told, busy}: the audit's errors and warnings, each with its place among all findings; null as long as they are not known.
 *  `told`: with what is good to know, too. `left`: of how many nodes it is not known what is wrong, beside those that were looked at. */
export function useAudited(map, source, revision, looked = 1) {
  const { data, busy, checked } = useAudit(map, source, revision);
  const told = useMemo(() => data && data.findings.map((item, place) => ({ ...item, place, tone: TONES[item.severity] ?? "quiet" })), [data]);
  const audited = useMemo(() => told && told.filter((item) => item.tone !== "quiet"), [told]);
  const left = !checked ? 0 : Math.max(0, data ? checked.of - checked.done : checked.of - Math.max(looked, checked.done));
  return { audited, told, busy, left, unseen: data?.unseen ?? [] };
}

/** In a few words where a Service is wrong by the audit, of those of which a map of one node's clients does not tell. */
export function faultsElsewhere(audited, map) {
  const found = new Map(map.faults);
  for (const item of audited ?? []) {
    if (item.severity !== "error" || !item.nodes.length) continue;
    for (const name of item.services) {
      const id = `svc/${name.replace(/:.*/, "")}`;
      if (!found.has(id)) found.set(id, `wrong ${onNodes(item.nodes, 0)}`);
    }
  }
  return found.size > map.faults.size ? found : map.faults;
}

/** What is said of nodes that have not been looked at. */
export const notChecked = (left) => `${count(left, "node")} not checked`;

/** Their numbers on the map, for `Drawing`. */
export const auditMarks = (audited, map) => marksOf((audited ?? []).map((item) => ({
  number: item.place + 1, tone: item.tone, href: linkTo(item), current: false, label: `${item.severity} ${item.place + 1} of the audit: ${item.title}`,
  nodes: item.nodes, services: item.services.map((name) => `svc/${name.replace(/:.*/, "")}`),
})), map);

/** The errors of today, where a map is of something else: one mark at each node and Service that has any. */
export function faultMarks(audited, map) {
  const found = new Map();
  for (const [id, items] of auditMarks(audited?.filter((item) => item.severity === "error"), map)) {
    found.set(id, [{ ...items[0], number: "!", label: `today, ${items.map((item) => item.label).join("; ")}` }]);
  }
  return found;
}

export const linkTo = (item) => href("audit", { finding: findingAt(item.place) });
