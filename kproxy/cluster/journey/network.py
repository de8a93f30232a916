"""What a journey must be told of a network: its hosts, and who takes a packet from a link."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from kproxy.cluster.facts.links import Link
from kproxy.dataplane import Host, Index, Packet
from kproxy.netfilter import Family
from kproxy.netfilter.address import format_address

POD: Final = "pod/"


@dataclass(frozen=True)
class NetworkHost:
    """One host: a node, a pod or another one.

    Attributes:
        name: a node's own, `pod/NAMESPACE/NAME`, or another one that the network gives out.
        indexes: its rules by family.
        links: by name, None if not known.
        neighbours: MAC addresses by device and IP address, None if not known.
        tunnels: tunnel endpoints by device and MAC address, None if not known.
        unknown: why the rules of a family are not known; its index then holds none.
    """

    name: str
    host: Host
    indexes: Mapping[Family, Index]
    links: Mapping[str, Link] | None = None
    neighbours: Mapping[tuple[str, str], str] | None = None
    tunnels: Mapping[str, Mapping[str, str]] | None = None
    unknown: Mapping[Family, str] = field(default_factory=dict)

    @property
    def is_pod(self) -> bool:
        return self.name.startswith(POD)

    def owns(self, device: str, address: str) -> bool:
        """Whether a device of the host has an address."""
        found = self.host.interface(device)
        return found is not None and any(format_address(item.value, item.family) == address for item in found.addresses)


class Outer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The header that a tunnel puts around a packet: underlay addresses, UDP port and identifier.

    Attributes:
        device: the underlay's interface that the outer packet leaves by.
        kind: the kind of the link, `vxlan` or another one of `TUNNELS`; `port` and `vni` are 0 where it has none.
    """

    kind: str
    src: str
    dst: str
    device: str
    vni: int = 0
    port: int = 0

    def __str__(self) -> str:
        vni = f" {self.vni}" if self.vni else ""
        port = f":{self.port}" if self.port else ""
        return f"{self.kind.upper()}{vni} {self.src} -> {self.dst}{port}"


@dataclass(frozen=True, slots=True)
class Arrival:
    """The next host, its interface, and what the packet travelled in; `host` is empty if it gets nowhere.

    Attributes:
        device: the interface that it arrives by; None: not known.
        held: it has not left the host: no neighbour answers, or the interface has no carrier.
        refused: nobody answers on the link, and the sender gets an ICMP error after `NEIGHBOUR_SECONDS`.
        unknown: what becomes of it depends on something that is not known.
        choices: where it may arrive instead, each as likely as the others: a load balancer, or a router with several
            ways, chooses. `host` and all else are then empty.
    """

    host: str
    device: str | None = ""
    outer: Outer | None = None
    reason: str = ""
    held: bool = False
    refused: bool = False
    unknown: bool = False
    choices: tuple[Arrival, ...] = ()


class Network(Protocol):
    """The hosts, and what is between them."""

    def host(self, name: str) -> NetworkHost:
        """A host by name.

        Raises:
            KproxyError: there is none, or it cannot be read.
        """

    def unrouted(self, host: NetworkHost, packet: Packet) -> Arrival:
        """Where a packet goes of which the link that it leaves by is not known."""

    def station(self, host: NetworkHost, device: str, gateway: str, target: str) -> Arrival:
        """Who takes a packet from the wire that `device` is on: of a pod's its node, of the node's device for pods the
        pod that has the address.

        Args:
            gateway: whom it is sent to, which is `target` where no router is between.
        """

    def listens(self, host: str, protocol: str, port: int) -> bool:
        """Whether something answers at a port of a host. `protocol` is TCP, UDP or SCTP."""

    def refuses_sctp(self) -> bool:
        """Whether a host refuses its own SCTP packet that nothing listens for; else its raw socket takes the packet."""
