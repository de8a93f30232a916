"""What a host's rules tell of the configuration of its kube-proxy, where that is not known otherwise.

Each rule that depends on the configuration says so: what it says is counted, for one rule alone may be wrong. Of dumps
of iptables only such rules are read, since those of 2000 Services are megabytes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kproxy.netfilter import Chain, Family, Rule, parse_save
from kproxy.netfilter.address import Network, format_address
from kproxy.netfilter.condition import All, Among, Condition, In, Not, Under, fields_of
from kproxy.netfilter.iptables.matches import MarkMatch
from kproxy.netfilter.iptables.targets import Jump, MarkTarget
from kproxy.netfilter.nftables.effects import FAMILIES
from kproxy.netfilter.nftables.expression import Binary, Meta, SetReference
from kproxy.netfilter.nftables.lowering import condition_of
from kproxy.netfilter.nftables.ruleset import NftRuleset
from kproxy.netfilter.nftables.ruleset import Rule as NftRule
from kproxy.netfilter.nftables.ruleset import Table as NftTable
from kproxy.netfilter.nftables.statement import Mangle, Match
from kproxy.netfilter.nftables.value import Verdict
from kproxy.netfilter.text import ChainText, SaveTextError, split_save, target_of
from kproxy.render.iptables.chains import FORWARD, MARK_MASQ, NODEPORTS, POSTROUTING, SERVICES
from kproxy.render.nftables.names import CLUSTER_IPS, NODEPORT_IPS, TABLE
from kproxy.render.nftables.names import SERVICES as NFT_SERVICES

_CLUSTER_IP_CHAINS: Final = ("KUBE-SVC-", "KUBE-SVL-")
_EXTERNAL: Final = "KUBE-EXT-"
_TELLING: Final = frozenset((SERVICES, MARK_MASQ, POSTROUTING, FORWARD))
_BY_CONFIGURATION: Final = re.compile(
    rf"-A KUBE-SV[CL]-\S+ .*-j {MARK_MASQ}$"
    r"|-A KUBE-EXT-\S+ -[si] \S+ .*-j KUBE-SVC-\S+$"
    r"|-A KUBE-SERVICES .*-j KUBE-NODEPORTS$"
    r"|-A KUBE-FIREWALL |-A KUBE-FORWARD .*INVALID"
    r"|ip6? daddr @cluster-ips .*meta mark set "
    r"|(?:ip6? saddr|iifname) \S+ goto service-"
    r"|fib daddr type local "
)


class Pods(NamedTuple):
    """By what rules tell traffic of local pods: a network or an interface, whose name may be a beginning; by neither if
    both are empty."""

    network: str = ""
    interface: str = ""
    is_prefix: bool = False


@dataclass
class Evidence:
    """What the rules of one host say, and how many say so.

    Attributes:
        pods: of each family, by what pods are told.
        masquerade_all: whether all traffic to ClusterIPs is masqueraded.
        marks: the mark that asks for masquerading: one bit.
        drops_invalid: of each family, whether what conntrack calls INVALID is dropped; iptables mode only.
        node_ports: of each family, the addresses at which node ports answer; "" stands for every one.
        localhost_node_ports: whether they answer on 127.0.0.0/8; iptables mode only.
    """

    pods: dict[Family, Counter[Pods]] = field(default_factory=dict)
    masquerade_all: Counter[bool] = field(default_factory=Counter)
    marks: Counter[int] = field(default_factory=Counter)
    drops_invalid: dict[Family, bool] = field(default_factory=dict)
    node_ports: dict[Family, tuple[str, ...]] = field(default_factory=dict)
    localhost_node_ports: bool | None = None

    def saw_masquerading(self, family: Family, rules: Sequence[Rule | NftRule]) -> None:
        """The rules that masquerade traffic to ClusterIPs, of one Service or all."""
        for rule in rules:
            pods = _pods_of(rule, family, negated=True)
            self.masquerade_all[pods == Pods()] += 1
            if pods != Pods():
                self._saw_pods(family, pods)
        if not rules:
            self._saw_pods(family, Pods())

    def saw_external(self, family: Family, rules: Iterable[Rule | NftRule]) -> None:
        """The rules of external traffic to a Service, by which local pods' goes to all endpoints."""
        from_pods = (_pods_of(rule, family, negated=False) for rule in rules)
        self._saw_pods(family, next((each for each in from_pods if each != Pods()), Pods()))

    def _saw_pods(self, family: Family, pods: Pods) -> None:
        self.pods.setdefault(family, Counter())[pods] += 1


