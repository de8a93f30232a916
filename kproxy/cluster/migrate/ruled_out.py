"""Known differences of the modes that do not show: which were looked for, and why they are not in the report."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

import msgspec

from kproxy.cluster.evidence.unseen import CLUSTER_IPS, ENDPOINTS, IPVS, NODE_ADDRESSES, NODE_PORTS
from kproxy.cluster.migrate import ids
from kproxy.cluster.migrate.affected_services import nobody
from kproxy.cluster.migrate.analysis import Analysis
from kproxy.cluster.migrate.reason import Reason
from kproxy.cluster.migrate.reasons import FOREIGN, REASONS

NO_PACKET: Final = "No packet of these Services and nodes shows it."
NOT_CONFIGURED: Final = "Neither kube-proxy's configuration nor these hosts bring it about."
OWN_FIREWALL: Final = "None of the packets that were tried shows it among the other rules of these nodes."
NO_OTHER_RULES: Final = "These nodes have no rules of other programs."
KUBELET_GUARDS: Final = "A rule of the kubelet drops the same packets, in either mode."
NO_SUCH_RULES: Final = "The nodes' dumps have no such rules."
NO_SERVICE_CIDR: Final = "No ServiceCIDR is given; a cluster has one since Kubernetes v1.33."

_OF_RULES: Final = frozenset({ids.HOST_FIREWALL, *(reason.id for reason in FOREIGN)})
_OF_SERVICES: Final = frozenset(reason.id for reason in REASONS if reason.services is not nobody)
_HIDDEN: Final = {
    IPVS: frozenset[str](),
    **dict.fromkeys((CLUSTER_IPS, ENDPOINTS, NODE_PORTS), _OF_SERVICES),
    NODE_ADDRESSES: frozenset({ids.NODE_PORT_ADDRESSES}),
}
"""The known differences that an unseen thing may hide; one of a node's rules hides `_OF_RULES`. Beside IPVS nothing is
looked for."""


def hidden(analysis: Analysis, what: str) -> tuple[str, ...]:
    """The identifiers of the known differences that may be there on a node and do not show: a thing was not seen."""
    shown = {each.id for each in analysis.found}
    return tuple(
        reason.id
        for reason in (*(FOREIGN if analysis.foreign is not None else ()), *REASONS)
        if reason.id not in shown
        if reason.id in _HIDDEN.get(what, _OF_RULES) and reason.applies(analysis.facts)
    )


class Absent(msgspec.Struct, frozen=True):
    """One of them. `reason` is its identifier, `why` a sentence."""

    reason: str
    title: str
    why: str


def absent(analyses: Sequence[Analysis], found: Collection[str]) -> Iterator[Absent]:
    """All that were looked for and are not in `found`, in the report's order.

    Those that only a dump shows are looked for where there is one.
    """
    gaps = [(each, gap.what) for each in analyses for gap in each.unseen]
    if any(what == IPVS for _, what in gaps):
        return
    dumped = [each for each in analyses if each.foreign is not None]
    told = {*found, *(reason for each, what in gaps for reason in hidden(each, what))}
    for reason in REASONS if analyses else ():
        if reason.id not in told:
            yield Absent(reason.id, reason.title, _why(reason, analyses, dumped))
    for reason in FOREIGN if dumped else ():
        if reason.id not in told:
            yield Absent(reason.id, reason.title, OWN_FIREWALL if reason.id == ids.FOREIGN_ORDER else NO_SUCH_RULES)


def _why(reason: Reason, analyses: Sequence[Analysis], dumped: Sequence[Analysis]) -> str:
    if not any(reason.applies(each.facts) for each in analyses):
        return NOT_CONFIGURED
    if reason.id == ids.UNALLOCATED_CLUSTER_IPS and not any(each.facts.nftables.service_cidrs for each in analyses):
        return NO_SERVICE_CIDR
    if reason.id == ids.LOCALNET_GUARD and any(each.foreign is not None and each.foreign.kubelet for each in dumped):
        return KUBELET_GUARDS
    if reason.firewall and dumped:
        return OWN_FIREWALL if any(each.tried for each in dumped) else NO_OTHER_RULES
    return NO_PACKET
