"""What a host's rules point to and do not show.

Signs are: kube-proxy's chains of one table without the other table; chains of kube-proxy that nothing jumps to, or that
lack what it always writes; ipsets that rules name; what kube-proxy's IPVS mode leaves in iptables; warnings in the dump
itself. Sources: what iptables-save 1.8 and nft 1.0 print as comments (xtables_save_main, xt_stmt_xlate), and the rules
of kube-proxy's three modes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from kproxy.api.kubeproxyconfig.types import MODE_IPVS
from kproxy.cluster.evidence.unseen import (
    BASE_CHAIN_JUMPS,
    CHAIN,
    FILTER_TABLE,
    IPSET,
    IPVS,
    MANGLE_TABLE,
    NAT_TABLE,
    NFTABLES,
    RAW_TABLE,
    VARIANTS,
    Unseen,
    not_looked_at,
    suspect,
)
from kproxy.dataplane.model.pipeline import OWN_TABLES, TABLE_FAMILIES, IptablesRules
from kproxy.netfilter import BUILTIN_CHAINS, Family, Ruleset
from kproxy.netfilter.hooks import Variant
from kproxy.netfilter.iptables.matches import (
    CommentMatch,
    ConntrackMatch,
    MarkMatch,
    OpaqueMatch,
    RecentMatch,
    SetMatch,
    StatisticMatch,
)
from kproxy.netfilter.iptables.rule import Rule
from kproxy.netfilter.iptables.ruleset import Chain, Table
from kproxy.netfilter.iptables.targets import ConnmarkTarget, DnatTarget, Jump, MasqueradeTarget, SetTarget, Verdict
from kproxy.render.iptables.base import BASE_CHAINS, JUMP_RULES, JumpRule
from kproxy.render.iptables.chains import (
    EXTERNAL_SERVICES,
    FIREWALL,
    FORWARD,
    MARK_MASQ,
    NODEPORTS,
    POSTROUTING,
    PROXY_FIREWALL,
    SERVICE_PORT_CHAIN_PREFIXES,
    SERVICES,
)
from kproxy.render.iptables.renderer import LARGE_CLUSTER_ENDPOINTS
from kproxy.render.nftables.base import JUMPS
from kproxy.render.nftables.names import (
    CLUSTER_IPS,
    MASQUERADING,
    NO_ENDPOINT_SERVICES,
    NODEPORT_IPS,
    SERVICE_IPS,
    SERVICE_NODEPORTS,
)
from kproxy.render.nftables.names import SERVICES as SERVICES_CHAIN

if TYPE_CHECKING:
    from kproxy.netfilter.nftables.element import Elements
    from kproxy.netfilter.nftables.ruleset import NftRuleset
    from kproxy.netfilter.nftables.ruleset import Rule as NftRule
    from kproxy.netfilter.nftables.ruleset import Table as NftTable

_TABLES: Final = {"filter": FILTER_TABLE, "nat": NAT_TABLE, "mangle": MANGLE_TABLE, "raw": RAW_TABLE}
_NAT_CHAINS: Final = (SERVICES, *SERVICE_PORT_CHAIN_PREFIXES)
_FILTER_CHAINS: Final = frozenset({SERVICES, EXTERNAL_SERVICES, FORWARD, NODEPORTS, PROXY_FIREWALL})
_ALWAYS: Final = {"filter": (SERVICES, EXTERNAL_SERVICES, FORWARD), "nat": BASE_CHAINS["nat"]}
"""The chains that each version of kube-proxy in iptables mode has."""
_STEADY: Final = frozenset({("nat", SERVICES), ("nat", POSTROUTING), ("filter", SERVICES), ("filter", FORWARD)})
"""The chains to which each version jumps from all built-in chains that v1.36 jumps from."""
_FIRST: Final = frozenset(jump.target for jump in JUMP_RULES)
"""The chains of kube-proxy's to which built-in chains jump."""
_NFT_TABLE: Final = "kube-proxy"
_IPVS_SET: Final = re.compile(
    r"KUBE-(6-)?(CLUSTER-IP|LOOP-BACK|EXTERNAL-IP|LOAD-BALANCER|NODE-PORT|HEALTH-CHECK-NODE-PORT|IPVS-IPS)(-.*)?"
)
_IPVS_CHAIN: Final = re.compile(r"KUBE-IPVS-.*|KUBE-LOAD-BALANCER|KUBE-SOURCE-RANGES-FIREWALL")
_IPVS_DEVICE: Final = "kube-ipvs0"
_COMMENT: Final = re.compile(r"^#\s*(?:Warning: .*|Table `.*)$|# Warning: XT .*$", re.MULTILINE)
_OTHER_VARIANT: Final = re.compile(r"Warning: (iptables|ip6tables)-legacy tables present")
_INCOMPATIBLE: Final = re.compile(r"Table `(\w+)' is incompatible")
_NO_EXTENSION: Final = re.compile(r"Warning: XT (?:target|match|watcher) (\S+) not found")


