"""`kproxy.netfilter` against the real iptables: nft and legacy, IPv4 and IPv6, in namespaces of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kproxy.netfilter import (
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
from tests.support import paths
from tests.support.examples import spread
from tests.support.kernel.netfilter_kernel import (
    VARIANTS,
    Kernel,
    RefusedByKernelError,
    in_use,
    iptables_release,
    kernel,
    lists_protocol_names,
    missing,
    tables_of,
    without_comments,
)
from tests.support.netfilter.recorded_rules import NEWER, Group, Observed, groups

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(missing() is not None and os.geteuid() == 0, reason=str(missing())),
]

REFERENCE = paths.TESTS / "reference"
CASES = sorted((REFERENCE / "clusters").glob("case-*"))

both_variants = pytest.mark.parametrize("variant", spread(VARIANTS, 1, 1))
both_families = pytest.mark.parametrize("family", list(Family), ids=lambda family: f"v{family.version}")
GROUPS = [group for group in groups() if not group.name.endswith("-ipvs")]
"""Those whose modules every kernel has; the virtual machine's kernel is the one with IPVS."""
all_groups = pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)


@pytest.fixture(scope="module")
def v4() -> Iterator[Kernel]:
    with kernel(Family.IPV4) as found:
        yield found


@pytest.fixture(scope="module")
def v6() -> Iterator[Kernel]:
    with kernel(Family.IPV6) as found:
        yield found


@contextmanager
def cleared(request: pytest.FixtureRequest, family: Family, variant: str) -> Iterator[Kernel]:
    """The family's namespace, with no rules of this variant before and after."""
    found: Kernel = request.getfixturevalue(f"v{family.version}")
    found.clear(variant)
    yield found
    found.clear(variant)


def spellings(ruleset: Ruleset) -> list[str]:
    return [rule.spelling for *_, rule in ruleset.rules() if rule.spelling is not None]


def restore_of(case: Path, family: Family) -> str:
    return (case / f"kube-proxy.v{family.version}.restore").read_text()


@both_variants
@both_families
def test_recorded_clusters(family: Family, variant: str, request: pytest.FixtureRequest) -> None:
    """What kube-proxy gave to iptables-restore, loaded; the dump is the canonical print, byte for byte."""
    assert len(CASES) == 80
    compared = 0
    with cleared(request, family, variant) as real:
        for case in CASES:
            text = restore_of(case, family)
            real.restore(text, variant)
            saved = real.save(variant)
            canonical = canonical_ruleset(text, family, str(case))
            printed = print_save(canonical)
            if variant == "nft":
                assert without_comments(saved) == printed
            assert tables_of(saved) == tables_of(printed)
            read = parse_save(saved)
            assert read.family is family
            assert read == canonical or variant == "legacy"
            assert print_save(read) == saved
            assert spellings(read) == []
            assert check_ruleset(read) == ()
            counted = real.save(variant, "-c")
            assert print_save(parse_save(counted)) == counted
            compared += canonical.rule_count
    assert compared > (7_500 if family is Family.IPV4 else 3_000)


def saved_lines(rules: list[Observed], release: tuple[int, ...] = (1, 8, 9)) -> list[str]:
    return [line for rule in rules for line in rule.saved_by(release)]


