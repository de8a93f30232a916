"""The `--html` of other commands: the explorer's page as one file, opened at what the command found.

Each gives what the page's views ask for, in the form of the API's answers (docs/explore.md); the page shows those
views alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from kproxy import __version__
from kproxy.api.kubeproxyconfig.types import KubeProxyConfiguration
from kproxy.api.load.reader import RawObject
from kproxy.cluster.audit.report import AuditReport
from kproxy.cluster.edits import Edited, EditedFiles, by_key
from kproxy.cluster.journey.known import OUTSIDE, KnownNetwork
from kproxy.cluster.journey.network import POD
from kproxy.cluster.journey.path import Journey
from kproxy.cluster.journey.question import PathQuestion
from kproxy.cluster.migrate.report import MigrateReport
from kproxy.cluster.snapshot.cluster import Cluster
from kproxy.cluster.snapshot.files import MemoryFiles
from kproxy.cluster.sources import Kind
from kproxy.dataplane.compare.compare import Comparison, comparison_record
from kproxy.dataplane.compare.difference import Difference
from kproxy.dataplane.model.packet import parse_endpoint
from kproxy.dataplane.query.report import Report
from kproxy.errors import KproxyError
from kproxy.explorer.answers.ask import Answer, Ask, host_answer, journeys_answer
from kproxy.explorer.answers.map import draw_map
from kproxy.explorer.answers.service import service_page
from kproxy.explorer.compare.compare import SideWords, migrate_answer
from kproxy.explorer.compare.findings import Sent, services_at
from kproxy.explorer.export.explore import both_ways
from kproxy.explorer.model.map_data import MapView
from kproxy.explorer.model.model import Model, Work
from kproxy.explorer.model.owners import Doors
from kproxy.explorer.page import page_with
from kproxy.explorer.sources.rendering import ObjectChoices, RenderedCluster
from kproxy.explorer.sources.source import AGAINST, SourceState, StillSource
from kproxy.explorer.state import Explorer
from kproxy.netfilter.address import format_address
from kproxy.netfilter.family import protocol_name
from kproxy.render import Features
from kproxy.render.explain import Explanation
from kproxy.words import counted

MAX_NODES: Final = 200
MAX_SERVICES: Final = 300
"""Of larger clusters the audit's page has no map."""
_SECONDS: Final = 60.0
_OWN_RULES_ALONE: Final = (
    "The findings count the other rules of the node's dump; "
    "the ways of packets are those through kube-proxy's rules alone."
)
_LISTS: Final = ("modes", "families", "namespaces", "warnings", "missing", "notes")


def trace_page(found: Report, label: str, title: str, text: str) -> str:
    """One packet through one host's rules.

    Args:
        label: where the rules are from.
        title: the packet in words.
        text: the answer as `kproxy trace` prints it.
    """
    packet = found.question.packet
    asked = Ask(packet.source, packet.destination, protocol=protocol_name(packet.protocol))
    request = {"from": asked.sender, "to": asked.to, "proto": asked.protocol}
    data = {
        "asks": [
            {
                "request": {"from": asked.sender, "to": asked.to, "protocol": asked.protocol},
                "answer": host_answer(found.question, found.outcomes, found.assumptions, asked),
            }
        ],
    }
    return _page("trace", ("ask", request), title, label, data, text)


def journeys_page(network: KnownNetwork, question: PathQuestion, found: Sequence[Journey], text: str) -> str:
    """A connection's ways over all hosts of a cluster, with the map; of a large one only what is on the ways.

    Args:
        text: the ways as `kproxy trace SNAPSHOT` prints them.
    """
    cluster = network.cluster
    doors = Doors(cluster.manifests.services)
    known = journeys_answer(network, doors, question, found)
    missing: list[str] = []
    home = cluster.pods[question.client.removeprefix(POD)].node if question.client.startswith(POD) else question.client
    node = home if home in cluster.hosts and cluster.hosts[home].has_node else ""
    drawn = _map_of(_model(cluster), missing, node, whole=False)
    if drawn is not None and _is_large(cluster):
        drawn = _on_the_way(drawn, known, doors)
        missing.append(f"Of {cluster.label} this file has the hosts on the way only.")
    asked = {"from": question.client, "to": question.destination, "protocol": question.protocol}
    request = {"from": asked["from"], "to": asked["to"], "proto": asked["protocol"]}
    data = {"map": drawn, "asks": [{"request": asked, "answer": known}], "missing": missing}
    title = f"{question.protocol} {question.client.removeprefix(OUTSIDE)} → {question.destination}"
    return _page("trace", ("ask", request), title, cluster.label, data, text)