class Rules(Protocol):
    """A host's rules as they were read: `cluster.rules.HostRules`."""

    @property
    def host(self) -> str:
        """What to call the host."""

    @property
    def nftables(self) -> NftRuleset | None: ...

    @property
    def texts(self) -> Iterable[tuple[str, Family | None, bool]]:
        """Each file's text, its family, and whether it is iptables'."""

    @property
    def hidden(self) -> Sequence[tuple[Family, str]]:
        """iptables-nft's tables that nft showed, and no dump of iptables-save: their families and names."""

    def given(self, family: Family) -> tuple[IptablesRules, ...]: ...


def signs_of(rules: Rules, *, live: bool, collected: bool) -> tuple[Unseen, ...]:
    """What was not seen of a host.

    Args:
        live: all rules were read from the kernel just now: what is not there does not exist, and only what is not
            modelled is open. collected: all were read from the kernel and kept in files: jumps that are missing in a
            dump of all tables do not exist.
    """
    host = rules.host
    found: list[Unseen] = []
    for family in Family:
        held = rules.given(family)
        for each in held:
            ruleset = each.ruleset
            found += _ipvs(host, family, ruleset)
            if not live:
                why = "rules ask for its members, and they are not given"
                found += [suspect(host, family, f"{IPSET} {name}", why) for name in set_names(ruleset)]
                found += (each for each in _tables(host, family, ruleset) if each.suspected or not collected)
                found += _jumps(host, family, ruleset, whole=collected and _is_whole(ruleset))
        if not live:
            found += _native_jumps(host, family, rules.nftables, collected=collected)
            found += _variants(host, family, held, rules)
    tables = () if rules.nftables is None else rules.nftables.tables
    alone = len(tables) == 1 and tables[0].name == _NFT_TABLE and not collected  # as `nft list table` prints it
    if not live and (rules.nftables is None or alone):
        found.append(not_looked_at(host, None, NFTABLES))
    return tuple(dict.fromkeys(found))


def _variants(host: str, family: Family, held: Sequence[IptablesRules], rules: Rules) -> Iterator[Unseen]:
    """Variants of iptables that a dump warns of, or that are simply not there."""
    there = {each.variant for each in held}
    warned: dict[str, str] = {}
    names = [name for other, name in rules.hidden if other is family]
    if names:
        table = f"{OWN_TABLES[family].value} {', '.join(names)}"
        warned[VARIANTS[Variant.NFT]] = f"nft shows iptables-nft's table {table}, and not all that its rules say"
    tables = () if rules.nftables is None else rules.nftables.tables
    native = {each.name for each in tables if each.family is OWN_TABLES[family]}
    for text, of, iptables in rules.texts:
        for line in _COMMENT.findall(text):
            other = _OTHER_VARIANT.search(line)  # which names the family, whatever the file's is
            concerned = family is (Family.IPV6 if other and other[1] == "ip6tables" else Family.IPV4)
            if iptables and other and concerned and Variant.LEGACY not in there:
                warned[VARIANTS[Variant.LEGACY]] = f"the dump warns that {other[1]}-legacy has tables, too"
            if of not in (None, family):
                continue
            incompatible = _INCOMPATIBLE.search(line)
            if iptables and incompatible and incompatible[1] in _TABLES and incompatible[1] not in native:
                warned[_TABLES[incompatible[1]]] = "the dump warns that only nft can show it"
            extension = _NO_EXTENSION.search(line)
            if extension and Variant.NFT not in there:
                warned[VARIANTS[Variant.NFT]] = f"the dump warns that nft could not show {extension[1]}"
    for what, why in warned.items():
        yield suspect(host, family, what, why)
    for variant, name in VARIANTS.items():
        if variant not in there and name not in warned and (None not in there or variant is Variant.LEGACY):
            yield not_looked_at(host, family, name)


