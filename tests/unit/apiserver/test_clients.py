"""Clients that somebody else wrote: the official Python client, lightkube and kr8s."""

from __future__ import annotations

import importlib
import threading
from typing import Any

import lightkube
import pytest
from lightkube.core.exceptions import ApiError
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.core_v1 import ServicePort, ServiceSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Service
from lightkube.types import PatchType

from tests.support.apiserver.definitions import definition
from tests.support.apiserver.server import Api
from tests.support.waiting import PATIENCE

# The official client's annotations make every field optional.
official: Any = importlib.import_module("kubernetes.client")
config: Any = importlib.import_module("kubernetes.config")
watch: Any = importlib.import_module("kubernetes.watch")


@pytest.fixture(scope="module")
def python(shared: Api) -> Any:
    """The official client."""
    return config.new_client_from_config(config_file=str(shared.server.kubeconfig))


@pytest.fixture(scope="module")
def light(shared: Api) -> lightkube.Client:
    """lightkube's client."""
    loaded = lightkube.KubeConfig.from_file(shared.server.kubeconfig)
    return lightkube.Client(config=loaded, field_manager="light")


def test_official_create_watch_patch_delete(python: Any) -> None:
    core = official.CoreV1Api(python)
    version = core.list_namespaced_service("default").metadata.resource_version
    seen: list[tuple[str, str]] = []

    def follow() -> None:
        stream = watch.Watch().stream(
            core.list_namespaced_service, "default", resource_version=version, timeout_seconds=20
        )
        for event in stream:
            if event["object"].metadata.name == "py":
                seen.append((event["type"], event["object"].spec.type))
            if event["type"] == "DELETED":
                return

    thread = threading.Thread(target=follow)
    thread.start()
    body = official.V1Service(
        metadata=official.V1ObjectMeta(name="py"),
        spec=official.V1ServiceSpec(
            selector={"app": "py"}, ports=[official.V1ServicePort(port=80, target_port="http")]
        ),
    )
    made = core.create_namespaced_service("default", body)
    assert made.spec.cluster_ip.startswith("10.")
    changed = core.patch_namespaced_service("py", "default", {"spec": {"type": "NodePort"}})
    assert 30000 <= changed.spec.ports[0].node_port <= 32767
    core.delete_namespaced_service("py", "default")
    thread.join(PATIENCE)
    assert seen == [("ADDED", "ClusterIP"), ("MODIFIED", "NodePort"), ("DELETED", "NodePort")]


def test_official_conflict_and_refusals(python: Any, shared: Api) -> None:
    core = official.CoreV1Api(python)
    made = core.create_namespaced_config_map("default", official.V1ConfigMap(metadata=official.V1ObjectMeta(name="c")))
    made.data = {"a": "1"}
    core.replace_namespaced_config_map("c", "default", made)
    made.data = {"a": "2"}
    with pytest.raises(official.ApiException) as caught:
        core.replace_namespaced_config_map("c", "default", made)
    assert caught.value.status == 409
    with pytest.raises(official.ApiException) as caught:
        core.create_namespaced_config_map("default", official.V1ConfigMap(metadata=official.V1ObjectMeta(name="c")))
    assert (caught.value.status, caught.value.reason) == (409, "Conflict")
    settings = official.Configuration(host=shared.server.url)
    settings.ssl_ca_cert = str(shared.server.ca)
    settings.api_key = {"authorization": "Bearer bob-token"}
    bob = official.CoreV1Api(official.ApiClient(settings))
    with pytest.raises(official.ApiException) as caught:
        bob.list_secret_for_all_namespaces()
    assert caught.value.status == 403


def test_official_custom_resources_and_reviews(python: Any) -> None:
    official.ApiextensionsV1Api(python).create_custom_resource_definition(definition("dates"))
    objects = official.CustomObjectsApi(python)
    place = ("example.org", "v1", "default", "dates")
    body = {"apiVersion": "example.org/v1", "kind": "Date", "metadata": {"name": "a"}, "spec": {"size": 2}}
    objects.create_namespaced_custom_object(*place, body)
    objects.patch_namespaced_custom_object_status(*place, "a", {"status": {"phase": "Ripe"}})
    assert objects.get_namespaced_custom_object(*place, "a")["status"] == {"phase": "Ripe"}
    review = official.V1SelfSubjectAccessReview(
        spec=official.V1SelfSubjectAccessReviewSpec(
            resource_attributes=official.V1ResourceAttributes(verb="list", resource="services")
        )
    )
    assert official.AuthorizationV1Api(python).create_self_subject_access_review(review).status.allowed
    assert official.VersionApi(python).get_code().minor == "36"


