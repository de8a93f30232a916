"""What a snapshot tells of one host. Each part is read when it is first asked for, and once; None is "not known".

Where something is not known it is not made up, save for sysctls: a host without the file is taken to forward, to have
reverse-path filtering off and to show bridged packets to iptables, as Kubernetes' nodes do. `assumptions` says so.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, TypeVar

import msgspec

from kproxy.api.kubeproxyconfig.decode import decode_config
from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES, MODE_IPVS, MODE_NFTABLES
from kproxy.cluster.evidence import unseen
from kproxy.cluster.evidence.opened import open_rules
from kproxy.cluster.evidence.signs import ipvs_of_devices, ipvs_of_mode
from kproxy.cluster.evidence.unseen import NOTHING, Assumed, Unseen, not_looked_at, suspect
from kproxy.cluster.facts.conntrack import parse_flows
from kproxy.cluster.facts.ip import parse_interfaces, parse_routes, parse_rules, with_family
from kproxy.cluster.facts.kubeproxy import parse_health, parse_metrics, parse_version
from kproxy.cluster.facts.links import parse_fdb, parse_learned, parse_links, parse_neighbours
from kproxy.cluster.facts.recent import parse_lists
from kproxy.cluster.inputs import check_rule_size
from kproxy.cluster.rules import HostRules, RuleFile, read_ipsets, read_rule_file
from kproxy.cluster.snapshot import layout
from kproxy.cluster.snapshot.files import Files
from kproxy.cluster.snapshot.info import Failure
from kproxy.dataplane import DataplaneError, Host, Index, index_ruleset
from kproxy.dataplane.model.host import RoutingRule, local_addresses_of
from kproxy.dataplane.model.packet import parse_ip
from kproxy.dataplane.query.assumptions import named_addresses
from kproxy.errors import InputError
from kproxy.netfilter import Family, parse_save
from kproxy.netfilter.address import format_address
from kproxy.netfilter.hooks import Variant
from kproxy.netfilter.ipvs.read import read_connections, read_servers
from kproxy.render.iptables.chains import SERVICES
from kproxy.render.nftables.names import TABLE

T = TypeVar("T")
Entries = Sequence[Mapping[str, Any]]

_SYSCTL: Final = re.compile(r"([\w./-]+)\s*=\s*(-?\d+)\s*$")
_BLANK: Final = re.compile(r"\s*")
_BROKEN: Final = (KeyError, ValueError, TypeError, AttributeError, DataplaneError)
_NO_WAYS: Final = (layout.CONNTRACK, layout.CONFIGZ, layout.HEALTHZ, layout.METRICS, layout.VERSION)
"""What no way of a packet depends on, and only nodes have."""
_THEN: Final = {
    layout.ADDRESSES: "its links, and addresses other than its Node's, are unknown",
    layout.ROUTES: "packets are taken to go where the objects say",
    layout.ROUTING_RULES: "taken to be the plain ones",
    layout.NEIGHBOURS: "tunnels' neighbours are unknown",
    layout.FDB: "tunnels' endpoints are unknown",
    layout.SYSCTLS: "taken to forward, without reverse-path filter",
    layout.CONNTRACK: "stale entries are not found",
    layout.CONFIGZ: "its kube-proxy's configuration is unknown",
    layout.HEALTHZ: "its kube-proxy's health is unknown",
    layout.METRICS: "how current its rules are is unknown",
    layout.VERSION: "its kube-proxy's version is unknown",
}
"""What follows where a file is not there."""


class Missing(msgspec.Struct, frozen=True):
    """A part that is not there. `what` is its path in the snapshot, `why` what was said when it was collected, `then`
    what follows."""

    what: str
    why: str = ""
    then: str = ""

    @property
    def decides(self) -> bool:
        """Whether ways of packets depend on it."""
        return not self.what.endswith(_NO_WAYS)

    def __str__(self) -> str:
        return f"{self.what}: missing{f' ({self.why})' if self.why else ''}{f': {self.then}' if self.then else ''}"


def _part(file: str, parse: Callable[[str, str], T]) -> cached_property[T | None]:
    """A part of a host that a file tells, by its text and what messages call it; None if the file is not there. Raises
    InputError."""

    def read(host: HostFacts) -> T | None:
        text, label = host.text(file), host.path(file)
        try:
            return None if text is None else parse(text, label)
        except ValueError as error:
            raise InputError(f"{label}: {error}") from error

    return cached_property(read)


def _entries(file: str, parse: Callable[[Entries], T]) -> cached_property[T | None]:
    """The same of a file of `-json` output. Several arrays in it are one: of each family, say."""

    def read(text: str, label: str) -> T:
        entries: list[Mapping[str, Any]] = []
        try:
            for number, array in enumerate(read_arrays(text, label)):
                entries += with_family(array, Family.IPV6 if number == 1 else Family.IPV4)
            return parse(entries)
        except _BROKEN as error:
            raise ValueError(_where(parse, entries, error)) from error

    return _part(file, read)


class HostFacts:
    """One host: a node, or, in `nodes/` without a Node object, a router or another host beside them.

    Attributes:
        default_mode: kube-proxy's where the host's own configuration is not known; "" if nothing tells it.
    """

    def __init__(
        self, files: Files, name: str, failures: Sequence[Failure] = (), *, assumed: Assumed = NOTHING
    ) -> None:
        self.name = name
        self.has_node = True
        self.default_mode = ""
        self._files = files
        self._failures = tuple(failures)
        self._assumed = assumed
        self._indexes: dict[Family, Index] = {}
        self._present: dict[str, bool] = {}

    def path(self, file: str) -> str:
        """What messages call one of the host's files."""
        return f"{self._files.label}: {layout.host_file(self.name, file)}"

    def text(self, file: str, *, rules: bool = False) -> str | None:
        """A file's text, None if it is not there; octets that are no UTF-8 as lone surrogates, as iptables' comments
        may hold them. Raises InputError: it cannot be read, or is too large for `rules`."""
        data = self._data(file)
        if rules and data is not None:
            check_rule_size(data, self.path(file))
        return None if data is None else data.decode("utf-8", "surrogateescape")

    def _data(self, file: str) -> bytes | None:
        path = layout.host_file(self.name, file)
        if file in _CUT_UNSEEN and any(each.what == path for each in self.errors):
            return None
        return self._files.read(path)

    # --- rules ---

    def rule_texts(self) -> dict[str, str]:
        """The files of rules that say something, by the name that messages call them. Raises InputError."""
        texts = ((name, self.text(name, rules=True)) for name in layout.RULES)
        return {self.path(name): text for name, text in texts if text is not None and _SAYS.search(text)}

    @cached_property
    def host_rules(self) -> HostRules | None:
        """All rules of the host, None if there are none or no files of them; `rules` tells which. Raises InputError:
        they cannot be read; it names file and line."""
        files: list[RuleFile] = []
        for label, text in self.rule_texts().items():
            file = read_rule_file(text, label)
            # Where iptables is the legacy one, iptables-save and iptables-legacy-save show the same.
            repeated = file.iptables is not None and any(each.iptables == file.iptables for each in files)
            if _has_effect(file) and not repeated:
                files.append(file)
        servers = self.ipvs
        if servers is not None and (files or servers.servers):
            known = self.ipvs_connections or ()
            files.append(
                RuleFile(self.path(layout.IPVS), self.text(layout.IPVS) or "", ipvs=servers, connections=known)
            )
        if not files:
            return None
        sets, more = self.ipsets or (), (*ipvs_of_devices(self.name, self.links), *self._rules_of_its_mode())
        return HostRules(files, collected=True, assumed=self._assumed, sets=sets, more=more, host=self.name)

    def _rules_of_its_mode(self) -> Iterator[Unseen]:
        """The rules that its kube-proxy writes, where others are there and theirs is missing, and IPVS, which no file
        shows. Raises InputError."""
        mode = None if self.proxy_config is None else self.proxy_config.mode
        said = {each.what.rpartition("/")[2]: each.message for each in self.errors}
        if (mode or self.default_mode) == MODE_IPVS and not self._there(layout.IPVS):
            why = "its kube-proxy's mode is ipvs, and there is no file of its virtual servers"
            yield suspect(self.name, None, unseen.IPVS, "; ".join([why, *filter(None, [said.get(layout.IPVS)])]))
        else:
            yield from ipvs_of_mode(self.name, mode or self.default_mode)
        if self._there(layout.OLDER_NFT) and not self._there(_NFT):
            why = f"{layout.OLDER_NFT} is of an older kproxy; collect the node again"
            yield suspect(self.name, None, unseen.NFTABLES, why)
        elif mode == MODE_NFTABLES and not self._there(_NFT):
            why = "its kube-proxy's mode is nftables, and there is no file of these rules"
            yield suspect(self.name, None, unseen.NFTABLES, "; ".join([why, *filter(None, [said.get(_NFT)])]))
        for family, start in _SAVES.items() if mode == MODE_IPTABLES else ():
            saves = [name for name in layout.RULES if name.startswith(start)]
            if self.knows_rules(family) and not any(map(self._there, saves)):
                why = "its kube-proxy's mode is iptables, and there is no file of these rules"
                found = [said[name] for name in saves if name in said]
                yield suspect(self.name, family, unseen.VARIANTS[Variant.NFT], "; ".join([why, *found]))

    def rules(self, family: Family) -> Index | None:
        """The rules that packets of a family meet, None if they are not known. Raises InputError."""
        if family not in self._indexes:
            if not self.knows_rules(family):
                return None
            self._indexes[family] = self._index(family)
        return self._indexes[family]

    def _index(self, family: Family) -> Index:
        found = self.host_rules
        if found is None:
            lost = open_rules((), family, self._assumed.left(self._rules_of_its_mode()))
            return index_ruleset(lost, family=family) if lost else no_rules(family)
        try:
            return found.index(family)
        except InputError:  # there are files, and nothing of this family in them
            return no_rules(family)

    def knows_rules(self, family: Family) -> bool:
        """Whether there are files of the rules that packets of a family meet."""
        saves = [name for name in layout.RULES if name.startswith(_SAVES[family])]
        return any(map(self._there, saves)) or self._there(_NFT)

    def file_of_rules(self, family: Family, *, native: bool) -> str:
        """The name of the file in which a family's rules are, or would be: of `native` nftables or of iptables."""
        names = (_NFT,) if native else tuple(name for name in layout.RULES if name.startswith(_SAVES[family]))
        return next(filter(self._there, names), names[0])

    @property
    def shows_kube_proxy(self) -> bool:
        """Whether its files have kube-proxy's configuration, or rules of kube-proxy's. Raises InputError."""
        signs = (SERVICES, f"table ip {TABLE}", f"table ip6 {TABLE}", f'"{TABLE}"')
        texts = (self.text(name) or "" for name in layout.RULES)
        return self._there(layout.CONFIGZ) or any(sign in text for text in texts for sign in signs)

    @cached_property
    def service_addresses(self) -> frozenset[str]:
        """The addresses that kube-proxy's rules name as Services'. Raises InputError."""
        rules = self.host_rules
        named = frozenset[int]() if rules is None else named_addresses(rules.rulesets, rules.nftables).services
        return frozenset(
            format_address(each, Family.IPV4 if each >> Family.IPV4.bits == 0 else Family.IPV6) for each in named
        )

    ipsets = _part(layout.IPSETS, read_ipsets)
    """The contents of ipsets by name."""

    ipvs = _part(layout.IPVS, read_servers)
    """The virtual servers of IPVS."""

    @property
    def served_addresses(self) -> frozenset[tuple[Family, int]]:
        """The addresses of the virtual servers, which kube-proxy gives to the host. Raises InputError."""
        servers = () if self.ipvs is None else self.ipvs.servers
        return frozenset(parse_ip(each.address) for each in servers)

    ipvs_connections = _part(layout.IPVS_CONNECTIONS, read_connections)
    """The connections that IPVS knows."""

    # --- links, addresses, routes ---

    links = _entries(layout.ADDRESSES, parse_links)
    """The links by name."""
    interfaces = _entries(layout.ADDRESSES, parse_interfaces)
    """The interfaces with their addresses, in the order of their numbers."""
    routes = _entries(layout.ROUTES, parse_routes)
    """The routes of all tables but the local one."""
    routing_rules = _entries(layout.ROUTING_RULES, parse_rules)
    """The policy rules that not every host has."""
    neighbours = _entries(layout.NEIGHBOURS, parse_neighbours)
    """MAC addresses by device and IP address, of known neighbours."""
    fdb = _entries(layout.FDB, parse_fdb)
    """Tunnel endpoints by device and MAC address."""
    learned = _entries(layout.FDB, parse_learned)
    """The MAC addresses behind each port of a bridge, as far as the FDB knows them."""
    sysctls = _part(layout.SYSCTLS, lambda text, _label: parse_sysctls(text))
    """Sysctls with whole numbers, by full name."""

    def addresses(self, family: Family) -> tuple[str, ...]:
        """The addresses of its interfaces, loopback's left out; empty if they are not known. Raises InputError."""
        return tuple(
            format_address(own.value, family)
            for item in self.interfaces or ()
            for own in item.addresses
            if own.family is family and not item.is_loopback
        )

    @cached_property
    def lost_routing(self) -> tuple[Unseen, ...]:
        """Routes or policy rules that another file points to, or that a kernel always has. `ip route` without `table
        all` shows one table, and names none. Raises InputError."""
        plain = ("main", "default", "local", "")
        tables = sorted({each.table for each in self.routes or ()}.difference(plain))
        asked = sorted({each.table for each in self.routing_rules or ()}.difference(plain))
        addressed = any(each.addresses for each in self.interfaces or () if not each.is_loopback)
        rules, routes = (self.text(file) for file in (layout.ROUTING_RULES, layout.ROUTES))
        signs = (
            (tables and rules is None, unseen.POLICY_ROUTING,
             f"there are routes of table {', '.join(tables)}, and no file of the rules that lead there"),
            (rules is not None and '"priority"' not in rules, unseen.POLICY_ROUTING,
             f"{layout.ROUTING_RULES} has no rule, and a kernel has some unless they were flushed"),
            (self.routes == () and addressed, unseen.ROUTES,
             f"{layout.ROUTES} has no route, and a host with addresses has some"),
            (asked and routes is not None and '"table"' not in routes, unseen.ROUTES,
             f"rules lead to table {', '.join(asked)}, and the routes are of one table (ip route show table all)"),
        )  # fmt: skip
        return tuple(suspect(self.name, None, what, why) for seen, what, why in signs if seen)[:1]

    @property
    def _policy(self) -> tuple[RoutingRule, ...]:
        """The policy rules, those open that were not seen or lead to routes that were not. Raises InputError."""
        rules = self.routing_rules or ()
        lost = {each.what: each for each in self._assumed.left(self.lost_routing)}
        if unseen.ROUTES in lost:
            known = {"main", *(each.table for each in self.routes or ())}
            return tuple(each if each.table in known else dataclasses.replace(each, table="") for each in rules)
        return (RoutingRule(priority=0, other=lost[unseen.POLICY_ROUTING].why), *rules) if lost else rules

    @cached_property
    def model(self) -> Host:
        """The host as the data-plane model wants it. Raises InputError."""
        plain = Host.simple(None)
        interfaces, recent = self.interfaces, self.text(layout.RECENT)
        return dataclasses.replace(
            plain,
            local_addresses=None if interfaces is None else local_addresses_of(interfaces),
            interfaces=None if interfaces is None else MappingProxyType({item.name: item for item in interfaces}),
            routes=self.routes or None,  # one without any is taken as one whose routes are not known
            rules=self._policy,
            sysctls=plain.sysctls if self.sysctls is None else MappingProxyType(_complete(self.sysctls)),
            sets=MappingProxyType(dict(self.ipsets or {})),
            recent=plain.recent if recent is None else parse_lists(recent),
        )

    # --- state and kube-proxy ---

    flows = _part(layout.CONNTRACK, lambda text, _label: tuple(parse_flows(text, strict=True)))
    """The connections with ports that conntrack knows."""
    proxy_config = _part(
        layout.CONFIGZ, lambda text, label: decode_config(text.encode("utf-8", "surrogatepass"), label).config
    )
    """What this node's kube-proxy runs with."""
    health = _part(layout.HEALTHZ, lambda text, _label: parse_health(text))
    metrics = _part(layout.METRICS, lambda text, _label: parse_metrics(text))
    """kube-proxy's samples, for `facts.kubeproxy.metric`."""

    @cached_property
    def proxy_version(self) -> str | None:
        """What it says itself, or its metrics."""
        text = self.text(layout.VERSION)
        if text is not None:
            return parse_version(text) or None
        built = (self.metrics or {}).get("kubernetes_build_info", {})
        return next(filter(None, map(parse_version, built)), None)

    # --- what is not there ---

    @cached_property
    def errors(self) -> tuple[Failure, ...]:
        """What failed when the host was read: its file `errors`, with lines of `FILE: message`, and snapshot.json."""
        found = list(self._failures)
        for line in (self.text(layout.ERRORS) or "").splitlines():
            file, colon, message = line.partition(": ")
            if colon:
                found.append(Failure(layout.host_file(self.name, file), message.strip()))
        return tuple(found)

    @cached_property
    def missing(self) -> tuple[Missing, ...]:
        """The parts that are not there, in the order of the format."""
        why = {each.what: each.message for each in self.errors}
        whole = why.get(f"{layout.NODES}/{self.name}", "")
        found = []
        for family in Family:
            if not self.knows_rules(family):
                path = layout.host_file(self.name, f"{_SAVES[family]}save")
                found.append(
                    Missing(
                        path, why.get(path, whole), f"{family.value}: what the host does to packets is indeterminate"
                    )
                )
        for name in _THEN:
            wanted = self.has_node or name not in _NO_WAYS
            if wanted and not self._there(name) and not (name == layout.VERSION and self.proxy_version):
                path = layout.host_file(self.name, name)
                found.append(Missing(path, why.get(path, whole), _THEN[name]))
        return tuple(found)

    @cached_property
    def unseen(self) -> tuple[Unseen, ...]:
        """What was not seen of it. Raises InputError: a file cannot be read."""
        rules = self.host_rules
        seen = self._rules_of_its_mode() if rules is None else rules.unseen
        found = [each for each in seen if not self._was_looked_at(each)]
        without = (family for family in Family if not self.knows_rules(family))
        found += [not_looked_at(self.name, family, unseen.VARIANTS[Variant.NFT], unseen.NO_RULES) for family in without]
        found += self.lost_routing
        lost = {each.what for each in self.lost_routing}
        lacking = (file for file in _UNSEEN if not self._there(file) and _UNSEEN[file] not in lost)
        found += [not_looked_at(self.name, None, _UNSEEN[file], _THEN[file]) for file in lacking]
        return self._assumed.left(found)

    def unseen_of(self, families: Collection[Family]) -> tuple[Unseen, ...]:
        """The same for who asks about packets of some families: where their rules are not known, all is open."""
        open_now = {family.value for family in families if not self.knows_rules(family)}
        return tuple(
            msgspec.structs.replace(each, suspected=True)
            if each.what == unseen.VARIANTS[Variant.NFT] and each.family in open_now
            else each
            for each in self.unseen
        )

    def unseen_by_packet(self, families: Collection[Family]) -> tuple[Unseen, ...]:
        """The same for who follows one packet, which goes through the virtual servers that were seen."""
        rules, found = self.host_rules, self.unseen_of(families)
        if rules is None:
            return found
        open_servers = (each for each in rules.unseen_by_packet if each.what == unseen.IPVS)
        return (*(each for each in found if each.what != unseen.IPVS), *open_servers)

    def _was_looked_at(self, each: Unseen) -> bool:
        """Whether there is a file of rules in which a thing would be."""
        if each.suspected:
            return False
        start = _SAVES[Family.IPV6] if each.family == Family.IPV6.value else _SAVES[Family.IPV4]
        if each.what == unseen.NFTABLES:
            return self._there(_NFT)
        dumps = (f"{start}{variant.value}-save" for variant, name in unseen.VARIANTS.items() if name == each.what)
        return any(map(self._there, dumps))

    @property
    def is_empty(self) -> bool:
        """Whether nothing of it was read."""
        return not any(map(self._there, layout.HOST_FILES))

    def _there(self, name: str) -> bool:
        if name not in self._present:
            self._present[name] = self._data(name) is not None
        return self._present[name]