def _model(cluster: Cluster) -> Model:
    return Model(SourceState(cluster.label, cluster), 1)


def _map_of(model: Model, missing: list[str], node: str = "", *, whole: bool = True) -> MapView | None:
    """The map as clients on a node have it; None, and why into `missing`, if it cannot be drawn, or if it is to be
    `whole` and is a large cluster's."""
    if whole and _is_large(model.cluster):
        missing.append("There is no map of so large a cluster in this file.")
        return None
    try:
        return draw_map(model, node if node in model.nodes else "", Work(_SECONDS))
    except KproxyError as error:
        missing.append(f"There is no map: {' '.join(str(error).splitlines())}")
        return None


def _is_large(cluster: Cluster) -> bool:
    return len(cluster.hosts) > MAX_NODES or len(cluster.manifests.services) > MAX_SERVICES


def _on_the_way(drawn: MapView, known: Answer, doors: Doors) -> MapView:
    """The part of a map that an answer's ways come by, with the Services at the address that was asked."""
    hops = {hop.host for way in known.journeys for hop in (*way.there, *way.back)}
    on_way = {name if name.startswith((POD, OUTSIDE)) else f"node/{name}" for name in hops}
    pods = tuple(each for each in drawn.pods if each.id in on_way)
    hosts = on_way | {each.node for each in pods}
    asked = parse_endpoint(known.to)
    at = doors.at(format_address(asked.address, asked.family), asked.port or 0, known.protocol)
    names = {f"svc/{each}" for each in at}
    services = tuple(each for each in drawn.services if each.id in names)
    edges = tuple(each for each in drawn.edges if each.service in names)
    nodes = tuple(each for each in drawn.nodes if each.id in hosts)
    return msgspec.structs.replace(drawn, nodes=nodes, pods=pods, services=services, edges=edges)


def audit_page(report: AuditReport, cluster: Cluster, text: str) -> str:
    """What is wrong in a cluster, on its map. `text` is what `kproxy audit` prints."""
    missing: list[str] = []
    data = {"audit": report, "map": _map_of(_model(cluster), missing), "missing": missing}
    return _page("audit", ("audit", {}), report.source, report.source, data, text, created=report.created)


def diff_page(
    found: Comparison,
    labels: Sequence[str],
    text: str,
    sides: Sequence[tuple[SourceState, str] | None] = (None, None),
) -> str:
    """Where two rule sets differ, each difference with both ways of a packet, and the map of sides with objects.

    Args:
        text: what `kproxy diff` prints.
        sides: the cluster that each is of, and the node; None of rules of which that is not known.
    """
    missing: list[str] = []
    models = [None if side is None else Model(side[0], 1) for side in sides]
    named = ["" if side is None else side[1] for side in sides]
    nodes = tuple(dict.fromkeys(filter(None, named)))[:1]
    maps = [None if model is None else _map_of(model, missing, node) for model, node in zip(models, named, strict=True)]
    differences = [each for group in found.findings for each in group]
    record = comparison_record(replace(found, differences=tuple(differences)), labels)
    findings = [
        {
            "nodes": nodes,
            "services": _services_of(item, models),
            "destinations": item.destinations,
            "from": item.sources,
            "conditions": ", ".join(filter(None, (found.family_of(item), item.conditions))),
            "before": item.one,
            "after": item.other,
            "witness": told["witness"],
            "cause": told.get("cause"),
            "ends": item.ends,
            "sourceOnly": item.source_only,
        }
        for item, told in zip(differences, _records(record), strict=True)
    ]
    compared: dict[str, object] = {"kind": "diff", "a": labels[0], "b": labels[1], "findings": findings}
    if found.unexamined:
        more = counted(found.unexamined, "more destination")
        compared["unlisted"] = [f"{more} not listed here (kproxy diff --all lists all)"]
    compared |= {name: record[name] for name in ("alike", "undecided", "remarks")}
    both = None not in maps
    compared["sides"] = [SideWords(labels[0]), SideWords(labels[1], AGAINST if both else "")]
    title = f"{labels[0]} and {labels[1]}"
    against = {"label": labels[1], "warnings": [], "away": ""}
    data = {"compare": compared, "map": maps[0] or maps[1], "missing": list(dict.fromkeys(missing))}
    if both:
        data["maps"] = {AGAINST: maps[1]}
    return _page("diff", ("compare", {"kind": "diff"}), title, labels[0], data, text, against=against)


