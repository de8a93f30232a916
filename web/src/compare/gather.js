// Findings of all comparisons in one form: those of one cause are one card, with all packets that it concerns.

import { count } from "../words.js";
import { harmOf } from "./harm.js";

const NODES = 3;
const NAMED_DESTINATIONS = 3;

/** What a rule of one side alone is called: of two sources, from the first one to the second. */
const ALONE = ["Missing", "Extra"];

/**
 * Cards of a comparison: findings of one cause on one, and what it does to packets as its parts, in the server's order.
 * What has no cause, but is dropped or rejected by one rule on one side only, stands with all that this rule stops.
 *
 * @param kind diff, drift, migrate or whatif
 * @param words of both sides
 * @returns {mark, title, culprit (the rule in a few words), rule, tone, harm, nodes, families, services, more (Services that are not listed), parts, advice, do, config, reason, remedy, group, caused}
 */
export function gathered(findings, { kind = "", asks = [], words = ["", ""] } = {}) {
  const found = new Map();
  findings.forEach((item, place) => {
    if (isImpossible(item)) return;
    const part = partOf(item, asks[place]);
    const rule = item.cause ?? stopper(item.witness);
    const key = keyOf(item, part, rule, place);
    const card = found.get(key);
    if (card) card.parts.push(part);
    else found.set(key, { ...headOf(item, rule, kind, words), parts: [part], advice: item.advice ?? [], do: item.do ?? "", config: item.config ?? "", ports: portsOf(item), reason: item.reason ?? "", remedy: item.remedy ?? "", group: item.effort ?? "" });
  });
  const cards = [...found.values()].map((card) => summed(card, kind));
  for (const card of cards) card.title ||= stopsAll(card) || [namedServices(card) || destinationsOf(card), effectIn(card)].filter(Boolean).join(": ");
  // Sorting keeps the order of what is alike.
  const order = (card) => GROUPS.findIndex((group) => group.name === card.group);
  return cards.sort((one, other) => order(one) - order(other));
}

/** The node ports that a difference of the modes is about. */
function portsOf({ reason, addresses = [] }) {
  const found = addresses.filter((text) => /^\d+\/\w+$/.test(text)).map((text) => text.replace("/tcp", ""));
  const left = found.length - NODES;
  return reason && found.length ? `${found.length === 1 ? "port" : "ports"} ${found.slice(0, NODES).join(", ")}${left > 0 ? ` and ${left} more` : ""}` : "";
}

const isImpossible = (item) => Boolean(item.witness?.hypothetical);

/** Differences of the modes whose packets no node can meet, as those that do not show at all. */
export const impossible = (findings) => findings.filter(isImpossible).map((item) => ({ reason: `${item.reason} ${item.title}`, title: item.title, why: `${item.witness.setting[0].toUpperCase()}${item.witness.setting.slice(1)}, and these have not.` }));

/** What is to be done about a difference of the modes, by the `effort` of each; and what may be none. */
export const GROUPS = [
  { name: "act", title: "Before the switch", words: "change something, or see that nobody needs it" },
  { name: "look", title: "To check", words: "whether a program of yours counts on it" },
  { name: "after", title: "After the switch", words: "change something" },
  { name: "guess", title: "Perhaps no difference", words: "kube-proxy’s configuration is not known here, and it may be meant so" },
  { name: "none", title: "Nothing to do", words: "nobody should send such packets" },
];

function partOf(item, asks) {
  return {
    services: (item.services ?? []).map((name) => (name.startsWith("svc/") ? name : `svc/${name.replace(/:[^/]*$/, "")}`)), more: item.more ?? 0, nodes: item.nodes ?? [], families: item.families ?? [],
    destinations: item.destinations ?? [], from: item.from ?? "", conditions: item.conditions ?? "", before: item.before ?? item.today ?? "", after: item.after ?? item.then ?? "",
    ends: item.ends ?? ["", ""], sourceOnly: Boolean(item.sourceOnly), assumed: Boolean(item.assumed),
    asks: item.asks ?? asks ?? [], witness: item.witness ?? null, meetsOthers: /^(foreign-|host-firewall$)/.test(item.reason ?? ""),
    reason: item.reason ?? "", rules: /^foreign-/.test(item.reason ?? "") ? item.addresses ?? [] : [],
  };
}

function keyOf(item, part, rule, place) {
  if (rule) return JSON.stringify([rule.side, rule.table, rule.chain, rule.text, rule.set ?? "", rule.instead?.text ?? "", Boolean(rule.stops)]);
  if (item.reason && item.reason !== "other") return JSON.stringify([item.reason, item.before ?? item.today, item.after ?? item.then]);
  if (!part.destinations.length) return String(place);
  return saidOf(part);
}

