"""Kinds with semantics of their own, where no other test looks."""

from __future__ import annotations

import pytest

from tests.support.apiserver.server import Api

MERGE = "application/merge-patch+json"
CIDRS = "/apis/networking.k8s.io/v1/servicecidrs"


def test_a_service_cidr_may_only_get_its_second_family(shared: Api) -> None:
    """[sig-network] ServiceCIDR and IPAddress API; ValidateServiceCIDRUpdate in pkg/apis/networking/validation."""
    shared.ok("POST", CIDRS, {"metadata": {"name": "more"}, "spec": {"cidrs": ["10.9.0.0/24"]}})

    def refused(*cidrs: str) -> tuple[int, str]:
        status, answer = shared("PATCH", f"{CIDRS}/more", {"spec": {"cidrs": list(cidrs)}}, MERGE)
        return status, answer["details"]["causes"][0]["field"]

    assert refused("10.8.0.0/24") == (422, "spec.cidrs[0]")
    assert refused("10.8.0.0/24", "fd00:9::/112") == (422, "spec.cidrs[0]")
    assert refused("10.9.0.0/24", "10.8.0.0/24") == (422, "spec.cidrs")
    shared.ok("PATCH", f"{CIDRS}/more", {"spec": {"cidrs": ["10.9.0.0/24", "fd00:9::/112"]}}, MERGE)
    assert refused("10.9.0.0/24") == (422, "spec.cidrs")


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
