"""One Service as a page: what `kproxy explain` says of it, its addresses in the order in which a packet meets them, the
endpoints that each leads to, those that are left out and why, and who reaches it from where.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from kproxy.api.types.core import Service
from kproxy.cluster.node import NodeFacts
from kproxy.cluster.services_in_rules import CLUSTER_IP, LOAD_BALANCER_IP
from kproxy.cluster.snapshot.host import HostFacts
from kproxy.explorer.answers.edges import OBJECTS, RULES, asked_rules, doors, shares_of
from kproxy.explorer.answers.reach import Matrix, matrix_of, node_addresses_of
from kproxy.explorer.answers.shares import (
    LOST,
    MISSING,
    REFUSED,
    UNUSED,
    WRONG,
    FanEndpoint,
    ends_of,
    state_of,
)
from kproxy.explorer.errors import not_found
from kproxy.explorer.model.model import Model, Work, family_named
from kproxy.explorer.model.owners import Owners
from kproxy.explorer.model.rule_chances import Asked, Door
from kproxy.family import join_host_port
from kproxy.netfilter import Family
from kproxy.render.explain import Explanation, explain_service
from kproxy.services.claims import ServiceAddress, claim_in_words
from kproxy.services.names import family_of
from kproxy.services.serviceport import ServicePort
from kproxy.services.topology import why_unused

_ASKING: Final = 2.0
"""Seconds that the node's rules are asked for one page."""
_LOOKING: Final = 0.5
"""Seconds that the rules of other nodes are asked for one page."""


class FanAddress(msgspec.Struct, frozen=True, rename={"sources": "from"}):
    """An address of a port: `verdict` is endpoints, drop, reject, open, or missing: the node's rules do not know it;
    `from` says which sources it takes; `by` is as on the map; `fault`: rules do not give what the objects ask for."""

    kind: str
    address: str
    port: int
    policy: str
    sources: str
    verdict: str
    why: str
    endpoints: tuple[FanEndpoint, ...]
    by: str = OBJECTS
    fault: str = ""


class LeftEndpoint(msgspec.Struct, frozen=True):
    """An endpoint that gets nothing from the node, and why."""

    address: str
    why: str
    state: str
    target: str
    node: str


class PortPage(msgspec.Struct, frozen=True):
    name: str
    protocol: str
    fan: tuple[FanAddress, ...]
    left: tuple[LeftEndpoint, ...]


class ServicePage(msgspec.Struct, frozen=True):
    """`explanation` is what `kproxy explain -o json` prints."""

    revision: int
    explanation: Explanation
    nodes: tuple[str, ...]
    families: tuple[str, ...]
    ports: tuple[PortPage, ...]
    matrix: Matrix


def service_names(model: Model) -> tuple[str, ...]:
    """All Services, `namespace/name`, in order."""
    if model.known.cluster is None:
        return ()
    return tuple(sorted(each.metadata.key for each in model.manifests.services))


def service_page(model: Model, key: str, work: Work, node: str = "", family: str | None = None) -> ServicePage:
    """One Service, as a node sees it; "" and None stand for the first node and family.

    Raises:
        Refusal: there is no such Service or node, or it takes too long.
    """
    service = next((each for each in model.manifests.services if each.metadata.key == key), None)
    if service is None:
        raise not_found(f"there is no Service {key!r}", "service")
    families = _families(service) or model.families
    chosen = family_named(family, families)
    host = model.node(node)
    rendering = model.rendering
    facts = rendering.facts(host, chosen)
    known = rendering.explained(host, chosen)
    explanation = explain_service(
        service, known.rendered, model.manifests.endpoint_slices, known.by_service.get(key, ())
    )
    notes = (*model.config_notes([host.name]), *explanation.notes)
    explanation = msgspec.structs.replace(explanation, notes=notes)
    owners = model.owners
    mine = [port for port in facts.service_ports if port.name.service == key]
    mode = rendering.mode_of(host)
    asked = _asked(model, host, facts, mine, work)
    pages = tuple(_port(facts, port, mode, asked, owners) for port in mine)
    differing, unasked = _differing(model, key, chosen, work)
    matrix = matrix_of(model, host, facts, mine, owners, differing, work)
    matrix = msgspec.structs.replace(matrix, unasked=unasked)
    return ServicePage(model.revision, explanation, model.nodes, tuple(each.value for each in families), pages, matrix)


def _families(service: Service) -> tuple[Family, ...]:
    return tuple(dict.fromkeys(family_of(ip) for ip in service.spec.cluster_ips if ip != "None"))


# --- the fan ---

_Answers = Mapping[object, Asked]
"""What the node's rules say of ports' addresses, by the ports' names and `_door_key`."""


def _door_key(port: ServicePort, kind: str, address: str) -> object:
    return port.name if kind == CLUSTER_IP else (port.name, kind, address)


