"""What to do about a cause: kube-proxy's rules are mended by kube-proxy, and rules of others by their owner."""

from __future__ import annotations

from msgspec.structs import replace

from kproxy.dataplane.compare.difference import Cause, Instead
from kproxy.explorer.compare.remedy import of_diff, of_drift

SERVICES = Cause("a", "nat", "KUBE-SERVICES", 6, "-A KUBE-SERVICES -j KUBE-SVC-X", "jump to KUBE-SVC-X", False)
ENDPOINT = Cause(
    "a",
    "nat",
    "KUBE-SEP-X",
    2,
    "-A KUBE-SEP-X -j DNAT --to-destination 10.0.0.1:80",
    "",
    False,
    instead=Instead(2, "", ""),
)
EXTRA = Cause(
    "b", "filter", "KUBE-FORWARD", 1, '-A KUBE-FORWARD -m comment --comment "ban all" -j DROP', "`-j DROP`", False
)
JUMP = Cause("a", "filter", "FORWARD", 2, "-A FORWARD -j KUBE-FORWARD", "jump to KUBE-FORWARD", False)
OTHERS = Cause("b", "filter", "f2b-sshd", 1, "-A f2b-sshd -s 192.0.2.1/32 -j REJECT", "`-j REJECT`", False)
ELEMENT = Cause(
    "a", "ip kube-proxy", "services", 1, "10.96.0.1 . tcp . 80", "map service-ips", False, set="service-ips"
)


def test_what_kube_proxy_mends_says_when_it_does() -> None:
    assert "with its next sync" in of_drift(SERVICES)
    assert "when its Service changes" in of_drift(ENDPOINT)
    assert "with its next full sync" in of_drift(ELEMENT)
    for cause in (SERVICES, ENDPOINT, ELEMENT, JUMP, EXTRA, None):
        assert "`kproxy drift --repair`" in of_drift(cause)


def test_what_is_too_much_in_its_chains_goes_and_may_come_back() -> None:
    told = of_drift(EXTRA)
    assert "it goes with its next sync" in told
    assert told.endswith("look for the program that writes it, by its comment “ban all”.")


def test_an_old_rule_of_kube_proxys_has_no_owner_to_look_for() -> None:
    old = Cause("b", "nat", "KUBE-SVC-X", 2, "-A KUBE-SVC-X -j KUBE-SEP-Y", "jump to KUBE-SEP-Y", False)
    refusal = '-A KUBE-SERVICES -m comment --comment "shop/web:http has no endpoints" -j REJECT'
    for cause in (old, Cause("b", "filter", "KUBE-SERVICES", 1, refusal, "", False), replace(ELEMENT, side="b")):
        assert "older than the objects" in of_drift(cause)
        assert "the program that writes it" not in of_drift(cause)


def test_jumps_are_put_back_and_others_left_alone() -> None:
    assert "puts it first in FORWARD with its next full sync" in of_drift(JUMP)
    assert "leaves what is in FORWARD alone" in of_drift(replace(JUMP, side="b"))
    assert "leaves what is in FORWARD alone" in of_drift(replace(JUMP, instead=Instead(3, "", "")))


def test_of_two_sources_the_rules_of_others_have_an_owner() -> None:
    assert "neither writes nor removes it" in of_diff(OTHERS)
    assert "by the chain f2b-sshd and" in of_diff(OTHERS)
    assert [of_diff(cause) for cause in (SERVICES, ENDPOINT, EXTRA, JUMP, ELEMENT, None)] == [""] * 6
