"""`kproxy run` of one mode is stopped and one of the other mode started, both ways, under traffic: no connection fails,
those that are established go on, and nothing of the mode before is left.

The clients are those of tests/kernel/apply/test_traffic.py. While no proxy runs the endpoints change, too, so the new
one has to clean up after rules that it did not write.
"""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.support.kernel.agent_runs import running_agent
from tests.support.kernel.apply_network import (
    CLUSTER_IP,
    ENDPOINTS,
    LOAD_BALANCER_IP,
    NODE_PORT,
    PORT,
    TARGET_PORT,
    Network,
    Traffic,
    served_network,
)
from tests.support.kernel.churned_service import History, check, choose
from tests.support.kernel.namespaces import run
from tests.support.waiting import eventually

pytestmark = [pytest.mark.root, pytest.mark.slow]


def manifests(chosen: frozenset[str]) -> str:
    """The Service that the traffic goes to, with these endpoints."""
    ports: list[dict[str, Any]] = [{"name": each.lower(), "protocol": each} for each in ("TCP", "UDP")]
    spec = {
        "type": "LoadBalancer",
        "clusterIP": CLUSTER_IP,
        "ports": [{**each, "port": PORT, "nodePort": NODE_PORT, "targetPort": TARGET_PORT} for each in ports],
    }
    labels = {"kubernetes.io/service-name": "web"}
    items = [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": spec,
            "status": {"loadBalancer": {"ingress": [{"ip": LOAD_BALANCER_IP}]}},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": "web-1", "namespace": "shop", "labels": labels},
            "addressType": "IPv4",
            "ports": [{**each, "port": TARGET_PORT} for each in ports],
            "endpoints": [{"addresses": [ip]} for ip in sorted(chosen)],
        },
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


@pytest.mark.parametrize("variant", ["nft", pytest.param("legacy", marks=pytest.mark.slow)])
def test_a_proxy_of_the_other_mode_takes_over_under_traffic(tmp_path: Path, variant: str) -> None:
    rng, history, traffic = random.Random(variant), History(), Traffic()
    with served_network() as net:
        try:
            take_over(net, tmp_path, "iptables", variant, frozenset(ENDPOINTS[:3]), history)
            traffic.start(net)
            for mode in ("nftables", "iptables"):
                take_over(net, tmp_path, mode, variant, choose(rng), history, traffic)
        finally:
            traffic.stop()
    check(traffic, history)


def take_over(
    net: Network,
    directory: Path,
    mode: str,
    variant: str,
    chosen: frozenset[str],
    history: History,
    traffic: Traffic | None = None,
) -> None:
    """A proxy in this mode brings the endpoints into the kernel, runs for a while, and ends."""
    path = directory / "cluster.json"
    arguments = ["-f", str(path), "--node", "node-0", "--netns", net.node, "-4", "--mode", mode]
    arguments += ["--cluster-cidr", "10.244.0.0/16", "--nodeport-addresses", "0.0.0.0/0"]
    arguments += ["--variant", variant] if mode == "iptables" else []
    with contextlib.ExitStack() as stack:
        with history.applying(chosen):
            path.write_text(manifests(chosen))
            proxy = stack.enter_context(running_agent(directory, *arguments))
            eventually(lambda: "synced family" in proxy.said(), what=proxy.said)
        assert (traffic is not None) is ("removed the rules of the other mode" in proxy.said())
        assert ("KUBE-SERVICES" in run(f"iptables-{variant}-save", namespace=net.node)) is (mode == "iptables")
        assert ("kube-proxy" in run("nft", "list", "tables", namespace=net.node)) is (mode == "nftables")
        count = len(traffic.attempts) if traffic is not None else 0
        eventually(lambda: traffic is None or len(traffic.attempts) > count + 100)
        assert proxy.stop() == 0
