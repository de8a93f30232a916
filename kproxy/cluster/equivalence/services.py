"""Services that kube-proxy's rules treat alike, but for names, addresses and node ports: one shape. Two of each shape
stand for all in a comparison of two states of a node's rules.

Why that is enough. Services that share an address or a node port, and those of which one answers at the address of the
other's endpoint, are one group. What a group's ServicePorts become is met only by packets to an address at which the
group answers, to one of its node ports on the node itself, or to an endpoint that it has chosen. So

1. what becomes of a packet to a group does not depend on the rules of other groups. It could if an endpoint's port is
   another's node port (or health-check node port): such a group is kept always, of no shape but its own. Endpoints of
   several groups do not join them: the only rule about an endpoint that others meet is nftables mode's masquerading of
   what a pod sends to itself, and groups that do not agree on whether an endpoint is the node's own are one.
2. Swap, in every packet and rule, the addresses and node ports of one group with those of another of the same shape,
   one by one. kube-proxy's rules stay what they are but for their order and the names of chains: they compare addresses
   of Services, node ports and endpoints for being equal, and else with networks alone, of which both are in the same:
   those that source ranges, the configuration, the node's interfaces or the model itself name. So what holds of the one
   group holds of the other.

With two of each shape every pair of alike groups is in the comparison, too. Nodes whose groups have the same shapes,
and whose options are the same but for the node's own addresses, are swapped in the same way.

With the rules of other programs on a node, where these are known (`on`, `foreign`):

3. They, too, are what they were after the swap if both groups' addresses are in the same of the networks and ranges
   that these rules name, and their node ports in the same ranges of ports. So a Service whose address, endpoint or node
   port a rule names by itself is alike to none. Rules that tell addresses or ports apart by more than ranges, or jump
   to the chains of one Service, leave no two Services alike (`rule_constants.RuleConstants.of`).
4. A packet may meet rules of more groups than the one that it was sent to, since other programs may rewrite it. What
   they write is a number in a rule: the group that has it is of a shape of its own, and all groups in a range from
   which an address or a port is taken are kept. Where only the address is written, or only the port, the other is still
   the first group's: these are two groups at most whose rules such a packet meets beside kept ones, and every pair of
   alike groups is in the comparison.

Nodes are swapped as before if these rules read alike once the node's own addresses, and its own networks of pods, are
numbered in them. Such a network counts as the node's own where no other range that is named ends inside it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from typing import Final

import msgspec

from kproxy.api import EndpointSlice, Manifests, Service
from kproxy.cluster.equivalence.interval_partition import Interval, IntervalPartition, bounds, interval_of
from kproxy.cluster.equivalence.rule_constants import RuleConstants
from kproxy.cluster.node import NodeFacts
from kproxy.netfilter import Family
from kproxy.netfilter.address import Network, parse_address
from kproxy.netfilter.iptables.codec import UINT16
from kproxy.render.decisions import is_node_allowed
from kproxy.render.options import RenderOptions
from kproxy.services.endpoints import Endpoint, EndpointsMap
from kproxy.services.names import LABEL_SERVICE_NAME
from kproxy.services.serviceport import ServicePort
from kproxy.services.topology import select_endpoints
from kproxy.services.tracker import ServiceState

FEW: Final = 100
"""Up to so many Services are compared each; of more, those that stand for all."""
STAND: Final = 2
"""So many groups of each shape stand for all."""

_SPECIAL: Final = {
    Family.IPV4: ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4", "255.255.255.255/32"),
    Family.IPV6: ("::/127", "::1/128", "fe80::/10", "ff00::/8"),
}
"""Networks whose addresses are of another kind (`concrete.routing.address_type`), and those that no packet goes to."""

Group = tuple[str, ...]
"""Services that belong together, `namespace/name`, in order."""


@dataclass(frozen=True)
class Representatives:
    """What stands for all Services on one node.

    Attributes:
        services: `namespace/name` of those whose rules are compared.
        stands_for: for each of them those that are treated as it is, itself included, in order.
        twins: those of them that are there beside a first one of the same shape: what holds of them holds of that.
        key: equal for nodes that differ only in their own addresses.
    """

    services: frozenset[str]
    stands_for: Mapping[str, tuple[str, ...]]
    twins: frozenset[str]
    key: Hashable


class Parts:
    """A state of a cluster from which some of the Services are taken. `slices`: its EndpointSlices by Service."""

    def __init__(self, manifests: Manifests) -> None:
        self._all = manifests
        self._services: dict[str, list[Service]] = {}
        self.slices: dict[str, list[EndpointSlice]] = {}
        for service in manifests.services:
            self._services.setdefault(service.metadata.key, []).append(service)
        for item in manifests.endpoint_slices:
            self.slices.setdefault(service_of(item), []).append(item)

    def of(self, wanted: Collection[str]) -> Manifests:
        """The Services that are wanted and their EndpointSlices, with all other objects."""
        names = sorted(wanted)
        return dataclasses.replace(
            self._all,
            services=tuple(each for name in names for each in self._services.get(name, ())),
            endpoint_slices=tuple(each for name in names for each in self.slices.get(name, ())),
        )


class EquivalentServices:
    """The shapes of one or two states of a cluster, for one family. They are found node by node: what is the same on
    all nodes is looked at once."""

    def __init__(self, sides: Sequence[Manifests], family: Family) -> None:
        """
        Args:
            sides: the states; one if its Services and EndpointSlices are the same on both sides.
        """
        self._family = family
        self._sides = [_Side(each, family) for each in sides]
        every = [each for side in self._sides for each in side.every]
        self._groups = _groups(self._sides, every)
        self._group_of = {name: number for number, group in enumerate(self._groups) for name in group}
        self._kept = {self._group_of[name] for name in _kept(every)}
        self._ids: dict[Hashable, int] = {}
        self._common: dict[Hashable, list[int]] = {}
        self._meeting = cache(self._find_meeting)
        ranges = {text for _, port, _ in every for text in port.load_balancer_source_ranges}
        self._ranges = tuple(sorted(interval_of(text, family) for text in {*ranges, *_SPECIAL[family]}))

    def on(
        self,
        node: str,
        options: Sequence[Sequence[RenderOptions]],
        addresses: Iterable[str] = (),
        networks: Iterable[Network] = (),
        foreign: Sequence[RuleConstants] = (),
        pod_networks: Iterable[Network] = (),
    ) -> Representatives:
        """What stands for all on a node.

        Args:
            options: those with which each of the sides is rendered.
            addresses: the node's own, besides those that the options have.
            networks: of its interfaces, if they are known.
            foreign: what other programs' rules on the node name.
            pod_networks: of the node's own pods.
        """
        every = [each for side in options for each in side]
        own = {text: -1 - place for place, text in enumerate(dict.fromkeys([*_own(every), *addresses]))}
        singles = {interval_of(text, self._family) for text in own}
        fixed = {*self._ranges, *map(bounds, networks), *(_networks_of(every, self._family) - singles)}
        marks = self._marks(fixed, foreign, singles, pod_networks)
        common = self._common.get(marks.key)
        if common is None:
            plain = [_View(side.ports, side.state.endpoints, "", "", ()) for side in self._sides]
            common = [self._shape(number, plain, marks, {}) for number in range(len(self._groups))]
            self._common[marks.key] = common
        shapes = list(common)
        special = sorted(self._special(node, own))
        if special:
            views = self._views(node, options, [name for number in special for name in self._groups[number]])
            for number in special:
                shapes[number] = self._shape(number, views, marks, own)
        cells = marks.addresses
        of_own = tuple(cells.of(parse_address(each, self._family)) for each in own)
        return self._chosen(shapes, (marks.beside, of_own, tuple(_plain(each, own, cells) for each in every)))

    def _marks(
        self,
        fixed: set[Interval],
        foreign: Sequence[RuleConstants],
        singles: set[Interval],
        pod_networks: Iterable[Network],
    ) -> _Marks:
        """What rules name on a node, beside its own addresses, which are `singles`."""
        asked = {each for one in foreign for each in (*one.asked, *one.written)} - singles
        wide = {each for one in foreign for each in one.written if each[0] < each[1]}
        rest = fixed | {each for each in asked if each[0] <= self._family.full_mask}
        own = [each for each in map(bounds, pod_networks) if each in asked - fixed - wide and _is_apart(each, rest)]
        ports = IntervalPartition(each for each in asked if each[0] <= UINT16)
        kept = {number for each in wide for number in self._meeting(each)}
        return _Marks(IntervalPartition(rest, own), len(own), ports, frozenset(kept | self._kept))

    def _find_meeting(self, numbers: Interval) -> frozenset[int]:
        """The groups with an address, an endpoint or a node port in a range."""
        first, last = numbers
        names = set[str]()
        for side in self._sides:
            at = (found for text, found in side.at.items() if first <= parse_address(text, self._family) <= last)
            names.update(*at)
            names.update(
                name for name, port, _ in side.every if any(first <= each <= last for each in _node_ports(port))
            )
        return frozenset(self._group_of[name] for name in names)

    def _special(self, node: str, own: Iterable[str]) -> set[int]:
        """The groups that this node sees otherwise than one to which nothing belongs."""
        names = {name for side in self._sides for name in (*side.local.get(node, ()), *side.narrowed)}
        names |= {name for side in self._sides for text in own for name in side.at.get(text, ())}
        return {self._group_of[name] for name in names if name in self._group_of}

    def _views(self, node: str, options: Sequence[Sequence[RenderOptions]], names: Sequence[str]) -> list[_View]:
        views = []
        for side, each in zip(self._sides, options, strict=True):
            state = side.state_of(names, self._family, node)
            ports = _by_service(state.service_ports.values())
            for zone in dict.fromkeys(one.zone for one in each):
                allowed = tuple(one for one in each if one.zone == zone)
                views.append(_View(ports, state.endpoints, node, zone, allowed))
        return views

    def _shape(self, number: int, views: Sequence[_View], marks: _Marks, own: Mapping[str, int]) -> int:
        """The number of a group's shape: equal for those that can be swapped."""
        found = _Names(self._family, marks, own)
        parts: list[Hashable] = [self._groups[number]] if number in marks.kept else []
        for name in self._groups[number]:
            for view in views:
                parts += [view.shape(port, found) for port in view.ports.get(name, ())]
                parts.append(None)
        return self._ids.setdefault(tuple(parts), len(self._ids))

    def _chosen(self, shapes: Sequence[int], beside: Hashable) -> Representatives:
        members: dict[int, list[int]] = {}
        for number, shape in enumerate(shapes):
            members.setdefault(shape, []).append(number)
        stands_for: dict[str, tuple[str, ...]] = {}
        twins: set[str] = set()
        for numbers in members.values():
            columns = tuple(zip(*(self._groups[each] for each in numbers), strict=True))
            for number in numbers[:STAND]:
                stands_for |= zip(self._groups[number], columns, strict=True)
            twins.update(name for number in numbers[1:STAND] for name in self._groups[number])
        counted = frozenset((shape, min(len(numbers), STAND)) for shape, numbers in members.items())
        return Representatives(frozenset(stands_for), stands_for, frozenset(twins), (beside, counted))


