"""Names for the two ends of a connection: the client and the target.

from   client, node-1, POD, NAMESPACE/POD
to     svc/[NS/]NAME[:PORT], nodeport/[NS/]NAME[:PORT][@NODE], lb/..., externalip/..., localhost/...,
       pod/[NS/]NAME:PORT, IP:PORT; with /udp or /sctp at the end where a port's protocol does not say it
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kproxy.cluster.journey.network import POD
from kproxy.dataplane import DataplaneError, parse_endpoint
from kproxy.family import join_host_port
from kproxy.lab.cluster import ClusterView, ServicePortView, ServiceView, Value
from kproxy.lab.errors import LabInputError, NoSuchPodError
from kproxy.lab.spec import CLIENT, family_of

_KINDS: Final = ("svc", "nodeport", "lb", "externalip", "localhost", "pod")
LOOPBACK: Final = {4: "127.0.0.1", 6: "::1"}


class Target(Value, frozen=True):
    """What is asked.

    Attributes:
        kind: clusterIP, nodePort, loadBalancerIP, externalIP, localhost, pod or address.
        service: `NAMESPACE/NAME`, "" for a pod or an address.
        node: whose address it is, for node ports.
    """

    kind: str
    address: str
    port: int
    protocol: str
    service: str = ""
    node: str = ""

    @property
    def destination(self) -> str:
        """`IP:PORT` or `[IP]:PORT`."""
        return join_host_port(self.address, self.port)

    @property
    def label(self) -> str:
        via = f" of {self.node}" if self.node else ""
        return f"{self.kind}{via} {self.destination}/{self.protocol.lower()}"


def client_host(cluster: ClusterView, text: str) -> str:
    """The host that `--from` names: `client`, a node, or `pod/NAMESPACE/NAME`. Raises LabInputError."""
    if text == CLIENT:
        return CLIENT
    if any(node.name == text for node in cluster.nodes):
        return text
    try:
        pod = cluster.pod(text.removeprefix(POD))
    except NoSuchPodError as error:
        if "/" in text:
            raise
        nodes = ", ".join(node.name for node in cluster.nodes)
        raise LabInputError(f"no host {text!r}: there are {CLIENT}, {nodes}; and {error}") from error
    if pod.host_network:
        return pod.node
    if not pod.netns:
        raise LabInputError(f"pod {pod.key} has no namespace yet")
    return f"{POD}{pod.key}"


def find_target(cluster: ClusterView, text: str, family: int | None = None) -> Target:
    """What `--to` names; of the first of its families if `family` does not say which. Raises LabInputError."""
    name, protocol = text, ""
    for known in ("tcp", "udp", "sctp"):
        if text.lower().endswith(f"/{known}"):
            name, protocol = text[: -len(known) - 1], known.upper()
    kind, slash, rest = name.partition("/")
    if not slash or kind not in _KINDS:
        return _plain(name, protocol or "TCP")
    if kind == "pod":
        return _pod(cluster, rest, protocol, family)
    rest, _, node = rest.partition("@")
    key, _, port = rest.partition(":")
    service = cluster.service(key)
    found = _port(service, port, protocol)
    fitting = [
        target
        for target in service_targets(cluster, service, found)
        if target.kind == _SPELLED[kind]
        and (not node or target.node == node)
        and family in (None, family_of(target.address))
    ]
    if not fitting:
        where = f" at {node}" if node else ""
        raise LabInputError(f"{text}: Service {service.key} has no {_SPELLED[kind]}{where}")
    return fitting[0]


_SPELLED: Final = {
    "svc": "clusterIP",
    "nodeport": "nodePort",
    "lb": "loadBalancerIP",
    "externalip": "externalIP",
    "localhost": "localhost",
}


def service_targets(cluster: ClusterView, service: ServiceView, port: ServicePortView) -> Iterator[Target]:
    """Every address that one port of a Service is asked under."""

    def target(kind: str, address: str, number: int, node: str = "") -> Target:
        return Target(kind, address, number, port.protocol, service.key, node)

    for address in service.cluster_ips:
        yield target("clusterIP", address, port.port)
    for address in service.external_ips:
        yield target("externalIP", address, port.port)
    for address in service.load_balancer_ips:
        yield target("loadBalancerIP", address, port.port)
    if not port.node_port:
        return
    families = {family_of(address) for address in service.cluster_ips}
    for node in cluster.nodes:
        for address in node.addresses:
            if family_of(address) in families:
                yield target("nodePort", address, port.node_port, node.name)
    # The kernel has no route_localnet for IPv6, so kube-proxy serves localhost node ports for IPv4 only.
    if 4 in families:
        yield target("localhost", LOOPBACK[4], port.node_port)


def _port(service: ServiceView, text: str, protocol: str) -> ServicePortView:
    fitting = [port for port in service.ports if protocol in ("", port.protocol)]
    if text:
        fitting = [port for port in fitting if text in (port.name, str(port.port))]
    if len(fitting) == 1 or (fitting and not text):
        return fitting[0]
    there = ", ".join(f"{port.name or port.port}/{port.protocol.lower()}" for port in service.ports)
    raise LabInputError(f"Service {service.key} has no such port {text!r}: there are {there}")


def _pod(cluster: ClusterView, text: str, protocol: str, family: int | None) -> Target:
    name, _, number = text.partition(":")
    pod = cluster.pod(name)
    ports = [port for port in pod.ports if protocol in ("", port.protocol) and number in ("", str(port.number))]
    addresses = [address for address in pod.addresses if family in (None, family_of(address))]
    if not addresses:
        raise LabInputError(f"pod {pod.key} has no address{f' of IPv{family}' if family else ''}")
    if ports:
        return Target("pod", addresses[0], ports[0].number, ports[0].protocol)
    if not number.isdigit():
        raise LabInputError(f"pod/{text}: a port number expected")
    return Target("pod", addresses[0], int(number), protocol or "TCP")


def _plain(text: str, protocol: str) -> Target:
    try:
        _, _, port = parse_endpoint(text)
    except DataplaneError as error:
        raise LabInputError(
            f"{text!r}: {', '.join(f'{kind}/...' for kind in _KINDS)} or IP:PORT expected: {error}"
        ) from error
    if port is None:
        raise LabInputError(f"{text!r}: a port expected, as in {text}:80")
    address = text[1:].partition("]")[0] if text.startswith("[") else text.rpartition(":")[0]
    return Target("address", address, port, protocol)
