// Words and numbers: how chances, names and addresses are written on the page.

const THIRTY_ONE = 2147483648n;

function gcd(one, other) {
  // Chances that the kernel's random bits give are of powers of two, with hundreds of digits.
  if (other > 0n && (other & (other - 1n)) === 0n) {
    const lowest = one & -one;
    return lowest > 0n && lowest < other ? lowest : other;
  }
  while (other) [one, other] = [other, one % other];
  return one;
}

/** A chance as people read it: "33.3%", "50%", "under 0.01%". `exact` is "N/D". */
export function percent(exact) {
  const [top, below] = fraction(exact);
  if (top === 0n) return "0%";
  if (top === below) return "100%";
  const value = quotient(top, below) * 100;
  if (value < 0.01) return "under 0.01%";
  if (value > 99.99) return "over 99.99%";
  const digits = value < 1 || value > 99 ? 2 : 1;
  return `${Number(value.toFixed(digits))}%`;
}

/** The same of a number. */
export const percentOf = (share) => percent(`${Math.round(share * 1e4)}/10000`);

/** The sum of exact chances, exactly. */
export function sum(chances) {
  let [top, below] = [0n, 1n];
  for (const chance of chances) {
    const [one, other] = fraction(chance);
    [top, below] = [top * other + one * below, below * other];
    const common = gcd(top, below) || 1n;
    [top, below] = [top / common, below / common];
  }
  return `${top}/${below}`;
}

/** A chance as a number from 0 to 1. */
export function ratio(exact) {
  const [top, below] = fraction(exact);
  return quotient(top, below);
}

/** As a number; of many endpoints in a row both are too large for one. */
const quotient = (top, below) => Number((top * 10n ** 18n) / below) / 1e18;

/** What a percentage leaves open: "exactly 1/3", or that it is nearly so; "" where it leaves nothing. */
export function exactly(exact) {
  const [top, below] = fraction(exact);
  if ((1000n * top) % below === 0n) return "";
  if (below <= 100000n) return `exactly ${top}/${below}`;
  const near = simple(quotient(top, below));
  if (String(below).length > 40) return near ? `about ${near}` : "";
  return `exactly ${top}/${below}${near && below % THIRTY_ONE === 0n ? `, as the kernel's 31 random bits give ${near}` : ""}`;
}

function simple(value) {
  for (let below = 1; below <= 64; below += 1) {
    const top = Math.round(value * below);
    if (top > 0 && Math.abs(top / below - value) < 1e-8) return `${top}/${below}`;
  }
  return "";
}

function fraction(exact) {
  const [top, below = "1"] = String(exact ?? "0").split("/");
  try {
    const [one, other] = [BigInt(top), BigInt(below)];
    const common = gcd(one, other) || 1n;
    return [one / common, other / common];
  } catch {
    return [0n, 1n];
  }
}

/** The map's identifier of a host as answers name it: "worker-1" is "node/worker-1". */
export function hostId(name) {
  return !name || name.includes("/") ? name : `node/${name}`;
}