class Alike:
    """Those Services of a cluster that stand for all, for all its nodes and one family."""

    def __init__(self, cluster: Manifests, family: Family) -> None:
        self.cluster = cluster
        self._parts = Parts(cluster)
        self._family = family

    @cached_property
    def _classes(self) -> EquivalentServices:
        return EquivalentServices([self.cluster], self._family)

    def facts(self, facts: NodeFacts, foreign: Sequence[RuleConstants | None] = ()) -> NodeFacts | None:
        """A node's facts with the Services that stand for all: what the modes do differently with them is what they do
        differently with all. None if there are few, or if rules of other programs, which name `foreign`, leave none
        alike."""
        named = [each for each in foreign if each is not None]
        if len(facts.service_ports) <= FEW or len(named) < len(foreign):
            return None
        name, options = facts.target.node_name, [facts.iptables, facts.nftables]
        chosen = self._classes.on(name, [options], facts.own_addresses, foreign=named)
        part = self._parts.of(chosen.services)
        state = ServiceState.of(facts.family, name, part.services, part.endpoint_slices)
        return dataclasses.replace(facts, state=state)


_Every = Sequence[tuple[str, ServicePort, Sequence[Endpoint]]]


class _Side:
    """One state of the cluster, as a node sees it to which nothing belongs. `every`: ServicePorts with the names of
    their Services and their endpoints."""

    def __init__(self, manifests: Manifests, family: Family) -> None:
        self.state = ServiceState.of(family, "", manifests.services, manifests.endpoint_slices)
        self.ports = _by_service(self.state.service_ports.values())
        self.every = [
            (name, port, self.state.endpoints.get(port.name, ()))
            for name, ports in self.ports.items()
            for port in ports
        ]
        self.parts = Parts(manifests)
        self.local: dict[str, set[str]] = {}
        # Those that depend on the node in other ways: on its zone or name by hints, on its address by source ranges.
        self.narrowed = {name for name, port, _ in self.every if port.load_balancer_source_ranges}
        for each in manifests.endpoint_slices:
            name = service_of(each)
            for entry in each.endpoints:
                if entry.node_name:
                    self.local.setdefault(entry.node_name, set()).add(name)
                if entry.hints is not None:
                    self.narrowed.add(name)

    @cached_property
    def at(self) -> Mapping[str, set[str]]:
        """The Services that answer at an address, or have an endpoint there."""
        found: dict[str, set[str]] = {}
        for name, port, endpoints in self.every:
            for text in (*addresses_of(port), *(each.ip for each in endpoints)):
                found.setdefault(text, set()).add(name)
        return found

    @cached_property
    def split(self) -> Mapping[str, set[str]]:
        """The Services of endpoints of which it is not agreed on which node they are, by address."""
        nodes: dict[str, set[str | None]] = {}
        services: dict[str, set[str]] = {}
        for name, slices in self.parts.slices.items():
            for entry in (entry for each in slices for entry in each.endpoints if entry.addresses):
                nodes.setdefault(entry.addresses[0], set()).add(entry.node_name)
                services.setdefault(entry.addresses[0], set()).add(name)
        return {text: services[text] for text, found in nodes.items() if len(found) > 1}

    def state_of(self, names: Iterable[str], family: Family, node: str) -> ServiceState:
        """Some of the Services, as a node sees them."""
        part = self.parts.of(set(names))
        return ServiceState.of(family, node, part.services, part.endpoint_slices)