@both_variants
@all_groups
def test_observed_rules_load_and_save(group: Group, variant: str, request: pytest.FixtureRequest) -> None:
    """The recording still holds, and what kproxy makes of the input and of the dump is what iptables prints."""
    release = iptables_release()
    typed = [rule for rule in group.typed if rule.saved_by(release)]
    rules = typed + [rule for rule in group.opaque if rule.saved_by(release)]
    with cleared(request, group.family, variant) as real:
        for rule in group.typed + group.opaque:
            if rule not in rules:
                with pytest.raises(RefusedByKernelError):
                    real.restore(group.restore_text([rule]), variant)
        real.restore(group.restore_text(rules), variant)
        saved = real.save(variant, "-t", group.table)
        lines = [line for line in saved.splitlines() if line.startswith("-A T")]
        assert lines == saved_lines(rules, release)
        assert print_save(parse_save(saved)) == saved
        counted = real.save(variant, "-t", group.table, "-c")
        assert print_save(parse_save(counted)) == counted
        listed = real.listing(variant, group.table, "T").splitlines()[2:]
    canonical = canonical_ruleset(group.restore_text(typed), group.family)
    chain = canonical.chain(group.table, "T")
    assert chain is not None
    assert [rule.to_save("T") for rule in chain.rules] == saved_lines(typed)
    # Equality is the kernel's, whichever release prints the rule.
    read = parse_save(saved).chain(group.table, "T")
    assert read is not None
    assert read.rules[: len(chain.rules)] == chain.rules
    assert len(listed) == len(lines)
    recorded = [line for rule in typed for line in rule.listed or [""] * len(rule.saved)]
    for line, known in zip(listed, recorded, strict=False):
        assert not known or lists_protocol_names(release) or line[5:] == known[5:]


@both_variants
@all_groups
def test_refused_rules_are_refused(group: Group, variant: str, request: pytest.FixtureRequest) -> None:
    release = iptables_release()
    with cleared(request, group.family, variant) as real:
        for rule in group.refused:
            text = group.restore_text([rule])
            if rule.saved_by(release):
                real.clear(variant)
                real.restore(text, variant)
                lines = real.save(variant, "-t", group.table).splitlines()
                assert [line for line in lines if line.startswith("-A T")] == rule.saved_by(release)
            else:
                with pytest.raises(RefusedByKernelError):
                    real.restore(text, variant)
            with pytest.raises((RuleSyntaxError, RestoreError)):
                canonical_ruleset(text, group.family)


@both_families
def test_table_orders(family: Family, request: pytest.FixtureRequest) -> None:
    """iptables-nft-save has an order of its own, whatever was made first."""
    tables = ["nat", "raw", "security", "filter", "mangle"]
    text = "".join(f"*{table}\n:b - [0:0]\n:B - [0:0]\n:a-1 - [0:0]\nCOMMIT\n" for table in tables)
    with cleared(request, family, "nft") as real:
        real.restore(text, "nft")
        assert without_comments(real.save("nft")) == print_save(canonical_ruleset(text, family))


# Where iptables-nft and iptables-legacy print the same input differently, or both lose something: input, nft, legacy
# (None: it is refused) of 1.8.9. kproxy prints `canonical`.
DIFFERENCES = [
    ("! -s 0.0.0.0/0 -j ACCEPT", None, "! -s 0.0.0.0/0 -j ACCEPT", "! -s 0.0.0.0/0 -j ACCEPT"),
    ("! -i + -j DROP", "! -i + -j DROP", "-j DROP", "! -i + -j DROP"),
    ("-p tcp ! --dport 0:65535", "-p tcp", "-p tcp -m tcp", "-p tcp -m tcp ! --dport 0:65535"),
    ("-p udp ! --sport 0:65535", "-p udp", "-p udp -m udp", "-p udp -m udp ! --sport 0:65535"),
    ("-p tcp ! --tcp-flags NONE NONE", "-p tcp", *["-p tcp -m tcp ! --tcp-flags NONE NONE"] * 2),
    ("-m tcp -m tcp -p tcp --dport 5", *["-p tcp -m tcp -m tcp --dport 5"] * 3),
    ("-p tcp -m tcp --dport 5 -m tcp --dport 6", "-p tcp -m tcp --dport 6",
     *["-p tcp -m tcp --dport 5 -m tcp --dport 6"] * 2),
    ("-j NFLOG --nflog-range 64", "-j NFLOG", *["-j NFLOG --nflog-range 64"] * 2),
    ("-m conntrack --ctorigsrc 10.0.0.0/255.0.255.0", *["-m conntrack --ctorigsrc 10.0.0.0"] * 2,
     "-m conntrack --ctorigsrc 10.0.0.0/255.0.255.0"),
    ("-m limit --limit 1/day", "-m limit --limit 1/day", None, "-m limit --limit 1/day"),
]  # fmt: skip
# nft and legacy of 1.8.11, where that release does otherwise.
DIFFERENCES_OF_NEWER = {
    "! -i + -j DROP": ("! -i + -j DROP",) * 2,
    "-p tcp ! --dport 0:65535": ("-p tcp -m tcp ! --dport 0:65535",) * 2,
    "-p udp ! --sport 0:65535": ("-p udp -m udp ! --sport 0:65535",) * 2,
    "-m tcp -m tcp -p tcp --dport 5": ("-p tcp -m tcp --dport 5", "-p tcp -m tcp -m tcp --dport 5"),
    "-m conntrack --ctorigsrc 10.0.0.0/255.0.255.0": ("-m conntrack --ctorigsrc 10.0.0.0/255.0.255.0",) * 2,
}


