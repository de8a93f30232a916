"""Restore input: reading it, and loading kube-proxy's. `tests/kernel/iptables` compares with the kernel."""

from __future__ import annotations

import pytest

from kproxy.netfilter import (
    DROP,
    Family,
    RestoreError,
    Rule,
    Ruleset,
    RuleSyntaxError,
    apply_restore,
    canonical_ruleset,
    check_ruleset,
    parse_restore,
    parse_save,
    print_save,
)
from kproxy.netfilter.iptables.operation import Operation
from tests.support import paths

REFERENCE = paths.TESTS / "reference"
CASES = sorted((REFERENCE / "clusters").glob("case-*"))


@pytest.mark.parametrize(
    ("line", "operation"),
    [
        (":X - [0:0]", Operation(":", "X")),
        (":X - [1:2]", Operation(":", "X")),
        (":INPUT DROP", Operation(":", "INPUT", policy="DROP")),
        ("-A X -j DROP", Operation("-A", "X", Rule(target=DROP))),
        ("-A X", Operation("-A", "X", Rule())),
        ("[1:2] -A X -j DROP", Operation("-A", "X", Rule(target=DROP))),
        ("-I X -j DROP", Operation("-I", "X", Rule(target=DROP))),
        ("-I X 3 -j DROP", Operation("-I", "X", Rule(target=DROP), 3)),
        ("-D X -j DROP", Operation("-D", "X", Rule(target=DROP))),
        ("-D X 3", Operation("-D", "X", number=3)),
        ("-F X", Operation("-F", "X")),
        ("-X X", Operation("-X", "X")),
    ],
)
def test_operations(line: str, operation: Operation) -> None:
    (part,) = parse_restore(f"*filter\n\n# note\n{line}\nCOMMIT\n")
    assert part.table == "filter"
    assert part.operations == (operation,)
    assert part.operations[0].line == 4


@pytest.mark.parametrize(
    "line",
    ["-A", "-R X 1 -j DROP", "-I X 0 -j DROP", "-F X Y", "-P INPUT DROP", "-N X", "-F", "-t nat -A X", "X", "-Q",
     "-A X Y -j DROP", "-D X 1 -j DROP", ":-x - [0:0]", f":{'x' * 29} - [0:0]", "-A X -s 1.1.1.1,2.2.2.2", "--append X",
     "-A X -4 -j DROP", '-A X -m comment --comment "x', "-A X -j DROP -j DROP", "commit"],
)  # fmt: skip
def test_refused(line: str) -> None:
    with pytest.raises(RuleSyntaxError) as caught:
        parse_restore(f"*filter\n{line}\nCOMMIT\n", "in")
    assert (caught.value.source, caught.value.line, caught.value.text) == ("in", 2, line)


@pytest.mark.parametrize(
    "text", ["*filter\n", "COMMIT\n", "-A X -j DROP\n", "*frob\nCOMMIT\n", "*filter\n*nat\nCOMMIT\n"]
)
def test_refused_frames(text: str) -> None:
    with pytest.raises(RuleSyntaxError):
        parse_restore(text)


def test_empty() -> None:
    assert parse_restore("") == ()
    assert parse_restore("# x\n\n") == ()
    assert canonical_ruleset("", Family.IPV4) == Ruleset(Family.IPV4)


@pytest.mark.parametrize("family", list(Family), ids=lambda family: f"v{family.version}")
def test_recorded_clusters(family: Family) -> None:
    assert len(CASES) == 80
    rules = 0
    for case in CASES:
        text = (case / f"kube-proxy.v{family.version}.restore").read_text()
        ruleset = canonical_ruleset(text, family)
        printed = print_save(ruleset)
        assert parse_save(printed, family=family) == ruleset
        assert canonical_ruleset(printed, family) == ruleset
        assert [table.name for table in ruleset.tables] == ["filter", "nat"]
        assert check_ruleset(ruleset) == ()
        rules += ruleset.rule_count
        assert ruleset.rule_count == text.count("\n-A ")
    assert rules > 3_000


BASE = canonical_ruleset(
    "*filter\n:A - [0:0]\n:B - [0:0]\n-A INPUT -j A\n-A A -j B\nCOMMIT\n*nat\n:N - [0:0]\nCOMMIT\n", Family.IPV4
)


def apply(text: str) -> Ruleset:
    return apply_restore(BASE, parse_restore(text), source="in")


def test_input_is_untouched_and_other_tables_stay() -> None:
    before = print_save(BASE)
    after = apply("*filter\n-F A\nCOMMIT\n")
    assert print_save(BASE) == before
    assert after.table("nat") is BASE.table("nat")
    assert after.chain("filter", "A") != BASE.chain("filter", "A")
    assert [table.name for table in apply("*raw\nCOMMIT\n").tables] == ["filter", "nat", "raw"]


def test_a_failing_table_changes_nothing_of_it() -> None:
    text = "*nat\n:M - [0:0]\nCOMMIT\n*filter\n-F A\n-X B\n-A NOPE -j DROP\nCOMMIT\n*raw\n:R - [0:0]\nCOMMIT\n"
    with pytest.raises(RestoreError) as caught:
        apply(text)
    error = caught.value
    assert (error.table, error.line, error.reason, error.source) == ("filter", 7, "no chain NOPE", "in")
    assert error.exit_code == 1
    assert str(error) == "in: line 7: table filter: no chain NOPE"
    assert error.applied.chain("nat", "M") is not None
    assert error.applied.table("filter") == BASE.table("filter")
    assert error.applied.table("raw") is None


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("-X B", "chain B is in use"),
        ("-X A", "chain A is not empty"),
        ("-X INPUT", "chain INPUT is built in"),
        (":Q DROP [0:0]", "a policy for Q, which is no built-in chain"),
        (":INPUT RETURN [0:0]", "policy RETURN"),
        (":DROP - [0:0]", "a chain called DROP, like the verdict"),
        ("-A A -j OUTPUT", "jump to the built-in chain OUTPUT"),
        ("-A A -j Q", "no chain Q"),
        ("-I A 3 -j DROP", "no place 3 in chain A"),
        ("-D A -j DROP", "no such rule in chain A"),
        ("-D A 2", "no such rule in chain A"),
        ("-F Q", "no chain Q"),
        ("-A B -g A", "a loop of jumps: A → B → A"),
    ],
)
def test_what_the_kernel_refuses(lines: str, reason: str) -> None:
    with pytest.raises(RestoreError) as caught:
        apply(f"*filter\n{lines}\nCOMMIT\n")
    assert caught.value.reason == reason
    assert caught.value.line == 2
    assert caught.value.applied == BASE
