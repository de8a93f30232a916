"""The configuration of nodes' kube-proxies where neither they nor a ConfigMap tell it: another node's, else what the
rules tell.

The mode and the addresses of node ports are each node's own. All else is what most rules of some nodes say, since
kube-proxies of a cluster share one configuration. So a rule that says something else stays a difference, as does a node
whose rules do. With detectLocalMode NodeCIDR each node has its own podCIDR. What is read so is to be said: `notes`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from kproxy.api.addresses import canonical_cidr
from kproxy.api.kubeproxyconfig import types
from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES, MODE_NFTABLES, KubeProxyConfiguration
from kproxy.api.types.core import Node
from kproxy.cluster.facts import proxyrules
from kproxy.cluster.facts.proxyrules import Votes, said_of
from kproxy.cluster.rules import RuleKind, recognise
from kproxy.cluster.snapshot.host import HostFacts
from kproxy.errors import InputError
from kproxy.netfilter import Family
from kproxy.services.names import family_of
from kproxy.services.node import LOOPBACK, node_ips
from kproxy.words import listed

ASKED: Final = 3
"""The rules of so many nodes are read: enough for a majority, at half a second to two each for 2,000 Services."""
_EVERY: Final = {Family.IPV4: "0.0.0.0/0", Family.IPV6: "::/0"}
_MARK: Final = 14
_NODE: Final = "/podCIDR"
"""Stands in votes for the network that is each node's own."""
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
    votes: Votes


class InferredConfigs:
    """The configurations of a cluster's nodes as their rules tell them, which are read when they are asked for.
    Of several threads that ask at once each may read them, and all find the same."""

    def __init__(self, hosts: Mapping[str, HostFacts], nodes: Iterable[Node]) -> None:
        self._hosts = hosts
        self._nodes = {node.metadata.name: node for node in nodes}
        self._seen: dict[str, _Seen | None] = {}
        self._known: dict[str, Inferred | None] = {}

    def of(self, name: str) -> Inferred | None:
        """One node's, also of a name that no node has; None if no configuration and no rules of kube-proxy are known.
        Rules that cannot be read tell nothing. Raises InputError: a node's configuration cannot be used."""
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
        with_rules = list(islice(filter(None, map(self._read, self._hosts)), ASKED))
        if not with_rules:
            return None
        own = self._read(name)
        votes = sum((each.votes for each in with_rules), Votes())
        mode = own.mode if own is not None else Counter(each.mode for each in with_rules).most_common(1)[0][0]
        marks = said_of(sum((each.votes for each in with_rules if each.mode == mode), Votes()), proxyrules.MARK)
        bit = marks.most_common(1)[0][0].bit_length() - 1 if marks else _MARK
        everything, drops = said_of(votes, proxyrules.ALL), said_of(votes, proxyrules.DROPS_INVALID)
        masquerade_all = everything[True] > everything[False]
        # One rule may just be gone: it must be so in more than one place.
        be_liberal = drops[False] > 1 and not drops[True]
        localhost = own is None or not said_of(own.votes, proxyrules.LOCALHOST, Family.IPV4)[False]
        ports = () if own is None else self._node_ports(name, own)
        detect, words = _detect_local(votes)
        words = {
            f"mode {mode}": True,
            **words,
            "masqueradeAll": masquerade_all,
            f"masqueradeBit {bit}": bit != _MARK,
            f"nodePortAddresses {', '.join(ports)}": bool(ports),
            "localhostNodePorts false": not localhost,
            "tcpBeLiberal": be_liberal and mode == MODE_IPTABLES,
        }
        iptables, nftables = types.IPTables(localhost_node_ports=localhost), types.NFTables()
        if mode == MODE_NFTABLES:
            nftables = types.NFTables(masquerade_bit=bit, masquerade_all=masquerade_all)
        else:
            iptables = types.IPTables(masquerade_bit=bit, masquerade_all=masquerade_all, localhost_node_ports=localhost)
        config = KubeProxyConfiguration(
            mode=mode,
            iptables=iptables,
            nftables=nftables,
            node_port_addresses=ports,
            conntrack=types.Conntrack(tcp_be_liberal=be_liberal),
            **detect,
        )
        return Inferred(config, ", ".join(filter(words.get, words)), _OTHERS if own is None else _OWN)

    def _read(self, name: str) -> _Seen | None:
        if name not in self._seen:
            host, found = self._hosts.get(name), None
            with suppress(InputError):  # told where the rules themselves are wanted
                found = None if host is None or not host.has_node else _seen_on(host)
            if found is not None:
                for family in Family:
                    if (cidr := self._pod_cidr(name, family)) and (
                        count := found.votes.pop((proxyrules.PODS, family, cidr), 0)
                    ):
                        found.votes[proxyrules.PODS, family, _NODE] = count
            self._seen[name] = found
        return self._seen[name]

    def _node_ports(self, name: str, own: _Seen) -> tuple[str, ...]:
        """nodePortAddresses, () for the mode's default. A single address that is not there stays a difference."""
        said = {family: list(said_of(own.votes, proxyrules.NODE_PORTS, family)) for family in Family}
        told = {family: [""] if "" in addresses else addresses for family, addresses in said.items() if addresses}
        if all(addresses == [""] for addresses in told.values()):
            return tuple(_EVERY.values()) if told and own.mode == MODE_NFTABLES else ()
        node = self._nodes.get(name)
        primary = node_ips(node)
        if all(
            set(told[family]) == ({""} if primary[family] in LOOPBACK.values() else {primary[family]})
            for family in told
        ):
            return (types.NODE_PORT_ADDRESSES_PRIMARY,)
        return tuple(
            f"{address}/{family.bits}" if address else _EVERY[family]
            for family, addresses in told.items()
            for address in addresses
        )

    def _pod_cidr(self, name: str, family: Family) -> str:
        node = self._nodes.get(name)
        cidrs = () if node is None else node.pod_cidrs
        return next((canonical_cidr(cidr) or "" for cidr in cidrs if family_of(cidr) is family), "")