@both_variants
@pytest.mark.parametrize(("given", "nft", "legacy", "canonical"), DIFFERENCES, ids=lambda value: str(value))
def test_known_differences(
    given: str, nft: str | None, legacy: str | None, canonical: str, variant: str, request: pytest.FixtureRequest
) -> None:
    """docs/netfilter.md lists these."""
    text = f"*filter\n:T - [0:0]\n-A T {given}\nCOMMIT\n"
    if iptables_release() >= NEWER:
        nft, legacy = DIFFERENCES_OF_NEWER.get(given, (nft, legacy))
    expected = nft if variant == "nft" else legacy
    with cleared(request, Family.IPV4, variant) as real:
        if expected is None:
            with pytest.raises(RefusedByKernelError):
                real.restore(text, variant)
        else:
            real.restore(text, variant)
            assert f"-A T {expected}\n" in real.save(variant)
    chain = canonical_ruleset(text, Family.IPV4).chain("filter", "T")
    assert chain is not None
    assert chain.rules[0].spec() == canonical


BASE = """*filter
:A - [0:0]
:B - [0:0]
:C - [0:0]
-A INPUT -j A
-A A -s 1.1.1.1 -j B
-A A -s 2.2.2.2 -j DROP
-A B -j ACCEPT
COMMIT
"""

# Restore input for `--noflush` on BASE. What both variants do, kproxy does.
RESTORES = {
    "user chain is flushed": ":A - [0:0]",
    "user chain is made": ":D - [0:0]\n-A D -j A",
    "declared twice": ":D - [0:0]\n-A D -j A\n:D - [0:0]",
    "policy": ":INPUT DROP [5:6]",
    "policy without counters": ":INPUT DROP",
    "policy -": ":INPUT - [5:6]",
    "policy RETURN": ":INPUT RETURN [5:6]",
    "append to missing chain": "-A NOPE -j ACCEPT",
    "jump to missing chain": "-A A -j NOPE",
    "jump before declaration": "-A A -j D\n:D - [0:0]",
    "jump to built-in chain": "-A A -j INPUT",
    "goto built-in chain": "-A A -g INPUT",
    "delete chain": "-X C",
    "delete chain in use": "-F B\n-X B",
    "delete chain with rules": ":D - [0:0]\n-A D -j ACCEPT\n-X D",
    "delete chain then jump": "-X C\n-A A -j C",
    "delete missing chain": "-X NOPE",
    "delete built-in chain": "-X INPUT",
    "delete as kube-proxy does": ":A - [0:0]\n:B - [0:0]\n-X B",
    "delete then declare": "-X C\n:C - [0:0]\n-A C -j DROP",
    "flush chain": "-F A",
    "flush missing chain": "-F NOPE",
    "chain like a verdict": ":ACCEPT - [0:0]",
    "insert": "-I A -s 9.9.9.9 -j DROP",
    "insert before 2": "-I A 2 -s 9.9.9.9 -j DROP",
    "insert at end": "-I A 3 -s 9.9.9.9 -j DROP",
    "insert too far": "-I A 4 -s 9.9.9.9 -j DROP",
    "insert before 0": "-I A 0 -s 9.9.9.9 -j DROP",
    "delete rule": "-D A -s 2.2.2.2 -j DROP",
    "delete rule spelt otherwise": "-D A -s 2.2.2.2/255.255.255.255 --jump DROP",
    "delete rule 1": "-D A 1",
    "delete rule 3": "-D A 3",
    "delete missing rule": "-D A -s 3.2.2.2 -j DROP",
    "delete first of two": "-A A -j DROP\n-A A -j RETURN\n-A A -j DROP\n-D A -j DROP",
    "chain name of 28 bytes": f":{'x' * 28} - [0:0]",
    "chain name of 29 bytes": f":{'x' * 29} - [0:0]",
    "chain name with signs": ":a/b:c - [0:0]",
    "chain called LOG": ":LOG - [0:0]",
    "bracket counters": "[5:6] -A A -j DROP",
    "table option": "-t filter -A A -j DROP",
    "comments and blank lines": "# x\n\n-A A -j DROP",
    "second table fails": "-A A -j DROP\nCOMMIT\n*nat\n-A NOPE -j ACCEPT",
    "first table fails": "-A NOPE -j DROP\nCOMMIT\n*nat\n:N - [0:0]",
    "table twice": "-A A -j DROP\nCOMMIT\n*filter\n-A A -j RETURN",
    "failure changes nothing": "-F A\n-A A -j RETURN\n-A NOPE -j ACCEPT",
    "built-in chain": "-A INPUT -j DROP",
    "commit in lower case": "-A A -j DROP\ncommit",
    "nothing": "",
}