def test_lightkube_apply_and_conflict(light: lightkube.Client) -> None:
    mine = ConfigMap(metadata=ObjectMeta(name="lk", namespace="default"), data={"a": "1"})
    light.apply(mine, field_manager="one")
    mine.data = {"a": "2"}
    with pytest.raises(ApiError) as caught:
        light.apply(mine, field_manager="two")
    assert caught.value.status.code == 409
    light.apply(mine, field_manager="two", force=True)
    assert light.get(ConfigMap, "lk").data == {"a": "2"}
    light.patch(ConfigMap, "lk", {"data": {"b": "3"}}, patch_type=PatchType.MERGE)
    assert light.get(ConfigMap, "lk").data == {"a": "2", "b": "3"}
    light.delete(ConfigMap, "lk")


def test_lightkube_lists_in_pages_and_custom_resources(light: lightkube.Client, shared: Api) -> None:
    for number in range(7):
        spec = ServiceSpec(ports=[ServicePort(port=80)])
        light.create(
            Service(metadata=ObjectMeta(name=f"lk{number}", namespace="default", labels={"x": "y"}), spec=spec)
        )
    found = [each.metadata.name for each in light.list(Service, labels={"x": "y"}, chunk_size=3) if each.metadata]
    assert found == [f"lk{number}" for number in range(7)]
    shared.ok("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition("nuts"))
    nut: Any = create_namespaced_resource("example.org", "v1", "Nut", "nuts")
    light.create(nut({"metadata": {"name": "a", "namespace": "default"}, "spec": {"size": 1}}))
    assert light.get(nut, "a", namespace="default").spec["size"] == 1


@pytest.mark.filterwarnings("ignore:Kubernetes version:UserWarning")  # kr8s names the versions that it was tried with
def test_kr8s_does_what_its_page_shows(shared: Api) -> None:
    """The first steps of its documentation: objects by kind, patches, labels, scale, watches, new kinds."""
    kr8s: Any = importlib.import_module("kr8s")
    objects: Any = importlib.import_module("kr8s.objects")
    api = kr8s.api(kubeconfig=str(shared.server.kubeconfig))
    meta = {"name": "kr8s", "namespace": "default"}
    spec = {"containers": [{"name": "pause", "image": "registry.example/pause"}]}
    pod = objects.Pod({"metadata": meta, "spec": spec}, api=api)
    pod.create()
    assert (pod.exists(), pod.status.phase) == (True, "Pending")
    pod.label({"app": "web"})
    pod.annotate({"note": "x"})
    pod.patch({"metadata": {"labels": {"tier": "front"}}})
    assert [each.name for each in api.get("pods", namespace="default", label_selector={"tier": "front"})] == ["kr8s"]
    template = {"metadata": {"labels": {"app": "web"}}, "spec": spec}
    workload = {"selector": {"matchLabels": {"app": "web"}}, "template": template}
    deployment = objects.Deployment({"metadata": meta, "spec": workload}, api=api)
    deployment.create()
    deployment.patch({"spec": {"replicas": 0}}, subresource="scale")
    deployment.refresh()
    assert deployment.replicas == 0
    kind, seen = next(iter(api.watch("pods", namespace="default", field_selector="metadata.name=kr8s")))
    assert (kind, seen.labels) == ("ADDED", {"app": "web", "tier": "front"})
    shared.ok("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition("pears"))
    pear = objects.new_class(kind="Pear", version="example.org/v1", namespaced=True, plural="pears")
    made = pear({"metadata": {"name": "a", "namespace": "default"}, "spec": {"size": 1}}, api=api)
    made.create()
    assert made.spec.size == 1
    for each in (made, deployment, pod):
        each.delete()
        assert not each.exists()


def test_official_reads_that_a_body_is_too_large(python: Any) -> None:
    """It sends everything before it reads anything."""
    body = {"metadata": {"name": "big"}, "data": {"a": "x" * 4_000_000}}
    with pytest.raises(official.ApiException) as caught:
        official.CoreV1Api(python).create_namespaced_config_map("default", body)
    assert caught.value.status == 413
