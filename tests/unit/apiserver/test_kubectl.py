"""Debian's kubectl as a real process: what people type."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.apiserver.server import Api
from tests.support.paths import ROOT

Kubectl = Callable[..., str]

WEB = """\
apiVersion: v1
kind: Service
metadata: {name: web, labels: {app: web}}
spec: {type: NodePort, selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: 'nginx:1.2'}]}}
"""


@pytest.fixture(scope="module")
def kubectl(shared: Api, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """Runs kubectl with the administrator's kubeconfig; its stdout, or its stderr if it must fail."""
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("needs kubectl (Debian: kubernetes-client)")
    home = tmp_path_factory.mktemp("home")

    def run(*arguments: str, stdin: str = "", fails: bool = False, **environment: str) -> str:
        command = [program, "--kubeconfig", str(shared.server.kubeconfig), *arguments]
        given = {**os.environ, "HOME": str(home), **environment}
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=180, env=given, check=False)
        assert (done.returncode != 0) is fails, (arguments, done.stdout, done.stderr)
        return done.stderr if fails else done.stdout

    run("create", "namespace", "shop")
    return run


def test_the_example_of_the_documentation_fits_a_new_cluster(kubectl: Kubectl, api: Api) -> None:
    """Its Namespace is in it."""
    out = kubectl("apply", "--kubeconfig", str(api.server.kubeconfig), "-f", str(ROOT / "docs/examples/shop.yaml"))
    assert out.splitlines()[2:4] == ["namespace/shop created", "service/web created"]
    assert {line.rpartition(" ")[2] for line in out.splitlines()} == {"created"}


def test_apply_patch_and_friends(kubectl: Kubectl, tmp_path: Path) -> None:
    out = kubectl("apply", "-n", "shop", "-f", "-", stdin=WEB)
    assert out.split() == ["service/web", "created", "deployment.apps/web", "created"]
    assert kubectl("apply", "-n", "shop", "-f", "-", stdin=WEB).count("unchanged") == 2
    assert "service/web configured" in kubectl(
        "apply", "-n", "shop", "-f", "-", stdin=WEB.replace("port: 80,", "port: 81,")
    )
    kubectl("patch", "svc", "web", "-n", "shop", "-p", '{"spec":{"sessionAffinity":"ClientIP"}}')
    kubectl(
        "patch",
        "svc",
        "web",
        "-n",
        "shop",
        "--type",
        "json",
        "-p",
        '[{"op":"add","path":"/metadata/labels/x","value":"y"}]',
    )
    kubectl("label", "svc", "web", "-n", "shop", "tier=front")
    kubectl("annotate", "svc", "web", "-n", "shop", "a=b")
    kubectl("scale", "deployment", "web", "-n", "shop", "--replicas=5")
    kubectl("expose", "deployment", "web", "-n", "shop", "--name", "web2", "--port=80")
    kubectl("edit", "svc", "web", "-n", "shop", EDITOR="sed -i s/front/back/")
    service = json.loads(kubectl("get", "svc", "web", "-n", "shop", "-o", "json"))
    assert service["metadata"]["labels"] == {"app": "web", "x": "y", "tier": "back"}
    assert (service["spec"]["ports"][0]["port"], service["spec"]["sessionAffinity"]) == (81, "ClientIP")
    table = kubectl("get", "svc,deploy", "-n", "shop")
    assert "NodePort" in table
    assert "0/5" in table
    assert kubectl("get", "svc", "-n", "shop", "--field-selector", "metadata.name=web", "-o", "name") == "service/web\n"
    assert "appProtocol" in kubectl("explain", "service.spec.ports")
    kubectl("delete", "svc", "web", "-n", "shop")
    kubectl("delete", "deployment", "web", "-n", "shop")


def test_wait_and_watch(kubectl: Kubectl, shared: Api) -> None:
    kubectl("apply", "-n", "shop", "-f", "-", stdin=WEB)
    status = {"status": {"conditions": [{"type": "Available", "status": "True"}]}}
    path = "/apis/apps/v1/namespaces/shop/deployments/web"
    shared.ok("PATCH", f"{path}/status", status, "application/merge-patch+json")
    assert "condition met" in kubectl("wait", "deploy/web", "-n", "shop", "--for=condition=Available", "--timeout=60s")
    assert "web" in kubectl("get", "svc", "-n", "shop", "-w", "--request-timeout=2s")
    kubectl("delete", "-n", "shop", "-f", "-", stdin=WEB)
    assert "NotFound" in kubectl("get", "svc", "web", "-n", "shop", fails=True)


