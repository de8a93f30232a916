"""deploy/ against the API's schema, the API server's RBAC and kproxy itself."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from kproxy.agent.sources.apiserver import ApiSource, MeteredHttpClient, RequestLog
from kproxy.agent.status.metrics import Metrics
from kproxy.api.kubeproxyconfig.decode import load_config
from kproxy.api.kubeproxyconfig.types import KubeProxyConfiguration
from kproxy.api.types.core import Node, Service
from kproxy.api.types.discovery import EndpointSlice
from kproxy.apiserver import RunningServer, running_apiserver
from kproxy.client import RestClient
from kproxy.client.config import load_client_config
from kproxy.client.http import Stream
from tests.support import paths
from tests.support.agent.recorded_http import parse_metrics
from tests.support.waiting import PATIENCE

ROOT = paths.ROOT
DEPLOY = ROOT / "deploy"
MOUNTED = "/var/lib/kproxy"
TOKENS = 'admin-token,admin,uid1,"system:masters"\n'
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web"},
    "spec": {"ports": [{"port": 80}]},
}
SLICE = {
    "apiVersion": "discovery.k8s.io/v1",
    "kind": "EndpointSlice",
    "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
    "addressType": "IPv4",
    "endpoints": [{"addresses": ["10.244.0.5"]}],
}
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-0"}}


def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, input=stdin, capture_output=True, text=True, timeout=180)


@pytest.fixture(scope="module")
def objects() -> dict[str, Any]:
    """What `kubectl apply -k deploy/` would send, by kind."""
    built = run("kubectl", "kustomize", str(DEPLOY))
    assert built.returncode == 0, built.stderr
    found = {each["kind"]: each for each in yaml.safe_load_all(built.stdout)}
    assert sorted(found) == ["ClusterRole", "ClusterRoleBinding", "ConfigMap", "DaemonSet", "ServiceAccount"]
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """An API server that has taken deploy/, and would take deploy/overlay: every field known and valid."""
    directory = tmp_path_factory.mktemp("apiserver")
    (directory / "tokens.csv").write_text(TOKENS)
    with running_apiserver(directory, token_file=directory / "tokens.csv") as found:
        for more in ((), ("--server-side", "--force-conflicts")):
            done = kubectl(found, "apply", "--validate=true", *more, "-k", str(DEPLOY))
            assert done.returncode == 0, done.stderr
            assert done.stderr == ""
            assert len(done.stdout.splitlines()) == 5
        overlay = kubectl(found, "apply", "--validate=true", "--dry-run=server", "-k", str(DEPLOY / "overlay"))
        assert (overlay.returncode, overlay.stderr) == (0, "")
        yield found


def kubectl(server: RunningServer, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    program = shutil.which("kubectl")
    assert program, "scripts/setup.sh installs kubectl"
    return run(program, "--kubeconfig", str(server.kubeconfig), *arguments, stdin=stdin)


def test_strict_validation_would_notice(server: RunningServer) -> None:
    """The check above can fail: a field that nobody knows is refused, and so is a wrong value."""
    text = (DEPLOY / "daemonset.yaml").read_text()
    for wrong, stderr in (
        (text.replace("hostNetwork:", "hostNetwrok:"), "hostNetwrok"),
        (text.replace("periodSeconds: 30", "periodSeconds: often"), "periodSeconds"),
        (text.replace("matchLabels: {app.kubernetes.io/name: kproxy}", "matchLabels: {app: other}"), "selector"),
    ):
        assert wrong != text
        done = kubectl(server, "apply", "--validate=true", "--dry-run=server", "-f", "-", stdin=wrong)
        assert done.returncode != 0
        assert stderr in done.stderr


def _within(wanted: Any, found: Any, path: str = "") -> list[str]:
    """Where `found` lacks something of `wanted`."""
    if isinstance(wanted, dict):
        return [place for key, value in wanted.items() for place in _within(value, found.get(key), f"{path}.{key}")]
    if isinstance(wanted, list):
        assert len(wanted) == len(found), path
        return [place for i, value in enumerate(wanted) for place in _within(value, found[i], f"{path}[{i}]")]
    return [] if wanted == found else [f"{path}: {wanted!r} is {found!r}"]


@pytest.fixture(scope="module")
def mounted(objects: Mapping[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ConfigMap's files as a Pod has them."""
    directory = tmp_path_factory.mktemp("config")
    for name, text in objects["ConfigMap"]["data"].items():
        (directory / name).write_text(text)
    return directory


