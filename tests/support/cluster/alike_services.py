"""Clusters with Services of few kinds, some of which are alike but for names and addresses."""

from __future__ import annotations

import random
from typing import Any

from kproxy.api import Manifests
from kproxy.api.types.core import LoadBalancerIngress, Service, ServicePort
from kproxy.api.types.discovery import EndpointPort, EndpointSlice
from kproxy.netfilter import Family
from tests.support.services.builders import make_endpoint, make_node, make_service, make_slice

NODES = ("n0", "n1", "n2")


class Addresses:
    """Addresses of one family."""

    def __init__(self, family: Family) -> None:
        self._v6 = family is Family.IPV6

    def node(self, number: int) -> str:
        return f"fd00:a::{number + 2:x}" if self._v6 else f"192.168.0.{number + 2}"

    def cluster(self, number: int) -> str:
        return f"fd00:b::{number + 1:x}" if self._v6 else f"10.96.0.{number + 1}"

    def pod(self, number: int) -> str:
        return f"fd00:10:244::{number + 1:x}" if self._v6 else f"10.244.{number >> 8}.{number & 255}"

    def balancer(self, number: int) -> str:
        return f"2001:db8:1::{number + 1:x}" if self._v6 else f"198.51.100.{number + 1}"

    def ranges(self, number: int) -> str:
        found = ("192.168.0.0/24", "203.0.113.0/24", "10.244.0.0/24")
        found6 = ("fd00:a::/112", "2001:db8:7::/64", "fd00:10:244::/112")
        return (found6 if self._v6 else found)[number]


def random_cluster(seed: int, family: Family, services: int) -> Manifests:
    """Services of few kinds, with everything that may tell two of a kind apart: here and there one shares an address or
    an endpoint, has an endpoint at a node's address, or a port that is another's node port."""
    chance = random.Random(seed)
    known = Addresses(family)
    kinds = [_kind(chance, known) for _ in range(3)]
    made: list[Service] = []
    slices: list[EndpointSlice] = []
    pods = 0
    for number in range(services):
        kind = chance.choice(kinds)
        name = f"s{number}"
        node_port = 30000 + number if kind["node_port"] else 0
        port = 30000 + chance.randrange(services) if chance.random() < 0.03 else 80
        vips = [known.balancer(number)] if kind["balanced"] else []
        if vips and chance.random() < 0.1:
            vips = [known.balancer(chance.randrange(services))]
        outside = (known.balancer(100 + number),) if kind["external"] else ()
        if outside and chance.random() < 0.1:
            outside = (known.node(chance.randrange(3)),)
        ports = [ServicePort(port=port, node_port=node_port)]
        if kind["two"]:
            ports = [
                ServicePort(port=port, name="a", node_port=node_port),
                ServicePort(port=53, protocol="UDP", name="b"),
            ]
        made.append(
            make_service(
                name,
                ports=tuple(ports),
                cluster_ips=(known.cluster(number),),
                type="LoadBalancer" if kind["balanced"] else "NodePort" if node_port else "ClusterIP",
                external_ips=outside,
                ingress=tuple(LoadBalancerIngress(each) for each in vips),
                source_ranges=kind["ranges"],
                affinity_seconds=kind["affinity"],
                internal_policy=kind["internal"],
                external_policy=kind["outer"] if node_port or outside or kind["balanced"] else None,
                health_check_node_port=31000 + number if kind["balanced"] and kind["outer"] == "Local" else 0,
            )
        )
        endpoints = []
        for place in range(kind["endpoints"]):
            ip = known.pod(pods)
            pods += 1
            node = f"n{place % 3}" if chance.random() < 0.8 else f"n{chance.randrange(3)}"
            if chance.random() < 0.05 and pods > 3:
                ip = known.pod(chance.randrange(pods))  # another's, perhaps of another node
            if chance.random() < 0.03:
                node = f"n{chance.randrange(3)}"
                ip = known.node(int(node[1]))
            if chance.random() < 0.02:
                ip = known.cluster(chance.randrange(services))
            ready = chance.random() < 0.9
            endpoints.append(
                make_endpoint(
                    ip, node=node, ready=ready, serving=True, terminating=not ready and chance.random() < 0.5,
                    zones=(f"z{place % 2}",) if kind["hints"] else (),
                )
            )  # fmt: skip
        target = 30000 + chance.randrange(services) if chance.random() < 0.03 else 8080
        of_slice = (
            (EndpointPort(target, "a"), EndpointPort(5353, "b", "UDP")) if kind["two"] else (EndpointPort(target),)
        )
        slices.append(make_slice(*endpoints, service=name, name=name, ports=of_slice, address_type=family.value))
    nodes = tuple(
        make_node(name, zone=f"z{number % 2}", ips=(known.node(number),)) for number, name in enumerate(NODES)
    )
    return Manifests(tuple(made), tuple(slices), nodes=nodes)


def _kind(chance: random.Random, known: Addresses) -> dict[str, Any]:
    balanced = chance.random() < 0.4
    return {
        "endpoints": chance.choice((0, 1, 2, 3)),
        "node_port": balanced or chance.random() < 0.4,
        "balanced": balanced,
        "external": chance.random() < 0.3,
        "ranges": tuple(known.ranges(each) for each in range(3) if balanced and chance.random() < 0.4),
        "affinity": 10800 if chance.random() < 0.2 else 0,
        "internal": chance.choice(("Cluster", "Cluster", "Local")),
        "outer": chance.choice(("Cluster", "Local")),
        "hints": chance.random() < 0.2,
        "two": chance.random() < 0.3,
    }
