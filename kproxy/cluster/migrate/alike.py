"""The facts of those Services that stand for all on a node (`cluster.shapes`): what the modes do differently with them
is what they do differently with all."""

from __future__ import annotations

import dataclasses

from kproxy.api import Manifests
from kproxy.cluster.migrate.facts import NodeFacts
from kproxy.cluster.migrate.foreign import ForeignRules
from kproxy.cluster.shapes import FEW, Parts, Shapes
from kproxy.netfilter import Family
from kproxy.services.tracker import ServiceState


class Alike:
    """The Services of a cluster by their shapes, for all its nodes."""

    def __init__(self, cluster: Manifests) -> None:
        self.cluster = cluster
        self._parts = Parts(cluster)
        self._shapes: dict[Family, Shapes] = {}

    def facts(self, facts: NodeFacts, foreign: ForeignRules | None = None) -> NodeFacts | None:
        """A node's facts with the Services that stand for all; None if there are few, or if rules of other programs
        leave none alike."""
        if len(facts.service_ports) <= FEW:
            return None
        named = () if foreign is None else (foreign.named,)
        if None in named:
            return None
        if facts.family not in self._shapes:
            self._shapes[facts.family] = Shapes([self.cluster], facts.family)
        name, options = facts.target.node_name, [facts.iptables, facts.nftables]
        known = [each for each in named if each is not None]
        chosen = self._shapes[facts.family].on(name, [options], facts.own_addresses, foreign=known)
        part = self._parts.of(chosen.services)
        state = ServiceState.of(facts.family, name, part.services, part.endpoint_slices)
        return dataclasses.replace(facts, state=state)
