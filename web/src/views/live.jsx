// A source that lives: what changed, the rules' counters as heat, and of a lab breaking, healing and one real connection.

import { useCallback, useEffect, useMemo, useState } from "preact/hooks";
import { get, post } from "../api.js";
import { Drawing, useLayout } from "../map/drawing.jsx";
import { receivers, senders } from "../names.js";
import { Busy, Close, Field, Problem } from "../parts.jsx";
import { go, href } from "../route.js";
import { count, plain } from "../words.js";

const EMPTY = new Set();
const SECONDS = 2;

export function LiveView({ route, map, source, events, revision }) {
  const { query } = route;
  const layout = useLayout(map, EMPTY);
  const touched = useMemo(() => new Set(events.last.flatMap(idsOf)), [events.last]);
  const to = (changes) => href("live", { ...query, ...changes });
  const hrefOf = useCallback((id) => (id.startsWith("open ") ? href("map", { open: id.slice(5) }) : to({ sel: id })), [route]);
  const lab = source.can?.lab;
  return (
    <section class="view split">
      <div class="main">
        <div class="bar-top"><h1>Live</h1><p class="counts" role="status" data-test="revision">{events.away ? "away" : `following · revision ${events.revision}`}</p></div>
        {map && layout && <Drawing map={map} layout={layout} hrefOf={hrefOf} selected={query.sel ?? ""} touched={touched} label="Map, which follows the source" />}
        {lab && map && <Follow map={map} query={query} to={to} />}
        {source.can?.counters !== false && <Heat revision={revision} node={query.sel?.startsWith("node/") ? query.sel.slice(5) : ""} />}
      </div>
      <aside class={query.sel ? "panel sheet" : "panel"} aria-label="Changes and faults">
        {query.sel && <Close href={to({ sel: "" })} />}
        {lab && map && <Faults sel={query.sel ?? ""} />}
        <h2>What changed</h2>
        {events.log.length === 0 && <p class="note">Nothing since this page was opened.</p>}
        <ol class="plain" aria-live="polite" data-test="log">
          {events.log.map((item) => <Change key={item.name} item={item} map={map} to={to} />)}
        </ol>
      </aside>
    </section>
  );
}

/** What changed, as a link to where it is on the map; what is not there any more says so. */
function Change({ item, map, to }) {
  const [id] = idsOf(item.name);
  const there = id && map && [map.pods, map.nodes, map.services].some((list) => list.some((each) => each.id === id));
  const gone = id && map?.revision >= item.revision && !there && !item.name.startsWith("EndpointSlice");
  return (
    <li>
      <small>{item.at.toLocaleTimeString()}</small> {there ? <a href={to({ sel: id })}>{item.name}</a> : item.name.replace(/^host /, "rules or links of ")}
      {gone && " is gone"}{item.times > 1 && <small> · {item.times} changes</small>}
    </li>
  );
}

function idsOf(text) {
  const [kind, name] = text.split(" ");
  if (!name) return [];
  return { Service: [`svc/${name}`], Pod: [`pod/${name}`], Node: [`node/${name}`], EndpointSlice: [`svc/${name.replace(/-[^-]+$/, "")}`] }[kind] ?? [];
}

/** Breaks and heals nodes, links and Pods of a lab. */
function Faults({ sel }) {
  const [said, setSaid] = useState(null);
  const [busy, setBusy] = useState(false);
  const node = sel.startsWith("node/") ? sel.slice(5) : "";
  const pod = sel.startsWith("pod/") ? plain(sel) : "";
  const act = async (verb, kind, name) => {
    setBusy(true);
    setSaid(null);
    try {
      setSaid({ words: (await post(`api/lab/${verb}`, { kind, name })).done });
    } catch (error) {
      setSaid({ error });
    }
    setBusy(false);
  };
  const pair = (kind, name, words) => (
    <p class="fault" key={kind}>
      <span>{words}</span>
      <button type="button" class="breaks" disabled={busy} aria-label={`Break ${words}`} onClick={() => act("fail", kind, name)}>Break</button>
      <button type="button" disabled={busy} aria-label={`Heal ${words}`} onClick={() => act("heal", kind, name)}>Heal</button>
    </p>
  );
  return (
    <section data-test="faults">
      <h2>Break and heal</h2>
      {!node && !pod && <p>Choose a node or a Pod on the map.</p>}
      {node && <>{pair("link", node, `the link of ${node}`)}{pair("node", node, `node ${node}`)}</>}
      {pod && pair("pod", pod, `Pod ${pod}`)}
      <Busy busy={busy} words="Working…" />
      {said?.words && <p class="note" role="status">{said.words}</p>}
      <Problem error={said?.error} />
    </section>
  );
}

/** One real connection through the lab, captured, beside what the model says: one row a place. */
function Follow({ map, query, to }) {
  const [state, setState] = useState({ data: null, error: null, busy: false });
  const follow = async (event) => {
    event.preventDefault();
    const given = Object.fromEntries(new FormData(event.currentTarget));
    go(to({ from: given.from, to: given.to }), true);
    setState({ data: null, error: null, busy: true });
    try {
      setState({ data: await post("api/lab/follow", { from: given.from, to: given.to }), error: null, busy: false });
    } catch (error) {
      setState({ data: null, error, busy: false });
    }
  };
  const { data } = state;
  return (
    <section class="rules" data-test="follow">
      <div class="bar-top"><h2>One real connection</h2><Busy busy={state.busy} words="Sending and capturing…" /></div>
      <form class="filters" onSubmit={follow}>
        <Field label="From" name="from" value={query.from ?? ""} options={senders(map)} classes="wide" />
        <Field label="To" name="to" value={query.to ?? ""} options={receivers(map)} classes="wide" />
        <button class="primary" type="submit" disabled={state.busy}>Send it</button>
      </form>
      <Problem error={state.error} />
      {data && <Captured data={data} />}
    </section>
  );
}

