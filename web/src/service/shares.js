// What becomes of packets, in parts: what is answered comes first, then what is lost, then what is not known.

import { faultOf } from "../map/faults.js";
import { edgesBy } from "../map/shape.js";
import { portName } from "../names.js";
import { ENDS, percent, plain, ratio, shortName, sum } from "../words.js";

const KINDS = ["ok", "bad", "open"];
const NOT_KNOWN = "not known";
const NOBODY = "no Pod has this address";
/** So many chances are added exactly: of many endpoints they have thousands of digits. */
const EXACT = 64;

const total = (chances) => (chances.length > EXACT ? `${Math.round(chances.reduce((all, each) => all + ratio(each), 0) * 1e9)}/1000000000` : sum(chances));

/**
 * @param pieces [{kind, words, short, chance, name, why}]: one for each of whom packets reach, or where they are lost
 * @returns [{kind, words, short, chance, pieces}]: those of the same kind and words together
 */
export function partsOf(pieces) {
  const alike = Map.groupBy(pieces.filter((each) => ratio(each.chance) > 0), ({ kind, words }) => `${kind} ${words}`);
  const parts = [...alike.values()].map((of) => ({ kind: of[0].kind, words: of[0].words, short: of[0].short, whole: of[0].whole, chance: total(of.map((each) => each.chance)), pieces: of }));
  return parts.sort((one, other) => KINDS.indexOf(one.kind) - KINDS.indexOf(other.kind) || ratio(other.chance) - ratio(one.chance));
}

/** Amber and ◐ where only a part is answered; red only where nothing is, and that is known. */
export function verdictOf(parts) {
  const some = (kind) => parts.some((part) => part.kind === kind);
  if (!some("ok")) return some("open") ? { tone: "open", mark: "?" } : { tone: "bad", mark: "✕" };
  return parts.length === 1 ? { tone: "ok", mark: "✓" } : { tone: "open", mark: "◐" };
}

/** "50% lost"; where words say why none is answered, they need no number. */
export const wordsOf = ({ whole, chance, words }) => (whole ? words : `${percent(chance)} ${words}`);

/** In one line with whom, and why: "50% answered by web-0, 50% lost: dropped by a rule in FORWARD on worker-2". */
export function toldOf(parts) {
  return parts.map((part) => {
    const of = (key) => [...new Set(part.pieces.map((each) => each[key]).filter(Boolean))].join(", ");
    return `${wordsOf(part)}${part.kind === "ok" && of("name") ? ` by ${of("name")}` : ""}${of("why") && of("why") !== part.words ? `: ${of("why")}` : ""}`;
  }).join(", ");
}

/** The ways of one connection, as a cell of "Who reaches it" has them. */
export function partsOfCell({ ways, end, reason }) {
  const of = (way) => ({ kind: ENDS[way.end]?.kind ?? "open", words: way.end === "open" ? NOT_KNOWN : (ENDS[way.end]?.words ?? way.end), chance: way.chance, name: shortName(way.at) });
  // What could not be asked has no ways.
  return partsOf((ways?.length ? ways : [{ end, chance: "1/1", at: "", why: reason }]).map(of));
}

/**
 * What becomes of packets to one port: endpoints with their chances, as the map's edges and a Service's page have them.
 *
 * @param answered what is said of those that arrive
 */
export function partsOfEnds(ends, answered = "answered") {
  const pieces = ends.flatMap((end) => {
    const shared = { name: shortName(end.target) || end.address, why: end.fault ? end.why : isOpen(end) ? end.why || "its rules have not been asked yet" : "" };
    if (isOpen(end)) return [{ kind: "open", words: NOT_KNOWN, chance: end.chance, ...shared }];
    const gets = end.fault === "wrong" ? { kind: "bad", ...(end.why === NOBODY ? { words: "to an address nobody has", short: "to nobody" } : { words: "to a wrong endpoint", short: "wrong" }) } : { kind: "ok", words: answered };
    return [{ ...gets, chance: end.chance, ...shared, why: end.fault === "wrong" ? shared.why : "" }, { kind: "bad", words: "lost", chance: end.lost || "0", ...shared }];
  });
  const [rest, why] = restOf(ends, pieces);
  return partsOf(rest ? [...pieces, { ...rest, why }] : pieces);
}

/** What comes to no endpoint: since rules do not know the address, or stop it before they choose one. */
function restOf(ends, pieces) {
  const [top, below] = total(pieces.map((each) => each.chance)).split("/").map(BigInt);
  const of = (fault) => ends.find((end) => end.fault === fault);
  const [missing, refused] = [of("missing"), of("refused")];
  // Endpoints that get nothing, as they should, are no fault; and what rounding leaves is nothing.
  if ((below - top) * 1_000_000_000n <= below || (!top && !missing && !refused)) return [];
  const chance = `${below - top}/${below}`;
  if (missing) return [{ kind: "bad", words: missing.why, whole: true, chance }, missing.why];
  return [{ kind: "bad", words: "refused", chance }, refused?.why ?? ""];
}

