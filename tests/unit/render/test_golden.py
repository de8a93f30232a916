"""Readable differences of save texts."""

from __future__ import annotations

from kproxy.render.golden import ChainDifference, diff_save

TEXT = "*nat\n:A - [0:0]\n:B - [0:0]\n-A A -j B\n-A A -j RETURN\nCOMMIT\n"


def test_a_changed_rule() -> None:
    assert diff_save(TEXT, TEXT.replace("-j RETURN", "-j DROP")) == [
        ChainDifference("nat", "A", ("  :A - [0:0]", "  -A A -j B", "- -A A -j RETURN", "+ -A A -j DROP"))
    ]


def test_a_missing_chain_and_a_policy() -> None:
    assert diff_save(TEXT, TEXT.replace(":B - [0:0]\n", "")) == [ChainDifference("nat", "B", ("- :B - [0:0]",))]
    assert [d.chain for d in diff_save(TEXT, TEXT.replace(":A -", ":A DROP"))] == ["A"]


def test_bytes_that_differ_are_never_equal() -> None:
    swapped = TEXT.replace(":A - [0:0]\n:B - [0:0]\n", ":B - [0:0]\n:A - [0:0]\n")
    assert [d.chain for d in diff_save(TEXT, swapped)] == ["order of tables and chains"]
    assert diff_save(TEXT, TEXT + "\n") != []
    assert diff_save(TEXT, TEXT.replace("COMMIT\n", "")) != []


LISTING = """\
table ip kube-proxy {
	comment "rules for kube-proxy"
	set cluster-ips {
		type ipv4_addr
		elements = { 10.96.0.1 }
	}

	chain services {
		ip daddr . meta l4proto . th dport vmap @service-ips
	}
}
"""


def test_a_listing_of_nftables() -> None:
    assert diff_save(LISTING, LISTING) == []
    changed = LISTING.replace("10.96.0.1 ", "10.96.0.2 ").replace("vmap @service-ips", "drop")
    found = diff_save(LISTING, changed)
    assert [(each.table, each.chain) for each in found] == [
        ("ip kube-proxy", "chain services"),
        ("ip kube-proxy", "set cluster-ips"),
    ]
    assert "- 		elements = { 10.96.0.1 }" in found[1].lines
    assert "+ 		elements = { 10.96.0.2 }" in found[1].lines
    (comment,) = diff_save(LISTING, LISTING.replace("rules for", "of"))
    assert (comment.table, comment.chain) == ("ip kube-proxy", "")


def test_long_equal_runs_are_shortened() -> None:
    rules = "".join(f"-A A -s 10.0.0.{i} -j B\n" for i in range(50))
    (difference,) = diff_save(TEXT + rules, TEXT + rules + "-A A -j DROP\n")
    assert len(difference.lines) < 10
    assert difference.lines[-1] == "+ -A A -j DROP"
