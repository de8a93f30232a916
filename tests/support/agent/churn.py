"""Seeded churn: what users and controllers do to a cluster, written to a real API server over HTTP.

A seed decides every operation: Services of all types made, changed, deleted and made again under the same name; slices
written by hand, moved to another Service, changed, deleted one by one and as a collection; Pods, whose slices the
server's own controller writes; Nodes made, relabelled, deleted, made again without what they had; namespaces deleted.
What the server refuses, such as a write into a namespace that is being deleted, is counted and goes on.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import msgspec

from kproxy.api.types.core import Node
from kproxy.client import NODES, RestClient
from kproxy.client.errors import ApiError

Json = dict[str, Any]

NODE: Final = "node-0"
NAMESPACES: Final = ("churn-a", "churn-b", "churn-c")
SERVICES: Final = tuple(f"s{number}" for number in range(6))
SLICES: Final = tuple(f"hand-{number}" for number in range(6))
PODS: Final = tuple(f"p{number}" for number in range(8))
OTHER_NODES: Final = ("node-1", "node-2")
ZONES: Final = ("a", "b")
OWNER: Final = "kubernetes.io/service-name"
MANAGED: Final = "endpointslice.kubernetes.io/managed-by"
MANAGER: Final = "endpointslice-controller.k8s.io"
ZONE: Final = "topology.kubernetes.io/zone"
MERGE: Final = "application/merge-patch+json"
PORTS: Final = (
    {"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"},
    {"name": "metrics", "port": 9000, "targetPort": 9001, "protocol": "TCP"},
    {"name": "dns", "port": 53, "targetPort": 5353, "protocol": "UDP"},
    {"name": "named", "port": 8443, "targetPort": "https", "protocol": "TCP"},
    {"name": "sctp", "port": 7000, "targetPort": 7000, "protocol": "SCTP"},
)


def core(kind: str, namespace: str = "", name: str = "", part: str = "") -> str:
    """The path of an object of the core group."""
    where = f"/namespaces/{namespace}" if namespace else ""
    return "/api/v1" + where + "".join(f"/{each}" for each in (kind, name, part) if each)


def slices(namespace: str = "", name: str = "") -> str:
    """The path of EndpointSlices."""
    return core("endpointslices", namespace, name).replace("/api/v1", "/apis/discovery.k8s.io/v1")


class Churn:
    """One seed's operations.

    Attributes:
        done: the operations carried out, in words, the last ones last.
        requests: how many writes there were.
        refused: how many of them the server refused, by method and status code.
        node: this node's Node as a proxy must take it: as last seen, with what it has lost as it was.
    """

    def __init__(self, client: RestClient, seed: int) -> None:
        self.client = client
        self.random = random.Random(f"churn {seed}")
        self.done: list[str] = []
        self.refused: Counter[str] = Counter()
        self.requests = 0
        self.node: Node | None = None
        self._operations: list[tuple[int, Callable[[], str]]] = [
            (16, self._put_service),
            (7, self._delete_service),
            (6, self._recreate_service),
            (4, self._set_ingress),
            (20, self._put_slice),
            (8, self._move_slice),
            (2, self._move_controllers_slice),
            (7, self._delete_slice),
            (2, self._delete_slices),
            (14, self._put_pod),
            (8, self._change_pod),
            (7, self._delete_pod),
            (3, self._relabel_node),
            (3, self._recreate_node),
            (1, self._delete_node),
            (2, self._change_other_node),
            (2, self._delete_namespace),
        ]

    def begin(self) -> None:
        """What every seed begins with: the namespaces and this node's Node."""
        for namespace in NAMESPACES:
            self._make_namespace(namespace)
        self._write("DELETE", core("nodes", name=NODE))
        self._create_node(("10.244.0.0/24", "fd00:10:244::/64"), True, "a")

    def step(self) -> None:
        """One operation."""
        weights, calls = zip(*self._operations, strict=True)
        call = self.random.choices(calls, weights)[0]
        self.done.append(f"{call.__name__[1:]} {call()}")

    def end(self) -> None:
        """Deletes everything but the Node."""
        for namespace in NAMESPACES:
            self._write("DELETE", core("namespaces", name=namespace))
        for name in OTHER_NODES:
            self._write("DELETE", core("nodes", name=name))

    def controller_lag(self) -> str:
        """What the slice controller has still to do, in words; "" if its slices hold every Service's Pods."""
        pods, services, pieces = (self._items(path) for path in (core("pods"), core("services"), slices()))
        held: dict[tuple[str, str, str], set[str]] = {}
        for each in pieces:
            labels = each["metadata"].get("labels") or {}
            if labels.get(MANAGED) == MANAGER and OWNER in labels:
                key = each["metadata"]["namespace"], labels[OWNER], each["addressType"]
                held.setdefault(key, set()).update(e["addresses"][0] for e in each.get("endpoints") or ())
        for service in services:
            meta, spec = service["metadata"], service["spec"]
            if not spec.get("selector") or spec["type"] == "ExternalName":
                continue
            chosen = [
                pod for pod in pods
                if pod["metadata"]["namespace"] == meta["namespace"]
                and spec["selector"].items() <= pod["metadata"]["labels"].items()
                and pod["status"].get("phase") not in ("Succeeded", "Failed")
            ]  # fmt: skip
            for family in spec["ipFamilies"]:
                ips = {each["ip"] for pod in chosen for each in pod["status"].get("podIPs") or ()}
                wanted = {ip for ip in ips if (":" in ip) == (family == "IPv6")}
                found = held.get((meta["namespace"], meta["name"], family), set())
                if found != wanted:
                    return f"slices of {meta['namespace']}/{meta['name']} hold {found} instead of {wanted}"
        return ""

    # --- the server ---

    def _items(self, collection: str) -> list[Json]:
        found: list[Json] = (self._read(collection) or {})["items"]
        return found

    def _write(self, method: str, path: str, body: Any = None, media: str = "application/json", **query: str) -> bool:
        data = None if body is None else json.dumps(body).encode()
        self.requests += 1
        try:
            self.client.raw(method, path, query=query, body=data, content_type=media)
        except ApiError as error:
            self.refused[f"{method} {error.status.code}"] += 1
            # Taken, not there, in the way of a deletion, or a change that this kind does not take: all of them churn.
            if error.status.code not in (403, 404, 409, 422):
                raise
            return False
        return True

    def _read(self, path: str) -> Json | None:
        try:
            found: Json = json.loads(self.client.raw("GET", path).data)
        except ApiError as error:
            if error.status.code != 404:
                raise
            return None
        return found

    def _put(self, collection: str, body: Json) -> bool:
        """Creates an object, or replaces what has its name."""
        path = f"{collection}/{body['metadata']['name']}"
        found = self._read(path)
        if found is None:
            return self._write("POST", collection, body)
        return self._write("PUT", path, _kept(found, body))

    def _existing(self, collection: str, names: tuple[str, ...]) -> tuple[str, str]:
        """Namespace and name of an object that is there, if one is; of those that are ours."""
        metas = [item["metadata"] for item in self._items(collection)]
        found = sorted((meta["namespace"], meta["name"]) for meta in metas)
        ours = [each for each in found if each[0] in NAMESPACES and each[1] in names]
        every = [(namespace, name) for namespace in NAMESPACES for name in names]
        return (ours or every)[int(self.random.random() * len(ours or every))]

    def _chance(self, of_one: float) -> bool:
        return self.random.random() < of_one

    def _some(self, choices: tuple[Any, ...], least: int = 1) -> list[Any]:
        return self.random.sample(choices, self.random.randint(least, len(choices)))

    def _make_namespace(self, name: str) -> None:
        if self._read(core("namespaces", name=name)) is None:
            self._write("POST", core("namespaces"), {"metadata": {"name": name}})

    def _namespace(self) -> str:
        """A namespace; it is made if it is not there, or still goes."""
        name = self.random.choice(NAMESPACES)
        self._make_namespace(name)
        return name

    # --- Services ---

    def _service(self, name: str) -> Json:
        pick = self.random.choice
        kind = self.random.choices(
            ("ClusterIP", "NodePort", "LoadBalancer", "ExternalName", "headless"), (5, 4, 4, 1, 1)
        )[0]
        labels = {}
        if self._chance(0.06):
            labels[pick(("service.kubernetes.io/headless", "service.kubernetes.io/service-proxy-name"))] = "x"
        spec: Json = {"type": kind, "ports": [dict(port) for port in self._some(PORTS)]}
        if self._chance(0.6):
            spec["selector"] = {"app": name} if self._chance(0.7) else {"tier": pick(("x", "y"))}
        if kind == "ExternalName":
            return {"metadata": {"name": name}, "spec": {"type": kind, "externalName": "example.org"}}
        if kind == "headless":
            spec |= {"type": "ClusterIP", "clusterIP": "None"}
        else:
            spec["internalTrafficPolicy"] = pick(("Cluster", "Cluster", "Local"))
            if self._chance(0.2):
                spec["externalIPs"] = self._some(("192.0.2.1", "192.0.2.2", "2001:db8::1"))
        if kind in ("NodePort", "LoadBalancer"):
            spec["externalTrafficPolicy"] = pick(("Cluster", "Local"))
        if kind == "LoadBalancer" and self._chance(0.4):
            spec["loadBalancerSourceRanges"] = self._some(("192.168.0.0/24", "203.0.113.0/24", "fd00::/8"))
        if self._chance(0.3):
            spec |= {"sessionAffinity": "ClientIP",
                     "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": pick((10, 10800))}}}  # fmt: skip
        if self._chance(0.2):
            spec["publishNotReadyAddresses"] = True
        if self._chance(0.2):
            spec["trafficDistribution"] = pick(("PreferClose", "PreferSameNode"))
        spec["ipFamilyPolicy"] = pick(("SingleStack", "PreferDualStack", "PreferDualStack"))
        return {"metadata": {"name": name, "labels": labels}, "spec": spec}

    def _put_service(self) -> str:
        namespace, name = self._namespace(), self.random.choice(SERVICES)
        self._put(core("services", namespace), self._service(name))
        return f"{namespace}/{name}"

    def _delete_service(self) -> str:
        namespace, name = self._existing(core("services"), SERVICES)
        self._write("DELETE", core("services", namespace, name))
        return f"{namespace}/{name}"

    def _recreate_service(self) -> str:
        namespace, name = self._existing(core("services"), SERVICES)
        self._write("DELETE", core("services", namespace, name))
        self._write("POST", core("services", namespace), self._service(name))
        return f"{namespace}/{name}"

    def _set_ingress(self) -> str:
        namespace, name = self._existing(core("services"), SERVICES)
        addresses = self._some(("198.51.100.1", "198.51.100.2", "2001:db8:1::1"), 0)
        ingress: list[Json] = [{"ip": ip} for ip in addresses]
        for each in ingress:
            each["ipMode"] = self.random.choice(("VIP", "VIP", "Proxy"))
        body = {"status": {"loadBalancer": {"ingress": ingress}}}
        self._write("PATCH", core("services", namespace, name, "status"), body, MERGE)
        return f"{namespace}/{name}"

    # --- slices ---

    def _put_slice(self) -> str:
        namespace, name = self._namespace(), self.random.choice(SLICES)
        owner = self.random.choice(SERVICES)
        family = "IPv6" if SLICES.index(name) % 3 == 2 else "IPv4"
        labels = {OWNER: owner}
        if self._chance(0.05):
            labels["service.kubernetes.io/headless"] = ""
        numbers = self.random.sample(range(20, 28), self.random.randint(0, 4))
        ports: list[Json] = [
            {"name": port["name"], "protocol": port["protocol"], "port": self._number(port)}
            for port in self._some(PORTS)
        ]
        body = {
            "metadata": {"name": name, "labels": labels},
            "addressType": family,
            "endpoints": [self._endpoint(family, number) for number in numbers],
            "ports": ports,
        }
        found = self._read(slices(namespace, name))
        if found is not None and found["addressType"] != family:
            self._write("DELETE", slices(namespace, name))
        self._put(slices(namespace), body)
        return f"{namespace}/{name} of {owner}"

    def _number(self, port: Json) -> int:
        """The number behind a Service's port; most often the one that the Pods have."""
        target = port["targetPort"]
        return target if isinstance(target, int) and self._chance(0.7) else self.random.choice((8080, 9001))

    def _endpoint(self, family: str, number: int) -> Json:
        pick = self.random.choice
        # The addresses are those of Pods too, so that an endpoint is in several slices.
        endpoint: Json = {"addresses": [_pod_ip(family, number)], "nodeName": pick((NODE, *OTHER_NODES))}
        ready, terminating = self._chance(0.75), self._chance(0.15)
        endpoint["conditions"] = {"ready": ready and not terminating, "serving": ready, "terminating": terminating}
        if self._chance(0.1):
            endpoint["conditions"] = {}
        if self._chance(0.3):
            endpoint["hints"] = {"forZones": [{"name": pick(ZONES)}]}
        return endpoint

    def _move_slice(self) -> str:
        namespace, name = self._existing(slices(), SLICES)
        owner = self.random.choice((*SERVICES, None))
        body = {"metadata": {"labels": {OWNER: owner}}}
        self._write("PATCH", slices(namespace, name), body, MERGE)
        return f"{namespace}/{name} to {owner}"

    def _move_controllers_slice(self) -> str:
        namespace, name = self._existing(core("services"), SERVICES)
        owner = self.random.choice(SERVICES)
        query = {"labelSelector": f"{MANAGED}={MANAGER},{OWNER}={name}"}
        items = json.loads(self.client.raw("GET", slices(namespace), query=query).data)["items"]
        for item in items[:1]:
            body = {"metadata": {"labels": {OWNER: owner}}}
            self._write("PATCH", slices(namespace, item["metadata"]["name"]), body, MERGE)
        return f"of {namespace}/{name} to {owner}"

    def _delete_slice(self) -> str:
        namespace, name = self._existing(slices(), SLICES)
        self._write("DELETE", slices(namespace, name))
        return f"{namespace}/{name}"

    def _delete_slices(self) -> str:
        namespace = self.random.choice(NAMESPACES)
        selector = f"{OWNER}={self.random.choice(SERVICES)}" if self._chance(0.6) else ""
        self._write("DELETE", slices(namespace), labelSelector=selector)
        return f"{namespace} {selector or 'all'}"

    # --- Pods ---

    def _put_pod(self) -> str:
        namespace, name = self._namespace(), self.random.choice(PODS)
        number = 20 + PODS.index(name)
        ports = [{"name": "https", "containerPort": 8443}] if self._chance(0.7) else []
        body = {
            "metadata": {"name": name, "labels": self._pod_labels()},
            "spec": {
                "nodeName": self.random.choice((NODE, *OTHER_NODES)),
                "containers": [{"name": "c", "image": "example.org/c", "ports": ports}],
            },
        }
        if self._write("POST", core("pods", namespace), body):
            ips = [{"ip": _pod_ip(family, number)} for family in ("IPv4", "IPv6")]
            status = {"phase": "Running", "podIP": ips[0]["ip"], "podIPs": ips, "conditions": self._conditions()}
            self._write("PATCH", core("pods", namespace, name, "status"), {"status": status}, MERGE)
        return f"{namespace}/{name}"

    def _pod_labels(self) -> dict[str, str]:
        return {"app": self.random.choice(SERVICES), "tier": self.random.choice(("x", "y"))}

    def _conditions(self) -> list[Json]:
        return [{"type": "Ready", "status": "True" if self._chance(0.8) else "False"}]

    def _change_pod(self) -> str:
        namespace, name = self._existing(core("pods"), PODS)
        what = self.random.choice(("ready", "labels", "done"))
        path = core("pods", namespace, name, "" if what == "labels" else "status")
        if what == "labels":
            body: Json = {"metadata": {"labels": self._pod_labels()}}
        elif what == "ready":
            body = {"status": {"conditions": self._conditions()}}
        else:
            body = {"status": {"phase": self.random.choice(("Succeeded", "Running", "Running"))}}
        self._write("PATCH", path, body, MERGE)
        return f"{namespace}/{name} {what}"

    def _delete_pod(self) -> str:
        namespace, name = self._existing(core("pods"), PODS)
        grace = self.random.choice(("0", "30"))
        self._write("DELETE", core("pods", namespace, name), gracePeriodSeconds=grace)
        return f"{namespace}/{name} grace {grace}"

    # --- Nodes and namespaces ---

    def _create_node(self, cidrs: tuple[str, ...], addresses: bool, zone: str) -> None:
        body: Json = {"metadata": {"name": NODE, "labels": {ZONE: zone} if zone else {}}, "spec": {}, "status": {}}
        if cidrs:
            body["spec"] = {"podCIDR": cidrs[0], "podCIDRs": list(cidrs)}
        if addresses:
            ips = ("192.168.0.2", "fd00:192::2")
            body["status"] = {"addresses": [{"type": "InternalIP", "address": ip} for ip in ips]}
        if self._write("POST", core("nodes"), body):
            self._look_at_node()

    def _look_at_node(self) -> None:
        found = self.client.get(NODES, NODE)
        if self.node is not None:
            # What kproxy keeps, said anew: the tests of MetaProxier say why.
            if not found.pod_cidrs:
                found = msgspec.structs.replace(found, pod_cidrs=self.node.pod_cidrs)
            if not any(each.type in ("InternalIP", "ExternalIP") for each in found.addresses):
                found = msgspec.structs.replace(found, addresses=self.node.addresses)
        self.node = found

    def _recreate_node(self) -> str:
        number = self.random.choice((0, 0, 9))
        cidrs = (f"10.244.{number}.0/24", f"fd00:10:{244 + number}::/64") if self._chance(0.7) else ()
        self._write("DELETE", core("nodes", name=NODE))
        self._create_node(cidrs, self._chance(0.8), self.random.choice((*ZONES, "")))
        return ",".join(cidrs) or "without podCIDRs"

    def _delete_node(self) -> str:
        self._write("DELETE", core("nodes", name=NODE))
        return NODE

    def _relabel_node(self) -> str:
        zone = self.random.choice((*ZONES, None))
        if self._write("PATCH", core("nodes", name=NODE), {"metadata": {"labels": {ZONE: zone}}}, MERGE):
            self._look_at_node()
        return str(zone)

    def _change_other_node(self) -> str:
        name = self.random.choice(OTHER_NODES)
        if self._chance(0.4):
            self._write("DELETE", core("nodes", name=name))
            return f"{name} deleted"
        self._put(core("nodes"), {"metadata": {"name": name, "labels": {ZONE: self.random.choice(ZONES)}}})
        return name

    def _delete_namespace(self) -> str:
        namespace = self.random.choice(NAMESPACES)
        self._write("DELETE", core("namespaces", name=namespace))
        return namespace


def _pod_ip(family: str, number: int) -> str:
    return f"10.244.1.{number}" if family == "IPv4" else f"fd00:10:244:1::{number:x}"


def _kept(found: Json, body: Json) -> Json:
    """What replaces an object: with the addresses that a Service has, as kubectl replace would send them."""
    old, new = found.get("spec") or {}, body.get("spec") or {}
    if (
        "clusterIP" in old
        and old["clusterIP"] != "None"
        and new.get("type") in ("ClusterIP", "NodePort", "LoadBalancer")
    ):
        new = {**{name: old[name] for name in ("clusterIP", "clusterIPs", "ipFamilies") if name in old}, **new}
        if new.get("clusterIP") != "None":
            new["ipFamilyPolicy"] = old.get("ipFamilyPolicy", "SingleStack")
    return {**body, **({"spec": new} if new else {})}
