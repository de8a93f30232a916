"""Who may do what: certificates, tokens, RBAC, impersonation."""

from __future__ import annotations

import http.client
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kproxy.apiserver.auth import certs
from tests.support.apiserver.server import Api
from tests.support.waiting import PATIENCE

RBAC = "/apis/rbac.authorization.k8s.io/v1"
SERVICES = "/api/v1/namespaces/default/services"


def allow(api: Api, name: str, user: str, rules: list[Any]) -> None:
    """A Role and its binding in default."""
    api.ok("POST", f"{RBAC}/namespaces/default/roles", {"metadata": {"name": name}, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    subjects = [{"kind": "User", "name": user}]
    api.ok(
        "POST",
        f"{RBAC}/namespaces/default/rolebindings",
        {"metadata": {"name": name}, "roleRef": role, "subjects": subjects},
    )


def rule(verbs: list[str], *resources: str, group: str = "") -> Any:
    return {"verbs": verbs, "apiGroups": [group], "resources": list(resources)}


def test_anonymous_users_see_health_only(shared: Api) -> None:
    nobody = shared.as_user("")
    assert nobody("GET", "/readyz") == (200, "ok")
    assert nobody("GET", "/version")[0] == 200
    for path in ("/api", "/metrics", SERVICES, "/apis", "/openapi/v3"):
        assert nobody("GET", path)[0] == 403, path
    assert shared.as_user("nonsense")("GET", "/readyz")[0] == 401


def test_roles_are_enforced(shared: Api) -> None:
    bob = shared.as_user("bob-token")
    status, answer = bob("GET", SERVICES)
    assert (status, answer["reason"]) == (403, "Forbidden")
    assert bob("GET", "/api")[0] == 200
    allow(shared, "read-services", "bob", [rule(["get", "list", "watch"], "services")])
    assert bob("GET", SERVICES)[0] == 200
    assert bob("POST", SERVICES, {"metadata": {"name": "x"}, "spec": {"ports": [{"port": 80}]}})[0] == 403
    assert bob("GET", "/api/v1/namespaces/kube-system/services")[0] == 403
    assert bob("GET", "/api/v1/services")[0] == 403
    review = {"spec": {"resourceAttributes": {"verb": "list", "resource": "services", "namespace": "default"}}}
    _, answer = bob("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    assert answer["status"]["allowed"] is True
    _, answer = bob("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", {"spec": {"namespace": "default"}})
    assert rule(["get", "list", "watch"], "services") in answer["status"]["resourceRules"]


def test_rights_in_a_namespace_watch_nothing_of_the_cluster(api: Api) -> None:
    """What lies in no namespace is not reached through the path of one, where a Role would allow it."""
    bob = api.as_user("bob-token")
    allow(api, "everything", "bob", [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}])
    for path in (
        f"{RBAC}/namespaces/default/clusterroles?watch=1",
        "/api/v1/namespaces/default/namespaces?watch=1",
        "/api/v1/namespaces/default/namespaces/kube-system?watch=1",
        "/api/v1/namespaces/default/nodes?watch=1",
    ):
        assert bob("GET", f"{path}&timeoutSeconds=1")[0] == 404, path
    assert bob("GET", "/api/v1/namespaces/default?watch=1&timeoutSeconds=1")[0] == 200


def test_a_user_that_may_only_update_cannot_create(shared: Api) -> None:
    carol = shared.as_user("carol-token")
    allow(shared, "change", "carol", [rule(["get", "update", "patch"], "services", "configmaps")])
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "put"}, "spec": {"ports": [{"port": 80}]}}
    status, answer = carol("PUT", f"{SERVICES}/put", body)
    assert (status, answer["reason"]) == (403, "Forbidden")
    assert 'cannot create resource "services"' in answer["message"]
    maps = "/api/v1/namespaces/default/configmaps"
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"a": "b"}}
    media = "application/apply-patch+yaml"
    assert carol("PATCH", f"{maps}/applied?fieldManager=c", applied, media)[0] == 403
    shared.ok("POST", SERVICES, body)
    shared.ok("POST", maps, {**applied, "data": {}})
    assert carol("PUT", f"{SERVICES}/put", body)[0] == 200
    assert carol("PATCH", f"{maps}/applied?fieldManager=c", applied, media)[0] == 200


