"""The packet-path matrix: of every cell, the packet captured at each hop equals the model's prediction.

Service type x internal and external policy x affinity x endpoint place x client x protocol x family. Compared are, at
every interface on the way there and back, addresses and ports (so DNAT, masquerade and their undoing), the VXLAN
header, and that the packet is seen nowhere else; and that the client gets the answer, the refusal or the silence that
the model says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from kproxy.cluster.journey.network import POD
from kproxy.lab.cluster import ClusterView
from kproxy.lab.inspect.follow import Followed, follow_many
from kproxy.lab.inspect.targets import Target, service_targets
from kproxy.lab.model.hosts import LabModel
from kproxy.lab.spec import CLIENT, LabSpec
from tests.support.lab.labtools import deployment, lab_up, service

pytestmark = [pytest.mark.root, pytest.mark.slow]

PORTS = [(8080, "TCP"), (9000, "UDP"), (9100, "SCTP")]
EXPOSED = [(80, 8080, "TCP"), (90, 9000, "UDP"), (91, 9100, "SCTP")]
POLICIES = ("Cluster", "Local")
BATCH = 60
TIMEOUT = 0.3
"""Seconds until silence counts where the model says that nothing comes back."""
EVERY = 7
"""In nftables mode every seventh cell is asked: what is not the proxy's work was asked in iptables mode."""
EXTERNAL_IPS = {4: "192.0.2.77", 6: "2001:db8:77::77"}


def workloads() -> list[dict[str, Any]]:
    """Endpoints on node-1 only, and on node-1 and node-2; a client pod on node-1 and one on node-3."""
    return [
        deployment("one", 2, PORTS, node="node-1"),
        deployment("two-a", 1, PORTS, node="node-1", labels={"app": "two"}),
        deployment("two-b", 1, PORTS, node="node-2", labels={"app": "two"}),
        deployment("near", 1, [(7, "TCP")], node="node-1"),
        deployment("far", 1, [(7, "TCP")], node="node-3"),
    ]


def services(families: Sequence[int]) -> list[dict[str, Any]]:
    """Every combination as a LoadBalancer, which has addresses of all types, and the other types once each."""
    policy = {"ipFamilyPolicy": "PreferDualStack"}
    found = []
    for number, (place, internal, external, affinity) in enumerate(
        product(("one", "two"), POLICIES, POLICIES, ("None", "ClientIP"))
    ):
        found.append(
            service(
                f"m{number}-{place}",
                place,
                EXPOSED,
                type="LoadBalancer",
                internalTrafficPolicy=internal,
                externalTrafficPolicy=external,
                sessionAffinity=affinity,
                **policy,
            )
        )
    found.append(service("plain", "two", EXPOSED, **policy))
    found.append(service("nodeport", "two", EXPOSED, type="NodePort", **policy))
    ips = [EXTERNAL_IPS[family] for family in families]
    found.append(service("external", "two", EXPOSED, externalIPs=ips, **policy))
    found.append(service("empty", "nobody", EXPOSED, type="NodePort", **policy))
    return found


def ready(cluster: ClusterView) -> bool:
    by_name = {item.name: item for item in cluster.services}
    if len(by_name) < 21 or sum(pod.ready for pod in cluster.pods) < 6:
        return False
    return all(
        sum(entry.ready for entry in port.endpoints) >= 2 and (item.type != "LoadBalancer" or item.load_balancer_ips)
        for item in by_name.values()
        if item.name not in ("empty", "kubernetes")
        for port in item.ports
    )


def clients(cluster: ClusterView, place: str) -> dict[str, str]:
    """The host of each kind of client."""

    def pod(name: str) -> str:
        return f"{POD}{next(item.key for item in cluster.pods if item.name.startswith(name))}"

    return {
        "same pod": pod("one-" if place == "one" else "two-a-"),
        "same node": pod("near-"),
        "other node": pod("far-"),
        "node itself": "node-1",
        "node without endpoint": "node-3",
        "outside": CLIENT,
    }


def cells(cluster: ClusterView) -> Iterator[tuple[str, str, Target]]:
    """Kind of client, host, target: each address of each port of each Service, node ports at node-1 and node-3."""
    for item in cluster.services:
        if item.name == "kubernetes":
            continue
        for port in item.ports:
            for target in service_targets(cluster, item, port):
                if target.node == "node-2":
                    continue
                for kind, host in clients(cluster, "one" if item.name.endswith("one") else "two").items():
                    if target.kind == "localhost" and not host.startswith("node-"):
                        continue
                    yield kind, host, target


def run(
    spec: LabSpec, cluster: ClusterView, wanted: Sequence[tuple[str, str, Target]]
) -> tuple[Counter[str], list[str]]:
    """Follows every cell; counts by what happened, and what differed."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for start in range(0, len(wanted), BATCH):
        part = wanted[start : start + BATCH]
        model = LabModel(spec, cluster)
        model.nodes()
        found = follow_many(model, [(host, target) for _, host, target in part], timeout=TIMEOUT)
        for (kind, _, _), item in zip(part, found, strict=True):
            counts[item.answer.end] += 1
            counts["hops"] += len(item.compared.pairs)
            counts["VXLAN headers"] += sum(
                pair[1] is not None and pair[1].outer is not None for pair in item.compared.pairs
            )
            if not item.agrees or item.is_open:
                wrong.append(explain(kind, item))
    return counts, wrong


def explain(kind: str, item: Followed) -> str:
    """A cell that differs, with the hops that do."""
    lines = [f"{kind}: {item.client} -> {item.target.service} {item.target.label}: got {item.answer}"]
    lines += [f"  model: {each.end} at {each.at} {each.reason}" for each in item.journeys[:4]]
    lines += [
        f"  {'model' if wanted else 'seen '} {(wanted or seen)}"
        for wanted, seen in item.compared.pairs
        if wanted is None or seen is None
    ]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("matrix")


@pytest.mark.parametrize("every", [EVERY, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("mode", ["iptables", "nftables"])
def test_every_hop_of_every_cell(root: Path, mode: str, every: int, capsys: pytest.CaptureFixture[str]) -> None:
    with lab_up(root, "--nodes", "3", "--ip-family", "dual", "--mode", mode) as lab:
        families = lab.directory.running().spec.families
        lab.apply(*workloads(), *services(families))
        cluster = lab.settled(ready)
        for address in (EXTERNAL_IPS[item] for item in families):
            length = 32 if "." in address else 128
            node = next(item for item in cluster.node("node-1").addresses if (":" in item) == (":" in address))
            lab.run("exec", "fabric", "--", "ip", "route", "add", f"{address}/{length}", "via", node)
        wanted = list(cells(cluster))
        wanted = wanted[::every]
        # IntervalPartition that wait for silence wait together.
        wanted.sort(key=lambda cell: (cell[0], cell[2].kind, cell[2].node))
        counts, wrong = run(lab.directory.running().spec, cluster, wanted)
    with capsys.disabled():
        ends = ", ".join(f"{count} {end}" for end, count in sorted(counts.items()))
        print(f"\npacket paths, {mode}: {len(wanted)} cells ({ends}); {len(wrong)} differ")  # noqa: T201
    assert not wrong, "\n".join(wrong[:12])
    assert counts["answered"] > len(wanted) / 2
    assert counts["refused"]
    assert counts["lost"]
    assert counts["VXLAN headers"] > 1000
