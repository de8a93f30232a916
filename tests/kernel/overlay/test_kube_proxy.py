"""The overlay's rules beside kube-proxy's: what kube-proxy masquerades, refuses and drops stays as it was."""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kproxy.linux.process import run
from kproxy.netfilter.hooks import Variant
from tests.support.cli import run_kproxy
from tests.support.cni.client import ip
from tests.support.overlay.network import (
    COMMANDS,
    NODES,
    OUTSIDE,
    VTEPS,
    WAYS,
    Network,
    ask,
    outside_host,
    pod_ip,
    three_joined_nodes,
    udp,
)

pytestmark = [pytest.mark.root, pytest.mark.slow]
VIPS = {4: "10.96.0.{}", 6: "fd00:10:96::{}"}


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    with three_joined_nodes(tmp_path) as made:
        # Without a route to Services' addresses a packet to one does not come as far as kube-proxy's rules.
        for family, gateway in OUTSIDE.items():
            ip("-n", made.names["n1"], f"-{family}", "route", "add", "default", "via", gateway)
        yield made


def service(
    name: str, number: int, endpoint: dict[int, str] | None, protocol: str, **spec: Any
) -> list[dict[str, Any]]:
    """A dual-stack Service on port 9 with one endpoint, or none."""
    found: list[dict[str, Any]] = [
        {
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "clusterIP": VIPS[4].format(number), "clusterIPs": [VIPS[4].format(number), VIPS[6].format(number)],
                "ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"],
                "ports": [{"port": 9, "protocol": protocol, "targetPort": 9, **spec.pop("port", {})}], **spec,
            },
        }
    ]  # fmt: skip
    found += [
        {
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": f"IPv{family}",
            "metadata": {
                "name": f"{name}-{family}", "namespace": "default", "labels": {"kubernetes.io/service-name": name},
            },
            "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
            "ports": [{"name": "", "port": 9, "protocol": protocol}],
        }
        for family, address in (endpoint or {}).items()
    ]  # fmt: skip
    return found


def program(network: Network, directory: Path, variant: str, *documents: list[dict[str, Any]], **config: Any) -> None:
    """Kube-proxy's rules on node 1."""
    manifests, configuration = directory / "cluster.yaml", directory / "config.yaml"
    manifests.write_text(yaml.safe_dump_all(item for each in documents for item in each))
    configuration.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
                "clusterCIDR": "10.244.0.0/16,fd00:10:244::/48", **config,
            }
        )
    )  # fmt: skip
    command = [
        "apply", "-f", str(manifests), "--config", str(configuration),
        "--node", "node-1", "--netns", network.names["n1"], "--variant", variant, "--lock-wait", "60", "--yes",
    ]  # fmt: skip
    done = run_kproxy(*command)
    assert done.returncode == 0, done.stderr


def masqueraded(network: Network, variant: str, family: int, chain: str) -> int:
    """How many packets a chain of nat's has masqueraded."""
    printed = run(network.node[1], [f"{COMMANDS[family]}-{variant}-save", "-c", "-t", "nat"], timeout=60).stdout
    return sum(int(found) for found in re.findall(rf"^\[(\d+):\d+\] -A {chain} .*-j MASQUERADE", printed, re.MULTILINE))


@pytest.mark.parametrize("proxy_first", [True, False], ids=["kube-proxy first", "overlay first"])
@pytest.mark.parametrize("way", WAYS)
def test_what_kube_proxy_marks_is_masqueraded_by_kube_proxy(
    network: Network, tmp_path: Path, way: str, proxy_first: bool
) -> None:
    steps: list[Callable[[], object]] = [
        lambda: program(network, tmp_path, way, service("out", 10, OUTSIDE, "UDP"), iptables={"masqueradeAll": True}),
        lambda: network.keep_rules(1, *WAYS[way]),
    ]
    for step in steps if proxy_first else reversed(steps):
        step()
    with outside_host(network) as outside:
        for family in (4, 6):
            with udp(outside, family, OUTSIDE[family], 9) as there, udp(network.pod[1], family) as here:
                here.sendto(b"question", (VIPS[family].format(10), 9))
                data, sender = there.recvfrom(100)
                there.sendto(data, sender)
                assert here.recv(100) == data
                assert sender[0] == NODES[family]
            assert masqueraded(network, way, family, "KUBE-POSTROUTING") == 1
            assert masqueraded(network, way, family, "KPROXY-POSTRTG") == 0
            # What it does not mark, the overlay does.
            assert ask(network.pod[1], "", outside, OUTSIDE[family], family)
            assert masqueraded(network, way, family, "KUBE-POSTROUTING") == 1


@pytest.mark.parametrize("proxy_first", [True, False], ids=["kube-proxy first", "overlay first"])
@pytest.mark.parametrize("variant", ["nft", "legacy"])
def test_what_kube_proxy_refuses_is_refused_though_forwarding_is_accepted(
    network: Network, tmp_path: Path, variant: str, proxy_first: bool
) -> None:
    """A Service without endpoints: were the overlay's rule first, the pod would wait for an answer."""
    for family in (4, 6):
        wait = ["-w", "60"] if variant == "legacy" else []
        command = [f"{COMMANDS[family]}-{variant}", *wait, "-P", "FORWARD", "DROP"]
        assert run(network.node[1], command, timeout=90).code == 0
    steps: list[Callable[[], object]] = [
        lambda: program(network, tmp_path, variant, service("none", 11, None, "TCP")),
        lambda: network.keep_rules(1, WAYS[variant][0], Variant(variant)),
    ]
    for step in steps if proxy_first else reversed(steps):
        step()
    for family, kind in ((4, socket.AF_INET), (6, socket.AF_INET6)):
        with network.pod[1].call(socket.socket, kind, socket.SOCK_STREAM) as client:
            client.settimeout(20)
            assert client.connect_ex((VIPS[family].format(11), 9)) == errno.ECONNREFUSED
    assert network.rule_drift(1, WAYS[variant][0], Variant(variant)) == []


def test_a_node_port_leads_to_a_pod_of_another_node(network: Network, tmp_path: Path) -> None:
    """Past a FORWARD chain that drops, masqueraded once."""
    for family in (4, 6):
        assert run(network.node[1], [f"{COMMANDS[family]}-nft", "-P", "FORWARD", "DROP"], timeout=60).code == 0
    endpoint = {family: pod_ip(2, family) for family in (4, 6)}
    program(network, tmp_path, "nft", service("np", 12, endpoint, "UDP", type="NodePort", port={"nodePort": 30009}))
    network.keep_rules(1, *WAYS["nft"])
    with outside_host(network) as outside:
        for family, node in ((4, "192.168.9.1"), (6, "fd00:9::1")):
            with udp(network.pod[2], family, pod_ip(2, family), 9) as there, udp(outside, family) as here:
                here.sendto(b"question", (node, 30009))
                data, sender = there.recvfrom(100)
                assert sender[0] == VTEPS[family]
                there.sendto(data, sender)
                assert here.recv(100) == data
