// What a comparison found: each finding with both sides in words, and on demand with the ways of one packet on both.

import { useState } from "preact/hooks";
import { command, embedded, useAnswer } from "./api.js";
import { Busy, Chance, End, Problem } from "./parts.jsx";
import { href } from "./route.js";
import { ENDS, count, endOf, fit, hostId, plain, shortName, whereOf } from "./words.js";

const MOST = 100;
const FEW_WAYS = 4;
const NAMED = 8;

/**
 * Findings of all comparisons in one form. Those of the same Services and nodes that say the same of both sides are one
 * finding with several destinations.
 *
 * @returns {services, more (Services that are not listed), nodes, packets: [{destinations, from, conditions}], before, after, title, advice, asks, witness}
 */
export function gathered(findings, asks = []) {
  const found = new Map();
  findings.forEach((item, place) => {
    const services = (item.services ?? []).map((name) => (name.startsWith("svc/") ? name : `svc/${name.replace(/:[^/]*$/, "")}`));
    const packet = { destinations: item.destinations ?? [], from: item.from ?? "", conditions: item.conditions ?? "" };
    const one = {
      services, more: item.more ?? 0, nodes: item.nodes ?? [], packets: packet.destinations.length ? [packet] : [], before: item.before ?? item.today ?? "", after: item.after ?? item.then ?? "",
      meetsOthers: /^(foreign-|host-firewall$)/.test(item.reason ?? ""),
      title: packet.destinations.length ? "" : (item.statement ?? item.title ?? ""), advice: item.advice ?? [], asks: item.asks ?? asks[place] ?? [], witness: item.witness ?? null, cause: item.cause ?? null,
    };
    const key = one.title ? String(place) : JSON.stringify([services, one.nodes, one.before, one.after]);
    const known = found.get(key);
    if (known) known.packets.push(...one.packets);
    else found.set(key, one);
  });
  return [...found.values()];
}

/** Both sides of an answer, with the words for them: what `source` and `edits` ask of each. */
export const sidesOf = (words, answer) => words.map((each, place) => ({ words: each, source: answer?.sides?.[place]?.source ?? "", edits: answer?.sides?.[place]?.edits ?? [] }));

/**
 * @param findings as `gathered` gives them
 * @param sides two of {words, source, edits}
 * @param names of addresses, for people
 * @param choose where a finding leads to, to be marked on the map; without it there is no map
 */
export function Findings({ findings, sides, names = new Map(), chosen = "", choose = null }) {
  if (!findings.length) return null;
  return (
    <ol class="findings">
      {findings.slice(0, MOST).map((item, place) => (
        <li key={place}><Finding item={item} place={place} sides={sides} names={names} chosen={String(place) === chosen} choose={choose} /></li>
      ))}
      {findings.length > MOST && <li class="note">{count(findings.length - MOST, "more finding")}: the commands list all.</li>}
    </ol>
  );
}

