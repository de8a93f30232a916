"""What makes one table of another, and in which transactions."""

from __future__ import annotations

import msgspec
import pytest

from kproxy.linux.nftables.table import (
    RULES_PER_TRANSACTION,
    Change,
    SetText,
    TableText,
    deletion_script,
    difference,
    plan_transactions,
)
from kproxy.render.nftables.serviceport import ElementValue
from kproxy.render.nftables.table import element_text
from tests.support.linux.nft_tables import make_table, parse_script, random_tables, table_script


def lines(change: Change, rules_per_transaction: int = RULES_PER_TRANSACTION) -> list[list[str]]:
    return [each.splitlines() for each in plan_transactions(change, rules_per_transaction)]


@pytest.mark.parametrize("version", [4, 6])
def test_a_script_is_read_back_as_it_was(version: int) -> None:
    table = make_table("aB1", version)
    assert parse_script(table_script(table)) == table
    with pytest.raises(ValueError, match="line 2 adds nothing to table ip kube-proxy: add chain ip other x"):
        parse_script("add table ip kube-proxy\nadd chain ip other x\n")
    with pytest.raises(ValueError, match="line 1 adds a 'flowtable'"):
        parse_script("add flowtable ip kube-proxy f\n")


def test_elements_are_written_with_comment_and_verdict() -> None:
    assert element_text("1.2.3.4", ElementValue()) == "1.2.3.4"
    assert element_text("tcp . 80", ElementValue("drop", "ns/a:p")) == 'tcp . 80 comment "ns/a:p" : drop'


def test_the_same_table_needs_nothing() -> None:
    change = difference(make_table("aB1"), make_table("aB1"))
    assert not change
    assert plan_transactions(change) == []


def test_new_endpoints_are_one_rule() -> None:
    change = difference(make_table("ab"), make_table("ab", revision=1))
    assert set(change.rules) == {"service-HASHAAF7-ns/a/tcp/", "service-HASHAAFE-ns/b/tcp/"}
    table = make_table("ab")
    rules = {**table.rules, "service-HASHAAF7-ns/a/tcp/": ("drop",)}
    one = difference(table, msgspec.structs.replace(table, rules=rules))
    chain = "ip kube-proxy service-HASHAAF7-ns/a/tcp/"
    assert lines(one) == [[f"flush chain {chain}", f"add chain {chain} {{", "drop", "}"]]


def test_a_service_that_goes_leaves_an_empty_chain_until_it_is_deleted() -> None:
    change = difference(make_table("ab"), make_table("b"))
    t, chain = "ip kube-proxy", "service-HASHAAF7-ns/a/tcp/"
    assert lines(change) == [
        [
            f"flush chain {t} {chain}",
            f"delete element {t} cluster-ips {{ 10.96.0.97 }}",
            f"delete element {t} service-ips {{ 10.96.0.97 . tcp . 80 }}",
        ]
    ]
    assert change.stale_chains == (chain,)
    assert deletion_script(t, change.stale_chains) == f"flush chain {t} {chain}\ndelete chain {t} {chain}\n"


def test_a_verdict_that_changes_is_deleted_and_added_in_one_transaction() -> None:
    table = make_table("a")
    ref = ("service-ips", "10.96.0.97 . tcp . 80")
    other = msgspec.structs.replace(table, elements={**table.elements, ref: ElementValue("drop")})
    assert lines(difference(table, other)) == [
        [
            "delete element ip kube-proxy service-ips { 10.96.0.97 . tcp . 80 }",
            "add element ip kube-proxy service-ips { 10.96.0.97 . tcp . 80 : drop }",
        ]
    ]


def test_a_set_that_is_replaced_takes_the_rules_that_name_it_with_it() -> None:
    change = difference(make_table("A"), make_table("A", affinity=60))
    assert len(change.replaced_sets) == 3
    assert set(change.rules) == {name for name in make_table("A").chains if "/" in name}
    assert not change.elements
    assert not change.chains
    assert not change.stale_elements


def test_a_base_chain_with_another_priority_is_made_anew() -> None:
    table = make_table("a")
    moved = {**table.chains, "nat-prerouting": "{ type nat hook prerouting priority -99 ; }"}
    [script] = lines(difference(msgspec.structs.replace(table, chains=moved), table))
    assert script == [
        "flush chain ip kube-proxy nat-prerouting",
        "delete chain ip kube-proxy nat-prerouting",
        "add chain ip kube-proxy nat-prerouting { type nat hook prerouting priority -100 ; }",
        "add chain ip kube-proxy nat-prerouting {",
        "jump services",
        "}",
    ]


def test_many_rules_of_new_chains_come_first_and_nothing_leads_to_them_before_the_last_transaction() -> None:
    table = make_table("abcdA1")
    change = difference(None, table)
    scripts = lines(change, rules_per_transaction=3)
    assert len(scripts) > 3
    assert not any("hook" in line or "add element" in line for script in scripts[:-1] for line in script)
    rules = {rule for own in table.rules.values() for rule in own}
    written = [sum(line.startswith("add rule") or line in rules for line in script) for script in scripts]
    assert sum(written) == sum(map(len, table.rules.values()))
    assert max(written[1:-1]) <= 4


def applied(table: TableText | None, change: Change) -> TableText:
    """What a change makes of a table, by the fields of the change."""
    before = table if table is not None else TableText(change.table)
    chains = {name: d for name, d in before.chains.items() if name not in change.stale_chains} | dict(change.chains)
    rules = {
        name: own
        for name, own in ({**before.rules} | {**change.rules}).items()
        if own and name not in change.stale_chains
    }
    sets = {name: each for name, each in before.sets.items() if name not in change.stale_sets} | dict(change.sets)
    gone = set(change.stale_sets) | change.replaced_sets
    elements = {
        ref: value for ref, value in before.elements.items() if ref not in change.stale_elements and ref[0] not in gone
    } | dict(change.elements)
    definition = change.create if change.create is not None else before.definition
    return TableText(before.name, definition, chains, rules, sets, elements)


@pytest.mark.parametrize("seed", range(20))
def test_a_difference_leads_from_one_table_to_the_other(seed: int) -> None:
    before: TableText | None = None
    for after in random_tables(seed, 5):
        assert applied(before, difference(before, after)) == after
        before = after


def test_a_set_that_is_gone_is_deleted_with_its_elements() -> None:
    table = make_table("a")
    more = msgspec.structs.replace(
        table,
        sets={**table.sets, "nodeport-ips": SetText("set", "{ type ipv4_addr ; }")},
        elements={**table.elements, ("nodeport-ips", "192.0.2.1"): ElementValue()},
    )
    assert lines(difference(more, table)) == [["delete set ip kube-proxy nodeport-ips"]]
