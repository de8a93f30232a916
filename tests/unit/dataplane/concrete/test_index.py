"""Indexed chains, provenance, and rule sets that cannot be traced."""

from __future__ import annotations

import pytest

from kproxy.dataplane import DataplaneError, Host, check_traceable, make_packet, trace
from kproxy.dataplane.concrete.index import IndexedChain, index_ruleset
from kproxy.netfilter import Family, Ruleset, Table, parse_save
from kproxy.netfilter.nftables.text import parse_nft
from tests.support.dataplane.tools import NEW_PACKET, NODE, only, rules

LINES = [
    "-d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j ACCEPT",
    "-p tcp -m tcp --dport 80 -j ACCEPT",
    "-s 198.51.100.7/32 -j ACCEPT",
    "! -d 10.96.0.1/32 -j ACCEPT",
    "-d 10.96.0.2/32 -j ACCEPT",
    "-p udp -m udp --dport 80 -j ACCEPT",
    "-p tcp -m tcp --dport 80:81 -j ACCEPT",
    "-s 198.51.100.8/32 -j ACCEPT",
    "-p tcp -m tcp ! --dport 80 -j ACCEPT",
    "-j ACCEPT",
]


def chain() -> IndexedChain:
    ruleset = rules("\n".join(f"filter: -A FORWARD {line}" for line in LINES))
    found = ruleset.chain("filter", "FORWARD")
    assert found is not None
    return IndexedChain(None, "filter", found)


def test_candidates() -> None:
    assert list(chain().candidates(NEW_PACKET)) == [0, 1, 2, 3, 6, 8, 9]
    other = make_packet("198.51.100.8:1", "10.96.0.2:80", "udp")
    assert list(chain().candidates(other)) == [3, 4, 5, 6, 7, 8, 9]
    assert list(chain().candidates(NEW_PACKET.replace(dst=None))) == list(range(10))
    assert list(chain().candidates(NEW_PACKET.replace(dport=None))) == list(range(10))


def test_provenance() -> None:
    ruleset = rules("filter: -A FORWARD -j LOG\nfilter: -A FORWARD -j DROP")
    notes = {("filter", "FORWARD", 2): "the last rule"}
    outcome = only(trace(index_ruleset(ruleset, lambda *place: notes.get(place)), NODE, NEW_PACKET))
    assert [step.note for step in outcome.path] == ["", "the last rule"]
    assert outcome.path[1].text == "-A FORWARD -j DROP"


def save(*lines: str) -> Ruleset:
    return parse_save("\n".join(["*filter", ":FORWARD ACCEPT [0:0]", *lines, "COMMIT", ""]), family=Family.IPV4)


def test_jumps_to_nowhere_and_loops() -> None:
    with pytest.raises(DataplaneError, match="chain X, which is not there"):
        trace(save("-A FORWARD -j X"), NODE, NEW_PACKET)
    loop = save(":A - [0:0]", ":B - [0:0]", "-A FORWARD -j A", "-A A -j B", "-A B -j A")
    with pytest.raises(DataplaneError, match="a loop of jumps: FORWARD → A → B → A"):
        trace(loop, NODE, NEW_PACKET)
    with pytest.raises(DataplaneError, match="loop"):
        check_traceable(loop)


def test_check_names_every_problem() -> None:
    check_traceable(save("-A FORWARD -j DROP"))
    with pytest.raises(DataplaneError, match="no rules"):
        check_traceable(save())
    with pytest.raises(DataplaneError, match="table nut: no such table"):
        check_traceable(Ruleset(Family.IPV4, (Table("nut"),)))
    with pytest.raises(DataplaneError) as caught:
        check_traceable(save("-A FORWARD -j X", "-A FORWARD -j Y"))
    assert len(str(caught.value).splitlines()) == 2


LOOPS = {
    "iptables": "*filter\n:FORWARD ACCEPT [0:0]\n:A - [0:0]\n:B - [0:0]\n"
    "-A FORWARD -j A\n-A A -g B\n-A B -g A\nCOMMIT\n",
    "nftables": """table ip t {
        chain a { goto b; }
        chain b { goto a; }
        chain c { type filter hook forward priority 0; goto a; }
    }""",
}


@pytest.mark.parametrize("language", LOOPS)
def test_a_loop_of_gotos_is_refused(language: str) -> None:
    """A chain that is gone to leaves no frame behind, so that the loop would never end."""
    text = LOOPS[language]
    if language == "iptables":
        index = index_ruleset(parse_save(text))
    else:
        index = index_ruleset((), nftables=parse_nft(text), family=Family.IPV4)
    with pytest.raises(DataplaneError, match="a loop of jumps: "):
        trace(index, Host(), make_packet("10.244.0.5:1", "10.9.0.1:80", "tcp", in_interface="cni0"))
