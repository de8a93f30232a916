// The map of a comparison: the findings' numbers where they are, and the ways of the chosen one's packet on both sides.

import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { useAnswer } from "../api.js";
import { Drawing, useLayout } from "../map/drawing.jsx";
import { FEW_NODES, marksOf } from "../map/marks.js";
import { alongWays, nearTo } from "../map/shape.js";
import { astray, bothWays, byNode, joined, losing, witnessWays } from "../map/waysof.js";
import { href } from "../route.js";
import { hostId, percent, plain, ratio, shortName, splitPort, sum } from "../words.js";
import { onward, withFound } from "./asfound.js";
import { others, questionOf } from "./bothways.jsx";
import { stopsPackets } from "./gather.js";

const EMPTY = new Set();
const NO_OTHERS = [];
/** So few ways that are alike on both sides are drawn beside those that are not. */
const FEW_ALIKE = 2;
/** The window's height without the map: what stands above it, and the lines below. */
const AROUND = 296;

/** Where a thing on a map of findings leads to: to the Map. */
export const onMap = (id) => (id.startsWith("open ") ? href("map", { open: id.slice(5) }) : href("map", { sel: id }));

/** Whether there is something to see of ways. */
export const drawable = (ways) => Boolean(ways && !ways.alike);

/**
 * The ways of the chosen card's packet, the one that its first line is about, on both sides: from host to host as
 * questions have them, or, where these are alike, there are none or other findings are in the way, as the node's rules
 * treat the packet of the finding's witness.
 *
 * @returns {ways, part, ask: who asks whom, busy}; ways is null as long as they are not known, or if there are none
 */
export function useWays(cards, chosen, sides, map, revision) {
  const card = (chosen !== "" && cards[Number(chosen)]) || null;
  const part = card?.parts?.[0] ?? null;
  const treated = useMemo(() => treatedByNode(part, map), [part, map]);
  // A card about modes says what becomes of the witness: nothing needs to be asked.
  const told = Boolean(treated && card.advice.length);
  const asks = part && !told && !(others && part.meetsOthers) ? part.asks : [];
  const first = useAnswer(asks[0] && "api/ask", questionOf(asks[0], sides[0]), revision);
  const second = useAnswer(asks[1] && "api/ask", questionOf(asks[1], sides[1]), revision);
  const wanted = [first, second].every((answer, side) => !asks[side] || answer.key.endsWith(JSON.stringify(questionOf(asks[side], sides[side]))));
  const known = Boolean(part && wanted && !first.busy && !second.busy);
  return useMemo(() => {
    const none = { ways: null, part, ask: null };
    if (told && card.harm?.tone === "bad") return { ...treated, ways: astray(treated.ways) };
    if (!card || told) return treated ?? none;
    if (part && !known) return { ...none, busy: true };
    const asked = first.data && second.data ? bothWays(first.data, second.data, map) : null;
    return drawable(asked) ? { ways: blaming(asked, card, cards), part, ask: asks[0] ?? asks[1] } : (treated ?? none);
  }, [cards, card, part, treated, told, known, first.data, second.data, map]);
}

/** As `useWays` gives it: how the rules of a part's node treat its witness; null if that is alike on both sides, or not known. */
function treatedByNode(part, map) {
  const ways = part?.witness && map && witnessWays(part.witness, part.nodes[0], map);
  return drawable(ways) ? { ways: joined(changed(ways)), part, ask: ways.ask, only: part.nodes[0] } : null;
}

/** Without what is alike on both sides, if that is much; `alike` is then its chance. */
function changed(ways) {
  const same = (end) => end.was === end.is && !end.sources && !end.lost;
  if (ways.lines.filter((line) => line.side === "both").length <= FEW_ALIKE) return ways;
  return { ...ways, alike: sum(ways.ends.filter(same).map((end) => end.is)), lines: ways.lines.filter((line) => line.side !== "both"), ends: ways.ends.filter((end) => !same(end)) };
}

/** Ways of which some end on a node where another finding stops packets, and this one does not: there it says which. */
function blaming(ways, card, cards) {
  const ends = ways.ends.map((end) => {
    const other = end.kind === "bad" ? cards.findIndex((each) => !card.nodes.some(isAt(end.host)) && each.nodes.some(isAt(end.host)) && stopsPackets(each)) : -1;
    return other < 0 ? end : { ...end, words: `${end.words || "lost"} (finding ${other + 1})` };
  });
  return { ...ways, ends };
}

const isAt = (host) => (name) => `node/${name}` === host;

