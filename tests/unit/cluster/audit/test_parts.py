"""A large cluster in parts: what nodes share, and that the answer does not depend on where the parts are done."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence

import msgspec
import pytest

from kproxy.cli.processes import ProcessError, in_processes
from kproxy.cluster.audit.audit import Part, _ranges, audit
from kproxy.cluster.audit.node import States
from kproxy.cluster.snapshot.cluster import Cluster
from kproxy.cluster.snapshot.files import MemoryFiles
from kproxy.errors import InputError
from kproxy.netfilter import Family
from kproxy.services.tracker import ServiceState
from tests.support.cluster import audited
from tests.support.cluster.snapshots import manifests

DROP = b"-A FORWARD -p udp -m udp --dport 53 -j DROP\n-A FORWARD "


def test_every_node_has_the_state_of_its_own() -> None:
    found = manifests(audited.cluster())
    for family in Family:
        states = States(found, family)
        for name in ("n1", "n2", "n3", "n4", ""):
            own = ServiceState.of(family, name, found.services, found.endpoint_slices)
            shared = states.of(name)
            assert (shared.service_ports, shared.endpoints) == (own.service_ports, own.endpoints)
    own_of = States(found, Family.IPV4).of("n1").endpoints.values()
    assert any(endpoint.is_local for endpoints in own_of for endpoint in endpoints)


@pytest.mark.parametrize(("count", "parts"), [(0, 1), (39, 1), (40, 2), (199, 2), (200, 2), (201, 4), (1000, 10)])
def test_parts_are_whole_and_alike(count: int, parts: int) -> None:
    ranges = _ranges(count, 20)
    assert [number for each in ranges for number in each] == list(range(count))
    assert len(ranges) == parts
    assert max(map(len, ranges)) - min(map(len, ranges)) <= 1


def test_two_processes_answer_as_one() -> None:
    files = audited.cluster()
    for number in (1, 2, 3):
        path = f"nodes/n{number}/iptables-save"
        files[path] = files[path].replace(b"-A FORWARD ", DROP, 1)
    files["nodes/n3/sysctl"] = b"net.ipv4.ip_forward = 0\n"
    processes: list[int] = []

    def two(function: Callable[[range], Part], ranges: Sequence[range]) -> list[Part]:
        processes.append(len(ranges))
        return in_processes(function, ranges, 2)

    cluster = Cluster(MemoryFiles("snap", files))
    here, there = (audit(cluster, parts=parts, smallest=1) for parts in (map, two))
    assert processes == [2]
    assert msgspec.json.encode(there) == msgspec.json.encode(here)
    whole = audit(cluster)
    for field in ("kind", "nodes", "services", "rules", "witness"):
        assert [getattr(each, field) for each in here.findings] == [getattr(each, field) for each in whole.findings]


def test_an_error_in_a_process_is_the_command_s() -> None:
    files = audited.cluster()
    files["nodes/n3/iptables-save"] = b"*nat\nnonsense\n"
    with pytest.raises(InputError, match=r"nodes/n3/iptables-save: line 2"):
        audit(Cluster(MemoryFiles("snap", files)), parts=lambda do, parts: in_processes(do, parts, 2), smallest=1)


def test_a_process_that_is_killed_is_said() -> None:
    def die(some: range) -> Part:
        if some.start:
            os.kill(os.getpid(), signal.SIGKILL)
        return Part([], [], [], [])

    with pytest.raises(ProcessError, match="was killed"):
        in_processes(die, [range(1), range(1, 2)], 2)
