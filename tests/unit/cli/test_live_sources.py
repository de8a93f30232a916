"""Commands that take a cluster from an API server: the same answers as from manifests of the same objects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.apiserver.server import Api
from tests.support.apiserver.server import shared as shared
from tests.support.cli import Run
from tests.support.client.kubeconfig import kubeconfig

CONFIG = """\
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clusterCIDR: 10.244.0.0/16
mode: ""
"""
LISTS = (
    "/api/v1/services",
    "/api/v1/nodes",
    "/apis/discovery.k8s.io/v1/endpointslices",
    "/apis/networking.k8s.io/v1/servicecidrs",
)

NFT_MODE = ("render", "--node", "n2", "--mode", "nftables")
TO_WEB = ("trace", "--node", "n1", "--from", "pod/shop/cart-0", "--to", "svc/default/web")


def _service(name: str, address: str) -> dict[str, Any]:
    spec = {"clusterIP": address, "ports": [{"port": 80, "targetPort": 8080}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def _slice(name: str, address: str) -> dict[str, Any]:
    pod = {"kind": "Pod", "name": f"{name}-0"}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": f"{name}-1", "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "nodeName": "n1", "conditions": {"ready": True}, "targetRef": pod}],
        "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
    }


@pytest.fixture(scope="module")
def cluster(shared: Api) -> Api:
    for name in ("n1", "n2"):
        node = shared.ok("POST", "/api/v1/nodes", {"metadata": {"name": name}, "spec": {"podCIDR": "10.244.1.0/24"}})
        node["status"] = {"addresses": [{"type": "InternalIP", "address": f"192.168.0.{name[1]}"}]}
        shared.ok("PUT", f"/api/v1/nodes/{name}/status", node)
    for namespace in ("shop", "kube-system"):
        if shared("GET", f"/api/v1/namespaces/{namespace}")[0] == 404:
            shared.ok("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    for namespace, name, address in (("default", "web", "10.96.0.50"), ("shop", "cart", "10.96.0.51")):
        shared.ok("POST", f"/api/v1/namespaces/{namespace}/services", _service(name, address))
        endpoint = address.replace("10.96.0", "10.244.1")
        path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        shared.ok("POST", path, _slice(name, endpoint))
    config = {"metadata": {"name": "kube-proxy"}, "data": {"config.conf": CONFIG}}
    shared.ok("POST", "/api/v1/namespaces/kube-system/configmaps", config)
    return shared


@pytest.fixture
def files(cluster: Api, tmp_path: Path) -> tuple[str, ...]:
    """The same objects and configuration as files, as options."""
    items = [item for path in LISTS for item in _items(cluster, path)]
    (tmp_path / "objects.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    (tmp_path / "config.yaml").write_text(CONFIG)
    return ("-f", "objects.json", "--config", "config.yaml")


def _items(api: Api, path: str) -> list[dict[str, Any]]:
    found = api.ok("GET", path)
    return [
        item | {"apiVersion": found["apiVersion"], "kind": found["kind"].removesuffix("List")}
        for item in found["items"]
    ]


@pytest.fixture
def live(cluster: Api) -> tuple[str, ...]:
    return ("--kubeconfig", str(cluster.server.kubeconfig))


@pytest.mark.parametrize(
    "command",
    [
        ("render", "--node", "n1"),
        NFT_MODE,
        ("render", "--node", "n1", "-n", "shop"),
        ("explain", "--node", "n1", "--service", "shop/cart"),
        ("explain", "--node", "n1", "-n", "shop", "--service", "cart", "-o", "json"),
        TO_WEB,
        ("trace", "--node", "n1", "-n", "shop", "--from", "pod/cart-0", "--to", "svc/cart", "-o", "json"),
    ],
    ids=" ".join,
)
def test_the_answer_is_that_of_manifests(
    kproxy: Run, files: tuple[str, ...], live: tuple[str, ...], command: tuple[str, ...]
) -> None:
    done = kproxy(*command, *live)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == kproxy(*command, *files).stdout
    # To render, -n leaves the other Services out; elsewhere it is the namespace of names.
    assert "shop/cart" in done.stdout or command[0] == "trace"
    assert ("default/web" in done.stdout) == (command in (("render", "--node", "n1"), NFT_MODE, TO_WEB))


def test_a_namespace_without_services_is_said(kproxy: Run, files: tuple[str, ...], live: tuple[str, ...]) -> None:
    for source in (files, live):
        done = kproxy("render", *source, "--node", "n1", "-n", "shp")
        assert (done.returncode, done.stderr) == (0, "note: there are no Services in namespace shp\n")


def test_config_and_mode_go_before_the_config_map(kproxy: Run, live: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text(CONFIG.replace("10.244.0.0/16", "10.9.0.0/16"))
    assert "! -s 10.244.0.0/16" in kproxy("render", *live, "--node", "n1").stdout
    assert "! -s 10.9.0.0/16" in kproxy("render", *live, "--node", "n1", "--config", "other.yaml").stdout


def test_diff_and_golden(kproxy: Run, files: tuple[str, ...], live: tuple[str, ...], tmp_path: Path) -> None:
    done = kproxy("diff", "cluster:@n1", "objects.json@n1", "--config-b", "config.yaml", *live)
    assert done.returncode == 0, done.stdout + done.stderr
    done = kproxy("diff", "cluster:@n1", "cluster:@n1", "--config-b", "config.yaml", "-n", "shop", *live)
    assert done.returncode == 0, done.stdout + done.stderr
    done = kproxy("migrate", *live, "--node", "n1", "-4", "-o", "json")
    assert (done.stderr, done.stdout) == ("", kproxy("migrate", *files, "--node", "n1", "-4", "-o", "json").stdout)
    scenario = tmp_path / "prod"
    scenario.mkdir()
    (tmp_path / "objects.json").rename(scenario / "cluster.yaml")
    (tmp_path / "config.yaml").rename(scenario / "config.yaml")
    assert kproxy("golden", "update", "prod").returncode == 0
    done = kproxy("golden", "check", "prod", *live)
    assert (done.returncode, done.stderr) == (0, "1 of 1 scenarios as expected, with 0 packets\n")
    assert kproxy("golden", "check", "prod", *live, "-n", "shop").returncode == 1
    assert kproxy("golden", "check", *live).returncode == 2
    expected = {path.name: path.read_text() for path in (scenario / "expected").iterdir()}
    assert kproxy("golden", "update", "prod", *live, "-n", "shop").returncode == 0
    narrowed = {path.name: path.read_text() for path in (scenario / "expected").iterdir()}
    assert "default/web" not in "".join(narrowed.values())
    assert kproxy("golden", "check", "prod").returncode == 1
    assert kproxy("golden", "update", "prod", *live).returncode == 0
    assert {path.name: path.read_text() for path in (scenario / "expected").iterdir()} == expected
    assert kproxy("golden", "update", *live).returncode == 2


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("-f", "x.yaml"), 2, "--kubeconfig names a live cluster, and x.yaml is manifests"),
        (("--context", "nowhere"), 2, 'context "nowhere" does not exist'),
        (("--as", "bob"), 1, "services is forbidden"),
        (("--node", "n3"), 2, "'n3' is not among the Nodes"),
        (("--server", "http://127.0.0.1:1"), 1, "cannot reach the server http://127.0.0.1:1: connection refused"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_errors_are_one_line(
    kproxy: Run, live: tuple[str, ...], arguments: tuple[str, ...], code: int, said: str
) -> None:
    done = kproxy("render", *live, *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert "f" in arguments[0] or done.stderr.count("\n") == 1


def test_what_a_user_may_not_read(kproxy: Run, cluster: Api, live: tuple[str, ...], tmp_path: Path) -> None:
    """Services and Nodes, but neither ServiceCIDRs nor kube-proxy's ConfigMap."""
    rules = [
        {"apiGroups": ["", "discovery.k8s.io"], "resources": ["services", "nodes", "endpointslices"], "verbs": ["list"]}
    ]
    group = "/apis/rbac.authorization.k8s.io/v1"
    cluster.ok("POST", f"{group}/clusterroles", {"metadata": {"name": "looker"}, "rules": rules})
    binding = {
        "metadata": {"name": "looker"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "looker"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "carol"}],
    }
    cluster.ok("POST", f"{group}/clusterrolebindings", binding)
    (tmp_path / "config.yaml").write_text(CONFIG)
    options = ("--node", "n1", "--as", "carol")
    done = kproxy("render", *live, *options)
    assert (done.returncode, done.stdout) == (1, "")
    assert "configmaps" in done.stderr
    assert "--config FILE" in done.stderr
    done = kproxy("render", *live, *options, "--config", "config.yaml")
    assert done.returncode == 0
    assert "ServiceCIDRs, which nftables mode heeds, are left out" in done.stderr
    assert done.stdout == kproxy("render", *live, "--node", "n1").stdout


