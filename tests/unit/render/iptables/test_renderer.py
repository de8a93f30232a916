"""Plans: a partial plan brings the chains of the old state to those of the new one, and names nothing else."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.api.types.core import LoadBalancerIngress, Service, ServicePort
from kproxy.api.types.discovery import EndpointSlice
from kproxy.render import Plan, Renderer, RenderOptions
from kproxy.render.iptables.chains import NAT
from kproxy.render.iptables.plan import height
from kproxy.render.iptables.renderer import LARGE_CLUSTER_ENDPOINTS
from kproxy.services import IPFamily, LocalTrafficDetector, ServicePortName, ServiceState
from tests.support.examples import tried
from tests.support.services.builders import make_endpoint, make_service, make_slice

V4 = IPFamily.IPV4
OPTIONS = RenderOptions(
    node_name="node-0",
    node_ip="192.168.0.2",
    interface_addresses=("127.0.0.1", "192.168.0.2"),
    local_traffic=LocalTrafficDetector("10.244.0.0/16"),
)

Kernel = dict[tuple[str, str], str]
"""What a kernel holds: (table, chain) to rule lines."""


class RestoreError(Exception):
    """What iptables-restore would have refused."""


def restore(kernel: Kernel, text: str) -> Kernel:
    """iptables-restore --noflush, as far as plans use it: all of a table or nothing of it."""
    kernel, table = dict(kernel), ""
    declared: dict[str, str] = {}
    deleted: list[str] = []
    for line in text.splitlines():
        if line.startswith("*"):
            table, declared, deleted = line[1:], {}, []
        elif line.startswith(":"):
            declared[line[1:].split()[0]] = ""
        elif line.startswith("-A "):
            declared[line.split()[1]] += f"{line}\n"
        elif line.startswith("-X "):
            deleted.append(line[3:])
        else:
            assert line == "COMMIT"
            kernel.update({(table, chain): rules for chain, rules in declared.items()})
            for chain in deleted:
                if kernel.pop((table, chain)):
                    raise RestoreError(f"{chain} is not empty")
            check_jumps(kernel, table)
    return kernel


def check_jumps(kernel: Kernel, table: str) -> None:
    for (where, chain), rules in kernel.items():
        for rule in rules.splitlines():
            target = rule.rpartition(" -j ")[2].split()[0] if " -j " in rule else ""
            if where == table and target.startswith("KUBE-") and (table, target) not in kernel:
                raise RestoreError(f"{chain} jumps to {target}, which is not there")


def batches_text(kernel: Kernel, plan: Plan, size: int) -> Kernel:
    for batch in plan.batches(size):
        kernel = restore(kernel, batch.text)
    return kernel


def clean(chains: Kernel) -> Kernel:
    return {place: text for place, text in chains.items() if text or not place[1].startswith("KUBE-FIREWALL")}


NAMES = ("a", "b", "c")
services = st.builds(
    make_service,
    name=st.sampled_from(NAMES),
    cluster_ips=st.sampled_from([("10.96.0.1",), ("10.96.0.2",)]),
    type=st.just("LoadBalancer"),
    ports=st.lists(
        st.builds(
            ServicePort, port=st.just(80), name=st.sampled_from(["", "http"]), node_port=st.sampled_from([0, 30080])
        ),
        max_size=2,
        unique_by=lambda port: port.name,
    ).map(tuple),
    ingress=st.sampled_from([(), (LoadBalancerIngress("203.0.113.1"),)]),
    source_ranges=st.sampled_from([(), ("10.0.0.0/8",), ("192.168.0.0/24",)]),
    affinity_seconds=st.sampled_from([0, 10800]),
    internal_policy=st.sampled_from(["Cluster", "Local"]),
    external_policy=st.sampled_from(["Cluster", "Local"]),
    external_ips=st.sampled_from([(), ("198.51.100.1",)]),
    health_check_node_port=st.sampled_from([0, 30100]),
)
slices = st.builds(
    lambda ips, name, node, port: make_slice(
        *(make_endpoint(f"10.244.0.{ip}", node=node) for ip in ips),
        name=name,
        service=name,
        ports=(port,),
    ),
    st.lists(st.integers(1, 6), max_size=4, unique=True),
    st.sampled_from(NAMES),
    st.sampled_from(["node-0", "node-1"]),
    st.sampled_from([make_slice().ports[0]]),
)


@tried(60, 600)
@given(
    events=st.lists(
        st.one_of(services, slices, st.tuples(st.sampled_from(("svc", "slice")), st.sampled_from(NAMES))), max_size=12
    ),
    seed=st.integers(),
)
def test_partial_plans_lead_where_a_full_plan_leads(
    events: list[Service | EndpointSlice | tuple[str, str]], seed: int
) -> None:
    rng = random.Random(seed)
    state, renderer = ServiceState(V4, "node-0"), Renderer(OPTIONS)
    kernel = restore({}, renderer.plan_full(state).restore_text)
    batched = batches_text({}, Renderer(OPTIONS).plan_full(state), 1)
    for event in events:
        if isinstance(event, Service):
            state.update_service(event)
        elif isinstance(event, EndpointSlice):
            state.update_endpoint_slice(event)
        elif event[0] == "svc":
            state.delete_service(f"shop/{event[1]}")
        else:
            state.delete_endpoint_slice(f"shop/{event[1]}")
        if rng.random() < 0.5:
            plan = renderer.plan_partial(state, state.apply().touched)
            before = kernel
            kernel = restore(kernel, plan.restore_text)
            batched = batches_text(batched, plan, rng.choice([1, 2, 500]))
            written = set(plan.base) | {(NAT, c) for chains in plan.service_ports.values() for c in chains}
            assert written == {p for p in kernel if before.get(p) != kernel[p]}, "only what changed is written"
            assert set(plan.deletions) == {chain for table, chain in before if (table, chain) not in kernel}
            assert bool(plan) == (before != kernel)
    renderer.plan_partial(state, state.apply().touched)
    fresh = Renderer(OPTIONS)
    full = fresh.plan_full(state, [chain for table, chain in kernel if table == NAT])
    kernel = restore(kernel, full.restore_text)
    batched = batches_text(batched, full, 2)
    assert kernel == batched == fresh.chains() == renderer.chains()
    assert list(renderer.chains()) == list(fresh.chains()), "also in the same order"


def test_a_changed_slice_writes_only_its_own_chains() -> None:
    state = ServiceState.of(
        V4,
        "node-0",
        [make_service(name=name, cluster_ips=(f"10.96.0.{i}",)) for i, name in enumerate(NAMES, start=1)],
        [make_slice(make_endpoint(f"10.244.0.{i}"), name=name, service=name) for i, name in enumerate(NAMES, start=1)],
    )
    renderer = Renderer(OPTIONS)
    renderer.plan_full(state)
    state.update_endpoint_slice(
        make_slice(make_endpoint("10.244.0.1"), make_endpoint("10.244.0.9"), name="a", service="a")
    )
    plan = renderer.plan_partial(state, state.apply().touched)
    assert not plan.base
    assert list(plan.service_ports) == [ServicePortName("shop", "a", "", "TCP")]
    assert sorted(height(chain) for chains in plan.service_ports.values() for chain in chains) == [0, 1]
    assert plan.deletions == ()


def test_losing_the_last_endpoint_turns_dispatch_into_refusal_before_chains_go() -> None:
    state = ServiceState.of(V4, "node-0", [make_service()], [make_slice(make_endpoint())])
    renderer = Renderer(OPTIONS)
    renderer.plan_full(state)
    state.delete_endpoint_slice("shop/web-1")
    plan = renderer.plan_partial(state, state.apply().touched)
    assert [(batch.table, sorted(batch.chains), len(batch.deletions)) for batch in plan.batches()] == [
        ("filter", ["KUBE-SERVICES"], 0),
        ("nat", ["KUBE-SERVICES"], 2),
    ]
    assert [(batch.table, sorted(batch.chains), len(batch.deletions)) for batch in plan.batches(2)] == [
        ("filter", ["KUBE-SERVICES"], 0),
        ("nat", ["KUBE-SERVICES"], 0),
        ("nat", [], 2),
    ]
    assert "has no endpoints" in plan.base[("filter", "KUBE-SERVICES")]


def test_a_service_port_is_never_split_over_two_batches() -> None:
    wanted = [make_service(name=f"s{i}", cluster_ips=(f"10.96.1.{i}",)) for i in range(20)]
    made = [
        make_slice(*(make_endpoint(f"10.244.{i}.{e}") for e in range(7)), name=f"s{i}", service=f"s{i}")
        for i in range(20)
    ]
    plan = Renderer(OPTIONS).plan_full(ServiceState.of(V4, "node-0", wanted, made))
    batches = [batch for batch in plan.batches(20) if batch.purpose == "service chains"]
    assert len(batches) == 10
    for chains in plan.service_ports.values():
        assert sum(bool(chains.keys() & batch.chains.keys()) for batch in batches) == 1
    for batch in batches:
        heights = [height(chain) for chain in batch.chains]
        assert heights == sorted(heights), "leaves first"


@pytest.mark.parametrize("extra", [0, 1])
def test_large_clusters_lose_comments_above_the_threshold(extra: int) -> None:
    count = LARGE_CLUSTER_ENDPOINTS + extra
    ips = [f"10.244.{i // 250}.{i % 250 + 1}" for i in range(count)]
    state = ServiceState.of(V4, "node-0", [make_service()], [make_slice(*map(make_endpoint, ips))])
    renderer = Renderer(OPTIONS)
    text = renderer.plan_full(state).restore_text
    assert renderer.large_cluster is bool(extra)
    assert ('10.244.0.1:8080" -m statistic' in text) is not bool(extra)
    assert "shop/web cluster IP" in text
    origins = [origin for found in renderer.origins(state).values() for origin in found]
    assert len(origins) == text.count("\n-A ")
    assert sum(origin.endpoint is not None for origin in origins) == 3 * count, "provenance survives"


def test_crossing_the_threshold_in_a_partial_plan_rewrites_everything() -> None:
    many = [f"10.244.{i // 250}.{i % 250 + 1}" for i in range(LARGE_CLUSTER_ENDPOINTS)]
    state = ServiceState.of(
        V4,
        "node-0",
        [make_service(), make_service(name="api", cluster_ips=("10.96.0.2",))],
        [make_slice(*map(make_endpoint, many))],
    )
    renderer = Renderer(OPTIONS)
    renderer.plan_full(state)
    for slices_change, large in ((True, True), (False, False)):
        if slices_change:
            state.update_endpoint_slice(make_slice(make_endpoint("10.244.9.9"), name="api", service="api"))
        else:
            state.delete_endpoint_slice("shop/api")
        plan = renderer.plan_partial(state, state.apply().touched)
        assert renderer.large_cluster is large
        assert sum(map(len, plan.service_ports.values())) > LARGE_CLUSTER_ENDPOINTS
        fresh = Renderer(OPTIONS)
        fresh.plan_full(state)
        assert fresh.chains() == renderer.chains()


def test_new_options_rewrite_only_what_they_change() -> None:
    state = ServiceState.of(V4, "node-0", [make_service()], [make_slice(make_endpoint())])
    renderer = Renderer(OPTIONS)
    kernel = restore({}, renderer.plan_full(state).restore_text)
    import msgspec

    other = msgspec.structs.replace(
        OPTIONS, local_traffic=LocalTrafficDetector("10.0.0.0/8"), localhost_node_ports=False
    )
    plan = renderer.replan(state, other)
    kernel = restore(kernel, plan.restore_text)
    assert set(plan.base) == {("nat", "KUBE-SERVICES"), ("filter", "KUBE-FIREWALL")}
    assert [height(chain) for chains in plan.service_ports.values() for chain in chains] == [1]
    fresh = Renderer(other)
    fresh.plan_full(state)
    assert clean(kernel) == fresh.chains()
    assert not renderer.replan(state, other)
