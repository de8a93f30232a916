// Tunnels as they are drawn: those of one kind and identifier as one line beside the network, from each to each.

const found = new WeakMap();

/**
 * Tunnels of a layout. One that is down, or that no other knows and which knows no other, has no line: no packet goes there.
 *
 * @returns [{key, x, ports}]: where the line is, and the boxes of the interfaces that it joins
 */
export function tunnelsOf(layout) {
  if (!found.has(layout)) found.set(layout, arranged(layout));
  return found.get(layout);
}

function arranged(layout) {
  const bar = layout.bars.find((item) => item.network.members.some((member) => layout.boxes.get(member.host)?.kind === "room"));
  if (!bar) return [];
  const nets = new Map();
  for (const box of layout.boxes.values()) {
    if (box.kind !== "port" || !box.port.tunnel || box.port.up === false || !leads(layout, box)) continue;
    const key = `${box.port.tunnel.kind} ${box.port.tunnel.vni ?? ""}`;
    if (!nets.has(key)) nets.set(key, []);
    nets.get(key).push(box);
  }
  return [...nets].map(([key, ports], number) => ({ key, ports, x: bar.x + bar.w + (layout.slim ? 5 : 9) + number * (layout.slim ? 3 : 7) })).filter(({ ports }) => ports.length > 1);
}

/** Whether another node that is drawn is a peer of this tunnel, or the other way round. */
function leads(layout, box) {
  if (!box.port.tunnel.peers) return true;
  for (const [, other] of layout.boxes) {
    if (other.kind !== "port" || other.node === box.node || !other.port.tunnel) continue;
    if (box.port.tunnel.peers.includes(other.node) || other.port.tunnel.peers?.includes(box.node)) return true;
  }
  return false;
}

/** The tunnel by whose interface a packet leaves a node for another one, with both interfaces; null if it goes by none. */
export function tunnelBetween(layout, from, device, to) {
  for (const { x, ports } of tunnelsOf(layout)) {
    const [one, other] = [ports.find((port) => port.node === from && port.port.name === device), ports.find((port) => port.node === to)];
    if (one && other) return { x, one, other };
  }
  return null;
}