function Finding({ item, place, sides, names, chosen, choose }) {
  const [open, setOpen] = useState(false);
  const [first, ...rest] = item.packets;
  const unnamed = item.services.length + item.more - NAMED;
  const whose = item.services.length > 0 && (
    <>
      {item.services.slice(0, NAMED).map((id) => (embedded ? <span key={id}>{plain(id)}</span> : <a key={id} href={href(["service", ...plain(id).split("/")])}>{plain(id)}</a>))}
      {unnamed > 0 && <span>and {unnamed} more</span>}
    </>
  );
  const packets = first ? `Packets to ${first.destinations.join("; ")}` : "";
  const shown = item.asks.some(Boolean) || item.witness;
  const said = [item.before, item.after].map((text) => (text ? named(text, names) : ""));
  return (
    <article class={`finding${chosen ? " chosen" : ""}`}>
      <h3><span class="number">{place + 1}</span> {item.title || (whose ? <span class="whose">{whose}</span> : packets || "A difference")}</h3>
      <p class="where-found">
        {item.title ? whose : whose && packets && <span>{packets}</span>}
        {item.nodes.length > 0 && <span>on {fit(item.nodes.join(", "), 80)}</span>}
        {first && <PacketWords packet={first} />}
      </p>
      {rest.length > 0 && (
        <details><summary>and {count(rest.length, "more kind")} of packets, with the same difference</summary>
          <ul class="hints">{rest.map((packet, each) => <li key={each}>to {packet.destinations.join("; ")} <PacketWords packet={packet} /></li>)}</ul>
        </details>
      )}
      <dl class="both">
        {sides.map((side, each) => <div key={each}><dt>{side.words}</dt><dd>{said[each] || "–"}</dd></div>)}
      </dl>
      {item.cause && <p><small>{sides[item.cause.side === "b" ? 1 : 0].words} · {item.cause.table} {item.cause.chain} {item.cause.rule}</small><br /><code>{item.cause.text}</code></p>}
      {item.advice.length > 0 && <p class="do"><b>What to do:</b> {item.advice.join(" ")}</p>}
      <p class="actions">
        {shown && <button type="button" class="small-button" aria-expanded={open} onClick={() => setOpen(!open)}>{open ? "Hide both ways" : "Show both ways"}</button>}
        {choose && <a class="button small" href={choose(chosen ? "" : String(place))} aria-current={chosen ? "true" : undefined}>{chosen ? "Marked on the map" : "Mark on the map"}</a>}
      </p>
      {open && <BothWays item={item} sides={sides} />}
    </article>
  );
}

const PacketWords = ({ packet }) => <>{packet.from && <span>from {packet.from}</span>} {packet.conditions && <span>{packet.conditions}</span>}</>;

/** Puts a Pod's name beside its address. */
function named(text, names) {
  return text.replace(/\[?([0-9a-f]*[.:][0-9a-f.:]*[0-9a-f])\]?:\d+/gi, (whole, address) => (names.has(address) ? `${names.get(address)} (${whole})` : whole));
}

/** The Pods' names by address, for words about packets. */
export function podNames(...maps) {
  const found = new Map();
  for (const map of maps) for (const pod of map?.pods ?? []) if (!pod.bare && !pod.hostNetwork) for (const address of pod.addresses) found.set(address, pod.name);
  return found;
}

/** Whether the node's other rules were given to `kproxy migrate`: findings count them, and the cluster of the ways has none. */
const others = command === "migrate" && embedded.compare?.report?.tried > 0;

/**
 * One packet on both sides: as ways from host to host where these differ, else as the node's rules treat it. A question
 * has neither a packet's state nor its interface, and what differs may be just that.
 */
function BothWays({ item, sides }) {
  const packet = item.witness && packetWords(item.witness);
  const found = others && item.meetsOthers && item.witness;
  const first = useAnswer(item.asks[0] && !found && "api/ask", questionOf(item.asks[0], sides[0]));
  const second = useAnswer(item.asks[1] && !found && "api/ask", questionOf(item.asks[1], sides[1]));
  const answers = [first, second];
  const busy = answers.some((answer) => answer.busy);
  const [one, other] = answers.map((answer) => answer.data && shownOf(answer.data));
  const alike = Boolean(one) && one === other;
  const asked = !alike || !item.witness;
  return (
    <div class="both-ways">
      {packet && <p class="asked-words">One such packet: <code>{packet}</code></p>}
      {others && <p class="note">{found ? "With the node’s other rules, which this finding is about." : "With kube-proxy’s rules alone: the node’s other rules, which were given, are not in these ways."}</p>}
      {alike && <p class="note">{item.witness ? `From host to host both sides look alike. What differs is this packet as ${item.nodes[0] ?? "the node"} meets it.` : "From host to host both sides look alike."}</p>}
      <Busy busy={busy} words="Asking…" />
      {!busy && (
        <div class="pair">
          {sides.map((side, each) => (
            <section key={each}>
              <h4><b>{side.words}</b></h4>
              <Problem error={answers[each].error} />
              {answers[each].data && asked ? <SideWays data={answers[each].data} ask={item.asks[each]} side={side} /> : <WitnessWays outcomes={outcomesOf(item.witness, each)} />}
            </section>
          ))}
        </div>
      )}
    </div>
  );
}

