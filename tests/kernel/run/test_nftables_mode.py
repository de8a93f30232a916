"""`kproxy run` in nftables mode, against a real `kproxy apiserver` and the real kernel."""

from __future__ import annotations

import json
import urllib.request
from functools import partial
from pathlib import Path

import pytest

from kproxy.client import ENDPOINT_SLICES, NODES, SERVICES
from kproxy.linux.namespace import Namespace
from kproxy.services import IPFamily
from tests.support.agent.recorded_http import parse_metrics
from tests.support.kernel.agent_runs import (
    NODE,
    node,
    piece,
    put,
    running_agent,
    running_server,
    service,
    table_difference,
)
from tests.support.kernel.namespaces import fresh_namespace, run
from tests.support.waiting import eventually

pytestmark = [pytest.mark.root, pytest.mark.slow]

CONFIG = {
    "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
    "kind": "KubeProxyConfiguration",
    "mode": "nftables",
    "clusterCIDR": "10.244.0.0/16",
    "nftables": {"minSyncPeriod": "10ms", "syncPeriod": "200ms"},
}
DAMAGE = (
    "flush chain ip kube-proxy services",
    "flush map ip kube-proxy service-ips",
    "add element ip kube-proxy cluster-ips { 10.250.250.9 }",
    "insert rule ip kube-proxy nat-postrouting return",
    "add table ip kube-proxy { flags dormant ; }",
    "delete table ip kube-proxy",
)
FOREIGN = "table ip other {\n\tchain c {\n\t\ttcp dport 22 accept\n\t}\n}\n"


def test_follows_the_server_and_mends_what_others_do(tmp_path: Path) -> None:
    with fresh_namespace() as name, running_server(tmp_path) as server, Namespace.named(name) as inside:
        run("ip", "link", "set", "lo", "up", namespace=name)
        run("nft", "-f", "-", namespace=name, text=FOREIGN)
        config = tmp_path / "config.json"
        config.write_text(json.dumps({**CONFIG, "clientConnection": {"kubeconfig": str(server.kubeconfig)}}))
        client = server.client()
        put(client, NODES, node())
        put(client, SERVICES, service("web"))
        put(client, ENDPOINT_SLICES, piece("web", "10.244.0.5", "10.244.0.6"))

        def right() -> bool:
            return not any(table_difference(client, name, family) for family in IPFamily)

        def get(path: str) -> str:
            answer = inside.call(urllib.request.urlopen, f"http://127.0.0.1:10249{path}", None, 10.0)
            return str(answer.read().decode())

        def metric(name: str, **labels: str) -> float:
            samples = parse_metrics(get("/metrics"))[name].samples
            return float(samples[name, tuple(sorted(labels.items()))])

        def mended(times: int) -> bool:
            return agent.said().count("drift repaired") == times

        with running_agent(tmp_path, "--config", str(config), "--node", NODE, "--netns", name) as agent:
            eventually(right, what=agent.said)
            put(client, ENDPOINT_SLICES, piece("web", "10.244.0.7"))
            put(client, SERVICES, service("dns", 53, "UDP"))
            put(client, ENDPOINT_SLICES, piece("dns", "10.244.0.8", protocol="UDP"))
            eventually(right, what=agent.said)
            # An empty chain waits for its deletion.
            client.delete(SERVICES, "web", "default")
            eventually(right, what=agent.said)
            for times, damage in enumerate(DAMAGE, 1):
                run("nft", damage, namespace=name)
                # Not `not right()`: the proxy may have mended it by now. A told repair proves that there was damage.
                eventually(partial(mended, times), what=agent.said)
                eventually(right, what=agent.said)
            assert get("/proxyMode") == "nftables"
            assert metric("kproxy_drift_repairs_total", ip_family="IPv4") == len(DAMAGE)
            assert metric("kubeproxy_sync_proxy_rules_nftables_sync_failures_total", ip_family="IPv4") == 0
            assert agent.stop() == 0
        assert right(), "SIGTERM leaves the rules"
        assert run("nft", "list", "table", "ip", "other", namespace=name) == FOREIGN
        # With nobody left who mends them, the damage stays, and is seen.
        for damage in DAMAGE:
            run("nft", damage, namespace=name)
            assert not right(), damage
