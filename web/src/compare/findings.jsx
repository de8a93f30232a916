// What a comparison found: a list of causes, of which the chosen one says which packets it concerns, with both sides.

import { useEffect, useRef, useState } from "preact/hooks";
import { go, href, useRoute } from "../route.js";
import { ServiceLink } from "../servicelink.jsx";
import { count, plain } from "../words.js";
import { BothWays } from "./bothways.jsx";
import { Change, Fates } from "./fates.jsx";
import { GROUPS, briefNames, kindsOf, onNodes, packetWords, sideWords } from "./gather.js";
import { RuleLines } from "./rulelines.jsx";

/** So many are shown. */
export const MOST = 100;
const NAMED = 8;
const FEW_PARTS = 1;
const FEW_LINES = 1;
/** So few are all open. */
const FEW_OPEN = 2;

/**
 * @param findings cards as `gathered` gives them
 * @param sides two of {words, source, edits}
 * @param names of addresses, for people
 * @param chosen the place of the card that is open; without `choose` all are
 * @param choose where a card's heading leads to
 * @param total how many nodes there are
 */
export function Findings({ findings, sides, names = new Map(), chosen = "", choose = null, total = 0 }) {
  useSteps(findings, chosen, choose);
  if (!findings.length) return null;
  const shown = findings.slice(0, MOST).map((item, place) => [item, place]);
  const groups = GROUPS.filter((group) => findings.some((item) => item.group === group.name));
  const list = (items, first) => items.length > 0 && (
    <ol class="findings" start={first + 1}>
      {items.map(([item, place]) => <li key={place}><Finding item={item} place={place} sides={sides} names={names} total={total} open={!choose || findings.length <= FEW_OPEN || String(place) === chosen} chosen={String(place) === chosen} choose={choose} /></li>)}
    </ol>
  );
  return (
    <>
      {list(shown.filter(([item]) => !item.group), 0)}
      {groups.map((group) => {
        const items = shown.filter(([item]) => item.group === group.name);
        return <section key={group.name} class="finding-group"><h2>{group.title} <small>{group.words}</small></h2>{list(items, items[0]?.[1] ?? 0)}</section>;
      })}
      <More left={findings.length - MOST} />
    </>
  );
}

export const More = ({ left }) => left > 0 && <p class="note">{count(left, "more finding")}: the commands list all.</p>;