/** What was captured of one connection, a row for each interface, beside what the model says. */
export function Captured({ data }) {
  return (
    <>
      <p class={`outcome-line ${data.agrees ? "" : data.open ? "open" : "bad"}`}>{data.agrees ? "The capture is what the model says:" : data.open ? "What the model leaves open, the capture shows:" : "The capture differs from the model:"} {data.answer}</p>
      <div class="scroll" tabIndex={0} role="group" aria-label="Model and capture">
        <table class="laid">
          <caption class="visually-hidden">Model and capture, a row for each place; where they differ the row has both</caption>
          <thead><tr><th scope="col">where</th><th scope="col">packet</th></tr></thead>
          <tbody>{data.rows.map((row, place) => <Laid key={place} row={row} before={data.rows[place - 1]} />)}</tbody>
        </table>
      </div>
    </>
  );
}

/** One place on the way: what both say in one line; where they differ the row opens, and each has its own. */
function Laid({ row, before }) {
  const turns = row.direction === "back" && before?.direction !== "back";
  return (
    <tr class={`${row.same ? "" : "differs"}${turns ? " turns" : ""}`}>
      <th scope="row"><span aria-hidden="true">{row.direction === "back" ? "← " : "→ "}</span>{row.place.replace(/^pod\/[^/]+\//, "")}{turns && <small> the answer</small>}</th>
      <td>
        {row.same ? <Seen text={row.model ?? row.captured} before={turns ? "" : (before?.model ?? before?.captured)} /> : (
          <dl class="apart">
            <div><dt>model</dt><dd><Seen text={row.model} /></dd></div>
            <div><dt>captured</dt><dd><Seen text={row.captured} before={row.model} /></dd></div>
          </dl>
        )}
      </td>
    </tr>
  );
}

const SEEN = /^(\S+) -> (\S+)(?:\s+in (.+))?$/;

/** A packet's header in one line; lit is what is another one than before, and what is around it in a tunnel stands apart. */
function Seen({ text, before = "" }) {
  const found = SEEN.exec(text ?? "");
  if (!found) return <code>{text ?? "no packet here"}</code>;
  const was = SEEN.exec(before ?? "");
  const [src, dst] = [1, 2].map((place) => (was && was[place] !== found[place] ? <mark>{found[place]}</mark> : found[place]));
  return <span class="seen"><code>{src} → {dst}</code>{found[3] && <span class="tunnelled"><span class="visually-hidden"> in </span>{found[3].replace("->", "→")}</span>}</span>;
}

/** Packets and bytes of rules since the page asked first, the busiest first. */
function Heat({ node }) {
  const [state, setState] = useState({ first: null, now: null, error: null, on: true });
  useEffect(() => {
    if (!state.on) return undefined;
    let stop = false;
    let timer = 0;
    const ask = async () => {
      try {
        const now = await get("api/counters");
        if (!stop) setState((old) => ({ ...old, first: old.first ?? now, now, error: null }));
      } catch (error) {
        if (!stop) setState((old) => ({ ...old, error }));
      }
      if (!stop) timer = setTimeout(ask, SECONDS * 1000);
    };
    ask();
    return () => {
      stop = true;
      clearTimeout(timer);
    };
  }, [state.on]);
  const rows = useMemo(() => heat(state.first, state.now, node), [state.now, node]);
  const most = Math.max(1, ...rows.map((row) => row.packets));
  return (
    <section class="rules">
      <div class="bar-top"><h2>Busiest rules{node ? ` of ${node}` : ""}</h2><button type="button" onClick={() => setState((old) => ({ ...old, on: !old.on, first: old.on ? old.first : null }))}>{state.on ? "Pause" : "Count from now"}</button></div>
      <Problem error={state.error} />
      {rows.length === 0 && !state.error && <p class="note">No rule has met a packet since this page was opened.</p>}
      <ol class="heat">
        {rows.slice(0, 30).map((row) => (
          <li key={`${row.node} ${row.rule}`}>
            <svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true"><rect width={(row.packets / most) * 100} height={6} /></svg>
            <b>{count(row.packets, "packet")}</b> <small>{count(row.bytes, "byte")}</small> <span>{row.node}</span> <code>{row.rule}</code>
          </li>
        ))}
      </ol>
    </section>
  );
}

function heat(first, now, node) {
  const rows = [];
  for (const [name, rules] of Object.entries(now ?? {})) {
    if (node && name !== node) continue;
    for (const [rule, [packets, bytes]] of Object.entries(rules)) {
      const before = first?.[name]?.[rule] ?? [0, 0];
      if (packets > before[0]) rows.push({ node: name, rule, packets: packets - before[0], bytes: bytes - before[1] });
    }
  }
  return rows.sort((one, other) => other.packets - one.packets);
}


