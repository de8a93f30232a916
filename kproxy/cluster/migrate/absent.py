"""Known differences of the modes that do not show: which were looked for, and why they are not in the report."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

import msgspec

from kproxy.cluster.migrate import ids
from kproxy.cluster.migrate.analysis import Analysis
from kproxy.cluster.migrate.reason import Reason
from kproxy.cluster.migrate.reasons import FOREIGN, REASONS

NO_PACKET: Final = "No packet of these Services and nodes shows it."
NOT_CONFIGURED: Final = "Neither kube-proxy's configuration nor these hosts bring it about."
OWN_FIREWALL: Final = "None of the packets that were tried shows it among the other rules of these nodes."
NO_OTHER_RULES: Final = "These nodes have no rules of other programs."
KUBELET_GUARDS: Final = "A rule of the kubelet drops the same packets, in either mode."
NO_SUCH_RULES: Final = "The nodes' dumps have no such rules."


class Absent(msgspec.Struct, frozen=True):
    """One of them. `reason` is its identifier, `why` a sentence."""

    reason: str
    title: str
    why: str


def absent(analyses: Sequence[Analysis], found: Collection[str]) -> Iterator[Absent]:
    """All that were looked for and are not in `found`, in the report's order.

    Those that only a dump shows are looked for where there is one.
    """
    dumped = [each for each in analyses if each.foreign is not None]
    for reason in REASONS if analyses else ():
        if reason.id not in found:
            yield Absent(reason.id, reason.title, _why(reason, analyses, dumped))
    for reason in FOREIGN if dumped else ():
        if reason.id not in found:
            yield Absent(reason.id, reason.title, OWN_FIREWALL if reason.id == ids.FOREIGN_ORDER else NO_SUCH_RULES)


def _why(reason: Reason, analyses: Sequence[Analysis], dumped: Sequence[Analysis]) -> str:
    if not any(reason.applies(each.facts) for each in analyses):
        return NOT_CONFIGURED
    if reason.id == ids.LOCALNET_GUARD and any(each.foreign is not None and each.foreign.kubelet for each in dumped):
        return KUBELET_GUARDS
    if reason.firewall and dumped:
        return OWN_FIREWALL if any(each.tried for each in dumped) else NO_OTHER_RULES
    return NO_PACKET
