"""A lab from a file with all that a file can say; what is not ready in time is there to be looked at."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from kproxy.lab.lifecycle import processes
from tests.support.lab.labtools import Lab, fresh_name, lab_up
from tests.support.paths import ROOT

pytestmark = [pytest.mark.root, pytest.mark.slow]

SHOP = ROOT / "tests" / "support" / "lab" / "shop"
FILE = """\
apiVersion: kproxy/v1
kind: Lab
name: NAME
nodes:
- labels: {topology.kubernetes.io/zone: east, disk: ssd}
- labels: {topology.kubernetes.io/zone: east}
networking:
  ipFamily: dual
proxy:
  config: {iptables: {masqueradeBit: 12}}
manifests: [more.yaml]
commands:
- {host: node-2, run: "ip route add blackhole 192.0.2.0/24; ip route > $PWD/routes"}
timeout: 40s
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {ipFamilyPolicy: RequireDualStack, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
"""
MORE = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web, ports: [{containerPort: 8080}]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: bad}
spec:
  nodeSelector: {disk: ssd}
  containers:
  - name: bad
    image: bad
    readinessProbe: {httpGet: {port: 9}, periodSeconds: 1}
"""


def test_a_usual_folder_comes_up(tmp_path: Path) -> None:
    """Everything of it, with kinds that are not served or on which nothing acts; kubectl shows it.

    Its probes ask a port that no container declares, and execute a program of an image. It has Services and Jobs, so
    cluster DNS is there.
    """
    with lab_up(tmp_path / "labs", "--nodes", "2", "-f", str(SHOP)) as lab:
        kinds = "ingress,pdb,hpa,netpol,cm,secret,sa,role,pvc,cronjob,widget"
        shown = lab.kubectl("get", kinds, "-n", "shop", "-o", "name").split()
        assert {name.partition("/")[0].partition(".")[0] for name in shown} == {
            "ingress", "poddisruptionbudget", "horizontalpodautoscaler", "networkpolicy", "configmap", "secret",
            "serviceaccount", "role", "persistentvolumeclaim", "cronjob", "widget",
        }  # fmt: skip
        assert lab.kubectl("get", "pods", "-n", "shop", "-l", "app in (web, db)", "-o", "name").count("pod/") == 4
        assert "deployment.apps/coredns" in lab.kubectl("get", "deployment", "-n", "kube-system", "-o", "name")
        told = lab.kubectl("get", "events", "-n", "shop", "--field-selector=reason=ProbeNotExecuted")
        assert "Readiness probe taken as a success: exec is the image's to answer" in told
        lab.kubectl("wait", "--for=condition=complete", "job/migrate", "-n", "shop", "--timeout=120s")
        cells = lab.json("probe", "--count", "2", "--service", "shop/web")["cells"]
        assert cells
        assert all(cell["agrees"] for cell in cells)


def test_a_lab_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(fresh_name(), tmp_path / "labs")
    (tmp_path / "more.yaml").write_text(MORE)
    (tmp_path / "lab.yaml").write_text(FILE.replace("NAME", lab.name).replace("$PWD", str(tmp_path)))
    monkeypatch.delenv("KPROXY_LAB", raising=False)
    try:
        done = lab.call("up", "--config", str(tmp_path / "lab.yaml"))
        assert done.returncode == 1, done.stderr
        assert f"lab {lab.name}: 2 nodes, " in done.stderr
        assert "not ready after 40 s: pod default/bad is not ready" in done.stderr
        assert 'pod default/bad: Unhealthy: Readiness probe failed: Get "http://' in done.stderr
        assert "blackhole 192.0.2.0/24" in (tmp_path / "routes").read_text()
        nodes = {
            item["metadata"]["name"]: item for item in json.loads(lab.kubectl("get", "nodes", "-o", "json"))["items"]
        }
        assert nodes["node-2"]["spec"]["podCIDRs"] == ["10.244.2.0/24", "fd00:10:244:2::/64"]
        assert nodes["node-1"]["metadata"]["labels"]["disk"] == "ssd"
        assert {item["metadata"]["labels"]["topology.kubernetes.io/zone"] for item in nodes.values()} == {"east"}
        assert "mtu 1430" in lab.run("exec", "node-1", "--", "ip", "link", "show", "cni0")
        assert "--set-xmark 0x1000/0x1000" in lab.run("exec", "node-1", "--", "iptables-save", "-t", "nat")
        ips = json.loads(lab.kubectl("get", "service", "web", "-o", "json"))["spec"]["clusterIPs"]
        assert (ips[0].rpartition(".")[0].rpartition(".")[0], ips[1][:11]) == ("10.96", "fd00:10:96:")
        cells = lab.json("probe", "--count", "4", "--service", "web")["cells"]
        assert len(cells) > 4
        assert all(cell["agrees"] for cell in cells)
        assert lab.call("down").returncode == 0
        refused = lab.call("up", "--config", str(tmp_path / "lab.yaml"), "--nodes", "1")
        assert refused.returncode == 2
        assert "commands[0].host" in refused.stderr
        assert lab.namespaces() == []
    finally:
        lab.call("down")


def test_a_command_that_fails_or_hangs_ends_the_lab(tmp_path: Path) -> None:
    """As everything does that goes wrong before a lab is up."""
    lab = Lab(fresh_name(), tmp_path / "labs")
    path = tmp_path / "lab.yaml"
    path.write_text("""\
apiVersion: kproxy/v1
kind: Lab
nodes: 1
commands:
- {host: client, run: "ip link add one type veth peer name two; ip link show three"}
""")
    try:
        done = lab.call("up", "--config", str(path))
        assert done.returncode == 1
        assert "error: client: ip link add one type veth peer name two; ip link show three: exit code 1" in done.stderr
        assert 'Device "three" does not exist.' in done.stderr
        assert lab.namespaces() == []
        path.write_text(path.read_text().replace("ip link show three", "sleep 1000"))
        begun = subprocess.Popen(lab.command("up", "--config", str(path)), env=lab.environment, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 60
        while not any(item.role == "command/client" for item in processes.find(lab.directory)):
            assert time.monotonic() < deadline
            assert begun.poll() is None
            time.sleep(0.05)
        begun.send_signal(signal.SIGINT)
        assert begun.communicate(timeout=60)[1].decode().strip() == "kproxy: interrupted"
        assert begun.returncode == 130
        assert lab.namespaces() == []
        assert processes.find(lab.directory) == []
    finally:
        lab.call("down")