function questionOf(ask, side) {
  if (!ask) return undefined;
  const question = { from: ask.from, to: ask.to, protocol: ask.protocol };
  if (side.source) question.source = side.source;
  if (side.edits?.length) question.edits = side.edits;
  return question;
}

/** All that is shown of an answer's ways. */
const shownOf = (data) => JSON.stringify(data.journeys.map((way) => [way.probability, endOf(way), whereOf(way), hostsOf(way), way.reason]));

function SideWays({ data, ask, side }) {
  const link = (way) => href("ask", { from: ask.from, to: ask.to, proto: ask.protocol, source: side.source, edits: side.edits?.length ? JSON.stringify(side.edits) : "", way: way || "" });
  return (
    <>
      <ol class="ways">
        {data.journeys.slice(0, FEW_WAYS).map((way, place) => (
          <li key={place}>
            <a class={`way-item ${ENDS[way.end]?.kind ?? "open"}`} href={link(place)}>
              <Chance chance={way.probability} kind={ENDS[way.end]?.kind} />
              <End end={endOf(way)} /><span class={whereOf(way).length > 14 ? "where long" : "where"}>{whereOf(way)}</span>
              <span class="more-words hops-words">{hostsOf(way).join(" → ")}{way.reason ? `: ${way.reason}` : ""}</span>
            </a>
          </li>
        ))}
      </ol>
      {data.journeys.length > FEW_WAYS && <p><a href={link(0)}>All {data.journeys.length} ways</a></p>}
    </>
  );
}

const hostsOf = (way) => (way.there ?? []).map((hop) => shortName(hostId(hop.host)));

/** What `kproxy diff` says of one packet on one side. */
function WitnessWays({ outcomes }) {
  if (!outcomes?.length) return <p class="note">Nothing is known of this side.</p>;
  return (
    <ol class="ways">
      {outcomes.slice(0, 12).map((outcome, place) => {
        const kind = { ACCEPT: "ok", INDETERMINATE: "open" }[outcome.verdict] ?? "bad";
        return (
          <li key={place} class={`way-item ${kind}`}>
            <Chance chance={outcome.probability ?? outcome.chance} kind={kind} />
            <span class={`ending ${kind}`}>{outcome.verdict}</span><span class="where">{outcome.dst ?? ""}</span>
            {(outcome.text ?? outcome.src) && <span class="more-words">{outcome.text ?? `from ${outcome.src}`}</span>}
            {outcome.path?.length > 0 && (
              <details class="more-words"><summary>{count(outcome.path.length, "rule")}</summary>
                <ol class="plain">{outcome.path.map((rule, each) => <li key={each}>{typeof rule === "string" ? rule : <>{rule.table} {rule.chain} {rule.rule}<br /><code>{rule.text}</code></>}</li>)}</ol>
              </details>
            )}
          </li>
        );
      })}
    </ol>
  );
}

/** What becomes of a witness's packet on one side, as `kproxy diff` and `kproxy migrate` have it. */
const outcomesOf = (witness, side) => (side ? (witness?.b ?? witness?.then) : (witness?.a ?? witness?.today));

function packetWords(packet) {
  if (packet.text) return packet.text;
  return packet.src && packet.dst ? `${packet.proto ?? ""} ${packet.src} → ${packet.dst}${packet.in ? `, arriving on ${packet.in}` : packet.origin === "local" ? ", made on the host" : ""}`.trim() : "";
}

export function Undecided({ items }) {
  if (!items?.length) return null;
  return (
    <details class="note"><summary>{count(items.length, "thing")} could not be decided</summary>
      <ul class="hints">{items.slice(0, 200).map((item, place) => <li key={place}>{[item.node, item.where].filter(Boolean).join(" ")}: {item.reason}</li>)}</ul>
    </details>
  );
}
