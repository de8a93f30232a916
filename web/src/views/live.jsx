// A source that lives: what changed, and of a lab one real connection on its map, breaking and healing, and the busiest rules.

import { useCallback, useMemo, useState } from "preact/hooks";
import { get, post } from "../api.js";
import { BusiestRules } from "./busiest.jsx";
import { Faults } from "./faults.jsx";
import { Laid, Sent, wayOfSent } from "./captured.jsx";
import { Drawing, useLayout } from "../map/drawing.jsx";
import { receivers, senders } from "../names.js";
import { Busy, Chance, Close, End, Field, Problem } from "../parts.jsx";
import { go, href } from "../route.js";
import { ENDS, count, endOf, endWords, failsOn, hostId, whereOf } from "../words.js";

const EMPTY = new Set();
const NOTHING = { data: null, error: null, busy: false, at: null, before: null };

export function LiveView({ route, map, source, events, revision }) {
  const { query } = route;
  const layout = useLayout(map, EMPTY);
  const touched = useMemo(() => new Set(events.last.flatMap(idsOf)), [events.last]);
  const to = (changes) => href("live", { ...query, ...changes });
  const hrefOf = useCallback((id) => (id.startsWith("open ") ? href("map", { open: id.slice(5) }) : to({ sel: id })), [route]);
  const [sent, setSent] = useState(NOTHING);
  const { data } = sent;
  const way = data && wayOfSent(data);
  const hops = useMemo(() => (way && layout ? drawable(layout, failsOn(way) === "back" ? way.back : way.there) : null), [way, layout]);
  const lab = source.can?.lab;
  return (
    <section class="view split live">
      <div class="main">
        <div class="bar-top"><h1>Live</h1><p class="counts" role="status" data-test="revision" data-revision={events.revision}>{events.away ? "away" : "following"}</p></div>
        {lab && map && <Send map={map} query={query} to={to} sent={sent} setSent={setSent} counts={source.can.counters !== false} />}
        {map && layout && (
          <Drawing map={map} layout={layout} hrefOf={hrefOf} selected={query.sel ?? ""} touched={touched}
            way={hops} picks={hops ? { from: data.ask.from, to: `svc/${data.service}` } : undefined} lost={ENDS[way?.end]?.kind === "bad" ? hops : null} captured={hops ? data.rows : null} around={lab ? (data ? 290 : 230) : 190}
            label={hops ? "The way of the packet that was sent" : "Map, which follows the source"} />
        )}
        {data && <section class="rules" data-test="captured"><h2>Model and capture</h2><Laid rows={data.rows} /></section>}
        {source.can?.counters !== false && map && <BusiestRules map={map} native={source.modes?.includes("nftables")} since={sent.before} node={query.sel?.startsWith("node/") ? query.sel.slice(5) : ""} />}
      </div>
      <aside class={query.sel ? "panel sheet" : "panel"} aria-label="Ways, changes and faults">
        {query.sel && <Close href={to({ sel: "" })} />}
        {data && <Held data={data} />}
        {lab && map && <Faults map={map} query={query} told={`${revision} ${events.away}`} />}
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
      <small>{item.at.toLocaleTimeString()}</small> {there ? <a href={to({ sel: id })}>{item.name}</a> : item.name}
      {gone && " is gone"}{item.times > 1 && <small> · {item.times} changes</small>}
    </li>
  );
}

/** What on the map a change is about, whose words begin with its kind, or say what happened to a host. */
function idsOf(text) {
  const [kind, name] = text.split(" ");
  const host = /^(?:rules of|interfaces of|the link of|host) (\S+)|^(\S+) is (?:off|on again)$/.exec(text);
  if (host) return [`node/${host[1] ?? host[2]}`];
  if (!name) return [];
  return { Service: [`svc/${name}`], Pod: [`pod/${name}`], pod: [`pod/${name}`], Node: [`node/${name}`], EndpointSlice: [`svc/${name.replace(/-[^-]+$/, "")}`] }[kind] ?? [];
}

/** Asks for one real connection, and says what became of it. */
function Send({ map, query, to, sent, setSent, counts }) {
  const { data, error, busy, at } = sent;
  const send = async (event) => {
    event.preventDefault();
    const given = Object.fromEntries([...new FormData(event.currentTarget)].map(([name, text]) => [name, text.trim()]));
    go(to({ from: given.from, to: given.to }), true);
    setSent({ ...NOTHING, busy: true });
    // Counters are those since this connection; if they cannot be read it is sent all the same.
    const before = counts ? await get("api/counters").catch(() => null) : null;
    try {
      setSent({ ...NOTHING, data: await post("api/lab/follow", given), at: new Date(), before });
    } catch (failure) {
      setSent({ ...NOTHING, error: failure, before });
    }
  };
  return (
    <section class="said-above" data-test="follow" aria-label="One real connection">
      <form class="filters question" onSubmit={send}>
        <Field label="From" name="from" value={query.from ?? ""} options={senders(map)} hint="client or pod/default/web-0" bad={error?.field === "from"} classes="wide" />
        <Field label="To" name="to" value={query.to ?? ""} options={receivers(map)} hint="svc/default/web" bad={error?.field === "to"} classes="wide" />
        <button class="primary" type="submit" disabled={busy}>Send one connection</button>
        {data && <button type="button" onClick={() => setSent(NOTHING)}>Clear</button>}
      </form>
      <Busy busy={busy} words="Sending and capturing…" />
      <Problem error={error} />
      {data && <Sent data={data} at={at} />}
    </section>
  );
}

/** What the model holds possible, and which of it came about. */
function Held({ data }) {
  const ways = data.ask.journeys;
  return (
    <section data-test="held">
      <h2>The model: {count(ways.length, "way")}</h2>
      <ol class="ways">
        {ways.slice(0, MOST_WAYS).map((way, place) => (
          <li key={place} class={`way-item ${ENDS[way.end]?.kind ?? "open"}`} aria-current={place === data.journey ? "true" : undefined}>
            <Chance chance={way.probability} kind={ENDS[way.end]?.kind} /><End end={endOf(way)} /><span class="where long">{whereOf(way)}</span>
            {way.end !== "answered" && <span class="more-words">{endWords(way)}</span>}
            {place === data.journey && <span class="more-words">this one came about</span>}
          </li>
        ))}
      </ol>
      {ways.length > MOST_WAYS && <p class="note">{count(ways.length - MOST_WAYS, "more way")}</p>}
      <p><a href={href("ask", { from: data.ask.from, to: data.ask.to, proto: data.ask.protocol })}>Ask, and step through them</a></p>
    </section>
  );
}

const MOST_WAYS = 8;

/** Hops, if all of their hosts are still on the map. */
const drawable = (layout, hops) => (hops.every((hop) => layout.boxes.has(hostId(hop.host)) || layout.nodeOf.has(hostId(hop.host))) ? hops : null);