def _asked(rule: Rule | NftRule) -> Iterator[Condition]:
    """What a rule asks of packets: conditions that all must hold."""
    if isinstance(rule, Rule):
        parts = [rule.asks(), *(match.condition() for match in rule.matches)]
    else:
        parts = [condition_of(each) for each in rule.statements if isinstance(each, Match)]
    for part in parts:
        if part is not None:
            yield from part.parts if isinstance(part, All) else (part,)


def _asks(rule: Rule | NftRule, field: str) -> bool:
    """Whether a rule reads a field of packets."""
    return any(name == field for part in _asked(rule) for name, _ in fields_of(part))


def _pods_of(rule: Rule | NftRule, family: Family, *, negated: bool) -> Pods:
    """By what a rule tells pods from others (`negated`), or others from pods."""
    for each in _asked(rule):
        if isinstance(each, Not) is not negated:
            continue
        match each.part if isinstance(each, Not) else each:
            case Under("src", value, mask):
                return Pods(network=str(Network(family, value, mask)))
            case In("src", ((first, last),)):
                return Pods(network=str(Network(family, first, family.full_mask & ~(first ^ last))))
            case Among("in_interface", names):
                name = min(names)
                return Pods(interface=name.removesuffix("+"), is_prefix=name.endswith("+"))
    return Pods()


def is_of_configuration(rule: str, set_name: str = "") -> bool:
    """Whether kube-proxy's configuration decides that one of its rules is there, or an element of a set.

    Args:
        rule: as iptables-save or nft prints it.
    """
    return set_name == NODEPORT_IPS or _BY_CONFIGURATION.search(rule) is not None


# --- iptables ---


def has_iptables_mode(text: str) -> bool:
    """Whether a dump has rules of iptables mode: a dispatch chain that something else jumps to."""
    return any(
        rule.endswith((f"-j {SERVICES}", f"-g {SERVICES}"))
        for name, chain in _tables(text).get("nat", {}).items()
        if not name.startswith("KUBE-")
        for rule in chain.rules
    )


def read_iptables(texts: Mapping[Family, list[str]]) -> Evidence:
    """What dumps say.

    Raises:
        InputError: a rule cannot be read.
    """
    found = Evidence()
    for family, dumps in texts.items():
        for text in dumps:
            ruleset = parse_save(_telling(text), family=family)
            chains = {
                (table.name, chain.name): chain for table in ruleset.tables for chain in table.chains if chain.rules
            }
            _read_nat(found, family, chains)
            _read_forward(found, family, chains.get(("filter", FORWARD)))
    return found


def _tables(text: str) -> Mapping[str, Mapping[str, ChainText]]:
    """A dump's tables; none of what is no dump, which is told where its rules are wanted."""
    try:
        return split_save(text.replace("\r\n", "\n")).tables
    except SaveTextError:
        return {}


def _telling(text: str) -> str:
    """The rules of a dump that can tell something, as a dump."""
    parts = []
    for table, chains in _tables(text).items():
        parts.append(f"*{table}")
        for name, chain in chains.items():
            rules = chain.rules
            if name.startswith(_CLUSTER_IP_CHAINS):
                rules = [rule for rule in rules if target_of(rule) == MARK_MASQ]
            elif name not in _TELLING and not name.startswith(_EXTERNAL):
                continue
            parts += [f":{name} - [0:0]", *(f"-A {name} {rule}" for rule in rules)]
        parts.append("COMMIT")
    return "\n".join(parts) + "\n"


