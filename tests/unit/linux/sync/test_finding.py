"""What each kind of finding is about, in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproxy.linux.sync.finding import altered_means, extra_means, faulty_jump_means, missing_chain_means, missing_means
from kproxy.linux.sync.iptables.desired import desired_rules
from kproxy.render.iptables.base import JUMP_RULES
from kproxy.render.origin import Origin
from kproxy.services import IPFamily
from tests.support.recorded import CLUSTERS, render


def test_missing_base_rules() -> None:
    assert missing_means(None) == "what it does is not done"
    assert missing_means(Origin("base rule: drop invalid packets")) == "not done any more: drop invalid packets"


@pytest.mark.parametrize("case", CLUSTERS, ids=lambda case: str(case.name))
def test_every_rule_of_every_cluster_has_a_meaning_that_names_whose_it_is(case: Path) -> None:
    wanted = desired_rules(render(case, IPFamily.IPV4))
    for origins in wanted.origins().values():
        for origin in origins:
            text = missing_means(origin)
            assert altered_means(origin).endswith(text)
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
        ("10.96.0.1 . tcp . 80 : goto service-A-shop/web/tcp/", "an endpoint that should not get it"),
        ("ip saddr 10.0.0.1 drop", "may be refused"),
    ],
)
def test_extra_rules_and_elements(rule: str, told: str) -> None:
    assert told in extra_means(rule, "KUBE-SERVICES", "")
    assert "meets KUBE-SERVICES" in extra_means(rule, "KUBE-SERVICES", "")
    assert extra_means(rule, "KUBE-SVC-A", "shop/web").startswith("traffic to Service shop/web ")


def test_missing_chains() -> None:
    assert missing_chain_means("nat", "KUBE-SVC-A", "shop/web").startswith("traffic to Service shop/web ")
    assert "flushed" in missing_chain_means("mangle", "KUBE-PROXY-CANARY", "")
    assert missing_chain_means("filter", "KUBE-NEW", "") == "what chain KUBE-NEW of table filter does is not done"


@pytest.mark.parametrize("jump", JUMP_RULES, ids=lambda jump: f"{jump.table}-{jump.source}")
def test_faults_of_jump_rules(jump: object) -> None:
    assert isinstance(jump, type(JUMP_RULES[0]))
    for kind in ("missing", "duplicated", "misplaced", "extra"):
        text = faulty_jump_means(jump.source, kind, jump.target)
        assert jump.source in text
        assert jump.target in text