@dataclass(frozen=True)
class _View:
    """ServicePorts and endpoints as a node sees them; `options` are those of its renderers."""

    ports: Mapping[str, Sequence[ServicePort]]
    endpoints: EndpointsMap
    node: str
    zone: str
    options: tuple[RenderOptions, ...]

    def shape(self, port: ServicePort, names: _Names) -> Hashable:
        """All of a ServicePort that its rules depend on."""
        chosen = select_endpoints(port, self.endpoints.get(port.name, ()), self.node, self.zone)
        address, node_port = names.address, names.node_port
        return (
            port.name.protocol,
            port.port,
            address(port.cluster_ip),
            tuple(map(address, port.external_ips)),
            tuple(map(address, port.load_balancer_vips)),
            port.load_balancer_source_ranges,
            tuple(is_node_allowed(port, each) for each in self.options) if port.load_balancer_source_ranges else (),
            node_port(port.node_port),
            node_port(port.health_check_node_port),
            port.session_affinity_seconds,
            port.internal_policy_local,
            port.external_policy_local,
            chosen.has_any,
            tuple(
                (address(each.ip), each.address.removeprefix(f"[{each.ip}]").removeprefix(each.ip), each.is_local)
                for each in chosen.reachable
            ),
            tuple(address(each.ip) for each in chosen.cluster),
            tuple(address(each.ip) for each in chosen.local),
        )


