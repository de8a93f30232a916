"""The difference between wanted and real, as what has to be written, found by the quick way and by comparing all."""

from __future__ import annotations

import random

import pytest

from kproxy.linux.errors import ToolFailedError
from kproxy.linux.iptables.canonical import ChainRef
from kproxy.linux.iptables.executor import parse_dump
from kproxy.linux.iptables.ownership import keep_reachable
from kproxy.linux.sync.iptables import desired as module
from kproxy.linux.sync.iptables.desired import (
    Blocks,
    DesiredRules,
    desired_rules,
    expected_blocks,
    find_difference,
    find_left,
)
from kproxy.services import IPFamily
from tests.support.recorded import CLUSTERS, MINIKUBE, render

WANTED = desired_rules(render(MINIKUBE, IPFamily.IPV4))
TEXT = render(MINIKUBE, IPFamily.IPV4).save_text
SVC: ChainRef = ("nat", "KUBE-SVC-GCRHHKL6ZB4XAFBC")
POSTROUTING: ChainRef = ("nat", "KUBE-POSTROUTING")
KUBELET = "*mangle\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n"


def with_lines(text: str, table: str, *lines: str, declared: tuple[str, ...] = ()) -> str:
    """The text with rules added at the end of a table."""
    head, star, rest = text.partition(f"*{table}\n")
    body, commit, tail = rest.partition("COMMIT\n")
    declarations = "".join(f":{chain} - [0:0]\n" for chain in declared)
    return head + star + declarations + body + "".join(f"{line}\n" for line in lines) + commit + tail


def test_nothing_differs() -> None:
    difference = find_difference(WANTED, parse_dump(TEXT))
    assert not difference
    assert not difference.faults


def test_an_empty_kernel_lacks_everything() -> None:
    difference = find_difference(WANTED, parse_dump(""))
    assert difference.writes == WANTED.chains
    assert list(difference.writes) == list(WANTED.chains), "in order of declaration"
    assert difference.missing == set(WANTED.chains)
    assert {fault.kind for fault in difference.faults} == {"missing"}


@pytest.mark.parametrize("edit", ["-A KUBE-POSTROUTING -j RETURN", "-A KUBE-POSTROUTING"])
def test_one_rule_too_many_is_one_chain_to_write(edit: str) -> None:
    difference = find_difference(WANTED, parse_dump(with_lines(TEXT, "nat", edit)))
    assert difference.writes == {POSTROUTING: WANTED.chains[POSTROUTING]}
    assert not difference.missing
    assert not difference.deletions
    assert not difference.edits


def test_order_counts() -> None:
    lines = TEXT.splitlines()
    own = [index for index, line in enumerate(lines) if line.startswith(f"-A {SVC[1]} ")]
    lines[own[0]], lines[own[1]] = lines[own[1]], lines[own[0]]
    assert list(find_difference(WANTED, parse_dump("\n".join(lines))).writes) == [SVC]


def test_another_spelling_of_the_same_rule_does_not() -> None:
    """As iptables 1.8.11 prints a mark, and others a mask of ones."""
    assert "0x4000/0x4000" in TEXT
    spelled = TEXT.replace("0x4000/0x4000", "0x00004000/0x00004000").replace("/32 ", "/255.255.255.255 ")
    assert spelled != TEXT
    assert not find_difference(WANTED, parse_dump(spelled))


def test_stale_chains_go_unless_others_lead_to_them() -> None:
    old = ("KUBE-SVC-AAAAAAAAAAAAAAAA", "KUBE-SEP-AAAAAAAAAAAAAAAA", "KUBE-XLB-AAAAAAAAAAAAAAAA")
    jump = f"-A {old[0]} -j {old[1]}"
    gone = find_difference(WANTED, parse_dump(with_lines(TEXT, "nat", jump, declared=old)))
    assert set(gone.deletions) == {("nat", chain) for chain in old}
    text = with_lines(TEXT, "nat", jump, f"-A THEIRS -j {old[0]}", declared=(*old, "THEIRS"))
    kept = find_difference(WANTED, parse_dump(text))
    assert kept.kept == {("nat", old[0]): "THEIRS", ("nat", old[1]): "THEIRS"}
    assert kept.deletions == (("nat", old[2]),)


