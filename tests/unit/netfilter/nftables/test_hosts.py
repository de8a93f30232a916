"""What programs such as docker, firewalld and Calico left in the kernel, as nft lists it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproxy.netfilter.family import BUILTIN_CHAINS
from kproxy.netfilter.nftables.check import check_nft
from kproxy.netfilter.nftables.ruleset import NftRuleset, TableFamily
from kproxy.netfilter.nftables.statement import OpaqueStatement, Xt
from kproxy.netfilter.nftables.style import BOOKWORM, TRIXIE, Style
from kproxy.netfilter.nftables.text import parse_nft, print_nft, print_table
from tests.support import paths

HOSTS = paths.TESTS / "reference" / "hosts"
LISTINGS = sorted(HOSTS.glob("*/ruleset.nft"))


IPTABLES = {(family, name) for family in (TableFamily.IP, TableFamily.IP6) for name in BUILTIN_CHAINS}
"""Tables of iptables-nft, which nft shows without their comments and options."""


def without_iptables(ruleset: NftRuleset) -> NftRuleset:
    return NftRuleset(tuple(table for table in ruleset.tables if (table.family, table.name) not in IPTABLES))


def with_missing(text: str) -> str:
    """A route that must not be there, spelt in one way: the kernel keeps whether it was `0` or `missing`, we do not."""
    return text.replace(" oif 0 ", " oif missing ")


def test_the_recorded_hosts_are_there() -> None:
    assert len(LISTINGS) > 10


@pytest.mark.parametrize("path", LISTINGS, ids=lambda path: path.parent.name)
def test_everything_is_understood(path: Path) -> None:
    text = path.read_text()
    ruleset = parse_nft(text, str(path))
    assert check_nft(ruleset) == []
    own = without_iptables(ruleset)
    for *_, rule in ruleset.rules():
        assert not any(isinstance(statement, OpaqueStatement) for statement in rule.statements)
    for *_, rule in own.rules():
        assert not any(isinstance(statement, Xt) for statement in rule.statements)
    for table in own.tables:
        printed = [print_table(table, style) for style in (BOOKWORM, TRIXIE)]
        assert any(part in with_missing(text) for part in printed)
        assert all(parse_nft(part) == NftRuleset((table,)) for part in printed)


@pytest.mark.parametrize("path", sorted(HOSTS.glob("*/ruleset-handles.nft")), ids=lambda path: path.parent.name)
def test_handles_change_nothing(path: Path) -> None:
    plain = without_iptables(parse_nft((path.parent / "ruleset.nft").read_text()))
    with_handles = parse_nft(path.read_text())
    assert without_iptables(with_handles) == plain
    printed = [print_nft(with_handles, Style(release, handles=True)) for release in ((1, 0, 6), (1, 1, 3))]
    assert with_missing(path.read_text()) in printed