def _seen_on(host: HostFacts) -> _Seen | None:
    """What the rules of a host say; None if none of kube-proxy's are known. In both modes at once, iptables' are those
    that come first."""
    dumps: dict[Family, list[str]] = {}
    native = False
    for label, text in host.rule_texts().items():
        if recognise(text) is not RuleKind.IPTABLES:
            native = True
        elif proxyrules.has_iptables_mode(text):
            family = Family.IPV6 if label.rpartition("/")[2].startswith("ip6") else Family.IPV4
            dumps.setdefault(family, []).append(text)
    if dumps:
        return _Seen(MODE_IPTABLES, proxyrules.read_iptables(dumps))
    rules = host.host_rules.nftables if native and host.host_rules is not None else None
    if rules is None or not proxyrules.has_nftables_mode(rules):
        return None
    return _Seen(MODE_NFTABLES, proxyrules.read_nftables(rules))


def _detect_local(votes: Votes) -> tuple[dict[str, Any], dict[str, bool]]:
    """By what most rules tell local pods, as fields of a configuration and in words."""
    said = said_of(votes, proxyrules.PODS)
    if not said:
        return {}, {}
    interfaces = Counter({pods: count for pods, count in said.items() if pods and "/" not in pods})
    if interfaces.total() > (said - interfaces).total():
        interface = interfaces.most_common(1)[0][0]
        name = interface.removesuffix("+")
        mode, local = types.LOCAL_BRIDGE_INTERFACE, types.DetectLocal(bridge_interface=name)
        if name != interface:
            mode, local = types.LOCAL_INTERFACE_NAME_PREFIX, types.DetectLocal(interface_name_prefix=name)
        return {"detect_local_mode": mode, "detect_local": local}, {f"detectLocalMode {mode} {interface}": True}
    most = [(said_of(votes, proxyrules.PODS, family) - interfaces).most_common(1) for family in Family]
    networks = [network for each in most for network, _ in each if network]
    if _NODE in networks:
        return {"detect_local_mode": types.LOCAL_NODE_CIDR}, {f"detectLocalMode {types.LOCAL_NODE_CIDR}": True}
    cidr = ",".join(networks)
    return {"cluster_cidr": cidr}, {f"cluster CIDR {cidr}" if cidr else "no cluster CIDR": True}
