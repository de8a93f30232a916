"""A switch of kube-proxy's mode on a node: which modes, and the rules of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeVar

import msgspec

from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES, MODE_IPVS, MODE_NFTABLES
from kproxy.cluster.migrate.from_ipvs import IPVS_REASONS
from kproxy.cluster.migrate.reasons import REASONS, Reason
from kproxy.cluster.migrate.steps import iptables_rules, nftables_rules
from kproxy.cluster.node import NodeFacts
from kproxy.cluster.rendered import rules_of
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.render.target import render_state
from kproxy.services.tracker import ServiceState

_T = TypeVar("_T")
_SETTINGS: Final = frozenset({"masquerade-all", "random-fully", "unallocated-cluster-ips"})
"""The reasons between iptables and nftables mode that hold of IPVS mode, too: `Switch.settled` makes them alike."""
_IN_ORDER: Final = (MODE_IPVS, MODE_IPTABLES, MODE_NFTABLES)


class Switch(NamedTuple):
    """From one mode to another."""

    before: str
    then: str

    @classmethod
    def of(cls, before: str, then: str, configured: str) -> Switch:
        """`before`: "" for the configured mode, or for the other one of iptables and nftables if that is `then`."""
        other = MODE_IPTABLES if then == MODE_NFTABLES else MODE_NFTABLES
        return cls(before or (configured if configured not in ("", then) else other), then)

    @property
    def modes(self) -> tuple[str, str]:
        """The two in the order in which pairs of rules, traces and words have them: IPVS, iptables, nftables."""
        first, second = sorted(self, key=_IN_ORDER.index)
        return first, second

    @property
    def to_nftables(self) -> bool:
        return self.then == MODE_NFTABLES

    @property
    def from_ipvs(self) -> bool:
        return self.before == MODE_IPVS

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """For which the modes may differ."""
        if not self.from_ipvs:
            return REASONS
        return IPVS_REASONS + tuple(each for each in REASONS if self.to_nftables and each.id in _SETTINGS)

    def in_time(self, pair: tuple[_T, _T]) -> tuple[_T, _T]:
        """What belongs to the two modes, as it is today and then."""
        return pair if self.modes[0] == self.before else pair[::-1]

    def rules(self, facts: NodeFacts) -> tuple[SideRules, SideRules]:
        """The rules of each mode."""
        first, second = (_RULES[mode](facts) for mode in self.modes)
        return first, second

    def settled(self, facts: NodeFacts) -> NodeFacts:
        """The node if what has a setting of its own in each mode were set alike: no affinity, which each mode
        remembers in its own way; `rr`, which chooses as the other modes do; the same mark and masqueradeAll; no
        ServiceCIDR, which only nftables mode reads."""
        state = ServiceState(facts.state.family, facts.state.node_name)
        state.endpoints = facts.state.endpoints
        state.service_ports = {
            name: msgspec.structs.replace(port, session_affinity_seconds=0)
            for name, port in facts.state.service_ports.items()
        }
        first = msgspec.structs.replace(
            facts.iptables,
            ipvs=msgspec.structs.replace(facts.iptables.ipvs, scheduler="rr"),
            features=msgspec.structs.replace(facts.iptables.features, random_fully=True),
        )
        second = msgspec.structs.replace(
            facts.nftables,
            masquerade_all=first.masquerade_all,
            masquerade_mark=first.masquerade_mark,
            service_cidrs=(),
        )
        return dataclasses.replace(facts, state=state, iptables=first, nftables=second)


def ipvs_rules(facts: NodeFacts) -> SideRules:
    """IPVS mode's virtual servers, rules, sets and addresses on a fresh host. Its options are those of iptables mode:
    both read the configuration's section `iptables`."""
    return rules_of(render_state(facts.state, facts.iptables, MODE_IPVS))


_RULES: Final[Mapping[str, Callable[[NodeFacts], SideRules]]] = {
    MODE_IPVS: ipvs_rules,
    MODE_IPTABLES: iptables_rules,
    MODE_NFTABLES: nftables_rules,
}