def test_from_client_side_to_server_side_apply(kubectl: Kubectl) -> None:
    """kubectl hands over what its client-side apply owned by a JSON patch of managedFields (client-go's csaupgrade)."""
    body = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: moved}\ndata: {a: '1', b: '1'}\n"
    kubectl("apply", "-f", "-", stdin=body)
    kubectl("apply", "--server-side", "-f", "-", stdin=body.replace(", b: '1'", ""))
    value = json.loads(kubectl("get", "--raw", "/api/v1/namespaces/default/configmaps/moved"))
    if int(json.loads(kubectl("version", "--client", "-o", "json"))["clientVersion"]["minor"].rstrip("+")) < 26:
        assert value["data"] == {"a": "1", "b": "1"}, "this kubectl does not hand over"
        return
    assert value["data"] == {"a": "1"}
    owners = [(each["manager"], each["operation"]) for each in value["metadata"]["managedFields"]]
    assert ("kubectl", "Apply") in owners
    assert ("kubectl-client-side-apply", "Update") not in owners
    kubectl("apply", "--server-side", "-f", "-", stdin=body.replace("a: '1', b", "a: '2', c"))
    assert json.loads(kubectl("get", "cm", "moved", "-o", "json"))["data"] == {"a": "2", "c": "1"}


def test_a_namespace_goes_with_what_is_in_it(kubectl: Kubectl) -> None:
    kubectl("create", "namespace", "gone")
    kubectl("apply", "-n", "gone", "-f", "-", stdin=WEB)
    kubectl("delete", "namespace", "gone", "--timeout=60s")
    assert "gone" not in kubectl("get", "ns")
    assert kubectl("get", "svc", "-n", "gone", "-o", "name") == ""


@pytest.mark.slow
def test_the_rest_of_the_commands(kubectl: Kubectl) -> None:
    """Commands that go through typed clients, describers and evictions."""
    kubectl("apply", "-n", "shop", "-f", "-", stdin=WEB)
    assert kubectl("diff", "-n", "shop", "-f", "-", stdin=WEB) == ""
    kubectl("run", "p", "-n", "shop", "--image=x", "--port=80", "--labels=app=p")
    kubectl("expose", "pod", "p", "-n", "shop", "--port=80")
    for kind, name in (("svc", "web"), ("deploy", "web"), ("pod", "p"), ("ns", "shop"), ("sa", "default")):
        assert f"Name:  {' ' * 4}" in kubectl("describe", kind, name, "-n", "shop"), kind
    kubectl("set", "image", "pod/p", "p=y", "-n", "shop")
    kubectl("rollout", "restart", "deploy/web", "-n", "shop")
    assert "shop" in kubectl("get", "svc", "-A", "--sort-by=.metadata.name", "--chunk-size=1")
    kubectl("create", "-f", "-", stdin='{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"}}')
    kubectl("cordon", "n1")
    kubectl("taint", "node", "n1", "a=b:NoSchedule")
    assert "drained" in kubectl("drain", "n1", "--ignore-daemonsets", "--force")
    assert "Name:" in kubectl("describe", "node", "n1")
    assert "*.*" in kubectl("auth", "can-i", "--list")
    text = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m","labels":{"set":"x"}},"data":{"a":"%s"}}'
    kubectl("apply", "-n", "shop", "-f", "-", stdin=text % "1")
    kubectl("replace", "--force", "-n", "shop", "-f", "-", stdin=text % "2")
    assert kubectl("get", "cm", "m", "-n", "shop", "-o", "jsonpath={.data.a}") == "2"
    for kind in ("svc", "pods", "nodes", "cm", "events", "crd", "clusterroles"):
        assert not re.search(r"\b[Ee]rror\b", kubectl("get", kind, "-A", "-o", "wide")), kind
    kubectl("delete", "pod", "p", "-n", "shop", "--grace-period=0", "--force")
    kubectl("delete", "all", "--all", "-n", "shop")
    kubectl("delete", "cm", "--all", "-n", "shop")
    kubectl("delete", "node", "n1")
