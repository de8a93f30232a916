// A way as a list of moments: each thing that happens to the packet, with its header as it is then.
//
// NAT at PREROUTING and OUTPUT writes the destination, at INPUT and POSTROUTING the source, of a connection's packets in
// both directions; so a translation without addresses of its own is read from where it happens.

import { hostId, shortName, splitPort } from "../words.js";

/** All moments of a way, there and back. */
export function momentsOf(way) {
  const found = [];
  const add = (direction, hops) => {
    hops.forEach((hop, number) => hopMoments(found, direction, hops, number, direction === "there" && way.untranslated?.hop === number ? way.untranslated : null));
  };
  add("there", way.there ?? []);
  if (found.length && !(way.back ?? []).length) found.at(-1).last = true;
  add("back", way.back ?? []);
  if (found.length) found.at(-1).last = true;
  let before = null;
  for (const moment of found) {
    moment.lit = before && before.direction === moment.direction ? changed(before.header, moment.header) : new Set();
    before = moment;
  }
  return found;
}

function hopMoments(found, direction, hops, number, missing) {
  const hop = hops[number];
  const header = { src: sourceOf(hop), dst: hop.dst, error: hop.error ?? "", mark: "0x0", ctstate: "", outer: null, device: hop.in ?? "", host: hop.host };
  const push = (kind, words, more = {}) => {
    found.push({ direction, hop: number, host: hop.host, kind, words, header: { ...header }, step: -1, hook: "", ...more });
  };
  const first = number === 0;
  const before = hops[number - 1];
  // To the one host of a dump an answer comes from elsewhere; what says that a packet is rejected is its own.
  const made = hop.host !== "host" || (direction === "there" ? stationsOf(hop)[0] === "host" : Boolean(hop.error));
  const name = direction === "there" ? "the packet" : errorWords(hop.error) || "the answer";
  if (first && made) push("begin", `${name} is sent`);
  else push("arrive", `${first ? `${name} ` : ""}arrives${hop.in ? ` by ${hop.in}` : ""}`, { unwrapped: Boolean(before?.outer) });
  const steps = hop.steps ?? [];
  const untranslated = missing ? steps.findLastIndex((step) => step.hook === missing.hook && step.table === missing.table) : -1;
  steps.forEach((step, place) => {
    if (tells(step, steps[place - 1])) {
      apply(header, hop, step);
      if (rewrites(step) && steps[place + 1]?.kind === "translate") apply(header, hop, steps[place + 1]);
      if (step.kind === "conntrack" || (!header.ctstate && hop.ctstate)) header.ctstate = hop.ctstate ?? "";
      push(step.kind, stepWords(step), { step: place, hook: step.hook ?? "", detail: step });
    }
    if (place === untranslated) push("missing", missingWords(missing, hop.dst, `of ${missing.table} ${missing.chain}`), { hook: missing.hook });
  });
  header.src = hop.leftSrc;
  header.dst = hop.leftDst;
  if (!header.ctstate) header.ctstate = hop.ctstate ?? "";
  const next = hops[number + 1];
  if (next) {
    header.outer = hop.outer ?? null;
    header.device = hop.out ?? "";
    header.mark = "0x0";
    push("wire", leaves(hop, next), { wire: true });
  } else {
    push("end", hop.verdict === "INDETERMINATE" ? "what happens here is open" : `${name} ${ended(hop, direction)}`, { verdict: hop.verdict });
  }
}

/** "an ICMP error (port unreachable)", "a TCP RST"; "" for what is none. */
function errorWords(error) {
  if (!error) return "";
  return error === "tcp-reset" ? "a TCP RST" : `an ICMP error (${error.replace(/^icmp6?-/, "").replaceAll("-", " ")})`;
}

/** The source that a packet begins with. That of what a host sends is chosen by routing, before any rule: of a connection its
 *  entry has it, and of an error nothing else writes it. */
function sourceOf(hop) {
  if (hop.src && !hop.src.startsWith("?")) return hop.src;
  return (hop.error ? "" : hop.conntrack?.original[0]) || hop.leftSrc;
}

/** What is not there: "none of the 9 rules of nat KUBE-SERVICES is for 10.96.0.10:80". */
export const missingWords = ({ asked }, destination, where) => (asked > 1 ? `none of the ${asked} rules ${where} is for ${destination}` : `no rule ${where} is for ${destination}`);

/** Whether a step is worth a stop: jumps between chains and policies that only let through are not, nor is a translation
 *  beside the rule that asked for it. */
