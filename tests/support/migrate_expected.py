"""Which reasons a cluster has for `kproxy migrate`, judged from its objects and configuration alone.

This reads the YAML as it is written and none of kproxy's own readers, so that it is a second opinion.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import yaml

IGNORED = ("service.kubernetes.io/service-proxy-name", "service.kubernetes.io/headless")


class Slot(NamedTuple):
    """An endpoint of a port."""

    address: str
    port: int
    is_local: bool


@dataclass(frozen=True)
class Port:
    """One port of a Service in one family, and its endpoints as the node uses them."""

    spec: Mapping[str, Any]
    port: Mapping[str, Any]
    ips: tuple[str, ...]
    vips: tuple[str, ...]
    ranges: tuple[str, ...]
    cluster: tuple[Slot, ...]
    local: tuple[Slot, ...]
    has_any: bool

    @property
    def node_port(self) -> int:
        return int(self.port.get("nodePort") or 0)

    @property
    def internal_local(self) -> bool:
        return self.spec.get("internalTrafficPolicy") == "Local"

    @property
    def external_local(self) -> bool:
        outside = self.spec.get("type") in ("NodePort", "LoadBalancer") or self.spec.get("externalIPs")
        return bool(outside) and self.spec.get("externalTrafficPolicy") == "Local"

    @property
    def is_exposed(self) -> bool:
        return bool(self.node_port or self.vips or self.outside)

    @property
    def outside(self) -> tuple[str, ...]:
        return self.ips + self.vips

    @property
    def has_internal(self) -> bool:
        return self.has_any and (bool(self.local) or not self.internal_local)

    @property
    def has_external(self) -> bool:
        return self.has_any and (bool(self.local) or not self.external_local)

    @property
    def health_check(self) -> int:
        wanted = self.spec.get("type") == "LoadBalancer" and self.spec.get("externalTrafficPolicy") == "Local"
        return int(self.spec.get("healthCheckNodePort") or 0) if wanted else 0


class Expected:
    """What one recorded cluster should show in one family."""

    def __init__(self, files: Iterable[Path], config: Path, version: int) -> None:
        documents = [item for file in files for item in yaml.safe_load_all(file.read_text()) if item]
        self._objects = [each for item in documents for each in item.get("items", [item])]
        self._config = yaml.safe_load(config.read_text())
        self._version = version

    @property
    def _node(self) -> Mapping[str, Any]:
        wanted = self._config.get("hostnameOverride")
        nodes = [item for item in self._objects if item["kind"] == "Node"]
        return next(item for item in nodes if not wanted or item["metadata"]["name"] == wanted)

    def _mine(self, addresses: Iterable[str]) -> tuple[str, ...]:
        return tuple(
            text for text in addresses if ipaddress.ip_network(text.strip(), strict=False).version == self._version
        )

    def _section(self, name: str, field: str, default: Any) -> Any:
        return (self._config.get(name) or {}).get(field, default)

    @cached_property
    def ports(self) -> tuple[Port, ...]:
        return tuple(port for item in self._objects if item["kind"] == "Service" for port in self._ports_of(item))

    def _ports_of(self, item: Mapping[str, Any]) -> Iterable[Port]:
        spec, metadata = item["spec"], item["metadata"]
        if any(label in (metadata.get("labels") or {}) for label in IGNORED) or spec.get("type") == "ExternalName":
            return
        own = spec.get("clusterIPs") or [spec.get("clusterIP")]
        if not own[0] or own[0] == "None" or not self._mine(ip for ip in own if ip):
            return
        ingress = (item.get("status") or {}).get("loadBalancer", {}).get("ingress") or []
        vips = self._mine(each["ip"] for each in ingress if each.get("ip") and each.get("ipMode", "VIP") == "VIP")
        ranges = self._mine(spec.get("loadBalancerSourceRanges") or ())
        if any(text.strip().endswith("/0") for text in ranges):
            ranges = ()
        ips = self._mine(spec.get("externalIPs") or ())
        for port in spec["ports"]:
            empty = Port(spec, port, ips, vips, ranges, (), (), False)
            slots = self._slots(metadata, port)
            cluster = self._usable(slots) if not empty.internal_local or empty.is_exposed else []
            some = empty.internal_local or (empty.external_local and empty.is_exposed)
            mine = [slot for slot in slots if slot[0].is_local]
            local = (_ready(mine) or _leaving(mine)) if some else []
            has_any = bool(cluster) or bool(some and (_ready(slots) or _leaving(slots)))
            first, second = (tuple(slot for slot, _ in part) for part in (cluster, local))
            yield Port(spec, port, ips, vips, ranges, first, second, has_any)

    def _slots(self, metadata: Mapping[str, Any], port: Mapping[str, Any]) -> list[tuple[Slot, Mapping[str, Any]]]:
        found: dict[tuple[str, int], tuple[Slot, Mapping[str, Any]]] = {}
        slices = [item for item in self._objects if item["kind"] == "EndpointSlice"]
        for item in sorted(slices, key=lambda item: str(item["metadata"]["name"])):
            labels = item["metadata"].get("labels") or {}
            same = item["metadata"].get("namespace", "default") == metadata.get("namespace", "default")
            if not same or labels.get("kubernetes.io/service-name") != metadata["name"]:
                continue
            if item["addressType"] != f"IPv{self._version}" or any(label in labels for label in IGNORED):
                continue
            for each in item.get("ports") or ():
                if (each.get("name") or "") != (port.get("name") or "") or not each.get("port"):
                    continue
                if each.get("protocol", "TCP") != port.get("protocol", "TCP"):
                    continue
                for endpoint in item.get("endpoints") or ():
                    local = endpoint.get("nodeName") == self._node["metadata"]["name"]
                    slot = Slot(endpoint["addresses"][0], each["port"], local)
                    leaving = (endpoint.get("conditions") or {}).get("terminating")
                    if not leaving or (slot.address, slot.port) not in found:
                        found[slot.address, slot.port] = (slot, endpoint)
        return list(found.values())

    def _usable(self, slots: list[tuple[Slot, Mapping[str, Any]]]) -> list[tuple[Slot, Mapping[str, Any]]]:
        """Those of the whole cluster, narrowed by hints that all ready ones have."""
        ready = _ready(slots)
        zone = (self._node["metadata"].get("labels") or {}).get("topology.kubernetes.io/zone")
        for kind, wanted in (("forNodes", self._node["metadata"]["name"]), ("forZones", zone)):
            hints = [{hint["name"] for hint in (each.get("hints") or {}).get(kind) or ()} for _, each in ready]
            if wanted and ready and all(hints) and any(wanted in names for names in hints):
                return [slot for slot, names in zip(ready, hints, strict=True) if wanted in names]
        return ready or _leaving(slots)

    @cached_property
    def _node_ips(self) -> tuple[str, ...]:
        entries = self._node["status"]["addresses"]
        return self._mine(
            entry["address"] for kind in ("InternalIP", "ExternalIP") for entry in entries if entry["type"] == kind
        )

    def _localhost(self) -> bool:
        """Whether iptables mode has node ports on 127.0.0.1."""
        chosen = self._config.get("nodePortAddresses") or ["0.0.0.0/0"]
        if self._version == 6 or not self._section("iptables", "localhostNodePorts", True) or chosen == ["primary"]:
            return False
        own = [ipaddress.ip_network(text) for text in self._mine(chosen)]
        return not own or any(ipaddress.ip_address("127.0.0.1") in network for network in own)

    def _is_pod(self, address: str) -> bool | None:
        """Whether the node takes it for a pod's; None where nothing tells pods from others."""
        mode = self._config.get("detectLocalMode") or "ClusterCIDR"
        if mode in ("BridgeInterface", "InterfaceNamePrefix"):
            return True
        cidrs = (self._config.get("clusterCIDR") or "").split(",")
        if mode == "NodeCIDR":
            cidrs = (self._node.get("spec") or {}).get("podCIDRs") or []
        own = self._mine(text for text in cidrs if text)
        return ipaddress.ip_address(address) in ipaddress.ip_network(own[0]) if own else None

    def _hairpin(self, port: Port) -> bool:
        """Whether an endpoint of another node can reach itself through this node without being masqueraded anyway."""
        own = {
            (slot.address, slot.port, each.port.get("protocol", "TCP"))
            for each in self.ports
            for slot in each.cluster + each.local
            if slot.is_local
        }
        for slot in port.cluster:
            if slot.is_local or (slot.address, slot.port, port.port.get("protocol", "TCP")) in own:
                continue
            pod = self._is_pod(slot.address)
            inside = (
                not port.internal_local and not self._section("nftables", "masqueradeAll", False) and pod is not False
            )
            outside = port.external_local and port.is_exposed and bool(pod)
            if inside or outside:
                return True
        return False

    def reasons(self) -> set[str]:
        """The identifiers."""
        ports = self.ports
        node_ports = [port for port in ports if port.node_port]
        refused = [port for port in node_ports if not port.has_external]
        bits = [self._section(mode, "masqueradeBit", 14) for mode in ("iptables", "nftables")]
        everything = [self._section(mode, "masqueradeAll", False) for mode in ("iptables", "nftables")]
        moved = not self._config.get("nodePortAddresses") and bool(self._node_ips)
        cidrs = [cidr for item in self._objects if item["kind"] == "ServiceCIDR" for cidr in item["spec"]["cidrs"]]
        return {
            name
            for name, holds in {
                "node-port-addresses": bool(node_ports and moved) or bool(refused),
                "localhost-node-ports": bool(node_ports if self._localhost() else refused),
                "localnet-guard": self._localhost(),
                "host-firewall": any(port.health_check or (port.is_exposed and port.has_any) for port in ports),
                "cluster-ip-ports": bool(ports),
                "unallocated-cluster-ips": bool(self._mine(cidrs)),
                "invalid-packets": not self._section("conntrack", "tcpBeLiberal", False),
                "masquerade-all": everything[0] != everything[1] and any(port.has_internal for port in ports),
                "masquerade-mark": bits[0] != bits[1]
                or any(not port.has_internal or (port.outside and not port.has_external) for port in ports),
                "session-affinity": any(map(_remembers, ports)),
                "remote-hairpin": any(map(self._hairpin, ports)),
                "source-ranges": any(port.vips and port.ranges for port in ports),
                "refused-hooks": any(
                    not port.has_internal or (port.outside and not port.has_external) for port in ports
                ),
                "shared-address": any(_share(*pair) for pair in combinations(ports, 2)),
            }.items()
            if holds
        }