_CUT_UNSEEN: Final = (*layout.RULES, layout.CONNTRACK, layout.IPSETS, layout.IPVS, layout.IPVS_CONNECTIONS)
"""Files of which a part reads like a whole: one that `errors` names is not there."""
_SAVES: Final = {Family.IPV4: "iptables-", Family.IPV6: "ip6tables-"}
_NFT: Final = "nft"
_UNSEEN: Final = {
    layout.ROUTES: unseen.ROUTES,
    layout.ROUTING_RULES: unseen.POLICY_ROUTING,
    layout.SYSCTLS: unseen.SYSCTLS,
}
_SAYS: Final = re.compile(r"^(?!#)[^\S\n]*\S", re.MULTILINE)
"""Of a dump that holds more than blanks and comments."""


def _has_effect(file: RuleFile) -> bool:
    rules = file.nftables if file.iptables is None else file.iptables.ruleset
    return rules is not None and rules.has_effect


def no_rules(family: Family) -> Index:
    """The rules of a host that has none."""
    text = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n"
    return index_ruleset(parse_save(text, "no rules", family=family))


def read_arrays(text: str, label: str) -> list[list[dict[str, Any]]]:
    """The arrays of objects that a text holds, one after another. Raises InputError: it is something else."""
    arrays: list[list[dict[str, Any]]] = []
    at, decoder, command = 0, json.JSONDecoder(), layout.PRINTED_BY.get(label.rpartition("/")[2], "-json")
    while (begin := _BLANK.match(text, at).end()) < len(text):  # type: ignore[union-attr]
        try:
            found, at = decoder.raw_decode(text, begin)
        except (ValueError, RecursionError) as error:
            line = text.count("\n", 0, getattr(error, "pos", begin)) + 1
            raise InputError(f"{label}: line {line}: what `{command}` prints expected: {error}") from error
        if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
            line = text.count("\n", 0, begin) + 1
            raise InputError(f"{label}: line {line}: a list of objects expected, as `{command}` prints it")
        arrays.append([item for item in found if item])
    return arrays


def parse_sysctls(text: str) -> dict[str, int]:
    """Lines of `NAME = VALUE`; those of other values are left out. Raises ValueError."""
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        match = _SYSCTL.match(line)
        if match is not None:
            found[match[1].replace("/", ".")] = int(match[2])
        elif line.strip() and "=" not in line and not line.startswith(("#", "sysctl:")):
            raise ValueError(f"line {number}: NAME = VALUE expected, not {line[:80]!r}")
    return found


def _where(parse: Callable[[Entries], object], entries: Entries, error: Exception) -> str:
    """Which entry is wrong, and how."""
    for number, entry in enumerate(entries):
        try:
            parse([entry])
        except _BROKEN as found:
            return f"[{number}]: {f'field {found} expected' if isinstance(found, KeyError) else found}"
    return str(error)


def _complete(sysctls: Mapping[str, int]) -> dict[str, int]:
    """Sysctls as they were read; without br_netfilter bridged frames do not come to iptables."""
    names = ("net.bridge.bridge-nf-call-iptables", "net.bridge.bridge-nf-call-ip6tables")
    return {**dict.fromkeys(names, 0), **sysctls}