def model(before: str, text: str) -> tuple[Ruleset, str]:
    """What kproxy makes of it: the rule set afterwards, and why it failed, if it did."""
    ruleset = parse_save(before, family=Family.IPV4)
    try:
        return apply_restore(ruleset, parse_restore(text, family=Family.IPV4)), ""
    except RestoreError as error:
        return error.applied, str(error)
    except RuleSyntaxError as error:
        return ruleset, str(error)


@both_variants
@pytest.mark.parametrize("name", RESTORES)
def test_restore_without_flush(name: str, variant: str, request: pytest.FixtureRequest) -> None:
    text = f"*filter\n{RESTORES[name]}\nCOMMIT\n"
    with cleared(request, Family.IPV4, variant) as real:
        real.restore(BASE, variant)
        before = real.save(variant, "-c")
        try:
            real.restore(text, variant, "--noflush")
            refused = ""
        except RefusedByKernelError as error:
            refused = str(error)
        after = real.save(variant, "-c")
    result, reason = model(before, text)
    assert bool(reason) == bool(refused), (reason, refused)
    assert in_use(print_save(result, counters=True)) == in_use(after)


@both_variants
def test_loop_that_a_hook_reaches(variant: str, request: pytest.FixtureRequest) -> None:
    """iptables-nft refuses it and kproxy follows; iptables-legacy takes it with this kernel."""
    text = "*filter\n-A B -j A\nCOMMIT\n"
    with cleared(request, Family.IPV4, variant) as real:
        real.restore(BASE, variant)
        before = real.save(variant)
        if variant == "nft":
            with pytest.raises(RefusedByKernelError):
                real.restore(text, variant, "--noflush")
    _, reason = model(before, text)
    assert reason.endswith("a loop of jumps: A → B → A")


def test_deleted_rule_may_be_spelt_otherwise() -> None:
    """Equality is the kernel's: a rule of the dump equals the input that made it."""
    for group in GROUPS:
        canonical = canonical_ruleset(group.restore_text(group.typed), group.family)
        chain = canonical.chain(group.table, "T")
        assert chain is not None
        reread = parse_save(print_save(canonical), family=group.family).chain(group.table, "T")
        assert reread is not None
        assert set(map(Rule.spec, chain.rules)) == set(map(Rule.spec, reread.rules))
        assert chain.rules == reread.rules
