"""`kproxy explore --export`: the page as one file.

What is in it: the source, the map, each Service's page as the first node sees it, the answers to likely questions,
and the audit. What is not, it says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kproxy.errors import KproxyError
from kproxy.explorer.ask import Ask, answer
from kproxy.explorer.errors import Refusal
from kproxy.explorer.maps import draw_map
from kproxy.explorer.model import Model, Work
from kproxy.explorer.page import encode, page_with
from kproxy.explorer.services import MatrixClient, ServiceQuery, service_names, service_page
from kproxy.explorer.state import Explorer

MAX_SERVICES: Final = 200
MAX_ASKS: Final = 400
MAX_BYTES: Final = 8 << 20
"""Of the answers to questions."""
_SECONDS: Final = 600.0


def export_page(explorer: Explorer) -> str:
    """The file's text.

    Raises:
        Refusal: the page is not there, or the source cannot be read.
    """
    return page_with(export_data(explorer))


def export_data(explorer: Explorer) -> dict[str, object]:
    """What the file holds, by the names of the endpoints that answer it."""
    model, work = explorer.model, Work(_SECONDS)
    missing = [
        "Questions other than those listed, what-if, comparisons and the rules that did not match need the server: "
        f"kproxy explore {explorer.source.label}"
    ]
    names = service_names(model)
    if len(names) > MAX_SERVICES:
        missing.append(f"Only the first {MAX_SERVICES} of {len(names)} Services have their page.")
    services = {name: service_page(model, name, ServiceQuery(), work) for name in names[:MAX_SERVICES]}
    asks: list[dict[str, object]] = []
    size = 0
    for asked in _questions(model, [each.matrix.clients for each in services.values()], names):
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
    return {
        "source": explorer.view(),
        "map": draw_map(model, "", work),
        "services": services,
        "audit": _audit(explorer, work, missing),
        "asks": asks,
        "missing": missing,
    }


def _questions(model: Model, clients: list[tuple[MatrixClient, ...]], names: tuple[str, ...]) -> Iterator[Ask]:
    """Each kind of client of each Service, to its first port."""
    if model.known.cluster is None:
        return
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


def _audit(explorer: Explorer, work: Work, missing: list[str]) -> object:
    if not explorer.view().can.audit:
        return None
    try:
        from kproxy.explorer.audits import audit_report

        return audit_report(explorer.model, work)
    except KproxyError as error:
        missing.append(f"There is no audit: {error}")
        return None
