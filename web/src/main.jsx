// The page of `kproxy explore`: navigation around the views. See README.md here for how it is built.

import { render } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { FIRST_TRY, TRIES, command, embedded, holds, useAnswer } from "./api.js";
import { AskView } from "./views/ask.jsx";
import { MapView } from "./views/map.jsx";
import { layAhead } from "./map/drawing.jsx";
import { isNode } from "./map/layout.js";
import { receivers, senders } from "./names.js";
import { Busy, Problem } from "./parts.jsx";
import { ServiceView } from "./views/service.jsx";
import { ServiceList } from "./views/services.jsx";
import { go, href, useRoute } from "./route.js";
import { keepPlaces } from "./scroll.js";
import { useEvents } from "./events.js";
import { lookAhead, withEndpoints, withKnown } from "./map/shape.js";
import { VIEWS, editsOf } from "./views/index.jsx";
import { onNodes } from "./compare/gather.js";
import { count, fit } from "./words.js";

const CORE = [
  { name: "map", title: "Map", key: "m" },
  { name: "ask", title: "Ask", key: "a" },
  { name: "services", title: "Services", key: "s" },
];

/** Which map a view shows: as clients on one node have it, of a question the one where the asker is, or of the second source. */
function mapOf({ path: [view], query }, known) {
  const found = new URLSearchParams();
  const asker = view === "ask" && known?.nodes.find((node) => isNode(node) && node.id === (known.pods.find((pod) => pod.id === query.from || pod.addresses.includes(query.from))?.node ?? query.from));
  if (query.node && (view === "map" || view === "services")) found.set("node", query.node);
  if (asker) found.set("node", asker.name);
  if (query.source && view === "ask") found.set("source", query.source);
  return `api/map${found.size ? `?${found}` : ""}`;
}

