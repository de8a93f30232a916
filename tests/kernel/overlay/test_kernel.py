"""The overlay in the kernel: three nodes, pods that reach one another, and nothing but the plan is there."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kproxy.overlay.plan import Backend
from tests.support.cni.client import ip
from tests.support.overlay.network import ALL, Network, reaches, three_nodes

pytestmark = [pytest.mark.root, pytest.mark.slow]


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    with three_nodes(tmp_path) as made:
        yield made


@pytest.mark.parametrize("backend", list(Backend))
def test_every_pod_reaches_every_pod_in_both_families(network: Network, backend: Backend) -> None:
    assert not reaches(network, 1, 2, 4, wait=1)
    for number in ALL:
        _, problems = network.join(number, ALL, backend)
        assert problems == []
        assert network.drift(number, ALL, backend) == []
        changes, _ = network.join(number, ALL, backend)
        assert changes == [], "a second round finds nothing to do"
    for family in (4, 6):
        for source in ALL:
            for target in ALL:
                if source != target:
                    assert reaches(network, source, target, family), (source, target, family)


def test_large_datagrams_are_fragmented_and_arrive(network: Network) -> None:
    for number in ALL:
        network.join(number, ALL)
    for family, header in ((4, 28), (6, 48)):
        for size in (1430 - header, 1430 - header + 1, 4000, 20000):
            assert reaches(network, 1, 3, family, size), (family, size)


def test_vxlan_is_as_flannel_makes_it(network: Network) -> None:
    network.join(1, ALL)
    name = network.names["n1"]
    link = ip("-n", name, "-d", "link", "show", "kproxy.1")
    assert "vxlan id 1 local 192.168.9.1" in link
    # Releases of iproute2 print these in different orders.
    assert "dstport 8472 " in link
    assert " nolearning " in link
    assert "mtu 1450" in link
    assert "mtu 1430" in ip("-n", name, "link", "show", "kproxy-v6.1")
    routes = ip("-n", name, "route", "show", "dev", "kproxy.1").split("\n")
    assert [line.strip() for line in routes if line] == [
        "10.244.2.0/24 via 10.244.2.0 proto 107 onlink",
        "10.244.3.0/24 via 10.244.3.0 proto 107 onlink",
    ]
    assert len(ip("-n", name, "-4", "neigh", "show", "dev", "kproxy.1", "nud", "permanent").splitlines()) == 2
    entries = subprocess.run(
        ["bridge", "-n", name, "fdb", "show", "dev", "kproxy.1"], capture_output=True, text=True, check=True
    ).stdout
    assert sorted(line.split(" dst ")[1].split()[0] for line in entries.splitlines()) == ["192.168.9.2", "192.168.9.3"]
    assert entries.count("permanent") == 2


@pytest.mark.parametrize(
    "damage",
    [
        ["link", "delete", "kproxy.1"],
        ["link", "set", "kproxy.1", "down"],
        ["link", "set", "kproxy.1", "mtu", "1400"],
        ["route", "delete", "10.244.2.0/24"],
        ["neigh", "flush", "dev", "kproxy.1", "nud", "permanent"],
        ["address", "add", "10.9.9.9/32", "dev", "kproxy.1"],
        ["route", "add", "10.99.0.0/24", "via", "192.168.9.3", "proto", "107"],
        ["link", "set", "kproxy.1", "address", "02:00:00:00:00:09"],
    ],
    ids=lambda words: " ".join(words[:2]) + " " + words[-1],
)
def test_damage_is_reported_and_mended(network: Network, damage: list[str]) -> None:
    network.join(1, ALL)
    network.join(2, ALL)
    ip("-n", network.names["n1"], *damage)
    assert network.drift(1, ALL)
    _, problems = network.join(1, ALL)
    assert problems == []
    assert network.drift(1, ALL) == []
    assert reaches(network, 1, 2, 4)


def test_a_changed_backend_replaces_the_other(network: Network) -> None:
    network.join(1, ALL)
    network.join(1, ALL, Backend.HOST_GW)
    assert network.drift(1, ALL, Backend.HOST_GW) == []
    assert "kproxy" not in ip("-n", network.names["n1"], "link")
    assert "10.244.2.0/24 via 192.168.9.2 dev eth0 proto 107" in ip("-n", network.names["n1"], "route")


def test_a_gateway_that_is_on_no_link_keeps_only_itself_out(network: Network) -> None:
    ip("-n", network.names["n1"], "address", "del", "192.168.9.1/24", "dev", "eth0")
    _, problems = network.join(1, ALL, Backend.HOST_GW)
    assert len(problems) == 2, "the two IPv4 routes"
    assert "fd00:10:244:3::/64 via fd00:9::3" in ip("-n", network.names["n1"], "-6", "route")
