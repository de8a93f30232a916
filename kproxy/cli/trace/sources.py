"""Where `kproxy trace` takes its rules and its host from: dumps, objects, or one host of a snapshot.

A `Source` gives, for each family, an index of the rules, and for each packet what it meets. Whatever is slow is done
when it is first asked for, and once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple, Protocol

from kproxy.api import Manifests
from kproxy.api.kubeproxyconfig.types import MODE_NFTABLES, KubeProxyConfiguration
from kproxy.cli.output import working
from kproxy.cli.text_files import read_rule_files, text_label
from kproxy.cluster.evidence.manifests import Lacking, open_services
from kproxy.cluster.evidence.opened import open_rules
from kproxy.cluster.evidence.signs import ipvs_of_devices, ipvs_of_mode, restores_connection_marks, set_names
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
from kproxy.cluster.rendered import note_of, render_node, rules_of
from kproxy.cluster.rules import HostRules
from kproxy.dataplane import Host, Index, IpSet, index_ruleset
from kproxy.dataplane.query.assumptions import (
    NamedAddresses,
    Surroundings,
    named_addresses,
    shows_route_localnet,
    surroundings_of_rules,
)
from kproxy.dataplane.query.spec import Question
from kproxy.netfilter import Family
from kproxy.netfilter.address import format_address
from kproxy.netfilter.family import protocol_name
from kproxy.netfilter.iptables.codec import UINT32
from kproxy.netfilter.nftables.ruleset import NftRuleset
from kproxy.render import Features, Target
from kproxy.services.claims import ServiceAddress, claim_in_words, claimed_twice
from kproxy.services.serviceport import ServicePort, service_ports


class Source(Protocol):
    """Rules and a host."""

    @property
    def label(self) -> str:
        """What the rules are, for titles."""

    def index(self, family: Family) -> Index:
        """The rules of a family.

        Raises:
            KproxyError: there are none, or they cannot be used.
        """

    def around(self, question: Question) -> Surroundings:
        """What a packet meets."""

    def unseen(self, question: Question) -> tuple[Unseen, ...]:
        """What was not seen of the host, as far as this packet may meet it."""


class FileSource:
    """Dumps in files, or one on standard input for `-`: together the rules of one host."""

    def __init__(
        self,
        paths: Sequence[str],
        host: Host | None,
        local_ips: Sequence[str],
        sets: Mapping[str, IpSet],
        assumed: Assumed,
    ) -> None:
        self._assumed = assumed
        self._paths = tuple(paths)
        self._host = host
        self._local_ips = tuple(local_ips)
        self._sets = sets
        self._indexes: dict[Family, Index] = {}

    @property
    def label(self) -> str:
        return ", ".join(map(text_label, self._paths))

    def index(self, family: Family) -> Index:
        if family not in self._indexes:
            self._indexes[family] = self._rules.index(family)
        return self._indexes[family]

    def around(self, question: Question) -> Surroundings:
        found = self._around(question)
        hosts = tuple(with_sets(host, self._all_sets) for host in found.fitting)
        more = self._rules.assumptions()
        host = with_sets(found.host, self._all_sets)
        return dataclasses.replace(found, host=host, fitting=hosts, assumptions=(*found.assumptions, *more))

    def _around(self, question: Question) -> Surroundings:
        if self._host is not None:
            return Surroundings.known(self._host)
        localnet = any(map(shows_route_localnet, self._rules.rulesets))
        if self._local_ips:
            return Surroundings.known(Host.simple(self._local_ips, route_localnet=localnet))
        return surroundings_of_rules(self._named, question.packet, route_localnet=localnet)

    def unseen(self, question: Question) -> tuple[Unseen, ...]:
        return unseen_by(question, self._rules, self._host, self.label, self._assumed)

    @cached_property
    def services(self) -> Manifests:
        """The Services that the rules know."""
        from kproxy.cluster.services_in_rules import RecordedServices

        return RecordedServices(self._rules).manifests

    @cached_property
    def _rules(self) -> HostRules:
        sets = {*self._sets, *(() if self._host is None else self._host.sets)}
        more = ipvs_of_devices(self.label, None if self._host is None else self._host.interfaces)
        return read_rule_files(self._paths, self.label, assumed=self._assumed, sets=sets, more=more)

    @cached_property
    def _all_sets(self) -> Mapping[str, IpSet]:
        """Those that are given, and empty ones for those that are assumed to be so."""
        names = {name for ruleset in self._rules.rulesets for name in set_names(ruleset)}
        given = {*self._sets, *(() if self._host is None else self._host.sets)}
        empty = (name for name in names - given if self._assumed.decides(f"{IPSET} {name}"))
        return {**dict.fromkeys(empty, IpSet((), None, ())), **self._sets}

    @cached_property
    def _named(self) -> NamedAddresses:
        return named_addresses(self._rules.rulesets, self._rules.nftables)


def unseen_by(
    question: Question, rules: HostRules, host: Host | None, label: str, assumed: Assumed
) -> tuple[Unseen, ...]:
    """What a packet meets and was not seen: of the rules of its family, of the host beside them, of its connection."""
    family = question.packet.family
    found = [each for each in rules.unseen if each.is_met_by(family)]
    if host is None:
        found += [not_looked_at(label, None, what) for what in (ROUTES, POLICY_ROUTING, SYSCTLS)]
    return (*assumed.left(found), *open_mark(question, rules, label, assumed))


def open_mark(question: Question, rules: HostRules, label: str, assumed: Assumed) -> tuple[Unseen, ...]:
    """The mark of the packet's connection, if rules restore it and it is not given."""
    family = question.packet.family
    if question.connection.mark_known == UINT32 or not restores_connection_marks(rules, family):
        return ()
    why = "rules restore it, and what earlier packets of the connection left there is not known (--ctmark)"
    return assumed.left((suspect(label, family, CONNECTION_MARK, why),))


