"""What is not the overlay's stays as it is: what the kernel learned, and what others made."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kproxy.overlay.plan import Backend
from tests.support.cni.client import ip
from tests.support.overlay.network import ALL, Network, pod_ip, reaches, three_nodes, udp

pytestmark = pytest.mark.root


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    with three_nodes(tmp_path) as made:
        yield made


def exceptions(network: Network) -> str:
    """The paths of node 1 to pods of node 2 that take less than their route's MTU."""
    return ip("-n", network.names["n1"], "-6", "route", "show", "cache")


def bridge(network: Network, number: int, *words: str) -> None:
    subprocess.run(["bridge", "-n", network.names[f"n{number}"], "fdb", *words], check=True)


def learn_a_smaller_path(network: Network) -> None:
    """Node 1 learns that node 2's pod takes 1300 bytes, as it does of any path: by an ICMPv6 error."""
    ip("-n", network.names["n2"], "link", "set", "cni0", "mtu", "1300")
    deadline = time.monotonic() + 20
    with udp(network.node[1], 6) as here:
        while "mtu 1300" not in exceptions(network):
            assert time.monotonic() < deadline, "node 1 was not told"
            here.sendto(bytes(1380), (pod_ip(2, 6), 9))
            time.sleep(0.05)


def test_what_the_kernel_learned_of_a_path_is_no_drift(network: Network) -> None:
    for number in ALL:
        network.join(number, ALL)
    learn_a_smaller_path(network)
    assert network.drift(1, ALL) == []
    changes, problems = network.join(1, ALL)
    assert (changes, problems) == ([], [])
    assert "mtu 1300" in exceptions(network)
    # The first datagram after that arrives, because the node knows to send fragments.
    with udp(network.node[1], 6) as here, udp(network.pod[2], 6, pod_ip(2, 6), 9) as there:
        here.sendto(bytes(1380), (pod_ip(2, 6), 9))
        assert len(there.recv(65535)) == 1380


@pytest.mark.parametrize("backend", list(Backend))
def test_another_programs_route_to_a_nodes_pods_stays_and_is_reported(network: Network, backend: Backend) -> None:
    name = network.names["n1"]
    ip("-n", name, "route", "add", "10.244.2.0/24", "via", "192.168.9.3", "proto", "static")
    ip("-n", name, "-6", "route", "add", "fd00:10:244:2::/64", "via", "fd00:9::3", "proto", "static")
    _, problems = network.join(1, ALL, backend)
    assert [str(item).split(" has ")[0].split()[-1] for item in problems] == ["10.244.2.0/24", "fd00:10:244:2::/64"]
    assert all("is not the overlay's" in str(item) for item in problems)
    for family, foreign, own in (
        ("-4", "10.244.2.0/24", "10.244.3.0/24"),
        ("-6", "fd00:10:244:2::/64", "fd00:10:244:3::/64"),
    ):
        assert "proto static" in ip("-n", name, family, "route", "show", foreign)
        assert "proto 107" in ip("-n", name, family, "route", "show", own)
        ip("-n", name, family, "route", "delete", foreign)
    _, problems = network.join(1, ALL, backend)
    assert problems == []
    assert network.drift(1, ALL, backend) == []


def test_routes_of_other_tables_and_kinds_are_not_the_overlays(network: Network) -> None:
    network.join(1, ALL)
    name = network.names["n1"]
    ip("-n", name, "route", "add", "10.244.2.0/24", "via", "192.168.9.3", "table", "100", "proto", "107")
    ip("-n", name, "route", "add", "blackhole", "10.77.0.0/24", "proto", "107")
    assert network.drift(1, ALL) == []
    changes, _ = network.join(1, ALL)
    assert changes == []
    assert "10.244.2.0/24" in ip("-n", name, "route", "show", "table", "100")
    assert "blackhole 10.77.0.0/24" in ip("-n", name, "route", "show")


def test_a_second_route_with_the_overlays_protocol_goes_and_the_first_stays(network: Network) -> None:
    network.join(1, ALL)
    network.join(2, ALL)
    name = network.names["n1"]
    for family, destination, via in (("-4", "10.244.2.0/24", "192.168.9.3"), ("-6", "fd00:10:244:2::/64", "fd00:9::3")):
        ip("-n", name, family, "route", "add", destination, "via", via, "metric", "77", "proto", "107")
    assert [change.kind for change in network.drift(1, ALL)] == ["unexpected", "unexpected"]
    network.join(1, ALL)
    assert network.drift(1, ALL) == []
    assert reaches(network, 1, 2, 4)
    assert reaches(network, 1, 2, 6)


def test_a_second_destination_of_a_mac_is_seen_beside_the_first(network: Network) -> None:
    network.join(1, ALL)
    network.join(2, ALL)
    for address in ("192.168.9.2", "192.168.9.3"):
        bridge(network, 1, "append", "00:00:00:00:00:00", "dev", "kproxy.1", "dst", address)
    assert [change.kind for change in network.drift(1, ALL)] == ["unexpected", "unexpected"]
    network.join(1, ALL)
    assert network.drift(1, ALL) == []
    assert reaches(network, 1, 2, 4)


def test_another_mtu_is_set_while_packets_go_on(network: Network) -> None:
    network.join(1, ALL)
    network.join(2, ALL)
    before = [line.split(":")[0] for line in ip("-n", network.names["n1"], "-o", "link").splitlines()]
    changes, problems = network.join(1, ALL, mtu=1400)
    assert problems == []
    assert len(changes) == 2
    assert "mtu 1400" in ip("-n", network.names["n1"], "link", "show", "kproxy.1")
    assert "mtu 1400" in ip("-n", network.names["n1"], "link", "show", "kproxy-v6.1")
    after = [line.split(":")[0] for line in ip("-n", network.names["n1"], "-o", "link").splitlines()]
    assert after == before, "no device was made anew"
    assert reaches(network, 1, 2, 4, 4000)
    # Nobody on the way makes fragments of IPv6: the pod learns of the new MTU by losing its first datagram.
    assert reaches(network, 1, 2, 6, 4000, wait=1) or reaches(network, 1, 2, 6, 4000)
