"""The EndpointSlice cache and the endpoints it yields."""

from __future__ import annotations

from kproxy.api.types.discovery import EndpointPort, EndpointSlice
from kproxy.services.endpoints import endpoints_of_service, service_key_of
from kproxy.services.names import IPFamily, ServicePortName
from tests.support.services.builders import make_endpoint, make_slice

V4, V6 = IPFamily.IPV4, IPFamily.IPV6
WEB = ServicePortName("shop", "web", "", "TCP")


def endpoints(*slices: EndpointSlice, family: IPFamily = V4) -> dict[ServicePortName, list[str]]:
    by_key = {s.metadata.key: s for s in slices}
    found = endpoints_of_service("shop/web", by_key, family, "node-0")
    return {name: [ep.address for ep in entries] for name, entries in found.items()}


def test_several_slices_and_ports_merge_by_name_and_protocol() -> None:
    ports = (
        EndpointPort(80, "http"),
        EndpointPort(53, "dns", "UDP"),
        EndpointPort(None, "all"),
        EndpointPort(0, "zero"),
    )
    one = make_slice(make_endpoint("10.244.0.1"), name="a", ports=ports)
    two = make_slice(make_endpoint("10.244.0.2"), name="b", ports=ports[:1])
    assert endpoints(one, two) == {
        ServicePortName("shop", "web", "http", "TCP"): ["10.244.0.1:80", "10.244.0.2:80"],
        ServicePortName("shop", "web", "dns", "UDP"): ["10.244.0.1:53"],
    }


def test_a_non_terminating_duplicate_wins_wherever_it_stands() -> None:
    running = make_endpoint("10.244.0.1", ready=True)
    leaving = make_endpoint("10.244.0.1", ready=False, serving=True, terminating=True)
    for first, second in ((running, leaving), (leaving, running)):
        for slices in (
            [make_slice(first, second)],
            [make_slice(first, name="a"), make_slice(second, name="b")],
        ):
            found = endpoints_of_service("shop/web", {s.metadata.key: s for s in slices}, V4, "node-0")
            assert [(ep.address, ep.terminating) for ep in found[WEB]] == [("10.244.0.1:8080", False)]


def test_of_slices_that_contradict_each_other_the_last_by_name_counts() -> None:
    """For each port by itself. kube-proxy walks slices in random order, so there either may count."""
    both = make_slice(
        make_endpoint("10.244.1.26"), name="a", ports=(EndpointPort(8080, "http"), EndpointPort(9001, "metrics"))
    )
    one = make_slice(make_endpoint("10.244.1.26", ready=False), name="b", ports=(EndpointPort(9001, "metrics"),))
    for order in ((both, one), (one, both)):
        found = endpoints_of_service("shop/web", {each.metadata.key: each for each in order}, V4, "node-0")
        ready = {name.port: [endpoint.ready for endpoint in endpoints] for name, endpoints in found.items()}
        assert ready == {"http": [True], "metrics": [False]}


def test_slices_that_kube_proxy_ignores() -> None:
    assert service_key_of(make_slice(make_endpoint()), V4) == "shop/web"
    assert service_key_of(make_slice(make_endpoint()), V6) == ""
    assert service_key_of(make_slice(make_endpoint(), service=""), V4) == ""
    assert service_key_of(make_slice(make_endpoint(), labels={"service.kubernetes.io/headless": ""}), V4) == ""
    proxied = make_slice(make_endpoint(), labels={"service.kubernetes.io/service-proxy-name": "x"})
    assert service_key_of(proxied, V4) == "shop/web", "that label counts of Services alone"
