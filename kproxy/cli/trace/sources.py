"""Where `kproxy trace` takes its rules and its host from: dumps, objects, or one host of a snapshot.

A `Source` gives, for each family, an index of the rules, and for each packet what it meets. Whatever is slow is done
when it is first asked for, and once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from kproxy.api.kubeproxyconfig.types import MODE_IPVS
from kproxy.cli.output import working
from kproxy.cluster.evidence.signs import ipvs_of_devices, restores_connection_marks, set_names
from kproxy.cluster.evidence.unseen import (
    CONNECTION_MARK,
    IPSET,
    POLICY_ROUTING,
    ROUTES,
    SYSCTLS,
    Assumed,
    Unseen,
    not_looked_at,
    suspect,
)
from kproxy.cluster.hosts import node_host
from kproxy.cluster.inputs import read_text, text_label
from kproxy.cluster.rules import HostRules, read_dumps, read_ipsets, with_sets
from kproxy.dataplane import Host, Index, IpSet
from kproxy.dataplane.query.assumptions import (
    Surroundings,
    named_addresses,
    shows_route_localnet,
    surroundings_of_rules,
)
from kproxy.dataplane.query.spec import Question
from kproxy.errors import InputError
from kproxy.netfilter import Family
from kproxy.netfilter.address import format_address
from kproxy.netfilter.family import protocol_name
from kproxy.netfilter.iptables.codec import UINT32
from kproxy.services.claims import ServiceAddress, claim_in_words, claimed_twice
from kproxy.services.serviceport import ServicePort, service_ports

if TYPE_CHECKING:
    from kproxy.api import Manifests
    from kproxy.cluster.rendered import RenderedNode
    from kproxy.cluster.snapshot.cluster import Cluster
    from kproxy.dataplane.symbolic.host_rules import SideRules


class Source:
    """Rules and a host.

    Attributes:
        label: what the rules are, for titles.
        host: as it was given; None if what is known of the rules tells of it.
    """

    label: str
    host: Host | None

    def index(self, family: Family) -> Index:
        """The rules of a family.

        Raises:
            KproxyError: there are none, or they cannot be used.
        """
        raise NotImplementedError

    def indexes(self, question: Question) -> tuple[Sequence[Index], str]:
        """The rules that a packet may meet, and why there are several, as a sentence; "" if there are not."""
        return (self.index(question.packet.family),), ""

    def around(self, question: Question) -> Surroundings:
        """What a packet meets."""
        raise NotImplementedError

    def unseen(self, question: Question) -> tuple[Unseen, ...]:
        """What was not seen of the host, as far as this packet may meet it."""
        raise NotImplementedError

    def _not_given(self, label: str) -> Iterator[Unseen]:
        """What rules alone do not tell of a host."""
        for what in () if self.host is not None else (ROUTES, POLICY_ROUTING, SYSCTLS):
            yield not_looked_at(label, None, what)


class FileSource(Source):
    """Dumps in files, or one on standard input for `-`: together the rules of one host."""

    def __init__(
        self, paths: Sequence[str], host: Host | None, local_ips: Sequence[str], ipsets: Sequence[str], assumed: Assumed
    ) -> None:
        """`ipsets`: files of what ipset save printed, which may be among `paths` as well."""
        self.host = host
        self._paths, self._local_ips, self._ipsets, self._assumed = paths, local_ips, ipsets, assumed

    @property
    def label(self) -> str:  # type: ignore[override]
        return self._rules.label

    def index(self, family: Family) -> Index:
        return self._rules.index(family)

    def around(self, question: Question) -> Surroundings:
        host, sets = self.host, self._all_sets
        if host is None and self._local_ips:
            localnet = any(map(shows_route_localnet, self._rules.rulesets))
            host = Host.simple(self._local_ips, route_localnet=localnet)
        known = None if host is None else Surroundings.known(with_sets(host, sets))
        found = known or self._rules.surroundings(question.packet, sets)
        return dataclasses.replace(found, assumptions=(*found.assumptions, *self._rules.assumptions()))

    def unseen(self, question: Question) -> tuple[Unseen, ...]:
        found = [each for each in self._rules.unseen_by_packet if each.is_met_by(question.packet.family)]
        found += self._not_given(self.label)
        return (*self._assumed.left(found), *open_mark(question, self._rules, self.label, self._assumed))

    @cached_property
    def services(self) -> Manifests:
        """The Services that the rules know."""
        from kproxy.cluster.services_in_rules import RecordedServices

        return RecordedServices(self._rules).manifests

    @cached_property
    def _read(self) -> tuple[HostRules, Mapping[str, IpSet]]:
        """The rules, and the ipsets that were given."""
        label = ", ".join(map(text_label, self._paths))
        with working(f"reading {label}"):
            files, sets = read_dumps(self._paths)
            for path in self._ipsets:
                sets |= read_ipsets(read_text(path, rules=True), text_label(path))
            known = {**({} if self.host is None else self.host.sets), **sets}
            more = ipvs_of_devices(label, None if self.host is None else self.host.interfaces)
            return HostRules(files, assumed=self._assumed, sets=known, more=more), sets

    @property
    def _rules(self) -> HostRules:
        return self._read[0]

    @cached_property
    def _all_sets(self) -> Mapping[str, IpSet]:
        """Those that are given, and empty ones for those that are assumed to be so."""
        names = {name for ruleset in self._rules.rulesets for name in set_names(ruleset)}
        sets = self._read[1]
        given = {*sets, *(() if self.host is None else self.host.sets)}
        empty = (name for name in names - given if self._assumed.decides(f"{IPSET} {name}"))
        return {**dict.fromkeys(empty, IpSet((), None, ())), **sets}


def open_mark(question: Question, rules: HostRules, label: str, assumed: Assumed) -> tuple[Unseen, ...]:
    """The mark of the packet's connection, if rules restore it and it is not given."""
    family = question.packet.family
    if question.connection.mark_known == UINT32 or not restores_connection_marks(rules, family):
        return ()
    why = "rules restore it, and what earlier packets of the connection left there is not known (--ctmark)"
    return assumed.left((suspect(label, family, CONNECTION_MARK, why),))


