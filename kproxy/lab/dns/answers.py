"""What cluster DNS answers, from Services and EndpointSlices: values, and the bytes of messages. No I/O.

The specification is kubernetes/dns docs/specification.md; where it leaves something open, as CoreDNS's kubernetes
plugin does with `pods insecure` and `ttl 30`, which is kubeadm's Corefile: names of pods by their addresses in
namespaces that there are, a headless Service without a ready endpoint does not exist, an endpoint without a hostname is
called by its address with dashes. Names outside of the cluster are refused, for a lab has no way out.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple, Protocol

import dns.message
import dns.name
import dns.opcode
import dns.rcode
import dns.rdata
import dns.rdatatype
from dns.exception import DNSException
from dns.flags import Flag
from dns.rcode import NOERROR, NXDOMAIN, REFUSED, Rcode
from dns.rdataclass import IN
from dns.rdatatype import AAAA, CNAME, NS, PTR, SOA, SRV, TXT, A, RdataType
from dns.reversename import to_address

from kproxy.lab.resources import ZONE, Object

_ORIGIN: Final = f"ns.dns.{ZONE}"
TTL: Final = 30
"""Seconds that every record holds."""
_SCHEMA: Final = "1.1.0"
"""The version of the specification, which `dns-version.cluster.local` says."""
_REVERSE: Final = ("in-addr.arpa", "ip6.arpa")
_MAX_CHAIN: Final = 8
_MAX_UDP: Final = 512
"""Bytes of an answer over UDP, if the query does not say more."""
_MAX_TCP: Final = 65535
_EDNS_SIZE: Final = 1232
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


class Record(NamedTuple):
    """A resource record: its name without the last dot, its type, and its data as in a zone's file."""

    name: str
    kind: RdataType
    data: str


class Answer(NamedTuple):
    """What is answered to a question."""

    rcode: Rcode
    answers: tuple[Record, ...] = ()
    authority: tuple[Record, ...] = ()
    additional: tuple[Record, ...] = ()


_SOA: Final = Record(ZONE, SOA, f"{_ORIGIN}. hostmaster.{ZONE}. 1 7200 1800 86400 {TTL}")


class Host(NamedTuple):
    """An address and a port behind a name; `name` is the host's own, for SRV."""

    name: str
    address: str
    port: int


def resolve(name: str, kind: RdataType, objects: Objects) -> Answer:
    """The answer to a question; `name` without the last dot, in any case. Aliases are followed in the cluster."""
    if name.lower().endswith(tuple(f".{zone}" for zone in _REVERSE)):
        return _reverse(name, kind, objects)
    if not _is_inside(name):
        return Answer(REFUSED)
    found = _records(name, objects)
    rcode = NXDOMAIN if found is None else NOERROR
    kinds = (kind, CNAME) if kind in (A, AAAA) else (kind,)
    answers: list[Record] = []
    while found:
        fitting = [each for each in found if each.kind in kinds]
        answers += fitting
        target = next((each.data.rstrip(".") for each in fitting if each.kind == CNAME), "")
        over = len(answers) >= _MAX_CHAIN or target.lower() in (each.name.lower() for each in answers)
        found = None if over else _records(target, objects)
    if not answers:
        return Answer(rcode, (), (_SOA,))
    targets = dict.fromkeys(each.data.split()[-1].rstrip(".") for each in answers if each.kind == SRV)
    beside = (each for target in targets for each in _records(target, objects) or () if each.kind in (A, AAAA))
    return Answer(NOERROR, tuple(answers), (), tuple(beside))


def _is_inside(name: str) -> bool:
    return f".{name.lower()}".endswith(f".{ZONE}")


def _records(name: str, objects: Objects) -> list[Record] | None:
    """All records of a name of the cluster, of any type; None if there is no such name."""
    labels = name.lower().removesuffix(ZONE).rstrip(".").split(".") if _is_inside(name) else ["outside"]
    match labels:
        case [""]:
            return [_SOA, Record(ZONE, NS, f"{_ORIGIN}.")]
        case ["dns-version"]:
            return [Record(name, TXT, _SCHEMA)]
        case ["dns"] | ["svc"] | ["pod"]:
            return []
        case ["ns", "dns"]:
            return _addresses(name, objects.dns_addresses())
        case [*rest, namespace, "svc" | "pod"] if objects.has_namespace(namespace):
            if not rest:
                return []
            if labels[-1] == "svc":
                return _of_service(name, rest, namespace, objects)
            address = _undashed(rest[0]) if len(rest) == 1 else None
            return _addresses(name, [address]) if address else None
    return None