def _tables(host: str, family: Family, ruleset: Ruleset) -> Iterator[Unseen]:
    """iptables' tables that the dump does not have."""
    there = {table.name for table in ruleset.tables}
    for name, what in _TABLES.items():
        if name not in there:
            sign = _other_half(ruleset, name)
            yield suspect(host, family, what, sign) if sign else not_looked_at(host, family, what)


def _other_half(ruleset: Ruleset, name: str) -> str:
    """What points to kube-proxy's rules in a table that is missing, or has none of its chains; else ""."""
    other = {"filter": "nat", "nat": "filter"}.get(name)
    table, there = ruleset.table(name), ruleset.table(other or "")
    if other is None or there is None or not _is_proxied(there, alone=table is None):
        return ""
    if table is None:
        return f"kube-proxy's {other} chains are here, and no {name} table"
    if any(chain.name.startswith("KUBE-") for chain in table.chains):
        return ""
    return f"kube-proxy's {other} chains are here, and none of its chains in table {name}"


def _is_proxied(table: Table, *, alone: bool) -> bool:
    """Whether a table has chains of kube-proxy's; not alone, those of iptables mode, which has them in both tables."""
    names = {chain.name for chain in table.chains}
    if table.name == "filter":
        return bool(names & (_FILTER_CHAINS if alone else {SERVICES, EXTERNAL_SERVICES}))
    return any(name.startswith(_NAT_CHAINS if alone else SERVICE_PORT_CHAIN_PREFIXES) for name in names)


def _is_whole(ruleset: Ruleset) -> bool:
    """Whether a dump has both of kube-proxy's tables with all their built-in chains."""
    tables = [ruleset.table(name) for name in ("nat", "filter")]
    return all(
        table is not None and all(table.chain(name) is not None for name in _PROXIED[table.name]) for table in tables
    )


_PROXIED: Final = {"nat": ("PREROUTING", "OUTPUT", "POSTROUTING"), "filter": ("INPUT", "FORWARD", "OUTPUT")}


def missing_jumps(table: Table) -> tuple[JumpRule, ...]:
    """kube-proxy's jumps that built-in chains lack to chains of its, in a fresh chain's order.

    Of a chain without rules those count that each version of kube-proxy makes, and where nothing leads to it, all. IPVS
    mode makes not all of them (kube-proxy v1.36, pkg/proxy/ipvs/proxier.go): in its tables only those to chains with
    rules that nothing leads to count.
    """
    leads = {source: _leads_to(table, source) for source in BUILTIN_CHAINS.get(table.name, ())}
    reached = set[str]().union(*leads.values())
    ipvs = any(_IPVS_CHAIN.fullmatch(chain.name) for chain in table.chains)
    proxied = not ipvs and table.chain(SERVICES) is not None

    def is_due(jump: JumpRule) -> bool:
        if jump.table != table.name or jump.target in (reached if ipvs else leads[jump.source]):
            return False
        empty = proxied and table.chain(jump.target) is not None and jump.target != FIREWALL
        return has_rules(table, jump.target) or (
            empty and (jump.target not in reached or (table.name, jump.target) in _STEADY)
        )

    return tuple(filter(is_due, reversed(JUMP_RULES)))


def unled(table: Table) -> tuple[str, ...]:
    """The chains with rules to which no rule jumps, in a table in whose built-in chains there is none at all, and none
    of kube-proxy's that would lead to them."""
    builtin = BUILTIN_CHAINS.get(table.name, ())
    if missing_jumps(table) or any(chain.rules for chain in table.chains if chain.name in builtin):
        return ()
    aims = {rule.target.chain for chain in table.chains for rule in chain.rules if isinstance(rule.target, Jump)}
    return tuple(
        chain.name for chain in table.chains if chain.rules and chain.name not in aims and chain.name not in builtin
    )


