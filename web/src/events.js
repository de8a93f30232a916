// What the server tells by itself: a new revision of the source, or that it is away.

import { useEffect, useState } from "preact/hooks";
import { embedded } from "./api.js";

const KEPT = 40;

/** {revision, away, log}: `revision` is the source's last one that was told of, 0 before the first. */
export function useEvents() {
  const [state, setState] = useState({ revision: 0, away: "", log: [] });
  useEffect(() => {
    if (embedded) return undefined;
    const source = new EventSource("api/events");
    let lost = 0;
    source.addEventListener("revision", (event) => {
      clearTimeout(lost);
      const data = JSON.parse(event.data);
      setState((old) => ({
        revision: data.revision, away: "",
        log: old.revision && data.revision !== old.revision ? [{ revision: data.revision, changed: data.changed ?? [], at: new Date() }, ...old.log].slice(0, KEPT) : old.log,
      }));
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
