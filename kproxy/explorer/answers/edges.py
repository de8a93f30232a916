"""Where Services lead: each endpoint with its exact chance, as a client on a node has it.

Of rules that were read, dumps' and a lab's, the chances are what the model says of these rules (`asked`); where the
objects ask for something else, that is said. Of rules that are made from objects they follow from the objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final

from kproxy.cluster.journey.known import OUTSIDE
from kproxy.cluster.node import NodeFacts
from kproxy.cluster.services_in_rules import CLUSTER_IP, EXTERNAL_IP, LOAD_BALANCER_IP, NODE_PORT
from kproxy.cluster.services_in_rules import Door as ToldDoor
from kproxy.cluster.snapshot.host import HostFacts
from kproxy.explorer.answers.shares import LOST, chances, ends_of, percent, state_of, whose, why_not
from kproxy.explorer.model.clients import Client
from kproxy.explorer.model.map_data import EdgeView, UnreachedView
from kproxy.explorer.model.model import Model, Work
from kproxy.explorer.model.rule_chances import Asked, Door, refuses_as_kube_proxy
from kproxy.family import host_of, join_host_port
from kproxy.netfilter import Family
from kproxy.services.endpoints import Endpoint
from kproxy.services.serviceport import ServicePort
from kproxy.words import exact

ASKING: Final = 0.15
"""Seconds that rules are asked for one map; what is not known by then is, as a rule, soon after (`Worker`)."""
RULES: Final = "rules"
OBJECTS: Final = "objects"


def edges_of(model: Model, view: HostFacts, family: Family, work: Work) -> tuple[list[EdgeView], int]:
    """The edges of all Services, and how many of their ports have not been asked yet.

    Raises:
        Refusal: it takes too long.
    """
    work.check()
    facts = model.rendering.facts(view, family)
    mode = model.rendering.mode_of(view)
    known = asked_rules(model, view, family, facts.service_ports, ASKING, work)
    edges: list[EdgeView] = []
    pending = 0
    for port in facts.service_ports:
        asked = None if known is None else known.get(port.name)
        pending += known is not None and asked is None
        edges += _port_edges(model, facts, port, mode, family, asked)
    return edges, pending


def asked_rules(
    model: Model, view: HostFacts, family: Family, ports: Sequence[ServicePort], seconds: float, work: Work
) -> Mapping[object, Asked] | None:
    """What the node's rules say of ServicePorts, by their names, as far as that is known after some seconds. None if
    they are made from the objects, and so say nothing else."""
    if model.known.rendered:
        return None
    inside: Iterator[Door] = (
        (port.name, join_host_port(port.cluster_ip, port.port), port.protocol.lower()) for port in ports
    )
    return model.rule_chances.of(view.name, family, inside, seconds, work.check)


def _port_edges(
    model: Model, facts: NodeFacts, port: ServicePort, mode: str, family: Family, asked: Asked | None
) -> Sequence[EdgeView]:
    endpoints = facts.state.endpoints.get(port.name, ())
    varies = port.internal_policy_local or any(each.zone_hints or each.node_hints for each in endpoints)
    if asked is not None or varies or port.uses_local_endpoints:
        return tuple(_edges(model, facts, port, mode, family, asked, varies))
    key = (port.name, family, mode)
    found = model.edges.get(key)
    if found is None:
        found = model.edges[key] = tuple(_edges(model, facts, port, mode, family, asked, varies))
    return found


def _edges(
    model: Model, facts: NodeFacts, port: ServicePort, mode: str, family: Family, asked: Asked | None, varies: bool
) -> Iterator[EdgeView]:
    """The edges as the objects ask for them, or as rules have them that were asked."""
    selected = facts.selected[port.name]
    known = {each.address: each for each in facts.state.endpoints.get(port.name, ())}
    used = shares_of(selected.local if port.internal_policy_local else selected.cluster, mode)
    by = OBJECTS if asked is None or asked.open else RULES
    for end in ends_of(facts, port, dict.fromkeys(known, Fraction(0)) | used, asked, model.owners):
        each = known.get(end.address)
        why = end.why or (why_not(each, port, selected) if each is not None and not end.used else "")
        yield EdgeView(
            f"svc/{port.name.service}", port.name.port, port.name.protocol, family.value, end.address, end.target,
            end.node, whose(model.owners, end.address)[2] if each is None else state_of(each), end.used, why,
            end.chance, end.percent, varies, by, end.objects, end.fault, end.lost,
        )  # fmt: skip


def shares_of(endpoints: Sequence[Endpoint], mode: str) -> dict[str, Fraction]:
    """The chance of each endpoint, in the order in which rules choose."""
    return dict(zip((each.address for each in endpoints), chances(len(endpoints), mode), strict=True))


def doors(port: ServicePort) -> list[tuple[str, str, int]]:
    """Kind, address ("" of a node port) and port number of each address, in the order in which rules have them."""
    external = [(EXTERNAL_IP, ip) for ip in port.external_ips]
    external += [(LOAD_BALANCER_IP, ip) for ip in port.load_balancer_vips]
    found = [(CLUSTER_IP, port.cluster_ip, port.port), *((kind, ip, port.port) for kind, ip in external)]
    return [*found, (NODE_PORT, "", port.node_port)] if port.node_port else found


# --- one host's rules ---


def told_of(
    model: Model, client: str, work: Work
) -> tuple[tuple[EdgeView, ...], tuple[UnreachedView, ...], int, Mapping[str | Family, Client]]:
    """Where the Services lead that a dump tells of, the ports that lead nowhere, how many ports have not been asked
    yet, and for each Service and family who asks where it is worst, unless all fare alike.

    Args:
        client: who asks; "": of each port the one for whom it is worst.

    Raises:
        Refusal: there is no such client.
    """
    edges: list[EdgeView] = []
    unreached: list[UnreachedView] = []
    pending = 0
    worst: dict[str | Family, tuple[tuple[int, Fraction], Client]] = {}
    for family in model.families:
        told = told_doors(model, family)
        clients = [each for each in model.clients(family) if client in ("", each.id)]
        asked = [(each, model.rule_chances.of(each.id, family, told, ASKING, work.check)) for each in clients]
        for door, _, _ in told:
            mine = [(each, known[door]) for each, known in asked if door in known]
            if len(mine) < len(clients):
                pending += 1
            if mine:
                sender, answer = min(mine, key=lambda pair: _how_good(pair[1]))
                unreached += _unreached(door, answer)
                alike = all(each == answer for _, each in mine)
                for key in () if alike else (door.service, family):
                    fares = _how_good(answer), sender
                    worst[key] = min(worst.get(key, fares), fares, key=lambda pair: pair[0])
                edges += _told_edges(door, answer, "" if alike else sender.label)
    return tuple(edges), tuple(unreached), pending, {key: sender for key, (_, sender) in worst.items()}


def _how_good(asked: Asked) -> tuple[int, Fraction]:
    """The better, the greater: what is lost or refused is worse than what is not known."""
    answered = sum(asked.chances.values(), Fraction(0))
    if asked.open:
        return 1, answered
    return (2, answered) if answered == 1 or _has_none(asked) else (0, answered)


def _has_none(asked: Asked) -> bool:
    """Whether kube-proxy's own rules refuse, since there is no endpoint."""
    return not (asked.chances or asked.lost or asked.untranslated) and refuses_as_kube_proxy(asked.refused)