def has_rules(table: Table, name: str) -> bool:
    """Whether a chain is there and not empty."""
    chain = table.chain(name)
    return chain is not None and bool(chain.rules)


def _leads_to(table: Table, source: str) -> set[str]:
    """The chains to which a built-in chain leads, but for those that only kube-proxy's first chains lead to."""
    found: set[str] = set()
    left = [source]
    while left:
        name = left.pop()
        chain = table.chain(name)
        if name not in found and chain is not None:
            found.add(name)
            if name not in _FIRST:
                left += [rule.target.chain for rule in chain.rules if isinstance(rule.target, Jump)]
    return found


def _jumps(host: str, family: Family, ruleset: Ruleset, *, whole: bool) -> Iterator[Unseen]:
    if whole:
        return
    for name, what in (("filter", FILTER_TABLE), ("nat", NAT_TABLE)):
        if ruleset.table(name) is not None and (sign := _other_half(ruleset, name)):
            yield suspect(host, family, what, sign)
    for table in ruleset.tables:
        lost, alone = lost_in_words(table), unled(table)
        if lost or alone:
            why = lost or f"chain {alone[0]} of table {table.name} has rules, and no built-in chain jumps there"
            yield suspect(host, family, BASE_CHAIN_JUMPS, why)
        for name in cut_chains(table, ruleset.table("nat")):
            why = f"it lacks, in table {table.name}, rules that kube-proxy always writes"
            yield suspect(host, family, f"{CHAIN} {name}", why)


def lost_in_words(table: Table) -> str:
    """Which of kube-proxy's jumps a table lacks, as a sentence's part; "" for none."""
    lost = missing_jumps(table)
    reached = set[str]().union(*(_leads_to(table, source) for source in BUILTIN_CHAINS.get(table.name, ())))
    unreached = next((jump.target for jump in reversed(lost) if jump.target not in reached), "")
    if unreached and has_rules(table, unreached):
        return (
            f"the rules name addresses, but nothing leads to them: chain {unreached} of table {table.name} has rules, "
            "and no built-in chain jumps there"
        )
    if unreached:
        return f"chain {unreached} of table {table.name} is there, and no built-in chain jumps there"
    return "; ".join(
        f"in table {table.name} nothing leads from {source} to "
        + ", ".join(sorted(jump.target for jump in lost if jump.source == source))
        for source in dict.fromkeys(jump.source for jump in lost)
    )


def cut_chains(table: Table, nat: Table | None) -> dict[str, bool]:
    """kube-proxy's chains of which rules were not seen, and whether such rules may stand before those that were. `nat`:
    the nat table beside it.

    kube-proxy v1.36, pkg/proxy/iptables/proxier.go: chains of ServicePorts end with a jump that asks nothing, those
    of endpoints with DNAT, KUBE-POSTROUTING with MASQUERADE; KUBE-FORWARD accepts by the mark and by the state;
    KUBE-MARK-MASQ and, beside chains of ServicePorts, nat's KUBE-SERVICES have rules; its other chains are there.
    What session affinity remembers of an endpoint is in two rules of a chain. Beside a chain KUBE-FW-* of nat
    KUBE-PROXY-FIREWALL has rules; so it may where neither nat nor all of KUBE-FORWARD was seen. Something leads to
    KUBE-NODEPORTS where it has rules, to each chain of a ServicePort, and to each address that such a chain names:
    else rules of the chain that should lead there were not seen. A chain of a Service that is gone is deleted at
    once; only with more than 1000 endpoints it may stay for an hour.
    """
    names = {chain.name for chain in table.chains}
    aims = {rule.target.chain for chain in table.chains for rule in chain.rules if isinstance(rule.target, Jump)}
    services = any(name.startswith(("KUBE-SVC-", "KUBE-EXT-")) for name in names)
    found: dict[str, bool] = {}
    for chain in table.chains:
        name, last = chain.name, chain.rules[-1] if chain.rules else None
        if name.startswith(SERVICE_PORT_CHAIN_PREFIXES):
            cut = name in aims and not _ends(name, last)
        elif name == POSTROUTING:
            cut = last is None or not isinstance(last.target, MasqueradeTarget)
        elif table.name == "nat" and name == SERVICES:
            cut = services and last is None
        elif name == FORWARD:
            cut = not _forwards(chain)
        elif name == PROXY_FIREWALL:
            # A nat table that was made to be opened has none of its chains.
            there = () if nat is None or nat.chain(SERVICES) is None else nat.chains
            balanced = any(each.name.startswith("KUBE-FW-") for each in there) if there else FORWARD in found
            cut = last is None and balanced
        else:
            cut = name == MARK_MASQ and last is None and (name in aims or services)
        if cut:
            found[name] = name == FORWARD
    if table.name == "nat" and SERVICES in names:
        found |= _leaders(table, aims)
    if _is_proxied(table, alone=False) and not unled(table) and not any(map(_IPVS_CHAIN.fullmatch, names)):
        found |= dict.fromkeys((name for name in _ALWAYS.get(table.name, ()) if name not in names), True)
    return dict(sorted(found.items()))


