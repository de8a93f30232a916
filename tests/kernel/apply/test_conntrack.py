"""Connection tracking entries in the kernel: stale ones go, others stay, over restarts too."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import msgspec
import pytest

from kproxy.api import KubeProxyConfiguration
from kproxy.api.types.core import Service, ServicePort
from kproxy.api.types.discovery import EndpointPort, EndpointSlice
from kproxy.cluster.facts.conntrack import Flow
from kproxy.linux.conntrack import flows as flows_module
from kproxy.linux.conntrack.flows import delete_flows, read_flows
from kproxy.linux.lazy_import import load
from kproxy.linux.namespace import Namespace
from kproxy.linux.sync.apply import ApplyReport, apply_node
from kproxy.linux.sync.backend import NodeRequest
from kproxy.linux.sysctl import read_sysctl
from kproxy.netfilter.hooks import Variant
from kproxy.render import Target
from kproxy.services import IPFamily
from tests.support.kernel.namespaces import fresh_namespace, run
from tests.support.services.builders import make_endpoint, make_service, make_slice

pytestmark = pytest.mark.root

DNS = {
    IPFamily.IPV4: ("10.96.0.10", "10.244.0.5", "10.244.0.6", "10.0.0.1", "192.0.2.1"),
    IPFamily.IPV6: ("fd00:96::a", "fd00:244::5", "fd00:244::6", "fd00::1", "fd00:2::1"),
}
both_families = pytest.mark.parametrize("family", list(IPFamily), ids=lambda family: str(family.value))


@pytest.fixture
def space() -> Iterator[Namespace]:
    with fresh_namespace() as name, Namespace.named(name) as namespace:
        run("ip", "link", "set", "lo", "up", namespace=name)
        yield namespace


def flow(family: IPFamily, port: int, to: str, endpoint: str, *, protocol: str = "UDP", dport: int = 53) -> Flow:
    client = DNS[family][3]
    target = 5353 if endpoint != to else dport
    return Flow(protocol, client, port, to, dport, endpoint, target, client, port)


def add(space: Namespace, family: IPFamily, *entries: Flow) -> None:
    library = load("pyroute2.conntrack")
    number = socket.AF_INET6 if family.is_ipv6 else socket.AF_INET
    with library.Conntrack(nfgen_family=number, netns=space.netns, flags=0) as conntrack:
        for each in entries:
            protocol = flows_module.PROTOCOLS[each.protocol]
            conntrack.entry(
                "add",
                timeout=100,
                tuple_orig=library.NFCTAttrTuple(
                    family=number,
                    saddr=each.source,
                    daddr=each.destination,
                    proto=protocol,
                    sport=each.source_port,
                    dport=each.destination_port,
                ),
                tuple_reply=library.NFCTAttrTuple(
                    family=number,
                    saddr=each.reply_source,
                    daddr=each.reply_destination,
                    proto=protocol,
                    sport=each.reply_source_port,
                    dport=each.reply_destination_port,
                ),
            )


def service(family: IPFamily, *, node_port: int = 0, protocol: str = "UDP") -> Service:
    return make_service(
        "dns",
        "kube-system",
        ports=(ServicePort(port=53, protocol=protocol, node_port=node_port),),
        cluster_ips=(DNS[family][0],),
        type="NodePort" if node_port else "ClusterIP",
    )


def endpoint_slice(*ips: str, family: IPFamily, protocol: str = "UDP") -> EndpointSlice:
    return make_slice(
        *(make_endpoint(ip) for ip in ips),
        service="dns",
        namespace="kube-system",
        ports=(EndpointPort(5353, protocol=protocol),),
        address_type=family.value,
    )


def bring(
    space: Namespace,
    family: IPFamily,
    services: list[Service],
    slices: list[EndpointSlice],
    *,
    dry_run: bool = False,
) -> ApplyReport:
    asked = NodeRequest(
        Target("node-0", None), KubeProxyConfiguration(), services, slices, (family,), variant=Variant.NFT
    )
    return apply_node(asked, space, dry_run=dry_run)


def left(space: Namespace, family: IPFamily, protocol: str = "UDP") -> set[int]:
    """The source ports of the entries that are left."""
    return {each.source_port for each in read_flows(space, family, [protocol])}


@both_families
def test_an_endpoint_goes(space: Namespace, family: IPFamily) -> None:
    ip, first, second, *_ = DNS[family]
    both = [endpoint_slice(first, second, family=family)]
    bring(space, family, [service(family)], both)
    add(space, family, flow(family, 1001, ip, first), flow(family, 1002, ip, second))
    add(space, family, flow(family, 1003, "8.8.8.8" if not family.is_ipv6 else "2001:db8::8", first))
    assert bring(space, family, [service(family)], both).conntrack == ()
    only = [endpoint_slice(second, family=family)]
    told = bring(space, family, [service(family)], only, dry_run=True)
    assert left(space, family) == {1001, 1002, 1003}
    done = bring(space, family, [service(family)], only)
    assert done.conntrack == told.conntrack
    (gone,) = done.conntrack
    assert gone.service == "kube-system/dns/UDP"
    assert "is no endpoint any more" in gone.reason
    assert left(space, family) == {1002, 1003}


@both_families
def test_the_last_endpoint_goes_and_one_comes_back(space: Namespace, family: IPFamily) -> None:
    ip, first, *_ = DNS[family]
    bring(space, family, [service(family)], [endpoint_slice(first, family=family)])
    add(space, family, flow(family, 1001, ip, first))
    (gone,) = bring(space, family, [service(family)], []).conntrack
    assert gone.reason == "there are no endpoints any more"
    add(space, family, flow(family, 1002, ip, ip))
    assert bring(space, family, [service(family)], []).conntrack == ()
    (gone,) = bring(space, family, [service(family)], [endpoint_slice(first, family=family)]).conntrack
    assert gone.reason == "it was made before there were endpoints, so it bypasses them"
    assert left(space, family) == set()


@both_families
@pytest.mark.parametrize("protocol", ["UDP", "SCTP"])
def test_a_service_is_deleted(space: Namespace, family: IPFamily, protocol: str) -> None:
    ip, first, *_ = DNS[family]
    slices = [endpoint_slice(first, family=family, protocol=protocol)]
    bring(space, family, [service(family, protocol=protocol)], slices)
    add(space, family, flow(family, 1001, ip, first, protocol=protocol))
    assert left(space, family, protocol) == {1001}
    (gone,) = bring(space, family, [], []).conntrack
    assert "no Service has" in gone.reason
    assert left(space, family, protocol) == set()


@both_families
def test_a_node_port_changes(space: Namespace, family: IPFamily) -> None:
    _, first, _, _, node = DNS[family]
    slices = [endpoint_slice(first, family=family)]
    bring(space, family, [service(family, node_port=30053)], slices)
    add(space, family, flow(family, 1001, node, first, dport=30053))
    assert bring(space, family, [service(family, node_port=30053)], slices).conntrack == ()
    (gone,) = bring(space, family, [service(family, node_port=30054)], slices).conntrack
    assert gone.reason == "no Service has node port 30053 any more"


@both_families
def test_both_ways_of_reading_agree(space: Namespace, family: IPFamily, monkeypatch: pytest.MonkeyPatch) -> None:
    ip, first, second, *_ = DNS[family]
    add(space, family, flow(family, 1001, ip, first), flow(family, 1002, ip, second))
    add(space, family, flow(family, 1003, ip, second, protocol="SCTP"))
    by_tool = read_flows(space, family, ["UDP", "SCTP"])
    assert len(by_tool) == 3
    monkeypatch.setattr("kproxy.linux.conntrack.flows.find_program", lambda name: None)
    assert set(read_flows(space, family, ["UDP", "SCTP"])) == set(by_tool)
    assert delete_flows(space, family, by_tool) == 3
    assert delete_flows(space, family, by_tool) == 3
    assert read_flows(space, family, ["UDP", "SCTP"]) == []


def test_a_full_table_is_reported(space: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit belongs to the whole machine, so it is only read here: told as low as it gets."""

    def low(where: Namespace, name: str) -> str:
        return "0" if name.endswith("max") else read_sysctl(where, name)

    monkeypatch.setattr("kproxy.linux.conntrack.flows.read_sysctl", low)
    report = bring(space, IPFamily.IPV4, [], [])
    assert any("connection tracking table" in note and "is full (0 of 0 entries)" in note for note in report.notes)
    assert msgspec.json.encode(report)