/**
 * @param map what is drawn; `before`: the map of the first side, where chances may be other ones
 * @param cards as `gathered` gives them; `chosen` the place of one, or ""
 * @param choose where a finding's number leads to
 * @param touched what is marked as long as no finding is chosen; `doubted`: interfaces that the chosen one is about
 * @param faults whether what is wrong for clients of one node stays on it, as in a changed copy
 * @param more marks beside the findings' numbers: {number, tone, href, current, label} by identifier
 */
export function FoundMap({ map: whole, before = null, cards, chosen, choose, sides, found, touched, more = null, doubted = null, faults = false, hrefOf, selected = "", label }) {
  const card = cards[Number(chosen)] && chosen !== "" ? cards[Number(chosen)] : null;
  const ways = useMemo(() => (found.ways && card ? { ...losing(onward(found, card, cards, whole)), calm: card.tone === "quiet" } : null), [found, card, cards, whole]);
  // Of a change of the mode both modes’ ways are drawn: its name is that of neither.
  const modes = Boolean(card?.harm) && !faults;
  const map = useMemo(() => {
    const shown = ways && !faults ? withFound(whole, ways, found.ask, card) : whole;
    return modes ? { ...shown, nodes: shown.nodes.map((node) => ({ ...node, mode: "" })) } : shown;
  }, [whole, ways, faults, modes]);
  const hit = useMemo(() => {
    if (!card) return touched ?? new Set(cards.flatMap((item) => (item.hidden ? [] : item.services)));
    const nodes = card.nodes.map((name) => `node/${name}`);
    return new Set([...card.services, ...(nodes.length < map.nodes.length || map.nodes.length <= FEW_NODES ? nodes : []), ...(ways?.lines ?? []).flatMap((line) => line.hops.map((hop) => hostId(hop.host)).filter((id) => id.startsWith("pod/") || id.startsWith("node/")))]);
  }, [card, cards, ways, touched, map]);
  const along = useMemo(() => (ways ? alongWays(map, ways, card.services) : null), [map, ways, card]);
  const shown = useMemo(() => along ?? nearTo(map, hit), [along, map, hit]);
  const layout = useLayout(shown, EMPTY);
  const drawn = useMemo(() => withHostOutside(shown, ways), [shown, ways]);
  // What is so on all nodes is said of none.
  const everywhere = card && card.nodes.length === map.nodes.length && map.nodes.length > 1;
  const about = found.part?.witness?.service ? [`svc/${found.part.witness.service}`] : card?.services;
  const tinted = useMemo(() => (card ? new Set([...about, ...(everywhere ? [] : card.nodes.map((name) => `node/${name}`)), ...(ways?.ends ?? []).map((end) => end.host)]) : hit), [card, everywhere, ways, hit]);
  const marks = useMemo(() => marksOf(numbered(cards, chosen, choose), shown, more), [cards, chosen, choose(""), shown, more]);
  useCardInSight(chosen, layout.slim);
  const device = ways && deviceOf(whole, found.only, found.ask.to);
  const at = useMemo(() => {
    const host = `node/${found.only}`;
    if (device?.kind === "bridge") return { host, spot: "bridge", words: `${device.name} ${splitPort(found.ask.to)[0]}` };
    return ways?.same ? { host, spot: "core", tone: "lost", words: "source kept, no longer masqueraded" } : null;
  }, [found, ways, device]);
  return (
    <>
      {ways ? <Caption card={card} number={Number(chosen) + 1} found={found} said={byNode(ways.ends, layout.nodeOf).said} device={device} others={ways.others ?? NO_OTHERS} /> : found.busy && <p class="map-caption">Asking…</p>}
      <Drawing map={drawn} layout={layout} hrefOf={hrefOf} selected={selected} touched={tinted} before={before} ways={ways} at={at} marks={marks} doubted={doubted} around={AROUND} label={label} />
      {ways && <WaysLegend ways={ways} sides={sides}>{along && !card.harm && <li class="whole"><a href={choose("")}>Whole map ({map.nodes.length} nodes)</a></li>}</WaysLegend>}
    </>
  );
}

/** On a phone the map stays above the list: the card that is chosen on it comes up below. */
function useCardInSight(chosen, slim) {
  // The first one is in sight when the page is opened.
  const before = useRef("0");
  useLayoutEffect(() => {
    if (before.current === chosen) return;
    before.current = chosen;
    if (slim && chosen !== "") document.getElementById(`finding-${Number(chosen) + 1}`)?.scrollIntoView({ block: "start" });
  }, [chosen, slim]);
}

