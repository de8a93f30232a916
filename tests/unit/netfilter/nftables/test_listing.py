"""Whole texts: recorded clusters, the layout of tables, scripts, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproxy.netfilter.nftables.check import check_nft
from kproxy.netfilter.nftables.errors import NftApplyError, NftSyntaxError
from kproxy.netfilter.nftables.ruleset import NftRuleset, TableFamily
from kproxy.netfilter.nftables.statement import OpaqueStatement
from kproxy.netfilter.nftables.style import BOOKWORM, TRIXIE, Style
from kproxy.netfilter.nftables.text import parse_nft, print_nft
from kproxy.netfilter.nftables.value import Verdict
from tests.support.netfilter.nft_corpus import TABLES
from tests.support.recorded import CLUSTERS

FILES = [path / f"kube-proxy.{family}.nft" for path in CLUSTERS[::16] for family in ("v4", "v6")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.name[11:13]}")
def test_recorded_clusters_are_understood_and_survive_printing(path: Path) -> None:
    text = path.read_text()
    ruleset = parse_nft(text, "kube-proxy.nft")
    assert not any(
        isinstance(statement, OpaqueStatement) for *_, rule in ruleset.rules() for statement in rule.statements
    )
    assert check_nft(ruleset) == []
    for style in (BOOKWORM, TRIXIE, Style(handles=True), Style(stateless=True)):
        assert parse_nft(print_nft(ruleset, style)) == ruleset


def test_tables_are_printed_as_nft_lists_them() -> None:
    text = TABLES.read_text()
    ruleset = parse_nft(text, "tables.nft")
    assert print_nft(ruleset) == text
    assert parse_nft(print_nft(ruleset, TRIXIE)) == ruleset


def test_a_listing_with_handles_keeps_them() -> None:
    text = """table ip t { # handle 3
	set s { # handle 2
		type ipv4_addr
	}

	chain c { # handle 1
		ip saddr @s drop # handle 4
	}
}
"""
    ruleset = parse_nft(text)
    table = ruleset.tables[0]
    assert (table.handle, table.sets[0].handle, table.chains[0].handle) == (3, 2, 1)
    assert table.chains[0].rules[0].handle == 4
    assert print_nft(ruleset, Style(handles=True)) == text
    assert parse_nft(text.replace("# handle 4", "")) == ruleset


def test_tables_of_iptables_nft_are_recognised() -> None:
    text = """# Warning: table ip nat is managed by iptables-nft, do not touch!
table ip nat {
	chain PREROUTING {
		type nat hook prerouting priority dstnat; policy accept;
		xt match addrtype counter packets 0 bytes 0 jump DOCKER
	}

	chain DOCKER {
	}
}
"""
    ruleset = parse_nft(text)
    assert ruleset.tables[0].managed_by == "iptables-nft"
    assert print_nft(ruleset) == text


def test_what_decides_no_packets_way_is_kept_as_it_is() -> None:
    text = """table inet t {
	synproxy s { # handle 4
		comment "c"
		mss 1460
		timestamp sack-perm
	}

	ct timeout o { # handle 5
		protocol tcp
		policy = { established : 2m, close : 20s }
	}

	flowtable f { # handle 6
		hook ingress priority filter
		devices = { eth0, eth1 }
	}

	chain c { # handle 1
		ct timeout set "o" # handle 7
		log prefix "a b" flags tcp sequence,options flags ip options # handle 8
		flow add @f # handle 9
	}
}
"""
    ruleset = parse_nft(text)
    assert [item.kind for item in ruleset.tables[0].objects] == ["synproxy", "ct timeout", "flowtable"]
    assert check_nft(ruleset) == []
    assert print_nft(ruleset, Style(handles=True)) == text
    assert "flowtable that does not exist: g" in str(check_nft(parse_nft(text.replace("@f", "@g")))[0])


def test_what_is_not_known_is_kept_to_the_end_of_its_rule() -> None:
    text = 'table ip t {\n\tchain c {\n\t\tip saddr 10.0.0.1 frobnicate { a, b } comment "c"\n\t\taccept\n\t}\n}\n'
    rules = parse_nft(text).tables[0].chains[0].rules
    assert rules[0].statements[1] == OpaqueStatement("frobnicate", "frobnicate { a, b }")
    assert rules[0].comment == "c"
    assert rules[1].statements == (Verdict("accept"),)
    assert print_nft(parse_nft(text)) == text


def test_commands_change_a_rule_set() -> None:
    base = parse_nft("""table ip t {
	set s {
		type inet_service
		elements = { 22, 80 }
	}

	chain c {
		accept
	}
}
""")
    changed = parse_nft(
        """add table ip t
