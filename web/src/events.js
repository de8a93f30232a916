// What the server tells by itself: a new revision of the source, or that it is away.

import { useEffect, useState } from "preact/hooks";
import { embedded } from "./api.js";

const KEPT = 60;

/** {revision, away, last, log}: `revision` is the source's last one that was told of, 0 before the first; `last` names what
 *  changed with it, and `log` has each thing that changed once, the newest first. */
export function useEvents() {
  const [state, setState] = useState({ revision: 0, away: "", last: [], log: [] });
  useEffect(() => {
    if (embedded) return undefined;
    const source = new EventSource("api/events");
    let lost = 0;
    source.addEventListener("revision", (event) => {
      clearTimeout(lost);
      const data = JSON.parse(event.data);
      setState((old) => {
        const news = old.revision && data.revision !== old.revision;
        return { revision: data.revision, away: "", last: news ? (data.changed ?? []) : old.last, log: news ? logged(old.log, data) : old.log };
      });
    });
    source.addEventListener("away", (event) => {
      const data = JSON.parse(event.data);
      setState((old) => ({ ...old, away: data.message }));
    });
    source.onerror = () => {
      clearTimeout(lost);
      lost = setTimeout(() => setState((old) => ({ ...old, away: "kproxy explore does not answer any more; what is shown is the last that it said." })), 1500);
    };
    source.onopen = () => {
      clearTimeout(lost);
      setState((old) => (old.away ? { ...old, away: "" } : old));
    };
    return () => source.close();
  }, []);
  return state;
}

/** The log with what changed now at its top: what changed before, too, is one entry with the number of its changes. */
function logged(log, { revision, changed = [] }) {
  const at = new Date();
  const before = new Map(log.map((item) => [item.name, item]));
  const now = changed.map((name) => ({ name, revision, at, times: (before.get(name)?.times ?? 0) + 1 }));
  const named = new Set(changed);
  return [...now, ...log.filter((item) => !named.has(item.name))].slice(0, KEPT);
}
