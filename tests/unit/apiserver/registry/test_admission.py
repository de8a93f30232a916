"""Admission plugins that complete new objects, and how they are switched off (specs: kubernetes/kubernetes)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, product
from pathlib import Path
from typing import Any

import pytest

from kproxy.apiserver import running_apiserver
from kproxy.apiserver.registry.admission import PLUGINS, parse_plugins
from kproxy.errors import InputError
from tests.support.apiserver.server import TOKENS, Api

MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
NUMBERS = count()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A server with every plugin."""
    directory = tmp_path_factory.mktemp("apiserver")
    (directory / "tokens.csv").write_text(TOKENS)
    with running_apiserver(directory, token_file=directory / "tokens.csv", disabled_plugins=frozenset()) as server:
        yield Api(server)


@pytest.fixture
def place(shared: Api) -> str:
    """The path of a new namespace that has its ServiceAccount."""
    path = f"/api/v1/namespaces/admission-{next(NUMBERS)}"
    shared.ok("POST", "/api/v1/namespaces", {"metadata": {"name": path.rpartition("/")[2]}})
    shared.eventually(f"{path}/serviceaccounts/default", lambda got: got["kind"] == "ServiceAccount")
    return path


def pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i:1"}], **spec}}


def refused(api: Api, path: str, body: Any) -> str:
    status, answer = api("POST", path, body)
    assert (status, answer["reason"]) == (403, "Forbidden")
    return str(answer["message"]).partition("forbidden: ")[2]


def test_automounted_tokens(shared: Api, place: str) -> None:
    """Spec: ServiceAccounts should allow opting out of API token automount."""
    accounts = {"default": None, "mounts": True, "none": False}
    for name in ("mounts", "none"):
        body = {"metadata": {"name": name}, "automountServiceAccountToken": accounts[name]}
        shared.ok("POST", f"{place}/serviceaccounts", body)
    for (name, theirs), mine in product(accounts.items(), (None, True, False)):
        spec: Any = {"serviceAccountName": name} | ({} if mine is None else {"automountServiceAccountToken": mine})
        made = shared.ok("POST", f"{place}/pods", pod(f"{name}-{mine}".lower(), **spec))["spec"]
        mounts = [each["mountPath"] for each in made["containers"][0].get("volumeMounts") or ()]
        wanted = mine if mine is not None else theirs is not False
        assert mounts == ([MOUNT] if wanted else []), (name, mine)
        assert bool(made.get("volumes")) == wanted