add chain ip t c
insert rule ip t c counter
add rule ip t c tcp dport @s accept
delete element ip t s { 80 }
add element ip t s { 22, 443 }
destroy table ip none
add chain ip t e
""",
        base=base,
    )
    table = changed.tables[0]
    printed = [line.strip() for line in print_nft(changed).splitlines() if "\t\t" in line]
    assert printed == [
        "type inet_service",
        "elements = { 22, 443 }",
        "counter packets 0 bytes 0",
        "accept",
        "tcp dport @s accept",
    ]
    assert [chain.name for chain in table.chains] == ["c", "e"]
    assert parse_nft("flush ruleset", base=changed) == NftRuleset()
    assert parse_nft("delete table ip t", base=changed) == NftRuleset()
    flushed = parse_nft("flush table ip t", base=changed).table(TableFamily.IP, "t")
    assert flushed is not None
    assert not any(chain.rules for chain in flushed.chains)
    assert flushed.sets == table.sets


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("delete table ip none", "f: line 1: table ip none: no such table"),
        ("delete chain ip t c", "f: line 1: table ip t: the chain c is in use by chain d"),
        ("delete set ip t s", "f: line 1: table ip t: the set s is in use by chain d"),
        ("add rule ip t none accept", "f: line 1: table ip t: no such chain: none"),
        ("\ndelete element ip t s { 99 }", "f: line 2: table ip t: no such element in set s: 99"),
        ("add set ip t s { type mark; }", "f: line 1: table ip t: the set exists, with another type: s"),
    ],
)
def test_commands_that_the_kernel_would_refuse(script: str, message: str) -> None:
    base = parse_nft(
        "table ip t {\n set s { type inet_service; }\n chain c { }\n chain d { tcp dport @s jump c\n }\n}\n"
    )
    with pytest.raises(NftApplyError) as found:
        parse_nft(script, "f", base)
    assert str(found.value) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("table ip t {\n\tchain c {\n\t\taccept\n", "f: line 4: a closing } expected, at the end of the text"),
        ("table ip t {\nchain c {\nip saddr 10.0.\n", "f: line 3: an IPv4 address expected, not '10.0.', at '10.0.'"),
        ("table ipx t {\n}\n", "f: line 1: the end of the command expected, at 't'"),
        ("add rule ip t c tcp dport 70000\n", "f: line 1: a value of type inet_service expected (at most 65535), not"),
        ("table ip t {\n set s {\n flags interval\n }\n}", "f: line 2: type or typeof expected, at '{'"),
        ("table ip t {\n set s {\n type nothing\n }\n}", "f: line 3: a data type expected, at 'nothing'"),
        ("add element ip t s { 1 }", "f: line 1: a set of the table ip t expected, at 's'"),
        ('include "other.nft"', "f: line 1: rules as nft lists them expected, without variables, at 'include'"),
        ("define a = 1", "f: line 1: rules as nft lists them expected, without variables, at 'define'"),
        ("add table ip $t", "f: line 1: the name of a table expected, at '$t'"),
        ("delete rule ip t c handle 9", "f: line 1: a new rule expected: handles and places of rules are"),
        ("insert rule ip t c index 2 drop", "f: line 1: a new rule expected: handles and places of rules are the"),
        ("rename chain ip t c d", "f: line 1: a command that adds or deletes expected, at 'rename'"),
        ("table ip t {\n quota q { }\n}", "f: line 2: all properties of a quota expected, at '{'"),
        ("add ct timeout ip t q", "f: line 1: { expected, at the end of the text"),
        ("list ruleset", "f: line 1: a command that changes rules expected, at 'list'"),
        ("*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n", "f: line 1: a command expected, at '*filter'"),
    ],
)  # fmt: skip
def test_bad_text_is_one_error_with_its_line(text: str, message: str) -> None:
    with pytest.raises(NftSyntaxError) as found:
        parse_nft(text, "f")
    assert str(found.value).startswith(message)


def test_what_is_referred_to_must_be_there() -> None:
    text = """table ip t {
	map m {
		type mark : verdict
		elements = { 1 : goto gone }
	}
	chain a {
		jump b
		ip saddr @none accept
		counter name "none"
		jump nowhere
	}
	chain b { meta mark vmap { 1 : jump a }
	}
}
"""
    assert [str(problem) for problem in check_nft(parse_nft(text))] == [
        "line 8: table ip t: rule 2 of chain a: a set that does not exist: none",
        "line 9: table ip t: rule 3 of chain a: a counter that does not exist: none",
        "line 10: table ip t: rule 4 of chain a: jump to a chain that does not exist: nowhere",
        "line 2: table ip t: map m: jump to a chain that does not exist: gone",
        "line 6: table ip t: chain a: a loop of jumps: a → b → a",
    ]


@pytest.mark.parametrize(
    ("rule", "kept"),
    [
        ("ct expiration > ", "ct expiration >"),
        ("ct expiration ", "ct expiration"),
        ("ct expiration !=  counter accept # handle 5", "ct expiration !=  counter accept"),
        ("ct original proto-dst 0x35 [invalid type]", None),
        ("ct reply proto-src { 0x35 [invalid type], 0x36 [invalid type] }", None),
        ("ct original proto-dst & 0x3 [invalid type] == 0x1 [invalid type] drop", None),
    ],
)
def test_a_rule_that_nft_lists_and_does_not_take_is_opaque(rule: str, kept: str | None) -> None:
    """As nft 1.0.6 prints `ct expiration > 0s` and `ct protocol { tcp, udp } ct original proto-dst 53`."""
    text = f"table ip t {{\n\tchain c {{\n\t\ttcp dport 1 {rule}\n\t\taccept\n\t}}\n}}\n"
    rules = parse_nft(text).tables[0].chains[0].rules
    assert rules[0].statements[1:] == (OpaqueStatement("ct", kept or rule),)
    assert rules[1].statements == (Verdict("accept"),)
    with pytest.raises(NftSyntaxError):
        parse_nft(text.replace(rule, "ct original proto-dst ["))


def test_a_duration_of_0_in_a_set_is_printed_as_nothing() -> None:
    text = (
        "table ip t {{\n\tset s {{\n\t\ttypeof ct expiration\n\t\telements = {{ {} }}\n\t}}\n\n"
        "\tchain c {{\n\t\tct expiration vmap {{ {} : accept, 10s : drop }}\n\t}}\n}}\n"
    )
    assert parse_nft(text.format(", 10s", "")) == parse_nft(text.format("0s, 10s", "0s"))
    assert parse_nft(text.format("", "")) == parse_nft(text.format("0s", "0s"))


@pytest.mark.parametrize("comment", ["# handle 1.5", "# handle 2X", f"# handle {'9' * 5000}", "# handle \u0663"])
def test_a_comment_that_only_begins_as_a_handle_is_a_comment(comment: str) -> None:
    text = f"{comment}\ntable ip t {{ {comment}\n\tchain c {{ {comment}\n\t\taccept {comment}\n\t}} {comment}\n}}\n"
    assert parse_nft(text) == parse_nft(text.replace(comment, ""))


def test_adding_a_table_without_flags_wakes_it() -> None:
    """Measured with nft 1.0.6 on 6.18."""
    dormant = parse_nft("table ip t { flags dormant; chain c { type filter hook input priority 0; drop; } }")
    assert parse_nft("add table ip t", base=dormant).tables[0].flags == frozenset()
    assert parse_nft("add chain ip t d", base=dormant).tables[0].flags == {"dormant"}
