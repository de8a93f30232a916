"""deploy/chart: what it renders is what the kustomizations do, and what its values change.

Rendered by tests/support/charts.py, which is not Helm (it says what it knows).
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kproxy import __version__
from kproxy.api.kubeproxyconfig.decode import load_config
from kproxy.apiserver import running_apiserver
from kproxy.client import ApiError, RestClient
from kproxy.client.config import load_client_config
from tests.support import paths
from tests.support.charts import TemplateError, render_chart, render_file

DEPLOY = paths.ROOT / "deploy"
CHART = DEPLOY / "chart"
OVERLAY = {"proxy": {"enabled": False}, "overlay": {"enabled": True}}


def kustomized(directory: Path) -> dict[tuple[str, str], Any]:
    built = subprocess.run(["kubectl", "kustomize", str(directory)], capture_output=True, text=True, check=True)
    return by_name(list(yaml.safe_load_all(built.stdout)))


def by_name(objects: list[dict[str, Any]]) -> dict[tuple[str, str], Any]:
    found = {(each["kind"], each["metadata"]["name"]): each for each in objects}
    assert len(found) == len(objects)
    return found


def rendered(values: dict[str, Any] | None = None, namespace: str = "kube-system") -> dict[tuple[str, str], Any]:
    return by_name(render_chart(CHART, values, namespace=namespace))


def test_the_default_values_render_the_kustomization_object_by_object() -> None:
    chart, kustomization = rendered(), kustomized(DEPLOY)
    assert chart.keys() == kustomization.keys()
    for name, expected in kustomization.items():
        assert chart[name] == expected, name


def test_the_overlay_is_its_kustomization_and_both_are_both() -> None:
    overlay = kustomized(DEPLOY / "overlay")
    assert rendered(OVERLAY) == overlay
    assert rendered({"overlay": {"enabled": True}}) == kustomized(DEPLOY) | overlay


def test_every_object_follows_the_release_and_the_image() -> None:
    values = {
        "image": {"repository": "registry.example/kproxy", "tag": "1.2.3", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "pull"}],
        "overlay": {"enabled": True},
    }
    found = rendered(values, namespace="networking")
    for (kind, _), each in found.items():
        if kind == "ClusterRoleBinding":
            assert each["subjects"][0]["namespace"] == "networking"
        assert each["metadata"].get("namespace") == (None if kind.startswith("Cluster") else "networking")
    pods = [each["spec"]["template"]["spec"] for (kind, _), each in found.items() if kind == "DaemonSet"]
    assert len(pods) == 2
    for pod in pods:
        assert pod["imagePullSecrets"] == [{"name": "pull"}]
        for container in (*pod["initContainers"], *pod["containers"]):
            assert (container["image"], container["imagePullPolicy"]) == ("registry.example/kproxy:1.2.3", "Always")


def test_values_of_the_proxy_reach_its_configuration(tmp_path: Path) -> None:
    proxy = {
        "mode": "nftables",
        "clusterCIDR": "10.1.0.0/16,fd00:1::/56",
        "server": "https://192.0.2.1:6443",
        "config": {"nodePortAddresses": ["primary"], "nftables": {"masqueradeAll": True}},
        "resources": {},
    }
    found = rendered({"proxy": proxy})
    files = found["ConfigMap", "kproxy"]["data"]
    (tmp_path / "config.conf").write_text(files["config.conf"])
    loaded = load_config(str(tmp_path / "config.conf"))
    assert loaded.warnings == ()
    assert (loaded.config.mode, loaded.config.cluster_cidr) == ("nftables", "10.1.0.0/16,fd00:1::/56")
    assert list(loaded.config.node_port_addresses) == ["primary"]
    assert loaded.config.nftables.masquerade_all
    assert yaml.safe_load(files["kubeconfig.conf"])["clusters"][0]["cluster"]["server"] == "https://192.0.2.1:6443"


def test_values_of_the_overlay_reach_both_of_its_containers() -> None:
    options = {"options": ["--mtu=1400"], "apiServerHost": "192.0.2.1", "apiServerPort": "6443"}
    pod = rendered({"overlay": {"enabled": True, **options}})["DaemonSet", "kproxy-overlay"]["spec"]["template"]["spec"]
    containers = (*pod["initContainers"], *pod["containers"])
    assert len(containers) == 2
    for container in containers:
        assert container["args"][-1] == "--mtu=1400"
        environment = {each["name"]: each.get("value") for each in container["env"]}
        assert environment["KUBERNETES_SERVICE_HOST"] == "192.0.2.1"
        assert environment["KUBERNETES_SERVICE_PORT"] == "6443"


def test_the_chart_is_of_this_version_and_its_notes_render() -> None:
    metadata = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (metadata["apiVersion"], metadata["version"], metadata["appVersion"]) == ("v2", __version__, __version__)
    notes = CHART / "templates" / "NOTES.txt"
    assert "daemonset/kproxy-overlay" not in render_file(notes, CHART, namespace="kube-system")
    assert "daemonset/kproxy-overlay" in render_file(notes, CHART, OVERLAY, namespace="kube-system")


@pytest.mark.parametrize(
    "text",
    [
        "{{ .Values.nothing }}", "{{ include \"name\" . }}", "{{ if .Values.proxy }}", "{{ end }}",
        "{{ with .Values.image }}{{ .Values.proxy }}{{ end }}", "{{ .Values.image }}", "{{ nindent 2 }}", "{{ $x }}",
        "{{ if .Values.proxy }}{{ else }}{{ end }}", "{{ $.Values.proxy.mode }}", "{{ .Release.Name -}} a",
        "{{/* a comment */}}", "{{ quote \"a\" }}", "{{ .Release.Name | indent 2 }}",
    ],
)  # fmt: skip
def test_the_renderer_refuses_what_it_does_not_know(text: str, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(TemplateError, match=r"^bad\.yaml: "):
        render_file(tmp_path / "bad.yaml", CHART, namespace="kube-system")


PATHS = {
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "ConfigMap": "/api/v1/namespaces/kube-system/configmaps",
    "DaemonSet": "/apis/apps/v1/namespaces/kube-system/daemonsets",
    "ServiceAccount": "/api/v1/namespaces/kube-system/serviceaccounts",
}


def test_every_object_passes_strict_validation(tmp_path: Path) -> None:
    """As kubectl --validate=strict --dry-run=server of today asks it: no field that the API does not know, or twice."""
    everything = {
        "image": {"pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "pull"}],
        "overlay": {"enabled": True, "options": ["--mtu=1400"], "apiServerHost": "192.0.2.1", "apiServerPort": "6443"},
    }
    strict = {"dryRun": "All", "fieldValidation": "Strict"}
    with running_apiserver(tmp_path) as server:
        client = RestClient(load_client_config(str(server.kubeconfig)))
        for found in (kustomized(DEPLOY), kustomized(DEPLOY / "overlay"), rendered(everything)):
            for (kind, _), each in found.items():
                answer = client.raw("POST", PATHS[kind], query=strict, body=json.dumps(each).encode())
                assert (answer.status, answer.headers.get("Warning")) == (201, None)
        wrong = rendered()["DaemonSet", "kproxy"]
        wrong["spec"]["template"]["spec"]["hostNetwrok"] = True
        with pytest.raises(ApiError, match="hostNetwrok"):
            client.raw("POST", PATHS["DaemonSet"], query=strict, body=json.dumps(wrong).encode())
        client.close()
