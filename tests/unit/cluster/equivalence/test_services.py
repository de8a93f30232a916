"""Services of one shape: those that stand for others are treated as these are, by every packet, on every node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kproxy.api import Manifests
from kproxy.api.kubeproxyconfig.types import KubeProxyConfiguration
from kproxy.api.types.core import LoadBalancerIngress, Service, ServicePort
from kproxy.api.types.discovery import EndpointPort, EndpointSlice
from kproxy.cluster.equivalence.services import STAND, EquivalentServices, Representatives, addresses_of
from kproxy.cluster.migrate.foreign import ForeignRules
from kproxy.cluster.migrate.steps import iptables_rules, nftables_rules
from kproxy.cluster.node import NodeFacts
from kproxy.dataplane.compare.compare import deep_recursion
from kproxy.dataplane.symbolic.build import set_up
from kproxy.dataplane.symbolic.cases import CONNTRACK_CASES, ORIGINS
from kproxy.dataplane.symbolic.nodes import FALSE
from kproxy.netfilter import Family
from kproxy.netfilter.address import Network, parse_address
from kproxy.render import Features, Target
from kproxy.services import serviceport
from kproxy.services.endpoints import Endpoint
from kproxy.services.topology import SelectedEndpoints
from tests.support.cluster.alike_services import NODES, random_cluster
from tests.support.cluster.foreign_rules import OUTSIDE, UNFIT, random_rules
from tests.support.examples import spread
from tests.support.services.builders import make_endpoint, make_node, make_service, make_slice

PROTOCOLS = {"TCP": 6, "UDP": 17}
FOREIGN = 10
"""So many random sets of rules of other programs are tried in each family."""


def _config(**given: object) -> KubeProxyConfiguration:
    return KubeProxyConfiguration(cluster_cidr="10.244.0.0/16,fd00:10:244::/56", **given)  # type: ignore[arg-type]


def _facts(cluster: Manifests, name: str, family: Family, config: KubeProxyConfiguration) -> NodeFacts:
    node = next((each for each in cluster.nodes if each.metadata.name == name), None)
    return NodeFacts.of(cluster, config, Target(name, node), family, Features())


def _part(cluster: Manifests, names: frozenset[str]) -> Manifests:
    return Manifests(
        tuple(each for each in cluster.services if each.metadata.key in names),
        tuple(each for each in cluster.endpoint_slices if f"shop/{each.metadata.name}" in names),
        nodes=cluster.nodes,
    )


class Functions:
    """What both modes do, and for which packets they do not do the same."""

    def __init__(self, facts: NodeFacts, foreign: ForeignRules | None = None) -> None:
        sides = iptables_rules(facts), nftables_rules(facts)
        if foreign is not None:
            sides = foreign.with_iptables(sides[0]), foreign.with_nftables(sides[1])
        self._setup = set_up(*sides, facts.family)
        self._different = []
        with deep_recursion():
            for origin in ORIGINS:
                for state in CONNTRACK_CASES:
                    pair = [self._setup.pipeline.function(side, origin, state) for side in self._setup.sides]
                    self._different.append(self._setup.outcomes.different(*pair))

    def differ(self, address: str, protocol: str, port: int) -> tuple[bool, ...]:
        """For each origin and state, whether the modes differ for packets to a destination."""
        variables = self._setup.variables
        fixed = (
            *variables.values_of(variables.dst, parse_address(address, variables.family)),
            *variables.values_of(variables.protocol, PROTOCOLS[protocol]),
            *variables.values_of(variables.dport, port),
        )
        restrict = variables.diagrams.restrict
        return tuple(restrict(each, tuple(sorted(fixed))) != FALSE for each in self._different)


def _points(facts: NodeFacts, service: str) -> Iterator[tuple[str, str, int]]:
    """Destinations that are a Service's, in an order that is the same for Services of one shape."""
    for port in facts.service_ports:
        if port.name.service != service:
            continue
        protocol = port.name.protocol
        for address in addresses_of(port):
            yield address, protocol, port.port
            yield address, protocol, 4242
            if port.node_port:
                yield address, protocol, port.node_port
        for number in filter(None, (port.node_port, port.health_check_node_port)):
            yield facts.own_addresses[0], protocol, number
            yield "203.0.113.77" if facts.family is Family.IPV4 else "2001:db8:5::5", protocol, number
        for each in facts.selected[port.name].reachable:
            yield each.ip, protocol, int(each.address.rpartition(":")[2])
            yield each.ip, protocol, 4242


def _chosen(cluster: Manifests, facts: NodeFacts, name: str) -> Representatives:
    return EquivalentServices([cluster], facts.family).on(name, [[facts.iptables, facts.nftables]])


