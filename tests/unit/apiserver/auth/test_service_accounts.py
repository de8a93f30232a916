"""Beside a controller manager: its accounts' roles, and how it learns whose certificates count."""

from __future__ import annotations

from kproxy.apiserver.controllers.roles import controller_rules
from tests.support.apiserver.server import Api


def test_the_authority_of_client_certificates_is_told(api: Api) -> None:
    path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
    assert api.ok("GET", path)["data"]["client-ca-file"] == api.server.ca.read_text()
    review = {"spec": {"user": "system:kube-scheduler", "resourceAttributes": {
        "namespace": "kube-system", "verb": "get", "resource": "configmaps",
        "name": "extension-apiserver-authentication"}}}  # fmt: skip
    assert api.ok("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"]["allowed"]


def test_each_controller_has_its_role(api: Api) -> None:
    rules = controller_rules()
    assert rules["system:controller:ttl-controller"][0] == {
        "verbs": ["list", "patch", "update", "watch"], "apiGroups": [""], "resources": ["nodes"],
    }  # fmt: skip
    asked = {"namespace": "default", "verb": "create", "resource": "pods"}
    review = {"spec": {"user": "system:serviceaccount:kube-system:job-controller", "resourceAttributes": asked}}
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    assert api.ok("POST", path, review)["status"]["allowed"]
    asked["resource"] = "secrets"
    assert not api.ok("POST", path, review)["status"]["allowed"]
