"""The applier: keeps up with changes, and starts over after a failure."""

from __future__ import annotations

import pytest

from kproxy.linux.applier import Applier
from kproxy.linux.errors import RestoreFailedError
from kproxy.linux.wanted import wanted_rules
from kproxy.render import RenderedTarget, Renderer, RenderOptions
from kproxy.services import IPFamily, ServiceState
from tests.linux.fake import Faulty, MemoryExecutor, refused
from tests.linux.suite import rules_of
from tests.services.builders import make_endpoint, make_service, make_slice


def setting() -> tuple[MemoryExecutor, ServiceState, Renderer]:
    services = [make_service("web"), make_service("db", cluster_ips=("10.96.0.2",))]
    slices = [make_slice(make_endpoint()), make_slice(make_endpoint("10.244.0.9"), service="db", name="db-1")]
    state = ServiceState.of(IPFamily.IPV4, "node-0", services, slices)
    return MemoryExecutor(IPFamily.IPV4), state, Renderer(RenderOptions(node_name="node-0"))


def fresh(state: ServiceState) -> dict[str, dict[str, list[str]]]:
    """What a first apply of the same state gives."""
    from kproxy.linux.engine import apply_rules

    executor = MemoryExecutor(IPFamily.IPV4)
    renderer = Renderer(RenderOptions(node_name="node-0"))
    apply_rules(executor, wanted_rules(RenderedTarget(state, renderer, renderer.plan_full(state))))
    return rules_of(executor)


def test_changes_end_where_a_first_apply_would() -> None:
    executor, state, renderer = setting()
    counted = Faulty(executor)
    applier = Applier(counted, state, renderer)
    applier.sync()
    assert rules_of(executor) == fresh(state)
    before = counted.restores
    for endpoints in (("10.244.0.5", "10.244.0.6"), ("10.244.0.6",), (), ("10.244.0.7",)):
        state.update_endpoint_slice(make_slice(*(make_endpoint(ip) for ip in endpoints), address_type="IPv4"))
        applier.sync()
        assert rules_of(executor) == fresh(state)
    assert counted.restores == before + 4, "one process for each change"
    state.delete_service("shop/web")
    applier.sync()
    assert rules_of(executor) == fresh(state)
    applier.sync()
    assert counted.restores == before + 5, "nothing changed, nothing is written"


def test_after_a_failure_everything_is_compared_again() -> None:
    executor, state, renderer = setting()
    applier = Applier(Faulty(executor, fail_at=4, error=refused), state, renderer)
    applier.sync()
    state.update_endpoint_slice(make_slice(make_endpoint("10.244.0.6")))
    try:
        applier.sync()
        state.update_endpoint_slice(make_slice(make_endpoint("10.244.0.8")))
        applier.sync()
        pytest.fail("one of them is refused")
    except RestoreFailedError:
        assert applier.needs_resync
    applier.sync()
    assert not applier.needs_resync
    assert rules_of(executor) == fresh(state)
