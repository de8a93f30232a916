"""A cluster as the page asks about it: what is known, and what follows from it, kept for the next question.

A `Model` is one state of one source: a revision, or a copy with edits. It is asked by several threads; each question
holds its lock, since what is kept is filled as it is needed. `Work` bounds how long something may take.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Final, TypeVar

from kproxy.api import Manifests
from kproxy.cluster.audit.audit import audit
from kproxy.cluster.audit.report import AuditReport
from kproxy.cluster.edits import Edit, Edited, EditedFiles, EditError, Object, by_key, edit
from kproxy.cluster.journey.known import KnownNetwork, known_journeys
from kproxy.cluster.journey.path import Journey, one_of
from kproxy.cluster.rules import HostRules
from kproxy.cluster.services_in_rules import Door, doors_told, endpoints_told
from kproxy.cluster.snapshot.cluster import Cluster, kind_of_object, value_of_object
from kproxy.cluster.snapshot.host import HostFacts
from kproxy.dataplane import DataplaneError, Index, Packet, trace
from kproxy.dataplane.model.packet import parse_endpoint
from kproxy.dataplane.query.assumptions import Surroundings
from kproxy.errors import InputError
from kproxy.explorer.answer_cache import MAX_KEPT, AnswerCache
from kproxy.explorer.errors import Refusal, cannot, not_found
from kproxy.explorer.model.clients import Client, clients_of
from kproxy.explorer.model.map_data import DrawnMap, EdgeView
from kproxy.explorer.model.owners import Doors, Owners
from kproxy.explorer.model.rule_chances import Asked, NodeRules, RuleChances, asked_of
from kproxy.explorer.sources.rendering import RenderedCluster, Rendering, remade
from kproxy.explorer.sources.source import SourceState
from kproxy.family import host_of
from kproxy.lab.resources import FAILED
from kproxy.netfilter import Family
from kproxy.netfilter.address import format_address
from kproxy.services.claims import ServiceAddress, claim_in_words, claimed_twice
from kproxy.services.names import family_of
from kproxy.services.serviceport import ServicePort, service_ports
from kproxy.words import listed

Made = TypeVar("Made")

HOST: Final = "host"
"""What the one host of a dump is called."""
HOST_ID: Final = f"node/{HOST}"
CLIENT: Final = "203.0.113.9"
"""The address of the client outside that the map shows, of a network for documentation (RFC 5737)."""
CLIENT6: Final = "2001:db8::9"
OUTSIDE_CLIENTS: Final = MappingProxyType({Family.IPV4: CLIENT, Family.IPV6: CLIENT6})
NO_NODE: Final = "there is no node: no Node is among the objects, and no Pod or endpoint names one"
_SHOWN: Final = 3
"""Nodes that a note names."""
NO_CLUSTER: Final = "this is one host's rules: there are no objects of a cluster"


class Work:
    """Something that takes time, for one request: `check` ends it when nobody waits for it any more."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic, whole: Work | None = None) -> None:
        """`whole`: what it is a part of, which is cancelled for both."""
        self._clock = clock
        self._end = clock() + seconds
        self._whole = whole
        self._cancelled = False
        self._longest = 0.0

    def cancel(self) -> None:
        """Nobody waits any more."""
        self._cancelled = True

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits any more."""
        return self._cancelled or (self._whole is not None and self._whole.cancelled)

    def part(self, share: float) -> Work:
        """The same with a share of the time that is left."""
        return Work(self.left * share, self._clock, self)

    def to_the_end(self) -> Work:
        """The same for what the answer has to have, however long it takes: it ends when nobody waits any more."""
        return Work(float("inf"), self._clock, self)

    @property
    def left(self) -> float:
        """Seconds that are left; 0 if none are."""
        return max(0.0, self._end - self._clock())

    def check(self, _what: str = "") -> None:
        """Raises Refusal: the time is over, or nobody waits."""
        if self.cancelled or self._clock() > self._end:
            raise Refusal(504, "this takes too long: ask about fewer nodes or Services, or use the command")

    def within(self, step: Callable[[], Made]) -> Made | None:
        """What a step gives; None if the time does not suffice: it is over, or a step before took longer than is left.

        Raises:
            Refusal: nobody waits any more, or the step refuses.
        """
        begin = self.left
        if begin <= self._longest:
            return None
        try:
            found = step()
        except Refusal:
            if self.cancelled or self.left:
                raise
            return None
        self._longest = max(self._longest, begin - self.left)
        return found


class Model:
    """One state of a source.

    Attributes:
        known: what the source said.
        edited: the edits, of a copy.
        lock: held by whoever asks.
        audited: the audit, once it has been made.
        judging: how far it is: `worker-1 (1 of 3)`; "" before it begins.
        maps: as they are sent, by node.
        edges: of ports of Services, where they are the same on all nodes; see `edges`.
    """

    def __init__(self, known: SourceState, revision: int, edited: Edited | None = None) -> None:
        self.known = known
        self.revision = revision
        self.edited = edited
        self.lock = threading.RLock()
        self.audited: AuditReport | None = None
        self.judging = ""
        self.maps: AnswerCache[DrawnMap] = AnswerCache(MAX_KEPT)
        self.edges: dict[tuple[object, ...], tuple[EdgeView, ...]] = {}
        self._favoured: AnswerCache[KnownNetwork] = AnswerCache()
        self._clients: AnswerCache[tuple[Client, ...]] = AnswerCache()

    @property
    def cluster(self) -> Cluster:
        """Raises Refusal: there is none."""
        if self.known.cluster is None:
            raise cannot(NO_CLUSTER)
        return self.known.cluster

    @property
    def manifests(self) -> Manifests:
        return self.cluster.manifests

    @cached_property
    def network(self) -> KnownNetwork:
        return KnownNetwork(self.cluster)

    @cached_property
    def _claims(self) -> Mapping[ServiceAddress, tuple[ServicePort, ...]]:
        """What several Services claim, where kube-proxy's choice is not known: rules that were read have made it."""
        found: dict[ServiceAddress, tuple[ServicePort, ...]] = {}
        for family in Family if self.known.rendered else ():
            ports = (port for each in self.manifests.services for port in service_ports(each, family).values())
            found |= claimed_twice(ports)
        return found

    def journeys(
        self, client: str, destination: str, protocol: str, *, source: str | None, source_port: int | None = None,
        assumed: Mapping[str, bool] = MappingProxyType({}),
    ) -> Sequence[Journey]:  # fmt: skip
        """All that can become of a connection; open where several Services claim what is asked.

        Raises:
            InputError, DataplaneError: see `kproxy.cluster.journey.path.journeys`.
        """

        def walked(network: KnownNetwork) -> Sequence[Journey]:
            return known_journeys(
                network, client, destination, protocol, source=source, source_port=source_port, assumed=assumed
            )

        asked = parse_endpoint(destination)
        claim = ServiceAddress(format_address(asked.address, asked.family), protocol.lower(), asked.port or 0)
        claimants = self._claims.get(claim)
        if claimants is None:
            return walked(self.network)
        names = dict.fromkeys(port.name.service for port in claimants)
        return one_of([walked(self._favouring(name)) for name in names], claim_in_words(claim, claimants))

    def _favouring(self, service: str) -> KnownNetwork:
        """The network where a Service gets what several claim."""

        def made() -> KnownNetwork:
            how = dataclasses.replace(self.rendering.how, favoured=service)
            network = KnownNetwork(remade(self.cluster, self.cluster.files, self.known.label, how))
            network.notes = self.network.notes
            return network

        return self._favoured.get(service, made)

    @cached_property
    def owners(self) -> Owners:
        """Whose addresses are."""
        return Owners(self.cluster)

    @cached_property
    def doors(self) -> Doors:
        """Where Services answer."""
        return Doors(self.manifests.services)

    @cached_property
    def rendering(self) -> Rendering:
        """kube-proxy on each node, as the objects ask for."""
        cluster = self.cluster
        if isinstance(cluster, RenderedCluster):
            return cluster.rendering
        return Rendering(cluster.manifests, cluster.config_of)

    def config_notes(self, names: Sequence[str]) -> list[str]:
        """Which of some nodes' kube-proxies have a configuration that is not known, and what counts instead. Raises
        InputError: rules cannot be read."""
        cluster = self.cluster
        with self.lock:
            found = cluster.config_notes(names)
            unknown = [name for name in names if cluster.config_of(cluster.hosts[name]) is None]
        if unknown and not self.known.rendered:
            shown = listed(unknown, _SHOWN)
            found.append(
                f"{shown}: kube-proxy's configuration is not known: its defaults count, without a cluster CIDR"
            )
        return found

    def audit(self, work: Work) -> AuditReport:
        """What is wrong in the cluster, as `kproxy audit -o json` prints it; made once, without the lock of questions,
        which go on meanwhile.

        Raises:
            Refusal: the nodes' rules are made from the objects, or it takes too long.
        """
        if self.known.rendered:
            raise cannot("the rules are made from the objects here: an audit needs a snapshot with rules, or a lab")

        def judged(what: str) -> None:
            work.check()
            self.judging = what

        if self.audited is None:
            work.check()
            self.audited = audit(self.cluster, judged)
        return self.audited

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """The names of the nodes, in order."""
        cluster = self.known.cluster
        return () if cluster is None else tuple(name for name, host in cluster.hosts.items() if host.has_node)

    @cached_property
    def rule_chances(self) -> RuleChances:
        """What the rules do with connections to Services: those of nodes, or of the one host of a dump."""
        return RuleChances(
            self._ask_host if self.known.cluster is None else NodeRules(self.network, OUTSIDE_CLIENTS), self.lock
        )

    @cached_property
    def told(self) -> tuple[Door, ...]:
        """Where Services answer, as far as the rules of the one host of a dump tell."""
        return () if self.known.rules is None else doors_told(self.known.rules)

    @property
    def modes_told(self) -> tuple[str, ...]:
        """The kinds of rules that the one host of a dump has."""
        rules = self.known.rules
        native = rules is not None and rules.nftables is not None
        return (*(("iptables",) if rules is not None and rules.rulesets else ()), *(("nftables",) if native else ()))

    @property
    def _host_rules(self) -> HostRules:
        assert self.known.rules is not None
        return self.known.rules

    def index(self, family: Family) -> Index:
        """The rules of the one host of a dump. Raises InputError: there are none of the family."""
        return self._host_rules.index(family)

    def _has_rules(self, family: Family) -> bool:
        try:
            return bool(self.index(family))
        except InputError:
            return False

    def surroundings(self, packet: Packet) -> Surroundings:
        """What a packet meets on the one host of a dump, beside its rules."""
        return self._host_rules.surroundings(packet, self.known.sets)

    def clients(self, family: Family) -> tuple[Client, ...]:
        """Who may ask the one host of a dump."""
        rules = self._host_rules

        def made() -> tuple[Client, ...]:
            ends = {host_of(each) for each in endpoints_told(rules, family)}
            return clients_of(rules, family, OUTSIDE_CLIENTS[family], ends)

        return self._clients.get(family, made)

    def _ask_host(self, client: str, family: Family, destination: str, protocol: str) -> Asked:
        try:
            sender = next(each for each in self.clients(family) if each.id == client)
            packet = sender.packet(destination, protocol)
            host = self.surroundings(packet).fitting[0]
            return asked_of(trace(self.index(family), host, packet).outcomes)
        except (DataplaneError, InputError) as error:
            return Asked({}, open=" ".join(str(error).splitlines()))

    def node(self, name: str, field: str = "node") -> HostFacts:
        """A node by name; the first for "". Raises Refusal."""
        if not name and self.nodes:
            return self.cluster.hosts[self.nodes[0]]
        found = self.cluster.hosts.get(name.removeprefix("node/"))
        if found is None or not found.has_node:
            if not self.nodes:
                raise not_found(f"{field}: {NO_NODE}", field)
            raise not_found(f"{field}: there is no node {name!r}; there are {', '.join(self.nodes[:8])}", field)
        return found

    @cached_property
    def families(self) -> tuple[Family, ...]:
        """Those that Services have addresses of; IPv4 if none has any."""
        if self.known.cluster is None:
            return tuple(each for each in Family if self._has_rules(each))
        texts = {ip for service in self.manifests.services for ip in service.spec.cluster_ips if ip != "None"}
        found = set(map(family_of, texts))
        return tuple(each for each in Family if each in found) or (Family.IPV4,)

    @cached_property
    def objects(self) -> dict[tuple[str, str, str], Object]:
        """The objects as they were read. Raises Refusal."""
        return by_key(self.cluster.objects)

    @cached_property
    def ready(self) -> dict[str, bool | None]:
        """Which nodes are ready, as far as Nodes tell."""
        nodes = (value_of_object(each) for each in self.cluster.objects if kind_of_object(each) == "Node")
        return {str(each["metadata"]["name"]): _is_ready(each) for each in nodes}

    @cached_property
    def failed(self) -> frozenset[str]:
        """The pods of a lab that were made to crash."""
        marked = [each for each in self.cluster.objects if isinstance(each, dict) or FAILED.encode() in bytes(each)]
        return frozenset(
            f"{key[1]}/{key[2]}"
            for key, value in by_key(marked).items()
            if key[0] == "Pod" and FAILED in ((value.get("metadata") or {}).get("annotations") or {})
        )

    def copy(self, edits: Sequence[Edit]) -> Model:
        """A copy with edits, in which every node's rules are made from objects; other programs' rules stay.

        Raises:
            Refusal: an edit cannot be made.
        """
        original, how = self.cluster, self.rendering.how
        try:
            with self.lock:
                edited = edit(self.objects, edits)
        except EditError as error:
            raise Refusal(404 if error.missing else 400, str(error), error.field) from error
        how = dataclasses.replace(how, mode=edited.mode or how.mode)
        try:
            cluster = remade(original, EditedFiles(original.files, edited), self.known.label, how)
        except InputError as error:
            raise Refusal(400, " ".join(str(error).splitlines()), "edits") from error
        return Model(SourceState(self.known.label, cluster), self.revision, edited)


def _is_ready(node: Object) -> bool | None:
    for each in (node.get("status") or {}).get("conditions") or ():
        if each.get("type") == "Ready":
            return bool(each.get("status") == "True")
    return None


def family_named(text: str | None, known: Sequence[Family]) -> Family:
    """A family by its name; the first known for None. Raises Refusal."""
    if not text:
        return known[0] if known else Family.IPV4
    for each in Family:
        if each.value == text:
            return each
    raise Refusal(400, "family: IPv4 or IPv6 expected", "family")
