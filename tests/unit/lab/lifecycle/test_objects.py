"""Applying manifests: what a usual folder holds, what is not served, and what only is stored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kproxy.apiserver.kinds.resources import built_in
from kproxy.client import RestClient, discover, load_client_config
from kproxy.lab.errors import LabInputError
from kproxy.lab.lifecycle.manifests import read_manifests
from kproxy.lab.lifecycle.objects import INERT, apply_manifests
from kproxy.lab.resources import KINDS
from kproxy.testing import api_server
from tests.support.paths import ROOT

SHOP = ROOT / "tests" / "support" / "lab" / "shop"


@pytest.fixture(scope="module")
def client() -> Iterator[RestClient]:
    with api_server() as server:
        found = RestClient(load_client_config(str(server.kubeconfig)))
        yield found
        found.close()


def test_a_usual_folder(client: RestClient) -> None:
    """Custom resources come before their definition in it, and RBAC after what needs it."""
    told: list[str] = []
    done = apply_manifests(client, read_manifests([str(SHOP)]), told.append)
    assert set(done) >= {
        "namespace/shop", "customresourcedefinition/widgets.example.com", "widget/one", "ingress/web", "secret/web",
        "poddisruptionbudget/web", "horizontalpodautoscaler/web", "networkpolicy/web", "statefulset/db", "job/migrate",
        "cronjob/backup", "rolebinding/web", "persistentvolumeclaim/files",
    }  # fmt: skip
    skipped = [line.removeprefix(f"{SHOP}/") for line in told if "skipped" in line]
    assert skipped == [
        "edge.yaml: document 5: line 27: items[0]: skipped: no lab serves batch/v1beta1/CronJob; batch/v1 is",
        "edge.yaml: document 5: line 31: items[1] (and 1 more): skipped: no lab serves "
        "monitoring.coreos.com/v1/ServiceMonitor",
        "kustomization.yaml: document 1: line 1: skipped: no lab serves kustomize.config.k8s.io/v1beta1/Kustomization; "
        "`kubectl kustomize DIRECTORY | kproxy lab up -f -` applies what it makes",
    ]
    stored = {line.partition(" is stored")[0].rpartition(" ")[2]: line for line in told if "is stored" in line}
    assert stored.keys() >= {
        "CronJob", "HorizontalPodAutoscaler", "Ingress", "NetworkPolicy", "PersistentVolumeClaim",
        "PodDisruptionBudget", "Widget",
    }  # fmt: skip
    assert not stored.keys() & {"Deployment", "Service", "StatefulSet", "ConfigMap", "Role", "ServiceAccount"}
    assert stored["Ingress"].removeprefix(f"{SHOP}/") == (
        "edge.yaml: document 1: line 1: Ingress is stored and not acted on: no ingress controller runs here"
    )
    again: list[str] = []
    assert apply_manifests(client, read_manifests([str(SHOP)]), again.append) == done
    assert again == told


def test_every_refusal_is_told_with_its_place(client: RestClient, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        "{apiVersion: v1, kind: Service, metadata: {name: A}}\n---\n"
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: none}}\n"
    )
    with pytest.raises(LabInputError) as raised:
        apply_manifests(client, read_manifests([str(path)]), lambda _text: None)
    second, first = str(raised.value).splitlines()
    assert first.startswith(f"{path}: document 1: line 1: Service ")
    assert second == f'{path}: document 2: line 3: namespaces "none" not found'


def test_what_is_only_stored_is_served_and_no_controllers(client: RestClient) -> None:
    served = {(each.group, each.kind) for each in discover(client)}
    assert INERT.keys() <= served
    assert served >= {(each.group, each.kind) for each in built_in() if each.stored}
    assert not {kind for _, kind in INERT} & KINDS.keys(), "what has a controller is acted on"
