// One real connection: what became of it, whether that is what the model says, and the packet at each place.

import { ENDS, endWords } from "../words.js";

/** The model's way of what was sent; undefined if it is none of those that are listed. */
export const wayOfSent = (data) => data.ask?.journeys[data.journey];

/** What became of it, and where and why it did not arrive; beside that, for it is something else, whether the model says so. */
export function Sent({ data, way = wayOfSent(data), at = null }) {
  const kind = ENDS[data.end]?.kind ?? "open";
  const why = way?.end === data.end && data.end !== "answered" ? endWords(way) : data.answer;
  const agreement = data.agrees && !data.open ? "ok" : data.open ? "open" : "bad";
  const says = { ok: "The capture is what the model says", open: "The model leaves open what happens", bad: "The capture differs from the model" }[agreement];
  return (
    <div class="sent">
      <p class={`outcome-line ${kind}`} role="status"><span aria-hidden="true">{ENDS[data.end]?.mark} </span>{why.charAt(0).toUpperCase() + why.slice(1)}</p>
      <p class={`agreement ${agreement}`}>{says}: <b>{data.same} of {data.hops} hops agree</b>{at && <small> · sent {at.toLocaleTimeString()}</small>}</p>
    </div>
  );
}

/** The packet, a row for each interface, as the model says and as it was captured. */
export function Laid({ rows }) {
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label="Model and capture">
      <table class="laid">
        <caption class="visually-hidden">Model and capture, a row for each place; where they differ the row has both</caption>
        <thead><tr><th scope="col">where</th><th scope="col">packet</th><th scope="col">same</th></tr></thead>
        <tbody>{rows.map((row, place) => <Place key={place} row={row} before={rows[place - 1]} />)}</tbody>
      </table>
    </div>
  );
}

/** One place on the way: what both say in one line; where they differ the row opens, and each has its own. */
function Place({ row, before }) {
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
      <td class="same">{row.same ? "=" : !row.model ? "not expected" : !row.captured ? "not seen" : "differs"}</td>
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
