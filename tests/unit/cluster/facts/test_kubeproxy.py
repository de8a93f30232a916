"""kube-proxy's ConfigMap, wherever it is looked for."""

from __future__ import annotations

import pytest

from kproxy.cluster.facts.kubeproxy import config_text
from kproxy.collect.prune import pruned


@pytest.mark.parametrize(("name", "key"), [("kube-proxy", "config.conf"), ("kube-proxy-config", "config")])
def test_kubeadms_and_eks(name: str, key: str) -> None:
    data = {key: "mode: nftables\n", "kubeconfig.conf": "hidden"}
    assert config_text(name, data) == (f"ConfigMap kube-system/{name}, {key}", b"mode: nftables\n")
    kept = pruned({"kind": "ConfigMap", "metadata": {"name": name, "namespace": "kube-system"}, "data": data})
    assert kept is not None
    assert kept["data"] == {key: "mode: nftables\n"}


@pytest.mark.parametrize(
    ("name", "data"),
    [("other", {"config.conf": "a"}), ("kube-proxy", {}), ("kube-proxy", None), (None, {"config": "a"})],
)
def test_what_has_none(name: object, data: object) -> None:
    assert config_text(name, data) is None