def test_chains_of_others_are_no_difference() -> None:
    text = with_lines(TEXT, "nat", "-A DOCKER -j RETURN", declared=("DOCKER", "KUBE-HP-X", "KUBE-IPTABLES-HINT"))
    assert not find_difference(WANTED, parse_dump(text))


def test_the_kubelets_rule_in_its_shared_chain_is_left() -> None:
    empty = DesiredRules(WANTED.family, {("filter", "KUBE-FIREWALL"): ""}, {}, {}, dict)
    rule = "*filter\n:KUBE-FIREWALL - [0:0]\n-A KUBE-FIREWALL -d 127.0.0.0/8 -j DROP\nCOMMIT\n"
    assert find_difference(empty, parse_dump(rule)).writes == {("filter", "KUBE-FIREWALL"): ""}
    assert not find_difference(empty, parse_dump(rule + KUBELET))


def test_reachability_follows_jumps_and_ends() -> None:
    dump = parse_dump("*nat\n:A - [0:0]\n:B - [0:0]\n:C - [0:0]\n-A A -j B\n-A B -g A\nCOMMIT\n")
    places: list[ChainRef] = [("nat", "A"), ("nat", "B"), ("nat", "C")]
    assert keep_reachable(places, {("nat", "A"): "X"}, dump) == {("nat", "A"): "X", ("nat", "B"): "X"}
    assert keep_reachable(places[1:], {("nat", "A"): "X"}, dump) == {}


families = pytest.mark.parametrize("family", list(IPFamily), ids=lambda family: str(family.value))


@families
def test_what_is_as_expected_is_not_split(family: IPFamily, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered = render(MINIKUBE, family)
    wanted, text = desired_rules(rendered), rendered.save_text
    with monkeypatch.context() as patched:
        patched.setattr(module, "parse_dump", lambda *_: pytest.fail("all of it was split"))
        assert not find_left(wanted, text, "save", expected_blocks(wanted))
        split = module._without_expected(text, expected_blocks(wanted))
    assert split is not None
    dump, expected = split
    assert set(wanted.chains) == expected
    assert {name for chains in dump.tables.values() for name in chains} <= {
        *("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING")
    }


@pytest.mark.parametrize("variant", ["nft", "legacy"])
@families
def test_it_finds_what_comparing_everything_finds(variant: str, family: IPFamily) -> None:
    """A real node's dump, the kubelet's chains included, with lines lost, doubled, swapped and altered."""
    command = "ip6tables" if family.is_ipv6 else "iptables"
    text = (MINIKUBE / f"{command}-{variant}-save.v{family.value[-1]}.txt").read_text()
    wanted = desired_rules(render(MINIKUBE, family))
    for size in (1, 3, 100):
        check_edits(random.Random(f"{variant} {size}"), wanted, text, expected_blocks(wanted, size))


@families
def test_it_finds_every_edit_of_what_was_just_written(family: IPFamily) -> None:
    for case in (CLUSTERS[0], CLUSTERS[5]):
        rendered = render(case, family)
        wanted = desired_rules(rendered)
        check_edits(random.Random(case.name), wanted, rendered.save_text, expected_blocks(wanted, 7))


def check_edits(rng: random.Random, wanted: DesiredRules, text: str, blocks: Blocks) -> None:
    lines = text.splitlines(keepends=True)
    assert told(wanted, text, blocks) == told(wanted, text, None)
    for _ in range(150):
        edited = list(lines)
        at = rng.randrange(len(edited))
        kind = rng.choice(("drop", "double", "swap", "alter"))
        if kind == "drop":
            del edited[at]
        elif kind == "double":
            edited.insert(at, edited[at])
        elif kind == "swap":
            other = rng.randrange(len(edited))
            edited[at], edited[other] = edited[other], edited[at]
        else:
            edited[at] = edited[at].replace("-j ", "-m mark --mark 0x1 -j ", 1)
        assert told(wanted, "".join(edited), blocks) == told(wanted, "".join(edited), None), (kind, lines[at])


def told(wanted: DesiredRules, text: str, blocks: Blocks | None) -> object:
    """The difference that is found, or what is wrong with the text."""
    try:
        if blocks is None:
            return find_difference(wanted, parse_dump(text, "save"))
        return find_left(wanted, text, "save", blocks)
    except (ToolFailedError, ValueError) as error:
        return str(error)