/** Whether its chance is only what the objects ask for, since the rules cannot decide, or have not been asked yet. */
export const isOpen = (end) => end.by === "objects" && (Boolean(end.pending) || /^not decided: /.test(end.why ?? ""));

/** The edges of a Service; of a map on which not all rules have been asked those that were not are `pending`. */
export const edgesOf = (map, id) => (map.pending ? edgesBy(map, "service", id).map((edge) => (edge.by === "objects" ? { ...edge, pending: true } : edge)) : edgesBy(map, "service", id));

/**
 * What becomes of packets to a Service's ports; ports that fare alike are together, what is worst comes first.
 *
 * @returns [{parts, edges, names}]: without parts where a port has no endpoint to send to
 */
export function portsOf(service, edges, answered, unreached = []) {
  const families = new Set(edges.map((edge) => edge.family)).size;
  const of = [...Map.groupBy(edges, (edge) => `${edge.port} ${edge.protocol} ${edge.family}`).values()];
  const bare = service.ports.filter((port) => !edges.some((edge) => edge.port === port.name && edge.protocol === port.protocol));
  const nameOf = ({ port, protocol, family }) => {
    const known = service.ports.find((each) => each.name === port && each.protocol === protocol);
    return `${known ? portName(known) : port}${families > 1 ? ` ${family}` : ""}`;
  };
  const nowhere = (port) => unreached.filter((each) => each.service === service.id && each.port === port.name && each.protocol === port.protocol).slice(0, 1);
  const partsNowhere = (port) => partsOf(nowhere(port).map(({ open, stopped }) => ({ kind: open ? "open" : "bad", words: open ? NOT_KNOWN : "lost", chance: "1/1", why: open || stopped })));
  const each = [...of.map((some) => ({ parts: partsOfEnds(some, answered), edges: some, name: nameOf(some[0]) })), ...bare.map((port) => ({ parts: partsNowhere(port), edges: [], name: portName(port) }))];
  const alike = Map.groupBy(each, ({ parts, edges: some }) => JSON.stringify([some.length > 0, parts.map((part) => [part.kind, wordsOf(part)])]));
  const reached = ({ parts }) => (parts.length ? parts.reduce((all, part) => all + (part.kind === "ok" ? ratio(part.chance) : 0), 0) : 1);
  return [...alike.values()].map((some) => ({ parts: some[0].parts, edges: some[0].edges, names: some.map(({ name }) => name) })).sort((one, other) => reached(one) - reached(other));
}

/** The same where other nodes have not been looked at, or are wrong: what arrives from one node is no green. */
export const asOfOneNode = (ports) => ports.map((port) => ({ ...port, parts: port.parts.map((part) => (part.kind === "ok" ? { ...part, kind: "open" } : part)) }));

/** How an endpoint fares; what is worse hides what is better at another port. */
const FARES = ["loses", "none", "wrong", "part", "open", "used", "left"];
const FAULTS = { lost: "loses", missing: "none", refused: "none", unused: "none", wrong: "wrong" };

/**
 * The endpoints of a Service, each once for all ports, those with a fault first.
 *
 * @returns [{fares: one of `FARES`, told: in words}]
 */
export function endsOf(edges) {
  const each = [...Map.groupBy(edges, (edge) => edge.target || edge.endpoint).values()].map((some) => {
    const fares = some.map((edge) => (isOpen(edge) && edge.used ? "open" : (FAULTS[edge.fault] ?? (edge.used ? "used" : "left"))));
    const worst = FARES.find((name) => fares.includes(name));
    // Of several nodes: used from one, and with a fault from another.
    const faulty = some.find((edge) => edge.fault)?.view;
    const part = /loses|none/.test(worst) && some.some((edge, place) => fares[place] === "used" && edge.view !== faulty);
    return { fares: part ? "part" : worst, told: `${shortName(some[0].target) || plain(some[0].endpoint)}: ${[...new Set(some.map(gets))].join("; ")}` };
  });
  return each.sort((one, other) => FARES.indexOf(one.fares) - FARES.indexOf(other.fares));
}

const gets = (edge) => (edge.fault ? `${edge.used ? `${percent(edge.chance)}, ` : ""}${faultOf(edge)}` : isOpen(edge) ? edge.why || "not asked yet" : edge.used ? percent(edge.chance) : `left out: ${edge.why || edge.state}`);