class ManifestSource(Source):
    """The rules that kube-proxy would program on a node."""

    def __init__(self, node: RenderedNode, host: Host | None, local_ips: Sequence[str]) -> None:
        self.label, self.host = f"node {node.label}", host
        self._node, self._local_ips = node, local_ips
        self._indexes: dict[tuple[Family, str], Index] = {}
        self._rules: dict[Family, SideRules] = {}
        self._claims: dict[Family, Mapping[ServiceAddress, tuple[ServicePort, ...]]] = {}
        names = None if host is None or node.config.mode == MODE_IPVS else host.interfaces
        self._devices = ipvs_of_devices(node.label, names)

    def index(self, family: Family, favoured: str = "") -> Index:
        """The rules of a family; those in which a `favoured` Service, `namespace/name`, gets what several claim."""
        if (family, favoured) not in self._indexes:
            from kproxy.cluster.rendered import rules_of  # dumps do without

            with working("rendering"):
                rendered = self._node.rendered(family, favoured)
                rules = self._rules[family] = rules_of(rendered)
                self._indexes[family, favoured] = self._node.index(family, rendered, rules, self._devices)
        return self._indexes[family, favoured]

    def indexes(self, question: Question) -> tuple[Sequence[Index], str]:
        packet, family = question.packet, question.packet.family
        if packet.dst is None or packet.dport is None or packet.protocol is None:
            return super().indexes(question)
        if family not in self._claims:
            ports = (port for each in self._node.cluster.services for port in service_ports(each, family).values())
            self._claims[family] = claimed_twice(ports)
        door = ServiceAddress(format_address(packet.dst, family), protocol_name(packet.protocol), packet.dport)
        claimants = self._claims[family].get(door)
        if claimants is None:
            return super().indexes(question)
        return [self.index(family, each.name.service) for each in claimants], claim_in_words(door, claimants)

    def around(self, question: Question) -> Surroundings:
        found, index = self._around(question), self.index(question.packet.family)
        if index.ipvs is None:
            return found
        from kproxy.cluster.rendered import host_in_mode  # dumps do without

        rules = self._rules[question.packet.family]
        fitting = tuple(host_in_mode(rules, each) for each in found.fitting)
        return dataclasses.replace(found, host=host_in_mode(rules, found.host), fitting=fitting)

    def _around(self, question: Question) -> Surroundings:
        family, node = question.packet.family, self._node.target.node
        if self.host is not None:
            return Surroundings.known(self.host)
        if node is not None:
            return Surroundings.known(node_host(node, self._node.config, family, self._local_ips))
        index = self.index(family)
        localnet = shows_route_localnet(index.ruleset)
        if self._local_ips:
            return Surroundings.known(Host.simple(self._local_ips, route_localnet=localnet))
        servers = () if index.ipvs is None else (index.ipvs,)
        named = named_addresses((index.ruleset,), index.nftables, servers)
        return surroundings_of_rules(named, question.packet, route_localnet=localnet)

    def unseen(self, question: Question) -> tuple[Unseen, ...]:
        family = question.packet.family
        found = [*self._node.unseen(family), *(each for each in self._devices if each.is_met_by(family))]
        return self._node.assumed.left((*found, *self._not_given(self._node.label)))


class HostSource(Source):
    """One host of a snapshot, or of what was read live: its rules, and itself."""

    def __init__(self, cluster: Cluster, name: str, label: str, host: Host | None) -> None:
        """
        Raises:
            InputError: there is no such host, or nothing is known of its rules.
        """
        from kproxy.cluster.journey.known import KnownNetwork  # other sources do without

        if name not in cluster.hosts:
            raise InputError(f"{cluster.label}: no files of node {name}: there is {', '.join(cluster.hosts) or 'none'}")
        self.label = label
        self._assumed = cluster.assumed
        self._facts = cluster.hosts[name]
        rules = self._facts.host_rules
        if not any(map(self._facts.knows_rules, Family)) or (cluster.info.via == "netns" and not rules):
            raise InputError(f"{label}: no rules")
        network = KnownNetwork(cluster)
        self._known = network.host(name)
        self.host = self._known.host if host is None else with_sets(host, self._known.host.sets)
        notes = tuple(network.notes) if host is None else ()
        self._assumptions = (*notes, *(() if rules is None else rules.assumptions()))

    def index(self, family: Family) -> Index:
        return self._known.indexes[family]

    def around(self, question: Question) -> Surroundings:
        assert self.host is not None
        return dataclasses.replace(Surroundings.known(self.host), assumptions=self._assumptions)

    def unseen(self, question: Question) -> tuple[Unseen, ...]:
        family = question.packet.family
        found = tuple(each for each in self._facts.unseen_by_packet((family,)) if each.is_met_by(family))
        rules = self._facts.host_rules
        return (*found, *(() if rules is None else open_mark(question, rules, self.label, self._assumed)))