/** A reference for people: "pod/shop/cart-0" is "shop/cart-0", "outside/1.2.3.4" is "1.2.3.4". */
export function plain(id) {
  if (!id) return "";
  if (id.startsWith("outside/")) return id === "outside/" ? "outside" : id.slice(8);
  return id.replace(/^(pod|node|svc|host|net)\//, "");
}

/** The last part of a reference: "pod/shop/cart-0" is "cart-0". */
export function shortName(id) {
  return plain(id).split("/").pop();
}

/** A text of at most `most` characters; what is long loses its middle, where generated names differ least. */
export function fit(text, most) {
  if (text.length <= most) return text;
  const tail = Math.ceil((most - 1) * 0.45);
  return `${text.slice(0, most - 1 - tail)}…${text.slice(text.length - tail)}`;
}

/** "1 node", "3 nodes". */
export function count(number, one, many = `${one}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

/** Splits "10.0.0.1:80" or "[::1]:80" into address and port. */
export function splitPort(text) {
  const found = /^(?:\[([^\]]+)\]|([^:]*)):([^:]+)$/.exec(text ?? "");
  return found ? [found[1] ?? found[2], found[3]] : [text ?? "", ""];
}

const leavesHost = (hop) => ({ local: "delivered to this host", out: `leaves by ${hop.out || "an interface"}`, bridged: "passed on by the bridge" })[hop.via] ?? "";

export const ENDS = {
  answered: { mark: "✓", kind: "ok", words: "answered" },
  refused: { mark: "✕", kind: "bad", words: "refused" },
  lost: { mark: "✕", kind: "bad", words: "lost" },
  unreachable: { mark: "✕", kind: "bad", words: "unreachable" },
  open: { mark: "?", kind: "open", words: "open" },
  accepted: { mark: "✓", kind: "ok", words: "accepted by the rules" },
  dropped: { mark: "✕", kind: "bad", words: "dropped" },
  rejected: { mark: "✕", kind: "bad", words: "rejected" },
  mixed: { mark: "◐", kind: "open", words: "mixed" },
};

/** What happened to a packet by its verdict, where that is more than that it is lost. */
export const STOPPED = { DROP: "dropped", REJECT: "refused" };

/** How a way ends. Of one host alone only that is known which its rules decide, and not whether anybody answers. */
export function endOf(way) {
  return way.at === "host" ? ({ answered: "accepted", lost: "dropped", refused: "rejected" }[way.end] ?? way.end) : way.end;
}

/** Where a way ends: at whom who is answered, else the host where it is lost. */
export function whereOf(way) {
  if (endOf(way) !== way.end) return way.target;
  return way.end === "answered" ? plain(way.at) : `at ${plain(way.at)}`;
}

/** In which direction a packet or its answer gets no further; what says so to the sender comes back, too. */
export const failsOn = (way) => (way.end === "answered" ? "" : /^(lost|open)$/.test(way.end) && way.back?.length ? "back" : "there");

/** The hop on which it gets no further; undefined where it is answered. */
const lastHop = (way) => way[failsOn(way)]?.at(-1);

/** The rule or policy of a hop that drops or rejects the packet; undefined if none does. */
export function fatalOf(hop) {
  if (!/^(DROP|REJECT)$/.test(hop?.verdict ?? "")) return undefined;
  return hop.steps?.findLast((step) => /^(rule|policy)$/.test(step.kind) && /^(drop|reject)/i.test(step.did ?? ""));
}

/** The comment of a rule as iptables and nft print it, else of whom it is. */
function commentOf(step) {
  const found = /(?:--comment|\bcomment(?= ")) (?:"((?:[^"\\]|\\.)*)"|(\S+))/.exec(step.text ?? "");
  return found?.[1] ?? found?.[2] ?? step.provenance ?? "";
}

/** By what a packet is dropped or rejected: "by rule 1 of filter FORWARD on worker-1: hardening-2024". */
function byWhat(step, host) {
  const where = `${step.table ? `${step.table} ` : ""}${step.chain}${host === "host" ? "" : ` on ${plain(host)}`}`;
  const comment = commentOf(step);
  return `${step.hook && step.hook !== step.chain ? `in ${step.hook} ` : ""}by ${step.kind === "policy" ? "the policy" : `rule ${step.rule}`} of ${where}${comment ? `: ${comment}` : ""}`;
}

/** Where a packet that is not answered was sent to instead of what was asked; "" if nothing rewrote it. */
export const sentTo = (way) => (way.end !== "answered" && way.target && way.target !== way.there?.[0]?.dst && way.there?.some((hop) => hop.dnat) ? way.target : "");

/** Whether words stand on a line of their own, since they do not fit beside how a way ends. */
export const isLong = (words, way) => words.length + Math.max(8, (ENDS[endOf(way)]?.words ?? way.end).length) > 21;

/** One way's end in a sentence's half: "answered by shop/web-0 at 10.244.1.5:8080". */
export function endWords(way) {
  const end = ENDS[endOf(way)]?.words ?? way.end;
  if (endOf(way) === "accepted") {
    const last = way.there.at(-1);
    const leaves = [`${end}: ${way.source} → ${way.target}`, leavesHost(last)].filter(Boolean).join(", ");
    return last.via === "local" ? leaves : `${leaves}; they do not tell whether it arrives`;
  }
  if (way.end === "answered") {
    const seen = way.source ? `, which sees ${way.source}` : "";
    return `${end} by ${plain(way.at)} at ${way.target}${seen}`;
  }
  const last = lastHop(way);
  const fatal = fatalOf(last);
  if (fatal) return `${last === way.there.at(-1) ? "" : "the answer is "}${last.verdict === "DROP" ? "dropped" : "rejected"} ${byWhat(fatal, last.host)}`;
  const hook = way.there?.at(-1)?.steps?.at(-1)?.hook;
  return `${end}${end !== way.end ? (hook ? ` in ${hook}` : "") : ` at ${plain(way.at)}`}${way.reason ? `: ${way.reason}` : ""}`;
}
