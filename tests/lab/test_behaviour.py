"""What Services promise, with real packets: affinity over time, health-check node ports, source ranges,
draining, MTU and fragments, stale UDP, ICMP errors through NAT."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kproxy.cluster.journey.known import KnownNetwork
from kproxy.cluster.journey.network import POD, Network
from kproxy.cluster.journey.path import journeys
from kproxy.cluster.snapshot.cluster import read_snapshot
from kproxy.lab.capture.frames import Capture
from kproxy.lab.cluster import ClusterView
from kproxy.lab.health import health_status
from kproxy.lab.inspect.follow import follow
from kproxy.lab.inspect.probe import cells_of, predict, run_probe
from kproxy.lab.inspect.request import send_request
from kproxy.lab.inspect.targets import Target, find_target
from kproxy.lab.spec import CLIENT
from kproxy.linux.namespace import Namespace
from tests.support.cli import KPROXY
from tests.support.lab.labtools import Lab, deployment, lab_up, service
from tests.support.waiting import eventually

pytestmark = [pytest.mark.root, pytest.mark.slow]

PORTS = [(8080, "TCP"), (9000, "UDP")]
EXPOSED = [(80, 8080, "TCP"), (90, 9000, "UDP")]
_PMTU_DO = 2
_IP_MTU = 14
_IP_MTU_DISCOVER = 10


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab_up(tmp_path_factory.mktemp("labs"), "--nodes", "3") as found:
        found.apply(
            deployment("near", 1, PORTS, node="node-1"),
            deployment("pair-a", 1, PORTS, node="node-1", labels={"app": "pair"}),
            deployment("pair-b", 1, PORTS, node="node-2", labels={"app": "pair"}),
            deployment("away", 1, PORTS, node="node-2"),
            service("near", "near", EXPOSED, type="LoadBalancer", externalTrafficPolicy="Local"),
            service("pair", "pair", EXPOSED, type="NodePort"),
            service("sticky", "pair", EXPOSED, sessionAffinity="ClientIP",
                    sessionAffinityConfig={"clientIP": {"timeoutSeconds": 10}}),
            service("away", "away", EXPOSED, type="NodePort"),
            service("allowed", "pair", EXPOSED, type="LoadBalancer", loadBalancerSourceRanges=["203.0.113.0/24"]),
            service("barred", "pair", EXPOSED, type="LoadBalancer", loadBalancerSourceRanges=["198.18.0.0/15"]),
            service("nobody-listens", "away", [(90, 9999, "UDP")], type="NodePort"),
        )  # fmt: skip
        found.settled(ready)
        yield found


def ready(cluster: ClusterView) -> bool:
    services = [item for item in cluster.services if item.name != "kubernetes"]
    return len(services) == 7 and all(
        any(entry.ready for entry in port.endpoints) and (item.type != "LoadBalancer" or item.load_balancer_ips)
        for item in services
        for port in item.ports
    )


def pod_of(cluster: ClusterView, name: str) -> str:
    return f"{POD}{next(item.key for item in cluster.pods if item.name.startswith(name) and not item.terminating)}"


def test_affinity_holds_and_ends_with_its_time(lab: Lab) -> None:
    model = lab.model()
    target = find_target(model.cluster, "svc/sticky")
    client = pod_of(model.cluster, "near")
    assert len({item.pod for item in predict(model, client, target)}) == 2
    first = send_request(model.netns(client), target.address, target.port, "TCP")
    for _ in range(6):
        found = follow(lab.model(), client, target)
        assert found.agrees
        assert [item.pod for item in found.journeys] == [first.pod], "the model knows the lists of -m recent"
        assert found.answer.pod == first.pod

    def forgotten() -> bool:
        return len({item.pod for item in predict(lab.model(), client, target)}) == 2

    eventually(forgotten)


def test_local_policy_keeps_the_source_and_says_where_endpoints_are(lab: Lab) -> None:
    model = lab.model()
    near = model.cluster.service("near")
    found = follow(model, CLIENT, find_target(model.cluster, "lb/near"))
    assert found.agrees
    assert (found.answer.node, found.answer.source_address) == ("node-1", "203.0.113.2")
    with Namespace.named(model.netns(CLIENT)) as outside:
        statuses = [
            outside.call(health_status, node.addresses[0], near.health_check_node_port) for node in model.cluster.nodes
        ]
    assert statuses == [200, 503, 503]
    assert follow(model, CLIENT, find_target(model.cluster, "nodeport/near@node-2"), timeout=0.5).answer.end == "lost"


def test_the_load_balancer_follows_the_endpoints(lab: Lab) -> None:
    lab.apply(deployment("roam", 1, PORTS, node="node-2"))
    lab.apply(service("roam", "roam", EXPOSED, type="LoadBalancer", externalTrafficPolicy="Local"))
    lab.settled(lambda found: any(i.ready for i in found.service("roam").ports[0].endpoints))
    netns, address = lab.model().netns(CLIENT), lab.cluster().service("roam").load_balancer_ips[0]
    deadline = time.monotonic() + 60
    while send_request(netns, address, 80, "TCP", timeout=0.3).node != "node-2":
        assert time.monotonic() < deadline
    lab.apply(deployment("roam", 1, PORTS, node="node-3"))
    while send_request(netns, address, 80, "TCP", timeout=0.3).node != "node-3":
        assert time.monotonic() < deadline + 10
    lab.kubectl("delete", "deployment/roam", "service/roam")


def test_source_ranges(lab: Lab) -> None:
    model = lab.model()
    allowed = follow(model, CLIENT, find_target(model.cluster, "lb/allowed"))
    barred = follow(model, CLIENT, find_target(model.cluster, "lb/barred"), timeout=0.5)
    assert (allowed.answer.end, barred.answer.end) == ("answered", "lost")
    assert allowed.agrees
    assert barred.agrees
    assert "KUBE-PROXY-FIREWALL" in " ".join(
        step.text for hop in barred.compared.journey.there for step in hop.outcome.steps
    )


def test_terminating_pods_serve_until_they_are_done(lab: Lab) -> None:
    lab.apply(deployment("drain", 1, PORTS, pre_stop=3), service("drain", "drain", EXPOSED))
    lab.settled(lambda found: any(i.ready for i in found.service("drain").ports[0].endpoints))
    netns, address = lab.model().netns("node-3"), lab.cluster().service("drain").cluster_ips[0]
    lab.kubectl("delete", "deployment", "drain", "--wait=false")
    cluster = lab.settled(lambda found: all(i.terminating for i in found.service("drain").ports[0].endpoints))
    entry = cluster.service("drain").ports[0].endpoints[0]
    assert (entry.ready, entry.serving, entry.terminating) == (False, True, True)
    model = lab.model()
    found = follow(model, "node-3", find_target(model.cluster, "svc/drain"))
    assert found.answer.end == "answered"
    assert found.agrees
    deadline = time.monotonic() + 60
    while send_request(netns, address, 80, "TCP", timeout=0.5).end != "refused":
        assert time.monotonic() < deadline
    lab.kubectl("delete", "service", "drain")


def test_big_datagrams_are_cut_and_put_together_again(lab: Lab) -> None:
    model = lab.model()
    client, other = pod_of(model.cluster, "near"), pod_of(model.cluster, "away")
    address = next(pod for pod in model.cluster.pods if f"{POD}{pod.key}" == other).addresses[0]
    data = b"x" * 4000
    with Capture({"node-1": model.netns("node-1")}) as capture:
        answer = send_request(model.netns(client), address, 9000, "UDP", data=data)
        capture.settle()
    assert answer.data.encode() == data
    outer = [frame for frame in capture.frames if frame.device == "eth0" and frame.outgoing and b"xxxx" in frame.data]
    assert len(outer) == 3
    most = max(len(frame.data) for frame in outer) - 14
    # Fragments are cut at multiples of 8 octets.
    assert 1500 - 8 < most <= 1500, "VXLAN fills what the fabric carries, and no more"
    assert (model.host(client).links or {})["eth0"].mtu == 1450


def test_the_sender_of_a_packet_too_big_for_the_tunnel_learns_it_through_nat(lab: Lab) -> None:
    """The client may send 1500 octets, the tunnel takes 1450: the node says so, about the packet as the client sent
    it."""
    model = lab.model()
    port = model.cluster.service("away").ports[1].node_port

    def send() -> int:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PMTU_DO)
            client.connect(("172.30.0.11", port))
            client.send(b"y" * 1460)
            deadline = time.monotonic() + 60
            while client.getsockopt(socket.IPPROTO_IP, _IP_MTU) == 1500 and time.monotonic() < deadline:
                time.sleep(0.02)
            return int(client.getsockopt(socket.IPPROTO_IP, _IP_MTU))

    with Namespace.named(model.netns(CLIENT)) as outside:
        assert outside.call(send) == 1450


def test_icmp_errors_come_back_translated(lab: Lab) -> None:
    """Nobody listens on the pod's port; its ICMP error crosses two translations and reaches the client's socket."""
    model = lab.model()
    found = follow(model, CLIENT, find_target(model.cluster, "nodeport/nobody-listens@node-1"))
    assert found.answer.end == "refused"
    assert found.agrees
    last = found.compared.pairs[-1][1]
    assert last is not None
    assert (last.host, last.kind, last.src) == (CLIENT, "icmp 3/3", "172.30.0.11")


def test_udp_of_one_port_survives_the_last_endpoint(lab: Lab) -> None:
    """A client that keeps its source port gets the new pod: its conntrack entry went with the old one."""
    lab.apply(deployment("stale", 1, PORTS, node="node-2"), service("stale", "stale", EXPOSED))
    lab.settled(lambda found: any(i.ready for i in found.service("stale").ports[0].endpoints))
    model = lab.model()
    netns, address = model.netns(pod_of(model.cluster, "near")), model.cluster.service("stale").cluster_ips[0]

    def put() -> str:
        answer = send_request(netns, address, 90, "UDP", source_port=5353, timeout=0.4)
        return answer.pod or answer.end

    first = put()
    assert first.startswith("default/stale")
    lab.kubectl("scale", "deployment", "stale", "--replicas=0")
    deadline = time.monotonic() + 60
    while put() != "refused":
        assert time.monotonic() < deadline
    lab.kubectl("scale", "deployment", "stale", "--replicas=1")
    while (now := put()) in ("refused", "lost"):
        assert time.monotonic() < deadline + 10
    assert now.startswith("default/stale")
    assert now != first
    lab.kubectl("delete", "deployment/stale", "service/stale")


def test_host_ports_of_pods(lab: Lab) -> None:
    """The portmap capability: the kubelet passes it on, the plugin does it."""
    body = deployment("hosted", 1, node="node-3")
    body["spec"]["template"]["spec"]["containers"][0]["ports"][0]["hostPort"] = 7070
    lab.apply(body)
    lab.kubectl("rollout", "status", "deployment/hosted", "--timeout=120s")
    answer = send_request(lab.model().netns(CLIENT), "172.30.0.13", 7070, "TCP")
    assert answer.pod.startswith("default/hosted")
    lab.kubectl("delete", "deployment", "hosted")


def test_pods_on_the_host_network_share_their_node(lab: Lab) -> None:
    body = deployment("shared", 1, [(7171, "TCP")], node="node-2")
    body["spec"]["template"]["spec"]["hostNetwork"] = True
    lab.apply(body, service("shared", "shared", [(80, 7171, "TCP")]))
    cluster = lab.settled(lambda found: any(i.ready for i in found.service("shared").ports[0].endpoints))
    assert cluster.service("shared").ports[0].endpoints[0].address == "172.30.0.12"
    model = lab.model()
    found = follow(model, pod_of(cluster, "near"), find_target(cluster, "svc/shared"))
    assert found.answer.node == "node-2"
    assert found.agrees
    pods = json.loads(lab.kubectl("get", "pods", "-l", "app=shared", "-o", "json"))["items"]
    assert pods[0]["status"]["hostIP"] == pods[0]["status"]["podIP"]
    lab.kubectl("delete", "deployment/shared", "service/shared")


def test_a_snapshot_of_the_lab_answers_as_the_lab_does(lab: Lab, tmp_path: Path) -> None:
    path = tmp_path / "lab.tar.gz"
    done = subprocess.run(
        [*KPROXY, "collect", "--lab", lab.name, "-o", str(path)], env=lab.environment, capture_output=True, text=True,
        timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    model, known = lab.model(), KnownNetwork(read_snapshot(path))

    def ways(network: Network, client: str, target: Target) -> list[tuple[object, ...]]:
        found = journeys(network, client, target.destination, target.protocol.lower(), source_port=20000)
        return sorted((item.probability, item.end, item.at, item.source, item.target) for item in found)

    # A snapshot does not tell on which ports a pod's processes listen.
    services = [item for item in model.cluster.services if item.name not in ("nobody-listens", "kubernetes")]
    cells = list(cells_of(model.cluster, services))
    assert len(cells) > 50
    for client, target in cells:
        assert ways(known, client.host, target) == ways(model, client.host, target), f"{client.host} {target.label}"
    assert not known.notes


def test_rules_that_change_after_the_models_look(lab: Lab) -> None:
    """What changes between the model's look and the packet is no difference between model and kernel."""
    lab.apply(service("changed", "near"))
    lab.settled(lambda found: any(each.ready for each in found.service("changed").ports[0].endpoints))
    model = lab.model()
    target = find_target(model.cluster, "svc/changed")
    cells = list(cells_of(model.cluster, [model.cluster.service("changed")], ["node-1"]))
    assert follow(model, "node-1", target).agrees
    lab.kubectl("patch", "service", "changed", "-p", '{"spec": {"selector": {"app": "none"}}}')
    lab.settled(lambda found: not found.service("changed").ports[0].endpoints)
    found = follow(model, "node-1", target)
    assert (found.answer.end, found.agrees) == ("refused", True)
    assert all(cell.agrees for cell in run_probe(model, cells, count=2, timeout=1.0))
    lab.kubectl("delete", "service", "changed")
