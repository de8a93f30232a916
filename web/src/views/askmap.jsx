// The map of a question: the way of its packet, and which endpoints get how much of what is asked.

import { useCallback, useMemo } from "preact/hooks";
import { Drawing, useLayout, useSlim } from "../map/drawing.jsx";
import { askedOfHost, isOneHost } from "../map/onehost.js";
import { narrow } from "../map/shape.js";
import { serviceOf, serviceTarget } from "../names.js";
import { href } from "../route.js";
import { ENDS, failsOn, hostId, percent, shortName, sum } from "../words.js";

const FEW_HOSTS = 6;

/** The map with the way on it; of a large cluster only the hosts that its ways touch, unless the whole is asked for. */
export function AskMap({ map, query, answer, way, moment, ask, to }) {
  const slim = useSlim();
  const hosts = useMemo(() => (answer ? hostsOf(map, answer, way) : null), [map, answer, way]);
  const large = map.nodes.length > FEW_HOSTS || map.services.length > 12;
  const narrowed = Boolean(answer && large && !query.whole);
  const target = answer ? serviceOf(map, answer.to) || (query.to.startsWith("nodeport/") ? `svc/${query.to.slice(9).replace(/[:@].*$/, "")}` : "") : "";
  const shown = useMemo(() => {
    if (isOneHost(map)) return askedOfHost(map, { from: query.from, answer, way, service: target, alone: narrowed });
    if (!narrowed) return map;
    const found = narrow(map, { only: new Set(hosts.nodes.slice(0, slim ? hosts.own : FEW_HOSTS)), services: target ? new Set([target]) : new Set() });
    const near = found.pods.filter((pod) => hosts.all.has(pod.id));
    return { ...found, pods: near, outside: map.outside.filter((item) => hosts.all.has(item.id)) };
  }, [map, narrowed, hosts, target, slim, answer, way, query.from]);
  const opened = useMemo(() => new Set(hosts && (narrowed || hosts.nodes.length <= 4) ? hosts.nodes : []), [hosts, narrowed]);
  const layout = useLayout(shown, opened);
  // Where a thing on the map leads to does not hang on the step, so that a step draws only what moves.
  const hrefOf = useCallback((id) => {
    if (id.startsWith("open ")) return href("ask", { ...query, step: "", whole: "1" });
    const name = id.startsWith("svc/") ? serviceTarget(map.services.find((item) => item.id === id)) : id.startsWith("net/") ? "" : id;
    if (!name) return undefined;
    if (!query.from && !id.startsWith("svc/")) return ask({ from: name });
    if (query.from && query.to && !id.startsWith("svc/")) return ask({ from: name, to: query.to });
    return ask({ to: name });
  }, [map, ask({})]);
  // What is known of each node's rules is told by chances of all its clients; the answer has those of the one who asks.
  const drawn = useMemo(() => (answer && target && !isOneHost(map) ? askedOf(answer, shown, target) : shown), [answer, shown, target]);
  const hops = way && moment ? (moment.direction === "there" ? way.there : way.back) : way?.there;
  return (
    <Drawing map={drawn} layout={layout} hrefOf={hrefOf} selected={target} way={hops} moment={moment} lost={ENDS[way?.end]?.kind === "bad" ? way[failsOn(way)] : null} picks={{ from: shown.lit ?? query.from, to: query.to }} around={way ? 445 : 190}
      more={answer && large ? <a class="button small" href={to({ whole: query.whole ? "" : "1" })}>{query.whole ? isOneHost(map) ? "Only what is asked" : "Only the hosts on the way" : isOneHost(map) ? `All ${map.services.length} Services` : `Whole map (${map.nodes.length} hosts)`}</a> : null}
      label={way ? `The way of the packet: ${way.there.map((hop) => shortName(hostId(hop.host))).join(", ")}` : "Choose who asks, and whom"} />
  );
}

/** The map with what the answer says as what is known of the Service that is asked. */
function askedOf(answer, map, target) {
  const chances = new Map();
  for (const way of answer.journeys) if (way.end === "answered") chances.set(way.target, { at: hostId(way.at), all: [...(chances.get(way.target)?.all ?? []), way.probability] });
  const nodeOf = new Map(map.pods.map((pod) => [pod.id, pod.node]));
  const found = [...chances].map(([endpoint, { at, all }]) => {
    const known = map.edges.find((edge) => edge.service === target && edge.endpoint === endpoint);
    return { service: target, port: "", protocol: answer.protocol, family: "", node: nodeOf.get(at) ?? (at.startsWith("node/") ? at : ""), target: at, endpoint, ...known && { node: known.node, target: known.target }, used: true, chance: sum(all) };
  });
  return { ...map, edges: [...map.edges.filter((edge) => edge.service !== target), ...found], faults: faultsOf(map, answer, target), served: found.length ? new Set([...map.served, target]) : map.served };
}

/** What is wrong with Services: with the one that is asked, what the answer says. */
function faultsOf(map, answer, target) {
  const bad = answer.journeys.filter((way) => ENDS[way.end]?.kind === "bad");
  const words = [...Map.groupBy(bad, (way) => way.end)].map(([end, ways]) => `${percent(sum(ways.map((way) => way.probability)))} ${end}`).join(", ");
  return new Map([...[...map.faults].filter(([id]) => id !== target), ...(words ? [[target, words]] : [])]);
}

/** What the ways touch: all of it, and its nodes; first those of the way that is shown, of which there are `own`. */
function hostsOf(map, answer, shown) {
  const nodeOf = new Map(map.pods.map((pod) => [pod.id, pod.node]));
  const [all, nodes] = [new Set(), new Set()];
  let own = 0;
  for (const way of [...(shown ? [shown] : []), ...answer.journeys]) {
    for (const hop of [...way.there, ...(way.back ?? [])]) {
      const id = hostId(hop.host);
      all.add(id);
      const node = id.startsWith("node/") ? id : nodeOf.get(id);
      if (node) nodes.add(node);
    }
    own ||= nodes.size;
  }
  return { all, nodes: [...nodes], own };
}
