"""A lab from beginning to end, as its user has it: up, kubectl, status, exec, probe, trace, capture, view, faults,
down."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kproxy.cluster.journey.network import POD
from kproxy.explorer.sources.live import LabSource
from kproxy.explorer.state import Explorer
from kproxy.lab.inspect.request import send_request
from kproxy.linux.namespace import Namespace
from tests.support.explorer.client import serving
from tests.support.lab.labtools import Lab, deployment, lab_up, service

pytestmark = [pytest.mark.root, pytest.mark.slow]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    root = tmp_path_factory.mktemp("lab")
    manifests = root / "manifests"
    manifests.mkdir()
    ports = [(8080, "TCP"), (9000, "UDP"), (9100, "SCTP")]
    (manifests / "web.json").write_text(json.dumps(deployment("web", 4, ports)))
    exposed = service("web", "web", [(80, 8080, "TCP"), (90, 9000, "UDP"), (91, 9100, "SCTP")], type="LoadBalancer")
    (manifests / "service.json").write_text(json.dumps(exposed))
    with lab_up(root / "labs", "-f", str(manifests), "--nodes", "3") as found:
        yield found


def test_nodes_and_pods_are_there_and_spread(lab: Lab) -> None:
    status = lab.json("status")
    assert [node["name"] for node in status["nodes"]] == ["node-1", "node-2", "node-3"]
    assert all(node["ready"] and set(node["processes"]) == {"kubelet", "overlay", "proxy"} for node in status["nodes"])
    assert sorted(pod["node"] for pod in status["pods"])[:3] != ["node-1"] * 3
    assert {pod["node"] for pod in status["pods"]} == {"node-1", "node-2", "node-3"}
    assert all(pod["ready"] for pod in status["pods"])
    text = lab.run("status")
    assert "└── node-3  172.30.0.13" in text
    assert "default/web  " in text
    assert "80:" in text


def test_kubectl_sees_an_ordinary_cluster(lab: Lab) -> None:
    assert lab.kubectl("get", "nodes", "--no-headers").count(" Ready ") == 3
    assert lab.kubectl("rollout", "status", "deployment/web", "--timeout=120s").endswith("rolled out\n")
    line = lab.run("env").strip()
    assert line == f"export KUBECONFIG={lab.directory.kubeconfig}"
    leases = json.loads(lab.kubectl("get", "leases", "-n", "kube-node-lease", "-o", "json"))
    assert {item["metadata"]["name"] for item in leases["items"]} == {"node-1", "node-2", "node-3"}


def test_create_scale_expose_and_delete(lab: Lab) -> None:
    lab.kubectl("create", "deployment", "shop", "--image=echo", "--port=8080", "--replicas=2")
    lab.kubectl("expose", "deployment", "shop", "--port=80", "--target-port=8080", "--type=NodePort")
    lab.kubectl("rollout", "status", "deployment/shop", "--timeout=120s")
    cluster = lab.settled(lambda found: len(found.service("shop").ports[0].endpoints) == 2)
    shop = cluster.service("shop")
    answers = [
        send_request(lab.model().netns("client"), "172.30.0.12", shop.ports[0].node_port, "TCP") for _ in range(8)
    ]
    assert {answer.pod for answer in answers} <= {pod.key for pod in cluster.pods if "shop" in pod.name}
    lab.kubectl("scale", "deployment", "shop", "--replicas=4")
    lab.settled(lambda found: sum(item.ready for item in found.service("shop").ports[0].endpoints) == 4)
    lab.kubectl("delete", "service", "shop")
    lab.kubectl("delete", "deployment", "shop")
    # Not `kubectl wait --for=delete -l`: kubectl 1.20 takes it for an error that the last one is gone already.
    pods = len(lab.settled(lambda found: not any(pod.name.startswith("shop-") for pod in found.pods)).pods)
    assert len([name for name in lab.namespaces() if "-p-" in name]) == pods


def test_a_rolling_update_keeps_the_service_answering(lab: Lab) -> None:
    lab.apply(deployment("roll", 3, pre_stop=1), service("roll", "roll"))
    lab.settled(lambda found: sum(item.ready for item in found.service("roll").ports[0].endpoints) == 3)
    address = lab.cluster().service("roll").cluster_ips[0]
    lab.kubectl("set", "image", "deployment/roll", "echo=echo:v2")
    netns, ends = lab.model().netns("node-1"), set()
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        ends.add(send_request(netns, address, 80, "TCP").end)
        status = json.loads(lab.kubectl("get", "deployment", "roll", "-o", "json"))["status"]
        if (status.get("updatedReplicas"), status.get("replicas"), status.get("availableReplicas")) == (3, 3, 3):
            break
    assert ends == {"answered"}
    assert lab.kubectl("rollout", "history", "deployment/roll").split()[-4:-2] == ["1", "<none>"]
    lab.kubectl("delete", "deployment/roll", "service/roll")


def test_exec_is_inside(lab: Lab) -> None:
    assert "172.30.0.12/24" in lab.run("exec", "node-2", "--", "ip", "-br", "address")
    assert "203.0.113.2/24" in lab.run("exec", "client", "--", "ip", "-br", "address")
    pod = next(pod for pod in lab.cluster().pods if pod.name.startswith("web"))
    assert pod.addresses[0] in lab.run("exec", pod.name, "--", "ip", "-br", "address")
    assert lab.call("exec", "node-1", "--", "sh", "-c", "exit 7").returncode == 7


def test_every_cell_of_the_probe_agrees_with_the_model(lab: Lab) -> None:
    lab.settled(lambda found: sum(item.ready for item in found.service("web").ports[0].endpoints) == 4)
    cells = lab.json("probe", "--count", "4")["cells"]
    kinds = {cell["client"]["kind"] for cell in cells if cell["target"]["service"] == "default/web"}
    assert kinds == {"outside", "same pod", "same node", "other node", "node itself"}
    assert {cell["target"]["protocol"] for cell in cells} == {"TCP", "UDP", "SCTP"}
    assert all(cell["agrees"] and not cell["open"] for cell in cells)
    assert sum(any(item["end"] == "answered" for item in cell["seen"]) for cell in cells) > 30
    text = lab.run("probe", "--service", "web", "--from", "client", "--count", "1")
    assert "differ" in text.splitlines()[-1]


def test_trace_shows_model_and_capture_side_by_side(lab: Lab, tmp_path: Path) -> None:
    pcap = tmp_path / "trace.pcap"
    found = lab.json("trace", "--from", "client", "--to", "nodeport/web:udp90@node-2", "-w", str(pcap))
    assert found["agrees"]
    assert found["hops"][0]["host"] == "client"
    assert all(hop["model"] and hop["captured"] for hop in found["hops"])
    from scapy.utils import rdpcap

    assert len(rdpcap(str(pcap))) >= len(found["hops"])
    text = lab.run("trace", "--from", "node-1", "--to", "svc/web:tcp80", "--rules")
    assert "KUBE-SVC" in text
    assert "hops agree" in text.splitlines()[-1]


def test_capture_writes_what_passes(lab: Lab, tmp_path: Path) -> None:
    path = tmp_path / "all.pcap"
    running = subprocess.Popen(
        lab.command("capture", "-w", str(path)), env=lab.environment, stderr=subprocess.PIPE, text=True
    )
    assert running.stderr is not None
    assert "capturing on" in running.stderr.readline()
    pod = next(pod for pod in lab.cluster().pods if pod.name.startswith("web"))
    send_request(lab.model().netns("client"), pod.addresses[0], 9000, "UDP", data=b"caught-me")
    time.sleep(0.2)
    running.send_signal(signal.SIGINT)
    assert running.wait(60) == 0
    from scapy.utils import rdpcap

    assert sum(b"caught-me" in bytes(packet) for packet in rdpcap(str(path))) >= 6


def test_a_crashed_pod_gets_no_traffic_until_it_is_healed(lab: Lab) -> None:
    pod = next(pod for pod in lab.cluster().pods if pod.name.startswith("web"))
    lab.run("fail", "pod", pod.name)
    lab.settled(lambda found: sum(item.ready for item in found.service("web").ports[0].endpoints) == 3)
    address, netns = lab.cluster().service("web").cluster_ips[0], lab.model().netns("node-1")
    assert pod.key not in {send_request(netns, address, 80, "TCP").pod for _ in range(12)}
    assert send_request(netns, pod.addresses[0], 8080, "TCP").end == "refused"
    lab.run("heal", "pod", pod.name)
    lab.settled(lambda found: sum(item.ready for item in found.service("web").ports[0].endpoints) == 4)


def test_what_pods_send_outside_is_masqueraded(lab: Lab) -> None:
    """As with flannel's manifests; the model of the node knows it too."""
    pod = next(pod for pod in lab.cluster().pods if pod.node == "node-2")
    with (
        Namespace.named(lab.model().netns("client")) as client,
        Namespace.named(lab.model().netns(f"{POD}{pod.key}")) as inside,
        client.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as there,
        inside.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as here,
    ):
        there.settimeout(20)
        here.settimeout(20)
        there.bind(("203.0.113.2", 4000))
        here.sendto(b"question", ("203.0.113.2", 4000))
        data, sender = there.recvfrom(100)
        assert sender[0] == "172.30.0.12"
        there.sendto(data, sender)
        assert here.recv(100) == data
    lab.run("trace", "--from", pod.key, "--to", "203.0.113.2:4001/udp")


