"""What a host's rules tell of the configuration of its kube-proxy, where that is not known otherwise.

What each rule says that depends on the configuration is counted, for one alone may be wrong. Of dumps of iptables only
such rules are read, since those of 2000 Services are megabytes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kproxy.netfilter import Family, Rule, parse_save
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


PODS: Final = "pods"
"""By what local pods are told: a network, or an interface, which may be the beginning of a name and `+`; else ""."""
ALL: Final = "masquerade all"
"""Whether all traffic to ClusterIPs is masqueraded."""
MARK: Final = "mark"
"""The mark that asks for masquerading: one bit."""
DROPS_INVALID: Final = "drops INVALID"
"""Whether what conntrack calls INVALID is dropped; in iptables mode only."""
NODE_PORTS: Final = "node ports"
"""An address at which node ports answer; "" for every one."""
LOCALHOST: Final = "localhost node ports"
"""Whether they answer on 127.0.0.0/8; in iptables mode only."""

Votes = Counter[tuple[str, Family, Any]]
"""How many rules of a host say something: which of these, of which family, and what."""


def said_of(votes: Votes, what: str, family: Family | None = None) -> Counter[Any]:
    """What rules say of a thing; of one family, or of both together."""
    found: Counter[Any] = Counter()
    for (name, of, value), count in votes.items():
        if name == what and family in (None, of):
            found[value] += count
    return found


def _vote_of_cluster_ips(votes: Votes, family: Family, rules: Sequence[Rule | NftRule]) -> None:
    """The rules that masquerade traffic to ClusterIPs, of one Service or all."""
    told = [_pods_of(rule, family, negated=True) for rule in rules]
    votes.update((ALL, family, not pods) for pods in told)
    votes.update((PODS, family, pods) for pods in (filter(None, told) if told else [""]))


def _vote_of_external(votes: Votes, family: Family, rules: Iterable[Rule | NftRule]) -> None:
    """The rules of external traffic to a Service, by which local pods' goes to all endpoints."""
    votes[PODS, family, next(filter(None, (_pods_of(rule, family, negated=False) for rule in rules)), "")] += 1


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


def _pods_of(rule: Rule | NftRule, family: Family, *, negated: bool) -> str:
    """By what a rule tells pods from others (`negated`), or others from pods."""
    for each in _asked(rule):
        if isinstance(each, Not) is not negated:
            continue
        match each.part if isinstance(each, Not) else each:
            case Under("src", value, mask):
                return str(Network(family, value, mask))
            case In("src", ((first, last),)):
                return str(Network(family, first, family.full_mask & ~(first ^ last)))
            case Among("in_interface", names):
                return min(names)
    return ""


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


def read_iptables(texts: Mapping[Family, list[str]]) -> Votes:
    """What dumps say. Raises InputError: a rule cannot be read."""
    votes: Votes = Counter()
    for family, dumps in texts.items():
        for text in dumps:
            ruleset = parse_save(_telling(text), family=family)
            nat, forward = ruleset.table("nat"), ruleset.chain("filter", FORWARD)
            _read_nat(votes, family, {} if nat is None else {chain.name: chain.rules for chain in nat.chains})
            if forward is not None and forward.rules:
                asked = [each for rule in forward.rules for each in _asked(rule) if isinstance(each, Among)]
                drops = any(each.field == "ctstate" and "INVALID" in each.names for each in asked)
                votes[DROPS_INVALID, family, drops] = 1
    return votes


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


def _read_nat(votes: Votes, family: Family, chains: Mapping[str, Sequence[Rule]]) -> None:
    dispatch = chains.get(SERVICES, ())
    for name in dict.fromkeys(map(_jumped_to, dispatch)):
        if name.startswith(_CLUSTER_IP_CHAINS):
            masquerading = [each for each in chains.get(name, ()) if _jumped_to(each) == MARK_MASQ]
            _vote_of_cluster_ips(votes, family, masquerading)
    for name, rules in chains.items():
        if name.startswith(_EXTERNAL) and any(_asks(rule, "src_kind") for rule in rules):
            _vote_of_external(votes, family, rules)
    for rule in dispatch:
        to = rule.destination
        if _jumped_to(rule) != NODEPORTS:
            continue
        if _asks(rule, "dst_kind"):
            votes[NODE_PORTS, family, ""] += 1
            votes[LOCALHOST, family, to is None or not to.negated] += 1
        elif to is not None and not to.negated and to.value.mask == family.full_mask:
            votes[NODE_PORTS, family, format_address(to.value.address, family)] += 1
    for rule in (*chains.get(MARK_MASQ, ()), *chains.get(POSTROUTING, ())):
        values = [match.mark.value.value for match in rule.matches if isinstance(match, MarkMatch)]
        if isinstance(rule.target, MarkTarget):
            values.append(rule.target.xmark.value)
        votes.update((MARK, family, value) for value in values if value.bit_count() == 1)


def _jumped_to(rule: Rule) -> str:
    return rule.target.chain if isinstance(rule.target, Jump) else ""


# --- nftables ---


def has_nftables_mode(rules: NftRuleset | None) -> bool:
    """Whether kube-proxy's table is there."""
    return rules is not None and any(each.name == TABLE and each.chains for each in rules.tables)


def read_nftables(rules: NftRuleset) -> Votes:
    """What kube-proxy's tables say."""
    votes: Votes = Counter()
    for table in rules.tables:
        if table.name == TABLE and table.family.value in FAMILIES:
            _read_table(votes, FAMILIES[table.family.value], table)
    return votes


def _read_table(votes: Votes, family: Family, table: NftTable) -> None:
    chains = {chain.name: chain.rules for chain in table.chains}
    services = chains.get(NFT_SERVICES, ())
    _vote_of_cluster_ips(votes, family, [each for each in services if _marks_cluster_ips(each)])
    for name, rules in chains.items():
        if name.startswith("external-") and any(_asks(rule, "src_kind") for rule in rules):
            _vote_of_external(votes, family, [each for each in rules if isinstance(each.statements[-1], Verdict)])
    if any(_asks(each, "dst_kind") for each in services):
        votes[NODE_PORTS, family, ""] = 1
    for each in (part for rules in chains.values() for rule in rules for part in rule.statements):
        match each:
            case Mangle(target=Meta("mark"), value=Binary(right=int(value))) if value.bit_count() == 1:
                votes[MARK, family, value] += 1


def _marks_cluster_ips(rule: NftRule) -> bool:
    asks = any(isinstance(each, Match) and each.right == SetReference(CLUSTER_IPS) for each in rule.statements)
    return asks and any(isinstance(each, Mangle) for each in rule.statements)
