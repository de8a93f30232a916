"""The syncer: keeps up with changes, and starts over after a failure."""

from __future__ import annotations

import pytest

from kproxy.api.types.core import ServicePort
from kproxy.cluster.stale_flows import Addresses, StaleFlow
from kproxy.linux.errors import RestoreFailedError, ToolFailedError
from kproxy.linux.iptables.preflight import line_rewriter
from kproxy.linux.namespace import Namespace
from kproxy.linux.sync.iptables.backend import Syncer
from kproxy.linux.sync.iptables.desired import desired_rules
from kproxy.render import RenderedTarget, Renderer, RenderOptions
from kproxy.services import IPFamily, ServiceState
from tests.support.linux.fake import Faulty, MemoryExecutor, refused
from tests.support.linux.suite import rules_of
from tests.support.services.builders import make_endpoint, make_service, make_slice


def setting() -> tuple[MemoryExecutor, ServiceState, Renderer]:
    services = [make_service("web"), make_service("db", cluster_ips=("10.96.0.2",))]
    slices = [make_slice(make_endpoint()), make_slice(make_endpoint("10.244.0.9"), service="db", name="db-1")]
    state = ServiceState.of(IPFamily.IPV4, "node-0", services, slices)
    return MemoryExecutor(IPFamily.IPV4), state, Renderer(RenderOptions(node_name="node-0"))


def fresh(state: ServiceState) -> dict[str, dict[str, list[str]]]:
    """What a first apply of the same state gives."""
    from kproxy.linux.sync.iptables.reconcile import reconcile_rules

    executor = MemoryExecutor(IPFamily.IPV4)
    reconcile_rules(executor, desired_rules(RenderedTarget.of(state, RenderOptions(node_name="node-0"))))
    return rules_of(executor)


def test_changes_end_where_a_first_apply_would() -> None:
    executor, state, renderer = setting()
    counted = Faulty(executor)
    syncer = Syncer(counted, state, renderer)
    syncer.sync()
    assert rules_of(executor) == fresh(state)
    before = counted.restores
    for endpoints in (("10.244.0.5", "10.244.0.6"), ("10.244.0.6",), (), ("10.244.0.7",)):
        state.update_endpoint_slice(make_slice(*(make_endpoint(ip) for ip in endpoints), address_type="IPv4"))
        syncer.sync()
        assert rules_of(executor) == fresh(state)
    assert counted.restores == before + 4, "one process for each change"
    state.delete_service("shop/web")
    syncer.sync()
    assert rules_of(executor) == fresh(state)
    syncer.sync()
    assert counted.restores == before + 5, "nothing changed, nothing is written"


def test_after_a_failure_everything_is_compared_again() -> None:
    executor, state, renderer = setting()
    syncer = Syncer(Faulty(executor, fail_at=4, error=refused), state, renderer)
    syncer.sync()
    state.update_endpoint_slice(make_slice(make_endpoint("10.244.0.6")))
    try:
        syncer.sync()
        state.update_endpoint_slice(make_slice(make_endpoint("10.244.0.8")))
        syncer.sync()
        pytest.fail("one of them is refused")
    except RestoreFailedError:
        assert syncer.needs_resync
    syncer.sync()
    assert not syncer.needs_resync
    assert rules_of(executor) == fresh(state)


def test_a_sync_says_what_it_did() -> None:
    executor, state, renderer = setting()
    syncer = Syncer(executor, state, renderer)
    first = syncer.sync()
    assert first.full
    assert first.wrote
    assert first.found
    totals = syncer.rule_totals()
    assert totals == {
        table: sum(len(rules) for name, rules in chains.items() if name.startswith("KUBE-"))
        for table, chains in rules_of(executor).items()
    }
    assert not syncer.sync().wrote
    state.update_endpoint_slice(make_slice(make_endpoint("10.244.0.6")))
    second = syncer.sync()
    assert not second.full
    assert {str(name) for name in second.touched} == {"shop/web"}
    assert (second.chains_written, second.chains_deleted) == (2, 1)
    assert second.rules_written == {"nat": 3}
    assert {"state", "render", "write"} <= {step.step for step in second.steps}
    assert syncer.rule_totals() == totals
    assert not syncer.resync().wrote


def test_new_options_are_written_partially_and_by_a_resync_alike() -> None:
    options = RenderOptions(node_name="node-0", masquerade_mark=1 << 9)
    for needs_resync in (False, True):
        executor, state, renderer = setting()
        syncer = Syncer(executor, state, renderer)
        syncer.sync()
        syncer.set_options(options)
        syncer.needs_resync = needs_resync
        report = syncer.sync()
        assert report.full == needs_resync
        assert report.chains_written == 3, "mark, postrouting, forward"
        assert "0x200" in str(rules_of(executor)["nat"]["KUBE-MARK-MASQ"])
        assert syncer.options == options
        assert not syncer.resync().wrote


