// What a change of the mode changes, all at a glance: of each finding one packet, from whom to what, and what becomes of it
// in both modes, as two bars; and what there is to do.

import { senderOf } from "../map/waysof.js";
import { ServiceLink } from "../servicelink.jsx";
import { count, fit, percent, plain, ratio, shortName, splitPort } from "../words.js";
import { fatesOf } from "./fates.jsx";
import { MOST, More, useSteps } from "./findings.jsx";
import { conditionsOf, markWords } from "./foundmap.jsx";
import { GROUPS, onNodes } from "./gather.js";

const NO_MAP = { services: [], nodes: [], pods: [], networks: [] };
const NAMED = 3;
/** The reason of which packets go to addresses that are kept for Services. */
const UNALLOCATED = "unallocated-cluster-ips";
const MARKS = { ok: "✓", bad: "✕", here: "○", open: "?" };
/** Letters that fit into the whole of a bar. */
const LETTERS = 31;
/** Of a bar, in pixels. */
const HIGH = 23;

/** @param choose where a card's heading leads to; the others as `Findings` has them. */
export function Lanes({ cards, sides, names, map, choose }) {
  useSteps(cards, "", choose);
  // Of a cluster whose Services are of one family that goes without saying.
  const families = new Set(cards.flatMap((card) => (card.services.length ? card.families : []))).size;
  const known = map ?? NO_MAP;
  const shorts = sides.map((side) => side.words.replace(/^in (\S+) mode$/, "$1"));
  const shown = cards.slice(0, MOST);
  const lists = GROUPS.filter((group) => shown.some((card) => card.group === group.name)).map((group, first) => (
    <section key={group.name} id={`group-${group.name}`} class={`lanes ${group.name}`}>
      <div class="lanes-head"><h2>{group.title} {first > 0 && <small>{group.words}</small>}</h2>{first === 0 && <><span>One such packet</span><span>What becomes of it</span><span>What to do</span></>}</div>
      <ol>
        {shown.map((card, place) => card.group === group.name && <li key={place}><Lane card={card} place={place} sides={shorts} names={names} map={known} families={families} href={choose(String(place))} /></li>)}
      </ol>
    </section>
  ));
  return <>{lists}<ToneLegend cards={shown} /><More left={cards.length - shown.length} /></>;
}

const TONES = [["bad", "breaks, or is newly open"], ["changed", "arrives otherwise, or now"], ["open", "open"], ["quiet", "failed, and fails otherwise"]];

/** What the colours of the numbers, and the marks, mean. */
function ToneLegend({ cards }) {
  const shown = TONES.filter(([tone]) => cards.some((card) => card.tone === tone));
  return (
    <ul class="legend" aria-label="Legend">
      {shown.map(([tone, words]) => <li key={tone}><span class={`number dot ${tone}`} aria-hidden="true" /> {words}</li>)}
      <li>✓ reaches an endpoint</li><li>○ goes elsewhere</li><li>✕ is stopped</li>
    </ul>
  );
}

function Lane({ card, place, sides, names, map, families, href }) {
  const [first] = card.parts;
  const { harm } = card;
  // Its mark stands at who sends it.
  const conditions = first.witness ? conditionsOf({ ...first.witness, mark: 0 }, true).join(", ") : "";
  // Where it is named there is room for one more than for how many are left.
  const all = card.services.length + card.more;
  const named = all <= NAMED + 1 ? all : NAMED;
  const left = all - named;
  const limits = [card.ports, card.families.length < families && `${card.families.join(", ")} only`, card.nodes.length < map.nodes.length && onNodes(card.nodes)].filter(Boolean);
  return (
    <article id={`finding-${place + 1}`} class={`lane ${card.tone}`}>
      <div class="lane-head">
        <h3><a class="choose" href={href}><span class={`number ${card.tone}`}>{place + 1}</span> <span class="head-title">{card.title}</span></a></h3>
        <p class="where-found">
          {card.services.slice(0, named).map((id) => <ServiceLink key={id} name={plain(id)} />)}
          {left > 0 && <span>and {left} more</span>}
        </p>
        <p class="reason"><code>{card.reason}</code> {limits.join(", ")}</p>
      </div>
      {first.witness ? <Packet part={first} map={map} /> : <p class="lane-packet">{card.parts.flatMap((part) => part.rules).slice(0, NAMED).map((rule) => <code key={rule}>{rule}</code>)}</p>}
      <div class="lane-ends">
        <p class={`harm ${card.tone}`}>{harm.words}{conditions && <small> {conditions}</small>}</p>
        {first.witness && <BothEnds part={first} lost={card.tone === "bad"} sides={sides} names={names} />}
      </div>
      <div class="lane-do"><p><b class="lane-label">What to do: </b>{card.do}</p>{card.config && <code>{card.config}</code>}</div>
      <span class="lane-more" aria-hidden="true">›</span>
    </article>
  );
}

/** From whom to what. */
function Packet({ part, map }) {
  const { witness } = part;
  const from = fromWords(senderOf(witness, part.nodes[0], map).from, part);
  const to = toWords(part, map);
  return (
    <div class="lane-packet">
      <Token {...from} /><span class="onward"><span aria-label="to">→</span> <Token {...to} /></span>
    </div>
  );
}

