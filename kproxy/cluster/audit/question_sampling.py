"""Which ServicePorts rules treat alike, so that one of them is asked for all, on one node for many.

kube-proxy's rules for two ServicePorts differ in names, addresses and ports. What else is on the host (other programs'
rules, policies, kube-proxy's own rules for all) can tell them apart by addresses and ports that it names. So
ServicePorts are alike that have as many endpoints, of the same kinds, the same traffic policies and kinds of addresses,
whose addresses and ports lie in the same of these networks and ranges, and whose rules differ in the same way from what
they should be. Between nodes, a node's own addresses and podCIDRs stand for one another.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Final

import msgspec

from kproxy.cluster.audit.expected_actual import Sides
from kproxy.cluster.audit.node import AuditedNode
from kproxy.cluster.equivalence.interval_partition import Interval, IntervalPartition, interval_of
from kproxy.cluster.node import NodeFacts
from kproxy.netfilter import Family
from kproxy.netfilter.address import parse_address
from kproxy.services.serviceport import ServicePort

_ADDRESS: Final = re.compile(
    r"(?<![\w.:])((?:\d+\.){3}\d+|[0-9a-fA-F]*:[0-9a-fA-F:.]*)(?:/([\d.]+)|-((?:\d+\.){3}\d+|[0-9a-fA-F:]+))?(?![\w:])"
)
_NUMBER: Final = re.compile(r"(?<![\w./:x-])(\d{1,5})(?:[:-](\d{1,5}))?(?![\w./x])")
_SET: Final = re.compile(r"--match-set (\S+)")
_OPAQUE: Final = re.compile(r"-m (?:u32|bpf|string|cluster)\b|@(?:th|nh|ll|ih),|\b[js](?:ym)?hash\b")
"""What tells packets apart by more than what is compared here."""
_HASH: Final = re.compile(r"(KUBE-(?:SVC|SVL|EXT|FW|SEP)|service|external|firewall|endpoint)-[A-Z2-7]{8,16}(?:-\S+)?")
_COMMENT: Final = re.compile(r'(?:-m comment --)?comment ("[^"]*"|\S+)')


def _named(ranges: Iterable[tuple[int, int, str]]) -> Callable[[int], tuple[str, ...]]:
    """Tells the names of the ranges that a number is in."""
    names: dict[Interval, set[str]] = {}
    for first, last, name in ranges:
        names.setdefault((first, last), set()).add(name)
    cells = IntervalPartition(names)

    @cache
    def of(number: int) -> tuple[str, ...]:
        return tuple(sorted({name for place in cells.of(number) for name in names[cells.intervals[place]]}))

    return of


class Alike:
    """The kinds of ServicePorts of one node and family.

    Attributes:
        surroundings: what else is on the node: for nodes on which this is equal, ServicePorts of one kind are alike.
    """

    def __init__(self, node: AuditedNode, family: Family, sides: Sides) -> None:
        self._family = family
        self._facts: NodeFacts = node.facts[family]
        self._sides = sides
        self._own = {*self._facts.own_addresses, *node.host.addresses(family)}
        own = node.node.pod_cidrs if node.node is not None else ()
        self._pods = [ipaddress.ip_network(cidr, strict=False) for cidr in own]
        self._names = {**{str(network): "PODS" for network in self._pods}, **dict.fromkeys(self._own, "NODE")}
        self._words = _words(self._names)
        self._known: dict[str, tuple[str, ...]] = {}
        self._cidr_of, self._own_cidrs = node.shared.networks.of, frozenset(own)
        others = sides.others
        sets = set(_SET.findall(others))
        if sets:
            text = node.host.text("ipset-save") or ""
            others += "\n".join(
                line for line in text.splitlines() if line.split(" ", 2)[1:2] and line.split()[1] in sets
            )
        self._opaque = _OPAQUE.search(others) is not None
        self._networks = _named(self._addresses(others))
        self._ports = _named(
            (int(found[1]), int(found[2] or found[1]), found[0]) for found in _NUMBER.finditer(_ADDRESS.sub("", others))
        )
        config = self._plain(str(msgspec.structs.replace(node.config, hostname_override="")))
        self.surroundings = str((family.value, node.mode, config, self._plain(others), self._host(node)))

    def _plain(self, text: str) -> str:
        return text if self._words is None else self._words.sub(lambda found: self._names[found[0]], text)

    def _addresses(self, text: str) -> Iterable[tuple[int, int, str]]:
        for found in _ADDRESS.finditer(text):
            try:
                if found[3]:
                    first, last = (parse_address(each, self._family) for each in (found[1], found[3]))
                else:
                    first, last = interval_of(f"{found[1]}/{found[2]}" if found[2] else found[1], self._family)
            except ValueError:
                continue
            yield first, last, self._plain(found[0])

    def _host(self, node: AuditedNode) -> object:
        """Links and routes as rules see them: by which device packets come and go."""
        names = sorted(item.name for item in node.host.interfaces or ())
        routes: dict[str, int] = {}
        pods = {cidr for each in node.cluster.manifests.nodes for cidr in each.pod_cidrs}
        for route in node.host.routes or ():
            where = str(route.network)
            target = self._plain(where)
            if target == where and where in pods:
                target = "OTHERS"
            text = f"{target} {route.device} {route.kind}"
            routes[text] = routes.get(text, 0) + 1
        return names, routes, str(node.host.model.rules), node.host.routes is None, node.host.interfaces is None

    def kind(self, port: ServicePort, clients: Sequence[str] = ()) -> object:
        """What ServicePorts have in common that are alike; `clients`: the addresses from which it is asked."""
        if self._opaque:
            return str(port.name)
        chosen, ports = self._facts.selected[port.name], self._ports
        cluster, local = ({each.address for each in part} for part in (chosen.cluster, chosen.local))
        endpoints = sorted(
            (
                self._where(each.ip), ports(int(each.address.rpartition(":")[2])), each.is_local,
                each.address in cluster, each.address in local,
            )
            for each in chosen.reachable
        )  # fmt: skip
        outer = [sorted(map(self._where, part)) for part in (port.external_ips, port.load_balancer_vips)]
        return (
            port.protocol, port.internal_policy_local, port.external_policy_local, port.load_balancer_source_ranges,
            bool(port.node_port), ports(port.node_port), ports(port.port), self._where(port.cluster_ip),
            chosen.has_any, str(outer), str(endpoints), tuple(map(self._where, clients)), self._changes(port),
        )  # fmt: skip

    def _where(self, address: str) -> tuple[str, ...]:
        found = self._known.get(address)
        if found is None:
            found = self._networks(parse_address(address, self._family))
            found += ("node",) if address in self._own else ()
            found += ("pods",) if self._cidr_of(address) in self._own_cidrs else ()
            self._known[address] = found
        return found

    def _changes(self, port: ServicePort) -> tuple[str, ...]:
        """How its rules differ from what they should be, without what names it."""
        lines = self._sides.changed.get(port.name)
        if not lines:
            return ()
        names = dict.fromkeys((port.cluster_ip, *port.external_ips, *port.load_balancer_vips), "IP")
        names |= {each.ip: "ENDPOINT" for each in self._facts.state.endpoints.get(port.name, ())}
        words = _words(names)
        plain = (_COMMENT.sub("", _HASH.sub(r"\1", line)) for line in lines)
        if words is not None:
            plain = (words.sub(lambda found: names[found[0]], line) for line in plain)
        return tuple(sorted(map(self._plain, plain)))


def _words(names: Iterable[str]) -> re.Pattern[str] | None:
    escaped = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    return re.compile(rf"(?<![\w.:])(?:{escaped})(?![\w:]|\.\d)") if escaped else None
