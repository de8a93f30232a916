"""One host of a snapshot as what `kproxy trace` asks."""

from __future__ import annotations

import dataclasses

from kproxy.cli.trace.sources import open_mark, with_sets
from kproxy.cluster.evidence.unseen import Unseen
from kproxy.cluster.journey.known import KnownNetwork
from kproxy.cluster.snapshot.cluster import Cluster
from kproxy.dataplane import Host, Index
from kproxy.dataplane.query.assumptions import Surroundings
from kproxy.dataplane.query.spec import Question
from kproxy.errors import InputError
from kproxy.netfilter import Family


class HostSource:
    """One host of a snapshot, or of what was read live: its rules, and itself."""

    def __init__(self, cluster: Cluster, name: str, label: str, host: Host | None) -> None:
        """
        Raises:
            InputError: there is no such host, or nothing is known of its rules.
        """
        if name not in cluster.hosts:
            raise InputError(f"{cluster.label}: no files of node {name}: there is {', '.join(cluster.hosts) or 'none'}")
        self.label = label
        self._assumed = cluster.assumed
        self._facts = cluster.hosts[name]
        if not any(map(self._facts.knows_rules, Family)) or (
            cluster.info.via == "netns" and not self._facts.host_rules
        ):
            raise InputError(f"{label}: no rules")
        network = KnownNetwork(cluster)
        self._known = network.host(name)
        self._given = host
        self._notes = tuple(network.notes)

    def index(self, family: Family) -> Index:
        return self._known.indexes[family]

    def around(self, question: Question) -> Surroundings:
        host = self._known.host
        if self._given is not None:
            host = with_sets(self._given, host.sets)
        rules = self._facts.host_rules
        notes = () if rules is None else rules.assumptions()
        return dataclasses.replace(
            Surroundings.known(host), assumptions=(*(self._notes if self._given is None else ()), *notes)
        )

    def unseen(self, question: Question) -> tuple[Unseen, ...]:
        family = question.packet.family
        found = tuple(each for each in self._facts.unseen_of((family,)) if each.is_met_by(family))
        rules = self._facts.host_rules
        return (*found, *(() if rules is None else open_mark(question, rules, self.label, self._assumed)))
