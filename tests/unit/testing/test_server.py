"""kproxy.testing: the server, its clients, and whose cluster a test meets."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap

from kproxy import extras
from kproxy.errors import InputError
from kproxy.testing import Server, api_server

pytest_plugins = ["kproxy.testing.fixtures"]

# The official client's annotations make every field optional.
official: Any = importlib.import_module("kubernetes.client")
config: Any = importlib.import_module("kubernetes.config")


def test_clients_of_one_server(apiserver: Server) -> None:
    apiserver.lightkube.create(ConfigMap(metadata=ObjectMeta(name="settings", namespace="default"), data={"a": "1"}))
    read = official.CoreV1Api(apiserver.kubernetes).read_namespaced_config_map("settings", "default")
    assert read.data == {"a": "1"}
    assert apiserver.kubernetes is apiserver.kubernetes
    assert apiserver.url in apiserver.kubeconfig.read_text()
    assert apiserver.ca.read_text().startswith("-----BEGIN CERTIFICATE-----")


def test_other_users_may_what_rbac_grants(apiserver: Server) -> None:
    bob = official.CoreV1Api(apiserver.as_user("bob", "testers").kubernetes)
    with pytest.raises(official.ApiException, match="Forbidden"):
        bob.list_namespaced_config_map("default")
    rbac = official.RbacAuthorizationV1Api(apiserver.kubernetes)
    binding = {
        "metadata": {"name": "testers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "testers"}],
    }
    rbac.create_namespaced_role_binding("default", binding)
    assert bob.list_namespaced_config_map("default").items == []


def test_the_fixture_is_every_clients_default(apiserver: Server) -> None:
    """Also the official client's, which keeps $KUBECONFIG from when it was imported: here, before the fixture."""
    assert os.environ["KUBECONFIG"] == str(apiserver.kubeconfig)
    for client in (config.new_client_from_config(), apiserver.kubernetes):
        assert client.configuration.host == apiserver.url


def test_each_test_has_its_own(apiserver: Server, session_apiserver: Server) -> None:
    assert apiserver.url != session_apiserver.url
    apiserver.lightkube.create(ConfigMap(metadata=ObjectMeta(name="mine", namespace="default")))
    assert list(session_apiserver.lightkube.list(ConfigMap, namespace="default")) == []


def test_everything_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "mine")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    kept = config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION
    with api_server(controllers=frozenset()) as server:
        directory = server.kubeconfig.parent
        other = server.as_user("bob").kubeconfig
        assert other.parent == directory
        with server.as_default():
            assert config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION == str(server.kubeconfig) == os.environ["KUBECONFIG"]
            assert "KUBERNETES_SERVICE_HOST" not in os.environ
        assert (os.environ["KUBECONFIG"], os.environ["KUBERNETES_SERVICE_HOST"]) == ("mine", "10.96.0.1")
        assert kept == config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION
    assert not directory.exists()


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with api_server() as server:
        monkeypatch.setitem(sys.modules, "lightkube", None)
        with pytest.raises(InputError, match="pip install lightkube"):
            _ = server.lightkube
    monkeypatch.setitem(extras.EXTRAS, "apiserver", ("jwt", "nosuch"))
    with (
        pytest.raises(
            extras.MissingExtraError,
            match=r"^kproxy.testing needs the Python package nosuch: pip install 'kube-kproxy\[apiserver\]'$",
        ),
        api_server(),
    ):
        pass


def test_nothing_is_imported_that_is_not_used(tmp_path: Path) -> None:
    """Neither pytest nor clients nor the server's libraries, by an import of kproxy.testing."""
    heavy = ("pytest", "kubernetes", "lightkube", "uvicorn", "cryptography")
    code = f"import sys, kproxy.testing; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
