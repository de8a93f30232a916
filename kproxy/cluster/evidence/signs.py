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
from kproxy.cluster.evidence import unseen
from kproxy.cluster.evidence.unseen import NFTABLES, VARIANTS, Unseen, not_looked_at, suspect
from kproxy.dataplane.model.pipeline import OWN_TABLES, TABLE_FAMILIES, IptablesRules
from kproxy.netfilter import BUILTIN_CHAINS, Family, Ruleset
from kproxy.netfilter.address import format_address
from kproxy.netfilter.hooks import Variant
from kproxy.netfilter.iptables import matches, targets
from kproxy.netfilter.iptables.rule import Rule
from kproxy.netfilter.iptables.ruleset import Chain, Table
from kproxy.render.iptables import chains as kube
from kproxy.render.iptables.base import BASE_CHAINS, JUMP_RULES, JumpRule
from kproxy.render.iptables.chains import SERVICE_PORT_CHAIN_PREFIXES
from kproxy.render.iptables.renderer import LARGE_CLUSTER_ENDPOINTS
from kproxy.render.nftables import names
from kproxy.render.nftables.base import JUMPS

if TYPE_CHECKING:
    from kproxy.dataplane.model.ipset import IpSet
    from kproxy.dataplane.model.ipvs import Ipvs
    from kproxy.netfilter.nftables.element import Elements
    from kproxy.netfilter.nftables.references import References
    from kproxy.netfilter.nftables.ruleset import NftRuleset
    from kproxy.netfilter.nftables.ruleset import Rule as NftRule
    from kproxy.netfilter.nftables.ruleset import Table as NftTable

_NAT_CHAINS: Final = (kube.SERVICES, *SERVICE_PORT_CHAIN_PREFIXES)
_FILTER_CHAINS: Final = frozenset(
    {kube.SERVICES, kube.EXTERNAL_SERVICES, kube.FORWARD, kube.NODEPORTS, kube.PROXY_FIREWALL}
)
_ALWAYS: Final = {"filter": (kube.SERVICES, kube.EXTERNAL_SERVICES, kube.FORWARD), "nat": BASE_CHAINS["nat"]}
"""The chains that each version of kube-proxy in iptables mode has."""
_STEADY: Final = frozenset({
    ("nat", kube.SERVICES), ("nat", kube.POSTROUTING), ("filter", kube.SERVICES), ("filter", kube.FORWARD),
})  # fmt: skip
"""The chains to which each version jumps from all built-in chains that v1.36 jumps from."""
_PROXIED: Final = {"nat": ("PREROUTING", "OUTPUT", "POSTROUTING"), "filter": ("INPUT", "FORWARD", "OUTPUT")}
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
    host, found = rules.host, list[Unseen]()
    tables = () if rules.nftables is None else rules.nftables.tables
    for family in Family:
        held = rules.given(family)
        for ruleset in (each.ruleset for each in held):
            found += _ipvs(host, family, ruleset)
            if not live:
                why = "rules ask for its members, and they are not given"
                found += (suspect(host, family, f"{unseen.IPSET} {name}", why) for name in set_names(ruleset))
                whole = collected and _is_whole(ruleset)
                found += (each for each in _tables(host, family, ruleset, whole) if each.suspected or not collected)
                found += () if whole else _jumps(host, family, ruleset)
        if not live:
            cut = (cut_table(table, collected=collected) for table in tables if table.family is OWN_TABLES[family])
            found += (suspect(host, family, *lost) for lost in cut if lost is not None)
            found += _variants(host, family, held, rules)
    alone = len(tables) == 1 and tables[0].name == names.TABLE and not collected  # as `nft list table` prints it
    if not live and (rules.nftables is None or alone):
        found.append(not_looked_at(host, None, NFTABLES))
    return tuple(dict.fromkeys(found))