def test_rules_outlive_the_api_server(lab: Lab) -> None:
    lab.run("fail", "apiserver")
    assert lab.call("fail", "apiserver").returncode == 1
    assert not lab.json("status")["apiRunning"]
    done = lab.call("probe")
    assert (done.returncode, done.stdout) == (1, "")
    assert "heal apiserver" in done.stderr
    lab.run("heal", "apiserver")
    assert len(lab.json("status")["pods"]) == 4


def test_what_needs_the_api_server_says_so_and_changes_nothing(lab: Lab) -> None:
    lab.run("fail", "apiserver")
    try:
        for arguments in (
            ("node", "add"),
            ("node", "remove", "node-2"),
            ("trace", "--to", "svc/web"),
            ("fail", "pod", "web"),
            ("exec", "web", "--", "true"),
        ):
            done = lab.call(*arguments)
            assert (done.returncode, done.stdout) == (1, ""), arguments
            assert "heal apiserver" in done.stderr
            nodes = lab.json("status")["nodes"]
            assert [node["name"] for node in nodes] == ["node-1", "node-2", "node-3"], arguments
            assert all(len(node["processes"]) == 3 for node in nodes), arguments
    finally:
        lab.run("heal", "apiserver")


def test_a_node_joins_takes_pods_and_leaves(lab: Lab) -> None:
    lab.run("node", "add")
    try:
        lab.apply(deployment("guest", 1, node="node-4"), service("guest", "guest"))
        cluster = lab.settled(lambda found: sum(i.ready for i in found.service("guest").ports[0].endpoints) == 1)
        address = cluster.service("guest").cluster_ips[0]
        assert send_request(lab.model().netns("node-1"), address, 80, "TCP").node == "node-4"
    finally:
        lab.run("node", "remove", "node-4")
    lab.kubectl("delete", "deployment/guest", "service/guest")
    cluster = lab.settled(lambda found: not any(pod.name.startswith("guest") for pod in found.pods))
    assert [node.name for node in cluster.nodes] == ["node-1", "node-2", "node-3"]
    assert "node-4" not in lab.run("exec", "fabric", "--", "ip", "link")
    assert "10.244.4.0" not in lab.run("exec", "node-1", "--", "ip", "route")


