"""The Services that one host's rules tell of, where there are no objects: kube-proxy writes their names into comments
of iptables' rules, and into the names of chains in nftables.

In large clusters it leaves the comments out: such Services are not found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kproxy.cluster.rules import HostRules
from kproxy.netfilter import Family
from kproxy.netfilter.nftables.elements import print_element
from kproxy.netfilter.nftables.ruleset import Table
from kproxy.netfilter.nftables.style import Scope, Style
from kproxy.render.iptables.chains import EXTERNAL_SERVICES, NODEPORTS, SERVICES
from kproxy.render.nftables.names import TABLE, nft_family
from kproxy.services.names import family_of

CLUSTER_IP: Final = "clusterIP"
EXTERNAL_IP: Final = "externalIP"
LOAD_BALANCER_IP: Final = "loadBalancerIP"
NODE_PORT: Final = "nodePort"

_CHAINS: Final = (SERVICES, EXTERNAL_SERVICES, NODEPORTS)
_RULE: Final = re.compile(
    r"(?:-d (?P<address>[^\s/]+)(?:/\d+)? )?-p (?P<protocol>tcp|udp|sctp) .*"
    r'--comment "?(?P<namespace>[^\s"/]+)/(?P<name>[^\s":]+)(?::(?P<port>[^\s"]+))?(?: (?P<words>[^"]*))?"? .*'
    r"--dport (?P<number>\d+)"
)
_LEADS_TO: Final = re.compile(r"(?:--to-destination|dnat(?: ip6?)? to) ((?:\[[0-9a-f:.]+\]|[0-9.]+):\d+)")
_ELEMENT: Final = re.compile(
    r"(?:(?P<address>\S+) \. )?(?P<protocol>tcp|udp|sctp) \. (?P<number>\d+)"
    r'(?: comment "(?P<comment>[^"]*)")? : \S+(?: (?P<chain>\S+))?'
)
_CHAIN: Final = re.compile(
    r"(?P<kind>service|external|firewall)-[A-Z0-9]{8}-(?P<name>.+)/(?:tcp|udp|sctp)/(?P<port>.*)"
)
_NAMED: Final = re.compile(r"(?P<name>[^:]+/[^:]+)(?::(?P<port>.+))?")
_KINDS: Final = {"cluster IP": CLUSTER_IP, "external IP": EXTERNAL_IP, "loadbalancer IP": LOAD_BALANCER_IP}


@dataclass(frozen=True, slots=True)
class Door:
    """An address and port at which a Service answers; `address` is "" of a node port."""

    service: str
    port: str
    protocol: str
    family: Family
    kind: str
    address: str
    number: int


def doors_told(rules: HostRules) -> tuple[Door, ...]:
    """Where Services answer, by name, as far as the rules tell; each once."""
    found: dict[tuple[object, ...], Door] = {}
    for door in (*_of_iptables(rules), *_of_nftables(rules)):
        key = (door.service, door.port, door.protocol, door.family, door.address, door.number)
        if key not in found or door.kind == CLUSTER_IP:  # a rule that refuses does not say which kind of address it is
            found[key] = door
    return tuple(sorted(found.values(), key=lambda each: (each.service, each.port, each.protocol)))


def endpoints_told(rules: HostRules, family: Family) -> Iterator[str]:
    """Where rules of iptables and elements of nftables' maps lead, `ADDRESS:PORT`, of a family; not each once."""
    bracket = family is Family.IPV6
    for text, of, _ in rules.texts:
        if of in (None, family):
            yield from (each[1] for each in _LEADS_TO.finditer(text) if each[1].startswith("[") == bracket)


def _of_iptables(rules: HostRules) -> Iterator[Door]:
    for ruleset in rules.rulesets:
        for table in ruleset.tables:
            for chain in table.chains:
                for rule in chain.rules if chain.name in _CHAINS else ():
                    match = _RULE.search(rule.spec())
                    if match is not None:
                        address, words = match["address"] or "", match["words"] or ""
                        kind = _KINDS.get(words) or (
                            NODE_PORT if not address else CLUSTER_IP if chain.name == SERVICES else EXTERNAL_IP
                        )
                        family = ruleset.family or family_of(address)
                        yield Door(
                            f"{match['namespace']}/{match['name']}", match["port"] or "", match["protocol"].upper(),
                            family, kind, address, int(match["number"]),
                        )  # fmt: skip


def _of_nftables(rules: HostRules) -> Iterator[Door]:
    for table in () if rules.nftables is None else rules.nftables.tables:
        family = next((each for each in Family if table.family.value == nft_family(each)), None)
        if table.name == TABLE and family is not None:
            yield from _of_table(table, family)


def _of_table(table: Table, family: Family) -> Iterator[Door]:
    scope = Scope(Style(stateless=True))
    for each in table.sets:
        for element in each.elements if each.is_verdict_map else ():
            match = _ELEMENT.fullmatch(print_element(element, each.types, each.data_types, scope))
            named = (
                None
                if match is None
                else _CHAIN.fullmatch(match["chain"] or "") or _NAMED.fullmatch(match["comment"] or "")
            )
            if match is None or named is None:
                continue
            address = match["address"] or ""
            inside = named.groupdict().get("kind", "service") == "service"
            kind = NODE_PORT if not address else CLUSTER_IP if inside else EXTERNAL_IP
            yield Door(
                named["name"], named["port"] or "", match["protocol"].upper(), family, kind, address,
                int(match["number"]),
            )  # fmt: skip
