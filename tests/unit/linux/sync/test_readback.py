"""Reading back: the quick way finds what comparing everything finds."""

from __future__ import annotations

import random

import pytest

from kproxy.linux.errors import ToolFailedError
from kproxy.linux.iptables.dump import parse_dump
from kproxy.linux.sync import readback
from kproxy.linux.sync.desired import DesiredRules, desired_rules
from kproxy.linux.sync.difference import find_difference
from kproxy.linux.sync.readback import Blocks, expected_blocks, find_left
from kproxy.services import IPFamily
from tests.support.recorded import CLUSTERS, MINIKUBE, render

families = pytest.mark.parametrize("family", list(IPFamily), ids=lambda family: str(family.value))


@families
def test_what_is_as_expected_is_not_split(family: IPFamily, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered = render(MINIKUBE, family)
    wanted, text = desired_rules(rendered), rendered.save_text
    with monkeypatch.context() as patched:
        patched.setattr(readback, "parse_dump", lambda *_: pytest.fail("all of it was split"))
        assert not find_left(wanted, text, "save", expected_blocks(wanted))
        split = readback._without_expected(text, expected_blocks(wanted))
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
