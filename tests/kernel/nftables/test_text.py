"""`kproxy.netfilter.nftables` against the machine's nft: what a script says, what the kernel lists, what we print."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from kproxy.netfilter import Family
from kproxy.netfilter.nftables.style import BOOKWORM, TRIXIE, Style
from kproxy.netfilter.nftables.text import parse_nft, print_nft
from tests.support.kernel.dataplane_nft_rules import NftGenerator
from tests.support.kernel.namespaces import fresh_namespace, run
from tests.support.netfilter.nft_corpus import TABLES, recorded_rules, script_of
from tests.support.recorded import CLUSTERS

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(shutil.which("nft") is None and os.geteuid() == 0, reason="nft is not installed"),
]

OPTIONS = ("-a", "-s", "-n")
MERGED = "ip saddr { 10.0.0.0/8 }"
WRITTEN = "ip saddr { 10.0.0.0/9, 10.128.0.0/9 }"
"""nft joins the two and keeps the braces. What it lists so is another rule when it is loaded: one with a prefix."""


def style() -> Style:
    """The layout of the machine's nft."""
    found = re.search(r"v(\d+)\.(\d+)", run("nft", "--version"))
    assert found is not None
    return TRIXIE if (int(found[1]), int(found[2])) >= (1, 1) else BOOKWORM


def load(namespace: str, script: str) -> None:
    """Loads a script into an emptied namespace."""
    run("nft", "-f", "-", namespace=namespace, text="flush ruleset\n" + script)


def listing(namespace: str, *options: str) -> str:
    """What nft lists."""
    return run("nft", *options, "list", "ruleset", namespace=namespace)


@pytest.fixture(scope="module")
def space() -> Iterator[str]:
    with fresh_namespace() as name:
        yield name


def files(step: int = 1, start: int = 0) -> list[Path]:
    return [path / f"kube-proxy.{family}.nft" for path in CLUSTERS[start::step] for family in ("v4", "v6")]


def check_file(space: str, path: Path) -> None:
    text = path.read_text()
    ours = parse_nft(text, str(path))
    load(space, text)
    listed = listing(space)
    assert print_nft(ours, style()) == listed
    assert parse_nft(listed) == ours
    assert print_nft(parse_nft(listed), style()) == listed
    for option in OPTIONS:
        assert parse_nft(listing(space, option)) == ours, option


def test_recorded_clusters_are_listed_byte_for_byte(space: str) -> None:
    for path in files(26, 1):
        check_file(space, path)


@pytest.mark.slow
def test_all_recorded_clusters_are_listed_byte_for_byte(space: str) -> None:
    for path in files():
        check_file(space, path)


def test_recorded_rules_are_listed_byte_for_byte(space: str) -> None:
    script = script_of(recorded_rules())
    ours = parse_nft(script, "rules")
    load(space, script)
    listed = listing(space)
    if not style().newer:  # which rewrites two of them: tests/unit/netfilter/nftables/test_rules.py
        assert print_nft(ours, style()) == listed
        assert parse_nft(listed.replace(MERGED, WRITTEN)) == ours
    known = parse_nft(listed)
    for option in OPTIONS:  # -n prints "exists" as it prints the index 1
        assert parse_nft(listing(space, option).replace("fib saddr oif 1", "fib saddr oif exists")) == known, option
    load(space, print_nft(known, style()))
    assert parse_nft(listing(space)) == known


def test_every_kind_of_set_and_object_is_listed_byte_for_byte(space: str) -> None:
    text = TABLES.read_text()
    ours = parse_nft(text, "tables")
    load(space, text)
    listed = listing(space)
    assert re.sub(r" expires [0-9a-z]+", "", listed) == print_nft(ours, style())
    for option in OPTIONS:  # -n prints numbers in blocks that are kept as text
        named = listing(space, option).replace("timeout 120s\n", "timeout 2m\n")
        assert parse_nft(named.replace("protocol 6\n", "protocol tcp\n")) == ours, option


@pytest.mark.parametrize("family", list(Family), ids=lambda family: f"v{family.version}")
@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 100), marks=pytest.mark.soak)], ids=["few", "many"])
def test_random_rules_come_back_from_the_kernel(space: str, seeds: range, family: Family) -> None:
    for seed in seeds:
        load(space, NftGenerator(Random(seed), family, tables=4, wide=True).ruleset())
        listed = re.sub(r"{ ([0-9a-f.:]+/\d+) }", r"\1", listing(space))  # a set of one network: see WRITTEN
        assert print_nft(parse_nft(listed), style()) == listed
