"""Why an endpoint is not used; which are is what the recorded clusters say."""

from __future__ import annotations

from kproxy.api.types.discovery import Endpoint as SliceEndpoint
from kproxy.services.endpoints import Endpoint, endpoints_of_service
from kproxy.services.names import IPFamily, ServicePortName
from kproxy.services.serviceport import ServicePort, service_ports
from kproxy.services.topology import SelectedEndpoints, select_endpoints, why_unused
from tests.support.services.builders import make_endpoint, make_service, make_slice

WEB = ServicePortName("shop", "web", "", "TCP")


def port(internal_policy: str = "Cluster") -> ServicePort:
    return service_ports(make_service(internal_policy=internal_policy), IPFamily.IPV4)[WEB]


def entries(*made: SliceEndpoint) -> tuple[Endpoint, ...]:
    return endpoints_of_service("shop/web", {"k": make_slice(*made)}, IPFamily.IPV4, "node-0").get(WEB, ())


def select(service_port: ServicePort, *made: SliceEndpoint) -> SelectedEndpoints:
    return select_endpoints(service_port, entries(*made), "node-0", "zone-a")


READY = make_endpoint("10.244.0.1")
REMOTE = make_endpoint("10.244.1.1", node="node-1")
UNREADY = make_endpoint("10.244.0.9", ready=False, serving=False)
DRAINING = make_endpoint("10.244.0.3", ready=False, serving=True, terminating=True)
GONE = make_endpoint("10.244.0.4", ready=False, serving=False, terminating=True)


def test_why_an_endpoint_is_unused() -> None:
    service_port = port()
    selected = select(service_port, READY, UNREADY, DRAINING, GONE)
    reasons = {ep.ip: why_unused(ep, service_port, selected) for ep in entries(READY, UNREADY, DRAINING, GONE)}
    assert reasons == {
        "10.244.0.1": "",
        "10.244.0.3": "terminating, and there are ready endpoints",
        "10.244.0.4": "terminating and no longer serving",
        "10.244.0.9": "not ready",
    }
    local = port(internal_policy="Local")
    assert "another node" in why_unused(entries(REMOTE)[0], local, select(local, READY, REMOTE))
    zoned = [make_endpoint("10.244.0.1", zones=("zone-a",)), make_endpoint("10.244.0.2", zones=("zone-b",))]
    assert "other zones" in why_unused(entries(*zoned)[1], service_port, select(service_port, *zoned))
