"""What a reason for which kube-proxy's modes differ is made of: `reasons` has them all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal

from kproxy.cluster.migrate.affected_services import Names, Words, nobody
from kproxy.cluster.migrate.packets import Packets
from kproxy.cluster.migrate.witness import Candidate, Differs, ends_differ
from kproxy.cluster.node import NodeFacts
from kproxy.dataplane import Packet
from kproxy.netfilter.address import format_address

Effort = Literal["act", "look", "after", "none"]
"""What there is to do: change something, or see that nobody needs it, before the switch; look whether it concerns one
of the cluster's programs; change something after the switch; nothing."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do about it.

    Attributes:
        effort: when, and how much.
        do: in a few words; a function where it depends on the node. sentence: the whole, if that is more.
        without_dump: one more sentence, where no dump of the node is given.
        config: a line that does it: of KubeProxyConfiguration, or a command; a function where it depends on the node.
    """

    effort: Effort
    do: str | Words
    sentence: str = ""
    config: str | Words = ""
    without_dump: str = ""


def said(words: str | Words, facts: NodeFacts) -> str:
    """Words for a node."""
    return words if isinstance(words, str) else words(facts)


def nothing(sentence: str) -> Advice:
    """Nothing has to be done, but for what the sentence says."""
    return Advice("none", "Nothing to do.", sentence)


NOTHING: Final = Advice("none", "Nothing to do.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One row.

    Attributes:
        title: of the reason; `case` is more exact about a node, where several cases are one reason.
        packets: candidates for a witness.
        services, addresses: what it concerns, in words.
        iptables, nftables: what happens in each mode; a function where that depends on the node.
        to_nftables, to_iptables: what to do about a switch to that mode; the same for both if only one is given.
        differs: which differences between two traces are of this reason.
        applies: whether the configuration can have it at all.
        firewall: whether witnesses are sent through a host whose own rules accept nothing.
        to_cluster_ip: the reason as it is told where the witness is sent to a ClusterIP; None: as of any other.
    """

    id: str
    title: str
    case: Words | None = None
    packets: Callable[[Packets], Iterable[Candidate]] = lambda _packets: ()
    services: Names = nobody
    addresses: Names = nobody
    iptables: str | Words
    nftables: str | Words
    to_nftables: Advice
    to_iptables: Advice | None = None
    differs: Differs = ends_differ
    applies: Callable[[NodeFacts], bool] = lambda _facts: True
    firewall: bool = False
    to_cluster_ip: Reason | None = None

    def shown_by(self, facts: NodeFacts, packet: Packet) -> Reason:
        """The reason as it is told of a packet, so that Services, packet and advice are of one."""
        if self.to_cluster_ip is None or packet.dst is None:
            return self
        address = format_address(packet.dst, packet.family)
        return self.to_cluster_ip if address in facts.cluster_ips else self

    def advice(self, *, to_nftables: bool) -> Advice:
        """What to do about a switch."""
        return self.to_nftables if to_nftables else self.to_iptables or self.to_nftables