def test_the_configuration_decodes_without_a_remark(mounted: Path) -> None:
    loaded = load_config(str(mounted / "config.conf"))
    assert loaded.warnings == ()
    assert loaded.config.mode == "iptables"
    assert loaded.config.client_connection.kubeconfig == f"{MOUNTED}/kubeconfig.conf"
    defaults = KubeProxyConfiguration()
    assert loaded.config.healthz_bind_address == defaults.healthz_bind_address
    assert loaded.config.metrics_bind_address == defaults.metrics_bind_address


def test_the_containers_commands_are_kproxys(objects: Mapping[str, Any], mounted: Path) -> None:
    """The arguments parse, and lead to the mounted configuration."""
    pod = objects["DaemonSet"]["spec"]["template"]["spec"]
    for container in (*pod["initContainers"], *pod["containers"]):
        assert {"name": "config", "mountPath": MOUNTED, "readOnly": True} in container["volumeMounts"]
        arguments = [
            each.replace(MOUNTED, str(mounted)).replace("$(NODE_NAME)", "node-0") for each in container["args"]
        ]
        command, options = arguments[0], arguments[1:]
        assert command == "run"
        assert "--yes" not in options, "kube-proxy's own invocation in a Pod is consent"
        written = mounted / "written.yaml"
        done = run(str(ROOT / ".venv/bin/kproxy"), command, *options, "--write-config-to", str(written))
        assert (done.returncode, done.stderr) == (0, "")
        assert yaml.safe_load(written.read_text())["clusterCIDR"] == "10.244.0.0/16"
    assert "--init-only" in pod["initContainers"][0]["args"]


def test_the_pod_fits_together(objects: Mapping[str, Any], mounted: Path) -> None:
    spec = objects["DaemonSet"]["spec"]
    pod = spec["template"]["spec"]
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    assert pod["serviceAccountName"] == objects["ServiceAccount"]["metadata"]["name"]
    assert pod["volumes"][0]["configMap"]["name"] == objects["ConfigMap"]["metadata"]["name"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    containers = (*pod["initContainers"], *pod["containers"])
    assert {mount["name"] for container in containers for mount in container["volumeMounts"]} == volumes
    assert {container["image"] for container in containers} == {f"kproxy:{_version()}"}
    config = load_config(str(mounted / "config.conf")).config
    health_port = int(config.healthz_bind_address.rpartition(":")[2])
    proxy = pod["containers"][0]
    probes = {probe: proxy[probe]["httpGet"] for probe in ("livenessProbe", "readinessProbe")}
    assert probes == {
        "livenessProbe": {"path": "/livez", "port": health_port},
        "readinessProbe": {"path": "/healthz", "port": health_port},
    }
    assert not proxy["securityContext"].get("privileged")


def _version() -> str:
    from kproxy import __version__

    return __version__


class Recorder(MeteredHttpClient):
    """Remembers what was asked for, as RBAC sees it: verb, group, resource."""

    asked: set[tuple[str, str, str]]
    # An older server refuses streaming lists, and the client lists then.
    refuse_streaming_lists = False

    def stream(self, method: str, target: str, **options: Any) -> Stream:
        parts = urlsplit(target)
        found = re.fullmatch(r"/(?:api/v1|apis/([^/]+)/[^/]+)/([^/]+)", parts.path)
        assert found is not None, target
        assert method == "GET"
        verb = "watch" if parse_qs(parts.query).get("watch") == ["true"] else "list"
        self.asked.add((verb, found[1] or "", found[2]))
        if self.refuse_streaming_lists:
            target = target.replace("resourceVersionMatch=NotOlderThan", "resourceVersionMatch=Exact")
        return super().stream(method, target, **options)


class Collected:
    """A sink that remembers keys."""

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self.changed = threading.Condition()

    def put_service(self, key: str, service: Service | None) -> None:
        self._put(f"Service {key}")

    def put_slice(self, key: str, endpoint_slice: EndpointSlice | None) -> None:
        self._put(f"EndpointSlice {key}")

    def put_service_cidr(self, key: str, service_cidr: object) -> None: ...

    def put_node(self, node: Node | None) -> None:
        self._put(f"Node {node.metadata.name if node else ''}")

    def _put(self, key: str) -> None:
        with self.changed:
            self.keys.add(key)
            self.changed.notify_all()

    def wait_for(self, *keys: str) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: set(keys) <= self.keys, PATIENCE), self.keys


