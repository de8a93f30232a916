"""The load balancer of a lab: an address for every Service of type LoadBalancer, and a route to it in the fabric.

It works as MetalLB's layer 2 mode does: one node at a time gets all packets for the address, unchanged, and the node's
kube-proxy rules do the rest. The node is the first that is ready; with externalTrafficPolicy Local, the first whose
health-check node port answers 200. A Service with spec.loadBalancerClass is left to others.
"""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from kproxy.client import RestClient, SharedInformerFactory
from kproxy.lab.controllers.base import Controller
from kproxy.lab.controllers.writes import write_status
from kproxy.lab.errors import LabError
from kproxy.lab.health import is_healthy
from kproxy.lab.resources import NODES, SERVICES, Json, Object, is_ready, is_terminating, key_of
from kproxy.lab.spec import BALANCER_RANGES, LabSpec, family_of
from kproxy.linux.namespace import Namespace
from kproxy.linux.process import run

_CHECK: Final = 0.5
"""Seconds between health checks."""
_FAMILIES: Final = {"IPv4": 4, "IPv6": 6}


class LoadBalancerController(Controller):
    """Gives out addresses and keeps the routes."""

    name = "load-balancer"
    component = "service-controller"

    def __init__(self, client: RestClient, factory: SharedInformerFactory, spec: LabSpec) -> None:
        super().__init__(client, factory)
        self._spec = spec
        self._lock = threading.Lock()
        self._taken: dict[str, str] = {}
        """Service by address."""
        self._routes: dict[str, str] = {}
        """Node address by load-balancer address, as in the fabric."""
        self._services = self.follow(SERVICES, lambda item: [key_of(item)])
        self._nodes = self.follow(NODES, lambda _node: self._keys())
        self._fabric = Namespace.named(spec.fabric)
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="health-check")

    def _keys(self) -> list[str]:
        with self._lock:
            return sorted(set(self._taken.values()))

    def sync(self, key: str) -> float | None:
        found = self._services.indexer.get_by_key(key)
        service = found.raw if found is not None else None
        if service is None or not is_balanced(service) or is_terminating(service):
            self._release(key)
            if service is not None and not is_balanced(service) and _ingress(service):
                self._write(service, [])
            return None
        addresses = self._addresses(service, key)
        if [item.get("ip") for item in _ingress(service)] != addresses:
            self.recorder.event(service, "Service", "EnsuringLoadBalancer", "Ensuring load balancer")
            self._write(service, addresses)
            self.recorder.event(service, "Service", "EnsuredLoadBalancer", "Ensured load balancer")
        for address in addresses:
            self._route(address, self._node_for(service, address))
        return _CHECK if service["spec"].get("externalTrafficPolicy") == "Local" else None

    # --- addresses ---

    def _addresses(self, service: Object, key: str) -> list[str]:
        wanted = [_FAMILIES[family] for family in service["spec"].get("ipFamilies") or ["IPv4"]]
        asked = service["spec"].get("loadBalancerIP") or ""
        with self._lock:
            mine = [address for address, owner in self._taken.items() if owner == key]
            for item in _ingress(service):  # what an earlier run of this controller gave out
                if item.get("ip") and item["ip"] not in self._taken:
                    self._taken[item["ip"]] = key
                    mine.append(item["ip"])
            found = []
            for family in wanted:
                have = next((address for address in mine if family_of(address) == family), None)
                if have is None:
                    have = self._free(family, asked if asked and family_of(asked) == family else "")
                    self._taken[have] = key
                found.append(have)
            return found

    def _free(self, family: int, asked: str) -> str:
        pool = BALANCER_RANGES[family]
        if asked and ipaddress.ip_address(asked) in pool and asked not in self._taken:
            return asked
        for number in range(10, min(pool.num_addresses, 1000) - 1):
            address = str(pool[number])
            if address not in self._taken:
                return address
        raise LabError(f"no load-balancer address of {pool} is free")

    def _release(self, key: str) -> None:
        with self._lock:
            mine = [address for address, owner in self._taken.items() if owner == key]
            for address in mine:
                del self._taken[address]
        for address in mine:
            self._route(address, None)

    def _write(self, service: Object, addresses: list[str]) -> None:
        ingress: list[Json] = [{"ip": address, "ipMode": "VIP"} for address in addresses]
        write_status(self.client, SERVICES, service, {"loadBalancer": {"ingress": ingress or None}})

    # --- routes ---

    def _node_for(self, service: Object, address: str) -> str | None:
        """The node's address that the load-balancer address is routed to; None if no node is suitable."""
        family = family_of(address)
        nodes = {}
        for item in sorted(self._nodes.indexer.list(), key=lambda node: (len(node.metadata.name), node.metadata.name)):
            if is_ready(item.raw) and (own := node_address(item.raw, family)):
                nodes[item.metadata.name] = own
        port = service["spec"].get("healthCheckNodePort")
        if service["spec"].get("externalTrafficPolicy") == "Local" and port:
            healthy = self._pool.map(lambda own: own if self._is_healthy(own, int(port)) else None, nodes.values())
            return next((own for own in healthy if own), None)
        return next(iter(nodes.values()), None)

    def _is_healthy(self, address: str, port: int) -> bool:
        with Namespace.named(self._spec.fabric) as fabric:
            return fabric.call(is_healthy, address, port)

    def _route(self, address: str, node: str | None) -> None:
        if self._routes.get(address) == node:
            return
        length = 32 if family_of(address) == 4 else 128
        if node is None:
            arguments = ["route", "del", f"{address}/{length}"]
        else:
            arguments = ["route", "replace", f"{address}/{length}", "via", node]
        done = run(self._fabric, ["ip", f"-{family_of(address)}", *arguments], timeout=10.0)
        if done.code and node is not None:
            raise LabError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
        if node is None:
            self._routes.pop(address, None)
        else:
            self._routes[address] = node


def is_balanced(service: Object) -> bool:
    """Whether this controller gives the Service an address."""
    spec = service["spec"]
    return spec.get("type") == "LoadBalancer" and not spec.get("loadBalancerClass")


def _ingress(service: Object) -> list[Mapping[str, str]]:
    return list(((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or [])


def node_address(node: Object, family: int) -> str | None:
    """A node's internal address of a family."""
    for item in (node.get("status") or {}).get("addresses") or ():
        if item.get("type") == "InternalIP" and family_of(item["address"]) == family:
            return str(item["address"])
    return None