def _variants(host: str, family: Family, held: Sequence[IptablesRules], rules: Rules) -> Iterator[Unseen]:
    """Variants of iptables that a dump warns of, or that are simply not there."""
    there = {each.variant for each in held}
    warned: dict[str, str] = {}
    hidden = [name for other, name in rules.hidden if other is family]
    if hidden:
        table = f"{OWN_TABLES[family].value} {', '.join(hidden)}"
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
            if iptables and incompatible and incompatible[1] in unseen.TABLES and incompatible[1] not in native:
                warned[unseen.TABLES[incompatible[1]]] = "the dump warns that only nft can show it"
            extension = _NO_EXTENSION.search(line)
            if extension and Variant.NFT not in there:
                warned[VARIANTS[Variant.NFT]] = f"the dump warns that nft could not show {extension[1]}"
    for what, why in warned.items():
        yield suspect(host, family, what, why)
    for variant, name in VARIANTS.items():
        if variant not in there and name not in warned and (None not in there or variant is Variant.LEGACY):
            yield not_looked_at(host, family, name)


def _tables(host: str, family: Family, ruleset: Ruleset, whole: bool) -> Iterator[Unseen]:
    """iptables' tables that the dump does not have, or in which none of kube-proxy's chains are."""
    for name, what in unseen.TABLES.items():
        if sign := "" if whole else _other_half(ruleset, name):
            yield suspect(host, family, what, sign)
        elif ruleset.table(name) is None:
            yield not_looked_at(host, family, what)


def _other_half(ruleset: Ruleset, name: str) -> str:
    """What points to kube-proxy's rules in a table that is missing, or has none of its chains; else ""."""
    other = {"filter": "nat", "nat": "filter"}.get(name, "")
    table, there = ruleset.table(name), ruleset.table(other)
    if there is None or not _is_proxied(there, alone=table is None):
        return ""
    if table is not None and any(chain.name.startswith("KUBE-") for chain in table.chains):
        return ""
    lost = f"no {name} table" if table is None else f"none of its chains in table {name}"
    return f"kube-proxy's {other} chains are here, and {lost}"


def _is_proxied(table: Table, *, alone: bool) -> bool:
    """Whether a table has chains of kube-proxy's; not alone, those of iptables mode, which has them in both tables."""
    there = {chain.name for chain in table.chains}
    if table.name == "filter":
        return bool(there & (_FILTER_CHAINS if alone else {kube.SERVICES, kube.EXTERNAL_SERVICES}))
    return any(name.startswith(_NAT_CHAINS if alone else SERVICE_PORT_CHAIN_PREFIXES) for name in there)


def _is_whole(ruleset: Ruleset) -> bool:
    """Whether a dump has both of kube-proxy's tables with all their built-in chains."""
    return all(ruleset.chain(table, name) is not None for table, chains in _PROXIED.items() for name in chains)


def _aims(chain: Chain) -> list[str]:
    """The chains to which a chain's rules jump."""
    return [rule.target.chain for rule in chain.rules if isinstance(rule.target, targets.Jump)]


def missing_jumps(table: Table) -> tuple[JumpRule, ...]:
    """kube-proxy's jumps that built-in chains lack to chains of its, in a fresh chain's order.

    Of a chain without rules those count that each version of kube-proxy makes, and where nothing leads to it, all. IPVS
    mode makes not all of them (kube-proxy v1.36, pkg/proxy/ipvs/proxier.go): in its tables only those to chains with
    rules that nothing leads to count.
    """
    leads = {source: _leads_to(table, source) for source in BUILTIN_CHAINS.get(table.name, ())}
    reached = set[str]().union(*leads.values())
    ipvs = any(_IPVS_CHAIN.fullmatch(chain.name) for chain in table.chains)
    proxied = not ipvs and table.chain(kube.SERVICES) is not None

    def is_due(jump: JumpRule) -> bool:
        if jump.table != table.name or jump.target in (reached if ipvs else leads[jump.source]):
            return False
        empty = proxied and table.chain(jump.target) is not None and jump.target != kube.FIREWALL
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
    aims = {name for chain in table.chains for name in _aims(chain)}
    return tuple(
        chain.name for chain in table.chains if chain.rules and chain.name not in aims and chain.name not in builtin
    )


