"""The configuration of nodes' kube-proxies where neither they nor a ConfigMap tell it: another node's, else what the
rules tell.

The mode is each node's own. All else is what most nodes' rules say, and of a node what most of its rules say, since
kube-proxies of a cluster share one configuration. So a rule that says something else stays a difference, as does a node
whose rules do. With detectLocalMode NodeCIDR each node has its own podCIDR. What is read so is to be said: `notes`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from kproxy.api.addresses import canonical_cidr
from kproxy.api.kubeproxyconfig.types import (
    LOCAL_BRIDGE_INTERFACE,
    LOCAL_CLUSTER_CIDR,
    LOCAL_INTERFACE_NAME_PREFIX,
    LOCAL_NODE_CIDR,
    MODE_IPTABLES,
    MODE_NFTABLES,
    NODE_PORT_ADDRESSES_PRIMARY,
    Conntrack,
    DetectLocal,
    IPTables,
    KubeProxyConfiguration,
    NFTables,
)
from kproxy.api.types.core import Node
from kproxy.cluster.facts.proxyrules import (
    Evidence,
    Pods,
    has_iptables_mode,
    has_nftables_mode,
    read_iptables,
    read_nftables,
)
from kproxy.cluster.rules import RuleKind, recognise
from kproxy.cluster.snapshot.host import HostFacts
from kproxy.errors import InputError
from kproxy.netfilter import Family
from kproxy.services.names import family_of
from kproxy.services.node import LOOPBACK, node_ips
from kproxy.words import listed

T = TypeVar("T", bound=Hashable)

ASKED: Final = 3
"""The rules of so many nodes are read: enough for a majority, at half a second to two each for 2,000 Services."""
_EVERY: Final = {Family.IPV4: "0.0.0.0/0", Family.IPV6: "::/0"}
_MARK: Final = 14
_OWN: Final = "its"
_OTHERS: Final = "other nodes'"
_SHOWN: Final = 3


class Inferred(NamedTuple):
    """What a node's kube-proxy is taken to run with. `words` say what was read, and `whose` where."""

    config: KubeProxyConfiguration
    words: str
    whose: str


class _Seen(NamedTuple):
    """What the rules of a node say."""

    mode: str
    evidence: Evidence


class _Shared(NamedTuple):
    """What most nodes' rules say of a configuration; `tells_pods` is whether any says by what pods are told."""

    detect: str
    cluster_cidr: str
    interface: str
    masquerade_all: bool
    be_liberal: bool
    tells_pods: bool
    bits: Mapping[str, int]


