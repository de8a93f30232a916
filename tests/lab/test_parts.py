"""The parts of a lab that need no lab: scheduling, ranking, statuses, lists of `recent`, files, targets."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from kproxy.informer import selector_matches
from kproxy.lab.capture.dissect import BACK, THERE, Flow, observed_packets, read_frames
from kproxy.lab.capture.frames import Frame, pcapng
from kproxy.lab.cluster import ClusterView, EndpointView, NodeView, PodPort, PodView, ServicePortView, ServiceView
from kproxy.lab.controllers.daemonset import outdated
from kproxy.lab.controllers.deployment import same_template
from kproxy.lab.controllers.nodes import eviction_seconds
from kproxy.lab.controllers.replicaset import rank
from kproxy.lab.controllers.scheduler import choose_node
from kproxy.lab.controllers.template import template_hash
from kproxy.lab.errors import LabError, LabInputError
from kproxy.lab.inspect.targets import client_host, find_target
from kproxy.lab.kubelet.kubelet import DEFAULT_PORTS, pod_ports
from kproxy.lab.kubelet.probes import Count, Probe, Target, read_probe, run_probe
from kproxy.lab.kubelet.status import pod_status, same_status
from kproxy.lab.lifecycle.objects import read_manifests
from kproxy.lab.model.recent import parse_list
from kproxy.lab.spec import LabSpec
from kproxy.lab.state import LabDirectory, LabRecord, lab_root, list_labs


def node(name: str, *, ready: bool = True, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    condition = {"type": "Ready", "status": "True" if ready else "Unknown"}
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": spec, "status": {"conditions": [condition]}}


def pod(owner: str = "", **spec: Any) -> dict[str, Any]:
    references = [{"uid": owner, "controller": True, "kind": "ReplicaSet", "name": owner}] if owner else []
    return {"metadata": {"name": "p", "namespace": "default", "uid": "u", "ownerReferences": references}, "spec": spec}


def test_pods_of_one_owner_are_spread_before_nodes_are_filled() -> None:
    nodes = [node("node-1"), node("node-2"), node("node-10")]
    assert choose_node(pod("a"), nodes, {}) == "node-1"
    assert choose_node(pod("a"), nodes, {("a", "node-1"): 1, ("", "node-1"): 1, ("", "node-2"): 5}) == "node-10"
    assert choose_node(pod("a"), nodes, {("", "node-1"): 2, ("", "node-2"): 1, ("", "node-10"): 1}) == "node-2"


def test_nodes_that_will_not_do() -> None:
    nodes = [node("node-1", ready=False), node("node-2", unschedulable=True), node("node-3", labels={"disk": "ssd"})]
    assert choose_node(pod("a"), nodes, {}) == "node-3"
    assert choose_node(pod("a", nodeSelector={"disk": "ssd"}), nodes, {}) == "node-3"
    assert choose_node(pod("a", nodeSelector={"disk": "hdd"}), nodes, {}) is None


def test_surplus_pods_go_in_the_order_of_their_worth() -> None:
    def made(name: str, node_name: str, phase: str, ready: bool, created: str) -> dict[str, Any]:
        status = {"phase": phase, "conditions": [{"type": "Ready", "status": str(ready)}]}
        meta = {"name": name, "creationTimestamp": created}
        return {"metadata": meta, "spec": {"nodeName": node_name}, "status": status}

    pods = [
        made("old", "n", "Running", True, "2026-01-01T00:00:00Z"),
        made("young", "n", "Running", True, "2026-01-02T00:00:00Z"),
        made("unready", "n", "Running", False, "2025-01-01T00:00:00Z"),
        made("pending", "n", "Pending", False, "2025-01-01T00:00:00Z"),
        made("unassigned", "", "Pending", False, "2025-01-01T00:00:00Z"),
    ]
    ordered = [item["metadata"]["name"] for item in sorted(pods, key=rank)]
    assert ordered == ["unassigned", "pending", "unready", "young", "old"]


def test_templates_are_compared_without_their_hash() -> None:
    one = {"metadata": {"labels": {"app": "a"}, "creationTimestamp": None}, "spec": {"containers": []}}
    other = {"metadata": {"labels": {"app": "a", "pod-template-hash": "x"}}, "spec": {"containers": []}}
    assert same_template(one, other)
    assert not same_template(one, {**other, "spec": {"containers": [1]}})
    assert template_hash(one) == template_hash(dict(reversed(list(one.items()))))


def test_ports_that_a_pod_serves() -> None:
    assert pod_ports(pod(containers=[{"name": "a"}])) == DEFAULT_PORTS
    found = pod_ports(pod(containers=[{"ports": [{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53}]}]))
    assert [(port.number, port.protocol) for port in found] == [(53, "UDP"), (53, "TCP")]


def test_a_status_is_written_again_only_if_it_says_something_else() -> None:
    subject = pod(containers=[{"name": "echo", "image": "echo"}])

    def status(**changes: Any) -> dict[str, Any]:
        values: dict[str, Any] = {
            "hosts": ["172.30.0.11"], "addresses": ["10.244.1.2"], "running": True, "probed": {}, "started": "t",
            "restarts": 0, "problem": "", **changes,
        }  # fmt: skip
        return pod_status(subject, **values)

    assert same_status(status(), status())
    assert not same_status(status(), status(probed={"echo": False}))
    assert same_status(status(), status(probed={"echo": True}))
    assert not same_status(status(), status(running=False))
    assert status()["podIPs"] == [{"ip": "10.244.1.2"}]
    waiting = status(addresses=[], running=False, started="", problem="no room")
    assert waiting["phase"] == "Pending"
    assert waiting["containerStatuses"][0]["state"]["waiting"]["message"] == "no room"


def test_lists_of_recent() -> None:
    text = (
        "src=10.0.0.1 ttl: 64 last_seen: 4294967000 oldest_pkt: 2 4294966000, 4294967000\n"
        "src=fd00:0000:0000:0000:0000:0000:0000:0001 ttl: 64 last_seen: 500 oldest_pkt: 1 500\n"
    )
    assert parse_list(text, 704, 100) == {0x0A000001: (10, 20), 0xFD << 120 | 1: (2,)}


def test_manifests_are_read_with_every_problem_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "kind: List\napiVersion: v1\nitems:\n- {kind: Pod, apiVersion: v1, metadata: {name: p}}\n- {kind: Pod}\n---\n"
        "{kind: Service, apiVersion: v1, metadata: {name: s}}\n"
    )
    (tmp_path / "b.yaml").write_text("a: [")
    with pytest.raises(LabInputError) as raised:
        read_manifests([str(tmp_path), "gone.yaml"])
    lines = str(raised.value).splitlines()
    assert "gone.yaml: No such file" in lines[0]
    assert "a.yaml, document 1, items[1]: an object with apiVersion and kind expected" in lines[1]
    assert "b.yaml: " in lines[2]
    (tmp_path / "b.yaml").unlink()
    text = (tmp_path / "a.yaml").read_text().replace("- {kind: Pod}\n", "")
    (tmp_path / "a.yaml").write_text(text)
    assert [item.body["kind"] for item in read_manifests([str(tmp_path)])] == ["Service", "Pod"]


def test_the_directory_of_a_lab(tmp_path: Path) -> None:
    lab = LabDirectory("one", tmp_path)
    with pytest.raises(LabInputError, match="there is no lab 'one'"):
        lab.running()
    lab.write(LabRecord(LabSpec("one"), "starting"))
    with pytest.raises(LabError, match="it was left starting"):
        lab.running()
    with lab.locked(), pytest.raises(LabError, match="another command"), LabDirectory("one", tmp_path).locked():
        pass
    lab.write(LabRecord(LabSpec("one", 2, "dual", "legacy"), "up", 7, (1, 2)))
    assert lab.running().spec.families == (4, 6)
    assert [item.name for item in list_labs(tmp_path)] == ["one"]
    (lab.path / "lab.json").write_text('{"spec"')
    assert lab.record() is None
    lab.remove()
    assert list_labs(tmp_path) == []


CLUSTER = ClusterView(
    "lab", "dual", "nft", "vxlan", "kubeconfig", "https://127.0.0.1:1", True, ("203.0.113.2",),
    (NodeView("node-1", "ns", ("172.30.0.11", "fd00::b"), ("10.244.1.0/24",), True),),
    tuple(
        PodView(
            "default", name, name, "node-1", (f"10.244.1.{number}",), "Running", True, False, False, True, False,
            "n", (PodPort(8080, "TCP"),),
        )
        for number, name in enumerate(("web-a", "web-b", "db-0"), 2)
    ),
    (
        ServiceView(
            "default", "web", "NodePort", ("10.96.0.9", "fd00:10:96::9"), (), (),
            ports=(
                ServicePortView(
                    "http", "TCP", 80, "8080", 30080,
                    (EndpointView("10.244.1.2", 8080, "default/web-a", "node-1", True, True, False),),
                ),
                ServicePortView("dns", "UDP", 53, "53", 30053, ()),
            ),
        ),
    ),
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "family", "wanted"),
    [
        ("svc/web", None, ("clusterIP", "10.96.0.9:80", "TCP")),
        ("svc/default/web:dns", 6, ("clusterIP", "[fd00:10:96::9]:53", "UDP")),
        ("svc/web/udp", None, ("clusterIP", "10.96.0.9:53", "UDP")),
        ("nodeport/web:http@node-1", None, ("nodePort", "172.30.0.11:30080", "TCP")),
        ("nodeport/web", 6, ("nodePort", "[fd00::b]:30080", "TCP")),
        ("localhost/web", None, ("localhost", "127.0.0.1:30080", "TCP")),
        ("pod/db-0", None, ("pod", "10.244.1.4:8080", "TCP")),
        ("pod/db-0:9/udp", None, ("pod", "10.244.1.4:9", "UDP")),
        ("[::1]:53/udp", None, ("address", "[::1]:53", "UDP")),
    ],
)
def test_targets(text: str, family: int | None, wanted: tuple[str, str, str]) -> None:
    found = find_target(CLUSTER, text, family)
    assert (found.kind, found.destination, found.protocol) == wanted


@pytest.mark.parametrize(
    "text", ["svc/none", "svc/web:9", "lb/web", "pod/web", "pod/db-0:x", "10.0.0.1", "svc", "nodeport/web@node-7"]
)
def test_targets_that_are_none(text: str) -> None:
    with pytest.raises(LabInputError):
        find_target(CLUSTER, text)


def test_clients() -> None:
    assert client_host(CLUSTER, "client") == "client"
    assert client_host(CLUSTER, "node-1") == "node-1"
    assert client_host(CLUSTER, "db") == "pod/default/db-0"
    with pytest.raises(LabInputError, match="may mean web-a, web-b"):
        client_host(CLUSTER, "web")


def test_captures_are_pcapng_that_others_read(tmp_path: Path) -> None:
    from scapy.utils import rdpcap

    frames = [Frame(1_700_000_000_123_456_789 + n, f"node-{n % 2}", "eth0", n == 1, bytes(60 + n)) for n in range(3)]
    path = tmp_path / "a.pcap"
    path.write_bytes(pcapng(frames))
    found = rdpcap(str(path))
    assert [bytes(item) for item in found] == [frame.data for frame in frames]
    assert [item.sniffed_on for item in found] == ["node-0:eth0", "node-1:eth0", "node-0:eth0"]
    assert abs(float(found[0].time) - 1_700_000_000.123456789) < 1e-6


@pytest.mark.parametrize("port", [4789, 8472, 4754, 40000])
def test_a_flow_is_known_whatever_port_masquerading_gave_it(port: int) -> None:
    """MASQUERADE --random-fully may choose the ports that VXLAN and other protocols have."""
    from scapy.layers.inet import IP, UDP
    from scapy.layers.l2 import Ether
    from scapy.layers.vxlan import VXLAN

    token = b"kproxy-0123456789ab"
    there = Ether() / IP(src="10.244.1.1", dst="10.244.1.2") / UDP(sport=port, dport=9000) / token
    back = (
        Ether() / IP(src="10.244.1.2", dst="10.244.1.1") / UDP(sport=9000, dport=port) / (b'{"pod":"' + token + b'"}')
    )
    outer = Ether() / IP(src="172.30.0.11", dst="172.30.0.12") / UDP(sport=port, dport=8472) / VXLAN(flags=8, vni=1)
    frames = [
        Frame(number, "node-1", "eth0", True, bytes(packet))
        for number, packet in enumerate((there, back, outer / there, outer / back))
    ]
    found = observed_packets(read_frames(frames), Flow("UDP", "client", 20000, token, 4))
    assert [(item.direction, item.outer is not None) for item in found] == [
        (THERE, False),
        (BACK, False),
        (THERE, True),
        (BACK, True),
    ]


def test_a_lab_directory_is_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KPROXY_LAB_DIR", "rel dir")
    assert lab_root() == tmp_path / "rel dir"


def test_selectors() -> None:
    labels = {"app": "web", "tier": "front"}
    assert selector_matches({}, labels)
    assert selector_matches({"matchLabels": {"app": "web"}}, labels)
    assert not selector_matches({"matchLabels": {"app": "web", "x": "y"}}, labels)

    def term(operator: str, key: str, *values: str) -> bool:
        return selector_matches({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}, labels)

    assert term("In", "app", "api", "web")
    assert not term("In", "other", "web")
    assert term("NotIn", "app", "api")
    assert term("NotIn", "other", "x")
    assert not term("NotIn", "app", "web")
    assert term("Exists", "tier")
    assert not term("Exists", "other")
    assert term("DoesNotExist", "other")
    assert not term("DoesNotExist", "app")


def test_how_long_a_pod_stays_on_an_unreachable_node() -> None:
    unreachable = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
    assert eviction_seconds(pod("a")) == 300
    assert eviction_seconds(pod("a", tolerations=[{**unreachable, "tolerationSeconds": 5}])) == 5
    assert eviction_seconds(pod("a", tolerations=[unreachable])) is None
    assert eviction_seconds(pod("a", tolerations=[{"operator": "Exists"}])) is None
    assert eviction_seconds(pod("a", tolerations=[{**unreachable, "key": "other"}])) == 300
    assert eviction_seconds(pod("a", tolerations=[{**unreachable, "effect": "NoSchedule"}])) == 300
    daemon = pod("a")
    daemon["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet"
    assert eviction_seconds(daemon) is None


def test_a_daemon_set_replaces_as_many_as_may_be_unavailable() -> None:
    def made(name: str, digest: str, ready: bool) -> dict[str, Any]:
        condition = {"type": "Ready", "status": str(ready)}
        meta = {"name": name, "namespace": "x", "labels": {"controller-revision-hash": digest}}
        return {"metadata": meta, "status": {"conditions": [condition]}}

    def names(pods: list[dict[str, Any]], most: int) -> list[str]:
        return [item["metadata"]["name"] for item in outdated(pods, "new", 3, most)]

    assert names([made("a", "old", True), made("b", "old", True), made("c", "old", True)], 1) == ["a"]
    assert names([made("a", "new", False), made("b", "old", True), made("c", "old", True)], 1) == []
    assert names([made("a", "new", True), made("b", "old", False), made("c", "old", True)], 1) == ["b"]
    assert names([made("a", "old", True), made("b", "old", True), made("c", "old", True)], 2) == ["a", "b"]
    assert names([made("a", "new", True), made("b", "new", True), made("c", "new", True)], 3) == []


def test_probes_count_in_a_row() -> None:
    container = {
        "name": "c",
        "ports": [{"name": "http", "containerPort": 8080}],
        "readinessProbe": {"httpGet": {"port": "http", "path": "x"}, "successThreshold": 2, "failureThreshold": 3},
    }
    probe = read_probe(container, "readinessProbe")
    assert probe is not None
    assert (probe.kind, probe.port, probe.period, probe.timeout) == ("httpGet", 8080, 10.0, 1.0)
    assert read_probe(container, "startupProbe") is None
    count, seen = Count(probe), []
    for result in (True, False, True, True, False, False, True, False, False, False, True):
        count.note(result)
        seen.append(count.passed)
    assert seen == [False, False, False, True, True, True, True, True, True, False, False]


@pytest.mark.parametrize(
    "probe", [{"grpc": {"port": 1}}, {"tcpSocket": {"port": "none"}}, {"httpGet": {"port": 1, "host": "\udcff\n"}}]
)
def test_a_probe_that_cannot_succeed_says_why(probe: dict[str, Any]) -> None:
    found = read_probe({"name": "c", "readinessProbe": probe}, "readinessProbe")
    assert found is not None
    assert run_probe(found, Target("", "127.0.0.1"))


@pytest.mark.parametrize(
    ("answer", "good"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", True),
        (b"HTTP/1.0 302 Found\r\n", True),
        (b"HTTP/1.1 404 Not Found\r\n", False),
        (b"HTTP/1.1 500 x\r\n", False),
        (b"SSH-2.0-x\r\n", False),
        (b"", False),
    ],
)
@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_an_http_probe_goes_by_the_status(family: socket.AddressFamily, host: str, answer: bytes, good: bool) -> None:
    with socket.create_server((host, 0), family=family) as server:
        asked: list[bytes] = []

        def serve() -> None:
            with server.accept()[0] as connection:
                asked.append(connection.recv(4096))
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        port = server.getsockname()[1]
        probe = Probe("httpGet", port=port, path="healthz", headers=(("X-Probe", "yes"),))
        assert (run_probe(probe, Target("", host)) == "") is good
        thread.join()
    lines = asked[0].decode().split("\r\n")
    assert lines[0] == "GET /healthz HTTP/1.1"
    assert f"Host: {'[::1]' if ':' in host else host}:{port}" in lines
    assert "X-Probe: yes" in lines
    assert run_probe(Probe("httpGet", port=port, path="/a\r\nb"), Target("", host))
