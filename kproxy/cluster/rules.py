"""A host's rules from files: each recognised by its content, and all of them together as what a packet meets.

A file is what iptables-save, ip6tables-save or `nft list ruleset` printed, or a script for `nft -f`; or the virtual
servers of IPVS, as ipvsadm and /proc/net/ip_vs show them. A host has at most
one rule set of each variant of iptables in each family, and one of native nftables. `nft list ruleset` shows
iptables-nft's tables, too, but not all of what their rules say: for these the dump of iptables-save counts, and
without one the files are refused. Variant and family of a dump are told by the comment that iptables-save writes, and
the family by addresses, too; of a dump without them the file's name may tell: `legacy`, `ip6tables`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from kproxy.cluster.evidence.opened import open_rules
from kproxy.cluster.evidence.signs import cut_listing, set_names, signs_of
from kproxy.cluster.evidence.unseen import (
    IPSET,
    IPVS,
    NFTABLES,
    NOTHING,
    VARIANTS,
    Assumed,
    Unseen,
    suspect,
)
from kproxy.cluster.inputs import read_text, text_label
from kproxy.dataplane import DataplaneError, Host, Index, IpSet, Packet, index_ruleset
from kproxy.dataplane.model.check import check_traceable
from kproxy.dataplane.model.ipvs import Ipvs
from kproxy.dataplane.model.pipeline import OWN_TABLES, TABLE_FAMILIES, IptablesRules, unevaluated
from kproxy.dataplane.query.assumptions import (
    NamedAddresses,
    Surroundings,
    named_addresses,
    shows_route_localnet,
    surroundings_of_rules,
)
from kproxy.errors import InputError
from kproxy.netfilter import Family, Ruleset, check_ruleset, line_of_rule, parse_save
from kproxy.netfilter.hooks import IP_HOOKS, Table, Variant
from kproxy.netfilter.ipvs.read import Entry, Listed, is_connections, is_servers, read_connections, read_servers
from kproxy.netfilter.nftables.ruleset import NftRuleset
from kproxy.netfilter.nftables.ruleset import Table as NftTable

if TYPE_CHECKING:
    from kproxy.dataplane.symbolic.host_rules import SideRules

_OBJECTS: Final = "table|chain|rule|set|map|element|flowtable|counter|quota|limit|ct|secmark|synproxy|ruleset"
_NFT: Final = re.compile(
    rf"(?:#!.*nft|table\s|define\s|undefine\s|redefine\s|include\s|(?:add|create|insert|replace|delete|destroy|flush|reset)"
    rf"\s+(?:{_OBJECTS})\b)"
)
_LINE: Final = re.compile(r"^[^\S\n]*[^#\s].*", re.MULTILINE)
_IPSET: Final = re.compile(r"(?:create|add)\s+\S+\s+\S+|Name: \S+$")


class RuleKind(Enum):
    """What a text is."""

    IPTABLES = "iptables-save"
    NFT = "nft"
    NFT_JSON = "nft -j"
    IPSET = "ipset save"
    IPVS = "ipvsadm"


def recognise(text: str) -> RuleKind | None:
    """What a text is, by its first line that is no comment; None if it is none of these."""
    start = text.removeprefix("\ufeff").lstrip()
    if start.startswith("#!") and "nft" in start.partition("\n")[0]:
        return RuleKind.NFT
    words = _first_line(start)[1].strip()
    if words.startswith(("{", "[")) and not re.match(r"\[\d+:\d+\]", words):
        return RuleKind.NFT_JSON
    if words.startswith("*"):
        return RuleKind.IPTABLES
    if is_servers(words) or is_connections(words):
        return RuleKind.IPVS
    if _NFT.match(words):
        return RuleKind.NFT
    return RuleKind.IPSET if _IPSET.match(words) else None


def _first_line(text: str) -> tuple[int, str]:
    """The first line that is no comment, with its number; "" if there is none."""
    match = _LINE.search(text)
    return (1, "") if match is None else (text.count("\n", 0, match.start()) + 1, match[0])


@dataclass(frozen=True, slots=True)
class RuleFile:
    """The rules of one file: of iptables, of nftables, or virtual servers of IPVS, or connections of those. `text` is
    kept for the lines that messages name."""

    label: str
    text: str
    iptables: IptablesRules | None = None
    nftables: NftRuleset | None = None
    ipvs: Listed | None = None
    connections: Sequence[Entry] = ()


def read_rule_file(text: str, label: str, source: str = "") -> RuleFile:
    """Read the rules of a file.

    Args:
        label: what messages call it. source: the same, for the readers' messages.

    Raises:
        InputError: it is none of the kinds, or cannot be read.
    """
    source = source or label
    kind = recognise(text)
    if kind is RuleKind.NFT_JSON:
        raise InputError(f"{label}: what nft list ruleset prints expected, not the JSON of nft -j")
    if kind is RuleKind.NFT:
        from kproxy.netfilter.nftables.text import parse_nft  # costs as much as all that iptables needs

        return RuleFile(label, text, nftables=_checked_nft(parse_nft(text, source), label))
    if kind is RuleKind.IPSET:
        raise InputError(f"{label}: rules expected, not what ipset save prints (kproxy trace takes that beside a dump)")
    if kind is RuleKind.IPVS and is_connections(text):
        return RuleFile(label, text, connections=read_connections(text, source))
    if kind is RuleKind.IPVS:
        return RuleFile(label, text, ipvs=read_servers(text, source))
    number, line = _first_line(text)
    if kind is None and line:
        expected = "what iptables-save (*TABLE), nft list ruleset (table FAMILY NAME) or ipvsadm prints expected"
        raise InputError(f"{source}: line {number}: {expected}: {line[:80]!r}")
    ruleset = parse_save(text, source)
    rules = IptablesRules.of(ruleset)
    name = label.rpartition("/")[2]
    if rules.variant is None and "legacy" in name:
        rules = IptablesRules(ruleset, Variant.LEGACY)
    if ruleset.family is None and "ip6tables" in name:
        rules = IptablesRules(parse_save(text, source, family=Family.IPV6), rules.variant)
    return RuleFile(label, text, iptables=rules)


def _checked_nft(ruleset: NftRuleset, label: str) -> NftRuleset:
    from kproxy.netfilter.nftables.check import check_nft

    problems = check_nft(ruleset)
    if problems:
        raise InputError("\n".join(f"{label}: {problem}" for problem in problems))
    return ruleset


def _check_iptables(ruleset: Ruleset, label: str, text: str, *, alone: bool) -> None:
    """Refuses rules through which no packet can be traced, and names every problem with its line of the dump."""
    try:
        check_traceable(ruleset, alone=alone)
    except DataplaneError as error:
        lines = {str(each): line_of_rule(text, each.table, each.chain, each.rule) for each in check_ruleset(ruleset)}
        located = [(problem, lines.get(problem)) for problem in str(error).splitlines()]
        message = "\n".join(f"{label}: {f'line {line}: ' if line else ''}{problem}" for problem, line in located)
        raise InputError(message) from error


_RULES: Final = partial(read_text, rules=True)


def read_dumps(paths: Sequence[str], read: Callable[[str], str] = _RULES) -> tuple[list[RuleFile], dict[str, IpSet]]:
    """The dumps of one host: its rules, and beside them what ipset save printed. `read` gives a file's text.

    Raises:
        InputError: one cannot be read.
    """
    files: list[RuleFile] = []
    sets: dict[str, IpSet] = {}
    for path in paths:
        text = read(path)
        if len(paths) > 1 and recognise(text) is RuleKind.IPSET:
            sets |= read_ipsets(text, text_label(path))
        else:
            files.append(read_rule_file(text, text_label(path), path))
    return files, sets


class HostRules:
    """All rules of a host as they were read: files with their labels, of both families, checked against one another.

    The engines get them family by family: `index` for one packet, `symbolic.host_rules.SideRules` for all packets.
    `unseen` is what the files point to and do not show: the engines leave open what that may change.

    Args:
        live, collected: see `evidence.signs.signs_of`. Rules that kproxy rendered count as live: they are all there is.
        assumed: what `--assume` says of unseen things. sets: the ipsets whose members are known, or their
            names.
        more: what something else than the rules points to.
        host: what to call the host; its files if not given.

    Raises:
        InputError: two files hold the rules of one variant and family, or native nftables twice; a file has no rules.
    """

    def __init__(
        self,
        files: Sequence[RuleFile],
        *,
        live: bool = False,
        collected: bool = False,
        assumed: Assumed = NOTHING,
        sets: Mapping[str, IpSet] | Collection[str] = (),
        more: Sequence[Unseen] = (),
        host: str = "",
    ) -> None:
        self.files = tuple(files)
        self.label = ", ".join(each.label for each in files)
        self.hidden: list[tuple[Family, str]] = []
        self._indexes: dict[Family, Index] = {}
        self._servers: dict[Family, Ipvs] = {}
        self._live, self._collected, self._host = live, collected, host
        self._assumed, self._sets, self._more = assumed, frozenset(sets), tuple(more)
        self._members = sets if isinstance(sets, Mapping) else {}
        for each in files:
            if each.iptables is not None:
                _check_iptables(each.iptables.ruleset, each.label, each.text, alone=len(files) == 1)
        self._check_pairs()
        native = [each for each in files if each.nftables is not None]
        if len(native) > 1:
            raise InputError(f"{native[0].label} and {native[1].label} are both rules of nftables: one file expected")
        self.nftables = self._native(native[0]) if native else None
        if self.nftables is not None and len(files) == 1 and not self.nftables.has_effect:
            raise InputError(f"{self.label}: no rules")

    @property
    def host(self) -> str:
        """What `unseen` calls the host."""
        return self._host or self.label

    @property
    def rulesets(self) -> tuple[Ruleset, ...]:
        """The rule sets of iptables."""
        return tuple(each.iptables.ruleset for each in self.files if each.iptables is not None)

    def iptables(self, family: Family) -> tuple[IptablesRules, ...]:
        """The rules of iptables that packets of a family meet: not those of dormant tables, which nft alone shows."""
        asleep, found = self._asleep(family), self.given(family)
        return tuple(_without(rules, asleep) for rules in found) if asleep else found

    def _asleep(self, family: Family) -> set[str]:
        tables = () if self.nftables is None else self.nftables.tables
        return {
            table.name
            for table in tables
            if table.family is OWN_TABLES[family] and table.managed_by is not None and "dormant" in table.flags
        }

    def given(self, family: Family) -> tuple[IptablesRules, ...]:
        """All rules of iptables for a family."""
        found = [each.iptables for each in self.files if each.iptables is not None]
        exact = [rules for rules in found if rules.ruleset.family is family]
        taken = {rules.variant for rules in exact}
        found = exact + [rules for rules in found if rules.ruleset.family is None and rules.variant not in taken]
        if len(found) == 2 and None in (found[0].variant, found[1].variant):
            known = found[0].variant or found[1].variant
            other = known.other if known is not None else Variant.NFT
            found = [dataclasses.replace(rules, variant=rules.variant or other) for rules in found]
        return tuple(found)

    def tells(self, family: Family) -> bool:
        """Whether the files say anything of the rules that packets of a family meet."""
        return bool(self.given(family)) or self.nftables is not None

    def has_file_of(self, family: Family) -> bool:
        """Whether a file holds a family's rules of iptables alone."""
        return any(ruleset.family is family for ruleset in self.rulesets)

    def no_file_of(self, family: Family, why: str) -> Unseen:
        """A family's rules, of which there is no file."""
        found = (VARIANTS[each.iptables.variant or Variant.NFT] for each in self.files if each.iptables is not None)
        return suspect(self.host, family, next(found, NFTABLES), why)

    @cached_property
    def named(self) -> NamedAddresses:
        """The addresses that kube-proxy's rules and virtual servers give away."""
        return named_addresses(self.rulesets, self.nftables, filter(None, map(self.ipvs, Family)))

    def surroundings(self, packet: Packet, sets: Mapping[str, IpSet] = MappingProxyType({})) -> Surroundings:
        """What a packet meets on the host beside its rules, as far as they tell; `sets` are ipsets that are known."""
        localnet = any(map(shows_route_localnet, self.rulesets))
        found = surroundings_of_rules(self.named, packet, route_localnet=localnet)
        hosts = tuple(with_sets(each, sets) for each in found.fitting)
        return dataclasses.replace(found, host=with_sets(found.host, sets), fitting=hosts)

    def index(self, family: Family) -> Index:
        """The rules that packets of a family meet. Raises InputError: there are none."""
        if family not in self._indexes:
            self._indexes[family] = self._index(family)
        return self._indexes[family]

    def _index(self, family: Family) -> Index:
        iptables = open_rules(self.iptables(family), family, self.unseen_by_packet, self.nftables)
        native, servers = self.nftables, self.ipvs(family)
        there = native is not None and any(
            table.family in TABLE_FAMILIES[family] and table.chains for table in native.tables
        )
        if not iptables and not there and servers is None:
            known = {rules.family for rules in self.rulesets} | _families(native)
            names = " and ".join(sorted(each.value for each in known if each is not None)) or "neither IPv4 nor IPv6"
            raise InputError(f"{self.label}: these are rules of {names}, and the packet is one of {family.value}")
        return index_ruleset(iptables, nftables=native if there else None, family=family, ipvs=servers)

    @cached_property
    def unseen(self) -> tuple[Unseen, ...]:
        """What was not seen of the host's rules, in both families, but for what is assumed. IPVS is among it whenever
        there is a sign of it, for who has the rules alone; `side` and `index` have virtual servers, too."""
        known = {f"{IPSET} {name}" for name in self._sets}
        found = [*signs_of(self, live=self._live, collected=self._collected), *self._more]
        for family in Family:
            if self.ipvs(family) is None:
                continue
            found.append(suspect(self.host, family, IPVS, "there are virtual servers"))
            if not self.given(family):
                why = "there are virtual servers, and no dump of the rules of iptables beside them"
                found.append(suspect(self.host, family, VARIANTS[Variant.NFT], why))
        return self._assumed.left(each for each in found if each.what not in known)

    @cached_property
    def unseen_by_packet(self) -> tuple[Unseen, ...]:
        """The same for questions about one packet, which goes through the virtual servers that were seen."""
        listed = [each.ipvs for each in self.files if each.ipvs is not None]
        found = [each for each in self.unseen if not listed or each.what != IPVS]
        if any(each.by_mark for each in listed):
            found.append(suspect(self.host, None, IPVS, "there are virtual servers of firewall marks"))
        for family in Family if listed and not self._live else ():
            named = {name for rules in self.given(family) for name in set_names(rules.ruleset)}
            asked = {name: each for name, each in self._members.items() if name in named}
            if lost := cut_listing(family, self.ipvs(family) or Ipvs(family, {}), asked):
                found.append(suspect(self.host, family, IPVS, lost))
        return self._assumed.left(found)

    def unseen_by_side(self, family: Family) -> tuple[Unseen, ...]:
        """The same for comparisons of all packets, by `side`."""
        whole = self.ipvs(family) is None or self._served(family) is not None
        found = self.unseen_by_packet if whole else self.unseen
        return tuple(each for each in found if each.is_met_by(family))

    def side(self, family: Family) -> SideRules:
        """The rules that packets of a family meet, for comparisons; what was not seen is not opened there."""
        from kproxy.dataplane.symbolic.host_rules import SideRules  # questions about one packet do without

        native, own = self.nftables or NftRuleset(), self._served(family)
        servers = None if own is None else self.ipvs(family)
        return SideRules(self.iptables(family), native, servers, own or frozenset(), self._members)

    def _served(self, family: Family) -> frozenset[int] | None:
        """The addresses that the host has for virtual servers, by kube-proxy's set of them; None if it is not known."""
        names = ("KUBE-IPVS-IPS", "KUBE-6-IPVS-IPS")
        found = self._members.get(names[family is Family.IPV6])
        servers = self.ipvs(family)
        if found is None or servers is None:
            return None
        addresses = {address for _, address, _ in servers.services}
        return frozenset(each for each in addresses if found.contains(family, (each,)))

    def ipvs(self, family: Family) -> Ipvs | None:
        """The virtual servers of a family; None if there are none, or no file shows them."""
        if family not in self._servers:
            listed = {key: real for each in self.files if each.ipvs for key, real in each.ipvs.servers.items()}
            known = (entry for each in self.files for entry in each.connections)
            self._servers[family] = Ipvs(family, listed, known)
        found = self._servers[family]
        return found if found.services else None

    @property
    def texts(self) -> Iterator[tuple[str, Family | None, bool]]:
        """Each file's text, its family, and whether it is iptables'."""
        for each in self.files:
            yield each.text, None if each.iptables is None else each.iptables.ruleset.family, each.iptables is not None

    def assumptions(self) -> tuple[str, ...]:
        """What is not evaluated, as sentences."""
        found = [
            f"no packet meets iptables-nft's table {table} of {family.value}: it is dormant"
            for family in Family
            for table in sorted(self._asleep(family))
        ]
        if self.nftables is not None:
            found += [f"not evaluated: {chain}" for chain in unevaluated(self.nftables)]
        return tuple(found)

    def _check_pairs(self) -> None:
        seen: dict[tuple[Family | None, Variant | None], str] = {}
        for each in self.files:
            if each.iptables is None:
                continue
            key = (each.iptables.ruleset.family, each.iptables.variant)
            if key in seen:
                what = f"{each.iptables.source} for {key[0].value}" if key[0] is not None else each.iptables.source
                raise InputError(f"{seen[key]} and {each.label} are both rules of {what}: one file expected")
            seen[key] = each.label

    def _native(self, file: RuleFile) -> NftRuleset:
        """nftables' rules with iptables-nft's tables marked as such."""
        tables = []
        for table in file.nftables.tables if file.nftables is not None else ():
            family = next((key for key, value in OWN_TABLES.items() if value is table.family), None)
            given = family is not None and any(rules.variant in (None, Variant.NFT) for rules in self.given(family))
            if family is not None and (_is_managed(table) or (given and _is_builtin(table))):
                if not given and "dormant" not in table.flags and any(chain.rules for chain in table.chains):
                    self.hidden.append((family, table.name))
                table = dataclasses.replace(table, managed_by="iptables-nft")
            tables.append(table)
        return NftRuleset(tuple(tables))


