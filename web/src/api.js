// Questions to the server, and in an exported file to what is embedded in it.

import { useEffect, useRef, useState } from "preact/hooks";
import { resolveTarget } from "./names.js";
import { readMarked, withoutMarks, writeUnmarked } from "./unseen.js";

const holder = document.getElementById("kproxy-data");

/** What an exported file holds; null where there is a server. */
export const embedded = holder ? readMarked(holder.textContent) : null;

/** Whose page it is: of another command than explore. */
export const command = embedded?.command ?? "";

/** Whether an exported file has something of a view, by the view's name. */
export function holds(view) {
  if (!embedded) return true;
  const some = (found) => Object.keys(found ?? {}).length > 0;
  // Of one host's rules the list of Services leads to the map.
  if (view === "services") return some(embedded.services) || (!command && some(embedded.map?.services));
  return some({ map: embedded.map, ask: embedded.asks, audit: embedded.audit, compare: embedded.compare, clients: embedded.clientMaps }[view]);
}

/** A failure that is shown: one line, the field that it is about, and whether the source is away. */
export class Failure extends Error {
  constructor(message, { field = "", away = false, absent = false } = {}) {
    super(message);
    this.field = field;
    this.away = away;
    this.absent = absent;
  }
}

/** What is said where the server is gone, and how to go on: each one has an address of its own. */
export const GONE = "kproxy explore does not answer any more. Start it again in a terminal and open the address that it prints; what stands behind the # of this address works there, too.";

/** How often an answer that is not whole yet is asked for again, each time later, and the first time after so many
 *  milliseconds. */
export const TRIES = 6;
export const FIRST_TRY = 500;

const isMap = (path) => /^api\/map(\?node=[^&]*)?$/.test(path);

/** The map of the page's source that was answered last, with all its chances: of another node's the server is asked for
 *  what is not the same. */
let held = null;

/** A map from the one that is held and what is another in it. */
function changed(map, { view, edges }) {
  if (!edges.length) return { ...map, view };
  const all = [...map.edges];
  for (const [place, edge] of edges) all[place] = edge;
  return { ...map, view, edges: all };
}

/** Of marks that stand in a path only their code. */
const unmarkedPath = (path) => (path.includes("%E2%9F%A8U%2B") ? path.replace(/%E2%9F%A8U%2B[0-9A-F]+%E2%9F%A9/g, (mark) => encodeURIComponent(withoutMarks(decodeURIComponent(mark)))) : path);

async function request(path, body, signal, form = "json") {
  if (embedded) return fromFile(path, body);
  const known = body === undefined && isMap(path) ? held : null;
  const than = known ? `${path.includes("?") ? "&" : "?"}than=${encodeURIComponent(known.view)}&revision=${known.revision}` : "";
  let answer;
  try {
    answer = await fetch(unmarkedPath(path) + than, {
      method: body === undefined ? "GET" : "POST",
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
      body: body === undefined ? undefined : writeUnmarked(body),
      signal,
      cache: "no-store",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(GONE, { away: true });
  }
  if (form === "text" && answer.ok) return answer.text();
  let data = null;
  try {
    data = readMarked(await answer.text());
  } catch {
    throw new Failure(`The server's answer (${answer.status}) cannot be read`);
  }
  if (!answer.ok) throw new Failure(data?.error?.message ?? `The server says ${answer.status}`, { field: data?.error?.field, away: data?.away });
  if (body !== undefined || !isMap(path)) return data;
  const map = data.than === undefined ? data : changed(known, data);
  held = map.pending ? null : map;
  return map;
}

export const get = (path, signal) => request(path, undefined, signal);
export const post = (path, body, signal, form) => request(path, body, signal, form);

const NEEDS_SERVER = "This file was exported: that question is not in it, and needs kproxy explore";

function fromFile(path, body) {
  const [name, query] = path.split("?");
  if (name === "api/source") return embedded.source;
  const [side, node] = ["source", "node"].map((key) => new URLSearchParams(query).get(key) ?? "");
  if (name === "api/map" && embedded.clientMaps?.[node]) return embedded.clientMaps[node];
  if (name === "api/map" && side && embedded.maps?.[side]) return embedded.maps[side];
  if (name === "api/map" && !side && !body?.edits?.length) return embedded.map ?? null;
  if (name === "api/services") return { services: Object.keys(embedded.services ?? {}) };
  const service = /^api\/services\/(.+)$/.exec(name);
  if (service) {
    const found = (side ? embedded.sideServices?.[side] : embedded.services)?.[service[1].split("/").map(decodeURIComponent).join("/")];
    if (found) return found;
  }
  const compared = embedded.compare ?? embedded.compares?.[body?.kind];
  if (name === "api/compare" && compared) return compared;
  if (name === "api/audit" && embedded.audit) return embedded.audit;
  if (name === "api/ask" && !body.source && !body.edits?.length && !Object.keys(body.assume ?? {}).length) {
    const found = embedded.asks?.find((item) => sameQuestion(item, body));
    if (found) return found.answer;
  }
  const shown = name === "api/ask" && embedded.sideAsks?.[sideKey(body)];
  if (shown) return shown;
  throw new Failure(NEEDS_SERVER, { absent: true });
}

/** By which name the answer to a question that shows a finding on one side is held, as `export.py` writes it. */
function sideKey({ edits = [], from, to, protocol, source, ...rest }) {
  if (Object.values(rest).some((value) => value && Object.keys(value).length !== 0)) return "";
  return JSON.stringify([{ from, to, protocol, ...(source ? { source } : {}) }, edits]);
}

function sameQuestion(item, body) {
  const { request: asked, answer } = item;
  if (asked.from !== body.from && answer.from !== body.from) return false;
  if (body.protocol && answer.protocol !== body.protocol) return false;
  return asked.to === body.to || answer.to === body.to || (embedded.map && answer.to === resolveTarget(embedded.map, body.to));
}

/**
 * An answer of the server, asked again when the question or `revision` changes. The last answer stays until the next one
 * is there, so that nothing jumps.
 */
export function useAnswer(path, body, revision = 0) {
  const [state, setState] = useState({ data: null, error: null, busy: Boolean(path), key: "" });
  const key = path ? `${path} ${body === undefined ? "" : JSON.stringify(body)}` : "";
  const last = useRef("");
  useEffect(() => {
    if (!path) {
      last.current = "";
      setState({ data: null, error: null, busy: false, key: "" });
      return undefined;
    }
    const stop = new AbortController();
    setState((old) => ({ ...old, busy: true }));
    (async () => request(path, body, stop.signal))().then(
      (data) => {
        if (stop.signal.aborted) return;
        last.current = key;
        setState({ data, error: null, busy: false, key });
      },
      (error) => {
        if (stop.signal.aborted) return;
        setState((old) => ({ data: last.current === key ? old.data : null, error, busy: false, key }));
      },
    );
    return () => stop.abort();
  }, [key, revision]);
  return state;
}
