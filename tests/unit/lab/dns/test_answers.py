"""What cluster DNS answers, sentence by sentence of kubernetes/dns docs/specification.md, and as CoreDNS does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from dns.flags import Flag
from dns.message import Message, from_wire, make_query
from dns.rcode import FORMERR, NOTIMP, NXDOMAIN
from dns.rdatatype import AAAA, CNAME, NS, PTR, SOA, SRV, TXT, A, RdataType

from kproxy.lab.dns.answers import Record, reply_to, resolve
from kproxy.lab.resources import Object

HTTP = {"name": "http", "port": 80, "protocol": "TCP"}
DNS = {"name": "dns", "port": 53, "protocol": "UDP"}


def service(namespace: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": namespace, "name": name}, "spec": spec}


def piece(service: str, *endpoints: dict[str, Any], ports: Iterable[dict[str, Any]] = (HTTP,)) -> dict[str, Any]:
    labels = {"kubernetes.io/service-name": service}
    meta = {"namespace": "default", "name": f"{service}-x", "labels": labels}
    return {"metadata": meta, "ports": list(ports), "endpoints": list(endpoints)}


def endpoint(address: str, *, ready: bool | None = True, **more: Any) -> dict[str, Any]:
    return {"addresses": [address], "conditions": {} if ready is None else {"ready": ready}, **more}


class Known:
    """Services and EndpointSlices without informers."""

    services = (
        service("default", "web", clusterIP="10.96.1.1", clusterIPs=["10.96.1.1", "fd00:10:96::1"], ports=[HTTP, DNS]),
        service("default", "db", clusterIP="None", clusterIPs=["None"], ports=[HTTP]),
        service("default", "bare", clusterIP="None", clusterIPs=["None"]),
        service("default", "empty", clusterIP="None", clusterIPs=["None"], ports=[HTTP]),
        service("default", "inner", type="ExternalName", externalName="web.default.svc.cluster.local."),
        service("default", "outer", type="ExternalName", externalName="example.com"),
        service("default", "loop", type="ExternalName", externalName="loop.default.svc.cluster.local"),
        service("kube-system", "kube-dns", clusterIP="10.96.0.10", clusterIPs=["10.96.0.10"], ports=[DNS]),
    )
    pieces = (
        piece("web", endpoint("10.244.1.2")),
        piece("db", endpoint("10.244.1.3", hostname="db-0"), endpoint("10.244.2.3", ready=None),
              endpoint("10.244.2.4", ready=False)),
        piece("bare", endpoint("10.244.1.4"), ports=()),
        piece("empty", endpoint("10.244.1.5", ready=False)),
    )  # fmt: skip

    def has_namespace(self, name: str) -> bool:
        return name in ("default", "kube-system")

    def service(self, namespace: str, name: str) -> Object | None:
        wanted = {"namespace": namespace, "name": name}
        return next((item for item in self.services if item["metadata"] == wanted), None)

    def slices(self, namespace: str, name: str) -> Iterable[Object]:
        labels = {"kubernetes.io/service-name": name}
        return [item for item in self.pieces if namespace == "default" and item["metadata"]["labels"] == labels]

    def with_address(self, address: str) -> Iterable[tuple[str, Object]]:
        yield from (("Service", item) for item in self.services if address in item["spec"].get("clusterIPs", ()))
        for item in self.pieces:
            if any(address in each["addresses"] for each in item["endpoints"]):
                yield "EndpointSlice", item

    def dns_addresses(self) -> Iterable[str]:
        return ["10.96.0.10"]


def shown(records: Iterable[Record]) -> list[str]:
    return [f"{each.name} {each.kind.name} {each.data.removesuffix('.')}" for each in records]


def ask(name: str, kind: RdataType = A) -> tuple[int, list[str]]:
    answer = resolve(name, kind, Known())
    return answer.rcode, [text.removeprefix(f"{name} ") for text in shown(answer.answers)]


@pytest.mark.parametrize(
    ("name", "kind", "records"),
    [
        ("web.default.svc.cluster.local", A, ["A 10.96.1.1"]),
        ("WEB.default.svc.Cluster.local", AAAA, ["AAAA fd00:10:96::1"]),
        ("db.default.svc.cluster.local", A, ["A 10.244.1.3", "A 10.244.2.3"]),
        ("db-0.db.default.svc.cluster.local", A, ["A 10.244.1.3"]),
        ("10-244-2-3.db.default.svc.cluster.local", A, ["A 10.244.2.3"]),
        ("10-244-1-2.web.default.svc.cluster.local", A, ["A 10.244.1.2"]),
        ("bare.default.svc.cluster.local", A, ["A 10.244.1.4"]),
        ("_http._tcp.web.default.svc.cluster.local", SRV, ["SRV 0 100 80 web.default.svc.cluster.local"]),
        ("_dns._udp.web.default.svc.cluster.local", SRV, ["SRV 0 100 53 web.default.svc.cluster.local"]),
        ("_http._tcp.db.default.svc.cluster.local", SRV, [
            "SRV 0 50 80 db-0.db.default.svc.cluster.local", "SRV 0 50 80 10-244-2-3.db.default.svc.cluster.local"]),
        ("outer.default.svc.cluster.local", A, ["CNAME example.com"]),
        ("outer.default.svc.cluster.local", CNAME, ["CNAME example.com"]),
        ("10-244-9-9.default.pod.cluster.local", A, ["A 10.244.9.9"]),
        ("fd00-10--9.default.pod.cluster.local", AAAA, ["AAAA fd00:10::9"]),
        ("1.1.96.10.in-addr.arpa", PTR, ["PTR web.default.svc.cluster.local"]),
        ("3.1.244.10.in-addr.arpa", PTR, ["PTR db-0.db.default.svc.cluster.local"]),
        ("3.2.244.10.in-addr.arpa", PTR, ["PTR 10-244-2-3.db.default.svc.cluster.local"]),
        (f"1.{'0.' * 19}6.9.0.0.0.1.0.0.0.0.d.f.ip6.arpa", PTR, ["PTR web.default.svc.cluster.local"]),
        ("dns-version.cluster.local", TXT, ["TXT 1.1.0"]),
        ("cluster.local", NS, ["NS ns.dns.cluster.local"]),
        ("ns.dns.cluster.local", A, ["A 10.96.0.10"]),
    ],
)  # fmt: skip
def test_names_that_exist(name: str, kind: RdataType, records: list[str]) -> None:
    assert ask(name, kind) == (0, records)


@pytest.mark.parametrize(
    ("name", "kind", "rcode"),
    [
        ("db.default.svc.cluster.local", AAAA, 0),
        ("web.default.svc.cluster.local", TXT, 0),
        ("default.svc.cluster.local", A, 0),
        ("svc.cluster.local", A, 0),
        ("cluster.local", A, 0),
        ("10-244-9-9.default.pod.cluster.local", AAAA, 0),
        ("nosuch.default.svc.cluster.local", A, 3),
        ("web.nosuch.svc.cluster.local", A, 3),
        ("nosuch.svc.cluster.local", A, 3),
        ("empty.default.svc.cluster.local", A, 3),
        ("10-244-2-4.db.default.svc.cluster.local", A, 3),
        ("_nosuch._tcp.web.default.svc.cluster.local", SRV, 3),
        ("_http._udp.web.default.svc.cluster.local", SRV, 3),
        ("a.b.c.web.default.svc.cluster.local", A, 3),
        ("10-244-9-9.nosuch.pod.cluster.local", A, 3),
        ("word.default.pod.cluster.local", A, 3),
        ("nosuch.cluster.local", A, 3),
        ("web", A, 5),
        ("example.com", A, 5),
        ("notcluster.local", A, 5),
        ("9.9.9.9.in-addr.arpa", PTR, 3),
        ("x.in-addr.arpa", PTR, 3),
        ("4.2.244.10.in-addr.arpa", PTR, 3),
        ("1.2.ip6.arpa", PTR, 3),
    ],
)
def test_names_without_records(name: str, kind: RdataType, rcode: int) -> None:
    assert ask(name, kind) == (rcode, [])


def test_an_alias_is_followed_inside_of_the_cluster() -> None:
    answer = resolve("inner.default.svc.cluster.local", A, Known())
    assert shown(answer.answers) == [
        "inner.default.svc.cluster.local CNAME web.default.svc.cluster.local",
        "web.default.svc.cluster.local A 10.96.1.1",
    ]
    assert ask("loop.default.svc.cluster.local") == (0, ["CNAME loop.default.svc.cluster.local"])


def test_what_stands_beside() -> None:
    found = resolve("_http._tcp.db.default.svc.cluster.local", SRV, Known())
    assert shown(found.additional)[0] == "db-0.db.default.svc.cluster.local A 10.244.1.3"
    (soa,) = resolve("nosuch.default.svc.cluster.local", A, Known()).authority
    assert (soa.name, soa.kind) == ("cluster.local", SOA)
    assert soa.data == "ns.dns.cluster.local. hostmaster.cluster.local. 1 7200 1800 86400 30"
    assert resolve("db.default.svc.cluster.local", AAAA, Known()).authority == (soa,)


# --- messages ---


def reply(query: Message | bytes, *, over_tcp: bool = False) -> Message:
    data = query if isinstance(query, bytes) else query.to_wire()
    return from_wire(reply_to(data, "10.0.0.1", Known(), lambda _text: None, over_tcp=over_tcp))


def test_a_query_and_its_answer() -> None:
    """Authoritative, RD and the name's case as they were, EDNS if the client speaks it, any order of records."""
    query = make_query("Web.default.svc.cluster.local", A, use_edns=0, payload=4096)
    found = reply(query)
    assert (found.id, found.rcode(), found.edns) == (query.id, 0, 0)
    assert found.flags == Flag.QR | Flag.AA | Flag.RD
    assert [each.to_text() for each in found.answer] == ["Web.default.svc.cluster.local. 30 IN A 10.96.1.1"]
    found = reply(make_query("_http._tcp.db.default.svc.cluster.local", SRV, use_edns=False))
    assert (len(found.answer[0]), len(found.additional), found.edns) == (2, 2, -1)
    found = reply(make_query("nosuch.default.svc.cluster.local", A))
    assert (found.rcode(), found.authority[0].rdtype) == (NXDOMAIN, SOA)
    assert reply(make_query("example.com", A)).flags & Flag.AA == 0
    query = make_query("db.default.svc.cluster.local", A)
    assert len({tuple(map(str, reply(query).answer[0])) for _ in range(100)}) == 2  # the chance of one is 2**-99


