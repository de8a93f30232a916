"""The overlay's packet filter rules: what leaves the pod network is masqueraded, what pods send and get is forwarded.

They are flannel's (FLANNEL-POSTRTG, FLANNEL-FWD) in chains of our own. Masquerading, in this order:

    kube-proxy's mark         return       kube-proxy masquerades it, once
    this node's pods to pods  return
    anything to own pods      return       what comes from outside keeps its source
    pods to anything          masquerade   multicast excepted; other nodes' pods too, where this node relays for them
    anything to other pods    masquerade   from an address to which the other node has another way back

Forwarding: what has a pod's address as its source or destination is accepted, whatever the chain's policy says.

In iptables the jump to KPROXY-FWD is appended: kube-proxy's rules, which refuse traffic to Services without endpoints
and drop what a load balancer's source ranges exclude, and network policies stand before it. Only a rule that refuses
everything ends a chain for good, so the jump goes before such a rule. A native nftables chain could not help: accepting
a packet ends that base chain only, and a drop in any other chain of the hook still counts. So forwarding is accepted in
iptables' own chains, those that drop, whichever mode kube-proxy is in.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from kproxy.netfilter.hooks import Variant
from kproxy.overlay.ipam import Network
from kproxy.overlay.nodes import OverlayNode

POSTROUTING_CHAIN: Final = "KPROXY-POSTRTG"
FORWARD_CHAIN: Final = "KPROXY-FWD"
MARK: Final = 0x4000
"""kube-proxy's, bit 14 (iptables.masqueradeBit), of what it is going to masquerade itself."""
_MULTICAST: Final = {4: "224.0.0.0/4", 6: "ff00::/8"}
_COMMENTS: Final = {"MASQUERADE": "kproxy overlay masq", "ACCEPT": "kproxy overlay forward"}
JUMPS: Final = {
    POSTROUTING_CHAIN: f'-m comment --comment "{_COMMENTS["MASQUERADE"]}" -j {POSTROUTING_CHAIN}',
    FORWARD_CHAIN: f'-m comment --comment "{_COMMENTS["ACCEPT"]}" -j {FORWARD_CHAIN}',
}


class RuleChain(msgspec.Struct, frozen=True):
    """One of the overlay's chains of one family.

    Attributes:
        variant: the iptables that it is written with.
        version: 4 or 6.
        rules: as iptables-save prints them without `-A CHAIN`.
        attached: whether packets come to it by the one jump from `base`.
    """

    variant: Variant
    version: int
    table: str
    base: str
    chain: str
    rules: tuple[str, ...]
    attached: bool = True

    @property
    def key(self) -> tuple[str, ...]:
        return ("rules", self.variant.value, str(self.version), self.table, self.chain)

    def __str__(self) -> str:
        attached = "" if self.attached else f" (not where {self.base} needs it)"
        return (
            f"iptables-{self.variant.value} IPv{self.version} {self.table} {self.chain}{attached} "
            f"[{'; '.join(self.rules)}]"
        )  # fmt: skip


class RuleSettings(msgspec.Struct, frozen=True):
    """What is asked for.

    Attributes:
        ip_masq: masquerade what pods send out of the pod network.
        forward: accept in FORWARD what pods send and get.
        cluster_cidrs: the ranges of all pods, beside the Nodes' podCIDRs.
    """

    ip_masq: bool = False
    forward: bool = True
    cluster_cidrs: tuple[Network, ...] = ()


class Firewall(msgspec.Struct, frozen=True):
    """What there is on a node, by variant and IP version.

    Attributes:
        main: the iptables to use; None if there is none.
        random_fully: those that know `--random-fully`.
        blocking: those whose FORWARD refuses what no rule accepts.
    """

    main: Variant | None
    random_fully: frozenset[tuple[Variant, int]]
    blocking: frozenset[tuple[Variant, int]]


class _Rule(msgspec.Struct, frozen=True):
    verdict: str
    source: Network | None = None
    destination: Network | None = None
    marked: bool = False
    unicast: bool = False

    def text(self, version: int, comment: str, random_fully: bool) -> str:
        words = [
            f"-s {self.source}" if self.source else "",
            f"-d {self.destination}" if self.destination else "",
            f"! -d {_MULTICAST[version]}" if self.unicast else "",
            f"-m mark --mark {MARK:#x}/{MARK:#x}" if self.marked else "",
            f'-m comment --comment "{comment}" -j {self.verdict}',
            "--random-fully" if random_fully and self.verdict == "MASQUERADE" else "",
        ]
        return " ".join(filter(None, words))


def pod_ranges(
    nodes: Iterable[OverlayNode], version: int, cluster_cidrs: Sequence[Network] = ()
) -> tuple[Network, ...]:
    """The ranges of all pods of a family in ascending order, as few as there can be."""
    found = [node.pod_cidrs[version] for node in nodes if version in node.pod_cidrs]
    found += [cidr for cidr in cluster_cidrs if cidr.version == version]
    if version == 4:
        return tuple(ipaddress.collapse_addresses(item for item in found if isinstance(item, ipaddress.IPv4Network)))
    return tuple(ipaddress.collapse_addresses(item for item in found if isinstance(item, ipaddress.IPv6Network)))


def plan_rules(
    own: OverlayNode, nodes: Iterable[OverlayNode], settings: RuleSettings, firewall: Firewall
) -> tuple[RuleChain, ...]:
    """The chains that a node must have; nothing of a family in which it has no pods."""
    others = list(nodes)
    found = []
    for version, cidr in sorted(own.pod_cidrs.items()):
        ranges = pod_ranges([own, *others], version, settings.cluster_cidrs)
        if settings.ip_masq and firewall.main is not None:
            rules = _masquerading(cidr, ranges)
            found.append(_chain(firewall, firewall.main, version, "nat", "POSTROUTING", POSTROUTING_CHAIN, rules))
        if settings.forward:
            rules = [rule for item in ranges for rule in (_Rule("ACCEPT", item), _Rule("ACCEPT", destination=item))]
            variants = [each for each in Variant if each is firewall.main or (each, version) in firewall.blocking]
            found += [_chain(firewall, each, version, "filter", "FORWARD", FORWARD_CHAIN, rules) for each in variants]
    return tuple(found)


def _masquerading(own: Network, ranges: Sequence[Network]) -> list[_Rule]:
    others = [item for item in ranges if item != own]
    return [
        _Rule("RETURN", marked=True),
        *(_Rule("RETURN", own, item) for item in others),
        _Rule("RETURN", destination=own),
        *(_Rule("MASQUERADE", item, unicast=True) for item in ranges),
        *(_Rule("MASQUERADE", destination=item) for item in others),
    ]


def _chain(
    firewall: Firewall, variant: Variant, version: int, table: str, base: str, chain: str, rules: Sequence[_Rule]
) -> RuleChain:
    random_fully = (variant, version) in firewall.random_fully
    comment = _COMMENTS["ACCEPT" if chain == FORWARD_CHAIN else "MASQUERADE"]
    texts = tuple(rule.text(version, comment, random_fully) for rule in rules)
    return RuleChain(variant, version, table, base, chain, texts)
