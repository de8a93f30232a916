"""Where Services lead: each endpoint with its exact chance, as a client on a node has it.

Of rules that were read, dumps' and a lab's, the chances are what the model says of these rules (`asked`); where the
objects ask for something else, that is said. Of rules that are made from objects they follow from the objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final

import msgspec

from kproxy.cluster.journey.known import OUTSIDE
from kproxy.cluster.node import NodeFacts
from kproxy.cluster.services_in_rules import CLUSTER_IP
from kproxy.cluster.services_in_rules import Door as ToldDoor
from kproxy.cluster.snapshot.host import HostFacts
from kproxy.explorer.model.chances import chances, percent, shown_chances
from kproxy.explorer.model.clients import Client
from kproxy.explorer.model.faults import LOST, NOBODY, NOT_THERE, Share, share_of
from kproxy.explorer.model.map_data import EdgeView, UnreachedView
from kproxy.explorer.model.model import Model, Work
from kproxy.explorer.model.owners import Owners
from kproxy.explorer.model.rule_chances import Asked, Door, refuses_as_kube_proxy
from kproxy.family import host_of, join_host_port
from kproxy.netfilter import Family
from kproxy.services.endpoints import Endpoint
from kproxy.services.serviceport import ServicePort
from kproxy.services.topology import SelectedEndpoints, why_unused
from kproxy.words import exact

ASKING: Final = 0.15
"""Seconds that rules are asked for one map; what is not known by then is, as a rule, soon after (`Worker`)."""
RULES: Final = "rules"
OBJECTS: Final = "objects"
_NO_CHANCE: Final = (Fraction(0), exact(Fraction(0)), 0.0)


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
    doors: Iterator[Door] = (
        (port.name, join_host_port(port.cluster_ip, port.port), port.protocol.lower()) for port in ports
    )
    return model.rule_chances.of(view.name, family, doors, seconds, work.check)


def _port_edges(
    model: Model, facts: NodeFacts, port: ServicePort, mode: str, family: Family, asked: Asked | None
) -> Sequence[EdgeView]:
    endpoints = facts.state.endpoints.get(port.name, ())
    varies = port.internal_policy_local or any(each.zone_hints or each.node_hints for each in endpoints)
    if asked is None and not varies and not port.uses_local_endpoints:
        key = (port.name, family, mode)
        found = model.edges.get(key)
        if found is None:
            found = model.edges[key] = tuple(_by_objects(model, facts, port, mode, family, varies))
        return found
    if asked is None:
        return tuple(_by_objects(model, facts, port, mode, family, varies))
    return tuple(_by_rules(model, facts, port, mode, family, asked, varies))


def _by_objects(
    model: Model, facts: NodeFacts, port: ServicePort, mode: str, family: Family, varies: bool
) -> Iterator[EdgeView]:
    """The edges as the objects ask for them."""
    selected, owners = facts.selected[port.name], model.owners
    used = selected.local if port.internal_policy_local else selected.cluster
    shares = dict(zip((each.address for each in used), shown_chances(len(used), mode), strict=True))
    for each in facts.state.endpoints.get(port.name, ()):
        address = each.address
        share = shares.get(address)
        _, shown, percents = share or _NO_CHANCE
        edge = _edge(port, family, address, *owners.target(each.ip), state_of(each), varies=varies)
        why = "" if share is not None else why_not(each, port, selected)
        yield msgspec.structs.replace(edge, used=share is not None, why=why, chance=shown, percent=percents)


def _edge(
    port: ServicePort, family: Family, endpoint: str, target: str, node: str, state: str, *, varies: bool
) -> EdgeView:
    """An edge that gets nothing."""
    return EdgeView(
        service=f"svc/{port.name.service}", port=port.name.port, protocol=port.name.protocol, family=family.value,
        endpoint=endpoint, target=target, node=node, state=state, used=False, why="", chance=_NO_CHANCE[1],
        percent=0.0, varies=varies,
    )  # fmt: skip


def _by_rules(
    model: Model, facts: NodeFacts, port: ServicePort, mode: str, family: Family, asked: Asked, varies: bool
) -> Iterator[EdgeView]:
    """The edges as rules have them that were asked, also to endpoints that only the rules know."""
    wanted = {each.endpoint: each for each in _by_objects(model, facts, port, mode, family, varies)}
    chances = {address: Fraction(each.chance) for address, each in wanted.items()}
    for address, share in shares_by_rules(facts, port, chances, asked, model.owners):
        edge = wanted.get(address) or _edge(port, family, address, *whose(model.owners, address), varies=varies)
        if asked.open:
            yield msgspec.structs.replace(edge, why=asked.why_open)
            continue
        chance = exact(share.chance)
        yield msgspec.structs.replace(
            edge,
            used=bool(share.chance),
            why=share.why if share.fault else "" if share.chance else edge.why,
            chance=chance,
            percent=percent(share.chance),
            by=RULES,
            objects=edge.chance if edge.chance != chance else "",
            fault=share.fault,
            lost=exact(share.lost) if share.lost else "",
        )


def shares_by_rules(
    facts: NodeFacts, port: ServicePort, wanted: Mapping[str, Fraction], asked: Asked, owners: Owners
) -> Iterator[tuple[str, Share]]:
    """What each endpoint gets of rules that were asked, also those that only the rules choose; `wanted`: the chances
    that the objects ask for."""
    known = {each.address: each for each in facts.state.endpoints.get(port.name, ())}
    selected = facts.selected[port.name]
    for address in dict.fromkeys((*wanted, *asked.chances, *asked.lost)):
        each = known.get(address)
        why = whose(owners, address)[2] if each is None else _left_out(why_not(each, port, selected))
        yield address, share_of(address, asked, wanted.get(address, Fraction(0)), facts.target.node_name, why)


def whose(owners: Owners, endpoint: str) -> tuple[str, str, str]:
    """Of an endpoint that only rules know: what has its address, the node that it is on, and what it is."""
    address = host_of(endpoint)
    target, node = owners.target(address)
    nobody = owners.pod_network_of(address)
    return target, nobody or node, NOBODY if nobody else NOT_THERE


def shares_of(endpoints: Sequence[Endpoint], mode: str) -> dict[str, Fraction]:
    """The chance of each endpoint, in the order in which rules choose."""
    return dict(zip((each.address for each in endpoints), chances(len(endpoints), mode), strict=True))


def state_of(endpoint: Endpoint) -> str:
    """An endpoint's conditions in words."""
    if endpoint.ready and not endpoint.terminating:
        return "ready"
    conditions = (("ready", endpoint.ready), ("serving", endpoint.serving and not endpoint.ready))
    names = [name for name, holds in (*conditions, ("terminating", endpoint.terminating)) if holds]
    return ", ".join(names) or "not ready"


