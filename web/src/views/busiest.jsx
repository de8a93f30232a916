// Packets that met rules of a lab, the busiest first.

import { useEffect, useMemo, useState } from "preact/hooks";
import { get } from "../api.js";
import { Later, Problem } from "../parts.jsx";
import { href } from "../route.js";
import { count } from "../words.js";

const SECONDS = 2;
const MOST = 30;

/** Packets and bytes since the last connection that was sent, or since the page asked first: of rules that are about a
 *  Service, and apart from these all others, which a lab's own packets meet all the time. `native`: the proxy is in nftables
 *  mode. */
export function BusiestRules({ map, native, since, node }) {
  const [state, setState] = useState({ first: null, now: null, error: null, on: true });
  useEffect(() => {
    if (since) setState((old) => ({ ...old, first: since }));
  }, [since]);
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
  const services = useMemo(() => new Set(map.services.map((service) => `${service.namespace}/${service.name}`)), [map.services]);
  const rows = useMemo(() => heat(state.first, state.now, node, services), [state.first, state.now, node, services]);
  const [mine, rest] = [rows.filter((row) => row.service), rows.filter((row) => !row.service)];
  const when = since && state.first === since ? "since the last connection was sent" : "since this page counts";
  return (
    <section class="rules" data-test="busiest">
      <div class="bar-top"><h2>Busiest rules{node ? ` of ${node}` : ""} <small>{when}</small></h2><button type="button" onClick={() => setState((old) => ({ ...old, on: !old.on, first: old.on ? old.first : null }))}>{state.on ? "Pause" : "Count from now"}</button></div>
      <Problem error={state.error} />
      {mine.length === 0 && !state.error && <p class="note">{native ? "In nftables mode kube-proxy’s rules for Services count no packets." : `No rule of a Service has met a packet ${when}.`}</p>}
      <Rows rows={mine} />
      {rest.length > 0 && <Later summary={count(rest.length, "other rule")}>{() => <Rows rows={rest} />}</Later>}
    </section>
  );
}

function Rows({ rows }) {
  const most = Math.max(1, ...rows.map((row) => row.packets));
  return (
    <ol class="heat">
      {rows.slice(0, MOST).map((row) => (
        <li key={`${row.node} ${row.rule}`}>
          <svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true"><rect width={(row.packets / most) * 100} height={6} /></svg>
          <b>{count(row.packets, "packet")}</b> <small>{count(row.bytes, "byte")}</small> <span>{row.node}</span>{" "}
          {row.comment ? <Comment row={row} /> : row.service && <Comment row={{ ...row, comment: row.service }} />} <code>{row.rule}</code>
        </li>
      ))}
    </ol>
  );
}

/** What a rule says of itself, with its Service as a link. */
function Comment({ row: { comment, service } }) {
  const at = service ? comment.indexOf(service) : -1;
  if (at < 0) return <span>{comment}</span>;
  return <span>{comment.slice(0, at)}<a href={href(["service", ...service.split("/")])}>{service}</a>{comment.slice(at + service.length)}</span>;
}

function heat(first, now, node, services) {
  const rows = [];
  for (const [name, rules] of Object.entries(now ?? {})) {
    if (node && name !== node) continue;
    for (const [rule, [packets, bytes, comment]] of Object.entries(rules)) {
      let [before, less] = first?.[name]?.[rule] ?? [0, 0];
      if (packets < before) [before, less] = [0, 0]; // its chain was written anew since, and counts from 0
      if (packets > before) rows.push({ node: name, rule, packets: packets - before, bytes: bytes - less, comment, service: serviceIn(comment, services) || serviceIn(rule, services) });
    }
  }
  return rows.sort((one, other) => other.packets - one.packets);
}

/** The Service that a rule's comment names, or in nftables mode its chain; "" if none. */
function serviceIn(text, services) {
  const found = text.replace(/\b(service|endpoint|external|firewall)-[0-9A-Z]{8}-/, "").matchAll(/[a-z0-9][a-z0-9.-]*\/[a-z0-9][a-z0-9-]*/g);
  return [...found].map(([name]) => name).find((name) => services.has(name)) ?? "";
}
