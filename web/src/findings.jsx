// What a comparison found: each finding with both ways, and the question that shows it.

import { href } from "./route.js";
import { count, fit, plain } from "./words.js";

const MOST = 200;

/**
 * @param sides words for the two, "now" and "then"
 * @param edits of the second side, for its question
 */
export function Findings({ findings, sides, edits = "", chosen = "", choose }) {
  if (!findings.length) return null;
  return (
    <ol class="findings">
      {findings.slice(0, MOST).map((item, place) => (
        <li key={place}>
          <article class={`finding${String(place) === chosen ? " chosen" : ""}`}>
            <h3>
              <span class="number">{place + 1}</span> {item.destinations?.length && item.before ? `Packets to ${item.destinations.join("; ")}` : item.statement}
            </h3>
            <p class="where-found">
              {(item.services ?? []).map((id) => <a key={id} href={href(["service", ...plain(id).split("/")])}>{plain(id)}</a>)}
              {item.nodes?.length > 0 && <span> on {fit(item.nodes.join(", "), 80)}</span>}
              {item.from && <span> · from {item.from}</span>}
              {item.conditions && <span> · {item.conditions}</span>}
            </p>
            {item.advice?.length > 0 && <ul class="hints">{item.advice.map((text) => <li key={text}>{text}</li>)}</ul>}
            <dl class="both">
              <div><dt>{sides[0]}</dt><dd>{item.before}</dd></div>
              <div><dt>{sides[1]}</dt><dd>{item.after}</dd></div>
            </dl>
            <p class="actions">
              {choose && <a class="button small" href={choose(String(place) === chosen ? "" : String(place))} aria-current={String(place) === chosen ? "true" : undefined}>{String(place) === chosen ? "Shown on the map" : "Show on the map"}</a>}
              {item.ask && <a class="button small" href={href("ask", { from: item.ask.from, to: item.ask.to, proto: item.ask.protocol })}>The way {sides[0]}</a>}
              {item.ask && edits && <a class="button small" href={href("ask", { from: item.ask.from, to: item.ask.to, proto: item.ask.protocol, edits })}>The way {sides[1]}</a>}
            </p>
          </article>
        </li>
      ))}
      {findings.length > MOST && <li class="note">{count(findings.length - MOST, "more finding")}: kproxy diff lists all.</li>}
    </ol>
  );
}

export function Undecided({ items }) {
  if (!items?.length) return null;
  return (
    <details class="note"><summary>{count(items.length, "thing")} could not be decided</summary>
      <ul class="hints">{items.slice(0, 200).map((item, place) => <li key={place}>{[item.node, item.where].filter(Boolean).join(" ")}: {item.reason}</li>)}</ul>
    </details>
  );
}