def _services_of(item: Difference, models: Iterable[Model | None]) -> tuple[str, ...]:
    """The Services that a difference is about, as far as objects are known."""
    sent = Sent.of(item)
    if sent is None:
        return ()
    return tuple(dict.fromkeys(name for model in models if model is not None for name in services_at(model, sent)))


def rendered_state(
    label: str,
    objects: Sequence[RawObject],
    config: KubeProxyConfiguration,
    features: Features,
    mode: str | None = None,
) -> SourceState:
    """What a command rendered rules from, as a cluster; `mode` goes before the configuration's."""
    files = EditedFiles(MemoryFiles(label), Edited(by_key(objects)))
    cluster = RenderedCluster(files, config, ObjectChoices(mode, features))
    cluster.label = label
    return SourceState(label, cluster)


def migrate_page(report: MigrateReport, known: SourceState, text: str) -> str:
    """What changes with the mode, each finding with both ways of a packet, and the cluster's map.

    Args:
        known: the cluster in the mode that it has.
        text: what `kproxy migrate` prints.
    """
    label = known.label
    explorer = Explorer(StillSource(Kind.MANIFESTS, label, lambda: known))
    found, asks, missing = migrate_answer(explorer.model, report), dict[str, object](), list[str]()
    if report.tried:
        missing.append(_OWN_RULES_ALONE)
    drawn: object = None
    if _is_large(explorer.model.cluster):
        missing.append("There is no map of so large a cluster in this file, and no way of a packet.")
    else:
        drawn = draw_map(explorer.model, "", Work(_SECONDS))
        left = both_ways(explorer, found, asks)
        if left:
            missing.append(f"{left} questions that show findings are not answered.")
    data = {"compare": found, "sideAsks": asks, "map": drawn, "missing": missing}
    start = ("compare", {"kind": "migrate"})
    title = f"{label}: from {report.from_} to {report.to} mode"
    return _page("migrate", start, title, label, data, text, compares=["migrate"], modes=(report.from_,))


def _records(record: Mapping[str, object]) -> Sequence[Mapping[str, object]]:
    found = record["differences"]
    assert isinstance(found, list)
    return found


def explain_page(model: Model, key: str, node: str, family: str | None, text: Callable[[Explanation], str]) -> str:
    """What one Service becomes on a node, and who reaches it, with the map of the cluster.

    Args:
        node: "" for the first.
        text: the explanation as `kproxy explain` prints it.

    Raises:
        Refusal: there is no such Service or node.
    """
    work = Work(_SECONDS)
    found = service_page(model, key, work, node, family)
    data = {"services": {key: found}, "map": draw_map(model, node, work)}
    path = f"service/{key}"
    return _page("explain", (path, {}), f"Service {key}", model.known.label, data, text(found.explanation))


def _page(
    command: str,
    start: tuple[str, Mapping[str, object]],
    title: str,
    label: str,
    data: Mapping[str, object],
    text: str,
    **more: object,
) -> str:
    """The file.

    Args:
        command: whose page it is.
        start: path and query of the view that is opened.
        label: of the source.
        data: answers, by the names that an exported file has for them.
        text: the same as text.
        more: of the source.
    """
    none: dict[str, object] = dict.fromkeys(_LISTS, ())
    source = {
        "kind": command,
        "label": label,
        "version": f"kproxy {__version__}",
        "can": {"audit": "audit" in data, "compare": "compare" in data},
        "compares": ["diff"],
        "fixed": True,
        **none,
        **more,
    }
    path, query = start
    held = {"command": command, "start": {"path": path, "query": query}, "title": title, "source": source, **data}
    return page_with(held, f"{title} · kproxy {command}", text)
