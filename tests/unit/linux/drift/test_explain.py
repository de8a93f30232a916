"""What a wrong rule means for packets, in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproxy.linux.drift import explain
from kproxy.linux.sync.desired import desired_rules
from kproxy.render.iptables.base import JUMP_RULES
from kproxy.render.origin import Origin
from kproxy.services import IPFamily, ServicePortName
from tests.support.recorded import CLUSTERS, render

WEB = ServicePortName("shop", "web", "http", "TCP")
NAME = "Service shop/web:http (TCP)"


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("cluster IP: no endpoints", f"traffic to {NAME} at its cluster IP is not refused although nothing serves it"),
        (
            "node port 30080: no local endpoints",
            f"traffic to {NAME} at its node port 30080 is not refused although nothing serves it",
        ),
        ("cluster IP: masquerade all", f"traffic to {NAME} is not masqueraded where it should be"),
        ("source range 10.0.0.0/8", f"traffic to {NAME} from 10.0.0.0/8 is not let in"),
        ("the node itself is allowed", f"traffic to {NAME} from the node itself is not let in"),
        ("load-balancer IP: source not allowed", f"sources that {NAME} does not allow are not dropped"),
        ("health-check node port 32000", f"load balancers may not learn whether {NAME} has endpoints on this node"),
        ("external traffic: to endpoints", f"traffic to {NAME} (external traffic: to endpoints) is not sent"),
    ],
)
def test_missing_rules_of_a_service(reason: str, told: str) -> None:
    text = explain.missing_rule(Origin(reason, WEB, None))
    assert text.startswith(told)
    assert explain.altered_rule(Origin(reason, WEB, None)).endswith(text)


def test_missing_base_rules() -> None:
    assert explain.missing_rule(None) == "what the rule does is not done"
    assert explain.missing_rule(Origin("base rule: drop invalid packets", None, None)) == (
        "not done any more: drop invalid packets"
    )


@pytest.mark.parametrize("case", CLUSTERS, ids=lambda case: str(case.name))
def test_every_rule_of_every_cluster_has_a_meaning_that_names_whose_it_is(case: Path) -> None:
    wanted = desired_rules(render(case, IPFamily.IPV4))
    for origins in wanted.origins().values():
        for origin in origins:
            text = explain.missing_rule(origin)
            assert text
            if origin.service_port is not None:
                assert str(origin.service_port) in text
            if origin.endpoint is not None:
                assert origin.endpoint.address in text


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("-j DROP", "may be refused"),
        ("-p tcp -j REJECT --reject-with tcp-reset", "may be refused"),
        ("-j ACCEPT", "may be let through"),
        ("-j RETURN", "before the rules after this one"),
        ("-p tcp -j DNAT --to-destination 10.0.0.1:80", "an endpoint that should not get it"),
        ("-j KUBE-SEP-AAAAAAAAAAAAAAAA", "an endpoint that should not get it"),
        ('-m comment --comment "-j DROP" -j MARK --set-xmark 0x1/0x1', "may be treated otherwise"),
    ],
)
def test_extra_rules(rule: str, told: str) -> None:
    assert told in explain.extra_rule("KUBE-SERVICES", rule, "")
    assert "passes KUBE-SERVICES" in explain.extra_rule("KUBE-SERVICES", rule, "")
    assert explain.extra_rule("KUBE-SVC-A", rule, "shop/web").startswith("traffic to Service shop/web ")


def test_reordered_rules() -> None:
    assert "not shared among its endpoints" in explain.reordered_rules("KUBE-SVC-A", "shop/web")
    assert "reach itself" in explain.reordered_rules("KUBE-SEP-A", "shop/web")
    assert "node-port rule must be last" in explain.reordered_rules("KUBE-SERVICES", "")
    assert "another order" in explain.reordered_rules("KUBE-FORWARD", "")


def test_missing_chains() -> None:
    assert explain.missing_chain("nat", "KUBE-SVC-A", "shop/web").startswith("traffic to Service shop/web ")
    assert "flushed" in explain.missing_chain("mangle", "KUBE-PROXY-CANARY", "")
    assert explain.missing_chain("filter", "KUBE-NEW", "") == "what chain KUBE-NEW of table filter does is not done"


@pytest.mark.parametrize("jump", JUMP_RULES, ids=lambda jump: f"{jump.table}-{jump.source}")
def test_faults_of_jump_rules(jump: object) -> None:
    assert isinstance(jump, type(JUMP_RULES[0]))
    rule = jump.text.partition(f"-A {jump.source} ")[2] or jump.text
    missing = explain.faulty_jump(jump.table, jump.source, "missing", rule)
    assert "what chain" not in missing, "each is known by what it is for"
    assert "{" not in missing
    assert explain.faulty_jump(jump.table, jump.source, "misplaced", rule).endswith(missing)
    assert "more than once" in explain.faulty_jump(jump.table, jump.source, "duplicated", rule)
    assert jump.source in explain.faulty_jump(jump.table, jump.source, "extra", rule)