def with_sets(host: Host, sets: Mapping[str, IpSet]) -> Host:
    """The host with the contents of more ipsets."""
    return dataclasses.replace(host, sets=MappingProxyType({**host.sets, **sets})) if sets else host


def _without(rules: IptablesRules, asleep: Collection[str]) -> IptablesRules:
    """Without these tables, which are not legacy ones."""
    if rules.variant is Variant.LEGACY:
        return rules
    tables = tuple(table for table in rules.ruleset.tables if table.name not in asleep)
    return dataclasses.replace(rules, ruleset=dataclasses.replace(rules.ruleset, tables=tables))


def _families(native: NftRuleset | None) -> set[Family | None]:
    tables = () if native is None else native.tables
    return {family for family, name in OWN_TABLES.items() for table in tables if table.family is name}


def _is_managed(table: NftTable) -> bool:
    """Whether iptables-nft wrote the table: nft says so, or shows matches of iptables; or it is one of iptables' tables
    and every rule counts, as iptables' rules do, which nft shows in its own words where it can."""
    from kproxy.netfilter.nftables.stateful import Counter
    from kproxy.netfilter.nftables.statement import Xt

    if table.managed_by is not None:
        return True
    rules = [rule.statements for chain in table.chains for rule in chain.rules]
    if any(isinstance(part, Xt) for statements in rules for part in statements):
        return True
    counted = all(any(isinstance(part, Counter) for part in statements) for statements in rules)
    return bool(rules) and counted and _is_builtin(table) and any(chain.base is not None for chain in table.chains)


