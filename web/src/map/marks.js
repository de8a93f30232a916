// Where on a map the numbers of findings stand: at the Services and nodes that they are about.

/** On so many nodes at most a finding's number stands at each. */
export const FEW_NODES = 12;

/**
 * @param items [{number, tone, href, current, label, services: ["svc/…"], nodes: names, devices: "node/NAME DEVICE"}]
 * @param more others that stand before them, by identifier
 * @returns the items by identifier of what they stand at, as `markSpots` takes them
 */
export function marksOf(items, map, more = null) {
  const found = new Map([...(more ?? [])].map(([id, others]) => [id, [...others]]));
  const drawn = new Set(map.nodes.length <= FEW_NODES ? map.nodes.map((node) => node.id) : []);
  for (const item of items) {
    const on = item.nodes.map((name) => `node/${name}`).filter((id) => drawn.has(id));
    // What is so on every node says nothing at each.
    const everywhere = drawn.size > 1 && on.length === drawn.size && !item.current;
    for (const id of new Set([...(everywhere ? [] : on), ...item.services, ...(drawn.size ? (item.devices ?? []) : [])])) {
      if (!found.has(id)) found.set(id, []);
      found.get(id).push(item);
    }
  }
  return found;
}