def has_rules(table: Table, name: str) -> bool:
    """Whether a chain is there and not empty."""
    chain = table.chain(name)
    return chain is not None and bool(chain.rules)


def _leads_to(table: Table, source: str) -> set[str]:
    """The chains to which a built-in chain leads, but for those that only kube-proxy's first chains lead to."""
    first = {jump.target for jump in JUMP_RULES}
    found: set[str] = set()
    left = [source]
    while left:
        name = left.pop()
        chain = table.chain(name)
        if name not in found and chain is not None:
            found.add(name)
            left += () if name in first else _aims(chain)
    return found


def _jumps(host: str, family: Family, ruleset: Ruleset) -> Iterator[Unseen]:
    for table in ruleset.tables:
        lost, alone = lost_in_words(table), unled(table)
        if lost or alone:
            why = lost or f"chain {alone[0]} of table {table.name} has rules, and no built-in chain jumps there"
            yield suspect(host, family, unseen.BASE_CHAIN_JUMPS, why)
        for name in cut_chains(table, ruleset.table("nat")):
            why = f"it lacks, in table {table.name}, rules that kube-proxy always writes"
            yield suspect(host, family, f"{unseen.CHAIN} {name}", why)


def lost_in_words(table: Table) -> str:
    """Which of kube-proxy's jumps a table lacks, as a sentence's part; "" for none."""
    lost = missing_jumps(table)
    reached = set[str]().union(*(_leads_to(table, source) for source in BUILTIN_CHAINS.get(table.name, ())))
    unreached = next((jump.target for jump in reversed(lost) if jump.target not in reached), "")
    if unreached:
        named, has = "", "is there"
        if has_rules(table, unreached):
            named, has = "the rules name addresses, but nothing leads to them: ", "has rules"
        return f"{named}chain {unreached} of table {table.name} {has}, and no built-in chain jumps there"
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
    there = {chain.name for chain in table.chains}
    aims = {name for chain in table.chains for name in _aims(chain)}
    services = any(name.startswith(("KUBE-SVC-", "KUBE-EXT-")) for name in there)
    found: dict[str, bool] = {}
    for chain in table.chains:
        name, last = chain.name, chain.rules[-1] if chain.rules else None
        if name.startswith(SERVICE_PORT_CHAIN_PREFIXES):
            cut = name in aims and not _ends(name, last)
        elif name == kube.POSTROUTING:
            cut = last is None or not isinstance(last.target, targets.MasqueradeTarget)
        elif table.name == "nat" and name == kube.SERVICES:
            cut = services and last is None
        elif name == kube.FORWARD:
            cut = not _forwards(chain)
        elif name == kube.PROXY_FIREWALL:
            # A nat table that was made to be opened has none of its chains.
            beside = () if nat is None or nat.chain(kube.SERVICES) is None else nat.chains
            balanced = any(each.name.startswith("KUBE-FW-") for each in beside) if beside else kube.FORWARD in found
            cut = last is None and balanced
        else:
            cut = name == kube.MARK_MASQ and last is None and (name in aims or services)
        if cut:
            found[name] = name == kube.FORWARD
    if table.name == "nat" and kube.SERVICES in there:
        found |= _leaders(table, aims)
    if _is_proxied(table, alone=False) and not unled(table) and not any(map(_IPVS_CHAIN.fullmatch, there)):
        found |= dict.fromkeys((name for name in _ALWAYS.get(table.name, ()) if name not in there), True)
    return dict(sorted(found.items()))