/** `n` and `p` go through the findings. */
export function useSteps(findings, chosen, choose) {
  const keys = useRef(null);
  keys.current = (event) => {
    if (!choose || event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    const offset = { n: 1, p: -1 }[event.key];
    const last = Math.min(findings.length, MOST) - 1;
    if (!offset || last < 0) return;
    event.preventDefault();
    let next = /^\d+$/.test(chosen) ? Number(chosen) + offset : offset > 0 ? 0 : last;
    while (findings[next]?.hidden) next += offset;
    if (next >= 0 && next <= last) go(choose(String(next)), true);
  };
  useEffect(() => {
    const pressed = (event) => keys.current(event);
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}

/** The element of a card that comes into sight when it is chosen on the map, or by keys, where cards are beside the map;
 *  `above`: how much is seen of what stands before it. */
export function useInSight(here, place, above) {
  const box = useRef(null);
  useEffect(() => {
    const list = box.current?.closest(".beside, .panel");
    if (!here || !list || list.scrollHeight <= list.clientHeight) return;
    const { offsetTop: top, offsetHeight: tall } = box.current;
    if (place === 0) list.scrollTop = 0;
    else if (top < list.scrollTop || top + tall > list.scrollTop + list.clientHeight) list.scrollTop = top - above;
  }, [here]);
  return box;
}

function Finding({ item, place, sides, names, total, open, chosen, choose }) {
  const here = chosen && Boolean(choose);
  const box = useInSight(here, place, 46);
  const unnamed = item.services.length + item.more - NAMED;
  const whose = item.services.length > 0 && (
    <span class="whose">
      {item.services.slice(0, NAMED).map((id) => <ServiceLink key={id} name={plain(id)} />)}
      {unnamed > 0 && <span>and {unnamed} more</span>}
    </span>
  );
  const nodes = onNodes(item.nodes, total);
  const [first] = item.parts;
  const heading = (
    <>
      <span class={`number ${item.tone}`}>{place + 1}</span>
      <span class="head-words">
        {item.mark && <span class={`found-mark ${item.tone}`}>{item.mark} {nodes}</span>}
        <span class="head-title">{item.title}</span>
        {item.harm && item.reason && <span class="head-rule"><code>{item.reason}</code></span>}
        {item.culprit && <span class="head-rule"><Broken text={item.culprit} /></span>}
      </span>
    </>
  );
  return (
    <article ref={box} id={`finding-${place + 1}`} class={`finding ${item.tone}${here ? " chosen" : ""}${open ? " open-card" : ""}`}>
      <h3>{choose ? <a class="choose" href={choose(here ? "" : String(place))} aria-current={here ? "true" : undefined} aria-expanded={open}>{heading}</a> : <span class="choose">{heading}</span>}</h3>
      {(whose || !item.mark) && <p class="where-found">{whose}{item.ports && <span>{item.ports}</span>}{!item.mark && nodes && <span>{nodes}</span>}{item.parts.length > 1 && !item.advice.length && !open && <span>{kindsOf(item.parts, item.nodes)}</span>}</p>}
      {item.harm && <p class={`harm ${item.tone}`}>{item.harm.words}</p>}
      {open ? <Details item={item} place={place} sides={sides} names={names} /> : <p class="in-short">{item.advice.length ? <Change witness={first.witness} names={names} service={first.services.length > 0} /> : inShort(first, names)}</p>}
      {!open && item.advice.length > 0 && <p class="in-short do"><b>What to do:</b> {item.do}</p>}
    </article>
  );
}

/** Long names of chains may be broken where a name has a dash. */
const Broken = ({ text }) => text.split(/(?<=-)/).map((part, place) => <>{place > 0 && <wbr />}{part}</>);

/** Both sides of the most usual packets, in one line. */
function inShort(part, names) {
  const [one, other] = [0, 1].map((side) => briefNames(sideWords(part, side, names)));
  return <>{one} <span class="arrow">→</span> <b>{other}</b></>;
}

function Details({ item, place, sides, names }) {
  const { path, query } = useRoute();
  const open = query.both === String(place);
  const [all, setAll] = useState(false);
  const [first] = item.parts;
  const told = together(item.parts);
  const shown = all ? told : told.slice(0, FEW_PARTS);
  return (
    <>
      {shown.map(([said, parts], place) => <Part key={place} said={said} parts={parts} sides={sides} names={names} titled={!first.destinations.length} nodes={item.nodes} />)}
      {told.length > FEW_PARTS && <p><button type="button" class="small-button" aria-expanded={all} onClick={() => setAll(!all)}>{all ? "Fewer packets" : `${kindsOf(told.slice(FEW_PARTS).flatMap(([, parts]) => parts), item.nodes, "more ")}, treated otherwise`}</button></p>}
      {item.rule && <RuleLines rule={item.rule} sides={sides} />}
      {item.remedy && <p class="do"><b>What to do:</b> <Coded text={item.remedy} /></p>}
      {item.advice.length > 0 && <p class="do"><b>What to do:</b> {item.advice.join(" ")}</p>}
      {item.config && <p class="rule-text"><code class="to-copy">{item.config}</code></p>}
      {(first.asks.some(Boolean) || first.witness) && <p class="actions"><button type="button" class="small-button" aria-expanded={open} onClick={() => go(href(path, { ...query, both: open ? "" : place }))}>{open ? "Hide both ways" : "Show both ways"}</button></p>}
      {open && <BothWays item={first} sides={sides} />}
    </>
  );
}

/** Words with commands between backticks. */
const Coded = ({ text }) => text.split("`").map((part, place) => (place % 2 ? <code key={place}>{part}</code> : part));

/** Parts that say the same of both sides, together. */
function together(parts) {
  const found = new Map();
  for (const part of parts) {
    const key = JSON.stringify([part.before, part.after]);
    if (found.has(key)) found.get(key)[1].push(part);
    else found.set(key, [part, [part]]);
  }
  return [...found.values()];
}

function Part({ said, parts, sides, names, titled, nodes }) {
  const words = parts.map((part) => packetWords(part, nodes)).filter(Boolean);
  const some = titled && said.nodes.length < nodes.length ? onNodes(said.nodes) : "";
  const lines = [...new Set(words)];
  return (
    <div class="part">
      {!titled && lines.slice(0, FEW_LINES).map((line) => <p key={line} class="packets-to">{line}</p>)}
      {!titled && lines.length > FEW_LINES && <details><summary>and {count(lines.length - FEW_LINES, "more kind")} of packets</summary><ul class="hints">{lines.slice(FEW_LINES).map((line) => <li key={line}>{line}</li>)}</ul></details>}
      {some && <p class="packets-to">{some}:</p>}
      <dl class="both">
        {sides.map((side, each) => <div key={each} class={each ? "is" : "was"}>
          <dt>{side.words} {titled && <Fates witness={said.witness} side={each} names={names} service={said.services.length > 0} />}</dt>
          <dd>{sideWords(said, each, names, !ofPod(said)) || "–"}</dd>
        </div>)}
      </dl>
    </div>
  );
}

/** Whether the packet that is shown is a Pod's, and how the source is rewritten is not what differs: the words are those of a
 *  witness from anywhere. */
const ofPod = (part) => !part.sourceOnly && part.asks.some((ask) => ask?.from.startsWith("pod/"));

/** What more differs than the list above says. */
export const Unlisted = ({ items }) => (items?.length ? <ul class="hints">{items.map((item) => <li key={item}>{item}</li>)}</ul> : null);

/** What could not be decided; `hidden`: titles of the known differences of the modes that may be there for that. */
export function Undecided({ items, hidden = [] }) {
  if (!items?.length) return null;
  const lines = [...new Set(items.map((item) => `${[item.node, item.where].filter(Boolean).join(" ")}: ${item.reason}`))];
  return (
    <details class="note" data-test="undecided" open={hidden.length > 0}><summary>{count(lines.length, "thing")} could not be decided</summary>
      {hidden.length > 0 && <p>What was not seen may hide: {hidden.join("; ")}.</p>}
      <ul class="hints">{lines.slice(0, 200).map((line) => <li key={line}>{line}</li>)}</ul>
    </details>
  );
}
