"""Who reaches a Service from where: one client of each kind, all of its addresses, and how each connection ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Final

import msgspec

from kproxy.cluster.journey.known import OUTSIDE
from kproxy.cluster.journey.network import POD
from kproxy.cluster.journey.path import ANSWERED, OPEN, Journey
from kproxy.cluster.node import NodeFacts
from kproxy.cluster.services_in_rules import NODE_PORT
from kproxy.cluster.snapshot.host import HostFacts
from kproxy.dataplane import DataplaneError
from kproxy.errors import InputError
from kproxy.explorer.answers.edges import doors
from kproxy.explorer.answers.map import known_client
from kproxy.explorer.answers.shares import percent
from kproxy.explorer.model.model import CLIENT, CLIENT6, Model, Work
from kproxy.explorer.model.owners import Owners
from kproxy.family import join_host_port
from kproxy.netfilter import Family
from kproxy.services.endpoints import Endpoint
from kproxy.services.names import family_of
from kproxy.services.serviceport import ServicePort
from kproxy.words import exact, near

MAX_ADDRESSES: Final = 12
_MOST_NODES: Final = 5
"""Nodes whose node ports have a column."""
_MOST_CLIENTS: Final = 2
"""Nodes whose rules differ that have a client for that alone."""
_MIXED: Final = "mixed"
_OUTSIDE_KIND: Final = "outside"


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
    """What becomes of it: how all ways end, or `mixed`; `meant`: it is not reached from outside, as it should be."""

    end: str
    ways: tuple[MatrixWay, ...]
    reason: str
    meant: bool = False


class Matrix(msgspec.Struct, frozen=True):
    """`left`: nodes whose rules differ from what the objects ask for, and whose node ports have no column; `unasked`:
    so many nodes were not asked whether theirs do."""

    clients: tuple[MatrixClient, ...]
    addresses: tuple[MatrixAddress, ...]
    cells: tuple[tuple[MatrixCell, ...], ...]
    left: tuple[str, ...] = ()
    unasked: int = 0


def matrix_of(
    model: Model,
    host: HostFacts,
    facts: NodeFacts,
    ports: Sequence[ServicePort],
    owners: Owners,
    differing: Sequence[str],
    work: Work,
) -> Matrix:
    """Clients, addresses and cells of a Service's ports, as a node of the view has them.

    Args:
        differing: nodes whose rules do not give what the objects ask for, in the order in which they get columns.

    Raises:
        Refusal: it takes too long.
    """
    used = [each for port in ports for each in facts.selected[port.name].reachable]
    clients = tuple(_clients(model, host.name, facts.family, used, owners, differing))
    homes = list(dict.fromkeys(node.removeprefix("node/") for each in used if (node := owners.target(each.ip)[1])))
    of_nodes = sum(bool(port.node_port) for port in ports)
    others = sum(len(_by_address(port)) for port in ports) - of_nodes
    room = min(_MOST_NODES, max(2, (MAX_ADDRESSES - others) // max(1, of_nodes)))
    nodes, left = _some_nodes(model, host.name, homes, differing, room, facts.family)
    addresses = tuple(_addresses(facts, ports, nodes))[:MAX_ADDRESSES]
    cells = []
    for client in clients:
        row = []
        for address in addresses:
            work.check()
            row.append(_cell(model, client, address))
        cells.append(tuple(row))
    return Matrix(clients, addresses, tuple(cells), left)


def _clients(
    model: Model, node: str, family: Family, used: Sequence[Endpoint], owners: Owners, differing: Sequence[str]
) -> Iterator[MatrixClient]:
    """One client of each kind: what becomes of a packet depends on whether an endpoint is on its node, and is itself
    one; and one on some nodes whose rules differ from what the objects ask for, where none of these is."""
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
    seen = set()
    for kind, pods in kinds:
        # One of the node that is looked from, if there is one.
        for pod in sorted(pods, key=lambda each: each.node != node)[:1]:
            seen.add(pod.node)
            yield MatrixClient(f"{POD}{pod.name}", kind, pod.name)
    for name in [each for each in differing if each not in seen][:_MOST_CLIENTS]:
        for pod in [each for each in own if each.node == name][:1]:
            yield MatrixClient(f"{POD}{pod.name}", f"pod on {name}, whose rules differ", pod.name)
    for kind, nodes in (
        ("node of an endpoint", [name for name in model.nodes if name in homes]),
        ("node without one", [name for name in model.nodes if name not in homes]),
    ):
        for name in sorted(nodes, key=lambda each: each != node)[:1]:
            yield MatrixClient(f"node/{name}", kind, name)
    known = known_client(model)
    if known:
        yield MatrixClient(known, _OUTSIDE_KIND, known.removeprefix("node/"))
        return
    address = CLIENT6 if family is Family.IPV6 else CLIENT
    yield MatrixClient(f"{OUTSIDE}{address}", _OUTSIDE_KIND, address)


def node_addresses_of(model: Model, family: Family) -> dict[str, str]:
    """An address of each node, by its name; "" if there is none of the family."""
    return {
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


def _some_nodes(
    model: Model, node: str, homes: Sequence[str], differing: Sequence[str], room: int, family: Family
) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
    """Nodes for node ports, with their addresses: one with an endpoint and one without, of which one is the node that
    is looked from, and as many that differ as there is room for; and the others that differ."""
    addressed = node_addresses_of(model, family)
    known = sorted((name for name in model.nodes if addressed.get(name)), key=lambda each: each != node)
    chosen = [*[name for name in known if name in homes][:1], *[name for name in known if name not in homes][:1]]
    if len(chosen) == 1 and len(known) > 1:
        chosen.append(next(name for name in known if name not in chosen))
    more = [name for name in differing if name in known and name not in chosen]
    chosen += more[: max(0, room - len(chosen))]
    shown = [(name, addressed[name]) for name in model.nodes if name in chosen]
    return shown, tuple(name for name in model.nodes if name in differing and name not in chosen)


def _addresses(
    facts: NodeFacts, ports: Iterable[ServicePort], nodes: Sequence[tuple[str, str]]
) -> Iterator[MatrixAddress]:
    for port in ports:
        for address, (kind, number) in _by_address(port).items():
            for name, ip in nodes if kind == NODE_PORT else ((None, address),):
                to = join_host_port(ip, number)
                label = f"node port of {name} {to}" if name else f"{kind} {to}"
                yield MatrixAddress(kind, to, f"{label}/{port.protocol}", port.protocol)


def _by_address(port: ServicePort) -> dict[str, tuple[str, int]]:
    """Kind and port number of each address, once; "" is the node port's."""
    return {address: (kind, number) for kind, address, number in doors(port)}