/** The host outside that is drawn is the one whose ways these are: a client, or where packets go. */
function withHostOutside(map, ways) {
  const known = new Set(map.outside.map((item) => item.id));
  const met = (ways?.lines ?? []).flatMap((line) => line.hops.map((hop) => hostId(hop.host))).find((id) => id.startsWith("outside/"));
  if (!met || known.has(met)) return map;
  const address = plain(met);
  const balanced = map.services.some((service) => [...service.loadBalancerIPs, ...service.externalIPs].includes(address));
  const isTarget = ways.ends.some((end) => end.host === met);
  return { ...map, outside: map.outside.map((item, place) => (place ? item : { ...item, address, label: balanced ? "a load balancer" : isTarget ? "a host outside" : item.label })) };
}

/** The cards as `marksOf` takes them. */
function numbered(cards, chosen, choose) {
  const items = cards.map((card, place) => {
    const current = String(place) === chosen;
    return { number: place + 1, tone: card.tone, href: choose(current ? "" : String(place)), current, label: `finding ${place + 1}: ${card.mark} ${card.title}`, nodes: current || !(card.harm || card.devices?.size) ? card.nodes : [], services: card.services, devices: card.devices };
  });
  return items.filter((_, place) => !cards[place].hidden);
}

/** "mark 0x4000", "" without one. */
export const markWords = (mark) => (mark ? `mark 0x${mark.toString(16)}` : "");

/** What else must hold for it. A question has neither a packet's state nor its mark: they are said of the finding's own one. */
export function conditionsOf({ setting, ctstate, mark }, own) {
  const words = own ? [ctstate && ctstate !== "NEW" && `conntrack: ${ctstate}`, markWords(mark)] : [];
  return [...words, setting].filter(Boolean);
}

/** Whose packet it is. */
function Caption({ card, number, found, said, device, others }) {
  const { ask, only } = found;
  const { service = "", addressKind = "" } = found.part?.witness ?? {};
  const about = [service && `${shortName(service)}’s ${addressKind}`, device && `at ${device.name}`].filter(Boolean).join(" ");
  return <p class="map-caption" role="status"><span class={`number ${card.tone}`}>{number}</span> <span>From <b>{plain(ask.from)}</b>{ask.as && <> as <b>{ask.as}</b></>} to <b>{ask.to}</b>{about && `, ${about}`}{only ? <>, by the rules of <b>{only}</b> {others.length ? `and finding ${others.join(", ")}` : "alone"}</> : ""}{found.part?.witness && conditionsOf(found.part.witness, Boolean(only)).map((words) => <span key={words} class="condition">{words}</span>)}{ratio(found.ways.alike) > 0 && <span class="condition">{percent(found.ways.alike)} alike on both sides</span>}{said.map((words) => <span key={words} class="condition plain">{words}</span>)}</span></p>;
}

/** The interface of the node called `name` that has an address, unless it is the one by which others know the node. */
function deviceOf(map, name, endpoint) {
  const [address] = splitPort(endpoint);
  const node = map.nodes.find((each) => each.name === name);
  return node?.addresses.includes(address) ? null : (node?.devices ?? []).find((device) => (device.addresses ?? []).some((each) => each.split("/")[0] === address));
}

/** What the lines mean; `children`: more items. */
function WaysLegend({ ways, sides, children }) {
  // What is stopped where it begins has no line.
  const drawn = ways.lines.filter((line) => line.hops.length > 1 || line.end !== "bad");
  const kinds = new Set(drawn.map((line) => line.side));
  const gone = ways.lines.find((line) => line.end === "bad" && line.side === "is" && !drawn.includes(line));
  const bad = ways.lines.some((line) => line.side === "is" && line.end !== "ok");
  return (
    <ul class="legend" aria-label="Legend">
      {kinds.has("was") && <li><Sample kind="was" /> {sides[0].words}</li>}
      {kinds.has("is") && <li><Sample kind={bad ? "is bad" : "is ok"} calm={ways.calm} /> {sides[1].words}</li>}
      {kinds.has("both") && <li><Sample kind="both" /> alike on both</li>}
      {ways.same && <li><Sample kind="is bad" /> lost {sides[1].words}</li>}
      {gone && <li><b class="bad-text">✕</b> {gone.words || "lost"} {sides[1].words}</li>}
      <li><svg viewBox="0 0 12 10" aria-hidden="true"><rect class="touched-box" width="12" height="10" rx="2" /></svg> what the finding is about, and where its packet ends</li>
      <li><svg viewBox="0 0 12 10" aria-hidden="true"><rect class="passed-box" width="12" height="10" rx="2" /></svg> where it passes</li>
      {children}
    </ul>
  );
}

const Sample = ({ kind, calm = false }) => <svg viewBox="0 0 26 10" aria-hidden="true" class={calm ? "sample calm" : ""}><g class={`drawn ${kind}`}><path class="run" d="M0 5H26" /></g></svg>;
