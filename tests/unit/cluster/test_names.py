"""`kproxy trace --from pod/... --to svc/...`: names as addresses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cli import Run

CLUSTER = """\
apiVersion: v1
kind: Node
metadata: {name: n1}
spec: {podCIDRs: [10.244.0.0/24, "fd00:10:244::/64"]}
status: {addresses: [{type: InternalIP, address: 192.168.0.2}, {type: InternalIP, address: "2001:db8::2"}]}
---
apiVersion: v1
kind: Node
metadata: {name: n2}
status: {addresses: [{type: InternalIP, address: 192.168.0.3}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.7
  clusterIPs: [10.96.0.7, "fd00:10:96::7"]
  ipFamilies: [IPv4, IPv6]
  ipFamilyPolicy: RequireDualStack
  externalIPs: [198.51.100.7]
  ports:
  - {name: http, port: 80, nodePort: 30080}
  - {name: dns, port: 53, protocol: UDP, nodePort: 30053}
  - {name: dns-tcp, port: 53, nodePort: 30053}
status: {loadBalancer: {ingress: [{ip: 198.51.100.8}]}}
---
apiVersion: v1
kind: Service
metadata: {name: plain}
spec: {clusterIP: 10.96.0.8, ports: [{port: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: none}
spec: {clusterIP: None, ports: [{port: 8080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints:
- {addresses: [10.244.0.5], nodeName: n1, targetRef: {kind: Pod, name: web-0, namespace: shop}}
ports: [{name: http, port: 8080}, {name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53}]
---
apiVersion: v1
kind: PodList
items:
- metadata: {name: cart-0, namespace: shop}
  spec: {nodeName: n1, containers: [{ports: [{name: web, containerPort: 9000}]}]}
  status: {podIP: 10.244.0.9, podIPs: [{ip: 10.244.0.9}, {ip: "fd00:10:244::9"}]}
- metadata: {name: far, namespace: shop}
  spec: {nodeName: n2}
  status: {podIP: 10.244.1.9}
- metadata: {name: host, namespace: shop}
  spec: {nodeName: n1, hostNetwork: true}
  status: {podIP: 192.168.0.2}
- metadata: {name: pending, namespace: shop}
  spec: {}
"""


@pytest.fixture
def ask(kproxy: Run, tmp_path: Path) -> Any:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    config = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
    (tmp_path / "config.yaml").write_text(config)
    source = ("-f", "cluster.yaml", "--config", "config.yaml", "--node", "n1")

    def run(*arguments: str) -> tuple[int, dict[str, Any], str]:
        done = kproxy("trace", *source, *arguments, "-o", "json")
        return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr

    return run


@pytest.mark.parametrize(
    ("arguments", "packet"),
    [
        (("--from", "pod/shop/cart-0", "--to", "svc/shop/web:http"), ("10.244.0.9", "10.96.0.7:80", "tcp", "arriving")),
        (("--from", "pod/shop/cart-0", "--to", "svc/shop/web:80"), ("10.244.0.9", "10.96.0.7:80", "tcp", "arriving")),
        (
            ("--from", "pod/shop/cart-0:1234", "--to", "svc/plain"),
            ("10.244.0.9:1234", "10.96.0.8:8080", "tcp", "arriving"),
        ),
        (("--from", "pod/shop/cart-0", "--to", "svc/shop/web:dns"), ("10.244.0.9", "10.96.0.7:53", "udp", "arriving")),
        (("--from", "pod/shop/cart-0", "--to", "svc/shop/web:53"), ("10.244.0.9", "10.96.0.7:53", "tcp", "arriving")),
        (
            ("--from", "pod/shop/cart-0", "--to", "svc/shop/web:53", "--proto", "udp"),
            ("10.244.0.9", "10.96.0.7:53", "udp", "arriving"),
        ),
        (
            ("--src", "fd00:10:244::9", "--to", "svc/shop/web:http"),
            ("fd00:10:244::9", "[fd00:10:96::7]:80", "tcp", "arriving"),
        ),
        (("--from", "pod/shop/host", "--to", "svc/shop/web:http"), ("192.168.0.2", "10.96.0.7:80", "tcp", "local")),
        (("--from", "node/n1", "--to", "svc/shop/web:http"), ("192.168.0.2", "10.96.0.7:80", "tcp", "local")),
        (("--from", "node/n2", "--to", "pod/shop/cart-0:web"), ("192.168.0.3", "10.244.0.9:9000", "tcp", "arriving")),
        (
            ("--src", "203.0.113.7", "--to", "nodeport/shop/web:http"),
            ("203.0.113.7", "192.168.0.2:30080", "tcp", "arriving"),
        ),
        (
            ("--src", "203.0.113.7", "--to", "nodeport/shop/web:30080"),
            ("203.0.113.7", "192.168.0.2:30080", "tcp", "arriving"),
        ),
        (("--src", "203.0.113.7", "--to", "lb/shop/web:http"), ("203.0.113.7", "198.51.100.8:80", "tcp", "arriving")),
        (
            ("--src", "203.0.113.7", "--to", "externalip/shop/web:http"),
            ("203.0.113.7", "198.51.100.7:80", "tcp", "arriving"),
        ),
        (("--from", "pod/shop/web-0", "--dst", "10.96.0.8:8080"), ("10.244.0.5", "10.96.0.8:8080", "tcp", "arriving")),
    ],
)
def test_names(ask: Any, arguments: tuple[str, ...], packet: tuple[str, ...]) -> None:
    code, answer, stderr = ask(*arguments)
    assert (code, stderr) == (0, "")
    got = answer["packet"]
    assert (got["src"], got["dst"], got["proto"], got["origin"]) == packet


def test_a_service_leads_to_its_endpoint(ask: Any) -> None:
    _, answer, _ = ask("--from", "pod/shop/cart-0", "--to", "svc/shop/web:http")
    (item,) = answer["outcomes"]
    assert item["dst"] == "10.244.0.5:8080"
    provenance = [step.get("provenance", "") for step in item["path"]]
    assert "Service shop/web:http (TCP): cluster IP" in provenance
    assert any("10.244.0.5:8080 of EndpointSlice shop/web-1" in text for text in provenance)


def test_a_pod_of_another_node_is_reported(ask: Any) -> None:
    code, _, stderr = ask("--from", "pod/shop/far", "--to", "svc/shop/web:http")
    assert code == 0
    assert "pod shop/far runs on node n2" in stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--from", "pod/shop/gone", "--to", "svc/plain"), "pod shop/gone is not in the cluster: shop/cart-0"),
        (("--from", "pod/shop/pending", "--to", "svc/plain"), "pod shop/pending has no IP"),
        (("--from", "node/n9", "--to", "svc/plain"), "node n9 is not in the cluster: n1, n2"),
        (("--src", "10.0.0.1", "--to", "svc/shop/gone:80"), "Service shop/gone is not in the cluster"),
        (("--src", "10.0.0.1", "--to", "svc/shop/web:8443"), "has no port '8443'; it has 80/TCP (http), 53/UDP (dns)"),
        (("--src", "10.0.0.1", "--to", "svc/shop/web"), "has several ports: say which"),
        (("--src", "10.0.0.1", "--to", "svc/shop/web:http", "--proto", "udp"), "no such port over udp"),
        (("--src", "10.0.0.1", "--to", "svc/none:8080"), "Service default/none has no ClusterIP"),
        (("--src", "10.0.0.1", "--to", "nodeport/plain:8080"), "has no node port"),
        (("--src", "10.0.0.1", "--to", "lb/plain:8080"), "has no load-balancer IP"),
        (("--src", "fd00::1", "--to", "svc/plain"), "has no address of the other end's family; it has 10.96.0.8"),
        (("--from", "svc/plain", "--dst", "10.0.0.1:80"), "from: pod/..., node/... or an address expected"),
        (("--from", "gone-0", "--to", "svc/plain"), "from: a reference such as pod/NS/NAME, a name or an address"),
        (("--from", "10.0.0", "--to", "svc/plain"), "from: a reference such as pod/NS/NAME, or IP"),
        (("--src", "10.0.0.1", "--to", "gone"), "to: a reference such as pod/NS/NAME, a name or an address"),
        (("--from", "pod/shop/cart-0", "--dst", "nope:80"), "dst: IP, IP:PORT or [IP]:PORT expected"),
        (("--from", "pod/shop/cart-0", "--src", "10.0.0.1", "--to", "svc/plain"), "it and src exclude each other"),
        (("--src", "10.0.0.1", "--to", "pod/shop/cart-0"), "dst: IP:PORT expected"),
        (("--src", "10.0.0.1", "--to", "pod/shop/cart-0:nope"), "has no port 'nope' (there are web)"),
    ],
)
def test_names_that_stand_for_nothing(ask: Any, arguments: tuple[str, ...], words: str) -> None:
    code, answer, stderr = ask(*arguments)
    assert (code, answer) == (2, {})
    assert words in stderr


def test_names_in_json_lines(kproxy: Run, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    lines = '{"from": "pod/shop/cart-0", "to": "svc/shop/web:http"}\n{"src": "10.244.0.9", "dst": "10.96.0.8:8080"}\n'
    done = kproxy("trace", "-f", "cluster.yaml", "--node", "n1", "--packets", "-", stdin=lines)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["packet"]["dst"] for line in done.stdout.splitlines()] == [
        "10.96.0.7:80",
        "10.96.0.8:8080",
    ]


@pytest.mark.parametrize("form", ["yaml", "json", "jsonl", "list"])
def test_a_file_is_read_once_though_a_pod_is_named(kproxy: Run, tmp_path: Path, form: str) -> None:
    """From a pipe nothing can be read a second time."""
    objects = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "shop"},
         "spec": {"nodeName": "n1"}, "status": {"podIP": "10.244.0.5"}},
        {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
         "metadata": {"name": "b", "namespace": "shop"},
         "endpoints": [{"addresses": ["10.244.0.6"], "targetRef": {"kind": "Pod", "name": "b"}}]},
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
         "status": {"addresses": [{"type": "InternalIP", "address": "192.168.0.2"}]}},
    ]  # fmt: skip
    text = {
        "yaml": "---\n".join(yaml.safe_dump(each) for each in objects),
        "json": json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}, indent=1),
        "jsonl": "\n".join(map(json.dumps, objects)),
        "list": yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": objects}),
    }[form]
    done = kproxy(
        "trace", "-f", "/dev/stdin", "--from", "pod/shop/a", "--to", "pod/shop/b:80", "-o", "json", stdin=text
    )
    assert done.returncode == 0, done.stderr
    packet = json.loads(done.stdout)["packet"]
    assert (packet["src"], packet["dst"]) == ("10.244.0.5", "10.244.0.6:80")