def with_sets(host: Host, sets: Mapping[str, IpSet]) -> Host:
    """The host with the contents of more ipsets."""
    return dataclasses.replace(host, sets=MappingProxyType({**host.sets, **sets})) if sets else host


class Claim(NamedTuple):
    """The Services, `namespace/name`, that claim one address, port and protocol, and what follows, as a sentence."""

    services: tuple[str, ...]
    words: str


class ManifestSource:
    """The rules that kube-proxy would program on a node."""

    def __init__(
        self,
        cluster: Manifests,
        config: KubeProxyConfiguration,
        target: Target,
        features: Features,
        host: Host | None,
        local_ips: Sequence[str],
        assumed: Assumed,
        lacking: Lacking,
    ) -> None:
        self._assumed = assumed
        self._lacking = lacking
        self._cluster = cluster
        self._config = config
        self._target = target
        self._features = features
        self._host = host
        self._local_ips = tuple(local_ips)
        self._indexes: dict[tuple[Family, str], Index] = {}
        self._claims: dict[Family, Mapping[ServiceAddress, tuple[ServicePort, ...]]] = {}
        self._tables: dict[Family, NftRuleset] = {}
        self._hosts: dict[Family, Host] = {}

    @property
    def label(self) -> str:
        return f"node {self._target.node_name}"

    def index(self, family: Family) -> Index:
        return self.index_of(family, "")

    def index_of(self, family: Family, favoured: str) -> Index:
        """The rules of a family in which a Service, `namespace/name`, gets what several claim."""
        if (family, favoured) not in self._indexes:
            with working("rendering"):
                self._indexes[family, favoured] = self._render(family, favoured)
        return self._indexes[family, favoured]

    def claim(self, question: Question) -> Claim | None:
        """What several Services claim, if the packet is sent to that."""
        packet = question.packet
        if packet.dst is None or packet.dport is None or packet.protocol is None:
            return None
        family = packet.family
        if family not in self._claims:
            ports = (port for each in self._cluster.services for port in service_ports(each, family).values())
            self._claims[family] = claimed_twice(ports)
        door = ServiceAddress(format_address(packet.dst, family), protocol_name(packet.protocol), packet.dport)
        claimants = self._claims[family].get(door)
        if claimants is None:
            return None
        return Claim(tuple(port.name.service for port in claimants), claim_in_words(door, claimants))

    def around(self, question: Question) -> Surroundings:
        if self._host is not None:
            return Surroundings.known(self._host)
        family = question.packet.family
        node = self._target.node
        if node is None and not self._local_ips:
            ruleset, table = self.index(family).ruleset, self._tables.get(family)
            localnet = shows_route_localnet(ruleset)
            return surroundings_of_rules(named_addresses((ruleset,), table), question.packet, route_localnet=localnet)
        if family not in self._hosts:
            if node is None:
                localnet = shows_route_localnet(self.index(family).ruleset)
                self._hosts[family] = Host.simple(self._local_ips, route_localnet=localnet)
            else:
                self._hosts[family] = node_host(node, self._config, family, self._local_ips)
        return Surroundings.known(self._hosts[family])

    def unseen(self, question: Question) -> tuple[Unseen, ...]:
        found = list(self._suspected)
        if self._host is None:
            found += [not_looked_at(self._target.node_name, None, what) for what in (ROUTES, POLICY_ROUTING, SYSCTLS)]
        return self._assumed.left(each for each in found if each.is_met_by(question.packet.family))

    @property
    def _suspected(self) -> tuple[Unseen, ...]:
        name = self._target.node_name
        devices = None if self._host is None else self._host.interfaces
        found = (*ipvs_of_mode(name, self._config.mode), *ipvs_of_devices(name, devices), *self._lacking.unseen(name))
        return self._assumed.left(found)

    def _render(self, family: Family, favoured: str) -> Index:
        rendered = render_node(self._target, family, self._cluster, self._config, self._features, favoured)
        rules = rules_of(rendered)
        native = rules.nftables if self._config.mode == MODE_NFTABLES else None
        if native is not None:
            self._tables[family] = native
        opened = open_rules(rules.iptables, family, self._suspected)
        opened = open_services(opened, family, self._cluster, self._lacking)
        return index_ruleset(opened, note_of(rendered), nftables=native, family=family)