def _read_nat(found: Evidence, family: Family, chains: Mapping[tuple[str, str], Chain]) -> None:
    def rules(name: str) -> tuple[Rule, ...]:
        chain = chains.get(("nat", name))
        return () if chain is None else chain.rules

    own = dict.fromkeys(filter(None, map(_jumped_to, rules(SERVICES))))
    for name in own:
        if name.startswith(_CLUSTER_IP_CHAINS):
            found.saw_masquerading(family, [each for each in rules(name) if _jumped_to(each) == MARK_MASQ])
    for (_, name), chain in chains.items():
        if name.startswith(_EXTERNAL) and any(_asks(rule, "src_kind") for rule in chain.rules):
            found.saw_external(family, chain.rules)
    _read_node_ports(found, family, [each for each in rules(SERVICES) if _jumped_to(each) == NODEPORTS])
    for rule in (*rules(MARK_MASQ), *rules(POSTROUTING)):
        found.marks.update(_marks_of(rule))


def _read_node_ports(found: Evidence, family: Family, jumps: list[Rule]) -> None:
    addresses = []
    for rule in jumps:
        to = rule.destination
        if _asks(rule, "dst_kind"):
            addresses.append("")
            if family is Family.IPV4:
                found.localhost_node_ports = to is None or not to.negated
        elif to is not None and not to.negated and to.value.mask == family.full_mask:
            addresses.append(format_address(to.value.address, family))
    if addresses:
        found.node_ports[family] = ("",) if "" in addresses else tuple(addresses)


def _read_forward(found: Evidence, family: Family, chain: Chain | None) -> None:
    if chain is None:
        return
    asked = [each for rule in chain.rules for each in _asked(rule) if isinstance(each, Among)]
    found.drops_invalid[family] = any(each.field == "ctstate" and "INVALID" in each.names for each in asked)


def _jumped_to(rule: Rule) -> str:
    return rule.target.chain if isinstance(rule.target, Jump) else ""


def _marks_of(rule: Rule) -> Iterator[int]:
    values = [match.mark.value.value for match in rule.matches if isinstance(match, MarkMatch)]
    if isinstance(rule.target, MarkTarget):
        values.append(rule.target.xmark.value)
    return filter(_is_one_bit, values)


def _is_one_bit(value: int) -> bool:
    return value.bit_count() == 1


# --- nftables ---


def has_nftables_mode(rules: NftRuleset | None) -> bool:
    """Whether kube-proxy's table is there."""
    return rules is not None and any(each.name == TABLE and each.chains for each in rules.tables)


def read_nftables(rules: NftRuleset) -> Evidence:
    """What kube-proxy's tables say."""
    found = Evidence()
    for table in rules.tables:
        if table.name == TABLE and table.family.value in FAMILIES:
            _read_table(found, FAMILIES[table.family.value], table)
    return found


def _read_table(found: Evidence, family: Family, table: NftTable) -> None:
    chains = {chain.name: chain.rules for chain in table.chains}
    found.saw_masquerading(family, [each for each in chains.get(NFT_SERVICES, ()) if _marks_cluster_ips(each)])
    for name, rules in chains.items():
        if name.startswith("external-") and any(_asks(rule, "src_kind") for rule in rules):
            found.saw_external(family, [each for each in rules if isinstance(each.statements[-1], Verdict)])
    if any(_asks(each, "dst_kind") for each in chains.get(NFT_SERVICES, ())):
        found.node_ports[family] = ("",)
    for rules in chains.values():
        for rule in rules:
            found.marks.update(
                each.value.right
                for each in rule.statements
                if isinstance(each, Mangle) and each.target == Meta("mark") and isinstance(each.value, Binary)
                and isinstance(each.value.right, int) and _is_one_bit(each.value.right)
            )  # fmt: skip


def _marks_cluster_ips(rule: NftRule) -> bool:
    asks = any(isinstance(each, Match) and each.right == SetReference(CLUSTER_IPS) for each in rule.statements)
    return asks and any(isinstance(each, Mangle) for each in rule.statements)