function headOf(item, rule, kind, words) {
  // Of a copy that somebody changed it is known why; what becomes of its Services says more.
  if (!rule || kind === "whatif") return { mark: "", title: item.destinations?.length ? "" : (item.statement ?? item.title ?? ""), culprit: "", rule, caused: false };
  const side = rule.side === "b" ? 1 : 0;
  const alone = `${ALONE[side]}${kind === "drift" ? "" : ` in ${words[1]}`}`;
  if (rule.stops) return { mark: side ? rule.stops : `No more ${rule.stops.toLowerCase()}`, title: "", culprit: `by ${briefly(targetOf(rule.text))} in ${rule.chain}`, rule, caused: true };
  const [action, comment] = actionOf(rule);
  const what = rule.set ? `element of ${rule.action}` : rule.instead ? changed(action, actionOf(rule.instead)[0]) : action;
  return { mark: rule.sameButChance ? "Other chance" : rule.instead ? "Changed" : alone, title: "", culprit: `${what} in ${rule.chain}${comment ? `, for ${comment}` : ""}`, rule, caused: true };
}

/** "DNAT to 10.0.0.1:80 → 10.0.0.2:80". */
function changed(one, other) {
  if (one === other) return one;
  const [words, others] = [one, other].map((text) => text.split(" "));
  const same = words.findIndex((word, place) => word !== others[place]);
  return `${one} → ${others.slice(same).join(" ")}`;
}

/** What a rule does, and its comment, if what it does has one. */
function actionOf({ action = "", text }) {
  const [, words, comment] = /^(.*?)(?: \(([^()]*)\))?$/.exec(action);
  return [briefly(words || targetOf(text)), comment];
}

/** "-j DNAT --to-destination 10.0.0.1:80" is "DNAT to 10.0.0.1:80". */
const briefly = (action) => action.replaceAll("`", "").replace(/^-j DNAT --to-destination /, "DNAT to ").replace(/^-j (REJECT) .*/, "-j $1");

const targetOf = (text) => /(?:^| )(-[jg] .*)$/.exec(text)?.[1] ?? text;

/** The one rule by which every packet of a witness ends on one side, if it does not on the other. */
function stopper(witness) {
  if (!Array.isArray(witness?.a) || !Array.isArray(witness?.b)) return null;
  const [one, other] = [witness.a, witness.b].map(endingRule);
  if (other && other.text !== one?.text) return { ...other, side: "b" };
  return one && !other ? { ...one, side: "a" } : null;
}

const STOPS = { DROP: "Dropped", REJECT: "Rejected" };

const isStop = (text) => /-[jg] (DROP|REJECT)\b|\b(drop|reject)\b/.test(text);

/** Whether a card is about a rule of the second side alone that drops or rejects packets. */
export const stopsPackets = ({ rule }) => rule?.side === "b" && isStop(rule.text);

function endingRule(outcomes) {
  const ends = outcomes.map((outcome) => STOPS[outcome.verdict] && outcome.path?.at(-1));
  if (!ends.length || !ends.every((rule) => rule?.text && rule.text === ends[0].text)) return null;
  return isStop(ends[0].text) ? { ...ends[0], stops: STOPS[outcomes[0].verdict] } : null;
}

