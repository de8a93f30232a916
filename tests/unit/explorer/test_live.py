"""A live cluster: changes arrive by themselves, and a server that goes away is told of."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from kproxy.apiserver.testing import running_apiserver
from kproxy.client import RestClient, load_client_config
from kproxy.explorer.live import ClusterSource
from kproxy.explorer.state import Explorer
from kproxy.render import Features
from tests.support.apiserver.server import TOKENS, Api
from tests.support.explorer.client import serving

SERVICE = {
    "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
    "spec": {"clusterIP": "10.96.0.50", "ports": [{"port": 80, "targetPort": 8080}]},
}  # fmt: skip


def _slice(*addresses: str) -> dict[str, Any]:
    return {
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
        "endpoints": [{"addresses": [each], "conditions": {"ready": True}} for each in addresses],
        "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
    }  # fmt: skip


def test_a_change_is_told_and_a_server_that_goes_away_too(tmp_path: Path) -> None:
    (tmp_path / "tokens.csv").write_text(TOKENS)
    slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(running_apiserver(tmp_path, token_file=tmp_path / "tokens.csv"))
        api = Api(server)
        node = api.ok("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}, "spec": {"podCIDR": "10.244.1.0/24"}})
        node["status"] = {"addresses": [{"type": "InternalIP", "address": "192.168.0.1"}]}
        api.ok("PUT", "/api/v1/nodes/n1/status", node)
        api.ok("POST", "/api/v1/namespaces/default/services", SERVICE)
        api.ok("POST", slices, _slice("10.244.1.5"))
        kubeconfig = str(server.kubeconfig)
        source = ClusterSource(lambda: RestClient(load_client_config(kubeconfig)), "test", None, None, Features())
        with serving(Explorer(source)) as page, page.events() as events:
            assert next(events) == ("revision", {"revision": 1, "changed": []})
            assert page.get("api/source")["live"] is True
            api.ok("PUT", f"{slices}/web-1", _slice("10.244.1.5", "10.244.1.6"))
            seen: dict[str, Any] = {}
            for kind, data in events:
                seen = data
                if kind == "revision" and "EndpointSlice default/web-1" in data["changed"]:
                    break
            assert seen["revision"] > 1
            edges = [each for each in page.get("api/map")["edges"] if each["service"] == "svc/default/web"]
            assert [(each["endpoint"], each["percent"]) for each in edges] == [
                ("10.244.1.5:8080", 50.0), ("10.244.1.6:8080", 50.0),
            ]  # fmt: skip
            stack.close()
            away = next(data for kind, data in events if kind == "away")
            assert "the API server does not answer" in away["message"]
            # What was read of it can still be asked.
            found = page.post("api/ask", {"from": "node/n1", "to": "svc/default/web"})
            assert len(found["journeys"]) == 2
            assert page.get("api/source")["away"] == away["message"]
