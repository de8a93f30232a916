"""Kinds with semantics of their own, where no other test looks."""

from __future__ import annotations

import pytest

from tests.support.apiserver.server import Api


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/api/v1/namespaces/default/services", {"spec": {"ports": [{"port": 80}]}}),
        ("/api/v1/namespaces/default/endpoints", {}),
        ("/api/v1/nodes", {}),
        ("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", {"addressType": "IPv4", "endpoints": []}),
    ],
)
def test_what_is_wrong_with_metadata_is_told_once(path: str, fields: dict[str, object], shared: Api) -> None:
    status, answer = shared("POST", path, {"metadata": {"name": "Bad_Name"}, **fields})
    assert (status, [each["field"] for each in answer["details"]["causes"]]) == (422, ["metadata.name"])