@pytest.mark.parametrize("family", list(Family))
@pytest.mark.parametrize("seed", spread(range(12), 2, 1))
def test_what_stands_for_a_service_is_treated_as_it_is(seed: int, family: Family) -> None:
    cluster = random_cluster(seed, family, 14)
    config = _config(node_port_addresses=("primary",)) if seed % 2 else _config()
    left_out = 0
    for name in NODES:
        facts = _facts(cluster, name, family, config)
        chosen = _chosen(cluster, facts, name)
        fewer = _facts(_part(cluster, chosen.services), name, family, config)
        whole, part = Functions(facts), Functions(fewer)
        stood_for = {each for found in chosen.stands_for.values() for each in found}
        assert stood_for == {port.name.service for port in facts.service_ports}
        left_out += len(stood_for) - len(chosen.services)
        for stand, alike in chosen.stands_for.items():
            expected = [part.differ(*point) for point in _points(fewer, stand)]
            for each in alike:
                assert [whole.differ(*point) for point in _points(facts, each)] == expected, (name, stand, each)
    assert left_out, "every Service stands for itself alone: nothing was tried"


@pytest.mark.parametrize("family", list(Family))
@pytest.mark.parametrize("seed", spread(range(FOREIGN), 2, 1))
def test_what_stands_for_a_service_is_treated_as_it_is_among_rules_of_others(seed: int, family: Family) -> None:
    cluster = random_cluster(seed, family, 18)
    foreign = random_rules(seed, cluster, family)
    named = foreign.named
    assert named is not None
    facts = _facts(cluster, NODES[seed % 3], family, _config())
    networks = [Network.parse("10.244.0.0/24" if family is Family.IPV4 else "fd00:10:244::/120", family)]
    options = [[facts.iptables, facts.nftables]]
    chosen = EquivalentServices([cluster], family).on(NODES[seed % 3], options, (), (), [named], networks)
    fewer = _facts(_part(cluster, chosen.services), NODES[seed % 3], family, _config())
    whole, part = Functions(facts, foreign), Functions(fewer, foreign)
    assert {each for found in chosen.stands_for.values() for each in found} == {
        port.name.service for port in facts.service_ports
    }
    for stand, alike in chosen.stands_for.items():
        expected = [part.differ(*point) for point in _points(fewer, stand)]
        for each in alike:
            assert [whole.differ(*point) for point in _points(facts, each)] == expected, (stand, each)
    elsewhere = [(OUTSIDE[family], protocol, port) for protocol in PROTOCOLS for port in (80, 53, 4242, 30100)]
    assert [whole.differ(*point) for point in elsewhere] == [part.differ(*point) for point in elsewhere]


@pytest.mark.parametrize("family", list(Family))
@pytest.mark.parametrize("kind", UNFIT)
def test_rules_of_others_that_count_bits_of_addresses_leave_no_services_alike(kind: str, family: Family) -> None:
    cluster = random_cluster(3, family, 14)
    assert random_rules(3, cluster, family).named is not None
    assert random_rules(3, cluster, family, (kind,)).named is None


def _web(number: int, **given: object) -> Service:
    ports = (ServicePort(port=80, node_port=30000 + number),)
    return make_service(f"s{number}", cluster_ips=(f"10.96.0.{number + 1}",), ports=ports, type="NodePort", **given)  # type: ignore[arg-type]


def _slice(number: int, *nodes: str, port: int = 8080) -> EndpointSlice:
    endpoints = [make_endpoint(f"10.244.{number}.{place + 1}", node=node) for place, node in enumerate(nodes)]
    return make_slice(*endpoints, service=f"s{number}", name=f"s{number}", ports=(EndpointPort(port),))


def _nodes(*more: str) -> tuple[object, ...]:
    return tuple(make_node(name, ips=(f"192.168.0.{number + 2}",)) for number, name in enumerate((*NODES, *more)))


def _on(cluster: Manifests, *names: str, config: KubeProxyConfiguration | None = None) -> list[Representatives]:
    shapes = EquivalentServices([cluster], Family.IPV4)
    found = []
    for name in names:
        facts = _facts(cluster, name, Family.IPV4, config or _config())
        found.append(shapes.on(name, [[facts.iptables, facts.nftables]]))
    return found


def _alike(count: int, services: list[Service], slices: list[EndpointSlice]) -> Manifests:
    made = [_web(number) for number in range(10, 10 + count)]
    found = [_slice(number, "n0", "n1") for number in range(10, 10 + count)]
    return Manifests((*made, *services), (*found, *slices), nodes=_nodes())  # type: ignore[arg-type]


def test_two_of_a_shape_stand_for_all() -> None:
    (chosen,) = _on(_alike(9, [], []), "n0")
    assert chosen.services == {"shop/s10", "shop/s11"}
    assert len(chosen.services) == STAND
    assert chosen.stands_for["shop/s10"] == tuple(f"shop/s{number}" for number in range(10, 19))


