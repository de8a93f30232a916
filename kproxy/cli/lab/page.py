"""A lab as one self-contained page: the map of its hosts, the Services, and for each connection its path hop by hop.

It works without scripts too: then all connections stand one below the other. With them, one is chosen at a time and its
path lights up on the map.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from kproxy.cli.lab.page_map import draw_map
from kproxy.cli.lab.page_style import SCRIPT, STYLE
from kproxy.cli.lab.trace import answer_words, journey_words, place_words, rule_words, short
from kproxy.cli.page import page
from kproxy.cluster.journey.path import Hop
from kproxy.lab.capture.dissect import BACK, THERE
from kproxy.lab.cluster import ClusterView, ServiceView
from kproxy.lab.inspect.follow import Followed

_DIRECTIONS: Final = {THERE: "There", BACK: "And back"}


def lab_page(cluster: ClusterView, flows: Sequence[Followed]) -> str:
    about = f"{cluster.ip_family}, {cluster.rules_by}, {cluster.backend}"
    size = f"{len(cluster.nodes)} nodes, {len(cluster.pods)} pods, {len(cluster.services)} Services"
    header = [f"<h1>Lab {escape(cluster.name)}</h1>", f'<p class="sub">{size} · {escape(about)}</p>']
    main = [*_chooser(flows), *draw_map(cluster, flows), *_flows(flows), *_services(cluster.services)]
    return page(f"lab {cluster.name} · kproxy", STYLE, SCRIPT, header, main)


def _title(flow: Followed) -> str:
    return f"{short(flow.client)} → {flow.target.label}"


def _chooser(flows: Sequence[Followed]) -> Iterator[str]:
    if not flows:
        yield '<p class="sub">No Service with endpoints is there yet, so no connection was followed.</p>'
        return
    yield '<nav aria-labelledby="flows"><h2 id="flows">Connections</h2><ol class="chooser">'
    for index, flow in enumerate(flows):
        state = "good" if flow.agrees else "bad"
        verdict = "as the model says" if flow.agrees else "not as the model says"
        service = f"{flow.target.service.removeprefix('default/')} · " if flow.target.service else ""
        yield (
            f'<li><a class="choice {state}" href="#flow-{index}" data-flow="{index}"><b>{escape(service)}'
            f"{escape(_title(flow))}</b><span>{escape(answer_words(flow))}, {verdict}</span></a></li>"
        )
    yield "</ol></nav>"


def _flows(flows: Sequence[Followed]) -> Iterator[str]:
    for index, flow in enumerate(flows):
        yield f'<section class="flow" id="flow-{index}" aria-labelledby="flow-head-{index}" tabindex="-1">'
        yield f'<h2 id="flow-head-{index}">{escape(_title(flow))}</h2>'
        yield '<ul class="ways">'
        for journey in flow.journeys[:12]:
            mine = ' class="taken"' if journey == flow.compared.journey else ""
            yield f"<li{mine}><b>{float(journey.probability):.1%}</b> {escape(journey_words(journey))}</li>"
        if len(flow.journeys) > 12:
            yield f"<li>and {len(flow.journeys) - 12} more</li>"
        yield "</ul>"
        yield from _hops(flow)
        yield from _rules(flow)
        yield "</section>"


def _hops(flow: Followed) -> Iterator[str]:
    for direction, heading in _DIRECTIONS.items():
        pairs = [pair for pair in flow.compared.pairs if (pair[0] or pair[1]).direction == direction]  # type: ignore[union-attr]
        if not pairs:
            continue
        yield f'<h3>{heading}</h3><div class="scroll"><table class="hops"><thead><tr><th scope="col">hop</th>'
        yield '<th scope="col">model</th><th scope="col">captured</th></tr></thead><tbody>'
        for wanted, seen in pairs:
            item = wanted or seen
            assert item is not None
            same = wanted is not None and seen is not None
            words = wanted.words if wanted else "not expected"
            got = seen.words if seen else "not seen"
            yield (
                f'<tr class="{"same" if same else "other"}" data-host="{escape(item.host)}"><th scope="row">'
                f"{escape(place_words(item))}</th><td>{escape(words)}</td><td>{escape(got)}</td></tr>"
            )
        yield "</tbody></table></div>"


def _rules(flow: Followed) -> Iterator[str]:
    hops: Sequence[Hop] = (*flow.compared.journey.there, *flow.compared.journey.back)
    for hop in hops:
        rules = [step for step in hop.outcome.steps if step.kind in ("rule", "translate")]
        if not rules:
            continue
        yield f"<details><summary>{escape(short(hop.host))}: {len(rules)} rules and translations for "
        yield f"{escape(hop.arrived.source)} → {escape(hop.arrived.destination)}</summary><ol class='rules'>"
        for step in rules:
            yield f"<li><span>{escape(step.hook)}</span> <code>{escape(rule_words(step))}</code></li>"
        yield "</ol></details>"


def _services(services: Sequence[ServiceView]) -> Iterator[str]:
    yield '<section aria-labelledby="services"><h2 id="services">Services</h2><div class="scroll"><table>'
    yield "<thead><tr>"
    for name in ("Service", "type", "addresses", "port", "policy", "endpoints"):
        yield f'<th scope="col">{name}</th>'
    yield "</tr></thead><tbody>"
    for service in services:
        addresses = " ".join((*service.cluster_ips, *service.external_ips, *service.load_balancer_ips))
        policy = f"internal {service.internal_policy}"
        if service.is_external:
            policy += f", external {service.external_policy}"
        if service.affinity != "None":
            policy += f", affinity {service.affinity}"
        for port in service.ports:
            node_port = f" · node port {port.node_port}" if port.node_port else ""
            ready = sum(item.ready for item in port.endpoints)
            cells = (
                service.type,
                addresses,
                f"{port.port}/{port.protocol.lower()}{node_port}",
                policy,
                f"{ready} ready of {len(port.endpoints)}",
            )
            row = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
            yield f'<tr><th scope="row">{escape(service.key)}</th>{row}</tr>'
    yield "</tbody></table></div></section>"