def _asked(model: Model, host: HostFacts, facts: NodeFacts, ports: Sequence[ServicePort], work: Work) -> _Answers:
    """What the node's rules do with connections to all addresses of a Service, as far as that is known after some
    seconds: to the cluster IP from a pod, to others from outside. Not of what only some sources may reach."""
    inside = asked_rules(model, host, facts.family, ports, _ASKING, work)
    if inside is None:
        return dict(_claimed(facts, ports))
    own = node_addresses_of(model, facts.family).get(host.name, "")
    found: list[Door] = []
    for port in ports:
        for kind, address, number in doors(port)[1:]:
            to = address or own
            if to and not (kind == LOAD_BALANCER_IP and port.load_balancer_source_ranges):
                found.append((_door_key(port, kind, address), join_host_port(to, number), port.protocol.lower()))
    return model.rule_chances.of(host.name, facts.family, found, _ASKING, work.check)


def _claimed(facts: NodeFacts, ports: Sequence[ServicePort]) -> Iterator[tuple[object, Asked]]:
    """What another Service that has endpoints claims, too: who gets it is open until a node's rules are read."""
    for port in ports:
        for kind, address, number in doors(port):
            claim = ServiceAddress(address, port.protocol, number)
            claimants = facts.shared_doors.get(claim, ())
            if any(facts.decided[each.name].has_any for each in claimants if each.name != port.name):
                yield _door_key(port, kind, address), Asked({}, open=claim_in_words(claim, claimants))


def _differing(model: Model, key: str, family: Family, work: Work) -> tuple[list[str], int]:
    """The nodes whose rules give an address of a Service something else than the objects ask for, as far as that is
    known after some seconds, and how many have not been asked by then. Those come first that differ each in a way of
    their own. None of a Service without node ports: its addresses are not a node's."""
    first: dict[object, str] = {}
    others: list[str] = []
    until = time.monotonic() + _LOOKING
    blamed = _audited(model, key)
    for place, name in enumerate(sorted(model.nodes, key=lambda each: each not in blamed)):
        if place and time.monotonic() > until:
            return [*first.values(), *others], len(model.nodes) - place
        host = model.node(name)
        facts = model.rendering.facts(host, family)
        ports = [port for port in facts.service_ports if port.name.service == key]
        if model.known.rendered or not any(port.node_port for port in ports):
            return [], 0
        asked, mode = _asked(model, host, facts, ports, work), model.rendering.mode_of(host)
        fans = [each for port in ports for each in _fan(facts, port, mode, asked, model.owners)]
        if any(each.fault for each in fans):
            way = tuple(
                (each.verdict, *((end.address, end.chance, end.lost) for end in each.endpoints)) for each in fans
            )
            if first.setdefault(way, name) != name:
                others.append(name)
    return [*first.values(), *others], 0


def _audited(model: Model, key: str) -> frozenset[str]:
    """The nodes that the audit names for a Service, if it has been made."""
    if model.audited is None:
        return frozenset()
    return frozenset(
        node
        for each in model.audited.findings
        if any(name.partition(":")[0] == key for name in each.services)
        for node in each.nodes
    )


def _port(facts: NodeFacts, port: ServicePort, mode: str, asked: _Answers, owners: Owners) -> PortPage:
    endpoints, selected = facts.state.endpoints.get(port.name, ()), facts.selected[port.name]
    left = tuple(
        LeftEndpoint(each.address, why, state_of(each), *owners.target(each.ip))
        for each in endpoints
        if (why := why_unused(each, port, selected))
    )
    return PortPage(port.name.port, port.name.protocol, tuple(_fan(facts, port, mode, asked, owners)), left)


def _fan(facts: NodeFacts, port: ServicePort, mode: str, asked: _Answers, owners: Owners) -> Iterator[FanAddress]:
    """The addresses in the order of kube-proxy's rules for a Service: ClusterIP, external and load-balancer IPs, node
    port. Chances are those of rules that were read, where there are any and they could be asked."""
    selected, decided = facts.selected[port.name], facts.decided[port.name]
    for kind, address, number in doors(port):
        inside = kind == CLUSTER_IP
        local = port.internal_policy_local if inside else port.external_policy_local
        served = decided.has_internal if inside else decided.has_external
        chosen = (selected.local if local else selected.cluster) if served else ()
        answer = asked.get(_door_key(port, kind, address))
        ends = tuple(ends_of(facts, port, shares_of(chosen, mode), answer, owners))
        verdict, why = "endpoints" if served else "drop" if decided.has_any else "reject", ""
        by, fault = OBJECTS, ""
        if not served:
            why = decided.why_refused
        if answer is not None and answer.open:
            verdict, why = (verdict, why) if served else ("open", answer.why_open)
        elif answer is not None:
            faults = {each.fault for each in ends}
            by, fault = RULES, next((each for each in (MISSING, REFUSED, LOST, UNUSED, WRONG) if each in faults), "")
            if answer.chances or answer.lost:
                verdict, why = "endpoints", ""
            elif fault in (MISSING, REFUSED):
                stopped = "reject" if answer.refused.startswith("rejected") else "drop"
                verdict, why = fault if fault == MISSING else stopped, ends[0].why
        ranges = port.load_balancer_source_ranges if kind == LOAD_BALANCER_IP else ()
        yield FanAddress(
            kind, address, number, "Local" if local else "Cluster", ", ".join(ranges) or "anywhere", verdict, why, ends,
            by, fault,
        )  # fmt: skip