def _leaders(table: Table, aims: set[str]) -> dict[str, bool]:
    """The chains of kube-proxy's nat that lack what leads to others of its chains."""
    found: dict[str, bool] = {}
    chains = {chain.name: chain for chain in table.chains}
    nodeports = chains.get(kube.NODEPORTS)
    if nodeports is not None and nodeports.rules and kube.NODEPORTS not in aims:
        found[kube.SERVICES] = False
    if sum(name.startswith("KUBE-SEP-") for name in chains) > LARGE_CLUSTER_ENDPOINTS:
        return found
    led = {
        (rule.destination, rule.target.chain)
        for rule in chains[kube.SERVICES].rules
        if isinstance(rule.target, targets.Jump)
    }
    choices = {chain.name: _service_ports(chain) for chain in table.chains if chain.name.startswith(_CHOICES)}
    for name, chain in chains.items():
        if name in aims or not name.startswith(SERVICE_PORT_CHAIN_PREFIXES):
            continue
        if name.startswith("KUBE-SEP-"):
            owners = _service_ports(chain)
            leading = [each for each, ports in choices.items() if owners & ports]
            leading = leading or [each for each, ports in choices.items() if not (owners and ports)]
            found |= dict.fromkeys(leading or [kube.SERVICES], True)
        else:
            found.setdefault(kube.SERVICES, False)
            if name.startswith("KUBE-EXT-") and nodeports is not None:
                found.setdefault(kube.NODEPORTS, False)
    for name in choices:
        kept: dict[bool, set[str]] = {True: set(), False: set()}
        for rule in chains[name].rules:
            if rule.destination is not None and (rule.destination, name) not in led:
                found.setdefault(kube.SERVICES, False)
            if isinstance(rule.target, targets.Jump) and rule.target.chain.startswith("KUBE-SEP-"):
                kept[any(isinstance(match, matches.RecentMatch) for match in rule.matches)].add(rule.target.chain)
        if kept[True] and kept[True] != kept[False]:
            found[name] = True
    return found


_CHOICES: Final = ("KUBE-SVC-", "KUBE-SVL-")
"""How the chains begin that choose an endpoint."""


def _service_ports(chain: Chain) -> set[str]:
    """The ServicePorts that the comments of a chain of kube-proxy's name first."""
    return {
        match.comment.partition(" ")[0]
        for rule in chain.rules
        for match in rule.matches
        if isinstance(match, matches.CommentMatch)
    }


def _forwards(chain: Chain) -> bool:
    """Whether KUBE-FORWARD has the rules that each version of kube-proxy writes."""
    accepts = [
        each for each in chain.rules if isinstance(each.target, targets.Verdict) and each.target.verdict == "ACCEPT"
    ]
    return {matches.MarkMatch, matches.ConntrackMatch} <= {type(match) for rule in accepts for match in rule.matches}


def _ends(name: str, last: Rule | None) -> bool:
    """Whether a chain of a ServicePort or an endpoint has the rule that kube-proxy always writes last."""
    if last is None or name.startswith("KUBE-SEP-"):
        return last is not None and isinstance(last.target, targets.DnatTarget)
    leads = isinstance(last.target, targets.Jump) and last.target.chain != kube.MARK_MASQ
    if name.startswith(_CHOICES):
        asking = matches.StatisticMatch | matches.RecentMatch
        return leads and not any(isinstance(match, asking) for match in last.matches)
    return leads or not name.startswith("KUBE-EXT-")


