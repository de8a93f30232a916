// What the server tells by itself: a new revision of the source, or that it is away. A source that never changes has nothing
// to tell, and a page that nobody sees does not listen: a browser has six connections to a server, for all of its tabs.

import { useEffect, useState } from "preact/hooks";
import { GONE, embedded } from "./api.js";
import { readMarked } from "./unseen.js";

const KEPT = 60;

/** @param live whether the source may change
 *  @returns {revision, away, last, log}: `revision` is the source's last one that was told of, 0 before the first; `last` names what
 *  changed with it, and `log` has each thing that changed once, the newest first. */
export function useEvents(live) {
  const [state, setState] = useState({ revision: 0, away: "", last: [], log: [] });
  useEffect(() => {
    if (embedded || !live) return undefined;
    let [source, lost] = [null, 0];
    const close = () => {
      clearTimeout(lost);
      source?.close();
      source = null;
    };
    const seen = () => {
      if (document.hidden) close();
      else if (!source) source = listened();
    };
    const listened = () => {
      const stream = new EventSource("api/events");
      stream.addEventListener("revision", (event) => {
        clearTimeout(lost);
        const data = readMarked(event.data);
        setState((old) => {
          const news = old.revision && data.revision !== old.revision;
          return { revision: data.revision, away: "", last: news ? (data.changed ?? []) : old.last, log: news ? logged(old.log, data) : old.log };
        });
      });
      stream.addEventListener("away", (event) => {
        const data = readMarked(event.data);
        setState((old) => ({ ...old, away: data.message }));
      });
      stream.onerror = () => {
        clearTimeout(lost);
        lost = setTimeout(() => setState((old) => ({ ...old, away: `${GONE} What is shown is the last that it said.` })), 1500);
      };
      stream.onopen = () => {
        clearTimeout(lost);
        setState((old) => (old.away ? { ...old, away: "" } : old));
      };
      return stream;
    };
    seen();
    document.addEventListener("visibilitychange", seen);
    return () => {
      document.removeEventListener("visibilitychange", seen);
      close();
    };
  }, [live]);
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