def test_lines_that_this_kernel_cannot_load_are_rewritten_in_partial_syncs_too() -> None:
    executor, state, renderer = setting()
    rewrite = line_rewriter({"comment"})
    syncer = Syncer(executor, state, renderer, rewrite=rewrite, canary_tables=("nat",))
    syncer.sync()
    state.update_endpoint_slice(make_slice(make_endpoint("10.244.0.6")))
    assert not syncer.sync().full
    text = str(rules_of(executor))
    assert "10.244.0.6" in text
    assert "comment" not in text
    assert "KUBE-PROXY-CANARY" not in str(rules_of(executor).get("mangle", {}))
    assert not syncer.resync().wrote


def test_a_bug_in_between_leads_to_a_resync(monkeypatch: pytest.MonkeyPatch) -> None:
    executor, state, renderer = setting()
    syncer = Syncer(executor, state, renderer)
    syncer.sync()
    state.update_endpoint_slice(make_slice(make_endpoint("10.244.0.6")))
    with monkeypatch.context() as patched:
        patched.setattr(renderer, "plan_partial", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            syncer.sync()
    assert syncer.sync().full
    assert rules_of(executor) == fresh(state)


def test_flows_that_could_not_be_cleaned_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    udp = ServicePort(port=53, protocol="UDP")
    dns = make_service("dns", ports=(udp,))
    state = ServiceState.of(IPFamily.IPV4, "node-0", [dns, make_service("web", cluster_ips=("10.96.0.2",))], [])
    asked: list[Addresses] = []
    broken = [False]

    def clean(_namespace: object, _family: object, _wanted: object, before: Addresses) -> list[StaleFlow]:
        asked.append(before)
        if broken[0]:
            raise ToolFailedError("conntrack is broken")
        return []

    monkeypatch.setattr("kproxy.linux.sync.family_syncer.clean_flows", clean)
    executor = MemoryExecutor(IPFamily.IPV4)
    syncer = Syncer(executor, state, Renderer(RenderOptions(node_name="node-0")), Namespace.current())
    syncer.sync()
    assert len(asked) == 1
    state.update_service(make_service("web", cluster_ips=("10.96.0.3",)))
    syncer.sync()
    assert len(asked) == 1, "TCP needs no cleaning"
    broken[0] = True
    state.delete_service("shop/dns")
    assert "conntrack is broken" in syncer.sync().notes[0]
    assert rules_of(executor) == fresh(state), "the rules are right all the same"
    broken[0] = False
    state.update_service(make_service("web", cluster_ips=("10.96.0.4",)))
    assert syncer.sync().notes == ()
    assert ("UDP", "10.96.0.1", 53) in asked[-1].services
    syncer.sync()
    assert len(asked) == 3
    state.update_service(dns)
    syncer.sync()
    assert len(asked) == 4, "packets may have come before there was a rule"
    syncer.sync(check=True)
    assert len(asked) == 5, "and once more with the next check: an entry may have come late"
    assert ("UDP", "10.96.0.1", 53) in asked[-1].services
    syncer.sync(check=True)
    assert len(asked) == 5


def test_the_first_sync_cleans_up_after_a_killed_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rules were written and need no change, so only the first sync shows that its flows were left."""
    cleaned: list[Addresses] = []

    def clean(_namespace: object, _family: object, wanted: Addresses, _before: object) -> list[StaleFlow]:
        cleaned.append(wanted)
        return []

    monkeypatch.setattr("kproxy.linux.sync.family_syncer.clean_flows", clean)
    dns = make_service("dns", ports=(ServicePort(port=53, protocol="UDP"),))
    executor = MemoryExecutor(IPFamily.IPV4)
    for _restart in range(2):
        cleaned.clear()
        state = ServiceState.of(IPFamily.IPV4, "node-0", [dns], [])
        syncer = Syncer(executor, state, Renderer(RenderOptions(node_name="node-0")), Namespace.current())
        syncer.sync()
        assert [("UDP", "10.96.0.1", 53) in wanted.services for wanted in cleaned] == [True]
    syncer.resync()
    assert len(cleaned) == 1, "what is right since then needs no look"


def test_flows_of_the_other_mode_are_cleaned_when_its_rules_went(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, and again with the next sync if that failed."""
    asked: list[Addresses] = []
    broken = [True]

    def clean(_namespace: object, _family: object, _wanted: object, before: Addresses) -> list[StaleFlow]:
        asked.append(before)
        if broken[0]:
            raise ToolFailedError("conntrack is broken")
        return []

    monkeypatch.setattr("kproxy.linux.sync.family_syncer.clean_flows", clean)
    executor, state, renderer = setting()
    syncer = Syncer(executor, state, renderer, Namespace.current())
    broken[0] = False
    syncer.sync()
    asked.clear()
    syncer.other_rules_went(Addresses({}, {}, frozenset()))
    assert asked == [], "they sent no traffic anywhere"
    key = ("UDP", "10.96.0.9", 53)
    old = Addresses({key: "shop/dns/UDP"}, {key: frozenset()}, frozenset())
    broken[0] = True
    syncer.other_rules_went(old)
    broken[0] = False
    syncer.sync()
    assert [key in before.services for before in asked] == [True, True]
    syncer.sync()
    assert len(asked) == 2