/** A rule for every packet: "-A FORWARD -j DROP", with a comment at most, or "drop". */
const FOR_ALL = /^-A \S+ (?:-m comment --comment (?:"[^"]*"|\S+) )?-[jg] |^(?:counter (?:packets \d+ bytes \d+ )?)?(?:drop|reject|jump|goto)\b/;

/** Of a rule of one side that stops whatever a node forwards: that, rather than the Services that it concerns. */
function stopsAll({ rule, parts }) {
  const side = rule?.side;
  const ends = side ? parts.flatMap((part) => (Array.isArray(part.witness?.[side]) ? part.witness[side] : [])) : [];
  const end = ends.find((each) => STOPS[each.verdict] && each.hook === "FORWARD" && each.path?.at(-1)?.text === rule.text);
  const way = end?.path.filter((step) => step.table === rule.table) ?? [];
  const own = way.at(-1);
  // What leads there: jumps from other chains.
  const jumps = way.filter((step, place) => step.chain !== own.chain && way[place + 1]?.chain === own.chain);
  if (!own || ![own, ...jumps].every((step) => FOR_ALL.test(step.text))) return "";
  const all = `${end.verdict === "DROP" ? "drops" : "rejects"} everything it forwards`;
  // Rules before it that the packet did not meet may accept others.
  const met = new Set(way.map((step) => `${step.chain} ${step.rule}`));
  return [own, ...jumps].every((step) => range(step.rule).every((number) => met.has(`${step.chain} ${number}`))) ? all : `${all} that no earlier rule accepts`;
}

const range = (last) => Array.from({ length: last }, (_, place) => place + 1);

const stopped = (end) => end === "dropped" || end === "rejected";

/** Whether packets arrive before, and not after. */
const isLost = ({ ends: [before, after] }) => stopped(after) && !stopped(before);

/** Parts that say the same of the same Services on the same nodes are one difference. */
const saidOf = (part) => JSON.stringify([part.services, part.nodes, part.before, part.after]);

/** Whether neither side sends a part's packet to an endpoint, though one of them lets it pass. */
const isUntranslated = ({ ends, witness }) => ends.includes("sent") && [witness?.a, witness?.b].every((outcomes) => Array.isArray(outcomes) && !outcomes.some((outcome) => outcome.dnat));

/** How far a part is from what most packets meet: nobody answers on either side, it is no Service's, or marked or related. */
const unusual = (part) => (part.ends.every(stopped) ? 4 : 0) + (part.services.length && !isUntranslated(part) ? 0 : 2) + (/\bmark\b|RELATED|ESTABLISHED/.test(part.conditions) ? 1 : 0);

/** What a card says of all its parts, the most usual ones first. */
function summed(card, kind) {
  card.parts = card.parts.map((part, place) => [part, place]).sort(([one, first], [other, second]) => unusual(one) - unusual(other) || first - second).map(([part]) => part);
  const all = (name) => [...new Set(card.parts.flatMap((part) => part[name]))];
  const services = all("services");
  const assumed = card.parts.every((part) => part.assumed);
  const group = card.group || (assumed ? "guess" : "");
  // A difference of the modes has the colour of what it does to packets, whatever there is to do about it.
  const harm = card.group ? harmOf(card.parts[0]) : null;
  const tone = harm?.tone ?? (assumed ? "open" : kind === "drift" || card.parts.some(isLost) ? "bad" : "changed");
  return { ...card, assumed, group, harm, tone, services, nodes: all("nodes").sort((one, other) => one.localeCompare(other, "en", { numeric: true })), families: all("families"), more: Math.max(...card.parts.map((part) => part.more)) };
}

/** The Services of a card, as long as they are few. */
function namedServices({ services, more }) {
  const left = services.length + more - NODES;
  return services.slice(0, NODES).map((id) => id.slice(4)).join(", ") + (left > 0 ? ` and ${left} more` : "");
}

/** Where the most usual packets of a card go to, if they are no Service's. */
const destinationsOf = ({ parts: [first] }) => (first.destinations.length === 1 ? `packets to ${first.destinations[0]}` : "");

/** What becomes of the most usual packets, and on which nodes, if it is not so on all of them. */
function effectIn({ parts, nodes, caused }) {
  const effect = effectOf(parts[0]);
  const on = [...new Set(parts.filter((part) => effectOf(part) === effect).flatMap((part) => part.nodes))];
  return caused || on.length === nodes.length ? effect : `${effect} ${onNodes(on)}, treated otherwise elsewhere`;
}

/** What becomes of the most usual packets, in a word. */
function effectOf({ ends: [before, after], sourceOnly, destinations, witness }) {
  if (!destinations.length) return "treated otherwise";
  if (after === "dropped") return "dropped";
  if (after === "rejected") return "rejected";
  if (stopped(before)) return "let through";
  if (sourceOnly) return "another source";
  const [stops, stopsThen] = [witness?.a, witness?.b].map((outcomes) => Array.isArray(outcomes) && outcomes.find((outcome) => STOPS[outcome.verdict]));
  if (stopsThen && !stops) return `${STOPS[stopsThen.verdict].toLowerCase()} in part`;
  const [was, is] = [witness?.a, witness?.b].map((outcomes) => Array.isArray(outcomes) && outcomes.length > 0 && outcomes.every((outcome) => outcome.dst === witness.dst));
  if (is && !was) return "not translated";
  if (was && !is) return "translated";
  return shareWords(witness) ?? "sent elsewhere";
}

/** What is another where packets go to the same endpoints on both sides, or to some of them. */
function shareWords(witness) {
  const [one, other] = [witness?.a, witness?.b].map((outcomes) => (Array.isArray(outcomes) ? new Set(outcomes.map((outcome) => outcome.dst)) : null));
  if (!one || !other) return null;
  const common = [...one].filter((address) => other.has(address)).length;
  if (common === one.size && common === other.size) return "other shares";
  if (common === other.size) return "fewer endpoints";
  return common === one.size ? "more endpoints" : null;
}

/** "on n1, n2", "on n1, n2, n3 and 4 more"; `total`: how many nodes there are. */
export function onNodes(nodes, total = 0) {
  // The one host of a dump has no name.
  if (!nodes.length || (nodes.length === 1 && nodes[0] === "host")) return "";
  if (nodes.length > 1 && nodes.length === total) return `on all ${total} nodes`;
  return `on ${nodes.slice(0, NODES).join(", ")}${nodes.length > NODES ? ` and ${nodes.length - NODES} more` : ""}`;
}

/** A headline: how many cards, and how many of each mark. */
export function headline(cards) {
  if (!cards.length) return "";
  const found = Map.groupBy(cards, (card) => card.mark && card.mark[0].toLowerCase() + card.mark.slice(1));
  const marks = [...found].map(([mark, each]) => [mark || "without a rule to blame", each.length]);
  const told = [...found.keys()].some(Boolean) ? `: ${marks.map(([words, number]) => (cards.length > 1 ? `${number} ${words}` : words)).join(", ")}` : "";
  return `${count(cards.length, "difference")} for packets${told}.`;
}

/** The packets of a part, in words; `nodes` are the card's. */
export function packetWords(part, nodes) {
  if (!part.destinations.length) return "";
  const where = part.nodes.length < nodes.length ? ` ${onNodes(part.nodes)}` : "";
  const left = part.destinations.length - NAMED_DESTINATIONS;
  return `Packets to ${part.destinations.slice(0, NAMED_DESTINATIONS).join("; ")}${left > 0 ? ` and ${count(left, "more destination")}` : ""}${part.from && part.from !== "anywhere" ? ` from ${part.from}` : ""}${part.conditions ? `, ${part.conditions}` : ""}${where}`;
}

/** "3 kinds of packets", as a card lists those of its parts. */
export function kindsOf(parts, nodes, more = "") {
  const found = new Set(parts.map((part) => JSON.stringify([part.before, part.after, packetWords(part, nodes)])));
  return count(found.size, `${more}kind of packets`, `${more}kinds of packets`);
}

/** Both sides of an answer, with the words for them: what `source` and `edits` ask of each. */
export const sidesOf = (words, answer) => words.map((each, place) => ({ words: each, source: answer?.sides?.[place]?.source ?? "", edits: answer?.sides?.[place]?.edits ?? [] }));

/** The Pods' names by address, for words about packets. */
export function podNames(...maps) {
  const found = new Map();
  for (const map of maps) for (const pod of map?.pods ?? []) if (!pod.bare && !pod.hostNetwork) for (const address of pod.addresses) found.set(address, pod.name);
  return found;
}

/** Notes that say the same of several nodes, as one. */
export function mergedNotes(notes) {
  const found = new Map();
  for (const note of notes) {
    const [, name, text] = /^(\S+): (.*)$/.exec(note) ?? [null, "", note];
    found.set(text, [...(found.get(text) ?? []), name].filter(Boolean));
  }
  return [...found].map(([text, names]) => (names.length ? `${onNodes(names).slice(3)}: ${text}` : text));
}

/** Puts a Pod's name beside its address, and says in a word what becomes of the source. */
export function withNames(text, names) {
  return text.replace(/\(source rewritten by MASQUERADE[^()]*\)/g, "(masqueraded)").replace(/\(source as it is\)/g, "(source kept)").replace(/\[?([0-9a-f]*[.:][0-9a-f.:]*[0-9a-f])\]?:\d+/gi, (whole, address) => (names.has(address) ? `${names.get(address)} (${whole})` : whole));
}

/** A side of a part in words, with its source or without; what is sent on to the very address that it is for is not
 *  translated. */
export function sideWords(part, side, names, source = true) {
  const said = side ? part.after : part.before;
  const text = source ? said : withoutSource(said);
  const kept = part.services.length > 0 && part.destinations.some((each) => text.startsWith(`sends all to ${each.replace(/\/\w+$/, "")}`));
  return withNames(kept ? text.replace("sends all to", "not translated: passed on to") : text, names);
}

/** Without what becomes of the source. */
export const withoutSource = (text) => text.replace(/ \(source (?:rewritten by MASQUERADE[^()]*|as it is)\)/g, "");

/** The same in few words: of "web-0 (10.244.0.5:8080) (source kept)" the name. */
export const briefNames = (text) => text.replace(/(\S+) \(\S+:\d+\)/g, "$1").replace(/ \((source kept|masqueraded)\)|, masqueraded/g, "");