def _is_builtin(table: NftTable) -> bool:
    """Whether it may be one of iptables' tables: named so, with base chains named as iptables names them."""
    names = {hook.value for hook in IP_HOOKS}
    return table.name in set(Table) and all(chain.name in names for chain in table.chains if chain.base is not None)


_LISTED: Final = (
    "Name", "Type", "Revision", "Header", "Size in memory", "References", "Number of entries",
)  # fmt: skip
"""What `ipset list` tells of a set above its members."""

_IPSET_OPTIONS: Final = re.compile(
    r"(?: (?:family|hashsize|maxelem|bucketsize|initval|netmask|bitmask|markmask|timeout|range|size) \S+"
    r"| (?:counters|comment|skbinfo|forceadd))*"
)
"""The options of a set, those with values first, as ipset(8) has them."""


def read_ipsets(text: str, label: str) -> dict[str, IpSet]:
    """Read what `ipset save` prints, or `ipset list`. Sets of types that are not interpreted, and those that are listed
    without members (`-t`), are left out: their content stays unknown. Raises InputError: a line is none that `ipset
    save` prints, or an element does not fit its set."""
    kinds: dict[str, tuple[str, Family | None]] = {}
    entries: dict[str, dict[int, str]] = {}
    lines = _listed_sets(text) if text.lstrip().startswith("Name: ") else enumerate(text.splitlines(), 1)
    for number, line in lines:
        words = line.split()
        if not words or words[0].startswith("#") or words[0] == "COMMIT":
            continue
        if len(words) < 3 or words[0] not in ("create", "add") or (words[0] == "add" and words[1] not in kinds):
            raise InputError(f"{label}: line {number}: what ipset save prints expected, not {line[:200]!r}")
        _, name, what, *options = words
        if words[0] == "add":
            entries[name][number] = " ".join([what, *(word for word in options if word == "nomatch")])
            continue
        if not _IPSET_OPTIONS.fullmatch("".join(f" {word}" for word in options)):
            raise InputError(f"{label}: line {number}: the options of a set expected, not {' '.join(options)!r}")
        kinds[name] = what, Family.IPV6 if "inet6" in options else Family.IPV4 if what.startswith("hash:") else None
        entries[name] = {}
    return {
        name: _ipset(kind, entries[name], family, label, name)
        for name, (kind, family) in kinds.items()
        if re.fullmatch(r"(hash|bitmap):(ip|net|port)(,(ip|net|port))*", kind)
    }


def _listed_sets(text: str) -> Iterator[tuple[int, str]]:
    """The lines of `ipset list`, numbered, as `ipset save` would print them."""
    said: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, colon, value = line.partition(": ")
        if name == "Name" and colon:
            said = {}
        if "Members" in said:
            if line.strip():
                yield number, f"add {said['Name']} {line}"
        elif line.strip() == "Members:" and {"Name", "Type"} <= said.keys():
            said["Members"] = ""
            yield number, f"create {said['Name']} {said['Type']} {said.get('Header', '')}"
        elif colon and name in _LISTED:
            said[name] = value.strip()
        elif line.strip():
            yield number, line


def _ipset(kind: str, entries: Mapping[int, str], family: Family | None, label: str, name: str) -> IpSet:
    """A set with its entries, by the lines that they are in."""
    try:
        return IpSet.parse(kind, entries.values(), family)
    except DataplaneError as error:
        for number in entries if len(entries) > 1 else ():
            _ipset(kind, {number: entries[number]}, family, label, name)
        raise InputError(f"{label}: line {min(entries)}: set {name}: {error}") from error
