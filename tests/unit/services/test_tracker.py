"""Change trackers: the state depends on the last value of each object, and changes name what they touched."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from kproxy.api.types.core import Service
from kproxy.api.types.discovery import EndpointSlice
from kproxy.services.names import IPFamily, ServicePortName
from kproxy.services.tracker import ServiceState
from tests.support.examples import tried
from tests.support.services.builders import make_endpoint, make_service, make_slice

V4 = IPFamily.IPV4
WEB = ServicePortName("shop", "web", "", "TCP")


def new_state() -> ServiceState:
    return ServiceState(V4, "node-0")


def test_changes_carry_what_was_before() -> None:
    state = ServiceState.of(V4, "node-0", [make_service()], [make_slice(make_endpoint("10.244.0.1"))])
    before_port, before_endpoints = state.service_ports[WEB], state.endpoints[WEB]
    state.update_endpoint_slice(make_slice(make_endpoint("10.244.0.2")))
    changes = state.apply()
    assert changes.touched == {WEB}
    assert changes.previous_service_ports == {WEB: before_port}
    assert changes.previous_endpoints == {WEB: before_endpoints}
    state.delete_service("shop/web")
    changes = state.apply()
    assert changes.previous_service_ports == {WEB: before_port}
    assert WEB not in state.service_ports


NAMES = ("a", "b", "c")
services = st.builds(
    make_service,
    name=st.sampled_from(NAMES),
    cluster_ips=st.sampled_from([("10.96.0.1",), ("10.96.0.2",), ("None",), ("fd00::1",)]),
    labels=st.sampled_from([{}, {"service.kubernetes.io/headless": ""}]),
)
slices = st.builds(
    lambda ips, name, service, labels: make_slice(
        *(make_endpoint(f"10.244.0.{ip}") for ip in ips), name=name, service=service, labels=labels
    ),
    st.lists(st.integers(1, 5), max_size=3),
    st.sampled_from(NAMES),
    st.sampled_from((*NAMES, "")),
    st.sampled_from([{}, {"service.kubernetes.io/headless": ""}]),
)


@tried(60, 400)
@given(
    events=st.lists(st.one_of(services, slices, st.tuples(st.sampled_from(("svc", "slice")), st.sampled_from(NAMES)))),
    seed=st.integers(),
)
def test_any_way_to_the_same_objects_gives_the_same_state(
    events: list[Service | EndpointSlice | tuple[str, str]], seed: int
) -> None:
    """Applied at random moments, squashed, or listed at the end: the same ServicePorts and endpoints."""
    rng = random.Random(seed)
    watched = new_state()
    final_services: dict[str, Service] = {}
    final_slices: dict[str, EndpointSlice] = {}
    for event in events:
        if isinstance(event, Service):
            final_services[event.metadata.key] = event
            watched.update_service(event)
        elif isinstance(event, EndpointSlice):
            final_slices[event.metadata.key] = event
            watched.update_endpoint_slice(event)
        elif event[0] == "svc":
            final_services.pop(f"shop/{event[1]}", None)
            watched.delete_service(f"shop/{event[1]}")
        else:
            final_slices.pop(f"shop/{event[1]}", None)
            watched.delete_endpoint_slice(f"shop/{event[1]}")
        if rng.random() < 0.3:
            old_ports, old_endpoints = dict(watched.service_ports), dict(watched.endpoints)
            changes = watched.apply()
            ports, endpoints = watched.service_ports, watched.endpoints
            differing = {n for n in old_ports | ports if old_ports.get(n) != ports.get(n)}
            differing |= {n for n in old_endpoints | endpoints if old_endpoints.get(n) != endpoints.get(n)}
            assert changes.touched == differing
    watched.apply()
    listed = ServiceState.of(V4, "node-0", final_services.values(), final_slices.values())
    assert watched.service_ports == listed.service_ports
    assert watched.endpoints == listed.endpoints
    relisted = new_state()
    for event in events:
        if isinstance(event, Service):
            relisted.update_service(event)
        elif isinstance(event, EndpointSlice):
            relisted.update_endpoint_slice(event)
    relisted.apply()
    relisted.replace(final_services, final_slices)
    relisted.apply()
    assert relisted.service_ports == listed.service_ports
    assert relisted.endpoints == listed.endpoints
