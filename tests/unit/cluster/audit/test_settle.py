"""What a live audit finds and finds again."""

from __future__ import annotations

from collections.abc import Collection

from kproxy.cluster.audit.audit import audit, settle
from kproxy.cluster.audit.report import Observation
from kproxy.cluster.snapshot.cluster import Cluster
from kproxy.cluster.snapshot.files import MemoryFiles
from tests.support.cluster import audited


def stale(endpoint: str, node: str = "n1") -> Observation:
    return Observation("endpoint-stale", node, f"to {endpoint}", f"to {endpoint}", "shop/web:http")


def test_what_is_found_again_stays() -> None:
    lasting, passing = stale("10.244.1.5:80"), stale("10.244.1.6:80", "n2")
    readings = [[stale("10.244.1.5:80"), stale("10.244.1.9:80", "n2")], [stale("10.244.1.5:80")]]
    asked: list[Collection[str]] = []

    def observe(nodes: Collection[str]) -> list[Observation]:
        asked.append(list(nodes))
        return readings[len(asked) - 1]

    assert settle([lasting, passing], observe) == ([lasting], [passing])
    assert asked == [["n1", "n2"], ["n1"]]


def test_one_of_the_same_endpoints_is_the_same() -> None:
    found = Observation("endpoint-missing", "n1", "a", "not to 10.244.1.5:80, 10.244.1.6:80", "shop/web:http")
    later = Observation("endpoint-missing", "n1", "b", "not to 10.244.1.6:80", "shop/web:http")
    assert settle([found], lambda _nodes: [later]) == ([found], [])


def test_what_is_only_told_is_not_read_again() -> None:
    told = Observation("no-endpoints", "n1", "", service="shop/web:http")
    assert settle([told], lambda _nodes: []) == ([told], [])


def test_a_cluster_that_settles_is_well() -> None:
    healthy = audited.cluster("iptables")
    lagging = dict(healthy)
    path = "nodes/n1/iptables-save"
    lagging[path] = healthy[path].replace(b"--to-destination 10.244.2.6:53", b"--to-destination 10.244.2.99:53")
    assert lagging != healthy
    first = Cluster(MemoryFiles("live", lagging))
    assert not audit(first).is_well
    report = audit(first, again=lambda _nodes: Cluster(MemoryFiles("live", healthy)))
    assert (report.is_well, bool(report.moving)) == (True, True)
    stays = audit(first, again=lambda _nodes: Cluster(MemoryFiles("live", lagging)))
    assert (stays.is_well, bool(stays.moving), stays.findings) == (False, False, audit(first).findings)
