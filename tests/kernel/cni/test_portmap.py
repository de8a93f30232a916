"""Port mappings with real packets: TCP, UDP and SCTP in both families, by whom, to which address, and seen as whom."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kproxy.lab.inspect.request import send_request
from kproxy.lab.kubelet.echo import Echo
from kproxy.lab.kubelet.servers import PodServers, Port
from tests.support.cni.client import Runtime, configuration, ip, namespaces
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.root

NODE = {4: "192.168.7.1", 6: "fd00:7::1"}
OUTSIDE = {4: "192.168.7.2", 6: "fd00:7::2"}
GATEWAY = {4: "10.244.1.1", 6: "fd00:10:244:1::1"}
PROTOCOLS = ("TCP", "UDP", "SCTP")


@dataclass(frozen=True)
class Place:
    runtime: Runtime
    names: dict[str, str]
    pods: dict[str, list[str]]

    def sees(self, source: str, address: str, port: int, protocol: str, wait: float = 10.0) -> str:
        """As whom the pod sees a client of a host port; how it ended if nobody answered within `wait` seconds."""
        answer = send_request(self.names[source], address, port, protocol, timeout=wait)
        return answer.source_address if answer.pod else answer.end


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A node with the pods a (echo servers on 7000) and b, and a machine outside on a wire."""
    servers = PodServers()
    with namespaces("node", "out", "a", "b") as names:
        runtime = Runtime(names["node"], tmp_path, configuration())
        ip("-n", names["node"], "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", names["out"])
        for name, addresses in (("node", NODE), ("out", OUTSIDE)):
            ip("-n", names[name], "link", "set", "eth0", "up")
            ip("-n", names[name], "address", "add", f"{addresses[4]}/24", "dev", "eth0")
            ip("-n", names[name], "address", "add", f"{addresses[6]}/64", "dev", "eth0", "nodad")
        thread = threading.Thread(target=servers.run, daemon=True)
        thread.start()
        servers.start("a", names["a"], Echo("a", "x", "n"), [Port(7000, item) for item in PROTOCOLS], (4, 6))
        try:
            yield Place(runtime, names, {})
        finally:
            servers.close()
            thread.join(PATIENCE)


def add(place: Place, ports: list[dict[str, Any]], ifname: str = "eth0", **extra: Any) -> dict[str, list[str]]:
    """ADD of pod a with mappings, and of b without; their addresses, IPv4 first."""
    mapped = place.runtime.call(
        "ADD", container="a", netns=place.names["a"], ifname=ifname, runtimeConfig={"portMappings": ports}, **extra
    ).result
    other = place.runtime.call("ADD", container="b", netns=place.names["b"], **extra).result
    return {
        name: [str(item["address"]).partition("/")[0] for item in result["ips"]]
        for name, result in (("a", mapped), ("b", other))
    }


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("variant", ["nft", "legacy"])
def test_every_protocol_reaches_the_pod_and_only_what_must_be_is_masqueraded(
    place: Place, variant: str, protocol: str
) -> None:
    mapping = {"hostPort": 8443, "containerPort": 7000, "protocol": protocol.lower()}
    pods = add(place, [mapping], iptables=variant)
    for family in (4, 6):
        own, other = pods["a"][family == 6], pods["b"][family == 6]
        assert place.sees("out", NODE[family], 8443, protocol) == OUTSIDE[family], "kept as it is"
        assert place.sees("out", NODE[family], 7000, protocol, wait=1.0) in ("refused", "lost"), (
            "not a port of the node"
        )
        # Pods of the bridge are masqueraded: the answer would else reach them past the node.
        assert place.sees("b", NODE[family], 8443, protocol) == GATEWAY[family]
        assert place.sees("b", own, 7000, protocol) == other, "not on the way past the mapping"
        assert place.sees("a", NODE[family], 8443, protocol) == GATEWAY[family], "hairpin"
        assert place.sees("node", NODE[family], 8443, protocol) in (NODE[family], GATEWAY[family])
    assert place.sees("node", "127.0.0.1", 8443, protocol) == GATEWAY[4]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_mapping_with_a_host_ip_is_for_that_address_only(place: Place, protocol: str) -> None:
    name = protocol.lower()
    add(
        place,
        [
            {"hostPort": 8443, "containerPort": 7000, "protocol": name, "hostIP": NODE[4]},
            {"hostPort": 8446, "containerPort": 7000, "protocol": name, "hostIP": NODE[6]},
        ],
    )
    assert place.sees("out", NODE[4], 8443, protocol) == OUTSIDE[4]
    assert place.sees("out", NODE[6], 8446, protocol) == OUTSIDE[6]
    assert place.sees("out", NODE[6], 8443, protocol, wait=1.0) in ("refused", "lost"), "another family"
    assert place.sees("out", NODE[4], 8446, protocol, wait=1.0) in ("refused", "lost")
    assert place.sees("b", GATEWAY[4], 8443, protocol, wait=1.0) in ("refused", "lost"), "another address of the node"
    assert place.sees("a", NODE[4], 8443, protocol) == GATEWAY[4]
    assert place.sees("a", NODE[6], 8446, protocol) == GATEWAY[6]


def test_two_interfaces_of_a_container_have_mappings_of_their_own(place: Place) -> None:
    pods = add(place, [{"hostPort": 8001, "containerPort": 7000}])
    second: dict[str, Any] = {"runtimeConfig": {"portMappings": [{"hostPort": 8002, "containerPort": 7000}]}}
    routes = {"isDefaultGateway": False}
    result = place.runtime.call("ADD", container="a", netns=place.names["a"], ifname="net1", **second, **routes).result
    assert result["ips"][0]["address"] != f"{pods['a'][0]}/24"
    assert place.sees("out", NODE[4], 8001, "TCP") == OUTSIDE[4]
    check = place.runtime.call(
        "CHECK", container="a", netns=place.names["a"], ifname="net1", prevResult=result, **second, **routes
    )
    assert check.code == 0
    assert place.runtime.call("DEL", container="a", netns=place.names["a"], ifname="net1", **second).code == 0
    # Both interfaces were on one link, and the pod answers on each for the addresses of both (arp(7), arp_ignore).
    ip("-n", place.names["node"], "neigh", "flush", "dev", "cni0")
    assert place.sees("out", NODE[4], 8001, "TCP") == OUTSIDE[4], "the other's stays"


def test_more_ports_than_one_rule_holds_and_a_very_long_name(place: Place) -> None:
    ports = [{"hostPort": number, "containerPort": 7000} for number in range(9000, 9040)]
    add(place, ports, ifname="e\"\\x'", name="n" * 200)
    assert place.sees("out", NODE[4], 9000, "TCP") == OUTSIDE[4]
    assert place.sees("out", NODE[6], 9039, "TCP") == OUTSIDE[6]
    gone = place.runtime.call("DEL", container="a", netns=place.names["a"], ifname="e\"\\x'", name="n" * 200)
    assert gone.code == 0
    assert place.sees("out", NODE[4], 9000, "TCP", wait=1.0) in ("refused", "lost")
