"""The rule that a difference is put down to, after everyday changes of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from kproxy.api.kubeproxyconfig.types import KubeProxyConfiguration
from kproxy.api.load.manifests import load_contents
from kproxy.dataplane.compare.compare import compare
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.netfilter import Family, parse_save
from kproxy.netfilter.nftables.text import parse_nft
from kproxy.render import Features, render_table, render_target, select_target
from kproxy.render.iptables.save import saved_ruleset
from kproxy.render.nftables.save import nft_ruleset
from kproxy.services import IPFamily
from tests.support.paths import ROOT

SHOP = (ROOT / "docs" / "examples" / "shop.yaml").read_text()
SECOND = """\
- addresses: [10.244.2.12]
  conditions: {ready: true, serving: true, terminating: false}
  nodeName: worker-2
  targetRef: {kind: Pod, namespace: shop, name: web-2}
"""
NODE_PORT = "  type: NodePort\n"


def rules(manifests: str) -> SideRules:
    """What kube-proxy writes on worker-1."""
    cluster = load_contents({"shop.yaml": manifests.encode()})
    config = KubeProxyConfiguration(cluster_cidr="10.244.0.0/16")
    target = select_target(cluster.nodes, config, "worker-1")
    rendered = render_target(target, IPFamily.IPV4, cluster.services, cluster.endpoint_slices, config, Features())
    return SideRules.of(saved_ruleset(rendered.restore_text, rendered.options.family))


def changed(old: str, new: str) -> Callable[[], str]:
    def change() -> str:
        assert SHOP.count(old) == 1
        return SHOP.replace(old, new)

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(
            changed(SECOND, ""),
            {"rule 3 of KUBE-SVC-67NZLRHBNDSAWJRO, jump to KUBE-SEP-MOGHLOVWQYX4X6CX (shop/web:http -> "
             "10.244.2.12:8080), is only in A"},
            id="an endpoint less: its rule, and not that of the endpoint beside it, whose chance is another now",
        ),
        pytest.param(
            changed("ready: false, serving: false", "ready: true, serving: true"),
            {"rule 4 of KUBE-SVC-67NZLRHBNDSAWJRO, jump to KUBE-SEP-D3V65IDS3FFDYZQI (shop/web:http -> "
             "10.244.2.13:8080), is only in B"},
            id="an endpoint more",
        ),
        pytest.param(
            changed("port: 80, targetPort: 8080, nodePort", "port: 81, targetPort: 8080, nodePort"),
            {"rule 4 of KUBE-SERVICES, jump to KUBE-SVC-67NZLRHBNDSAWJRO (shop/web:http cluster IP), is changed in B"},
            id="another port of the Service",
        ),
        pytest.param(
            changed(NODE_PORT, f"{NODE_PORT}  externalTrafficPolicy: Local\n"),
            {"rule 1 of KUBE-EXT-67NZLRHBNDSAWJRO, jump to KUBE-MARK-MASQ (masquerade traffic for shop/web:http "
             "external destinations), is changed in B"},
            id="policy Local",
        ),
        pytest.param(
            changed(NODE_PORT, f"{NODE_PORT}  externalIPs: [198.51.100.20]\n"),
            {"rule 5 of KUBE-SERVICES, jump to KUBE-EXT-67NZLRHBNDSAWJRO (shop/web:http external IP), is only in B"},
            id="an external IP",
        ),
        pytest.param(
            changed(NODE_PORT, f"{NODE_PORT}  sessionAffinity: ClientIP\n"),
            {"rule 2 of KUBE-SEP-EPVTA2RHFPHQF37H, `-j DNAT --to-destination 10.244.1.11:8080`, is changed in B"},
            id="session affinity",
        ),
    ],
)  # fmt: skip
def test_everyday_changes(change: Callable[[], str], expected: set[str]) -> None:
    found = compare(rules(SHOP), rules(change()), family=Family.IPV4)
    assert {item.cause.words() for item in found.differences if item.cause} == expected
    assert all(item.cause for item in found.differences)


def forward(*rules: str) -> SideRules:
    """Rules of FORWARD, and a chain that they may jump to."""
    text = "".join(f"-A FORWARD {rule}\n" for rule in rules)
    own = ":own - [0:0]\n-A own -j DROP\n"
    return SideRules.of(parse_save(f"*filter\n:FORWARD ACCEPT [0:0]\n{own}{text}COMMIT\n", family=Family.IPV4))


WEB = "-d 192.0.2.1/32 -p tcp -m tcp --dport 80"
SSH = "-d 192.0.2.1/32 -p tcp -m tcp --dport 22"


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([f"{WEB} -j DROP"], [f"{WEB} -j REJECT"], {("-A FORWARD {} -j DROP", "-A FORWARD {} -j REJECT")}),
        ([f"{WEB} -j own"], [f"{SSH} -j own"], {("-A FORWARD {} -j own", f"-A FORWARD {SSH} -j own")}),
        # Another mere verdict for other packets is another rule.
        ([f"{WEB} -j DROP"], [f"{SSH} -j DROP"], {("-A FORWARD {} -j DROP", ""), ("", f"-A FORWARD {SSH} -j DROP")}),
        # So it is with rules that do not stand in one place.
        (
            [f"{WEB} -j DROP", "-s 192.0.2.9/32 -j ACCEPT"],
            ["-s 192.0.2.9/32 -j ACCEPT", f"{WEB} -j REJECT"],
            {("-A FORWARD {} -j DROP", "")},
        ),
    ],
    ids=["another target", "a jump for other packets", "verdicts for other packets", "another place"],
)  # fmt: skip
def test_a_changed_rule_is_one_cause(one: Sequence[str], other: Sequence[str], expected: set[tuple[str, str]]) -> None:
    """The same from both sides, with what each has."""
    expected = {(first.format(WEB), second.format(WEB)) for first, second in expected}
    sides = (forward(*one), forward(*other))
    found = {item.cause.texts for item in compare(*sides, family=Family.IPV4).differences if item.cause}
    back = {item.cause.texts for item in compare(*sides[::-1], family=Family.IPV4).differences if item.cause}
    assert found == expected
    if all(map(all, expected)):
        assert back == {(second, first) for first, second in expected}


def test_a_rule_that_changes_nothing_for_the_witness_is_no_cause() -> None:
    """A jump to an empty chain is met first, and is as well on one side alone; what drops is another rule."""
    jumps = "".join(f"-A {hook} -j KUBE-PROXY-FIREWALL\n" for hook in ("INPUT", "FORWARD", "OUTPUT"))
    common = "".join(f"-A {hook} -j KUBE-FIREWALL\n" for hook in ("INPUT", "FORWARD", "OUTPUT"))
    drop = "-A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP\n"
    head = "*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\n:KUBE-FIREWALL -\n:KUBE-PROXY-FIREWALL -\n"
    one, other = (parse_save(f"{head}{body}COMMIT\n") for body in (jumps + common + drop, common))
    for sides, where in (((one, other), "A"), ((other, one), "B")):
        found = compare(*sides, family=Family.IPV4)
        assert {item.cause.words() for item in found.differences if item.cause} == {
            f"rule 1 of KUBE-FIREWALL, `-j DROP`, is only in {where}"
        }
        assert all(item.cause for item in found.differences)


def test_where_it_takes_two_the_first_is_the_cause() -> None:
    """A Service that has lost its endpoints: it is not translated any more, and refused."""
    head = "*nat\n:PREROUTING ACCEPT\n:OUTPUT ACCEPT\n:S -\n"
    nat = "-A PREROUTING -j S\n-A OUTPUT -j S\n"
    to = "-A S -d 10.96.0.9 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.244.1.5:80\n"
    refuse = "*filter\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\n:R -\n-A FORWARD -j R\n-A OUTPUT -j R\n"
    no = "-A R -d 10.96.0.9 -p tcp -m tcp --dport 80 -j REJECT\n"
    one = parse_save(f"{head}{nat}{to}COMMIT\n{refuse}COMMIT\n")
    other = parse_save(f"{head}{nat}COMMIT\n{refuse}{no}COMMIT\n")
    causes_ = {item.cause.words() for item in compare(one, other, family=Family.IPV4).differences if item.cause}
    assert "rule 1 of S, `-j DNAT --to-destination 10.244.1.5:80`, is only in A" in causes_


def test_another_chance_is_a_cause_where_nothing_else_is() -> None:
    def saved(probability: str) -> SideRules:
        chance = f"-m statistic --mode random --probability {probability}"
        text = f"*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -d 192.0.2.1/32 {chance} -j DROP\nCOMMIT\n"
        return SideRules.of(parse_save(text, family=Family.IPV4))

    found = compare(saved("0.5"), saved("0.25"), family=Family.IPV4)
    assert {item.cause.words() for item in found.differences if item.cause} == {
        "rule 1 of FORWARD, `-j DROP`, has another chance in B"
    }


def test_a_rule_that_logs_is_no_cause() -> None:
    def saved(*rules: str) -> SideRules:
        text = "".join(f"-A FORWARD {rule}\n" for rule in rules)
        return SideRules.of(parse_save(f"*filter\n:FORWARD ACCEPT [0:0]\n{text}COMMIT\n", family=Family.IPV4))

    logs = ("-j LOG", "-j NFLOG", '-m comment --comment "counts"')
    found = compare(saved(*logs, "-d 192.0.2.1/32 -j DROP"), saved(), family=Family.IPV4)
    assert {item.cause.words() for item in found.differences if item.cause} == {
        "rule 4 of FORWARD, `-j DROP`, is only in A"
    }
    one, other = (native(f"{more} ip daddr 192.0.2.1 drop", "") for more in ("log; ip saddr 10.0.0.0/8 counter;", ""))
    gone = native("", "")
    assert causes(one, gone) == {"rule 3 of here, `ip daddr 192.0.2.1 drop`, is only in A"}
    assert causes(other, gone) == {"rule 1 of here, `ip daddr 192.0.2.1 drop`, is only in A"}
    remembers = saved("-m recent --name seen --set", "-m recent --name seen --rcheck -j DROP")
    assert causes(remembers, saved("-m recent --name seen --rcheck -j DROP")) == {
        "rule 1 of FORWARD, without a target, is only in A"
    }


def table(manifests: str) -> SideRules:
    """What kube-proxy writes on worker-1 in nftables mode."""
    cluster = load_contents({"shop.yaml": manifests.encode()})
    config = KubeProxyConfiguration(cluster_cidr="10.244.0.0/16", mode="nftables")
    target = select_target(cluster.nodes, config, "worker-1")
    rendered = render_table(target, IPFamily.IPV4, cluster.services, cluster.endpoint_slices, config, Features())
    return SideRules((), nft_ruleset(rendered.restore_text))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(
            changed("nodePort: 30080", "nodePort: 30081"),
            {"element `tcp . 30080 : goto external-KHN6ECMT-shop/web/tcp/http` of map service-nodeports is only in A",
             "element `tcp . 30081 : goto external-KHN6ECMT-shop/web/tcp/http` of map service-nodeports is only in B"},
            id="another node port",
        ),
        pytest.param(
            changed("port: 80, targetPort: 8080, nodePort", "port: 81, targetPort: 8080, nodePort"),
            {"element `10.96.0.80 . tcp . 80 : goto service-KHN6ECMT-shop/web/tcp/http` of map service-ips is only "
             "in A",
             "element `10.96.0.80 . tcp . 81 : goto service-KHN6ECMT-shop/web/tcp/http` of map service-ips is only "
             "in B"},
            id="another port of the Service",
        ),
        pytest.param(
            changed(SECOND, ""),
            {"rule 1 of service-KHN6ECMT-shop/web/tcp/http, `meta l4proto tcp dnat ip to numgen random mod 2 map "
             "{ 0 : 10.244.1.11 . 8080, 1 : 10.244.2.12 . 8080 }`, is changed in B"},
            id="an endpoint less: the rule that has all of them",
        ),
    ],
)  # fmt: skip
def test_elements_of_maps_are_causes(change: Callable[[], str], expected: set[str]) -> None:
    found = compare(table(SHOP), table(change()), family=Family.IPV4)
    assert {item.cause.words() for item in found.differences if item.cause} == expected
    assert all(item.cause for item in found.differences)


def native(rules: str, elements: str) -> SideRules:
    """A table with a set of addresses, and rules for packets that are passed on."""
    return SideRules((), parse_nft(f"""
        table ip t {{
          set listed {{ type ipv4_addr; flags interval; {elements and f"elements = {{ {elements} }}"} }}
          chain here {{
            type filter hook forward priority 0; policy accept;
            {rules}
          }}
        }}
    """))  # fmt: skip


def causes(one: SideRules, other: SideRules) -> set[str]:
    """Those of all differences, in words."""
    found = compare(one, other, family=Family.IPV4).differences
    assert found
    return {item.cause.words() for item in found if item.cause}


@pytest.mark.parametrize("rule", ["ip daddr @listed drop", "ip daddr != @listed drop"])
def test_elements_of_sets_are_causes(rule: str) -> None:
    """Also where the packet meets the rule on the side that has not got the element."""
    one, other = native(rule, "192.0.2.0/24, 198.51.100.0/24"), native(rule, "192.0.2.0/24")
    assert causes(one, other) == {"element `198.51.100.0/24` of set listed is only in A"}
    assert causes(other, one) == {"element `198.51.100.0/24` of set listed is only in B"}


def test_an_element_that_is_another_is_one_cause() -> None:
    def mapping(verdict: str) -> SideRules:
        return SideRules((), parse_nft(f"""
            table ip t {{
              map ends {{ type ipv4_addr : verdict; elements = {{ 192.0.2.1 : {verdict} }} }}
              chain here {{ type filter hook forward priority 0; policy accept; ip daddr vmap @ends; }}
            }}
        """))  # fmt: skip

    one, other = mapping("drop"), mapping("accept")
    assert causes(one, other) == {"element `192.0.2.1 : drop` of map ends is changed in B"}
    assert causes(other, one) == {"element `192.0.2.1 : accept` of map ends is changed in B"}


def test_a_translated_destination_is_looked_up() -> None:
    def translating(elements: str) -> SideRules:
        chain = "chain before { type nat hook prerouting priority dstnat; ip daddr 192.0.2.1 dnat to 10.0.0.7; }"
        return SideRules((), parse_nft(f"""
            table ip t {{
              set listed {{ type ipv4_addr; elements = {{ {elements} }} }}
              {chain}
              chain here {{ type filter hook forward priority 0; ct status dnat ip daddr @listed drop; }}
            }}
        """))  # fmt: skip

    words = causes(translating("10.0.0.7, 10.0.0.8"), translating("10.0.0.8"))
    assert words == {"element `10.0.0.7` of set listed is only in A"}


def test_elements_that_hold_the_same_are_no_cause() -> None:
    one = native("ip daddr @listed accept\nip saddr 198.51.100.1 drop", "192.0.2.0/24")
    other = native("ip daddr @listed accept", "192.0.2.0/25, 192.0.2.128/25")
    assert causes(one, other) == {"rule 2 of here, `ip saddr 198.51.100.1 drop`, is only in A"}


def test_what_rules_change_is_no_cause() -> None:
    """Elements that packets have put there are what a host remembers."""

    def remembering(end: str, elements: str) -> SideRules:
        return SideRules((), parse_nft(f"""
            table ip t {{
              set seen {{ type ipv4_addr; flags dynamic, timeout; timeout 60s; {elements} }}
              chain here {{
                type filter hook forward priority 0; policy accept;
                ip saddr @seen jump next
                update @seen {{ ip saddr }}
              }}
              chain next {{ {end} }}
            }}
        """))  # fmt: skip

    source = compare(remembering("drop", ""), remembering("accept", "")).differences[0].witness.packet.source
    one = remembering("drop", f"elements = {{ {source.partition(':')[0]} }}")
    assert causes(one, remembering("accept", "")) == {"rule 1 of next, `drop`, is changed in B"}