const Token = ({ kind, words, small }) => <span class={`token ${kind}`}><b>{words}</b><small>{small}</small></span>;

function fromWords(id, { witness, nodes }) {
  const address = [splitPort(witness.src)[0], markWords(witness.mark)].filter(Boolean).join(", ");
  if (id.startsWith("node/")) return { kind: "node", words: witness.origin === "local" || id === `node/${nodes[0]}` ? "the node itself" : plain(id), small: address };
  if (id.startsWith("pod/")) return { kind: "pod", words: shortName(id), small: address };
  return id.startsWith("outside/") ? { kind: "outside", words: "a client outside", small: address } : { kind: "pod", words: "a Pod", small: id.replace(/^a Pod of/, "on") };
}

/** What a packet is sent to: a Service, by which of its addresses, or who has the address. */
function toWords({ witness, nodes, reason }, map) {
  const [address] = splitPort(witness.dst);
  if (witness.service) {
    const empty = map.served && !map.served.has(`svc/${witness.service}`);
    return { kind: empty ? "service empty" : "service", words: shortName(witness.service), small: `${witness.addressKind.replace("load-balancer", "LB")} ${witness.dst}` };
  }
  const pod = map.pods.find((each) => !each.hostNetwork && each.addresses.includes(address));
  if (pod) return { kind: "pod", words: pod.name, small: witness.dst };
  const node = map.nodes.find((each) => each.addresses.includes(address));
  if (node || /^127\.|^::1$/.test(address)) return { kind: "node", words: node?.name ?? (nodes[0] === "host" ? "the node" : nodes[0]), small: witness.dst };
  return { kind: "outside", words: reason === UNALLOCATED ? "no Service’s address" : "a host outside", small: witness.dst };
}

/** Sources are said where they alone differ; `lost`: who gets it in the other mode is not who should, and red. */
function BothEnds({ part: { witness, services }, lost, sides, names }) {
  const fates = sides.map((_, each) => fatesOf(witness, each, names, services.length > 0));
  const [one, other] = fates.map((of) => JSON.stringify(of.map((fate) => [brief(fate), fate.kind]).sort()));
  return sides.map((side, each) => <Ends key={side} side={side} fates={fates[each]} astray={lost && each === 1} wordsOf={one === other ? (fate) => fate.words : brief} />);
}

const brief = (fate) => fate.short ?? fate.words;

/** What becomes of it on one side: each part of the bar is as wide as its chance. */
function Ends({ side, fates, astray, wordsOf }) {
  let left = 0;
  const parts = fates.map((fate) => {
    const share = ratio(fate.chance);
    const part = { ...fate, x: left, share };
    left += share;
    return part;
  });
  const words = parts.map((each) => `${each.share === 1 ? "" : `${percent(each.chance)} `}${each.words}`).join(", ");
  return (
    <div class="ends">
      <span class="ends-side">{side}</span>
      <svg class="ends-bar" role="img" aria-label={words} height={HIGH}>
        <title>{words}</title>
        {parts.map(({ x, share, ...fate }, place) => (
          <svg key={place} class={`ends-part ${fate.kind === "ok" || fate.kind === "open" ? fate.kind : astray ? "bad" : ""}`} x={`${x * 100}%`} width={`${share * 100}%`} height={HIGH}>
            <rect width="100%" height="100%" />
            <text x="9" y={HIGH / 2 + 4.5}>{textOf(fate, wordsOf(fate), share)}</text>
          </svg>
        ))}
      </svg>
    </div>
  );
}

/** Who gets it, and the chance, as far as there is room. */
function textOf({ kind, chance }, words, share) {
  const room = Math.max(2, Math.floor(LETTERS * share) - 1);
  const [text, number] = [`${MARKS[kind]} ${words}`, share === 1 ? "" : percent(chance)];
  return fit(text.length + number.length < room ? `${text} ${number}` : text, room);
}

/** What was looked for, and does not show. */
export function Absent({ items }) {
  if (!items?.length) return null;
  // What has a reason of its own comes before what no packet shows.
  const reasons = [...Map.groupBy(items, (item) => item.why)].sort(([, one], [, other]) => one.length - other.length);
  return (
    <section class="absent" data-test="absent">
      <h2>Ruled out <small>{count(items.length, "known difference")} of the modes that do not show here</small></h2>
      <dl>{reasons.map(([why, each]) => <div key={why}><dt>{why}</dt><dd>{each.map((item) => <span key={item.reason}>{item.title}</span>)}</dd></div>)}</dl>
    </section>
  );
}

/** What holds of the switch itself (docs/migrate.md). */
export const OfTheSwitch = ({ to }) => (
  <section class="absent">
    <h2>The switch itself</h2>
    <ul class="hints">
      <li>Nodes may be switched one after the other: each treats packets by its own rules.</li>
      <li>Connections that stand go on: connection tracking keeps their translation.</li>
      <li>What changes on the way back: <code>kproxy migrate --to {to === "nftables" ? "iptables" : "nftables"}</code></li>
    </ul>
  </section>
);
