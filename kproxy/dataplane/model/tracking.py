"""Whether a host's rules switch connection tracking on.

The kernel tracks connections of a family in a network namespace only while some rule needs it (nf_ct_netns_get):
translation, or asking or setting something of the connection. Until then nothing is translated, and the chains of type
nat are not even walked: a rule `-j DROP` of the nat table drops nothing. A rule in a table `inet` serves both families,
one of a dormant table counts as well (observed, both variants, Linux 6.18).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kproxy.dataplane.model.pipeline import TABLE_FAMILIES
from kproxy.dataplane.model.unseen import stands_for_unseen
from kproxy.netfilter.iptables.matches import ConnmarkMatch, ConntrackMatch, OpaqueMatch, StateMatch
from kproxy.netfilter.iptables.rule import Rule
from kproxy.netfilter.iptables.ruleset import Ruleset
from kproxy.netfilter.iptables.targets import OpaqueTarget

if TYPE_CHECKING:
    from kproxy.netfilter.family import Family
    from kproxy.netfilter.nftables.ruleset import Table

_TARGETS: Final = frozenset({
    "CLUSTERIP", "CONNMARK", "CONNSECMARK", "CT", "DNAT", "MASQUERADE", "NETMAP", "REDIRECT", "SAME", "SNAT",
    "SYNPROXY",
})  # fmt: skip
_MATCHES: Final = (ConnmarkMatch, ConntrackMatch, StateMatch)
_OPAQUE_MATCHES: Final = frozenset({
    "cluster", "connbytes", "connlabel", "connlimit", "connmark", "conntrack", "helper", "state",
})  # fmt: skip


def tracks(rulesets: Iterable[Ruleset], native: Iterable[Table], family: Family | None) -> bool:
    """Whether some rule of iptables, or of the native tables, switches it on for a family; None is any."""
    for ruleset in rulesets:
        if any(_needs_tracking(rule) for _, _, _, rule in ruleset.rules()):
            return True
    return any(table.family in TABLE_FAMILIES[family] and _table_tracks(table) for table in native)


def _needs_tracking(rule: Rule) -> bool:
    name = rule.target.name if isinstance(rule.target, OpaqueTarget) else getattr(rule.target, "NAME", "")
    return name in _TARGETS or stands_for_unseen(rule) or any(
        isinstance(match, _MATCHES) or (isinstance(match, OpaqueMatch) and match.name in _OPAQUE_MATCHES)
        for match in rule.matches
    )  # fmt: skip


def _table_tracks(table: Table) -> bool:
    from kproxy.netfilter.nftables.expression import Ct
    from kproxy.netfilter.nftables.references import expressions_of, walk
    from kproxy.netfilter.nftables.stateful import ConnectionLimit
    from kproxy.netfilter.nftables.statement import FlowAdd, Nat, ObjectReference, Xt

    return any(
        isinstance(statement, (Nat, ConnectionLimit, FlowAdd, Xt))
        or (isinstance(statement, ObjectReference) and statement.kind.startswith(("ct", "synproxy")))
        or any(isinstance(part, Ct) for each in expressions_of(statement) for part in walk(each))
        for chain in table.chains
        for rule in chain.rules
        for statement in rule.statements
    )
