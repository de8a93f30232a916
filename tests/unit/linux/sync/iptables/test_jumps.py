"""Jump rules: which edits put a chain right."""

from __future__ import annotations

import pytest

from kproxy.linux.sync.iptables.jumps import JumpEdit, ensure_jumps, takes_everything
from kproxy.netfilter.text import ChainText, SaveText
from kproxy.services import IPFamily

A, B, C = "-j KUBE-FIREWALL", "-j KUBE-SERVICES", "-j KUBE-FORWARD"
THEIRS = "-s 192.0.2.1/32 -j ACCEPT"
WANTED = {("filter", "INPUT"): (A, B, C)}


def edit(*rules: str, others: dict[str, ChainText] | None = None) -> JumpEdit | None:
    chain = ChainText("ACCEPT", list(rules), [""] * len(rules))
    edits, _ = ensure_jumps(SaveText({"filter": {"INPUT": chain, **(others or {})}}), IPFamily.IPV4, WANTED)
    return edits[0] if edits else None


def carried_out(rules: tuple[str, ...], change: JumpEdit | None) -> list[str]:
    done = list(rules)
    if change is not None:
        for rule in change.deletions:
            done.remove(rule)
        for number, _, rule in change.insertions:
            done.insert(number - 1, rule)
    return done


@pytest.mark.parametrize(
    ("rules", "after"),
    [
        ((), (A, B, C)),
        ((A, B, C), (A, B, C)),
        ((THEIRS, A, B, C), (THEIRS, A, B, C)),
        ((B, C), (A, B, C)),
        ((A, C, THEIRS), (A, B, C, THEIRS)),
        ((A, B, THEIRS), (A, B, C, THEIRS)),
        ((THEIRS, "-j DOCKER"), (A, B, C, THEIRS, "-j DOCKER")),
        ((A, A, B, C), (A, B, C)),
        ((C, B, A), (A, B, C)),
        ((B, C, A), (A, B, C)),
        ((A, B, THEIRS, C), (A, B, C, THEIRS)),
        ((A, THEIRS, B, C), (THEIRS, A, B, C)),
        (("-j DROP", A, B, C), (A, B, C, "-j DROP")),
        ((A, B, "-s 192.0.2.9/32 -j KUBE-FORWARD", C), (A, B, C)),
        ((A, THEIRS, A, B, THEIRS, C), (THEIRS, A, B, C, THEIRS)),
    ],
)
def test_the_fewest_edits_put_it_right(rules: tuple[str, ...], after: tuple[str, ...]) -> None:
    result = carried_out(rules, edit(*rules))
    assert [rule for rule in result if "KUBE" in rule] == [A, B, C]
    assert [rule for rule in result if "KUBE" not in rule] == [rule for rule in rules if "KUBE" not in rule]
    assert result == list(after)


def test_a_kubelet_places_the_firewall_jump_itself() -> None:
    kubelet = {"KUBE-KUBELET-CANARY": ChainText("-", [], [])}
    assert edit(B, C, THEIRS, A, others=kubelet) is None
    assert edit(B, C, THEIRS, A) is not None


def test_what_takes_every_packet() -> None:
    assert takes_everything("-j DROP")
    assert takes_everything("-j REJECT --reject-with icmp-port-unreachable")
    assert not takes_everything("-p tcp -j DROP")
    assert not takes_everything("-j DOCKER")
