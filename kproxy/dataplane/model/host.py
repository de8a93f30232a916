"""The host that the packet meets: interfaces, addresses, routes, sysctls, and the state that rules refer to.

What is not known stays open (None) and makes an outcome indeterminate where it would decide it. Two things are taken
as *fresh* unless said otherwise, like the connection itself: the lists of `-m recent` are empty, and so are connection
tracking and marks. `hostfile.parse_host` reads the YAML form, docs/host-file.md describes it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from kproxy.dataplane.model.ipset import IpSet
from kproxy.dataplane.model.packet import LOOPBACK, parse_ip
from kproxy.netfilter.address import Network, format_address
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import Masked, Range

LOOPBACK_NETWORKS: Final = {
    Family.IPV4: Network.parse("127.0.0.0/8", Family.IPV4),
    Family.IPV6: Network.parse("::1/128", Family.IPV6),
}
MULTICAST_NETWORKS: Final = {
    Family.IPV4: Network.parse("224.0.0.0/4", Family.IPV4),
    Family.IPV6: Network.parse("ff00::/8", Family.IPV6),
}

SHORT_SYSCTLS: Final = MappingProxyType(
    {
        "ip_forward": "net.ipv4.ip_forward",
        "ip6_forward": "net.ipv6.conf.all.forwarding",
        "route_localnet": "net.ipv4.conf.all.route_localnet",
        "rp_filter": "net.ipv4.conf.all.rp_filter",
        "accept_local": "net.ipv4.conf.all.accept_local",
        "bridge-nf-call-iptables": "net.bridge.bridge-nf-call-iptables",
        "bridge-nf-call-ip6tables": "net.bridge.bridge-nf-call-ip6tables",
    }
)
"""Short names that a host file may use; those of `conf` stand for all interfaces that have no value of their own."""


@dataclass(frozen=True, slots=True)
class InterfaceAddress:
    """An address of an interface with the length of its network's prefix, primary addresses first."""

    family: Family
    value: int
    prefix: int
    broadcast: int | None = None

    @property
    def network(self) -> Network:
        """The network that the address is in."""
        mask = self.family.full_mask ^ ((1 << (self.family.bits - self.prefix)) - 1)
        return Network(self.family, self.value & mask, mask)

    def __str__(self) -> str:
        return f"{format_address(self.value, self.family)}/{self.prefix}"


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface. `bridge` is the bridge whose port it is, empty for none; `hairpin` is the port's setting,
    None if not known."""

    name: str
    addresses: tuple[InterfaceAddress, ...] = ()
    bridge: str = ""
    hairpin: bool | None = None

    @property
    def is_loopback(self) -> bool:
        """Whether it is the loopback interface."""
        return self.name == LOOPBACK


@dataclass(frozen=True, slots=True)
class Route:
    """A route. `kind` is unicast, local, broadcast, blackhole, unreachable, prohibit or throw (the next rule of the
    policy is asked); `device` None is open, and so is `source` None: the kernel then takes an address of the device.
    The hops of a multipath route are routes that differ in device and gateway alone."""

    network: Network
    device: str | None = None
    gateway: int | None = None
    source: int | None = None
    kind: str = "unicast"
    metric: int = 0
    table: str = "main"

    @property
    def family(self) -> Family:
        """The family."""
        return self.network.family


@dataclass(frozen=True, slots=True)
class RoutingRule:
    """A rule of the routing policy, as `ip rule` has it: what is done if all that it asks for holds. The local table
    comes before all rules, `main` after them.

    Attributes:
        table: the table that is asked, by `action` lookup.
        in_interface: `lo` stands for the packets that the host itself makes.
        negated: it applies where its selectors do not.
        protocol, source_ports, destination_ports, tos: of the packet.
        action: lookup, unreachable, prohibit, blackhole, nop, or goto, which goes on at the priority `target`.
        suppress_prefix: routes with prefixes of so many bits or fewer do not count.
        other: a selector that is not modelled (`uidrange`); whether it holds is open.
        only_own: `other` asks what only packets of this host's own have.
    """

    table: str = ""
    priority: int = 32765
    family: Family | None = None
    mark: Masked | None = None
    source: Network | None = None
    destination: Network | None = None
    in_interface: str | None = None
    negated: bool = False
    protocol: int | None = None
    source_ports: Range | None = None
    destination_ports: Range | None = None
    tos: int | None = None
    action: str = "lookup"
    target: int | None = None
    suppress_prefix: int | None = None
    other: str = ""
    only_own: bool = False


@dataclass(frozen=True, slots=True)
class Host:
    """What is known of a host.

    Attributes:
        local_addresses: all addresses of the host in (family, integer) form, those of `interfaces` included; loopback
            addresses need not be named. None: not known.
        served: those of them that it has for virtual servers of IPVS, on a device that no packet leaves by: no source
            is chosen among these.
        interfaces: all interfaces by name, or None: not known.
        routes: all routes, those of connected networks included, or None: not known. Then every address that is not
            local counts as reachable, over an interface that is not known.
        rules: the routing policy; empty for the plain one.
        sysctls: by full name, `net.ipv4.ip_forward`, as integers. What is not there is not known.
        sets: contents of ipsets by name.
        recent: the lists of `-m recent`: per list, how many seconds ago each address was seen. A list that is not there
            is empty; None: the lists are not known.
        nth: the counters of `-m statistic --mode nth` by table, chain and rule number: how many packets the rule has
            seen, modulo its `--every`.
        elements: what packets have changed in nftables' sets since the rules were read, by table (`ip kube-proxy`) and
            set: data by key, True in a set, None for an element that is gone.
        transparent: protocol and port of the sockets that TPROXY may hand packets to; None: not known.
    """

    local_addresses: frozenset[tuple[Family, int]] | None = None
    interfaces: Mapping[str, Interface] | None = None
    routes: tuple[Route, ...] | None = None
    rules: tuple[RoutingRule, ...] = ()
    sysctls: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    sets: Mapping[str, IpSet] = field(default_factory=lambda: MappingProxyType({}))
    recent: Mapping[str, Mapping[int, tuple[int, ...]]] | None = field(default_factory=lambda: MappingProxyType({}))
    nth: Mapping[tuple[str, str, int], int] = field(default_factory=lambda: MappingProxyType({}))
    transparent: frozenset[tuple[int, int]] | None = None
    elements: Mapping[tuple[str, str], Mapping[Hashable, Hashable]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    served: frozenset[tuple[Family, int]] = frozenset()

    def serving(self, addresses: Iterable[tuple[Family, int]]) -> Host:
        """The host with addresses for virtual servers, which are its own; those that it has anyway are no such."""
        served = self.served.union(addresses) - (self.local_addresses or frozenset())
        own = None if self.local_addresses is None else self.local_addresses | served
        return replace(self, local_addresses=own, served=served)

    @classmethod
    def simple(cls, local_ips: Iterable[str] | None = None, *, route_localnet: bool = False) -> Host:
        """The short form: a node that forwards, of which only the addresses are known, completely; None: not even
        those. `route_localnet`: that setting is on; else it is not known.

        Interfaces and routes stay open. Reverse-path filtering is off, as in a Kubernetes node.

        Raises:
            DataplaneError: one is not an address.
        """
        known = None if local_ips is None else frozenset(map(parse_ip, local_ips))
        names = ("ip_forward", "ip6_forward", "bridge-nf-call-iptables", "bridge-nf-call-ip6tables")
        sysctls = {SHORT_SYSCTLS[name]: 1 for name in (*names, *["route_localnet"] * route_localnet)}
        sysctls[SHORT_SYSCTLS["rp_filter"]] = 0
        return cls(local_addresses=known, sysctls=MappingProxyType(sysctls))

    def is_local(self, family: Family, address: int) -> bool | None:
        """Whether the address is one of this host's; None if that is not known."""
        if LOOPBACK_NETWORKS[family].contains(address):
            return True
        return None if self.local_addresses is None else (family, address) in self.local_addresses

    def is_anycast(self, family: Family, address: int) -> bool | None:
        """Whether the address is a subnet-router anycast address of this host: the first of a network that it routes
        (RFC 4291, 2.6.1; the kernel leaves out prefixes of 127 and 128 bits). None if that is not known."""
        if family is not Family.IPV6 or self.interfaces is None:
            return False
        first = any(
            own.family is family and own.prefix < 127 and own.network.address == address
            for item in self.interfaces.values()
            for own in item.addresses
        )
        return self.forwards(family, None) if first else False

    def interface(self, name: str | None) -> Interface | None:
        """The interface of that name, or None if it is not known."""
        return None if self.interfaces is None or name is None else self.interfaces.get(name)

    def bridge_of(self, port: str | None) -> str | None:
        """The bridge that the interface is a port of, empty if it is none; None if that is not known."""
        found = self.interface(port)
        return None if found is None else found.bridge

    def forwards(self, family: Family, device: str | None) -> bool | None:
        """Whether packets that come in by the device are forwarded; None if not known."""
        if family is Family.IPV6:
            everywhere = self.sysctls.get("net.ipv6.conf.all.forwarding")
            return None if everywhere is None else bool(everywhere)
        own = self.sysctls.get(f"net.ipv4.conf.{device}.forwarding")
        everywhere = self.sysctls.get("net.ipv4.ip_forward") if own is None else own
        return None if everywhere is None else bool(everywhere)

    def flag(self, name: str, device: str | None) -> int | None:
        """An IPv4 setting of an interface that the kernel takes together with the one for all: the greater counts.

        Without a value of the interface's own, the one for all counts alone, so that host files may be short.
        """
        everywhere = self.sysctls.get(f"net.ipv4.conf.all.{name}")
        own = self.sysctls.get(f"net.ipv4.conf.{device}.{name}")
        if everywhere is None:
            return own or None
        if own is None:
            return everywhere
        return max(everywhere, own)

    def calls_iptables(self, family: Family) -> bool | None:
        """Whether bridged packets pass through iptables; None if not known."""
        name = "bridge-nf-call-iptables" if family is Family.IPV4 else "bridge-nf-call-ip6tables"
        value = self.sysctls.get(SHORT_SYSCTLS[name])
        return None if value is None else bool(value)


def local_addresses_of(interfaces: Iterable[Interface]) -> frozenset[tuple[Family, int]]:
    """All addresses of the interfaces, as `Host.local_addresses` wants them."""
    return frozenset((address.family, address.value) for item in interfaces for address in item.addresses)


def connected_routes(interfaces: Iterable[Interface]) -> tuple[Route, ...]:
    """The routes to the interfaces' own networks, which the kernel adds with each address."""
    routes = []
    for item in interfaces:
        for address in item.addresses:
            if address.prefix < address.family.bits and not item.is_loopback:
                source = address.value if address.family is Family.IPV4 else None
                routes.append(Route(address.network, item.name, source=source))
    return tuple(dict.fromkeys(routes))