def why_not(endpoint: Endpoint, port: ServicePort, selected: SelectedEndpoints) -> str:
    """Why an endpoint gets nothing that is sent to the ClusterIP from the node."""
    return why_unused(endpoint, port, selected) or "on another node, and the internal traffic policy is Local"


def _left_out(why: str) -> str:
    """Why an endpoint should not get what rules send to it."""
    return f"should get none: {why}" if why else ""


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
        doors = told_doors(model, family)
        clients = [each for each in model.clients(family) if client in ("", each.id)]
        asked = [(each, model.rule_chances.of(each.id, family, doors, ASKING, work.check)) for each in clients]
        for door, _, _ in doors:
            mine = [(each, known[door]) for each, known in asked if door in known]
            if len(mine) < len(clients):
                pending += 1
            if mine:
                sender, answer = min(mine, key=lambda pair: _how_good(pair[1]))
                unreached += _unreached(door, answer)
                alike = all(each == answer for _, each in mine)
                for key in () if alike else (door.service, family):
                    told = _how_good(answer), sender
                    worst[key] = min(worst.get(key, told), told, key=lambda pair: pair[0])
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
        ip, chance = host_of(address), asked.chances.get(address, Fraction(0))
        lost = asked.lost.get(address)
        yield EdgeView(
            service=f"svc/{door.service}",
            port=door.port,
            protocol=door.protocol,
            family=door.family.value,
            endpoint=address,
            target=f"{OUTSIDE}{ip}",
            node="",
            state="",
            used=bool(chance),
            why=f"{asked.why_lost[address]}{whose_packets}" if lost else "",
            chance=exact(chance),
            percent=percent(chance),
            varies=bool(sender),
            by=RULES,
            fault=LOST if lost else "",
            lost=exact(lost) if lost else "",
        )


def _unreached(door: ToldDoor, asked: Asked) -> Iterator[UnreachedView]:
    """What is to be said of a port for which no endpoint is chosen; nothing if it has none."""
    if asked.chances or asked.lost or not (asked.open or asked.untranslated or asked.refused) or _has_none(asked):
        return
    passed = "not translated: packets go on to the Service's address" if asked.untranslated else ""
    yield UnreachedView(
        f"svc/{door.service}", door.port, door.protocol, door.family.value, asked.open, passed or asked.refused
    )