def _leaders(table: Table, aims: set[str]) -> dict[str, bool]:
    """The chains of kube-proxy's nat that lack what leads to others of its chains."""
    found: dict[str, bool] = {}
    chains = {chain.name: chain for chain in table.chains}
    nodeports = chains.get(NODEPORTS)
    if nodeports is not None and nodeports.rules and NODEPORTS not in aims:
        found[SERVICES] = False
    if sum(name.startswith("KUBE-SEP-") for name in chains) > LARGE_CLUSTER_ENDPOINTS:
        return found
    led = {(rule.destination, rule.target.chain) for rule in chains[SERVICES].rules if isinstance(rule.target, Jump)}
    choices = [chain for chain in table.chains if chain.name.startswith(("KUBE-SVC-", "KUBE-SVL-"))]
    for chain in table.chains:
        if chain.name in aims or not chain.name.startswith(SERVICE_PORT_CHAIN_PREFIXES):
            continue
        if chain.name.startswith("KUBE-SEP-"):
            owners = _service_ports(chain)
            leading = [each.name for each in choices if owners & _service_ports(each)]
            leading = leading or [each.name for each in choices if not (owners and _service_ports(each))]
            found |= dict.fromkeys(leading or [SERVICES], True)
        else:
            found.setdefault(SERVICES, False)
            if chain.name.startswith("KUBE-EXT-") and nodeports is not None:
                found.setdefault(NODEPORTS, False)
    for chain in choices:
        if any(rule.destination is not None and (rule.destination, chain.name) not in led for rule in chain.rules):
            found.setdefault(SERVICES, False)
        kept: dict[bool, set[str]] = {True: set(), False: set()}
        for rule in chain.rules:
            if isinstance(rule.target, Jump) and rule.target.chain.startswith("KUBE-SEP-"):
                kept[any(isinstance(match, RecentMatch) for match in rule.matches)].add(rule.target.chain)
        if kept[True] and kept[True] != kept[False]:
            found[chain.name] = True
    return found


def _service_ports(chain: Chain) -> set[str]:
    """The ServicePorts that the comments of a chain of kube-proxy's name first."""
    return {
        match.comment.partition(" ")[0]
        for rule in chain.rules
        for match in rule.matches
        if isinstance(match, CommentMatch)
    }


def _forwards(chain: Chain) -> bool:
    """Whether KUBE-FORWARD has the rules that each version of kube-proxy writes."""
    accepts = [rule for rule in chain.rules if isinstance(rule.target, Verdict) and rule.target.verdict == "ACCEPT"]
    matched = {type(match) for rule in accepts for match in rule.matches}
    return {MarkMatch, ConntrackMatch} <= matched


def _ends(name: str, last: Rule | None) -> bool:
    """Whether a chain of a ServicePort or an endpoint has the rule that kube-proxy always writes last."""
    if last is None:
        return False
    if name.startswith("KUBE-SEP-"):
        return isinstance(last.target, DnatTarget)
    leads = isinstance(last.target, Jump) and last.target.chain != MARK_MASQ
    if name.startswith("KUBE-EXT-"):
        return leads
    return not name.startswith(("KUBE-SVC-", "KUBE-SVL-")) or (
        leads and not any(isinstance(match, StatisticMatch | RecentMatch) for match in last.matches)
    )