@pytest.mark.parametrize(
    ("service", "endpoints"),
    [
        (_web(1, affinity_seconds=60), _slice(1, "n0", "n1")),
        (_web(1, internal_policy="Local"), _slice(1, "n0", "n1")),
        (_web(1, external_policy="Local"), _slice(1, "n0", "n1")),
        (_web(1, external_ips=("198.51.100.1",)), _slice(1, "n0", "n1")),
        (_web(1), _slice(1, "n0")),
        (_web(1), _slice(1, "n1", "n0")),
        (_web(1), _slice(1, "n0", "n1", port=9090)),
        (_web(1), make_slice(service="s1", name="s1", address_type="IPv4")),
        # Its node port is another's target port, so it is kept, too.
        (_web(1), _slice(1, "n0", "n1", port=30010)),
    ],
)  # fmt: skip
def test_what_differs_stands_for_itself(service: Service, endpoints: EndpointSlice) -> None:
    (chosen,) = _on(_alike(5, [service], [endpoints]), "n0")
    assert chosen.stands_for["shop/s1"] == ("shop/s1",)
    assert len(chosen.services) >= STAND + 1


def test_services_at_one_address_and_those_at_each_others_endpoints_stay_together() -> None:
    one, other, third = (
        make_service(
            f"s{number}", cluster_ips=(f"10.96.0.{number + 1}",), ingress=(LoadBalancerIngress(vip),),
            type="LoadBalancer",
        )
        for number, vip in ((1, "198.51.100.1"), (2, "198.51.100.1"), (3, "198.51.100.3"))
    )  # fmt: skip
    slices = [_slice(number, "n0") for number in (1, 2)]
    slices.append(make_slice(make_endpoint("10.96.0.2", node=None), service="s3", name="s3"))
    (chosen,) = _on(_alike(5, [one, other, third], slices), "n0")
    assert {"shop/s1", "shop/s2", "shop/s3"} <= chosen.services


def test_nodes_are_alike_if_they_differ_in_their_own_addresses_alone() -> None:
    cluster = _alike(5, [_web(1, external_policy="Local")], [_slice(1, "n2")])
    cluster = Manifests(cluster.services, cluster.endpoint_slices, nodes=_nodes("n3", "n4"))  # type: ignore[arg-type]
    for config in (_config(), _config(node_port_addresses=("primary",))):
        *others, one, other = (each.key for each in _on(cluster, *NODES, "n3", "n4", config=config))
        assert len(set(others)) == 3, "n0 and n1 have another endpoint each, n2 has that of Service s1"
        assert one == other
        assert one not in others


def test_an_endpoint_at_a_nodes_own_address_tells_it_apart() -> None:
    slices = [make_slice(make_endpoint("192.168.0.5", node="n3"), service="s1", name="s1")]
    cluster = _alike(5, [_web(1)], slices)
    cluster = Manifests(cluster.services, cluster.endpoint_slices, nodes=_nodes("n3", "n4", "n5"))  # type: ignore[arg-type]
    first, second, third = (each.key for each in _on(cluster, "n3", "n4", "n5"))
    assert first != second
    assert second == third


def test_a_source_range_that_holds_a_nodes_address_tells_it_apart() -> None:
    guarded = make_service(
        "s1", cluster_ips=("10.96.0.2",), ingress=(LoadBalancerIngress("198.51.100.1"),), type="LoadBalancer",
        source_ranges=("192.168.0.5/32",),
    )  # fmt: skip
    cluster = _alike(5, [guarded], [_slice(1, "n0")])
    cluster = Manifests(cluster.services, cluster.endpoint_slices, nodes=_nodes("n3", "n4", "n5"))  # type: ignore[arg-type]
    first, second, third = (each.key for each in _on(cluster, "n3", "n4", "n5"))
    assert first != second
    assert second == third


def test_a_shape_has_all_that_rules_depend_on() -> None:
    # A new field of these decides rules as a rule: then `_View.shape` must have it.
    assert serviceport.ServicePort.__struct_fields__ == (
        "name", "cluster_ip", "port", "node_port", "external_ips", "load_balancer_vips", "load_balancer_source_ranges",
        "health_check_node_port", "session_affinity_seconds", "internal_policy_local", "external_policy_local",
    )  # fmt: skip
    assert SelectedEndpoints.__struct_fields__ == ("cluster", "local", "reachable", "has_any", "topology")
    assert Endpoint.__struct_fields__ == (
        "address", "ip", "is_local", "ready", "serving", "terminating", "zone_hints", "node_hints", "slice",
    )  # fmt: skip
