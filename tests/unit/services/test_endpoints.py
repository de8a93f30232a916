"""The EndpointSlice cache and the endpoints it yields."""

from __future__ import annotations

from kproxy.api.types.discovery import Endpoint as SliceEndpoint
from kproxy.api.types.discovery import EndpointPort, EndpointSlice
from kproxy.services.endpoints import EndpointSliceCache, endpoints_of_service, service_key_of
from kproxy.services.names import IPFamily, ServicePortName
from tests.support.services.builders import make_endpoint, make_slice

V4, V6 = IPFamily.IPV4, IPFamily.IPV6
WEB = ServicePortName("shop", "web", "", "TCP")


def endpoints(*slices: EndpointSlice, family: IPFamily = V4) -> dict[ServicePortName, list[str]]:
    by_key = {s.metadata.key: s for s in slices}
    found = endpoints_of_service("shop/web", by_key, family, "node-0")
    return {name: [ep.address for ep in entries] for name, entries in found.items()}


def test_endpoints_are_sorted_by_text_as_kube_proxy_sorts_them() -> None:
    made = make_slice(make_endpoint("10.244.0.50"), make_endpoint("10.244.0.117"), make_endpoint("10.244.0.9"))
    assert endpoints(made) == {WEB: ["10.244.0.117:8080", "10.244.0.50:8080", "10.244.0.9:8080"]}


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


def test_unknown_conditions_read_as_ready_and_serving_and_not_terminating() -> None:
    made = make_slice(make_endpoint(ready=None))
    (endpoint,) = endpoints_of_service("shop/web", {"k": made}, V4, "node-0")[WEB]
    assert (endpoint.ready, endpoint.serving, endpoint.terminating, endpoint.is_local) == (True, True, False, True)


def test_an_endpoint_without_addresses_or_of_the_other_family_is_ignored() -> None:
    made = make_slice(SliceEndpoint(()), make_endpoint("fd00::1"), make_endpoint("10.244.0.1"), address_type="IPv4")
    assert endpoints(made) == {WEB: ["10.244.0.1:8080"]}


def test_ipv6_addresses_are_bracketed() -> None:
    assert endpoints(make_slice(make_endpoint("fd00::1")), family=V6) == {WEB: ["[fd00::1]:8080"]}


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


def test_the_cache_reports_before_and_after_once_per_service() -> None:
    cache = EndpointSliceCache(V4, "node-0")
    assert cache.update(make_slice(make_endpoint("10.244.0.1"), name="a"))
    assert cache.update(make_slice(make_endpoint("10.244.0.2"), name="b"))
    ((service, (before, after)),) = cache.checkout_changes().items()
    assert service == "shop/web"
    assert before == {}
    assert [ep.address for ep in after[WEB]] == ["10.244.0.1:8080", "10.244.0.2:8080"]
    assert cache.checkout_changes() == {}


def test_an_update_that_is_taken_back_leaves_nothing_pending() -> None:
    cache = EndpointSliceCache(V4, "node-0")
    original = make_slice(make_endpoint("10.244.0.1"))
    cache.update(original)
    cache.checkout_changes()
    assert cache.update(make_slice(make_endpoint("10.244.0.2")))
    assert not cache.update(original)
    assert not cache.delete("shop/unknown")
    assert cache.checkout_changes() == {}


def test_a_slice_that_changes_its_service_leaves_the_old_one() -> None:
    cache = EndpointSliceCache(V4, "node-0")
    cache.update(make_slice(make_endpoint("10.244.0.1")))
    cache.checkout_changes()
    assert cache.update(make_slice(make_endpoint("10.244.0.1"), service="api"))
    changes = cache.checkout_changes()
    assert changes["shop/web"][1] == {}
    assert list(changes["shop/api"][1]) == [ServicePortName("shop", "api", "", "TCP")]
    assert cache.update(make_slice(make_endpoint("10.244.0.1"), labels={"service.kubernetes.io/headless": ""}))
    assert cache.checkout_changes()["shop/api"][1] == {}


def test_a_full_list_deletes_what_it_leaves_out() -> None:
    cache = EndpointSliceCache(V4, "node-0")
    kept, gone = make_slice(make_endpoint("10.244.0.1"), name="a"), make_slice(make_endpoint("10.244.0.2"), name="b")
    cache.update(kept)
    cache.update(gone)
    cache.checkout_changes()
    cache.replace({kept.metadata.key: kept})
    (before, after) = cache.checkout_changes()["shop/web"]
    assert [ep.address for ep in before[WEB]] == ["10.244.0.1:8080", "10.244.0.2:8080"]
    assert [ep.address for ep in after[WEB]] == ["10.244.0.1:8080"]