def _native_jumps(host: str, family: Family, native: NftRuleset | None, *, collected: bool) -> Iterator[Unseen]:
    for table in () if native is None else native.tables:
        lost = cut_table(table, collected=collected) if table.family is OWN_TABLES[family] else None
        if lost is not None:
            yield suspect(host, family, *lost)


def cut_table(table: NftTable, *, collected: bool = False) -> tuple[str, str] | None:
    """What kube-proxy's table of nftables mode lacks although kube-proxy always writes it: a way from a base chain to
    its Services, one of its base chains, rules of a chain that is called, or elements (`nft -t` leaves them out): those
    that lead to a Service's chain, or the node's addresses. Returns what that is, and why; None if it lacks nothing, or
    is another table.

    Args:
        collected: see `signs_of`: one element that is missing among others is missing on the node.

    A chain of a Service that is gone stays for a while, empty (kube-proxy v1.36, pkg/proxy/nftables/proxier.go).
    """
    from kproxy.netfilter.nftables.references import chains_of_elements, references_of  # most hosts need none of it

    chains = {chain.name: chain for chain in table.chains}
    own = {name for name in chains if "/" in name}  # those of ServicePorts and endpoints
    if table.name != _NFT_TABLE or "dormant" in table.flags:
        return None
    left = [chain.name for chain in table.chains if chain.base is not None]
    found: set[str] = set()
    while left:
        name = left.pop()
        if name not in found and name in chains:
            found.add(name)
            left += [other for rule in chains[name].rules for other in references_of(rule).chains]
    if SERVICES_CHAIN in chains and chains[SERVICES_CHAIN].rules and SERVICES_CHAIN not in found:
        why = (
            f"the rules name addresses, but nothing leads to them: no base chain of table {table.name} leads to its "
            "chain services"
        )
        return BASE_CHAIN_JUMPS, why
    for name in (*JUMPS, SERVICES_CHAIN, MASQUERADING) if own else ():
        if name not in chains or not chains[name].rules:
            return NFTABLES, f"table {table.name} has no rules in its chain {name}, and kube-proxy always writes some"
        if name in JUMPS and chains[name].base is None:
            return NFTABLES, f"chain {name} of table {table.name} is at no hook, where kube-proxy always puts it"
        there = {other for rule in chains[name].rules for other in references_of(rule).chains}
        for jump in JUMPS.get(name, ()):
            if (lost := jump.text.rpartition(" ")[2]) not in there:
                return NFTABLES, f"chain {name} of table {table.name} lacks kube-proxy's jump to {lost}"
    elements = {item.name: item.elements for item in table.sets}
    called = {name for each in elements.values() for name in chains_of_elements(each)}
    whole = collected and bool(called)
    for name in (SERVICE_IPS, SERVICE_NODEPORTS) if own else ():
        if name not in {other for rule in chains[SERVICES_CHAIN].rules for other in references_of(rule).sets}:
            return NFTABLES, f"chain {SERVICES_CHAIN} of table {table.name} lacks kube-proxy's rule of its map {name}"
    if CLUSTER_IPS in elements and not collected and (lost := _lost_cluster_ip(elements)):
        return NFTABLES, f"table {table.name}: {lost}"
    called |= {name for chain in table.chains for rule in chain.rules for name in references_of(rule).chains}
    for name, chain in sorted(chains.items()):
        if name in called and not chain.rules:
            return NFTABLES, f"table {table.name} leads to chain {name}, which has no rules"
        if name in called and name in own and not _leads_on(chain.rules[-1]):
            return NFTABLES, f"chain {name} of table {table.name} lacks the rule that kube-proxy always writes last"
        if name not in called and chain.rules and name in own and not whole:
            return (
                NFTABLES,
                f"nothing in table {table.name} leads to its chain {name}: elements of its maps are missing",
            )
    if NODEPORT_IPS in elements and not any(elements.values()):
        return NFTABLES, f"no set or map of table {table.name} has elements, and kube-proxy always writes some"
    return None