def test_the_volume_of_a_token(shared: Api, place: str) -> None:
    own = {"name": "c", "image": "i:1", "volumeMounts": [{"name": "v", "mountPath": MOUNT}]}
    spec: Any = {"containers": [own, {"name": "d", "image": "i:1"}], "volumes": [{"name": "v", "emptyDir": {}}]}
    shared.ok("PATCH", f"{place}/serviceaccounts/default", {"imagePullSecrets": [{"name": "pull"}]},
              "application/merge-patch+json")  # fmt: skip
    made = shared.ok("POST", f"{place}/pods", pod(**spec))
    volume = made["spec"]["volumes"][1]
    assert volume["name"].startswith("kube-api-access-")
    assert volume["projected"] == {
        "defaultMode": 420,
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [
                {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
            ]}},
        ],
    }  # fmt: skip
    mounts = [each["volumeMounts"] for each in made["spec"]["containers"]]
    assert mounts == [own["volumeMounts"], [{"name": volume["name"], "readOnly": True, "mountPath": MOUNT}]]
    assert made["spec"]["serviceAccountName"] == made["spec"]["serviceAccount"] == "default"
    assert made["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    assert "serviceAccount" not in str(made["metadata"]["managedFields"])
    assert shared.ok("PUT", f"{place}/pods/p", made) == made


def test_an_account_that_is_not_there(shared: Api, place: str) -> None:
    name = place.rpartition("/")[2]
    why = f'error looking up service account {name}/other: serviceaccount "other" not found'
    assert refused(shared, f"{place}/pods", pod(serviceAccountName="other")) == why
    status, answer = shared("POST", "/api/v1/namespaces/nowhere/pods", pod(serviceAccountName="other"))
    assert (status, answer["message"]) == (404, 'namespaces "nowhere" not found')
    mirror = pod("m", nodeName="n")
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    assert "serviceAccountName" not in shared.ok("POST", f"{place}/pods", mirror)["spec"]


def test_priorities(shared: Api, place: str) -> None:
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    made = shared.ok("POST", f"{place}/pods", pod("none"))["spec"]
    assert (made["priority"], made["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    shared.ok("POST", classes, {"metadata": {"name": "a"}, "value": 7, "preemptionPolicy": "Never"})
    made = shared.ok("POST", f"{place}/pods", pod("a", priorityClassName="a"))
    assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (7, "Never")
    bare = pod("a", **{key: item for key, item in made["spec"].items() if key not in ("priority", "preemptionPolicy")})
    assert shared.ok("PUT", f"{place}/pods/a", bare)["spec"]["priority"] == 7
    assert refused(shared, f"{place}/pods", pod(priorityClassName="b")) == "no PriorityClass with name b was found"
    assert refused(shared, f"{place}/pods", pod(priorityClassName="a", priority=8)) == (
        "the integer value of priority (8) must not be provided in pod spec; priority admission controller "
        "computed 7 from the given PriorityClass name"
    )
    shared.ok("POST", classes, {"metadata": {"name": "all"}, "globalDefault": True})
    again = {"metadata": {"name": "every"}, "value": 4, "globalDefault": True}
    assert refused(shared, classes, again) == (
        "PriorityClass all is already marked as default. Only one default can exist"
    )
    made = shared.ok("POST", f"{place}/pods", pod("by-default"))["spec"]
    shared.ok("DELETE", f"{classes}/all")
    assert (made["priorityClassName"], made["priority"]) == ("all", 0)


def test_runtime_classes(shared: Api, place: str) -> None:
    """Specs: RuntimeClass should reject a Pod requesting a non-existent RuntimeClass; should schedule a Pod requesting
    a RuntimeClass and initialize its Overhead."""
    assert refused(shared, f"{place}/pods", pod(runtimeClassName="r")) == 'pod rejected: RuntimeClass "r" not found'
    toleration = {"key": "k", "operator": "Exists"}
    runtime = {
        "metadata": {"name": "r"}, "handler": "h", "overhead": {"podFixed": {"cpu": "10m"}},
        "scheduling": {"nodeSelector": {"a": "b"}, "tolerations": [toleration]},
    }  # fmt: skip
    shared.ok("POST", "/apis/node.k8s.io/v1/runtimeclasses", runtime)
    made = shared.ok("POST", f"{place}/pods", pod(runtimeClassName="r", nodeSelector={"c": "d"}))["spec"]
    assert (made["overhead"], made["nodeSelector"]) == ({"cpu": "10m"}, {"a": "b", "c": "d"})
    assert toleration in made["tolerations"]
    for spec, why in (
        ({"nodeSelector": {"a": "x"}},
         "conflict: runtimeClass.scheduling.nodeSelector[a] = b; pod.spec.nodeSelector[a] = x"),
        ({"overhead": {"cpu": "1"}}, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"),
        ({"overhead": {"cpu": "1"}, "runtimeClassName": None},
         "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"),
    ):  # fmt: skip
        assert refused(shared, f"{place}/pods", pod("other", **({"runtimeClassName": "r"} | spec))) == why


def test_default_classes(shared: Api, place: str) -> None:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    ingress = {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}
    rules = "/apis/networking.k8s.io/v1"
    for classes, annotation, body, path, kind, field in (
        ("/apis/storage.k8s.io/v1/storageclasses", "storageclass.kubernetes.io/is-default-class", {"provisioner": "p"},
         f"{place}/persistentvolumeclaims", claim, "storageClassName"),
        (f"{rules}/ingressclasses", "ingressclass.kubernetes.io/is-default-class", {"spec": {"controller": "a.b/c"}},
         place.replace("/api/v1", rules) + "/ingresses", ingress, "ingressClassName"),
    ):  # fmt: skip
        assert field not in shared.ok("POST", path, {"metadata": {"name": "before"}, "spec": kind})["spec"]
        for name in ("a", "b"):
            shared.ok("POST", classes, {"metadata": {"name": name, "annotations": {annotation: "true"}}, **body})
        made = {each: shared.ok("POST", path, {"metadata": {"name": each}, "spec": kind | more})["spec"].get(field)
                for each, more in (("default", {}), ("own", {field: "z"}))}  # fmt: skip
        assert made["default"] in ("a", "b")
        assert made["own"] == "z"
        shared.ok("DELETE", classes)


def test_plugins_that_do_not_run(tmp_path: Path) -> None:
    (tmp_path / "tokens.csv").write_text(TOKENS)
    with running_apiserver(tmp_path, token_file=tmp_path / "tokens.csv", disabled_plugins=PLUGINS) as server:
        api = Api(server)
        place = "/api/v1/namespaces/default"
        api.ok("POST", f"{place}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}}})
        row = {"type": "Container", "max": {"cpu": "1m"}}
        api.ok("POST", f"{place}/limitranges", {"metadata": {"name": "l"}, "spec": {"limits": [row]}})
        made = api.ok("POST", f"{place}/pods", pod(priorityClassName="none", runtimeClassName="none"))["spec"]
        assert not {"priority", "volumes", "serviceAccountName"} & made.keys()


def test_unknown_plugins() -> None:
    with pytest.raises(InputError, match="no plugin Priorities; there are DefaultIngressClass, "):
        parse_plugins("Priority,Priorities")
