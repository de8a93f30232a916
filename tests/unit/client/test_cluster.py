"""Lists of a live cluster, page by page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from kproxy.api.load.manifests import load_contents
from kproxy.client import ApiError, ClientConfig, RestClient
from kproxy.client.cluster import ClusterReadError, read_objects, read_proxy_config
from kproxy.client.http import Response
from kproxy.informer.objects import Status

NAMES = ("a", "b", "c")


class _Server(RestClient):
    """Lists Services one a page. `expires` is a continue token that has expired."""

    def __init__(self, expires: str = "", refuse: str = "") -> None:
        super().__init__(ClientConfig("https://one:6443"))
        self._expires = expires
        self._refuse = refuse

    def raw(self, method: str, path: str, *, query: Mapping[str, str] | None = None, **more: Any) -> Response:
        token = (query or {}).get("continue", "")
        if token and token == self._expires:
            self._expires = ""
            raise ApiError(Status(410, "Expired", "the continue token is too old"))
        if self._refuse and self._refuse in path:
            raise ApiError(Status(403, "Forbidden", f"{self._refuse} is forbidden:\nno"))
        if path.endswith("/servicecidrs"):
            raise ApiError(Status(404, "NotFound", "there is none"))
        if "/configmaps/" in path:
            if not path.endswith("/kube-proxy-config"):
                raise ApiError(Status(404, "NotFound", "there is none"))
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"config": "mode: ''"}}
            return Response(200, {}, json.dumps(body).encode())
        names = NAMES if path == "/api/v1/services" else ()
        limit = int((query or {}).get("limit") or len(names))
        start = int(token or 0)
        more_names = str(start + limit) if start + limit < len(names) else ""
        page = {
            "kind": "ServiceList" if names else "NodeList",
            "apiVersion": "v1",
            "metadata": {"continue": more_names},
            "items": [
                {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], "clusterIP": f"10.0.0.{number}"}}
                for number, name in enumerate(names[start : start + limit], start)
            ],
        }
        return Response(200, {}, json.dumps(page).encode())


@pytest.mark.parametrize("expires", ["", "1", "2"])
def test_pages_are_one_list(monkeypatch: pytest.MonkeyPatch, expires: str) -> None:
    """Also when a continue token expires: then the list begins anew, as one page."""
    monkeypatch.setattr("kproxy.client.rest.PAGE", 1)
    told: list[str] = []
    contents = dict(read_objects(_Server(expires), "", told.append))
    loaded = load_contents(contents)
    assert [service.metadata.name for service in loaded.services] == list(NAMES)
    assert loaded.sources["Service", "default/a"].file.startswith("https://one:6443/api/v1/services")
    assert told == []


def test_a_refusal_is_one_line() -> None:
    with pytest.raises(ClusterReadError, match=r"^the server https://one:6443 says: services is forbidden: no$"):
        list(read_objects(_Server(refuse="services"), "", print))
    told: list[str] = []
    assert list(read_objects(_Server(refuse="servicecidrs"), "", told.append))
    assert told == ["ServiceCIDRs, which nftables mode heeds, are left out: servicecidrs is forbidden: no"]


def test_eks_keeps_the_configuration_elsewhere() -> None:
    found = read_proxy_config(_Server())
    assert found is not None
    assert (found.source, found.data) == ("ConfigMap kube-system/kube-proxy-config, config", b"mode: ''")