function App() {
  const route = useRoute();
  const [revision, setRevision] = useState(0);
  const source = useAnswer("api/source", undefined, revision);
  const events = useEvents(Boolean(source.data?.can?.events));
  const before = useRef({ data: null, source: "" });
  const [known, setKnown] = useState(null);
  const [again, setAgain] = useState(0);
  const answered = useAnswer(mapOf(route, known), undefined, revision + again);
  const side = route.query.source ?? "";
  const data = useMemo(() => withKnown(withEndpoints(answered.data), before.current.source === side ? before.current.data : null), [answered.data]);
  before.current = { data, source: side };
  useEffect(() => setKnown((old) => (old && old.pods === data?.pods && old.nodes === data.nodes ? old : data)), [data]);
  const map = { ...answered, data };
  useAhead(data);
  const tries = useRef(0);
  // Of a node whose rules have not all been asked a map has what the objects ask for: it is asked for again, each time later.
  useEffect(() => {
    if (!data?.pending) tries.current = 0;
    if (!data?.pending || !/^(map|services)$/.test(route.path[0]) || tries.current >= TRIES) return undefined;
    const timer = setTimeout(() => setAgain((old) => old + 1), FIRST_TRY * 2 ** tries.current);
    tries.current += 1;
    return () => clearTimeout(timer);
  }, [data, route.path[0]]);
  // Answers are asked for again when the source is newer than they are, and not for the first event, which tells what is known.
  const shown = Math.min(source.data?.revision ?? Infinity, map.data?.revision ?? Infinity);
  useEffect(() => {
    if (events.revision > shown) setRevision((old) => Math.max(old, events.revision));
  }, [events.revision, shown]);
  const read = useMemo(() => editsOf(route.query), [route.query.edits]);
  const edits = read ?? NO_EDITS;
  const [help, setHelp] = useState(false);
  const [told, setTold] = useState(false);
  const notes = notesOf(source.data);
  const main = useRef(null);
  const name = route.path[0] === "service" ? "services" : route.path[0];
  const can = source.data?.can ?? {};
  const tabs = [...CORE.filter((view) => holds(view.name)), ...VIEWS.filter((view) => view.shown(can, source.data ?? {}))];
  const title = [...CORE, ...VIEWS].find((view) => view.name === name)?.title ?? "Not found";
  useEffect(() => {
    document.title = command ? `${embedded.title} · kproxy ${command}` : `${title} · ${source.data?.label ?? "kproxy explore"}`;
  }, [title, source.data]);
  const first = useRef(true);
  useEffect(() => {
    if (first.current) first.current = false;
    else main.current?.querySelector("h1")?.focus?.({ preventScroll: true });
  }, [name]);
  useKeys(tabs, setHelp);
  const shared = { route, map: map.data, error: map.error, busy: map.busy, source: source.data ?? { namespaces: [], warnings: [], missing: [], notes: [] }, revision, edits, events };
  const view = tabs.find((tab) => tab.name === name);
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); main.current?.focus(); }}>To the content</a>
      <header class="top">
        <a class="brand" href={command ? href(embedded.start.path, embedded.start.query) : "#/map"}><Logo /> kproxy <b>{command || "explore"}</b></a>
        <nav aria-label="Views">
          <ul>{(tabs.length > 1 ? tabs : []).map((tab) => <li key={tab.name}><a href={href(tab.name)} aria-current={tab.name === name ? "page" : undefined}>{tab.title}</a></li>)}</ul>
        </nav>
        <p class="source">{source.data && <>{!command && <span class={`kind ${source.data.kind}`}>{source.data.kind}</span>} <span class="label" title={source.data.label}>{fit(source.data.label.replace(/^lab /, ""), 36)}</span></>}</p>
        {notes.length > 0 && <button type="button" class="small-button notes-button" aria-expanded={told} onClick={() => setTold(!told)}>{count(notes.length, "note")}</button>}
        <Theme />
        <button type="button" class="icon" aria-label="Keys" aria-expanded={help} onClick={() => setHelp(!help)}>?</button>
      </header>
      {help && <Help tabs={tabs} close={() => setHelp(false)} />}
      <Banner source={source} events={events} notes={told ? notes : []} />
      {!read && (
        <div class="banners">
          <p class="problem" role="alert">The changes in this page’s address are no list of changes; what is shown is the source without them. <a href={href(route.path, { ...route.query, edits: "" })}>Leave them out of the address</a></p>
        </div>
      )}
      {map.error?.field === "node" && route.query.node && (
        <div class="banners">
          <p class="problem" role="alert">There is no node {route.query.node}{data && ": what is shown is as it was"}. <a href={href(route.path, { ...route.query, node: "" })}>Without it</a></p>
        </div>
      )}
      <main id="main" ref={main} tabIndex={-1}>
        {name === "map" && view && <MapView {...shared} />}
        {name === "ask" && view && <AskView {...shared} />}
        {route.path[0] === "services" && view && <ServiceList {...shared} />}
        {route.path[0] === "service" && view && <ServiceView {...shared} />}
        {view?.show && <view.show {...shared} />}
        {!view && source.busy && <section class="view"><h1>{title}</h1><Busy busy words="Reading…" /></section>}
        {!view && !source.busy && <section class="view"><h1>{title}</h1><p>{(!embedded && VIEWS.find((each) => each.name === name)?.needs) || "There is no such view here."} {holds("map") && <a href="#/map">To the map</a>}</p></section>}
      </main>
      <footer>{source.data && <p>{source.data.version}{source.data.created ? ` · source of ${source.data.created}` : ""} · {embedded ? "an exported file: it asks no server, and what needs one says so" : "nothing leaves this machine"}</p>}</footer>
    </>
  );
}

const NO_EDITS = [];
const AHEAD = [layAhead, ...lookAhead, senders, receivers];

/** Makes ready what other views need of a map, while nobody does anything. */
function useAhead(map) {
  useEffect(() => {
    if (!map) return undefined;
    const [ask, forget] = globalThis.requestIdleCallback ? [requestIdleCallback, cancelIdleCallback] : [(work) => setTimeout(work, 200), clearTimeout];
    const left = [...AHEAD];
    let asked = 0;
    const next = () => {
      left.shift()(map);
      if (left.length) asked = ask(next);
    };
    asked = ask(next);
    return () => forget(asked);
  }, [map]);
}

/** What is odd, missing or taken for granted in the source. */
const notesOf = (data) => alike([...(data?.warnings ?? []), ...(data?.missing ?? []), ...(data?.notes ?? []), ...(data?.against?.warnings ?? []), ...(embedded?.missing ?? [])]);

/** What is the same of several nodes is one note, with their names. */
function alike(notes) {
  const found = Map.groupBy(notes, (note) => note.replace(OF_NODE, "nodes/…/"));
  return [...found].map(([text, same]) => (same.length > 1 ? `${text.replace("nodes/…/", "")} (${onNodes([...new Set(same.map((note) => OF_NODE.exec(note)?.[1] ?? ""))].filter(Boolean))})`.replace(" ()", "") : same[0]));
}

const OF_NODE = /^nodes\/([^/\s]+)\//;

