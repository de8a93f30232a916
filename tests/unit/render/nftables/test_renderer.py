"""The renderer: what it says changed brings the old table to the new one, whatever the changes were."""

from __future__ import annotations

import random

import pytest

from kproxy.api.types.core import LoadBalancerIngress, Service, ServicePort
from kproxy.api.types.discovery import EndpointSlice
from kproxy.render import RenderOptions
from kproxy.render.nftables.names import NO_ENDPOINT_SERVICES, SERVICE_IPS
from kproxy.render.nftables.renderer import Renderer
from kproxy.render.nftables.serviceport import ElementRef, ElementValue
from kproxy.services import IPFamily, LocalTrafficDetector, NodePortAddresses, ServicePortName, ServiceState
from tests.support.services.builders import make_endpoint, make_service, make_slice

V4 = IPFamily.IPV4
OPTIONS = RenderOptions(
    node_name="node-0",
    node_ip="192.168.0.2",
    interface_addresses=("127.0.0.1", "192.168.0.2"),
    local_traffic=LocalTrafficDetector("10.244.0.0/16", "10.244.0.0/16"),
    node_port_addresses=NodePortAddresses(False, ("192.168.0.2/32",)),
    service_cidrs=("10.96.0.0/16",),
)

Contents = tuple[dict[str, tuple[str, ...]], dict[str, str], dict[ElementRef, ElementValue]]


def contents(renderer: Renderer) -> Contents:
    return renderer.chains(), renderer.affinity_sets(), renderer.elements()


def fresh(state: ServiceState) -> Contents:
    renderer = Renderer(OPTIONS)
    renderer.render(state)
    return contents(renderer)


def random_service(chance: random.Random) -> Service:
    """One of six Services, of few addresses, so that several want the same element."""
    number = chance.randrange(6)
    node_port = 30000 + number if chance.random() < 0.6 else 0
    return make_service(
        f"s{number}",
        f"n{number % 2}",
        ports=(ServicePort(port=80, node_port=node_port),),
        cluster_ips=(f"10.96.0.{number + 1}",),
        type="LoadBalancer" if node_port else "ClusterIP",
        external_ips=tuple(f"203.0.113.{chance.randrange(2)}" for _ in range(chance.randrange(2))),
        external_policy=chance.choice(["Cluster", "Local"]),
        internal_policy=chance.choice(["Cluster", "Local"]),
        source_ranges=("10.0.0.0/8",) if node_port and chance.random() < 0.4 else (),
        ingress=(LoadBalancerIngress("198.51.100.7"),) if node_port and chance.random() < 0.5 else (),
        affinity_seconds=chance.choice([0, 0, 60]),
    )


def random_slice(chance: random.Random) -> EndpointSlice:
    name = f"s{chance.randrange(6)}"
    ips = {f"10.244.{chance.randrange(2)}.{chance.randrange(1, 5)}" for _ in range(chance.randrange(4))}
    endpoints = [make_endpoint(ip, node=chance.choice(["node-0", "n1"])) for ip in sorted(ips)]
    return make_slice(*endpoints, service=name, namespace=f"n{int(name[1]) % 2}", name=name)


@pytest.mark.parametrize("seed", range(12))
def test_changes_bring_the_old_table_to_the_new_one(seed: int) -> None:
    chance = random.Random(seed)
    state = ServiceState(V4, "node-0")
    renderer = Renderer(OPTIONS)
    renderer.render(state)
    for _ in range(60):
        for _ in range(chance.randrange(1, 3)):
            number = chance.randrange(6)
            match chance.randrange(4):
                case 0:
                    state.delete_service(f"n{number % 2}/s{number}")
                case 1:
                    state.update_endpoint_slice(random_slice(chance))
                case _:
                    state.update_service(random_service(chance))
        chains, sets, elements = contents(renderer)
        change = renderer.update(state, state.apply().touched)
        assert contents(renderer) == fresh(state)
        for chain in change.stale_chains:
            del chains[chain]
        for name in change.stale_sets:
            del sets[name]
        for ref, value in change.stale_elements.items():
            assert elements.pop(ref) == value
        assert all(chains.get(chain) != rules for chain, rules in change.chains.items()), "only what changed"
        assert not elements.keys() & change.elements.keys()
        assert (chains | dict(change.chains), sets | dict(change.sets), elements | dict(change.elements)) == fresh(
            state
        )
        assert bool(change) == any(
            (change.chains, change.stale_chains, change.sets, change.stale_sets, change.elements, change.stale_elements)
        )


def wants(name: str, namespace: str) -> Service:
    return make_service(name, namespace, cluster_ips=("10.96.0.9",), external_ips=("203.0.113.7",))


def test_of_services_with_the_same_address_the_last_by_name_has_it() -> None:
    """kube-proxy walks them in random order; the last one has it."""
    state = ServiceState(V4, "node-0")
    for name, namespace in (("a", "z"), ("b", "a")):
        state.update_service(wants(name, namespace))
        endpoint = make_endpoint("10.244.1.1", node="n1")
        state.update_endpoint_slice(make_slice(endpoint, service=name, namespace=namespace))
    state.apply()
    renderer = Renderer(OPTIONS)
    renderer.render(state)
    ref = (SERVICE_IPS, "203.0.113.7 . tcp . 80")
    assert renderer.elements()[ref].value.endswith("-a/b/tcp/")
    assert renderer.origins(state).elements[ref].service_port == ServicePortName("a", "b", "", "TCP")
    state.delete_service("a/b")
    change = renderer.update(state, state.apply().touched)
    assert change.elements[ref].value.endswith("-z/a/tcp/")
    assert change.stale_elements[ref].value.endswith("-a/b/tcp/")


def test_an_equal_element_of_another_service_keeps_the_first_comment() -> None:
    state = ServiceState(V4, "node-0")
    for name in ("a", "b"):
        state.update_service(wants(name, "default"))
    state.apply()
    renderer = Renderer(OPTIONS)
    renderer.render(state)
    ref = (NO_ENDPOINT_SERVICES, "203.0.113.7 . tcp . 80")
    assert renderer.elements()[ref] == ElementValue("goto reject-chain", "default/a")
    assert renderer.origins(state).elements[ref].service_port == ServicePortName("default", "a", "", "TCP")