def _of_service(name: str, labels: list[str], namespace: str, objects: Objects) -> list[Record] | None:
    *inner, service_name = labels
    service = objects.service(namespace, service_name)
    if service is None:
        return None
    if service["spec"].get("type") == "ExternalName":
        target = str(service["spec"]["externalName"]).rstrip(".")
        return None if inner else [Record(name, CNAME, f"{target}.")]
    port, protocol, endpoint = "", "", ""
    match inner:
        case [one, two] if one.startswith("_") and two.startswith("_"):
            port, protocol = one[1:], two[1:]
        case [endpoint]:
            pass
        case [_, *_]:
            return None
    base = f"{service_name}.{namespace}.svc.{ZONE}"
    if endpoint or service["spec"].get("clusterIP") == "None":
        found = _endpoints(objects.slices(namespace, service_name), port, protocol)
        fitting = (host for host in found if not endpoint or host.name == endpoint)
        hosts = [host._replace(name=f"{host.name}.{base}") for host in fitting]
    else:
        hosts = list(_virtual(service, base, port, protocol))
    targets = list(dict.fromkeys((host.name, host.port) for host in hosts if host.port))
    weight = max(1, 100 // max(1, len(targets)))
    records = _addresses(name, [host.address for host in hosts])
    records += [Record(name, SRV, f"0 {weight} {number} {target}.") for target, number in targets]
    return records or None


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


def _addresses(name: str, addresses: Iterable[Any]) -> list[Record]:
    return [Record(name, _KINDS[ipaddress.ip_address(each).version], each) for each in dict.fromkeys(addresses)]


def _reverse(name: str, kind: RdataType, objects: Objects) -> Answer:
    """The names of a cluster IP, or of an endpoint."""
    try:
        address = to_address(dns.name.from_text(f"{name}."))
    except (DNSException, ValueError):
        return Answer(NXDOMAIN)  # none is called so
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
    return Answer(NOERROR, tuple(Record(name, PTR, f"{each}.") for each in names))


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


# --- messages ---


def reply_to(data: bytes, peer: str, objects: Objects, said: Callable[[str], None], *, over_tcp: bool) -> bytes:
    """The bytes that answer a query; none if it is not to be answered."""
    try:
        query = dns.message.from_wire(data)
    except dns.message.ShortHeader:
        return b""
    except DNSException:
        query = dns.message.Message(int.from_bytes(data[:2], "big"))
        query.flags = int.from_bytes(data[2:4], "big")
    if query.flags & Flag.QR:
        return b""  # an answer; to answer it would go on for ever
    response = dns.message.make_response(query, our_payload=_EDNS_SIZE)
    response.flags |= query.flags & Flag.CD
    if query.opcode() != dns.opcode.QUERY:
        response.set_rcode(dns.rcode.NOTIMP)
    elif len(query.question) != 1:
        response.set_rcode(dns.rcode.FORMERR)
    else:
        asked = query.question[0]
        name = asked.name.to_text(omit_final_dot=True)
        answer = resolve(name, asked.rdtype, objects)
        response.set_rcode(answer.rcode)
        if answer.rcode != REFUSED:
            response.flags |= Flag.AA
        # Records of one name and type are written in any order: who takes the first takes each in turn.
        for section, records in enumerate((answer.answers, answer.authority, answer.additional), 1):
            for each in records:
                data_of = dns.rdata.from_text(IN, each.kind, each.data)
                owner = dns.name.from_text(each.name)
                response.find_rrset(section, owner, IN, each.kind, create=True).add(data_of, TTL)
        kind, way = dns.rdatatype.to_text(asked.rdtype), "tcp" if over_tcp else "udp"
        said(f'{peer} "{kind} IN {name}. {way}" {dns.rcode.to_text(answer.rcode)} {len(answer.answers)}')
    limit = _MAX_TCP if over_tcp else max(_MAX_UDP, query.payload if query.edns >= 0 else 0)
    return response.to_wire(max_size=limit, prefer_truncation=True)
