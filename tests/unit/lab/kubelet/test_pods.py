"""Pods as the kubelet reads them: ports, environment, resolv.conf; the status that it writes, and logs."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from kproxy.lab.kubelet.environment import environment, expand, field_of, not_given
from kproxy.lab.kubelet.logs import KEPT, PodLogs
from kproxy.lab.kubelet.podspec import DEFAULT_PORTS, pod_ports
from kproxy.lab.kubelet.resolver import files_of, remove_files, resolv_conf, write_files
from kproxy.lab.kubelet.servers import Port
from kproxy.lab.kubelet.status import pod_status, same_status
from tests.support.lab.controlled import pod_of


def test_ports_that_a_pod_serves() -> None:
    assert pod_ports(pod_of(containers=[{"name": "a"}])) == DEFAULT_PORTS
    found = pod_ports(pod_of(containers=[{"ports": [{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53}]}]))
    assert [(port.number, port.protocol) for port in found] == [(53, "UDP"), (53, "TCP")]


def test_what_is_asked_by_a_liveness_probe_is_served() -> None:
    """As a manager of kubebuilder: 8081 is in its probes only."""
    manager = {"livenessProbe": {"httpGet": {"port": 8081}}, "readinessProbe": {"httpGet": {"port": 9}}}
    assert pod_ports(pod_of(containers=[manager])) == (*DEFAULT_PORTS, Port(8081))
    named = {"ports": [{"name": "http", "containerPort": 80}], "livenessProbe": {"httpGet": {"port": "http"}}}
    other = {"livenessProbe": {"tcpSocket": {"port": 80}}}
    assert pod_ports(pod_of(containers=[named, other])) == (Port(80),)


def test_a_status_is_written_again_only_if_it_says_something_else() -> None:
    subject = pod_of(containers=[{"name": "echo", "image": "echo"}])

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


POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"a/b": "c"}, "annotations": {"x": "y"}},
    "spec": {"nodeName": "node-1", "hostname": "p-0", "containers": [{"name": "a", "env": []}, {"name": "b"}]},
    "status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}], "hostIP": "172.30.0.11"},
}


def test_fields_of_the_pod() -> None:
    wanted = {
        "metadata.name": "p", "metadata.namespace": "n", "metadata.uid": "u", "metadata.labels['a/b']": "c",
        "metadata.annotations['x']": "y", "metadata.annotations['z']": "", "spec.nodeName": "node-1",
        "status.podIP": "10.0.0.1", "status.podIPs": "10.0.0.1,fd00::1", "status.hostIP": "172.30.0.11",
        "spec.containers": "", "status": "",
    }  # fmt: skip
    assert {path: field_of(POD, path) for path in wanted} == wanted


def test_what_no_command_gets_is_named() -> None:
    own = [
        {"name": "A", "value": "1"},
        {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {"name": "ME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    containers = [{"name": "a", "envFrom": [{"configMapRef": {"name": "c"}}], "env": own}, {"name": "b", "env": own}]
    assert not_given({**POD, "spec": {"containers": containers}}) == [
        "envFrom (configMapRef)",
        "PASSWORD (secretKeyRef)",
    ]
    assert not_given(POD) == []


def test_values_and_references() -> None:
    own = [
        {"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "URL", "value": "http://$(WHO):80/$(OTHER)"},
        {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ]
    pod = {**POD, "spec": {**POD["spec"], "containers": [{"name": "a", "env": own}]}}
    values = environment(pod, "a")
    assert {name: values.get(name) for name in ("WHO", "URL", "SECRET", "HOSTNAME", "TERM")} == {
        "WHO": "p", "URL": "http://p:80/$(OTHER)", "SECRET": None, "HOSTNAME": "p-0", "TERM": None,
    }  # fmt: skip
    assert environment(pod, "a", terminal=True)["TERM"] == "xterm"
    assert "WHO" not in environment(pod, "b")
    assert expand("$$(A) $(A) $A", {"A": "1"}) == "$(A) 1 $A"


MACHINE = "# ours\nnameserver 192.0.2.53\nsearch corp.example\noptions edns0\n"
CLUSTER = "search n.svc.cluster.local svc.cluster.local cluster.local corp.example\nnameserver 10.96.0.10\n"
CONFIG = {
    "nameservers": ["1.2.3.4"], "searches": ["mine"],
    "options": [{"name": "ndots", "value": "2"}, {"name": "rotate"}],
}  # fmt: skip


def pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": spec}


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({}, f"{CLUSTER}options ndots:5\n"),
        ({"dnsPolicy": "ClusterFirst", "hostNetwork": True}, None),
        ({"dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": True}, f"{CLUSTER}options ndots:5\n"),
        ({"dnsPolicy": "Default"}, None),
        ({"dnsPolicy": "None", "dnsConfig": CONFIG}, "search mine\nnameserver 1.2.3.4\noptions ndots:2 rotate\n"),
        (
            {"dnsPolicy": "Default", "dnsConfig": CONFIG},
            "search corp.example mine\nnameserver 192.0.2.53\nnameserver 1.2.3.4\noptions edns0 ndots:2 rotate\n",
        ),
        (
            {"dnsConfig": {"options": [{"name": "ndots", "value": "1"}], "nameservers": ["10.96.0.10", "a", "b", "c"]}},
            f"{CLUSTER}nameserver a\nnameserver b\noptions ndots:1\n",
        ),
    ],
)
def test_as_the_kubelet_writes_it(spec: dict[str, Any], text: str | None) -> None:
    assert resolv_conf(pod(**spec), ["10.96.0.10"], MACHINE) == text


def test_without_cluster_dns_a_pod_has_the_machines() -> None:
    assert resolv_conf(pod(), [], MACHINE) is None


def test_the_files_of_a_pod_go_with_it(tmp_path: Path) -> None:
    write_files(pod(), ["10.96.0.10"], tmp_path)
    files = files_of(tmp_path, "u")
    assert set(files) == {"/etc/resolv.conf", "/etc/nsswitch.conf"}
    assert "nameserver 10.96.0.10\n" in Path(files["/etc/resolv.conf"]).read_text()
    assert Path(files["/etc/nsswitch.conf"]).read_text().endswith("hosts: files dns\n")
    remove_files(tmp_path, "u")
    assert (files_of(tmp_path, "u"), list(tmp_path.iterdir())) == ({}, [])
    remove_files(tmp_path, "u")


def test_lines_in_order_after_a_number_and_no_more_than_are_kept() -> None:
    logs = PodLogs()
    for number in range(KEPT + 10):
        logs.add("u", f"line {number}")
    lines = logs.lines("u")
    assert (len(lines), lines[0].text, lines[-1].text) == (KEPT, "line 10", f"line {KEPT + 9}")
    assert [line.text for line in logs.wait("u", lines[-3].number, 0.0) or ()] == [lines[-2].text, lines[-1].text]
    assert logs.lines("other") == []


def test_who_follows_gets_what_comes_and_hears_of_the_end() -> None:
    logs = PodLogs()
    logs.add("u", "one")
    last = logs.lines("u")[-1].number
    assert logs.wait("u", last, 0.0) == []
    found: list[object] = []

    def follow() -> None:
        after = last
        while (lines := logs.wait("u", after, 60.0)) is not None:
            found.extend(line.text for line in lines)
            after = lines[-1].number

    thread = threading.Thread(target=follow)
    thread.start()
    logs.add("u", "two")
    while "two" not in found:
        thread.join(0.01)
    logs.forget("u")
    thread.join(60)
    assert (thread.is_alive(), found) == (False, ["two"])
