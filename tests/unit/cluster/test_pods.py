"""Pods, as far as traces need them."""

from __future__ import annotations

from kproxy.cluster.pods import read_pods


def test_addresses_are_as_endpoints_have_them() -> None:
    pod = {
        "kind": "Pod",
        "metadata": {"namespace": "shop", "name": "web-0"},
        "status": {"podIP": "fd00:244:0::10", "podIPs": [{"ip": "fd00:244:0:0::10"}, {"ip": "10.244.0.10"}]},
    }
    endpoint = {"addresses": ["FD00:244::11"], "targetRef": {"kind": "Pod", "name": "web-1"}}
    found = read_pods([pod, {"kind": "EndpointSlice", "metadata": {"namespace": "shop"}, "endpoints": [endpoint]}])
    assert found["shop/web-0"].addresses == ("fd00:244::10", "10.244.0.10")
    assert found["shop/web-1"].addresses == ("fd00:244::11",)
