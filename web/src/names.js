// References that people type and pick: what there is to ask, and what a Service's name stands for.

/** What is made of a map once, and not again of the next one that has the same list. */
function once(list, make) {
  const known = new WeakMap();
  return (map) => {
    if (!known.has(map[list])) known.set(map[list], make(map));
    return known.get(map[list]);
  };
}

/** Everything that may ask, as references. */
export const senders = once("pods", (map) => [
  ...map.pods.filter((pod) => pod.addresses.length).map((pod) => pod.id),
  ...map.nodes.map((node) => node.id),
  ...map.outside.map((item) => item.id),
]);

/** Everything that may be asked, as references. */
export const receivers = once("services", (map) => {
  const found = [];
  const node = map.nodes.find((item) => item.isNode !== false)?.name;
  for (const service of map.services) {
    if (service.skipped) continue;
    const name = `${service.namespace}/${service.name}`;
    const several = service.ports.length > 1;
    for (const port of service.ports) found.push(`svc/${name}${several ? `:${portName(port)}` : ""}`);
    for (const port of service.ports) {
      if (port.nodePort && node) found.push(`nodeport/${name}${several ? `:${portName(port)}` : ""}@${node}`);
    }
    for (const address of [...service.externalIPs, ...service.loadBalancerIPs]) {
      for (const port of service.ports) found.push(withPort(address, port.port));
    }
  }
  return found;
});

export const portName = (port) => port.name || String(port.port);

export function withPort(address, port) {
  return address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
}

/** The address and port that a Service's reference stands for; what is none is returned as it is. */
export function resolveTarget(map, to) {
  const found = /^svc\/([^/]+)\/([^/:]+)(?::(.+))?$/.exec(to ?? "");
  if (!found || !map) return to;
  const service = map.services.find((item) => item.namespace === found[1] && item.name === found[2]);
  if (!service || !service.clusterIPs.length) return to;
  const port = found[3]
    ? service.ports.find((item) => item.name === found[3] || String(item.port) === found[3])
    : service.ports[0];
  return port ? withPort(service.clusterIPs[0], port.port) : to;
}

/** The reference of a Service for the question: with its first port if it has several. */
export function serviceTarget(service) {
  const name = `svc/${service.namespace}/${service.name}`;
  return service.ports.length > 1 ? `${name}:${portName(service.ports[0])}` : name;
}

/** The Service that an address belongs to, as a reference; "" if none. */
export function serviceOf(map, address) {
  const host = address?.replace(/^\[?([^\]]*?)\]?:[^:]*$/, "$1");
  const found = map?.services.find((item) => [...item.clusterIPs, ...item.externalIPs, ...item.loadBalancerIPs].includes(host));
  return found?.id ?? "";
}
