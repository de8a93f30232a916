"""What a packet meets where little is known: hosts that fit what is known, and what is taken for granted.

A dump alone does not say which addresses are the host's own. `Host.simple` makes a host of a few addresses;
`surroundings_of_rules` makes do with none:

- addresses that a chain of kube-proxy's names as a Service's, and those that DNAT leads to, are taken to be elsewhere,
  but for the packet's own destination: a host-network endpoint may be this host;
- those of virtual servers of IPVS are this host's, since kube-proxy gives them to the device kube-ipvs0;
- those to which kube-proxy restricts node ports are this host's, and so is the source of a packet that it sends;
- whether any other destination is this host's is unknown: the packet is traced for both, and where the answers differ,
  the outcome is INDETERMINATE.

That `route_localnet` is on follows from the rule that kube-proxy writes whenever it switches it on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kproxy.dataplane.concrete.trace import Outcome
from kproxy.dataplane.model.host import LOOPBACK_NETWORKS, Host
from kproxy.dataplane.model.ipvs import Ipvs
from kproxy.dataplane.model.packet import LOCAL, Packet
from kproxy.netfilter.address import format_address
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.ruleset import Ruleset
from kproxy.netfilter.iptables.targets import Jump
from kproxy.netfilter.nftables.ruleset import NftRuleset, Table

_OURS: Final = (
    "KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-PROXY-FIREWALL", "KUBE-SVC-", "KUBE-EXT-", "KUBE-FW-", "KUBE-XLB-",
)  # fmt: skip
"""How kube-proxy's chains begin that name addresses of Services: other programs have chains named KUBE-, too."""
_NODE_PORTS: Final = "KUBE-NODEPORTS"
_FIREWALL: Final = "KUBE-FIREWALL"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a packet is traced.

    Attributes:
        host: what is known.
        fitting: hosts of which one is surely the real one; `host` alone if nothing essential is open.
        assumptions: what was taken for granted, as sentences.
        question: what the fitting hosts differ in.
    """

    host: Host
    fitting: tuple[Host, ...]
    assumptions: tuple[str, ...] = ()
    question: str = ""

    @classmethod
    def known(cls, host: Host) -> Surroundings:
        """A host of which enough is known."""
        return cls(host, (host,))


def assumed_source(host: Host, outcome: Outcome) -> str | None:
    """The address that MASQUERADE is taken to have chosen: the only one that is known of a host whose interfaces are
    not. The kernel takes one of the interface that the packet leaves by, a bridge's or tunnel's for example.

    Returns:
        None if there was no such choice.
    """
    chose = any(step.did.upper().startswith("MASQUERADE:") for step in outcome.path)
    if not chose or not outcome.snat or host.interfaces is not None or outcome.packet.src is None:
        return None
    return format_address(outcome.packet.src, outcome.packet.family)


def shows_route_localnet(ruleset: Ruleset) -> bool:
    """Whether the rules hold the one that guards 127.0.0.0/8 where kube-proxy has node ports work on it."""
    chain = ruleset.chain("filter", _FIREWALL)
    loopback = LOOPBACK_NETWORKS[Family.IPV4]
    return chain is not None and any(
        rule.destination is not None and not rule.destination.negated and rule.destination.value == loopback
        for rule in chain.rules
    )


@dataclass(frozen=True, slots=True)
class NamedAddresses:
    """What kube-proxy's rules give away: `services` are elsewhere, `own` are the host's, and `served` those of virtual
    servers, which the host has."""

    services: frozenset[int]
    own: frozenset[int]
    served: frozenset[int] = frozenset()


def named_addresses(
    rulesets: Iterable[Ruleset], nftables: NftRuleset | None = None, servers: Iterable[Ipvs] = ()
) -> NamedAddresses:
    """Read from kube-proxy's rules, and from its sets and maps, whose addresses they name. Those of virtual servers are
    the host's own: kube-proxy gives them to a device."""
    services: set[int] = set()
    own: set[int] = set()
    served = frozenset(address for each in servers for _, address, _ in each.services)
    for ruleset in rulesets:
        for _, chain, _, rule in ruleset.rules():
            if not chain.name.startswith(_OURS) or rule.destination is None or rule.destination.negated:
                continue
            network = rule.destination.value
            if network.mask == network.family.full_mask:
                to = rule.target.chain if isinstance(rule.target, Jump) else ""
                (own if to == _NODE_PORTS else services).add(network.address)
    for table in () if nftables is None else nftables.tables:
        if table.name == _NFT_TABLE:
            for name in _SERVICE_SETS:
                services |= _addresses(table, name)
            own |= _addresses(table, _NODE_PORT_SET)
    return NamedAddresses(frozenset(services), frozenset(own), served)


_NFT_TABLE: Final = "kube-proxy"
_SERVICE_SETS: Final = ("cluster-ips", "service-ips", "no-endpoint-services", "firewall-ips")
_NODE_PORT_SET: Final = "nodeport-ips"


def _addresses(table: Table, name: str) -> set[int]:
    """The addresses of a set or map whose keys are addresses or begin with one."""
    found = table.set(name)
    keys = [element.key for element in found.elements] if found is not None else []
    firsts = [key[0] if isinstance(key, tuple) else key for key in keys]
    return {first for first in firsts if isinstance(first, int)}


def surroundings_of_rules(named: NamedAddresses, packet: Packet, *, route_localnet: bool) -> Surroundings:
    """What a packet meets on a host of which only the rules are known."""
    family = packet.family
    own = set(named.own)
    if packet.origin == LOCAL and packet.src is not None:
        own.add(packet.src)
    dst = packet.dst
    known = dst is None or dst in own or dst in named.served or LOOPBACK_NETWORKS[family].contains(dst)
    assumptions = ("no address of the host is given: those that the rules lead to are taken to be elsewhere",)
    texts = sorted(format_address(address, family) for address in own)
    served = [(family, address) for address in named.served]
    hosts = [Host.simple(texts, route_localnet=route_localnet).serving(served)]
    if dst is None or known or dst in named.services:
        return Surroundings(hosts[0], tuple(hosts), assumptions)
    address = format_address(dst, family)
    hosts.append(Host.simple([*texts, address], route_localnet=route_localnet).serving(served))
    host = Host.simple(None, route_localnet=route_localnet)
    return Surroundings(host, tuple(hosts), assumptions, f"whether {address} is an address of this host (--local-ip)")
