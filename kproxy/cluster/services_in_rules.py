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
from kproxy.netfilter.text import destination_of, key_of, owner_of, service_of
from kproxy.render.iptables.chains import EXTERNAL_SERVICES, NODEPORTS, SERVICES
from kproxy.render.nftables.names import TABLE, nft_family
from kproxy.services.names import family_of

CLUSTER_IP: Final = "clusterIP"
EXTERNAL_IP: Final = "externalIP"
LOAD_BALANCER_IP: Final = "loadBalancerIP"
NODE_PORT: Final = "nodePort"

_CHAINS: Final = (SERVICES, EXTERNAL_SERVICES, NODEPORTS)
_LEADS_TO: Final = re.compile(r"(?:--to-destination|dnat(?: ip6?)? to) ((?:\[[0-9a-f:.]+\]|[0-9.]+):\d+)")
_COMMENT: Final = re.compile(r' comment "([^":]+/[^":]+)(?::([^"]+))?"')
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
                    text = rule.spec()
                    to, (service, _, port) = destination_of(text), service_of(text).partition(":")
                    if to is not None and service:
                        said = next((kind for words, kind in _KINDS.items() if f" {words}" in text), "")
                        inside = CLUSTER_IP if chain.name == SERVICES else EXTERNAL_IP
                        kind = said or (inside if to.address else NODE_PORT)
                        family = ruleset.family or family_of(to.address)
                        yield Door(service, port, to.protocol.upper(), family, kind, to.address, to.port)


def _of_nftables(rules: HostRules) -> Iterator[Door]:
    for table in () if rules.nftables is None else rules.nftables.tables:
        family = next((each for each in Family if table.family.value == nft_family(each)), None)
        if table.name == TABLE and family is not None:
            yield from _of_table(table, family)


def _of_table(table: Table, family: Family) -> Iterator[Door]:
    scope = Scope(Style(stateless=True))
    for each in table.sets:
        for element in each.elements if each.is_verdict_map else ():
            text = print_element(element, each.types, each.data_types, scope)
            key, owner, comment = key_of(text), owner_of(text.rpartition(" ")[2]), _COMMENT.search(text)
            if key is None or (owner is None and comment is None):
                continue
            inside = owner is None or owner.kind == "service"
            kind = NODE_PORT if not key.address else CLUSTER_IP if inside else EXTERNAL_IP
            if owner is not None:
                service, port = f"{owner.namespace}/{owner.name}", owner.port
            elif comment is not None:
                service, port = comment[1], comment[2] or ""
            yield Door(service, port, key.protocol.upper(), family, kind, key.address, key.port)
