"""The short way to canonical rules gives what `netfilter` gives."""

from __future__ import annotations

import pytest

from kproxy.linux.iptables.canonical import canonicalizer, same_rule, same_rules
from kproxy.linux.sync.iptables.desired import desired_rules
from kproxy.netfilter import canonicalize_rule
from kproxy.render.iptables.save import saved_ruleset
from kproxy.services import IPFamily
from tests.support.recorded import CLUSTERS, MINIKUBE, render

both_families = pytest.mark.parametrize("family", list(IPFamily), ids=lambda family: str(family.value))


@both_families
def test_every_recorded_cluster(family: IPFamily) -> None:
    for case in [*CLUSTERS, MINIKUBE]:
        rendered = render(case, family)
        wanted = desired_rules(rendered)
        ruleset = saved_ruleset(rendered.restore_text, family)
        for place in wanted.chains:
            chain = ruleset.chain(*place)
            assert chain is not None
            assert wanted.rules(place) == [rule.spec() for rule in chain.rules]
        for place, jumps in wanted.jumps.items():
            chain = ruleset.chain(*place)
            assert chain is not None
            assert list(jumps) == [rule.spec() for rule in chain.rules]


@pytest.mark.parametrize("comment", ["-m comment --comment shop/web:http ", ""])
@pytest.mark.parametrize("quoted", ['-m comment --comment "shop/web:http -> 10.0.0.1:80" ', ""])
@pytest.mark.parametrize("protocol", ["tcp", "udp", "sctp"])
def test_the_shapes_with_and_without_comments(comment: str, quoted: str, protocol: str) -> None:
    for chain, rules in {
        "KUBE-SEP-ABCDEFGHIJKLMNOP": (
            f"{comment}-s 10.0.0.1 -j KUBE-MARK-MASQ",
            f"{comment}-m {protocol} -p {protocol} -j DNAT --to-destination 10.0.0.1:80",
            f"{comment}-m recent --name X --set -m {protocol} -p {protocol} -j DNAT --to-destination 10.0.0.1:80",
        ),
        "KUBE-SVC-ABCDEFGHIJKLMNOP": (
            f"{quoted}-j KUBE-SEP-ABCDEFGHIJKLMNOP",
            *(
                f"{quoted}-m statistic --mode random --probability {1 / n:.10f} -j KUBE-SEP-ABCDEFGHIJKLMNOP"
                for n in range(2, 60)
            ),
            f'-m comment --comment "shop/web cluster IP" -m {protocol} -p {protocol} -d 10.0.0.1 --dport 80 ! -s '
            "10.0.0.0/8 -j KUBE-MARK-MASQ",
        ),
        "KUBE-SERVICES": (
            f'-m comment --comment "a/b:c loadbalancer IP" -m {protocol} -p {protocol} -d 10.0.0.1 --dport 80 -j '
            "KUBE-FW-ABCDEFGHIJKLMNOP",
        ),
    }.items():
        text = "".join(f"-A {chain} {rule}\n" for rule in rules)
        wanted = [canonicalize_rule(rule, family=IPFamily.IPV4) for rule in rules]
        assert canonicalizer(IPFamily.IPV4).rules(chain, text) == wanted


def test_another_spelling_is_the_same_rule() -> None:
    assert same_rule("-p tcp -m tcp --dport 80 -j DROP", "-p 6 -m tcp --dport 80 -j DROP", IPFamily.IPV4)
    assert not same_rule("-p tcp -j DROP", "-p udp -j DROP", IPFamily.IPV4)
    assert not same_rules(["-j DROP"], [], IPFamily.IPV4)
