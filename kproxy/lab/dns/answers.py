"""What cluster DNS answers, from Services and EndpointSlices: values only.

The specification is kubernetes/dns docs/specification.md; where it leaves something open, as CoreDNS's kubernetes
plugin does with `pods insecure` and `ttl 30`, which is kubeadm's Corefile: names of pods by their addresses in
namespaces that there are, a headless Service without a ready endpoint does not exist, an endpoint without a hostname is
called by its address with dashes. Names outside of the cluster are refused, for a lab has no way out.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, Protocol

from kproxy.lab.dns.message import (
    AAAA,
    CNAME,
    NOERROR,
    NS,
    NXDOMAIN,
    PTR,
    REFUSED,
    SOA,
    SRV,
    TXT,
    A,
    Answer,
    Record,
)
from kproxy.lab.resources import Object

ZONE: Final = "cluster.local"
TTL: Final = 30
_ORIGIN: Final = f"ns.dns.{ZONE}"
_SCHEMA: Final = "1.1.0"
"""The version of the specification, which `dns-version.cluster.local` says."""
_REVERSE: Final = ("in-addr.arpa", "ip6.arpa")
_MAX_CHAIN: Final = 8
_KINDS: Final = {4: A, 6: AAAA}


class Objects(Protocol):
    """The cluster's objects."""

    def has_namespace(self, name: str) -> bool: ...

    def service(self, namespace: str, name: str) -> Object | None: ...

    def slices(self, namespace: str, name: str) -> Iterable[Object]:
        """The EndpointSlices of a Service."""

    def with_address(self, address: str) -> Iterable[tuple[str, Object]]:
        """Services (`Service`) and EndpointSlices (`EndpointSlice`) that have an address, Services first."""

    def dns_addresses(self) -> Iterable[str]:
        """Those of cluster DNS itself."""


class Host(NamedTuple):
    """An address and a port behind a name; `name` is the host's own, for SRV."""

    name: str
    address: str
    port: int


def resolve(name: str, kind: int, objects: Objects) -> Answer:
    """The answer to a question; `name` without the last dot, in any case."""
    wanted = name.lower()
    if wanted.endswith(tuple(f".{zone}" for zone in _REVERSE)):
        return _reverse(name, kind, objects)
    if wanted != ZONE and not wanted.endswith(f".{ZONE}"):
        return Answer(REFUSED)
    records, more, exists = _forward(name, kind, objects)
    if records:
        return Answer(NOERROR, tuple(records), (), tuple(more))
    return Answer(NOERROR if exists else NXDOMAIN, (), (_soa(),))


def _soa() -> Record:
    return Record(ZONE, SOA, TTL, (_ORIGIN, f"hostmaster.{ZONE}", 1, 7200, 1800, 86400, TTL))


def _forward(name: str, kind: int, objects: Objects) -> tuple[list[Record], list[Record], bool]:
    """Records, those beside them, and whether the name exists."""
    labels = name.lower().removesuffix(ZONE).rstrip(".").split(".") if name.lower() != ZONE else []
    match labels:
        case []:
            own = {SOA: _soa(), NS: Record(ZONE, NS, TTL, _ORIGIN)}
            return [own[kind]] if kind in own else [], [], True
        case ["dns-version"]:
            return [Record(name, TXT, TTL, _SCHEMA)] if kind == TXT else [], [], True
        case ["dns"] | ["svc"] | ["pod"]:
            return [], [], True
        case ["ns", "dns"]:
            return _addresses(name, kind, objects.dns_addresses()), [], True
        case [*rest, namespace, "svc" | "pod"] if objects.has_namespace(namespace):
            if not rest:
                return [], [], True
            if labels[-1] == "svc":
                return _of_service(name, kind, rest, namespace, objects)
            address = _undashed(rest[0]) if len(rest) == 1 else None
            return (_addresses(name, kind, [address]), [], True) if address else ([], [], False)
    return [], [], False