def test_a_second_up_says_that_it_is_up(lab: Lab) -> None:
    done = lab.call("up")
    assert done.returncode == 1
    assert "is up already" in done.stderr
    assert len(lab.json("status")["nodes"]) == 3


def test_explore_shows_a_change_a_fault_and_a_capture(lab: Lab) -> None:
    lab.settled(lambda found: any(item.ready for item in found.service("web").ports[0].endpoints))
    source = LabSource(lab.directory, lab.directory.running())
    with serving(Explorer(source)) as page, page.events() as events:
        assert next(events)[0] == "revision"
        found = page.get("api/map")
        assert [node["name"] for node in found["nodes"] if node["isNode"]] == ["node-1", "node-2", "node-3"]
        assert found["outside"] == []  # the lab's own client is
        lab.kubectl("annotate", "service", "web", "seen=yes", "--overwrite")
        assert next(data for _, data in events if "Service default/web" in data["changed"])["revision"] > 1
        followed = page.post("api/lab/follow", {"from": "node/client", "to": "nodeport/web:80@node-1"})
        assert followed["agrees"], {name: value for name, value in followed.items() if name != "ask"}
        assert followed["ask"]["journeys"][followed["journey"]]["end"] == "answered"
        assert {row["same"] for row in followed["rows"]} == {True}
        counted = page.get("api/counters")["node-1"]
        assert any(packets for packets, _, _ in counted.values())
        assert (
            page.post("api/lab/fail", {"kind": "link", "name": "node/node-2"})["done"] == "the link of node-2 is down"
        )
        try:
            links = {node["name"]: node["linkUp"] for node in page.get("api/map")["nodes"]}
            assert (links["node-1"], links["node-2"]) == (True, False)
            ask = page.post("api/ask", {"from": "outside", "to": "nodeport/default/web:80@node-2"})
            assert {way["end"] for way in ask["journeys"]} <= {"lost", "unreachable"}
        finally:
            page.post("api/lab/heal", {"kind": "link", "name": "node-2"})
        assert all(node["linkUp"] for node in page.get("api/map")["nodes"])
        assert page.ask("POST", "api/lab/fail", {"kind": "node", "name": "node-9"}).status == 400
    lab.settled(lambda found: all(node.ready for node in found.nodes))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("exec", "nobody", "--", "true"), "no pod 'nobody'"),
        (("trace", "--to", "svc/none"), "no Service 'none'"),
        (("trace", "--to", "nonsense"), "IP:PORT expected"),
        (("trace", "--to", "svc/web:7"), "no such port '7'"),
        (("trace", "--to", "externalip/web"), "has no externalIP"),
        (("fail", "node", "node-9"), "no node 'node-9'"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(lab: Lab, arguments: tuple[str, ...], message: str) -> None:
    done = lab.call(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_node_that_is_off(lab: Lab) -> None:
    """Last, because it takes the longest to mend."""
    lab.run("fail", "node", "node-3")
    cluster = lab.settled(lambda found: not found.node("node-3").ready)
    gone = {pod.key for pod in cluster.pods if pod.node == "node-3"}
    assert gone
    cluster = lab.settled(
        lambda found: all(not i.ready for i in found.service("web").ports[0].endpoints if i.pod in gone)
    )
    cells = lab.json("probe", "--service", "web", "--count", "3", "--from", "node-1", "--from", "client")["cells"]
    assert all(cell["agrees"] for cell in cells)
    assert not {seen["pod"] for cell in cells for seen in cell["seen"]} & gone
    lab.run("heal", "node", "node-3")
    lab.settled(lambda found: sum(item.ready for item in found.service("web").ports[0].endpoints) == 4)