@pytest.fixture
def client(server: RunningServer, objects: Mapping[str, Any], tmp_path: Path) -> RestClient:
    """A client as the Pod has it: the ConfigMap's kubeconfig, the ServiceAccount's token."""
    path = "/api/v1/namespaces/kube-system/serviceaccounts/kproxy/token"
    token = kubectl(server, "create", "--raw", path, "-f", "-", stdin='{"spec": {}}')
    assert token.returncode == 0, token.stderr
    (tmp_path / "token").write_text(json.loads(token.stdout)["status"]["token"])
    text = objects["ConfigMap"]["data"]["kubeconfig.conf"]
    account = "/var/run/secrets/kubernetes.io/serviceaccount"
    text = text.replace("https://control-plane.example:6443", f"https://127.0.0.1:{server.port}")
    text = text.replace(f"{account}/ca.crt", str(server.ca)).replace(f"{account}/token", str(tmp_path / "token"))
    assert account not in text
    (tmp_path / "kubeconfig.conf").write_text(text)
    return RestClient(load_client_config(str(tmp_path / "kubeconfig.conf")))


def test_the_role_allows_what_the_agent_does_and_no_more(
    server: RunningServer, objects: Mapping[str, Any], client: RestClient
) -> None:
    """The agent's own source lists and watches with the ServiceAccount's token; its requests are the role's rules."""
    metrics = Metrics()
    client.http = recorder = Recorder(client.config, RequestLog(metrics))
    recorder.asked = set()
    for recorder.refuse_streaming_lists in (False, True):
        sink, synced = Collected(), threading.Event()
        source = ApiSource(client, "node-0", sink, synced.set)
        source.start()
        try:
            assert synced.wait(PATIENCE), source.describe_waiting()
            for each in (SERVICE, SLICE, NODE):  # what comes later comes by watches
                done = kubectl(server, "apply", "-f", "-", stdin=json.dumps(each))
                assert done.returncode == 0, done.stderr
            sink.wait_for("Service default/web", "EndpointSlice default/web-1", "Node node-0")
        finally:
            source.stop()
    granted = {
        (verb, group, resource)
        for rule in objects["ClusterRole"]["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    # In nftables mode the agent asks for ServiceCIDRs too.
    assert granted - recorder.asked == {(verb, "networking.k8s.io", "servicecidrs") for verb in ("list", "watch")}
    assert recorder.asked <= granted
    assert all(set(rule) == {"verbs", "apiGroups", "resources"} for rule in objects["ClusterRole"]["rules"])
    counted = parse_metrics(metrics.text())
    codes = {dict(labels)["code"] for _, labels in counted["rest_client_requests_total"].samples}
    assert codes == {"200", "422"}  # the latter is the refused streaming list
    assert counted["rest_client_request_duration_seconds"].buckets()[0] == "0.005"


PACKAGES = {"conntrack": "conntrack", "nft": "nftables"}
"""Debian's packages of the programs that kproxy looks for by name."""


def test_the_image_has_what_kproxy_runs() -> None:
    """Every source exists, is not kept out by the ignore file, and every tool that kproxy starts is installed."""
    text = (DEPLOY / "Dockerfile").read_text()
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    for line in re.findall(r"^COPY (?:--chmod=\d+ )?(?!--)(.*)$", text, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists()
            assert f"!{source}" in ignored
    final = text.rpartition("\nFROM ")[2]
    installed = re.findall(r"install -y --no-install-recommends (.*?) \\", final)[0].split()
    sources = [path.read_text() for path in (ROOT / "kproxy" / "linux").rglob("*.py")]
    looked_for = {name for source in sources for name in re.findall(r'find_program\("([^"]+)"\)', source)}
    assert looked_for == PACKAGES.keys()
    assert {"iptables", "iproute2", "kmod", "python3", *PACKAGES.values()} <= set(installed)
    assert 'ENTRYPOINT ["/opt/kproxy/bin/kproxy"]' in final
    assert "HEALTHCHECK" in final


def test_the_image_is_an_ordinary_users_and_the_manifests_say_who_is_root() -> None:
    """Capabilities in a container are root's only; what the image does without a node needs none."""
    user = re.findall(r"^USER (\d+):(\d+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert user == [("65532", "65532")]
    for text in ((DEPLOY / name).read_text() for name in ("daemonset.yaml", "overlay/daemonset.yaml")):
        pod = yaml.safe_load(text)["spec"]["template"]["spec"]
        assert pod["securityContext"] == {"runAsUser": 0, "runAsGroup": 0}
