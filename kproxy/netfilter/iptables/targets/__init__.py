"""Targets: what a rule does. One class per extension, `OpaqueTarget` for the rest."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from kproxy.netfilter.iptables.option import named_classes
from kproxy.netfilter.iptables.targets.base import ACCEPT, DROP, QUEUE, RETURN, Jump, OpaqueTarget, Target, Verdict
from kproxy.netfilter.iptables.targets.header import DscpTarget, HlTarget, TosTarget, TtlTarget
from kproxy.netfilter.iptables.targets.ipset import SetTarget
from kproxy.netfilter.iptables.targets.log import LogTarget, NflogTarget, NfqueueTarget, TeeTarget, TraceTarget
from kproxy.netfilter.iptables.targets.mark import ConnmarkTarget, MarkTarget
from kproxy.netfilter.iptables.targets.nat import (
    DnatTarget,
    MasqueradeTarget,
    NatRange,
    NetmapTarget,
    RedirectTarget,
    SnatTarget,
)
from kproxy.netfilter.iptables.targets.reject import RejectTarget
from kproxy.netfilter.iptables.targets.track import CtTarget, NotrackTarget, TcpmssTarget, TproxyTarget

TARGET_CLASSES: Final[tuple[type[Target], ...]] = named_classes(Target, __name__)
"""Every target extension that kproxy interprets; verdicts and jumps are not extensions."""

TARGETS: Final = MappingProxyType({cls.NAME: cls for cls in TARGET_CLASSES})
"""The interpreted target extensions by name."""

OPAQUE_TARGETS: Final = frozenset(
    {
        "AUDIT", "CHECKSUM", "CLASSIFY", "CLUSTERIP", "CONNSECMARK", "DNPT", "ECN", "HMARK", "IDLETIMER", "LED",
        "RATEEST", "SECMARK", "SNPT", "SYNPROXY", "TCPOPTSTRIP", "ULOG",
    }
)  # fmt: skip
"""The other target extensions of iptables 1.8.9. No chain can have such a name, so `-j` with one is not a jump."""

__all__ = [
    "ACCEPT",
    "DROP",
    "OPAQUE_TARGETS",
    "QUEUE",
    "RETURN",
    "TARGETS",
    "TARGET_CLASSES",
    "ConnmarkTarget",
    "CtTarget",
    "DnatTarget",
    "DscpTarget",
    "HlTarget",
    "Jump",
    "LogTarget",
    "MarkTarget",
    "MasqueradeTarget",
    "NatRange",
    "NetmapTarget",
    "NflogTarget",
    "NfqueueTarget",
    "NotrackTarget",
    "OpaqueTarget",
    "RedirectTarget",
    "RejectTarget",
    "SetTarget",
    "SnatTarget",
    "Target",
    "TcpmssTarget",
    "TeeTarget",
    "TosTarget",
    "TproxyTarget",
    "TraceTarget",
    "TtlTarget",
    "Verdict",
]