/** What must be said of the source before anything it shows: that it is away, and on demand what is to be known of it. */
function Banner({ source, events, notes }) {
  const away = source.data?.away || source.data?.against?.away || events.away;
  return (
    <div class="banners">
      <Problem error={source.error} />
      {away && <p class="problem" role="alert">{away}</p>}
      {source.data?.unseen?.length > 0 && <p class="problem not-seen" role="status"><b>Not seen:</b> {source.data.unseen.slice(0, 3).join("; ")}{source.data.unseen.length > 3 ? `; and ${source.data.unseen.length - 3} more` : ""}. What it may change is open.</p>}
      {notes.length > 0 && (
        <section class="note" aria-label="Notes on this source"><h2>Notes on this source</h2>
          <ul class="hints">{notes.slice(0, 200).map((item) => <li key={item}>{item}</li>)}</ul>
          {notes.length > 200 && <p>{count(notes.length - 200, "more note")}</p>}
        </section>
      )}
    </div>
  );
}

const Logo = () => (
  <svg viewBox="0 0 24 24" width={22} height={22} aria-hidden="true" class="logo">
    <path d="M3 12h6M15 5l-6 7 6 7M9 12h12" /><circle cx={3.5} cy={12} r={2} /><circle cx={20.5} cy={12} r={2} /><circle cx={16} cy={5} r={2} /><circle cx={16} cy={19} r={2} />
  </svg>
);

const systemDark = matchMedia("(prefers-color-scheme: dark)");

/** Light, dark, or as the system says; kept where the browser lets a page keep something. */
function Theme() {
  const [theme, setTheme] = useState(() => remembered());
  useEffect(() => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    try {
      localStorage.setItem("kproxy-theme", theme);
    } catch {
      // Without storage it lasts as long as the page.
    }
  }, [theme]);
  const dark = theme ? theme === "dark" : systemDark.matches;
  return <button type="button" class="icon" aria-label={dark ? "Light colours" : "Dark colours"} onClick={() => setTheme(dark ? "light" : "dark")}>{dark ? "☀" : "☾"}</button>;
}

function remembered() {
  try {
    return localStorage.getItem("kproxy-theme") ?? "";
  } catch {
    return "";
  }
}

function useKeys(tabs, setHelp) {
  useEffect(() => {
    let chord = false;
    const keys = (event) => {
      if (event.key === "Escape") return setHelp(false);
      if (event.altKey || event.ctrlKey || event.metaKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return undefined;
      if (chord) {
        chord = false;
        const tab = tabs.find((item) => item.key === event.key);
        if (tab) {
          event.preventDefault();
          go(href(tab.name));
        }
      } else if (event.key === "g") chord = true;
      else if (event.key === "?") setHelp((open) => !open);
      else if (event.key === "/") {
        const field = document.querySelector("main input");
        if (field) {
          event.preventDefault();
          field.focus();
        }
      }
      return undefined;
    };
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  }, [tabs.map((tab) => tab.name).join(" ")]);
}

function Help({ tabs, close }) {
  const box = useRef(null);
  useEffect(() => box.current?.focus(), []);
  return (
    <section class="help" ref={box} tabIndex={-1} role="dialog" aria-label="Keys">
      <h2>Keys</h2>
      <dl>
        {tabs.map((tab) => <div key={tab.name}><dt><kbd>g</kbd> <kbd>{tab.key}</kbd></dt><dd>{tab.title}</dd></div>)}
        <div><dt><kbd>/</kbd></dt><dd>first field</dd></div>
        <div><dt><kbd>←</kbd> <kbd>→</kbd> <kbd>↑</kbd> <kbd>↓</kbd></dt><dd>on the map: the next thing in that direction; <kbd>Enter</kbd> chooses</dd></div>
        <div><dt><kbd>→</kbd> <kbd>←</kbd> or <kbd>n</kbd> <kbd>p</kbd></dt><dd>in an answer: a step on, a step back</dd></div>
        <div><dt><kbd>n</kbd> <kbd>p</kbd></dt><dd>among findings: the next, the one before</dd></div>
        <div><dt><kbd>N</kbd> <kbd>P</kbd></dt><dd>the next host, the one before</dd></div>
        <div><dt><kbd>Home</kbd> <kbd>End</kbd></dt><dd>the first and the last step</dd></div>
        <div><dt><kbd>?</kbd></dt><dd>this list</dd></div>
      </dl>
      <button type="button" onClick={close}>Close</button>
    </section>
  );
}

keepPlaces();
if (embedded?.start && !location.hash) go(href(embedded.start.path, embedded.start.query), true);
render(<App />, document.getElementById("app"));