def _of_service(
    name: str, kind: int, labels: list[str], namespace: str, objects: Objects
) -> tuple[list[Record], list[Record], bool]:
    *inner, service_name = labels
    service = objects.service(namespace, service_name)
    if service is None or len(inner) > 2:
        return [], [], False
    port, protocol, endpoint = "", "", ""
    if len(inner) == 2:
        if not (inner[0].startswith("_") and inner[1].startswith("_")):
            return [], [], False
        port, protocol = inner[0][1:], inner[1][1:]
    elif inner:
        endpoint = inner[0]
    base = f"{service_name}.{namespace}.svc.{ZONE}"
    if service["spec"].get("type") == "ExternalName":
        return ([], [], False) if inner else _alias(name, kind, str(service["spec"]["externalName"]), objects)
    if endpoint or _is_headless(service):
        found = [
            host
            for host in _endpoints(objects.slices(namespace, service_name), port, protocol)
            if not endpoint or host.name == endpoint
        ]
        hosts = [host._replace(name=f"{host.name}.{base}") for host in found]
    else:
        hosts = list(_virtual(service, base, port, protocol))
    if not hosts:
        return [], [], False
    if kind == SRV:
        targets = list(dict.fromkeys((host.name, host.port) for host in hosts if host.port))
        weight = max(1, 100 // max(1, len(targets)))
        records = [Record(name, SRV, TTL, (0, weight, number, target)) for target, number in targets]
        pairs = dict.fromkeys((host.name, host.address) for host in hosts)
        return records, [_address(target, address) for target, address in pairs], True
    return _addresses(name, kind, [host.address for host in hosts]), [], True


def _alias(name: str, kind: int, target: str, objects: Objects) -> tuple[list[Record], list[Record], bool]:
    """An ExternalName: the alias, and what it leads to inside of the cluster."""
    target = target.rstrip(".")
    records = [Record(name, CNAME, TTL, target)]
    if kind not in (A, AAAA):
        return records if kind == CNAME else [], [], True
    seen = {name.lower()}
    while target.lower().endswith(f".{ZONE}") and target.lower() not in seen and len(seen) < _MAX_CHAIN:
        seen.add(target.lower())
        # CNAME is asked for, so that each step of a chain is taken here.
        step = _forward(target, CNAME, objects)[0]
        if not step:
            return [*records, *_forward(target, kind, objects)[0]], [], True
        records += step
        target = str(step[0].data)
    return records, [], True


def _is_headless(service: Object) -> bool:
    return bool(service["spec"].get("clusterIP") == "None")


def _virtual(service: Object, base: str, port: str, protocol: str) -> Iterator[Host]:
    """The cluster IPs of a Service, with its ports."""
    spec = service["spec"]
    for each in spec.get("ports") or ():
        if _matches(each, port, protocol):
            for address in spec.get("clusterIPs") or ():
                yield Host(base, str(address), int(each["port"]))


def _endpoints(slices: Iterable[Object], port: str, protocol: str) -> Iterator[Host]:
    """The ready endpoints; those of a Service without ports have port 0."""
    for item in sorted(slices, key=lambda each: str(each["metadata"]["name"])):
        ports = item.get("ports") or ([] if port else [{"port": 0}])
        for endpoint in item.get("endpoints") or ():
            if not _is_ready(endpoint):
                continue
            for address in endpoint.get("addresses") or ():
                for each in ports:
                    if _matches(each, port, protocol):
                        yield Host(_endpoint_name(endpoint, address), str(address), int(each.get("port") or 0))


def _is_ready(endpoint: Object) -> bool:
    return (endpoint.get("conditions") or {}).get("ready") is not False


def _endpoint_name(endpoint: Object, address: str) -> str:
    return str(endpoint.get("hostname") or _dashed(address))


def _matches(port: Object, name: str, protocol: str) -> bool:
    """Whether a port is meant; both empty is every port. An unnamed one has no SRV name of its own."""
    if not name and not protocol:
        return True
    return (port.get("name") or "") == name and str(port.get("protocol", "TCP")).lower() == protocol


def _addresses(name: str, kind: int, addresses: Iterable[Any]) -> list[Record]:
    records = [_address(name, str(address)) for address in dict.fromkeys(map(str, addresses))]
    return [record for record in records if record.kind == kind]


def _address(name: str, address: str) -> Record:
    return Record(name, _KINDS[ipaddress.ip_address(address).version], TTL, address)


def _reverse(name: str, kind: int, objects: Objects) -> Answer:
    """The names of a cluster IP, or of an endpoint."""
    address = _reversed(name.lower())
    if address is None:
        return Answer(NXDOMAIN)
    found = []
    for what, item in objects.with_address(address):
        meta = item["metadata"]
        if what == "Service":
            found = [f"{meta['name']}.{meta['namespace']}.svc.{ZONE}"]
            break
        service = (meta.get("labels") or {}).get("kubernetes.io/service-name", "")
        for endpoint in item.get("endpoints") or ():
            if address in endpoint.get("addresses", ()) and _is_ready(endpoint):
                found.append(f"{_endpoint_name(endpoint, address)}.{service}.{meta['namespace']}.svc.{ZONE}")
    if not found:
        return Answer(NXDOMAIN)
    names = dict.fromkeys(found) if kind == PTR else ()
    return Answer(NOERROR, tuple(Record(name, PTR, TTL, each) for each in names))


def _reversed(name: str) -> str | None:
    """The address of a name under in-addr.arpa or ip6.arpa."""
    try:
        if name.endswith(".in-addr.arpa"):
            return str(ipaddress.IPv4Address(".".join(reversed(name.split(".")[:-2]))))
        digits = name.removesuffix(".ip6.arpa").split(".")
        if len(digits) != 32 or any(len(digit) != 1 for digit in digits):
            return None
        return str(ipaddress.IPv6Address(int("".join(reversed(digits)), 16)))
    except ValueError:
        return None


def _dashed(address: str) -> str:
    """An address as a label: 10-0-0-1, fd00--1."""
    return address.replace(".", "-").replace(":", "-")


def _undashed(label: str) -> str | None:
    """The address that a label stands for."""
    for text in (label.replace("-", "."), label.replace("-", ":")):
        try:
            return str(ipaddress.ip_address(text))
        except ValueError:
            continue
    return None
