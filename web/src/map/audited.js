// What the audit found, on the Map: how much there is, and its numbers at what it is about.

import { useMemo } from "preact/hooks";
import { embedded, holds, useAnswer } from "../api.js";
import { findingAt, href } from "../route.js";
import { marksOf } from "./marks.js";

/** So many nodes times Services and Pods at most are audited for the Map; of more it shows the audit once somebody asked
 *  for it. Of a snapshot the server audits more than the first number in a process of its own, for some ten seconds. */
const FEW = 600;
const FEW_OF_SNAPSHOT = 6000;
const TONES = { error: "bad", warning: "open", info: "quiet" };

/** {audited, told, busy}: the audit's errors and warnings, each with its place among all findings; null as long as they are not known.
 *  `told`: with what is good to know, too. */
export function useAudited(map, source, revision) {
  const can = embedded ? holds("audit") : source.can?.audit;
  const few = embedded || ((source.services ?? 0) + (source.pods ?? 0)) * Math.max(1, source.nodes ?? 1) <= (source.kind === "snapshot" ? FEW_OF_SNAPSHOT : FEW);
  // The map comes first: rules that it asks for are not kept waiting.
  const { data, busy } = useAnswer(map && can && `api/audit${few ? "" : "?known=1"}`, undefined, revision);
  const told = useMemo(() => data && data.findings.map((item, place) => ({ ...item, place, tone: TONES[item.severity] ?? "quiet" })), [data]);
  const audited = useMemo(() => told && told.filter((item) => item.tone !== "quiet"), [told]);
  return { audited, told, busy: Boolean(few && busy) };
}

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
