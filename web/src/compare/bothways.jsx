// One packet on both sides of a comparison: its ways from host to host, or how the node's rules treat it.

import { command, embedded, useAnswer } from "../api.js";
import { FAULT } from "../packet/fault.js";
import { Busy, Chance, End, Problem } from "../parts.jsx";
import { href } from "../route.js";
import { ENDS, count, endOf, endWords, hostId, isLong, plain, sentTo, shortName, whereOf } from "../words.js";
import { outcomesOf } from "./fates.jsx";

const FEW_WAYS = 4;

/** Whether the node's other rules were given to `kproxy migrate`: findings count them, and the cluster of the ways has none. */
export const others = command === "migrate" && embedded.compare?.report?.tried > 0;

/**
 * One packet on both sides: as ways from host to host where these differ, else as the node's rules treat it. A question
 * has neither a packet's state nor its interface, and what differs may be just that.
 */
export function BothWays({ item, sides }) {
  const found = others && item.meetsOthers && item.witness;
  const first = useAnswer(item.asks[0] && !found && "api/ask", questionOf(item.asks[0], sides[0]));
  const second = useAnswer(item.asks[1] && !found && "api/ask", questionOf(item.asks[1], sides[1]));
  const answers = [first, second];
  const busy = answers.some((answer) => answer.busy);
  const [one, other] = answers.map((answer) => answer.data && shownOf(answer.data));
  const alike = Boolean(one) && one === other;
  const asked = !alike || !item.witness;
  const shown = answers.map((answer, each) => (answer.data && asked ? item.asks[each] : null));
  const ask = shown.find(Boolean);
  // Words of the packet whose ways these are: of the question, or of the finding's own.
  const packet = !busy && !shown.every(Boolean) && item.witness && packetWords(item.witness);
  return (
    <div class="both-ways">
      {ask && !busy && <p class="asked-words">{(ask.protocol ?? "").toUpperCase()} from <b>{plain(ask.from)}</b> to <b>{ask.to}</b>{item.witness?.setting ? `, ${item.witness.setting}` : ""}</p>}
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
              {shown[each] ? <SideWays data={answers[each].data} ask={shown[each]} side={side} /> : <WitnessWays outcomes={outcomesOf(item.witness, each)} />}
            </section>
          ))}
        </div>
      )}
    </div>
  );
}

export function questionOf(ask, side) {
  if (!ask) return undefined;
  const question = { from: ask.from, to: ask.to, protocol: ask.protocol };
  if (side.source) question.source = side.source;
  if (side.edits?.length) question.edits = side.edits;
  return question;
}

/** All that is shown of an answer's ways. */
const shownOf = (data) => JSON.stringify(data.journeys.map((way) => [way.probability, endOf(way), whereOf(way), hostsOf(way), way.reason]));

function SideWays({ data, ask, side }) {
  const link = (way) => href("ask", { from: ask.from, to: ask.to, proto: ask.protocol, source: side.source, edits: side.edits?.length ? JSON.stringify(side.edits) : "", way, step: FAULT });
  return (
    <>
      <ol class="ways">
        {data.journeys.slice(0, FEW_WAYS).map((way, place) => (
          <li key={place}>
            <a class={`way-item ${ENDS[way.end]?.kind ?? "open"}`} href={link(place)}>
              <Chance chance={way.probability} kind={ENDS[way.end]?.kind} />
              <End end={endOf(way)} /><span class={isLong(whereOf(way), way) ? "where long" : "where"}>{whereOf(way)}</span>
              <span class="more-words hops-words">{hostsOf(way).map((host, each) => <span key={each}>{each ? "→ " : ""}{host}</span>)}</span>
              {way.end !== "answered" && <span class="more-words">{[sentTo(way) && `sent to ${sentTo(way)}`, endWords(way)].filter(Boolean).join(", ")}</span>}
            </a>
          </li>
        ))}
      </ol>
      {data.journeys.length > FEW_WAYS && <p><a href={link("")}>All {data.journeys.length} ways</a></p>}
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

export function packetWords(packet) {
  if (packet.text) return packet.text;
  return packet.src && packet.dst ? `${packet.proto ?? ""} ${packet.src} → ${packet.dst}${packet.in ? `, arriving on ${packet.in}` : packet.origin === "local" ? ", made on the host" : ""}`.trim() : "";
}
