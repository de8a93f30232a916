"""One Service as a page: what `kproxy explain` says of it, its addresses in the order in which a packet meets them, the
endpoints that each leads to, those that are left out and why, and who reaches it from where.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Final

import msgspec

from kproxy.api.types.core import Service
from kproxy.cluster.journey.known import OUTSIDE
from kproxy.cluster.journey.network import POD
from kproxy.cluster.journey.path import OPEN, Journey, journeys
from kproxy.cluster.migrate import NodeFacts
from kproxy.cluster.snapshot.host import HostFacts
from kproxy.dataplane import DataplaneError
from kproxy.errors import InputError
from kproxy.explorer.asked import Asked
from kproxy.explorer.chances import exact, percent
from kproxy.explorer.edges import OBJECTS, RULES, address_of, asked_rules, shares_of, state_of
from kproxy.explorer.errors import not_found
from kproxy.explorer.maps import known_client
from kproxy.explorer.model import CLIENT, CLIENT6, Model, Work, family_named
from kproxy.explorer.owners import Owners
from kproxy.family import join_host_port
from kproxy.netfilter import Family
from kproxy.render.explain import Explanation, explain_service
from kproxy.services.endpoints import Endpoint
from kproxy.services.names import family_of
from kproxy.services.serviceport import ServicePort
from kproxy.services.topology import SelectedEndpoints, why_unused

MAX_ADDRESSES: Final = 12
_MIXED: Final = "mixed"
_ASKING: Final = 2.0
"""Seconds that the node's rules are asked for one page."""


class ServiceQuery(msgspec.Struct, frozen=True):
    """Seen from which node, and of which family; "" and None for the first."""

    node: str = ""
    family: str | None = None


class FanEndpoint(msgspec.Struct, frozen=True):
    address: str
    chance: str
    percent: float
    target: str
    node: str
    objects: str = ""


class FanAddress(msgspec.Struct, frozen=True, rename={"sources": "from"}):
    """An address of a port: `verdict` is endpoints, drop or reject; `from` says which sources it takes; `by` and
    `objects` are as on the map."""

    kind: str
    address: str
    port: int
    policy: str
    sources: str
    verdict: str
    why: str
    endpoints: tuple[FanEndpoint, ...]
    by: str = OBJECTS


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


class MatrixClient(msgspec.Struct, frozen=True):
    id: str
    kind: str
    label: str


class MatrixAddress(msgspec.Struct, frozen=True):
    kind: str
    to: str
    label: str
    protocol: str


class MatrixWay(msgspec.Struct, frozen=True):
    end: str
    percent: float
    chance: str
    at: str
    source: str


class MatrixCell(msgspec.Struct, frozen=True):
    """What becomes of it: how all ways end, or `mixed`."""

    end: str
    ways: tuple[MatrixWay, ...]
    reason: str


class Matrix(msgspec.Struct, frozen=True):
    clients: tuple[MatrixClient, ...]
    addresses: tuple[MatrixAddress, ...]
    cells: tuple[tuple[MatrixCell, ...], ...]


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


def service_page(model: Model, key: str, query: ServiceQuery, work: Work) -> ServicePage:
    """One Service, as a node sees it.

    Raises:
        Refusal: there is no such Service or node, or it takes too long.
    """
    service = next((each for each in model.manifests.services if each.metadata.key == key), None)
    if service is None:
        raise not_found(f"there is no Service {key!r}", "service")
    families = _families(service) or model.families
    family = family_named(query.family, families)
    host = model.node(query.node)
    rendering = model.rendering
    facts = rendering.facts(host, family)
    known = rendering.explained(host, family)
    explanation = explain_service(service, known.rendered, model.manifests.endpoint_slices, known.of(key))
    owners = model.owners
    mine = [port for port in facts.service_ports if port.name.service == key]
    mode = rendering.mode_of(host)
    asked = asked_rules(model, host, family, mine, _ASKING, work) or {}
    pages = tuple(_port(facts, port, mode, asked.get(port.name), owners) for port in mine)
    matrix = _matrix(model, host, facts, mine, owners, work)
    return ServicePage(model.revision, explanation, model.nodes, tuple(each.value for each in families), pages, matrix)