def _ready(slots: list[tuple[Slot, Mapping[str, Any]]]) -> list[tuple[Slot, Mapping[str, Any]]]:
    return [slot for slot in slots if (slot[1].get("conditions") or {}).get("ready") is not False]


def _leaving(slots: list[tuple[Slot, Mapping[str, Any]]]) -> list[tuple[Slot, Mapping[str, Any]]]:
    conditions = [slot[1].get("conditions") or {} for slot in slots]
    return [
        slot
        for slot, held in zip(slots, conditions, strict=True)
        if held.get("terminating") and held.get("serving") is not False
    ]


def _remembers(port: Port) -> bool:
    """Whether a client's endpoint is remembered, and it could be another one."""
    inside = port.local if port.internal_local else port.cluster
    outside = port.local if port.external_local else port.cluster
    several = len(inside) > 1 or (port.is_exposed and len(outside) > 1)
    return port.spec.get("sessionAffinity") == "ClientIP" and several


def _share(one: Port, other: Port) -> bool:
    """Whether two ports want the same address, and it matters which of them has it."""
    same = (one.port["port"], one.port.get("protocol", "TCP")) == (
        other.port["port"],
        other.port.get("protocol", "TCP"),
    )
    return same and bool({*one.outside} & {*other.outside}) and one.spec is not other.spec
