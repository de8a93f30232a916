"""The load balancer of a lab: an address for every Service of type LoadBalancer, and a route to it in the fabric.

It works as MetalLB's layer 2 mode does: one node at a time gets all packets for the address, unchanged, and the node's
kube-proxy rules do the rest. The node is the first that is ready; with externalTrafficPolicy Local, the first whose
health-check node port answers 200. A Service with spec.loadBalancerClass is left to others.

The address is the Service's status, as any controller's writes; the route is the fabric's, and `Routes` keeps it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from kproxy.apiserver.controllers.base import Worker
from kproxy.lab.controllers.runtime import Reconciler, Said, Tables, Write, follow, status_writes
from kproxy.lab.controllers.workload import own_key
from kproxy.lab.errors import LabError
from kproxy.lab.health import is_healthy
from kproxy.lab.resources import NODES, SERVICES, Json, Object, is_ready, is_terminating, key_of
from kproxy.lab.spec import BALANCER_RANGES, LabSpec, family_of
from kproxy.linux.namespace import Namespace
from kproxy.linux.process import run

log = logging.getLogger(__name__)

T = TypeVar("T")

_CHECK: Final = 0.5
"""Seconds between health checks."""
_FAMILIES: Final = {"IPv4": 4, "IPv6": 6}


# --- addresses ---


def reconcile(key: str, tables: Tables) -> Iterator[Write]:
    """The addresses of a Service."""
    service = tables.get(SERVICES, key)
    if service is None or is_terminating(service):
        return
    if not is_balanced(service):
        yield from _ingress_writes(service, [])
        return
    others = [each for each in tables.all(SERVICES) if is_balanced(each) and key_of(each) != key]
    addresses = addresses_of(service, {address for each in others for address in _ingress(each)})
    if _ingress(service) != addresses:
        yield Said(service, "Service", "EnsuringLoadBalancer", "Ensuring load balancer")
        yield from _ingress_writes(service, addresses)
        yield Said(service, "Service", "EnsuredLoadBalancer", "Ensured load balancer")


CONTROLLER: Final = Reconciler("service-controller", reconcile, ((SERVICES, own_key),))


def addresses_of(service: Object, taken: Iterable[str]) -> list[str]:
    """The addresses of a Service, one a family: those that it has, else what loadBalancerIP asks for, else the first
    that is free. Raises LabError: none is."""
    held, asked = _ingress(service), service["spec"].get("loadBalancerIP") or ""
    found = []
    for family in (_FAMILIES[name] for name in service["spec"].get("ipFamilies") or ["IPv4"]):
        pool = BALANCER_RANGES[family]
        usual = (str(pool[number]) for number in range(10, min(pool.num_addresses, 1000) - 1))
        wished = [asked] if asked and family_of(asked) == family and ipaddress.ip_address(asked) in pool else []
        have = [address for address in held if family_of(address) == family]
        free = next((address for address in (*have, *wished, *usual) if address not in taken), None)
        if free is None:
            raise LabError(f"no load-balancer address of {pool} is free")
        found.append(free)
    return found


def is_balanced(service: Object) -> bool:
    """Whether this controller gives the Service an address."""
    spec = service["spec"]
    return spec.get("type") == "LoadBalancer" and not spec.get("loadBalancerClass")


def _ingress(service: Object) -> list[str]:
    entries = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    return [entry["ip"] for entry in entries if entry.get("ip")]


def _ingress_writes(service: Object, addresses: list[str]) -> list[Write]:
    ingress: list[Json] = [{"ip": address, "ipMode": "VIP"} for address in addresses]
    if _ingress(service) == addresses:
        return []
    return status_writes(SERVICES, service, {"loadBalancer": {"ingress": ingress or None}})


# --- routes ---


class Routes:
    """Keeps the fabric's routes to the addresses. Made and started inside the server's event loop; health checks and
    `ip` run in threads."""

    def __init__(self, tables: Tables, spec: LabSpec) -> None:
        self._tables = tables
        self._fabric = spec.fabric
        self._worker: Worker[str] = Worker("load balancer", self._sync)
        self._routes: dict[str, dict[str, str]] = {}
        """By Service: the node's address by load-balancer address, as in the fabric."""
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="load-balancer")

    def start(self) -> None:
        """Follows Services and Nodes."""
        follow(self._tables, SERVICES, own_key, self._worker.add)
        follow(self._tables, NODES, lambda _node, _tables: list(self._routes), self._worker.add)
        self._worker.start()

    async def stop(self) -> None:
        await self._worker.stop()
        self._pool.shutdown(wait=False)

    async def _sync(self, key: str) -> None:
        service = self._tables.get(SERVICES, key)
        if service is None or is_terminating(service) or not is_balanced(service):
            wanted = {}
        else:
            wanted = {address: await self._node_for(service, address) for address in _ingress(service)}
        held = self._routes.setdefault(key, {})
        for address in {*held, *wanted}:
            node = wanted.get(address)
            if node != held.get(address):
                try:
                    await self._in_thread(set_route, address, node)
                except LabError as error:
                    log.warning("%s: %s", key, error)
                    self._worker.add_after(key, _CHECK)
                    continue
            if node is None:
                held.pop(address, None)
            else:
                held[address] = node
        if not wanted:
            self._routes.pop(key, None)
        elif service is not None and service["spec"].get("externalTrafficPolicy") == "Local":
            self._worker.add_after(key, _CHECK)

    async def _node_for(self, service: Object, address: str) -> str | None:
        """The node's address that the load-balancer address is routed to; None if no node is suitable."""
        family = family_of(address)
        ready = sorted(filter(is_ready, self._tables.all(NODES)), key=lambda node: (len(key_of(node)), key_of(node)))
        nodes = [own for node in ready if (own := node_address(node, family))]
        port = service["spec"].get("healthCheckNodePort")
        if service["spec"].get("externalTrafficPolicy") == "Local" and port:
            healthy = await asyncio.gather(*(self._in_thread(is_healthy, own, int(port)) for own in nodes))
            nodes = [own for own, answers in zip(nodes, healthy, strict=True) if answers]
        return nodes[0] if nodes else None

    def _in_thread(self, call: Callable[..., T], *arguments: object) -> Awaitable[T]:
        """Calls in a thread that is in the fabric's namespace."""

        def inside() -> T:
            with Namespace.named(self._fabric) as fabric:
                return fabric.call(call, *arguments)

        return asyncio.get_running_loop().run_in_executor(self._pool, inside)


def set_route(address: str, node: str | None) -> None:
    """Routes a load-balancer address over a node, or nowhere, in the namespace that the calling thread is in. Raises
    LabError."""
    host = f"{address}/{32 if family_of(address) == 4 else 128}"
    arguments = ["route", "del", host] if node is None else ["route", "replace", host, "via", node]
    with Namespace.current() as here:
        done = run(here, ["ip", f"-{family_of(address)}", *arguments], timeout=10.0)
    if done.code and node is not None:
        raise LabError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


def node_address(node: Object, family: int) -> str | None:
    """A node's internal address of a family."""
    for item in (node.get("status") or {}).get("addresses") or ():
        if item.get("type") == "InternalIP" and family_of(item["address"]) == family:
            return str(item["address"])
    return None