def _families(service: Service) -> tuple[Family, ...]:
    return tuple(dict.fromkeys(family_of(ip) for ip in service.spec.cluster_ips if ip != "None"))


# --- the fan ---


def _port(facts: NodeFacts, port: ServicePort, mode: str, asked: Asked | None, owners: Owners) -> PortPage:
    endpoints, selected = facts.state.endpoints.get(port.name, ()), facts.selected[port.name]
    left = tuple(
        LeftEndpoint(each.address, why, state_of(each), *owners.target(each.ip))
        for each in endpoints
        if (why := why_unused(each, port, selected))
    )
    return PortPage(port.name.port, port.name.protocol, tuple(_fan(facts, port, mode, asked, owners)), left)


def _fan(facts: NodeFacts, port: ServicePort, mode: str, asked: Asked | None, owners: Owners) -> Iterator[FanAddress]:
    """The addresses in the order of kube-proxy's rules for a Service: ClusterIP, external and load-balancer IPs, node
    port. Of the ClusterIP the chances are those of rules that were read, where there are any."""
    selected, decided = facts.selected[port.name], facts.decided[port.name]
    external = [("externalIP", ip) for ip in port.external_ips]
    external += [("loadBalancerIP", ip) for ip in port.load_balancer_vips]
    doors = [("clusterIP", port.cluster_ip, port.port), *((kind, ip, port.port) for kind, ip in external)]
    if port.node_port:
        doors.append(("nodePort", "", port.node_port))
    for kind, address, number in doors:
        inside = kind == "clusterIP"
        local = port.internal_policy_local if inside else port.external_policy_local
        served = decided.has_internal if inside else decided.has_external
        chosen = _chosen(selected, local) if served else ()
        shares = shares_of(chosen, mode)
        verdict = "endpoints" if served else "drop" if decided.has_any else "reject"
        by_rules = inside and asked is not None and not asked.open
        found = asked.chances if asked is not None and by_rules else shares
        ranges = port.load_balancer_source_ranges if kind == "loadBalancerIP" else ()
        yield FanAddress(
            kind=kind,
            address=address,
            port=number,
            policy="Local" if local else "Cluster",
            sources=", ".join(ranges) if ranges else "anywhere",
            verdict=verdict,
            why="" if served else decided.why_refused,
            endpoints=tuple(
                _fan_endpoint(each, found.get(each, Fraction(0)), shares.get(each, Fraction(0)), owners)
                for each in dict.fromkeys((*shares, *found))
            ),
            by=RULES if by_rules else OBJECTS,
        )


def _chosen(selected: SelectedEndpoints, local: bool) -> tuple[Endpoint, ...]:
    return selected.local if local else selected.cluster


def _fan_endpoint(address: str, chance: Fraction, wanted: Fraction, owners: Owners) -> FanEndpoint:
    objects = exact(wanted) if wanted != chance else ""
    return FanEndpoint(address, exact(chance), percent(chance), *owners.target(address_of(address)), objects)


# --- who reaches it ---


def _matrix(
    model: Model, host: HostFacts, facts: NodeFacts, ports: Sequence[ServicePort], owners: Owners, work: Work
) -> Matrix:
    used = [each for port in ports for each in facts.selected[port.name].reachable]
    clients = tuple(_clients(model, host.name, facts.family, used, owners))
    homes = list(dict.fromkeys(node.removeprefix("node/") for each in used if (node := owners.target(each.ip)[1])))
    addresses = tuple(_addresses(facts, ports, _two_nodes(model, homes, facts.family)))[:MAX_ADDRESSES]
    cells = []
    for client in clients:
        row = []
        for address in addresses:
            work.check()
            row.append(_cell(model, client, address))
        cells.append(tuple(row))
    return Matrix(clients, addresses, tuple(cells))


