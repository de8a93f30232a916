// What `kproxy audit` finds, numbered on the map; each with its packet on the map, leading to the Service and the question.

import { useMemo } from "preact/hooks";
import { embedded, holds } from "../api.js";
import { Change, Fates } from "../compare/fates.jsx";
import { useInSight, useSteps } from "../compare/findings.jsx";
import { FoundMap, drawable, onMap } from "../compare/foundmap.jsx";
import { onNodes, podNames, sidesOf, withNames } from "../compare/gather.js";
import { useAudit } from "../map/audited.js";
import { witnessWays } from "../map/waysof.js";
import { FAULT } from "../packet/fault.js";
import { Busy, Later, NotSeen, Problem } from "../parts.jsx";
import { findingAt, href, placeOf } from "../route.js";
import { ServiceLink } from "../servicelink.jsx";
import { count, fit } from "../words.js";

const SEVERITIES = [
  { name: "error", tone: "bad", title: "errors", one: "error" },
  { name: "warning", tone: "open", title: "warnings", one: "warning" },
  { name: "info", tone: "quiet", title: "to know", one: "to know" },
];
const SIDES = sidesOf(["expected", "found"], null);
const MOST = 200;
const FEW_WAYS = 4;
const FEW_LISTED = 6;

export function AuditView({ route, map, source, revision }) {
  const { data, error, busy, checked } = useAudit(map, source, revision);
  const { severity = "" } = route.query;
  const cards = useMemo(() => (data?.findings ?? []).slice(0, MOST).map(cardOf), [data]);
  const shown = useMemo(() => cards.map((card) => ({ ...card, devices: map ? devicesOf(card, map) : null, hidden: Boolean(severity) && card.severity !== severity })), [cards, severity, map]);
  const first = shown.findIndex((card) => !card.hidden);
  const chosen = placeOf(route.query.finding, first < 0 ? "" : String(first));
  const to = (changes) => href("audit", { ...route.query, ...changes });
  const choose = (place) => to({ finding: findingAt(place) || "none" });
  const drawn = Boolean(map && holds("map") && cards.length);
  const card = shown[Number(chosen)] ?? null;
  const found = useMemo(() => waysOf(card?.witness, map), [card?.witness, map]);
  useSteps(shown, chosen, choose);
  return (
    <section class={`view${drawn ? " split compared" : ""}`}>
      <div class="main">
        <div class="bar-top"><h1>Audit</h1>{data && <p class="counts">{count(data.questions, "packet")} judged on {count(data.judged.length, "node")} of {data.nodes.length}</p>}<Busy busy={busy} words={checked?.done ? `Judging all Services: ${checked.done} of ${checked.of} nodes…` : "Judging all Services on all nodes…"} /></div>
        <Problem error={error} />
        <NotSeen items={data?.unseen} />
        {data && data.findings.length === 0 && <p class={data.undecided.length || data.judged.length < data.nodes.length ? "note" : "outcome-line"}>Nothing is wrong with what could be judged{data.undecided.length ? "; not all could" : ""}.</p>}
        {cards.length > 0 && (
          <ul class="score" aria-label="Severities">
            {SEVERITIES.map(({ name, tone, title, one }) => {
              const number = cards.filter((item) => item.severity === name).length;
              return <li key={name} class={number ? tone : ""}><a href={to({ severity: severity === name ? "" : name, finding: "" })} aria-current={severity === name ? "true" : undefined}><b>{number}</b> <span>{number === 1 ? one : title}</span></a></li>;
            })}
          </ul>
        )}
        {drawn && !found.ways && <div class="map-tools"><p class="counts">{card ? `Marked: what finding ${Number(chosen) + 1} is about.` : "The numbers are those of the findings."}</p></div>}
        {drawn && <FoundMap map={map} cards={shown} chosen={card ? chosen : ""} choose={choose} sides={SIDES} found={found} doubted={card?.devices ?? null} hrefOf={onMap} label="Map with the findings marked" />}
      </div>
      <div class="beside">
        <ol class="findings">
          {shown.map((item, place) => !item.hidden && <li key={place}><Finding item={item} place={place} names={podNames(map)} total={data.nodes.length} chosen={String(place) === chosen} open={!drawn || String(place) === chosen} choose={choose} /></li>)}
        </ol>
        {data && data.findings.length > MOST && <p class="note">{count(data.findings.length - MOST, "more finding")}: kproxy audit lists all.</p>}
        <Gaps title="Not decided" items={data?.undecided} />
        <Gaps title="Not known" items={data?.missing} />
      </div>
    </section>
  );
}

/** A finding as the map takes it. */
function cardOf(item) {
  const services = [...new Set(item.services.map((name) => `svc/${name.replace(/:.*/, "")}`))];
  return { ...item, ids: services, names: item.services, services, mark: "", tone: SEVERITIES.find((each) => each.name === item.severity)?.tone ?? "open" };
}