def test_what_is_asked_of_long_names_is_not_kept(api: Api) -> None:
    """Reviews of users of two megabytes each filled the memory: 60 took 400 MB, and nothing forgot them."""
    for number in range(3):
        for user in ({"user": f"u{number}" + "x" * 100_000}, {"groups": [f"g{number}x{n}" for n in range(5000)]}):
            spec = {**user, "resourceAttributes": {"verb": "get", "resource": "pods"}}
            api.ok("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec})
        spec = {"resourceAttributes": {"verb": "get", "name": f"{number}" + "x" * 100_000, "resource": "pods"}}
        api.as_user("bob-token").ok("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {"spec": spec})
    keys = api.server.call(lambda server: [*server.authorizer._grants])
    assert keys
    assert len(repr(keys)) < 10_000


def test_aggregated_roles(shared: Api) -> None:
    label = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    extra: Any = {
        "metadata": {"name": "more", "labels": label},
        "rules": [rule(["get"], "widgets", group="example.org")],
    }
    shared.ok("POST", f"{RBAC}/clusterroles", extra)
    shared.eventually(f"{RBAC}/clusterroles/view", lambda role: extra["rules"][0] in (role["rules"] or ()))
    view = shared.ok("GET", f"{RBAC}/clusterroles/view")["rules"]
    shared.eventually(f"{RBAC}/clusterroles/admin", lambda role: all(each in (role["rules"] or ()) for each in view))


def test_service_account_tokens(shared: Api) -> None:
    shared.ok("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "robot"}})
    path = "/api/v1/namespaces/default/serviceaccounts/robot/token"
    assert shared("POST", path, {"spec": {"expirationSeconds": 5}})[0] == 422
    token = shared.ok("POST", path, {"spec": {"expirationSeconds": 600}})["status"]["token"]
    robot = shared.as_user(token)
    _, answer = robot("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert answer["status"]["userInfo"]["username"] == "system:serviceaccount:default:robot"
    _, answer = shared("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": token}})
    assert answer["status"]["authenticated"] is True
    other = shared.ok("POST", path, {"spec": {"audiences": ["somebody"]}})["status"]["token"]
    assert shared.as_user(other)("GET", "/api")[0] == 401
    assert shared.as_user(token[:-4] + "AAAA")("GET", "/api")[0] == 401
    shared.ok("DELETE", "/api/v1/namespaces/default/serviceaccounts/robot")
    assert robot("GET", "/api")[0] == 401


def test_a_token_review_names_the_audiences_that_a_token_has(shared: Api) -> None:
    """A server that finds itself among them would else take tokens that are for others."""
    asked = {"spec": {"audiences": ["vault", "other"]}}
    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    token = shared.ok("POST", path, asked)["status"]["token"]
    for given, audiences, expected in (
        (token, ["vault", "shop"], ["vault"]), (token, ["shop"], None), (token, [], None),
        ("bob-token", ["shop"], None), ("bob-token", [], ["https://kubernetes.default.svc"]),
    ):  # fmt: skip
        review = {"spec": {"token": given, "audiences": audiences}}
        status = shared.ok("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)["status"]
        assert status.get("audiences") == expected
        assert status.get("authenticated", False) is (expected is not None)


def test_tokens_end_with_what_they_are_bound_to(shared: Api) -> None:
    pods = "/api/v1/namespaces/default/pods"
    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    node = shared.ok("POST", "/api/v1/nodes", {"metadata": {"name": "bound-node"}})["metadata"]
    spec = {"containers": [{"name": "c", "image": "x"}]}
    pod = shared.ok("POST", pods, {"metadata": {"name": "bound"}, "spec": {**spec, "nodeName": "bound-node"}})[
        "metadata"
    ]
    other = {"metadata": {"name": "of-another"}, "spec": {**spec, "serviceAccountName": "somebody"}}
    shared.ok("POST", pods, other)

    def asked(kind: str, name: str, version: str = "v1", **more: str) -> tuple[int, Any]:
        reference = {"kind": kind, "apiVersion": version, "name": name, **more}
        return shared("POST", path, {"spec": {"boundObjectRef": reference}})

    assert asked("Pod", "nobody")[0] == 404
    assert asked("Pod", "bound", uid="another")[0] == 409
    assert asked("Pod", "of-another")[0] == asked("Deployment", "x", "apps/v1")[0] == 400
    status, answer = asked("Pod", "bound", uid=pod["uid"])
    assert status == 201
    robot = shared.as_user(answer["status"]["token"])
    _, answer = robot("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    extra = answer["status"]["userInfo"]["extra"]
    prefix = "authentication.kubernetes.io"
    assert {key: values for key, values in extra.items() if not key.endswith("credential-id")} == {
        f"{prefix}/pod-name": ["bound"],
        f"{prefix}/pod-uid": [pod["uid"]],
        f"{prefix}/node-name": ["bound-node"],
        f"{prefix}/node-uid": [node["uid"]],
    }
    shared.ok("DELETE", "/api/v1/nodes/bound-node")
    assert robot("GET", "/api")[0] == 200
    shared.ok("DELETE", f"{pods}/bound?gracePeriodSeconds=0")
    assert robot("GET", "/api")[0] == 401


def test_impersonation(shared: Api) -> None:
    assert shared("GET", SERVICES, Impersonate_User="eve")[0] == 403
    assert shared.as_user("bob-token")("GET", SERVICES, Impersonate_User="admin")[0] == 403
    assert shared("GET", SERVICES, Impersonate_User="eve", Impersonate_Group="system:masters")[0] == 200


def test_impersonating_a_user_does_not_give_the_users_groups(shared: Api) -> None:
    """Each group, uid and extra of a header needs its own permission, also those every service account has."""
    name = "impersonates-users"
    shared.ok("POST", f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [rule(["impersonate"], "users")]})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [{"kind": "User", "name": "bob"}]}
    shared.ok("POST", f"{RBAC}/clusterrolebindings", binding)
    bob = shared.as_user("bob-token")
    review = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    assert bob("POST", review, {}, Impersonate_User="eve")[1]["status"]["userInfo"]["username"] == "eve"
    for more in (
        {"Impersonate_Group": "system:serviceaccounts"},
        {"Impersonate_Group": "system:authenticated"},
        {"Impersonate_Uid": "1"},
        {"Impersonate_Extra_scopes": "all"},
    ):
        code, answer = bob("POST", review, {}, Impersonate_User="eve", **more)
        assert (code, answer["reason"]) == (403, "Forbidden"), more
    info = shared("POST", review, {}, Impersonate_User="eve", Impersonate_Uid="1", Impersonate_Extra_scopes="all")[1]
    assert info["status"]["userInfo"]["uid"] == "1"
    assert info["status"]["userInfo"]["extra"] == {"scopes": ["all"]}
    assert shared("GET", SERVICES, Impersonate_Group="system:masters")[0] == 400


def _with_certificate(api: Api, directory: Path, identity: certs.Identity) -> tuple[int, bytes]:
    path = directory / "client.pem"
    path.write_bytes(identity.certificate_pem + identity.key_pem)
    context = ssl.create_default_context(cafile=str(api.server.ca))
    context.load_cert_chain(path)
    connection = http.client.HTTPSConnection("127.0.0.1", api.server.port, context=context, timeout=PATIENCE)
    connection.request("GET", "/api/v1/namespaces")
    response = connection.getresponse()
    return response.status, response.read()


def test_client_certificates(shared: Api, tmp_path: Path) -> None:
    authority = shared.server.call(lambda server: server.authority)
    assert _with_certificate(shared, tmp_path, certs.new_client(authority, "root", ("system:masters",)))[0] == 200
    assert _with_certificate(shared, tmp_path, certs.new_client(authority, "carol"))[0] == 403
    # Another authority's is none, nor is a server certificate that the same authority issued.
    others = certs.new_client(certs.new_authority(), "root", ("system:masters",))
    for identity in (others, certs.new_server(authority, ())):
        with pytest.raises(OSError):  # noqa: PT011 - a lost connection, or an alert
            _with_certificate(shared, tmp_path, identity)


def test_kubeconfig(shared: Api) -> None:
    document = yaml.safe_load(shared.server.kubeconfig.read_text())
    assert document["clusters"][0]["cluster"]["server"] == shared.server.url
    assert shared.server.kubeconfig.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("path", ["ca.pem", "service-accounts.key", "log.sqlite"])
def test_data_is_private(shared: Api, path: str) -> None:
    data = shared.server.kubeconfig.parent / "data"
    assert data.stat().st_mode & 0o077 == 0
    assert subprocess.run(["test", "-e", data / path], check=False).returncode == 0