def _clients(
    model: Model, node: str, family: Family, used: Sequence[Endpoint], owners: Owners
) -> Iterator[MatrixClient]:
    """One client of each kind: what becomes of a packet depends on whether an endpoint is on its node, and is itself
    one."""
    targets = {owners.target(each.ip)[0] for each in used}
    homes = {owners.target(each.ip)[1].removeprefix("node/") for each in used}
    own = [
        pod
        for _, pod in sorted(model.cluster.pods.items())
        if not pod.host_network
        and pod.phase in ("", "Running")
        and any(family_of(address) is family for address in pod.addresses)
    ]
    kinds = (
        ("an endpoint itself", [pod for pod in own if f"pod/{pod.name}" in targets]),
        ("pod beside an endpoint", [p for p in own if p.node in homes and f"pod/{p.name}" not in targets]),
        ("pod on a node without one", [pod for pod in own if pod.node not in homes and pod.node]),
    )
    for kind, pods in kinds:
        # One of the node that is looked from, if there is one.
        for pod in sorted(pods, key=lambda each: each.node != node)[:1]:
            yield MatrixClient(f"{POD}{pod.name}", kind, pod.name)
    for kind, nodes in (
        ("node of an endpoint", [name for name in model.nodes if name in homes]),
        ("node without one", [name for name in model.nodes if name not in homes]),
    ):
        for name in sorted(nodes, key=lambda each: each != node)[:1]:
            yield MatrixClient(f"node/{name}", kind, name)
    known = known_client(model)
    if known:
        yield MatrixClient(known, "outside", known.removeprefix("node/"))
        return
    address = CLIENT6 if family is Family.IPV6 else CLIENT
    yield MatrixClient(f"{OUTSIDE}{address}", "outside", address)


def _two_nodes(model: Model, homes: Sequence[str], family: Family) -> list[tuple[str, str]]:
    """A node with an endpoint and one without, with their addresses, for node ports."""
    addressed = {
        node.metadata.name: next(
            (
                each.address
                for each in node.addresses
                if each.type in ("InternalIP", "ExternalIP") and family_of(each.address) is family
            ),
            "",
        )
        for node in model.manifests.nodes
    }
    known = [name for name in model.nodes if addressed.get(name)]
    chosen = [*[name for name in known if name in homes][:1], *[name for name in known if name not in homes][:1]]
    if len(chosen) == 1 and len(known) > 1:
        chosen.append(next(name for name in known if name not in chosen))
    return [(name, addressed[name]) for name in chosen]


def _addresses(
    facts: NodeFacts, ports: Iterable[ServicePort], nodes: Sequence[tuple[str, str]]
) -> Iterator[MatrixAddress]:
    for port in ports:
        for door in facts.doors(port):
            kind = "clusterIP" if door.address == port.cluster_ip else "externalIP"
            kind = "loadBalancerIP" if door.address in port.load_balancer_vips else kind
            for name, address in nodes if not door.address else ((None, door.address),):
                to = join_host_port(address, door.port)
                label = f"node port of {name} {to}" if name else f"{kind} {to}"
                yield MatrixAddress("nodePort" if name else kind, to, f"{label}/{port.protocol}", port.protocol)


def _cell(model: Model, client: MatrixClient, address: MatrixAddress) -> MatrixCell:
    source = client.id.removeprefix(OUTSIDE) if client.id.startswith(OUTSIDE) else None
    host = client.id.removeprefix("node/") if client.id.startswith("node/") else client.id
    if source is None and host.startswith(POD):
        pod = model.cluster.pods[host.removeprefix(POD)]
        v6 = address.to.startswith("[")
        source = next((each for each in pod.addresses if (":" in each) == v6), None)
    try:
        with model.lock:
            found = journeys(model.network, host, address.to, address.protocol, source=source)
    except (InputError, DataplaneError) as error:
        return MatrixCell(OPEN, (), str(error))
    return _summary(found)


def _summary(found: Sequence[Journey]) -> MatrixCell:
    ways: dict[tuple[str, str, str], Fraction] = {}
    for item in found:
        key = (item.end, item.at, item.source)
        ways[key] = ways.get(key, Fraction(0)) + item.probability
    ends = {item.end for item in found}
    reasons = dict.fromkeys(item.reason for item in found if item.reason)
    shown = tuple(
        MatrixWay(end, percent(chance), exact(chance), at, source)
        for (end, at, source), chance in sorted(ways.items(), key=lambda pair: -pair[1])
    )
    return MatrixCell(ends.pop() if len(ends) == 1 else _MIXED, shown, "; ".join(reasons))
