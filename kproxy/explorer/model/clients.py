"""Who may ask one host whose rules are all that is known of it: a Pod, the host itself, and a client outside.

The rules tell the Pods' networks, or the interfaces that Pods are behind: kube-proxy masquerades what comes from
elsewhere. Where they do not tell, no Pod asks.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from kproxy.cluster.facts.proxyrules import PODS, read_iptables, read_nftables, said_of
from kproxy.cluster.rules import HostRules
from kproxy.dataplane import Packet
from kproxy.dataplane.model.packet import LOCAL, make_packet
from kproxy.netfilter import Family

POD: Final = "pod"
NODE: Final = "node"
OUTSIDE: Final = "outside"
_OWN: Final = {Family.IPV4: "192.0.2.1", Family.IPV6: "2001:db8:1::1"}
"""An address of the host that no rule is about, of networks for documentation (RFC 5737, RFC 3849)."""
_FIRST: Final = 9
"""The lowest number of a Pod: lower ones are gateways."""
_LOOKED: Final = 1000
_NEAR: Final = {Family.IPV4: 24, Family.IPV6: 64}


@dataclass(frozen=True, slots=True)
class Client:
    """Who asks.

    Attributes:
        id: `pod`, `node` or `outside`. label: for people.
        address: what it sends from. device: by which interface its packets come, "" if that is not known.
    """

    id: str
    label: str
    address: str
    device: str = ""

    def packet(self, destination: str, protocol: str) -> Packet:
        """A connection's first packet. Raises DataplaneError: the destination is none."""
        if self.id == NODE:
            return make_packet(self.address, destination, protocol, origin=LOCAL)
        packet = make_packet(self.address, destination, protocol)
        return packet.replace(in_interface=self.device) if self.device else packet


def clients_of(rules: HostRules, family: Family, outside: str, endpoints: Collection[str]) -> tuple[Client, ...]:
    """Those who may ask, in a family.

    Args:
        outside: the address of a client outside.
        endpoints: addresses that rules lead to: those of Pods, as a rule.

    Raises:
        InputError: a rule cannot be read.
    """
    texts = [text for text, of, iptables in rules.texts if iptables and of in (None, family)]
    counted = said_of(read_iptables({family: texts}), PODS, family)
    if rules.nftables is not None:
        counted += said_of(read_nftables(rules.nftables), PODS, family)
    found = [Client(NODE, "this host", _OWN[family]), Client(OUTSIDE, "a client outside", outside)]
    told = next((pods for pods, _ in counted.most_common() if pods), "")
    pod = _pod(told, family, endpoints) if told else None
    return (*((pod,) if pod is not None else ()), *found)


def _pod(told: str, family: Family, endpoints: Collection[str]) -> Client | None:
    own = [each for each in map(ipaddress.ip_address, endpoints) if each.version == family.version]
    is_network = "/" in told
    if is_network:
        network = ipaddress.ip_network(told, strict=False)
    elif own:
        network = ipaddress.ip_network((own[0], _NEAR[family]), strict=False)
    else:
        return None
    numbers = range(min(_FIRST, network.num_addresses - 1), min(network.num_addresses, _LOOKED))
    free = (network[number] for number in numbers if network[number] not in own)
    address = next(free, network[0])
    if is_network:
        return Client(POD, f"a Pod of {told}", str(address))
    name = told.removesuffix("+")
    return Client(POD, f"a Pod behind {name}", str(address), name if name == told else f"{name}0")