def _leads_on(rule: NftRule) -> bool:
    """Whether a rule of a ServicePort's or an endpoint's chain decides what becomes of packets, and not only of clients
    that a set remembers."""
    from kproxy.netfilter.nftables.references import references_of
    from kproxy.netfilter.nftables.statement import Nat, VerdictMap
    from kproxy.netfilter.nftables.value import Verdict as NftVerdict

    decides = any(isinstance(part, Nat | NftVerdict | VerdictMap) for part in rule.statements)
    return decides and not references_of(rule).sets


def _lost_cluster_ip(elements: Mapping[str, Elements]) -> str:
    """Which ClusterIP the set of them names and no map, or that it names none; "" for neither."""
    mapped = {
        each.key[0]
        for name in (SERVICE_IPS, NO_ENDPOINT_SERVICES)
        for each in elements.get(name, ())
        if isinstance(each.key, tuple)
    }
    named = [each.key for each in elements[CLUSTER_IPS] if isinstance(each.key, int)]
    if mapped and not named:
        return f"set {CLUSTER_IPS} has no elements, and kube-proxy always writes some"
    lost = next((each for each in named if each not in mapped), None)
    return "" if lost is None else f"set {CLUSTER_IPS} has an address of which its maps have no element"


def set_names(ruleset: Ruleset) -> tuple[str, ...]:
    """The ipsets that rules name, each once."""
    found: dict[str, None] = {}
    for _, _, _, rule in ruleset.rules():
        for match in rule.matches:
            if isinstance(match, SetMatch):
                found[match.match_set.value.name] = None
        if isinstance(rule.target, SetTarget):
            found |= {each.name: None for each in (rule.target.add_set, rule.target.del_set) if each is not None}
    return tuple(found)


def restores_connection_marks(rules: Rules, family: Family) -> bool:
    """Whether rules that packets of a family meet make the connection's mark the packet's."""
    for held in rules.given(family):
        if any(
            isinstance(r.target, ConnmarkTarget) and r.target.copy == "restore" for _, _, _, r in held.ruleset.rules()
        ):
            return True
    return rules.nftables is not None and _native_restores(rules.nftables, family)


def _native_restores(native: NftRuleset, family: Family) -> bool:
    from kproxy.netfilter.nftables.expression import Ct
    from kproxy.netfilter.nftables.references import walk
    from kproxy.netfilter.nftables.statement import Mangle

    return any(
        isinstance(part, Mangle) and any(isinstance(each, Ct) and each.key == "mark" for each in walk(part.value))
        for table in native.tables
        if table.family in TABLE_FAMILIES[family]
        for chain in table.chains
        for rule in chain.rules
        for part in rule.statements
    )


def _ipvs(host: str, family: Family, ruleset: Ruleset) -> Iterator[Unseen]:
    """What kube-proxy in IPVS mode leaves in iptables, and what else asks IPVS."""
    sets = next((name for name in set_names(ruleset) if _IPVS_SET.fullmatch(name)), "")
    chain = next(
        (chain.name for table in ruleset.tables for chain in table.chains if _IPVS_CHAIN.fullmatch(chain.name)), ""
    )
    asks = any(
        isinstance(match, OpaqueMatch) and match.name == "ipvs"
        for _, _, _, rule in ruleset.rules()
        for match in rule.matches
    )
    if sets or chain or asks:
        sign = f"set {sets}" if sets else f"chain {chain}" if chain else "-m ipvs"
        yield ipvs(host, family, f"the rules have {sign}, as on a node whose kube-proxy is in IPVS mode")


def ipvs(host: str, family: Family | None, sign: str) -> Unseen:
    """IPVS, of which there is a sign."""
    return suspect(host, family, IPVS, f"{sign}; its virtual servers are not modelled")


def ipvs_of_devices(host: str, names: Iterable[str] | None) -> tuple[Unseen, ...]:
    """IPVS, if the host has the device to which kube-proxy gives the Services' addresses."""
    return (ipvs(host, None, f"the host has the device {_IPVS_DEVICE}"),) if _IPVS_DEVICE in (names or ()) else ()


def ipvs_of_mode(host: str, mode: str) -> tuple[Unseen, ...]:
    """IPVS, if kube-proxy's configuration asks for that mode."""
    return (ipvs(host, None, "kube-proxy's configuration has mode: ipvs"),) if mode == MODE_IPVS else ()