def cut_table(table: NftTable, *, collected: bool = False) -> tuple[str, str] | None:
    """What kube-proxy's table of nftables mode lacks although kube-proxy always writes it: a way from a base chain to
    its Services, one of its base chains, rules of a chain that is called, or elements (`nft -t` leaves them out): those
    that lead to a Service's chain, or the node's addresses. Returns what that is, and why; None if it lacks nothing, or
    is another table.

    Args:
        collected: see `signs_of`: one element that is missing among others is missing on the node.

    A chain of a Service that is gone stays for a while, empty (kube-proxy v1.36, pkg/proxy/nftables/proxier.go).
    """
    if table.name != names.TABLE or "dormant" in table.flags:
        return None
    aims = {chain.name: {to for rule in chain.rules for to in _references(rule).chains} for chain in table.chains}
    services = table.chain(names.SERVICES)
    found: set[str] = set()
    left = [chain.name for chain in table.chains if chain.base is not None]
    while left:
        name = left.pop()
        left += aims.get(name, set()) - found
        found.add(name)
    if services is not None and services.rules and names.SERVICES not in found:
        why = "the rules name addresses, but nothing leads to them: no base chain of table"
        return unseen.BASE_CHAIN_JUMPS, f"{why} {table.name} leads to its chain services"
    lost = next(_lost(table, aims, collected), "")
    return (NFTABLES, lost) if lost else None


def _lost(table: NftTable, aims: Mapping[str, set[str]], collected: bool) -> Iterator[str]:
    """What kube-proxy's table lacks, in words. Only the first is asked for: what follows it takes it as there."""
    from kproxy.netfilter.nftables.references import chains_of_elements  # most hosts need none of it

    chains = {chain.name: chain for chain in table.chains}
    own = {name for name in chains if "/" in name}  # those of ServicePorts and endpoints
    for name in (*JUMPS, names.SERVICES, names.MASQUERADING) if own else ():
        if name not in chains or not chains[name].rules:
            yield f"table {table.name} has no rules in its chain {name}, and kube-proxy always writes some"
        if name in JUMPS and chains[name].base is None:
            yield f"chain {name} of table {table.name} is at no hook, where kube-proxy always puts it"
        jumps = [jump.text.rpartition(" ")[2] for jump in JUMPS.get(name, ())]
        yield from (
            f"chain {name} of table {table.name} lacks kube-proxy's jump to {to}"
            for to in jumps
            if to not in aims[name]
        )
    elements = {item.name: item.elements for item in table.sets}
    called = {name for each in elements.values() for name in chains_of_elements(each)}
    whole = collected and bool(called)
    asked = {to for rule in chains[names.SERVICES].rules for to in _references(rule).sets} if own else set()
    for name in (names.SERVICE_IPS, names.SERVICE_NODEPORTS) if own else ():
        if name not in asked:
            yield f"chain {names.SERVICES} of table {table.name} lacks kube-proxy's rule of its map {name}"
    if names.CLUSTER_IPS in elements and not collected and (lost := _lost_cluster_ip(elements)):
        yield f"table {table.name}: {lost}"
    called = called.union(*aims.values())
    for name, chain in sorted(chains.items()):
        if name in called and not chain.rules:
            yield f"table {table.name} leads to chain {name}, which has no rules"
        if name in called and name in own and not _leads_on(chain.rules[-1]):
            yield f"chain {name} of table {table.name} lacks the rule that kube-proxy always writes last"
        if name not in called and chain.rules and name in own and not whole:
            yield f"nothing in table {table.name} leads to its chain {name}: elements of its maps are missing"
    if names.NODEPORT_IPS in elements and not any(elements.values()):
        yield f"no set or map of table {table.name} has elements, and kube-proxy always writes some"


def _references(rule: NftRule) -> References:
    from kproxy.netfilter.nftables.references import references_of  # most hosts need none of it

    return references_of(rule)


def _leads_on(rule: NftRule) -> bool:
    """Whether a rule of a ServicePort's or an endpoint's chain decides what becomes of packets, and not only of clients
    that a set remembers."""
    from kproxy.netfilter.nftables.statement import Nat, VerdictMap
    from kproxy.netfilter.nftables.value import Verdict

    decides = any(isinstance(part, Nat | Verdict | VerdictMap) for part in rule.statements)
    return decides and not _references(rule).sets


