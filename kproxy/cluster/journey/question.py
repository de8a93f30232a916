"""A connection by names, over a whole cluster: who asks, and what is asked.

from   pod/[NS/]NAME, node/NAME, host/NAME (a host of the snapshot beside the nodes), NAME, IP
to     NAME[:PORT], svc/, lb/, externalip/[NS/]NAME[:PORT], nodeport/[NS/]NAME[:PORT][@NODE], pod/[NS/]NAME:PORT,
       node/NAME:PORT, IP:PORT

An IP is the Pod's, the node's or the host's that has it; any other is outside of the cluster. A node port is asked at
the asking node's own address, or at that of @NODE, which has to be said where who asks is on no node.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

from kproxy.cluster.journey.known import OUTSIDE, KnownNetwork
from kproxy.cluster.journey.network import POD
from kproxy.cluster.names import Names
from kproxy.dataplane.model.errors import DataplaneError
from kproxy.dataplane.model.packet import Endpoint, parse_endpoint
from kproxy.dataplane.query.spec import PacketError
from kproxy.errors import InputError
from kproxy.netfilter.address import format_address
from kproxy.render import Target


@dataclass(frozen=True, slots=True)
class PathQuestion:
    """Who asks, from which address (None: routing chooses), what, and by which protocol (`tcp`)."""

    client: str
    source: str | None
    destination: str
    protocol: str


def read_question(
    network: KnownNetwork, sender: str, receiver: str, proto: str | None, namespace: str = ""
) -> PathQuestion:
    """Reads the two ends.

    Args:
        proto: None for that of the Service's port, or tcp.
        namespace: of names that say none; "" for the only one that has such a name.

    Raises:
        InputError: a name stands for nothing, or the ends have no family in common.
    """
    cluster = network.cluster
    nodes = {node.metadata.name: node for node in cluster.manifests.nodes}

    def names_at(name: str) -> Names:
        target = Target(name, nodes.get(name))
        return Names(
            cluster.manifests, target, lambda: cluster.pods, lambda _for_who_looks_at_one_node: None, namespace
        )

    try:
        sender = _full(network, names_at(""), sender)
    except PacketError as error:
        raise InputError(f"--{error}") from error
    client = _client(network, sender)
    home = cluster.pods[client.removeprefix(POD)].node if client.startswith(POD) else client
    receiver, _, at = receiver.partition("@")
    if at and at not in nodes:
        raise InputError(f"--to: node {at} is not in the snapshot: {', '.join(nodes) or 'there is none'}")
    if receiver.startswith("nodeport/") and not at and home not in nodes:
        example = f"{receiver}@{next(iter(nodes), 'NODE')}"
        raise InputError(f"--to: a node port is asked at a node: say at which, as in {example}")
    names = names_at(at or home)
    fields: dict[str, object] = {"to": receiver, "proto": proto}
    if sender.startswith(("pod/", "node/")):
        fields["from"] = sender
    elif client.startswith(OUTSIDE) or not sender.startswith("host/"):
        fields["src"] = client.removeprefix(OUTSIDE) if client.startswith(OUTSIDE) else sender
    try:
        given = names.resolve(fields)
    except PacketError as error:
        raise InputError(f"--{error}") from error
    destination, source = given["dst"], given.get("src")
    assert isinstance(destination, Endpoint)
    protocol = str(given.get("proto") or "tcp")
    if destination.port is None and protocol in ("tcp", "udp", "sctp"):
        raise InputError(f"--to: a port expected, as in {receiver}:80")
    if isinstance(source, Endpoint):
        source = format_address(source.address, source.family)
    # Of a node routing chooses the address that it sends from.
    chosen = None if client in cluster.hosts or not source else str(source)
    return PathQuestion(client, chosen, str(destination), protocol)


def _full(network: KnownNetwork, names: Names, sender: str) -> str:
    """Who sends, with the kind and the namespace that the name leaves out. Raises PacketError."""
    with suppress(DataplaneError):
        parse_endpoint(sender)
        return sender
    if sender in network.cluster.hosts:
        return f"node/{sender}"
    return sender if sender.startswith(("node/", "host/")) else names.full("from", sender)


def _client(network: KnownNetwork, sender: str) -> str:
    """The host that sends."""
    kind, slash, rest = sender.partition("/")
    cluster = network.cluster
    if kind == "pod" and slash:
        key = rest.partition(":")[0]
        pod = cluster.pods.get(key)
        if pod is not None and pod.host_network:
            return pod.node
        if pod is None:
            _missing(f"pod {key}", cluster.pods)
        return f"{POD}{key}"
    if kind in ("node", "host") and slash:
        if rest not in cluster.hosts:
            _missing(f"{kind} {rest}", cluster.hosts)
        return rest
    try:
        family, value, _ = parse_endpoint(sender)
    except DataplaneError as error:
        raise InputError(f"--from: pod/NS/NAME, node/NAME, host/NAME or an address expected: {error}") from error
    return network.host_with(format_address(value, family))


def _missing(what: str, known: Iterable[str]) -> NoReturn:
    names = ", ".join(sorted(known)[:10])
    raise InputError(f"--from: {what} is not in the snapshot{f': {names}' if names else ''}")