def test_what_is_too_long_is_cut_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    many = piece("db", *(endpoint(f"10.1.{number // 256}.{number % 256}") for number in range(300)))
    monkeypatch.setattr(Known, "pieces", (many,))
    query = make_query("db.default.svc.cluster.local", A, use_edns=False)
    assert len(reply_to(query.to_wire(), "", Known(), lambda _text: None, over_tcp=False)) <= 512
    assert reply(query).flags & Flag.TC
    found = reply(query, over_tcp=True)
    assert (found.flags & Flag.TC, len(found.answer[0])) == (0, 300)


QUERY = make_query("web.default.svc.cluster.local", A, use_edns=False, id=7).to_wire()


@pytest.mark.parametrize(
    ("data", "rcode"),
    [
        (b"", None),
        (b"hello", None),
        (QUERY[:2] + b"\x81\0" + QUERY[4:], None),
        (QUERY[:2] + b"\x29\0" + QUERY[4:], NOTIMP),
        (QUERY[:20], FORMERR),
        (QUERY[:-2], FORMERR),
        (QUERY[:4] + b"\0\0" + QUERY[6:12], FORMERR),
        (QUERY[:12] + b"\xc0\x0c" + QUERY[-4:], FORMERR),
    ],
)
def test_what_is_no_query(data: bytes, rcode: int | None) -> None:
    if rcode is None:
        assert reply_to(data, "", Known(), lambda _text: None, over_tcp=False) == b""
    else:
        assert reply(data).rcode() == rcode
