"""The objects of a snapshot, from kproxy's own API server."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from kproxy.apiserver.testing import running_apiserver
from kproxy.cli.collect import command
from kproxy.client import RestClient, load_client_config
from kproxy.client.resources import Resource, dynamic_resource
from kproxy.cluster.snapshot.cluster import read_snapshot
from kproxy.collect.write import WriteError

POD: dict[str, Any] = {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "cart-0", "namespace": "default"},
    "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i", "env": [{"name": "P", "value": "hidden"}]}]},
}  # fmt: skip
CONFIG: dict[str, Any] = {
    "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kube-proxy", "namespace": "kube-system"},
    "data": {
        "config.conf": "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\n",
        "kubeconfig.conf": "hidden",
    },
}  # fmt: skip


def test_objects_come_from_the_server_without_what_may_be_secret(tmp_path: Path) -> None:
    with running_apiserver(tmp_path) as server:
        client = RestClient(load_client_config(str(server.kubeconfig)))
        client.create(dynamic_resource("", "v1", "pods", True), POD)
        client.create(dynamic_resource("", "v1", "configmaps", True), CONFIG, "kube-system")
        client.create(
            dynamic_resource("", "v1", "secrets", True),
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"p": "hidden"}},
        )
        client.close()
        arguments = ["--kubeconfig", str(server.kubeconfig), "-o", str(tmp_path / "s")]
        done = CliRunner().invoke(command, arguments)
        refused = CliRunner().invoke(command, arguments)
        redacted = CliRunner().invoke(command, [*arguments[:-1], str(tmp_path / "r"), "--redact"])
    assert done.exit_code == 0, done.output
    assert done.output.endswith(f"{tmp_path}/s\n")
    assert isinstance(refused.exception, WriteError)
    found = read_snapshot(tmp_path / "s")
    assert found.info.via == "none"
    assert found.info.server_version.startswith("v1.36")
    assert list(found.pods) == ["default/cart-0"]
    assert found.proxy_config is not None
    assert found.proxy_config.mode == "nftables"
    texts = [path.read_text() for path in (tmp_path / "s").rglob("*.json")]
    assert not any("hidden" in text for text in texts)
    assert redacted.exit_code == 0, redacted.output
    assert list(read_snapshot(tmp_path / "r").pods) == ["default/pod-1"]
    assert not any("cart-0" in path.read_text() for path in (tmp_path / "r").rglob("*.json"))
    gone = CliRunner().invoke(command, [*arguments[:-1], str(tmp_path / "t")])
    assert gone.exit_code == 1
    assert "cannot reach the server" in gone.output
    assert not (tmp_path / "t").exists()


def test_network_policies_are_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """kproxy's own server has none, which is no failure; another's are listed, and their number survives redaction."""
    policy = {
        "metadata": {"name": "deny-cart", "namespace": "shop"},
        "spec": {"podSelector": {"matchLabels": {"a": "b"}}},
    }
    plain = RestClient.list

    def listed(self: RestClient, resource: Resource[Any], *args: Any, **given: Any) -> Any:
        if resource.plural == "networkpolicies":
            return SimpleNamespace(items=[SimpleNamespace(raw=policy)])
        return plain(self, resource, *args, **given)

    with running_apiserver(tmp_path) as server:
        arguments = ["--kubeconfig", str(server.kubeconfig), "-o"]
        monkeypatch.setattr(RestClient, "list", listed)
        done = CliRunner().invoke(command, [*arguments, str(tmp_path / "s")])
        redacted = CliRunner().invoke(command, [*arguments, str(tmp_path / "r"), "--redact"])
    assert (done.exit_code, redacted.exit_code) == (0, 0), done.output + redacted.output
    for name in ("s", "r"):
        assert read_snapshot(tmp_path / name).manifests.skipped["networking.k8s.io/v1/NetworkPolicy"] == 1
    assert "cart" not in (tmp_path / "r/objects/NetworkPolicy.json").read_text()
