// What becomes of packets from every node, where there are few.

import { useEffect, useState } from "preact/hooks";
import { FIRST_TRY, TRIES, embedded, get, holds } from "../api.js";
import { isNode } from "../map/layout.js";
import { withEndpoints } from "../map/shape.js";

/** Of more nodes a table has no room for a column each. */
const FEW_NODES = 6;
/** Services times nodes: of more, every node's chances are too much to ask for at once. */
const FEW_SHARES = 600;

/** Of one host's rules those who may ask, in the place of nodes. */
export const clientsOf = (map) => (map.clients ?? []).map(({ id, label }) => ({ name: id, label }));

/** The nodes of which each has a column: none if they are too many, or if one of them is all that is known. */
export function fewNodes(map) {
  if (map?.clients?.length && holds("clients")) return map.clients.length * map.services.length <= FEW_SHARES ? clientsOf(map) : [];
  const nodes = embedded || !map ? [] : map.nodes.filter(isNode);
  return nodes.length > 1 && nodes.length <= FEW_NODES && nodes.length * map.services.length <= FEW_SHARES ? nodes : [];
}

/** The map as clients on each of some nodes have it; those that have not been answered yet are null. */
export function useEachNode(nodes, map, revision) {
  const [maps, setMaps] = useState(() => new Map());
  // Of one node the page has the map already.
  const names = nodes.map((node) => node.name).filter((name) => name !== map?.view).join(" ");
  useEffect(() => {
    if (!names) return undefined;
    const stop = new AbortController();
    const ask = async (name, tries = 0) => {
      const found = withEndpoints(await get(`api/map?node=${encodeURIComponent(name)}`, stop.signal));
      if (stop.signal.aborted) return;
      setMaps((old) => new Map(old).set(name, found));
      // Of rules that have not all been asked yet a map has what the objects ask for.
      if (found.pending && tries < TRIES) setTimeout(() => { if (!stop.signal.aborted) ask(name, tries + 1).catch(() => {}); }, FIRST_TRY * 2 ** tries);
    };
    // That a source is away is said above the page.
    for (const name of names.split(" ")) ask(name).catch(() => {});
    return () => stop.abort();
  }, [names, revision]);
  return nodes.map((node) => (node.name === map?.view ? map : (maps.get(node.name) ?? null)));
}
