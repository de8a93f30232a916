"""Differences of several nodes as findings: those that read alike are one, with the Services and a question that shows
it on the map.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from kproxy.cluster.journey.known import OUTSIDE
from kproxy.dataplane.compare.compare import Comparison, Difference
from kproxy.dataplane.compare.record import difference_record
from kproxy.dataplane.model.packet import LOCAL
from kproxy.explorer.model import Model
from kproxy.family import join_host_port
from kproxy.netfilter import Family
from kproxy.netfilter.address import format_address
from kproxy.netfilter.family import protocol_name

MAX_FINDINGS: Final = 200


class AskHint(msgspec.Struct, frozen=True, rename={"sender": "from"}):
    """A question that shows a difference on the map."""

    sender: str
    to: str
    protocol: str


class Finding(msgspec.Struct, frozen=True, rename={"sources": "from"}):
    """One difference, with the nodes where it is. `witness` is as in `kproxy diff -o json`."""

    nodes: tuple[str, ...]
    families: tuple[str, ...]
    services: tuple[str, ...]
    statement: str
    destinations: tuple[str, ...]
    sources: str
    conditions: str
    before: str
    after: str
    witness: object
    ask: AskHint | None


class Open(msgspec.Struct, frozen=True):
    """Something that the model cannot decide."""

    where: str
    reason: str
    node: str


class Findings(msgspec.Struct, frozen=True):
    """What two states differ in."""

    alike: bool
    findings: tuple[Finding, ...]
    undecided: tuple[Open, ...]
    notes: tuple[str, ...]


class Gathered:
    """Differences of several nodes: those that read alike are one."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._owners = model.owners
        self._found: dict[tuple[object, ...], tuple[Difference, str, dict[str, None], dict[str, None]]] = {}
        self._undecided: list[Open] = []
        self._alike = True
        self._more = 0

    def add(self, node: str, family: Family, found: Comparison) -> None:
        self._alike = self._alike and found.alike
        self._more += found.unexamined
        for item in found.differences:
            key = (item.destinations, item.sources, item.conditions, item.one, item.other)
            _, _, nodes, families = self._found.setdefault(key, (item, node, {}, {}))
            nodes[node] = None
            families[family.value] = None
        self._undecided += [Open(item.where, item.reason, node) for item in found.undecided]

    def findings(self, notes: Sequence[str]) -> Findings:
        # What happens under few conditions is what most packets meet.
        shown = sorted(self._found.values(), key=lambda each: len(each[0].conditions))[:MAX_FINDINGS]
        more = [f"{self._more} more destinations differ"] if self._more else []
        left = len(self._found) - len(shown)
        more += [f"{left} more findings are not listed"] if left else []
        return Findings(
            self._alike,
            tuple(self._finding(*each) for each in shown),
            tuple(self._undecided[:MAX_FINDINGS]),
            (*notes, *more),
        )

    def _finding(self, item: Difference, node: str, nodes: Mapping[str, None], families: Mapping[str, None]) -> Finding:
        return Finding(
            nodes=tuple(nodes),
            families=tuple(families),
            services=self._services(item),
            statement=item.statement("before", "after"),
            destinations=item.destinations,
            sources=item.sources,
            conditions=item.conditions,
            before=item.one,
            after=item.other,
            witness=difference_record(item)["witness"],
            ask=self._ask(item, node),
        )

    def _services(self, item: Difference) -> tuple[str, ...]:
        """Those that answer at the address that the witness asks."""
        packet = item.witness.packet
        if packet.dst is None:
            return ()
        address = format_address(packet.dst, packet.family)
        found = []
        for service in self._model.manifests.services:
            spec = service.spec
            own = {*spec.cluster_ips, *spec.external_ips, *(each.ip for each in service.ingress)}
            for port in spec.ports:
                if protocol_name(packet.protocol) != port.protocol.lower():
                    continue
                if (address in own and port.port == packet.dport) or (
                    port.node_port and port.node_port == packet.dport and address not in own
                ):
                    found.append(f"svc/{service.metadata.key}")
        return tuple(dict.fromkeys(found))

    def _ask(self, item: Difference, node: str) -> AskHint | None:
        """A client that sends such a packet: the pod that has the source address, else one of the node, or whoever is
        outside."""
        packet = item.witness.packet
        if packet.dst is None or packet.dport is None:
            return None
        source = "" if packet.src is None else format_address(packet.src, packet.family)
        owner = self._owners.target(source)[0] if source else ""
        if packet.origin == LOCAL or ipaddress.ip_address(format_address(packet.dst, packet.family)).is_loopback:
            sender = f"node/{node}"
        elif owner.startswith(("pod/", "node/")):
            sender = owner
        else:
            pods = self._model.cluster.pods.values()
            near = [pod for pod in pods if pod.node == node and not pod.host_network and pod.addresses]
            sender = f"pod/{near[0].name}" if near else f"node/{node}"
        receiver = packet.destination
        address = format_address(packet.dst, packet.family)
        own = next((each for each, name in self._owners.nodes.items() if name == node), "")
        elsewhere = (
            self._owners.target(address)[0].startswith(OUTSIDE) and not ipaddress.ip_address(address).is_loopback
        )
        if own and elsewhere and self._is_node_port(packet.dport):
            receiver = join_host_port(own, packet.dport)
        return AskHint(sender, receiver, protocol_name(packet.protocol))

    def _is_node_port(self, port: int) -> bool:
        return any(port == each.node_port for item in self._model.manifests.services for each in item.spec.ports)