def _cell(model: Model, client: MatrixClient, address: MatrixAddress) -> MatrixCell:
    source = client.id.removeprefix(OUTSIDE) if client.id.startswith(OUTSIDE) else None
    host = client.id.removeprefix("node/") if client.id.startswith("node/") else client.id
    if source is None and host.startswith(POD):
        pod = model.cluster.pods[host.removeprefix(POD)]
        v6 = address.to.startswith("[")
        source = next((each for each in pod.addresses if (":" in each) == v6), None)
    try:
        with model.lock:
            found = model.journeys(host, address.to, address.protocol, source=source)
    except (InputError, DataplaneError) as error:
        return MatrixCell(OPEN, (), str(error))
    cell = _summary(found)
    inside_only = client.kind == _OUTSIDE_KIND and address.kind == "clusterIP"
    return msgspec.structs.replace(cell, meant=inside_only and cell.end not in (ANSWERED, OPEN, _MIXED))


def _summary(found: Sequence[Journey]) -> MatrixCell:
    ways: dict[tuple[str, str, str], Fraction] = {}
    for item in found:
        key = (item.end, item.at, item.source)
        ways[key] = ways.get(key, Fraction(0)) + near(item.probability)
    ends = {item.end for item in found}
    reasons = dict.fromkeys(item.why for item in found if item.reason)
    shown = tuple(
        MatrixWay(end, percent(chance), exact(chance), at, source)
        for (end, at, source), chance in sorted(ways.items(), key=lambda pair: -pair[1])
    )
    return MatrixCell(ends.pop() if len(ends) == 1 else _MIXED, shown, "; ".join(reasons))
