"""A live cluster: changes arrive by themselves, and a server that goes away is told of."""

from __future__ import annotations

import contextlib
import queue
from pathlib import Path
from typing import Any

import pytest

from kproxy.apiserver.testing import RunningServer, running_apiserver
from kproxy.client import RestClient, load_client_config
from kproxy.collect.objects import collect_objects
from kproxy.explorer.answers.lab_actions import follow_answer, rows_of
from kproxy.explorer.sources import follow
from kproxy.explorer.sources.follow import FollowedObjects
from kproxy.explorer.sources.live import ClusterSource, HostState, changes
from kproxy.explorer.sources.rendering import RenderedCluster
from kproxy.explorer.state import Explorer
from tests.support.apiserver.server import TOKENS, Api
from tests.support.explorer.client import serving
from tests.support.explorer.followed import followed

SERVICE = {
    "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
    "spec": {"clusterIP": "10.96.0.50", "ports": [{"port": 80, "targetPort": 8080}]},
}  # fmt: skip


SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"


def _slice(*addresses: str) -> dict[str, Any]:
    return {
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
        "endpoints": [{"addresses": [each], "conditions": {"ready": True}} for each in addresses],
        "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
    }  # fmt: skip


def _filled(server: RunningServer) -> Api:
    """An API server with a node, a Service and one endpoint."""
    api = Api(server)
    node = api.ok("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}, "spec": {"podCIDR": "10.244.1.0/24"}})
    node["status"] = {"addresses": [{"type": "InternalIP", "address": "192.168.0.1"}]}
    api.ok("PUT", "/api/v1/nodes/n1/status", node)
    api.ok("POST", "/api/v1/namespaces/default/services", SERVICE)
    api.ok("POST", SLICES, _slice("10.244.1.5"))
    return api


def test_a_change_brings_one_object_and_no_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tokens.csv").write_text(TOKENS)
    listed: list[tuple[str, ...]] = []

    def listing(client: RestClient, files: Any, tell: Any, kinds: Any) -> Any:
        listed.append(tuple(kinds))
        return collect_objects(client, files, tell, kinds)

    monkeypatch.setattr(follow, "collect_objects", listing)
    with running_apiserver(tmp_path, token_file=tmp_path / "tokens.csv") as server:
        api, kubeconfig = _filled(server), str(server.kubeconfig)
        client = RestClient(load_client_config(kubeconfig))
        objects = FollowedObjects(client, "test")
        changes: queue.Queue[list[str]] = queue.Queue()
        first = RenderedCluster(objects.read()[0], None)
        assert [each.metadata.name for each in first.manifests.endpoint_slices if each.metadata.name == "web-1"]
        objects.start(lambda what: changes.put(list(what)), lambda _why: None)
        try:
            assert objects.wait_for_sync(60)
            listed.clear()
            api.ok("PUT", f"{SLICES}/web-1", _slice("10.244.1.5", "10.244.1.6"))
            while "EndpointSlice default/web-1" not in changes.get(timeout=60):
                pass
            changed = RenderedCluster(objects.read()[0], None)
            ends = {each.metadata.name: each.endpoints for each in changed.manifests.endpoint_slices}
            assert [end.addresses for end in ends["web-1"]] == [("10.244.1.5",), ("10.244.1.6",)]
            api.ok("DELETE", "/api/v1/namespaces/default/services/web")
            while "Service default/web" not in changes.get(timeout=60):
                pass
            found = RenderedCluster(objects.read()[0], None)
            assert "default/web" not in {each.metadata.key for each in found.manifests.services}
            assert {each.metadata.key for each in found.manifests.services} == {
                each.metadata.key for each in first.manifests.services
            } - {"default/web"}
            assert listed == [("ServiceCIDR", "NetworkPolicy", "ConfigMap")], "once, and nothing that is watched"
        finally:
            objects.stop()
            client.close()


def test_a_change_is_told_and_a_server_that_goes_away_too(tmp_path: Path) -> None:
    (tmp_path / "tokens.csv").write_text(TOKENS)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(running_apiserver(tmp_path, token_file=tmp_path / "tokens.csv"))
        api = _filled(server)
        kubeconfig = str(server.kubeconfig)
        source = ClusterSource(lambda: RestClient(load_client_config(kubeconfig)), "test")
        with serving(Explorer(source)) as page, page.events() as events:
            assert next(events) == ("revision", {"revision": 1, "changed": []})
            assert page.get("api/source")["live"] is True
            api.ok("PUT", f"{SLICES}/web-1", _slice("10.244.1.5", "10.244.1.6"))
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


def test_a_capture_that_differs_is_in_the_row_of_its_place(snapshot: Path) -> None:
    _, found = followed(snapshot)
    rows = [(row.place, row.model, row.captured, row.same) for row in rows_of(found)]
    to = "10.244.1.7:20000 -> {}:80"
    assert rows == [
        ("n1 veth0 in", to.format("10.96.0.7"), to.format("10.96.0.7"), True),
        ("n1 cni0 out", to.format("10.244.1.5"), to.format("10.244.2.5"), False),
        ("n1 veth1 out", to.format("10.244.1.5"), None, False),
        ("n2 cni0 in", None, to.format("10.244.2.5"), False),
    ]
    assert not found.agrees


def test_outcome_and_agreement_are_told_apart(snapshot: Path) -> None:
    _, found = followed(snapshot)
    told = follow_answer(found)
    assert (told.end, told.agrees, told.same, told.hops, told.service) == ("lost", False, 1, 5, "shop/web")


def test_what_changed_of_a_host_is_said_in_words() -> None:
    cable, port = {"eth0": (True, ""), "cni0": (True, "")}, {"node-1": (True, "fabric"), "outside": (True, "")}
    down = {**cable, "eth0": (False, "")}
    assert changes("node-1", HostState(1, cable), HostState(1, cable)) == []
    assert changes("node-1", HostState(1, cable), HostState(2, cable)) == ["rules of node-1"]
    assert changes("node-1", HostState(1, cable), HostState(1, down)) == ["the link of node-1 is down"]
    assert changes("node-1", HostState(1, down), HostState(2, cable)) == [
        "rules of node-1",
        "the link of node-1 is up",
    ]
    more = {**cable, "veth1": (True, "cni0")}
    assert changes("node-1", HostState(1, cable), HostState(1, more)) == ["interfaces of node-1"]
    pulled = {**port, "node-1": (False, "fabric")}
    assert changes("fabric", HostState(1, port), HostState(1, pulled)) == ["the link of node-1 is down"]
    assert changes("node-1", None, HostState(1, cable)) == ["host node-1"]
