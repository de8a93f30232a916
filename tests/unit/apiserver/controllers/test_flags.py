"""`--controllers`: what is switched off is left to a controller manager beside the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproxy.apiserver import running_apiserver
from kproxy.apiserver.controllers.flags import ACCOUNTS, CONTROLLERS, ENDPOINT_SLICES, NAMESPACES, parse_controllers
from kproxy.errors import InputError
from tests.support.apiserver.server import TOKENS, Api

NAMESPACE = "/api/v1/namespaces/left"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("*", CONTROLLERS),
        ("", set()),
        ("namespace-controller", {NAMESPACES}),
        ("namespace-controller, serviceaccount-controller", {NAMESPACES, ACCOUNTS}),
        ("*,-endpointslice-controller", CONTROLLERS - {ENDPOINT_SLICES}),
        ("-endpointslice-controller,*", CONTROLLERS - {ENDPOINT_SLICES}),
        ("-namespace-controller,namespace-controller", set()),
        ("namespace-controller,-namespace-controller", {NAMESPACES}),
    ],
)
def test_the_list(text: str, found: set[str]) -> None:
    """As kube-controller-manager reads it: the first word about a controller counts, then whether there is a star."""
    assert parse_controllers(text) == found


def test_unknown_names_are_refused() -> None:
    with pytest.raises(InputError, match="--controllers: no controller tokencleaner; there are"):
        parse_controllers("*,tokencleaner")


def _prepare(api: Api) -> None:
    """Whatever the controllers would act on: a namespace that goes, an owner that is gone, a Service with its Pod, a
    role that collects others."""
    api.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "left"}})
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "0"}
    api.ok("POST", f"{NAMESPACE}/configmaps", {"metadata": {"name": "orphan", "ownerReferences": [owner]}})
    spec = {"selector": {"a": "b"}, "ports": [{"port": 80}]}
    api.ok("POST", "/api/v1/namespaces/default/services", {"metadata": {"name": "s"}, "spec": spec})
    pod = {"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    api.ok("POST", "/api/v1/namespaces/default/pods", pod)
    status = {"status": {"podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.9"}], "phase": "Running"}}
    api.ok("PATCH", "/api/v1/namespaces/default/pods/p/status", status, "application/merge-patch+json")
    api.ok("DELETE", NAMESPACE)


def _slices(api: Api) -> list[str]:
    found = api.ok("GET", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices")["items"]
    return [each["metadata"]["name"] for each in found if each["metadata"]["name"] != "kubernetes"]


def test_what_is_switched_off_stays_undone_until_it_is_on(tmp_path: Path) -> None:
    """The same data, first without controllers, then with them: what the second does, the first left undone."""
    (tmp_path / "tokens.csv").write_text(TOKENS)
    with running_apiserver(
        tmp_path, token_file=tmp_path / "tokens.csv", publish_root_ca=True, controllers=frozenset()
    ) as server:
        api = Api(server)
        _prepare(api)
        # What follows namespaces has looked at this one, which came last, once its ConfigMap is there.
        api.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "last"}})
        api.eventually(
            "/api/v1/namespaces/last/configmaps/kube-root-ca.crt", lambda found: found["kind"] == "ConfigMap"
        )
        assert api.ok("GET", NAMESPACE)["status"]["phase"] == "Terminating"
        assert api.ok("GET", f"{NAMESPACE}/configmaps/orphan")["metadata"]["name"] == "orphan"
        assert api("GET", "/api/v1/namespaces/last/serviceaccounts/default")[0] == 404
        assert _slices(api) == []
        assert not api.ok("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/admin").get("rules")
    with running_apiserver(tmp_path, token_file=tmp_path / "tokens.csv") as server:
        api = Api(server)
        api.eventually(NAMESPACE, lambda found: found.get("reason") == "NotFound")
        api.eventually("/api/v1/namespaces/last/serviceaccounts/default", lambda found: found["kind"] != "Status")
        api.eventually(
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", lambda found: len(found["items"]) > 1
        )
        api.eventually("/apis/rbac.authorization.k8s.io/v1/clusterroles/admin", lambda found: found.get("rules"))
