// The packet's header as a strip, and the hooks of a host as a diagram. Every view that shows a packet uses these two.

import { outerWords } from "./moments.js";
import { splitPort } from "../words.js";

const SOURCE = ["src", "source", (header) => splitPort(header.src)[0]];
const DESTINATION = ["dst", "destination", (header) => splitPort(header.dst)[0]];
const OTHERS = [
  ["mark", "mark", (header) => header.mark || "0x0"],
  ["ctstate", "conntrack", (header) => header.ctstate || "–"],
];
const PACKET = [
  SOURCE, ["sport", "port", (header) => splitPort(header.src)[1] || "any"],
  DESTINATION, ["dport", "port", (header) => splitPort(header.dst)[1] || "–"], ...OTHERS,
];
/** An ICMP error has no ports, but says what is the matter. */
const ERROR = [SOURCE, DESTINATION, ["says", "says", (header) => header.error.replace(/^icmp6?-/, "").replaceAll("-", " ")], ...OTHERS];

/**
 * @param header {src, dst, error, mark, ctstate, outer, host, device}
 * @param lit names of fields that have just been written
 * @param before the header of the moment before, for what was there
 */
export function Strip({ header, protocol, lit = new Set(), before = null }) {
  const icmp = /^icmp6?(?=-)/.exec(header.error)?.[0];
  const fields = (
    <dl class={icmp ? "strip error" : "strip"} data-test="strip">
      <div class="field proto"><dt>protocol</dt><dd>{icmp ? icmp.replace("6", "v6") : protocol}{header.error === "tcp-reset" ? " RST" : ""}</dd></div>
      {(icmp ? ERROR : PACKET).map(([name, label, read]) => {
        const now = read(header);
        const was = lit.has(name) && before ? read(before) : "";
        return (
          <div key={name} class={`field ${name}${lit.has(name) ? " lit" : ""}`} data-field={name}>
            <dt>{label}</dt>
            <dd>{was && was !== now && was !== "–" && <s class="was" aria-label={`was ${was}`}>{was}</s>}{now}</dd>
          </div>
        );
      })}
    </dl>
  );
  if (!header.outer) return <div class="strips">{fields}</div>;
  return (
    <div class={`strips wrapped${lit.has("outer") ? " lit" : ""}`}>
      <p class="outer"><b>{header.outer.kind.toUpperCase()}{header.outer.vni ? ` ${header.outer.vni}` : ""}</b> {header.outer.src} → {header.outer.dst}{header.outer.port ? `:${header.outer.port}` : ""}</p>
      <span class="visually-hidden">The packet travels inside {outerWords(header.outer)}.</span>
      {fields}
    </div>
  );
}

const STATIONS = {
  in: [25, 24, 38, "link"], PREROUTING: [99, 24, 92, "PREROUTING"], routing: [186, 24, 64, "routing"], FORWARD: [263, 24, 72, "FORWARD"],
  POSTROUTING: [359, 24, 100, "POSTROUTING"], out: [436, 24, 38, "link"], INPUT: [186, 76, 64, "INPUT"], host: [263, 76, 72, "process"], OUTPUT: [359, 76, 100, "OUTPUT"],
};
const LINES = [["in", "PREROUTING"], ["PREROUTING", "routing"], ["routing", "FORWARD"], ["FORWARD", "POSTROUTING"], ["POSTROUTING", "out"], ["routing", "INPUT"], ["INPUT", "host"], ["host", "OUTPUT"], ["OUTPUT", "POSTROUTING"]];

/** The hooks of one host; those that the packet passes, as `stationsOf` gives them, the one where it is now, and the one
 *  where no rule was for it. */
export function Hooks({ route, now = "", verdict, missing = "", label }) {
  const end = verdict === "ACCEPT" ? "" : route.at(-1);
  const said = { [end]: verdict, ...(missing && { [missing]: "no rule" }) };
  // Below the lower row is room for words where it has some.
  const low = Object.entries(STATIONS).some(([name, [, y]]) => said[name] && y > 24);
  const taken = new Set(route.slice(1).map((name, place) => `${route[place]} ${name}`));
  return (
    <svg class="hooks" viewBox={`3 4 456 ${low ? 104 : 94}`} role="img" aria-label={label}>
      {LINES.map(([one, other]) => <path key={`${one} ${other}`} class={taken.has(`${one} ${other}`) ? "line taken" : "line"} d={lineOf(one, other)} />)}
      {Object.entries(STATIONS).map(([name, [x, y, w, text]]) => (
        <g key={name} data-station={name} class={`station${route.includes(name) ? " passed" : ""}${now === name ? " now" : ""}${end === name ? ` stops ${verdict === "INDETERMINATE" ? "open" : "bad"}` : missing === name ? " misses bad" : ""}${/[a-z]/.test(name) ? " ends" : ""}`}>
          <rect x={x - w / 2} y={y - 14} width={w} height={28} rx={/^(in|out|host)$/.test(name) ? 14 : 6} />
          <text x={x} y={y + 4}>{text}</text>
          {said[name] && <text class="verdict" x={x} y={y + 25}>{said[name]}</text>}
        </g>
      ))}
    </svg>
  );
}

function lineOf(one, other) {
  const [[x1, y1, w1], [x2, y2, w2]] = [STATIONS[one], STATIONS[other]];
  if (x1 === x2) return `M${x1} ${y1 + (y2 > y1 ? 14 : -14)}V${y2 - (y2 > y1 ? 14 : -14)}`;
  return `M${x1 + w1 / 2} ${y1}H${x2 - w2 / 2}`;
}