class InferredConfigs:
    """The configurations of a cluster's nodes as their rules tell them, which are read when they are asked for.
    Of several threads that ask at once each may read them, and all find the same."""

    def __init__(self, hosts: Mapping[str, HostFacts], nodes: Iterable[Node]) -> None:
        self._hosts = hosts
        self._nodes = {node.metadata.name: node for node in nodes}
        self._seen: dict[str, _Seen | None] = {}
        self._shared: _Shared | None = None
        self._known: dict[str, Inferred | None] = {}

    def of(self, name: str) -> Inferred | None:
        """One node's, also of a name that no node has; None if no configuration and no rules of kube-proxy are known.
        Rules that cannot be read tell nothing.

        Raises:
            InputError: a node's configuration cannot be used.
        """
        if name not in self._known:
            self._known[name] = self._of_another() or self._of_rules(name)
        return self._known[name]

    def notes(self, names: Iterable[str]) -> list[str]:
        """What was inferred of some nodes, in words."""
        by_words: dict[tuple[str, str], list[str]] = {}
        for name in names:
            found = self.of(name)
            if found is not None:
                by_words.setdefault((found.words, found.whose), []).append(name)
        return [
            f"{listed(group, _SHOWN)}: kube-proxy's configuration is not known; {words}, as "
            f"{'their' if whose == _OWN and len(group) > 1 else whose} rules have it"
            if words
            else f"{listed(group, _SHOWN)}: kube-proxy's configuration is not known; that of {whose} counts"
            for (words, whose), group in by_words.items()
        ]

    def _of_another(self) -> Inferred | None:
        for name, host in self._hosts.items():
            if host.proxy_config is not None:
                return Inferred(msgspec.structs.replace(host.proxy_config, hostname_override=""), "", name)
        return None

    def _of_rules(self, name: str) -> Inferred | None:
        with_rules = self._with_rules()
        if not with_rules:
            return None
        self._shared = self._shared or self._agreed(with_rules)
        return self._config(name, self._shared, with_rules)

    def _with_rules(self) -> dict[str, _Seen]:
        found: dict[str, _Seen] = {}
        for name in self._hosts:
            seen = self._read(name)
            if seen is not None:
                found[name] = seen
            if len(found) >= ASKED:
                break
        return found

    def _read(self, name: str) -> _Seen | None:
        if name not in self._seen:
            host = self._hosts.get(name)
            try:
                self._seen[name] = None if host is None or not host.has_node else _seen_on(host)
            except InputError:  # told where the rules themselves are wanted
                self._seen[name] = None
        return self._seen[name]

    def _agreed(self, seen: Mapping[str, _Seen]) -> _Shared:
        said = [
            (name, family, _most(counted))
            for name, each in seen.items()
            for family, counted in each.evidence.pods.items()
        ]
        values = [(name, family, pods) for name, family, pods in said if pods is not None]
        interfaces = Counter(pods for _, _, pods in values if pods.interface)
        networks: dict[Family, Counter[str]] = {}
        for _, family, pods in values:
            if not pods.interface:
                networks.setdefault(family, Counter())[pods.network] += 1
        of_most = {family: _most(counted) or "" for family, counted in networks.items()}
        detect, interface = LOCAL_CLUSTER_CIDR, ""
        of_node = [pods.network for name, family, pods in values if pods == Pods(self._pod_cidr(name, family))]
        if interfaces.total() > sum(map(Counter.total, networks.values())):
            (interface, is_prefix), of_most = next(iter(interfaces.most_common(1)))[0][1:], {}
            detect = LOCAL_INTERFACE_NAME_PREFIX if is_prefix else LOCAL_BRIDGE_INTERFACE
        elif any(of_node) and len(of_node) >= sum(counted[of_most[family]] for family, counted in networks.items()):
            detect, of_most = LOCAL_NODE_CIDR, {}
        all_said = [_most(each.evidence.masquerade_all) for each in seen.values()]
        return _Shared(
            detect,
            ",".join(of_most[family] for family in Family if of_most.get(family)),
            interface,
            _most(Counter(each for each in all_said if each is not None)) or False,
            _never_drops_invalid([each for each in seen.values() if each.mode == MODE_IPTABLES]),
            bool(values),
            {mode: _bit(each.evidence for each in seen.values() if each.mode == mode) for mode in _MODES},
        )

    def _config(self, name: str, shared: _Shared, with_rules: Mapping[str, _Seen]) -> Inferred:
        own = self._read(name)
        others = _most(Counter(each.mode for each in with_rules.values())) or MODE_IPTABLES
        mode = others if own is None else own.mode
        nftables = mode == MODE_NFTABLES
        bit, words = shared.bits[mode], [f"mode {mode}"]
        if shared.tells_pods:
            words.append(_pods_words(shared))
        ports, localhost = self._node_ports(name, own, nftables), True
        if own is not None and own.evidence.localhost_node_ports is False:
            localhost = False
        if shared.masquerade_all:
            words.append("masqueradeAll")
        if bit != _MARK:
            words.append(f"masqueradeBit {bit}")
        if ports:
            words.append(f"nodePortAddresses {', '.join(ports)}")
        if not localhost:
            words.append("localhostNodePorts false")
        if shared.be_liberal and not nftables:
            words.append("tcpBeLiberal")
        config = KubeProxyConfiguration(
            mode=mode,
            detect_local_mode=shared.detect,
            detect_local=DetectLocal(
                bridge_interface=shared.interface if shared.detect == LOCAL_BRIDGE_INTERFACE else "",
                interface_name_prefix=shared.interface if shared.detect == LOCAL_INTERFACE_NAME_PREFIX else "",
            ),
            cluster_cidr=shared.cluster_cidr,
            iptables=IPTables(localhost_node_ports=localhost)
            if nftables
            else IPTables(masquerade_bit=bit, masquerade_all=shared.masquerade_all, localhost_node_ports=localhost),
            nftables=NFTables(masquerade_bit=bit, masquerade_all=shared.masquerade_all) if nftables else NFTables(),
            node_port_addresses=ports,
            conntrack=Conntrack(tcp_be_liberal=shared.be_liberal),
        )
        return Inferred(config, ", ".join(words), _OTHERS if own is None else _OWN)

    def _node_ports(self, name: str, own: _Seen | None, nftables: bool) -> tuple[str, ...]:
        """nodePortAddresses, () for the mode's default. A single address that is not there stays a difference."""
        if own is None or not own.evidence.node_ports:
            return ()
        told = own.evidence.node_ports
        if not any(address for addresses in told.values() for address in addresses):
            return tuple(_EVERY.values()) if nftables else ()
        node = self._nodes.get(name)
        primary = node_ips(node)
        if all(
            set(told[family]) == ({""} if primary[family] in LOOPBACK.values() else {primary[family]})
            for family in told
        ):
            return (NODE_PORT_ADDRESSES_PRIMARY,)
        return tuple(
            f"{address}/{family.bits}" if address else _EVERY[family]
            for family, addresses in told.items()
            for address in addresses
        )

    def _pod_cidr(self, name: str, family: Family) -> str:
        node = self._nodes.get(name)
        cidrs = () if node is None else node.pod_cidrs
        return next((canonical_cidr(cidr) or "" for cidr in cidrs if family_of(cidr) is family), "")