/** The tunnels that a finding names, on its nodes. */
function devicesOf({ nodes, details }, map) {
  const named = new Set(details.flatMap((text) => text.split(/[\s,;]+/)));
  const ids = new Set(nodes.map((name) => `node/${name}`));
  return new Set(map.nodes.filter((node) => ids.has(node.id)).flatMap((node) => (node.tunnels ?? []).filter(({ device }) => named.has(device)).map(({ device }) => `${node.id} ${device}`)));
}

const NO_WAYS = { ways: null };

/** The packet of a finding, as it is expected and as it was found, for `FoundMap`. */
function waysOf(witness, map) {
  if (!witness || !map) return NO_WAYS;
  const ways = witnessWays(witness, witness.node, map);
  return drawable(ways) ? { ways, ask: ways.ask, only: witness.node } : NO_WAYS;
}

function Finding({ item, place, names, total, chosen, open, choose }) {
  const node = item.nodes[0];
  const service = item.names[0]?.replace(/:.*/, "");
  const ask = askOf(item.witness);
  const box = useInSight(chosen, place, 12);
  const words = (list) => withNames(list.join(", "), names);
  return (
    <article ref={box} class={`finding ${item.severity} ${item.tone}${chosen ? " chosen" : ""}`} id={`finding-${place + 1}`}>
      <h3>
        <a class="choose" href={choose(chosen ? "" : String(place))} aria-current={chosen ? "true" : undefined} aria-expanded={open}>
          <span class={`number ${item.tone}`}>{place + 1}</span>
          <span class="head-words"><span class={`found-mark ${item.tone}`}>{item.severity} {onNodes(item.nodes, total)}</span><span class="head-title">{item.title}</span></span>
        </a>
      </h3>
      <p class="where-found">
        {item.names.slice(0, 8).map((name) => <ServiceLink key={name} name={name} node={node} />)}
        {item.names.length > 8 && <span>and {item.names.length - 8} more</span>}
        {!item.names.length && item.nodes.slice(0, 3).map((name) => <a key={name} href={holds("map") ? href("map", { sel: `node/${name}` }) : undefined}>{name}</a>)}
      </p>
      {!open && (item.witness ? <p class="in-short audited-fates"><Change witness={item.witness} names={names} /></p> : item.details.length > 0 && <p class="in-short">{item.details[0]}</p>)}
      {open && (
        <>
          {item.addresses.length > 0 && <p class="packets-to">At {listed(item.addresses)}{item.clients.length ? `, from ${listed(item.clients)}` : ""}</p>}
          {item.details.length > 0 && <ul class="hints">{item.details.slice(0, 6).map((text) => <li key={text}>{text}</li>)}</ul>}
          {item.witness && (
            <dl class="both audited-fates">
              {[item.witness.expected, item.witness.found].map((list, side) => (
                <div key={side} class={side ? "is" : "was"}>
                  <dt>{SIDES[side].words} <Fates witness={item.witness} side={side} names={names} /></dt>
                  {list.length > FEW_WAYS && <dd><Later summary={`each of ${list.length}`}>{() => words(list)}</Later></dd>}
                </div>
              ))}
            </dl>
          )}
          {item.rules.slice(0, 4).map((rule) => <p class="rule-text" key={`${rule.file} ${rule.line}`}><small>{rule.file}{rule.line ? `:${rule.line}` : ""} · {rule.table} {rule.chain}{rule.rule ? ` ${rule.rule}` : ""}</small><code>{rule.text}</code></p>)}
          {item.hint && <p class="do"><b>What to do:</b> {item.hint}</p>}
          <p class="actions">
            {(node || service) && holds("map") && <a class="button small" href={href("map", { sel: service ? `svc/${service}` : `node/${node}`, node: service && !embedded ? node : "" })}>On the map</a>}
            {ask && holds("ask") && <a class="button small" href={ask}>Ask it</a>}
          </p>
          <p class="packets-to">{item.witness && <>{fit(item.witness.packet, 120)} · </>}{item.kind}</p>
        </>
      )}
    </article>
  );
}

/** A witness's packet as a question, opened where it goes wrong. */
const askOf = (witness) => witness && href("ask", { from: witness.from, to: witness.dst, proto: witness.proto, way: wrongOf(witness), step: FAULT });

/** What becomes of a packet that should not, as `wayOf` takes it; "" if nothing does that could not be expected. */
function wrongOf(witness) {
  const [expected, found] = [witness.a, witness.b].map((side) => side.map((each) => each.dst || each.verdict.toLowerCase()));
  return found.find((each) => !expected.includes(each)) ?? "";
}

const listed = (items) => items.slice(0, FEW_LISTED).join(", ") + (items.length > FEW_LISTED ? ` and ${items.length - FEW_LISTED} more` : "");

function Gaps({ title, items }) {
  if (!items?.length) return null;
  return (
    <details class="note"><summary>{title}: {count(items.length, "thing")}</summary>
      <ul class="hints">{items.map((item, place) => <li key={place}><b>{item.what}</b>{item.then ? `: ${item.then}` : ""}{item.why ? ` (${item.why})` : ""}{item.nodes.length ? ` on ${fit(item.nodes.join(", "), 80)}` : ""}{item.count ? `, ${count(item.count, "packet")}` : ""}</li>)}</ul>
    </details>
  );
}