function tells(step, before) {
  if (step.kind === "end") return false;
  if (step.kind === "policy") return !/accept/i.test(step.did ?? "");
  if (step.kind === "rule") return !/^(jump|goto|return)\b/i.test(step.did ?? "");
  return !(step.kind === "translate" && before && rewrites(before));
}

function stepWords(step) {
  const did = (step.did || step.text || step.kind).replaceAll(" -> ", " → ");
  if (step.kind === "conntrack") return `connection tracking: ${did}`;
  if (step.kind === "route") return `routing: ${did}`;
  if (step.kind === "translate") return `known connection: ${did}`;
  return did;
}

const rewrites = (step) => step.kind === "rule" && /^(DNAT|SNAT|MASQUERADE|REDIRECT|NETMAP|dnat|snat|masquerade|redirect)\b/.test(step.did ?? "");

function apply(header, hop, step) {
  if (step.mark !== undefined) header.mark = step.mark;
  else if (/\bmark\b.*\b(0x[0-9a-f]+)$/i.test(step.did ?? "")) header.mark = /(0x[0-9a-f]+)$/i.exec(step.did)[1];
  if (step.src !== undefined || step.dst !== undefined) {
    header.src = step.src ?? header.src;
    header.dst = step.dst ?? header.dst;
  } else if (step.kind === "translate") {
    if (step.hook === "PREROUTING" || step.hook === "OUTPUT") header.dst = hop.leftDst;
    else header.src = hop.leftSrc;
  }
}

function leaves(hop, next) {
  const to = shortName(hostId(next.host));
  if (hostId(hop.host) === hostId(next.host)) return "comes round by the loopback interface";
  const by = hop.out ? ` by ${hop.out}` : "";
  // The addresses of the outer header stand beside the packet's own.
  if (hop.outer) return `leaves${by} to ${to}, inside ${hop.outer.kind.toUpperCase()}${hop.outer.vni ? ` ${hop.outer.vni}` : ""}`;
  return `leaves${by} to ${to}`;
}

function ended(hop, direction) {
  if (hop.verdict === "ACCEPT") {
    if (hop.held) return "waits for a neighbour that does not answer";
    if (hop.host === "host" && hop.via !== "local") return `leaves${hop.out ? ` by ${hop.out}` : ""}`;
    return hop.via === "out" ? `leaves${hop.out ? ` by ${hop.out}` : ""}, and nobody ${direction === "there" ? "answers" : "takes it"}` : "is delivered";
  }
  return hop.verdict === "REJECT" ? "is rejected" : "is dropped";
}

export function outerWords(outer) {
  return `${outer.kind.toUpperCase()}${outer.vni ? ` ${outer.vni}` : ""} from ${outer.src} to ${outer.dst}`;
}

function changed(before, now) {
  const lit = new Set();
  const [bs, bsp] = splitPort(before.src);
  const [ns, nsp] = splitPort(now.src);
  const [bd, bdp] = splitPort(before.dst);
  const [nd, ndp] = splitPort(now.dst);
  if (bs !== ns) lit.add("src");
  if (bsp !== nsp) lit.add("sport");
  if (bd !== nd) lit.add("dst");
  if (bdp !== ndp) lit.add("dport");
  if (before.mark !== now.mark && now.mark !== "0x0") lit.add("mark");
  if (before.ctstate !== now.ctstate && now.ctstate) lit.add("ctstate");
  if (!before.outer && now.outer) lit.add("outer");
  return lit;
}

const FORWARDED = ["in", "PREROUTING", "routing", "FORWARD", "POSTROUTING", "out"];
const DELIVERED = ["in", "PREROUTING", "routing", "INPUT", "host"];
const SENT = ["host", "OUTPUT", "POSTROUTING", "out"];

/** What a packet passes on a host, in order: hooks also where no rule is asked; as far as it gets. */
export function stationsOf(hop) {
  const steps = (hop.steps ?? []).filter((step) => step.hook);
  const last = steps.at(-1);
  const local = steps.length ? steps[0].hook === "OUTPUT" : !hop.in;
  const here = hop.via === "local" || last?.hook === "INPUT" || (local && last?.hook === "PREROUTING");
  // What a host sends to itself leaves and comes in by its loopback interface.
  const all = local ? [...SENT, ...(here ? DELIVERED : [])] : here ? DELIVERED : FORWARDED;
  if (hop.verdict === "ACCEPT" || !last) return all;
  const end = last.kind === "route" && last.hook === "PREROUTING" ? "routing" : last.hook;
  return all.slice(0, all.indexOf(end) + 1 || all.length);
}