def _lost_cluster_ip(elements: Mapping[str, Elements]) -> str:
    """Which ClusterIP the set of them names and no map, or that it names none; "" for neither."""
    maps = (elements.get(name, ()) for name in (names.SERVICE_IPS, names.NO_ENDPOINT_SERVICES))
    mapped = {each.key[0] for some in maps for each in some if isinstance(each.key, tuple)}
    named = {each.key for each in elements[names.CLUSTER_IPS] if isinstance(each.key, int)}
    if mapped and not named:
        return f"set {names.CLUSTER_IPS} has no elements, and kube-proxy always writes some"
    lost = f"set {names.CLUSTER_IPS} has an address of which its maps have no element"
    return "" if named <= mapped else lost


def set_names(ruleset: Ruleset) -> tuple[str, ...]:
    """The ipsets that rules name, each once."""
    found: dict[str, None] = {}
    for _, _, _, rule in ruleset.rules():
        for match in rule.matches:
            if isinstance(match, matches.SetMatch):
                found[match.match_set.value.name] = None
        if isinstance(rule.target, targets.SetTarget):
            found |= {each.name: None for each in (rule.target.add_set, rule.target.del_set) if each is not None}
    return tuple(found)


def restores_connection_marks(rules: Rules, family: Family) -> bool:
    """Whether rules that packets of a family meet make the connection's mark the packet's."""
    aims = (rule.target for held in rules.given(family) for _, _, _, rule in held.ruleset.rules())
    if any(isinstance(each, targets.ConnmarkTarget) and each.copy == "restore" for each in aims):
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
    signs = [f"set {name}" for name in set_names(ruleset) if _IPVS_SET.fullmatch(name)]
    chains = (chain.name for table in ruleset.tables for chain in table.chains)
    signs += [f"chain {name}" for name in chains if _IPVS_CHAIN.fullmatch(name)]
    asked = (match for _, _, _, rule in ruleset.rules() for match in rule.matches)
    signs += ["-m ipvs" for match in asked if isinstance(match, matches.OpaqueMatch) and match.name == "ipvs"]
    if signs:
        yield ipvs(host, family, f"the rules have {signs[0]}, as on a node whose kube-proxy is in IPVS mode")


def cut_listing(family: Family, listed: Ipvs, sets: Mapping[str, IpSet]) -> str:
    """The first member of kube-proxy's sets that no virtual server is for, in words; "" for none. kube-proxy writes
    both, so the listing lacks lines then. Sets of ports alone tell nothing, nor does the set of local endpoints, which
    has endpoints that are not ready.
    """
    there = {(address,) for _, address, _ in listed.services} | {
        (address, port) for _, address, port in listed.services
    }
    for name, found in sets.items():
        of_servers = _IPVS_SET.fullmatch(name) and "LOOP-BACK" not in name and found.dimensions[0] == "ip"
        if of_servers and found.family is family:
            lost = next((each.begins[:2] for each in found.entries if each.begins[:2] not in there), None)
            if lost is not None:
                what = ", port ".join((format_address(lost[0], family), *map(str, lost[1:])))
                return f"set {name} has {what}, and no virtual server was read for it"
    return ""


def ipvs(host: str, family: Family | None, sign: str) -> Unseen:
    """IPVS, of which there is a sign."""
    return suspect(host, family, unseen.IPVS, f"{sign}; ipvsadm -Sn shows its virtual servers")


def ipvs_of_devices(host: str, names: Iterable[str] | None) -> tuple[Unseen, ...]:
    """IPVS, if the host has the device to which kube-proxy gives the Services' addresses."""
    return (ipvs(host, None, f"the host has the device {_IPVS_DEVICE}"),) if _IPVS_DEVICE in (names or ()) else ()


def ipvs_of_mode(host: str, mode: str) -> tuple[Unseen, ...]:
    """IPVS, if kube-proxy's configuration asks for that mode."""
    return (ipvs(host, None, "kube-proxy's configuration has mode: ipvs"),) if mode == MODE_IPVS else ()
