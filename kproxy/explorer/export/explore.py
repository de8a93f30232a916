"""`kproxy explore --export`: the page as one file.

What is in it: the source, the map, each Service's page as the first node sees it, the answers to likely questions, the
audit, and comparisons with both ways of their findings; of two sources the second one's map and Services, too. What is
not in it, it says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from kproxy.api.kubeproxyconfig.types import MODE_IPTABLES, MODE_NFTABLES
from kproxy.cluster.journey.known import OUTSIDE
from kproxy.cluster.sources import Kind
from kproxy.errors import KproxyError
from kproxy.explorer.answers.ask import Ask, answer
from kproxy.explorer.answers.map import draw_map
from kproxy.explorer.answers.reach import MatrixClient
from kproxy.explorer.answers.service import ServicePage, service_names, service_page
from kproxy.explorer.compare.compare import Compare, DiffAnswer, MigrateAnswer, Side, compare_sides
from kproxy.explorer.errors import Refusal
from kproxy.explorer.model.clients import NODE
from kproxy.explorer.model.map_data import MapView
from kproxy.explorer.model.model import Model, Work
from kproxy.explorer.page import encode, page_with
from kproxy.explorer.sources.source import AGAINST, Source
from kproxy.explorer.state import Explorer
from kproxy.family import join_host_port

MAX_SERVICES: Final = 200
MAX_ASKS: Final = 400
MAX_BYTES: Final = 8 << 20
"""Of the answers to questions."""
MAX_SIDE_ASKS: Final = 200
"""Questions that show the findings of comparisons, on both sides."""
_SECONDS: Final = 600.0
_COMPARING: Final = 120.0
"""Seconds for one comparison."""


def export_page(explorer: Explorer) -> str:
    """The file's text.

    Raises:
        Refusal: the page is not there, or the source cannot be read.
    """
    return page_with(export_data(explorer))


def _named(source: Source) -> str:
    """A source as the command line names it."""
    if source.kind is Kind.CLUSTER:
        return f"cluster:{'' if '://' in source.label else source.label}"
    if source.kind is Kind.LAB:
        return f"lab:{source.label.removeprefix('lab ')}"
    return source.label.replace(", ", " ").replace("standard input", "-")


def export_data(explorer: Explorer) -> dict[str, object]:
    """What the file holds, by the names of the endpoints that answer it."""
    model, work = explorer.model, Work(_SECONDS)
    command = f"kproxy explore {_named(explorer.source)}"
    if explorer.against is not None:
        command += f" --against {_named(explorer.against)}"
    missing = [
        "Questions other than those listed, what-if, comparisons of changed copies and the rules that did not match "
        f"need the server: {command}"
    ]
    compared = _comparisons(explorer, missing)
    names = service_names(model)
    services = _pages(model, work, missing)
    asks: list[dict[str, object]] = []
    size = 0
    drawn = _whole_map(model, "", work, missing)
    if len(model.nodes) > 1:
        missing.append(f"Chances are those of clients on {drawn.view}: of other nodes there is the audit.")
    clients = [each.matrix.clients for each in services.values()]
    for asked in _questions(model, clients, names) if model.known.cluster else _questions_of_host(drawn):
        if len(asks) == MAX_ASKS or size > MAX_BYTES:
            missing.append(f"Only {len(asks)} questions are answered.")
            break
        try:
            found = answer(model, asked)
        except Refusal:
            continue
        size += len(encode(found))
        request = {"from": asked.sender, "to": asked.to, "protocol": asked.protocol}
        asks.append({"request": request, "answer": found})
    view = explorer.view()
    held = tuple(kind for kind in view.compares if kind in compared["compares"])
    can = msgspec.structs.replace(view.can, compare=bool(held))
    return {
        "source": msgspec.structs.replace(view, can=can, compares=held),
        "map": drawn,
        "clientMaps": _maps_of_clients(model, drawn, work, missing),
        "services": services,
        "audit": _audit(explorer, work, missing),
        "asks": asks,
        "missing": missing,
        "sideServices": _of_second(explorer, missing),
        **compared,
    }


def _pages(model: Model, work: Work, missing: list[str]) -> dict[str, ServicePage]:
    """The page of each Service as the first node sees it."""
    names = service_names(model)
    if len(names) > MAX_SERVICES:
        missing.append(
            f"Only the first {MAX_SERVICES} of {len(names)} Services of {model.known.label} have their page."
        )
    return {name: service_page(model, name, work) for name in names[:MAX_SERVICES]}


def _of_second(explorer: Explorer, missing: list[str]) -> dict[str, object]:
    """The Services' pages of the second source, by the source."""
    second = explorer.second
    if second is None or second.known.cluster is None:
        return {}
    try:
        return {AGAINST: _pages(second, Work(_SECONDS), missing)}
    except KproxyError as error:
        missing.append(f"Services of {second.known.label} have no page: {' '.join(str(error).splitlines())}")
        return {}