def told_doors(model: Model, family: Family) -> list[tuple[ToldDoor, str, str]]:
    """The ClusterIPs that a dump tells of, as `RuleChances` is asked for them."""
    return [
        (door, join_host_port(door.address, door.number), door.protocol.lower())
        for door in model.told
        if door.kind == CLUSTER_IP and door.family is family
    ]


def _told_edges(door: ToldDoor, asked: Asked, sender: str) -> Iterator[EdgeView]:
    """The edges of a port; `sender`: of whom, where not all fare alike."""
    whose_packets = f", of {sender}" if sender else ""
    for address in sorted({*asked.chances, *asked.lost}):
        chance, lost = asked.chances.get(address, Fraction(0)), asked.lost.get(address)
        why = f"{asked.why_lost[address]}{whose_packets}" if lost else ""
        yield EdgeView(
            f"svc/{door.service}", door.port, door.protocol, door.family.value, address,
            f"{OUTSIDE}{host_of(address)}", "", "", bool(chance), why, exact(chance), percent(chance), bool(sender),
            RULES, fault=LOST if lost else "", lost=exact(lost) if lost else "",
        )  # fmt: skip


def _unreached(door: ToldDoor, asked: Asked) -> Iterator[UnreachedView]:
    """What is to be said of a port for which no endpoint is chosen; nothing if it has none."""
    if asked.chances or asked.lost or not (asked.open or asked.untranslated or asked.refused) or _has_none(asked):
        return
    passed = "not translated: packets go on to the Service's address" if asked.untranslated else ""
    yield UnreachedView(
        f"svc/{door.service}", door.port, door.protocol, door.family.value, asked.open, passed or asked.refused
    )
