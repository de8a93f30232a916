"""Cluster DNS in a lab: the Service kube-dns, pods' resolv.conf, and what programs find by it."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.lab.labtools import Lab, deployment, lab_up, service
from tests.support.waiting import eventually

pytestmark = [pytest.mark.root, pytest.mark.slow]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab_up(tmp_path_factory.mktemp("dns"), "--nodes", "2", "--ip-family", "dual", "--dns") as found:
        web = deployment("web", 2)
        selector = web["spec"]["selector"]["matchLabels"]
        both = {"ipFamilyPolicy": "RequireDualStack", "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}
        peers = {**service("peers", "db"), "spec": {**both, "clusterIP": "None", "selector": {"app": "db"}}}
        db = deployment("db", 1)
        found.apply(
            web, {**service("web", "web"), "spec": {**both, "selector": selector}}, peers,
            {**db, "kind": "StatefulSet", "spec": {**db["spec"], "serviceName": "peers"}},
        )  # fmt: skip
        found.kubectl("rollout", "status", "deployment/web", "--timeout=120s")
        found.kubectl("rollout", "status", "statefulset/db", "--timeout=120s")
        yield found


def get(lab: Lab, *words: str) -> Any:
    return json.loads(lab.kubectl("get", *words, "-o", "json"))


def getent(lab: Lab, database: str, name: str, pod: str = "db-0") -> list[list[str]]:
    return [line.split() for line in lab.run("exec", pod, "--", "getent", database, name).splitlines()]


def test_pods_find_services_and_one_another(lab: Lab) -> None:
    assert get(lab, "-n", "kube-system", "service", "kube-dns")["spec"]["clusterIPs"] == ["10.96.0.10", "fd00:10:96::a"]
    ips = get(lab, "service", "web")["spec"]["clusterIPs"]
    pod = get(lab, "pod", "db-0")["status"]
    full = "web.default.svc.cluster.local"
    for name in ("web", "web.default", "web.default.svc", full):
        assert getent(lab, "ahostsv4", name)[0][0] == ips[0]
        assert getent(lab, "ahostsv6", name)[0][0] == ips[1]
    # The kernel has the StatefulSet's endpoints a moment after its pods are ready.
    eventually(lambda: lab.call("exec", "db-0", "--", "getent", "hosts", "db-0.peers").returncode == 0)
    assert getent(lab, "ahostsv4", "db-0.peers")[0][0] == pod["podIP"]
    assert getent(lab, "hosts", ips[0]) == [[ips[0], full]]
    assert lab.run("exec", "db-0", "--", "uname", "-n") == "db-0\n"
    assert lab.call("exec", "db-0", "--", "getent", "hosts", "nosuch").returncode == 2
    shown = lab.run("exec", "db-0", "--", "cat", "/etc/resolv.conf").splitlines()
    assert shown[0].startswith("search default.svc.cluster.local svc.cluster.local cluster.local")
    assert shown[1:3] == ["nameserver 10.96.0.10", "nameserver fd00:10:96::a"]
    assert shown[-1] == "options ndots:5"
    said = lab.kubectl("-n", "kube-system", "logs", "deployment/coredns")
    assert f'"A IN {full}. udp" NOERROR 1' in said


def test_every_address_of_the_service_answers_over_both_protocols(lab: Lab) -> None:
    question = struct.pack("!6H", 9, 0x0100, 1, 0, 0, 0) + b"\3web\7default\3svc\7cluster\5local\0\0\1\0\1"
    script = (
        "import socket, sys; family = socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET\n"
        "question = bytes.fromhex(sys.argv[2])\n"
        "udp = socket.socket(family, socket.SOCK_DGRAM); udp.settimeout(60); udp.sendto(question, (sys.argv[1], 53))\n"
        "one = udp.recv(512)\n"
        "tcp = socket.create_connection((sys.argv[1], 53), 60); tcp.sendall(len(question).to_bytes(2) + question)\n"
        "two = tcp.makefile('rb').read(2 + len(one))[2:]; print(one[6:8].hex(), one == two)\n"
    )
    for address in ("10.96.0.10", "fd00:10:96::a"):
        assert lab.run("exec", "db-0", "--", sys.executable, "-c", script, address, question.hex()) == "0001 True\n"


def test_a_server_that_goes_is_replaced_and_probes_leave_it_alone(lab: Lab) -> None:
    server = get(lab, "-n", "kube-system", "pods", "-l", "k8s-app=kube-dns")["items"][0]["metadata"]["name"]
    lab.run("fail", "pod", f"kube-system/{server}")
    eventually(lambda: lab.call("exec", "db-0", "--", "getent", "hosts", "web").returncode == 2)
    lab.run("heal", "pod", f"kube-system/{server}")
    eventually(lambda: lab.call("exec", "db-0", "--", "getent", "hosts", "web").returncode == 0)
    lab.kubectl("-n", "kube-system", "delete", "pod", "-l", "k8s-app=kube-dns")
    lab.kubectl("-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=120s")
    eventually(lambda: lab.call("exec", "db-0", "--", "getent", "hosts", "web").returncode == 0)
    assert "kube-dns" in lab.run("status")
    assert "kube-dns" not in lab.run("probe", "-4", "--count", "1")