def _comparisons(explorer: Explorer, missing: list[str]) -> dict[str, dict[str, object]]:
    """What the page's view of comparisons asks for: the answers by kind, maps by source, and both ways of findings."""
    compares: dict[str, object] = {}
    maps: dict[str, object] = {}
    asks: dict[str, object] = {}
    large = len(service_names(explorer.model)) > MAX_SERVICES
    for kind in explorer.view().compares:
        if large and kind != "diff":
            missing.append(f"Of so many Services there is no {kind}: kproxy {kind} has it.")
            continue
        asked = _question_of(kind, explorer)
        try:
            one, other = (explorer.state(side.source, side.edits) for side in (asked.a, asked.b))
            found = compare_sides(one, other, asked, Work(_COMPARING))
        except KproxyError as error:
            missing.append(f"There is no {kind}: {' '.join(str(error).splitlines())}")
            continue
        compares[kind] = found
        left = both_ways(explorer, found, asks)
        if left:
            missing.append(f"{left} questions that show findings of {kind} are not answered.")
        for side in found.sides:
            if side.source and not side.edits and side.source not in maps:
                maps[side.source] = draw_map(explorer.state(side.source), "", Work(_COMPARING))
    return {"compares": compares, "maps": maps, "sideAsks": asks}


def _question_of(kind: str, explorer: Explorer) -> Compare:
    """The comparison as the page asks for it."""
    if kind == "diff":
        return Compare(kind, b=Side(AGAINST))
    other = MODE_IPTABLES if MODE_NFTABLES in explorer.view().modes[:1] else MODE_NFTABLES
    return Compare(kind, to=other)


def both_ways(explorer: Explorer, found: DiffAnswer | MigrateAnswer, known: dict[str, object]) -> int:
    """Answers the questions that show the findings on each side, by the question; how many are left."""
    pairs = found.asks if isinstance(found, MigrateAnswer) else [each.asks for each in found.findings]
    left = 0
    for pair in pairs:
        for hint, side in zip(pair, found.sides, strict=True):
            if hint is None:
                continue
            asked = Ask(hint.sender, hint.to, protocol=hint.protocol, source=side.source, edits=side.edits)
            request = {"from": hint.sender, "to": hint.to, "protocol": hint.protocol}
            request |= {"source": side.source} if side.source else {}
            key = encode([request, side.edits]).decode()
            if key in known:
                continue
            if len(known) >= MAX_SIDE_ASKS:
                left += 1
                continue
            try:
                known[key] = answer(explorer.state(side.source, side.edits), asked)
            except Refusal:
                left += 1
    return left


def _questions(model: Model, clients: list[tuple[MatrixClient, ...]], names: tuple[str, ...]) -> Iterator[Ask]:
    """Each kind of client of each Service, to its first port."""
    services = {each.metadata.key: each for each in model.manifests.services}
    for name, mine in zip(names, clients, strict=False):
        for port in services[name].spec.ports:
            for client in mine:
                to = f"nodeport/{name}" if client.kind == "outside" and port.node_port else f"svc/{name}"
                if client.kind == "outside":
                    if not port.node_port or not model.nodes:
                        continue
                    yield Ask(client.id, f"{to}:{port.port}@{model.nodes[0]}", protocol=port.protocol.lower())
                else:
                    yield Ask(client.id, f"{to}:{port.port}", protocol=port.protocol.lower())


def _questions_of_host(drawn: MapView) -> Iterator[Ask]:
    """Of one host's rules: each who may ask to each port of each address. Whose a node port is they do not tell."""
    known = (each.sender if each.id == NODE else f"{OUTSIDE}{each.sender}" for each in drawn.clients)
    senders = dict.fromkeys((*known, *(each.id for each in drawn.outside)))
    for service in drawn.services:
        for port in service.ports:
            for address in (*service.cluster_ips, *service.external_ips, *service.load_balancer_ips):
                for sender in senders:
                    yield Ask(sender, join_host_port(address, port.port), protocol=port.protocol.lower())


def _whole_map(model: Model, node: str, work: Work, missing: list[str]) -> MapView:
    """The map once all rules have been asked, if there is time for that."""
    drawn = draw_map(model, node, work)
    while drawn.pending and work.left > _SECONDS / 2:
        drawn = draw_map(model, node, work)
    if drawn.pending:
        missing.append(
            f"The rules have not been asked for {drawn.pending} ports of Services: nothing is known of these."
        )
    return drawn


def _maps_of_clients(model: Model, drawn: MapView, work: Work, missing: list[str]) -> dict[str, MapView]:
    """Of one host's rules the map of each who may ask."""
    if drawn.clients and len(drawn.services) > MAX_SERVICES:
        missing.append(
            f"Of {len(drawn.services)} Services there is what becomes of packets of the one who fares worst."
        )
        return {}
    return {each.id: _whole_map(model, each.id, work, missing) for each in drawn.clients}


def _audit(explorer: Explorer, work: Work, missing: list[str]) -> object:
    if not explorer.view().can.audit:
        return None
    try:
        return explorer.model.audit(work)
    except KproxyError as error:
        missing.append(f"There is no audit: {error}")
        return None