def test_no_config_map_is_said(kproxy: Run, cluster: Api, live: tuple[str, ...]) -> None:
    path = "/api/v1/namespaces/kube-system/configmaps"
    config = cluster.ok("GET", f"{path}/kube-proxy")
    cluster.ok("DELETE", f"{path}/kube-proxy")
    try:
        done = kproxy("render", *live, "--node", "n1")
        assert done.returncode == 0
        assert "no ConfigMap kube-system/kube-proxy" in done.stderr
    finally:
        cluster.ok("POST", path, {"metadata": {"name": "kube-proxy"}, "data": config["data"]})


def test_flags_instead_of_a_kubeconfig(
    kproxy: Run, cluster: Api, live: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    url = f"https://127.0.0.1:{cluster.server.port}"
    expected = kproxy("render", *live, "--node", "n1").stdout
    flags = ("--server", url, "--token", "admin-token", "--node", "n1")
    done = kproxy("render", *flags, "--certificate-authority", cluster.server.ca)
    assert (done.stdout, done.stderr) == (expected, "")
    assert kproxy("render", *flags, "--insecure-skip-tls-verify").stdout == expected
    assert "certificate" in kproxy("render", *flags).stderr
    other = kubeconfig(tmp_path / "other", server="https://127.0.0.1:1", user={"token": "nobody"})
    done = kproxy("render", "--kubeconfig", other, *flags, "--certificate-authority", cluster.server.ca)
    assert (done.stdout, done.stderr) == (expected, "")
    assert 'user "x" does not exist' in kproxy("render", "--kubeconfig", other, "--user", "x").stderr


def test_explain_asks_the_cluster_of_the_environment(
    kproxy: Run, cluster: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = kubeconfig(tmp_path / "own", server=f"https://127.0.0.1:{cluster.server.port}", user={"token": "nobody"})
    question = ("explain", "--service", "default/web", "--node", "n1")
    given = kproxy(*question, "--kubeconfig", own)
    monkeypatch.setenv("KUBECONFIG", str(own))
    done = kproxy(*question)
    assert "a cluster expected" not in done.stderr
    assert (done.returncode, done.stdout, done.stderr) == (given.returncode, given.stdout, given.stderr)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    done = kproxy(*question)
    assert (done.returncode, "a cluster expected" in done.stderr) == (2, False)
    assert f"{tmp_path / 'none'} does not exist" in done.stderr


def test_no_cluster_is_a_usage_error(kproxy: Run) -> None:
    done = kproxy("render")
    assert done.returncode == 2
    assert "a source expected: manifests, a snapshot, lab:NAME or cluster:CONTEXT" in done.stderr


def test_collect_takes_kubectls_flags(kproxy: Run, cluster: Api, tmp_path: Path) -> None:
    url = f"https://127.0.0.1:{cluster.server.port}"
    flags = ("--server", url, "--token", "admin-token", "--certificate-authority", cluster.server.ca)
    done = kproxy("collect", *flags, "--kubeconfig", kubeconfig(tmp_path / "kubeconfig"), "-o", "snap")
    assert (done.returncode, done.stdout) == (0, "snap\n"), done.stderr
    assert '"cart"' in (tmp_path / "snap" / "objects" / "Service.json").read_text()
    assert kproxy("collect", "--lab", "x", *flags).returncode == 2