_MODES: Final = (MODE_IPTABLES, MODE_NFTABLES)


def _seen_on(host: HostFacts) -> _Seen | None:
    """What the rules of a host say; None if none of kube-proxy's are known. In both modes at once, iptables' are those
    that come first."""
    dumps: dict[Family, list[str]] = {}
    native = False
    for label, text in host.rule_texts().items():
        if recognise(text) is not RuleKind.IPTABLES:
            native = True
        elif has_iptables_mode(text):
            family = Family.IPV6 if label.rpartition("/")[2].startswith("ip6") else Family.IPV4
            dumps.setdefault(family, []).append(text)
    if dumps:
        return _Seen(MODE_IPTABLES, read_iptables(dumps))
    rules = host.host_rules.nftables if native and host.host_rules is not None else None
    if rules is None or not has_nftables_mode(rules):
        return None
    return _Seen(MODE_NFTABLES, read_nftables(rules))


def _most(votes: Counter[T]) -> T | None:
    """What most say; of equally many, what was said first."""
    return next((value for value, _ in votes.most_common(1)), None)


def _bit(evidence: Iterable[Evidence]) -> int:
    said = (_most(each.marks) for each in evidence)
    mark = _most(Counter(each for each in said if each is not None))
    return _MARK if mark is None else mark.bit_length() - 1


def _never_drops_invalid(seen: Sequence[_Seen]) -> bool:
    """Whether INVALID packets are dropped nowhere, where more than one place could: one rule may just be gone."""
    found = [dropped for each in seen for dropped in each.evidence.drops_invalid.values()]
    return len(found) > 1 and not any(found)


def _pods_words(shared: _Shared) -> str:
    if shared.detect == LOCAL_NODE_CIDR:
        return "detectLocalMode NodeCIDR"
    if shared.interface:
        plus = "" if shared.detect == LOCAL_BRIDGE_INTERFACE else "+"
        return f"detectLocalMode {shared.detect} {shared.interface}{plus}"
    return f"cluster CIDR {shared.cluster_cidr}" if shared.cluster_cidr else "no cluster CIDR"