@dataclass(frozen=True)
class _Marks:
    """What rules on a node tell apart, whatever the addresses of its own are.

    Attributes:
        addresses, ports: the ranges that rules name; the first `own` ones are the node's own networks of pods.
        kept: the groups that are always compared.
    """

    addresses: IntervalPartition
    own: int
    ports: IntervalPartition
    kept: frozenset[int]

    @property
    def key(self) -> Hashable:
        """Equal where groups without an endpoint on the node have the same shapes."""
        return self.addresses.intervals, self.own, self.ports.intervals, self.kept

    @property
    def beside(self) -> Hashable:
        """Equal on nodes that differ in their own networks of pods alone."""
        intervals = self.addresses.intervals
        around = tuple(self.addresses.of(first) for first, _ in intervals[: self.own])
        return around, intervals[self.own :], self.ports.intervals


class _Names:
    """What stands for the addresses and node ports of one group: numbers in the order in which they are met."""

    def __init__(self, family: Family, marks: _Marks, own: Mapping[str, int]) -> None:
        self._family = family
        self._marks = marks
        self._own = own
        self._addresses: dict[str, int] = {}
        self._ports: dict[int, int] = {0: 0}

    def address(self, text: str) -> Hashable:
        """Of an address: its number, which of the node's own it is, and the networks that it is in."""
        found = self._addresses.get(text)
        if found is not None:
            return found
        self._addresses[text] = number = len(self._addresses)
        return number, self._own.get(text, 0), self._marks.addresses.of(parse_address(text, self._family))

    def node_port(self, port: int) -> Hashable:
        """Of a node port: its number, and the ranges that it is in; 0 is none."""
        return self._ports.setdefault(port, len(self._ports)), self._marks.ports.of(port) if port else ()


# --- groups ---


def _groups(sides: Sequence[_Side], every: _Every) -> tuple[Group, ...]:
    """Services that cannot be told apart by where they answer."""
    names = sorted({name for name, *_ in every})
    above = {name: name for name in names}

    def root(name: str) -> str:
        while above[name] != name:
            above[name] = name = above[above[name]]
        return name

    def join(one: str, other: str) -> None:
        first, second = sorted((root(one), root(other)))
        above[second] = first

    doors: dict[object, str] = {}
    for name, port, _ in every:
        for door in (*addresses_of(port), *_node_ports(port)):
            join(name, doors.setdefault(door, name))
    for name, _, endpoints in every:
        for each in endpoints:
            if each.ip in doors:
                join(name, doors[each.ip])
    for side in sides:
        for found in side.split.values():
            for name, other in pairwise(name for name in found if name in above):
                join(name, other)
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(root(name), []).append(name)
    return tuple(map(tuple, groups.values()))


def _kept(every: _Every) -> set[str]:
    """The Services one of whose node ports is a port of a Service or of an endpoint, too."""
    said = {port.port for _, port, _ in every}
    said.update(int(each.address.rpartition(":")[2]) for *_, endpoints in every for each in endpoints)
    return {name for name, port, _ in every if not said.isdisjoint(_node_ports(port))}


def addresses_of(port: ServicePort) -> tuple[str, ...]:
    """Where a ServicePort answers, node ports aside."""
    return port.cluster_ip, *port.external_ips, *port.load_balancer_vips


def _node_ports(port: ServicePort) -> tuple[int, ...]:
    return tuple(filter(None, (port.node_port, port.health_check_node_port)))


def _by_service(ports: Iterable[ServicePort]) -> dict[str, list[ServicePort]]:
    found: dict[str, list[ServicePort]] = {}
    for each in sorted(ports, key=lambda port: port.name):
        found.setdefault(each.name.service, []).append(each)
    return found


def service_of(item: EndpointSlice) -> str:
    """`namespace/name` of the Service that a slice is of; the name is "" for none."""
    return f"{item.metadata.namespace}/{item.metadata.labels.get(LABEL_SERVICE_NAME, '')}"


# --- nodes ---


def _own(options: Iterable[RenderOptions]) -> list[str]:
    return [text for each in options for text in (each.node_ip, *each.interface_addresses)]


def _networks_of(options: Iterable[RenderOptions], family: Family) -> set[Interval]:
    """The networks that kube-proxy's rules name on a node."""
    found: set[Interval] = set()
    for each in options:
        texts = [*each.service_cidrs, *each.node_port_addresses.cidrs, *filter(None, [each.local_traffic.source])]
        found.update(interval_of(text, family) for text in texts)
    return found


def _is_apart(one: Interval, others: Iterable[Interval]) -> bool:
    """Whether a range lies outside, or all inside, each of the others."""
    first, last = one
    return all(
        one == each or last < each[0] or each[1] < first or each[0] <= first <= last <= each[1] for each in others
    )


def _plain(options: RenderOptions, own: Mapping[str, int], cells: IntervalPartition) -> Hashable:
    """Options with numbers for the node's own addresses, and without what only chooses endpoints."""

    def token(text: str) -> Hashable:
        address = text.partition("/")[0]
        first, last = interval_of(text, options.family)
        single = address in own and first == last
        return (own[address], cells.of(first)) if single else text

    ports = options.node_port_addresses
    return (
        msgspec.structs.replace(
            options, node_name="", zone="", node_ip="", node_ips=(), interface_addresses=(),
            node_port_addresses=msgspec.structs.replace(ports, cidrs=()),
        ),
        token(options.node_ip),
        tuple(map(token, options.interface_addresses)),
        tuple(map(token, ports.cidrs)),
    )  # fmt: skip
