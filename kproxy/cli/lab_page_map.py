"""The map of a lab, as SVG: the client, the fabric, the nodes with their pods, and the path of each connection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from typing import Final, NamedTuple

from kproxy.cli.lab_trace import short
from kproxy.lab.cluster import ClusterView, NodeView, PodView
from kproxy.lab.follow import Followed
from kproxy.lab.model.hosts import POD
from kproxy.lab.model.path import Hop
from kproxy.lab.plan import CLIENT, FABRIC

_WIDTH: Final = 1060
_COLUMNS: Final = 3
_GAP: Final = 20
_POD_HEIGHT: Final = 30
_HEAD: Final = 62
_TOP: Final = 150


class Box(NamedTuple):
    """A host on the map."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> tuple[float, float]:
        return self.x + self.width / 2, self.y + self.height / 2


def boxes(cluster: ClusterView) -> dict[str, Box]:
    """Where each host is."""
    found = {CLIENT: Box(_GAP, 14, 210, 52), FABRIC: Box(_GAP, 96, _WIDTH - 2 * _GAP, 30)}
    columns = min(_COLUMNS, max(1, len(cluster.nodes)))
    width = (_WIDTH - _GAP * (columns + 1)) / columns
    y = float(_TOP)
    for start in range(0, len(cluster.nodes), columns):
        row = cluster.nodes[start : start + columns]
        most = max(len(_pods(cluster, node.name)) for node in row)
        height = _HEAD + _POD_HEIGHT * max(1, most) + 10
        for column, node in enumerate(row):
            x = _GAP + column * (width + _GAP)
            found[node.name] = Box(x, y, width, height)
            for place, pod in enumerate(_pods(cluster, node.name)):
                found[f"{POD}{pod.key}"] = Box(x + 12, y + _HEAD + place * _POD_HEIGHT, width - 24, _POD_HEIGHT - 6)
        y += height + 26
    return found


def _pods(cluster: ClusterView, node: str) -> list[PodView]:
    return [pod for pod in cluster.pods if pod.node == node]


def draw_map(cluster: ClusterView, flows: Sequence[Followed]) -> Iterator[str]:
    """The figure."""
    places = boxes(cluster)
    height = max(box.y + box.height for box in places.values()) + 20
    yield f'<figure class="map"><svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img" aria-labelledby="map-title">'
    words = f"{len(cluster.nodes)} nodes on one fabric, with {len(cluster.pods)} pods, and a client outside"
    yield f'<title id="map-title">{escape(words)}</title>'
    yield (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="11" markerHeight="11" '
        'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>'
    )
    fabric = places[FABRIC]
    for name in (CLIENT, *(node.name for node in cluster.nodes)):
        box = places[name]
        x = box.middle[0]
        near = box.y + box.height if name == CLIENT else box.y
        far = fabric.y if name == CLIENT else fabric.y + fabric.height
        down = name != CLIENT and not cluster.node(name).link
        yield f'<path class="cable{" down" if down else ""}" d="M{x:.0f} {near:.0f}V{far:.0f}"/>'
    yield _host(CLIENT, places[CLIENT], "client outside", " ".join(cluster.client), "outside")
    yield _host(FABRIC, fabric, "fabric", "", "fabric")
    for node in cluster.nodes:
        yield from _node(cluster, node, places)
    for number, flow in enumerate(flows):
        yield from _path(number, flow, places)
    yield "</svg></figure>"


def _host(name: str, box: Box, title: str, below: str, kind: str) -> str:
    x, y = box.middle
    first = y + 5 if not below else y - 3
    text = f'<text x="{x:.0f}" y="{first:.0f}">{escape(title)}</text>'
    if below:
        text += f'<text class="small" x="{x:.0f}" y="{y + 14:.0f}">{escape(below)}</text>'
    return (
        f'<g class="host {kind}" data-host="{escape(name)}"><rect x="{box.x:.0f}" y="{box.y:.0f}" '
        f'width="{box.width:.0f}" height="{box.height:.0f}" rx="9"/>{text}</g>'
    )


def _node(cluster: ClusterView, node: NodeView, places: dict[str, Box]) -> Iterator[str]:
    box = places[node.name]
    kind = "node" if node.ready else "node bad"
    x = box.x + 14
    yield (
        f'<g class="host {kind}" data-host="{escape(node.name)}"><rect x="{box.x:.0f}" y="{box.y:.0f}" '
        f'width="{box.width:.0f}" height="{box.height:.0f}" rx="9"/>'
        f'<text class="left" x="{x:.0f}" y="{box.y + 23:.0f}">{escape(node.name)}'
        f"{'' if node.ready else ' · not ready'}</text>"
        f'<text class="left small" x="{x:.0f}" y="{box.y + 39:.0f}">{escape(" ".join(node.addresses))}</text>'
        f'<text class="left small" x="{x:.0f}" y="{box.y + 54:.0f}">pods {escape(" ".join(node.pod_cidrs))}</text></g>'
    )
    for pod in _pods(cluster, node.name):
        chip = places[f"{POD}{pod.key}"]
        state = "" if pod.ready else " bad"
        address = pod.addresses[0] if pod.addresses else "no address"
        name = short(pod.key)
        shown = name if len(name) < 27 else f"{name[:12]}…{name[-12:]}"
        yield (
            f'<g class="host pod{state}" data-host="{escape(f"{POD}{pod.key}")}"><title>{escape(pod.key)}</title>'
            f'<rect x="{chip.x:.0f}" y="{chip.y:.0f}" width="{chip.width:.0f}" height="{chip.height:.0f}" rx="6"/>'
            f'<text class="left" x="{chip.x + 9:.0f}" y="{chip.y + 16:.0f}">{escape(shown)}</text>'
            f'<text class="right small" x="{chip.x + chip.width - 9:.0f}" y="{chip.y + 16:.0f}">{escape(address)}'
            "</text></g>"
        )


def _path(number: int, flow: Followed, places: dict[str, Box]) -> Iterator[str]:
    """The connection's way there, with a number at every host that it stops at."""
    hops = [hop for hop in flow.compared.journey.there if hop.host in places]
    points = [_point(hop, places) for hop in hops]
    for place, hop in enumerate(hops):
        if hop.host == FABRIC and place + 1 < len(hops):
            # Over the next host, so that the line does not cross others.
            points[place] = (points[place + 1][0], points[place][1])
    yield f'<g class="path" id="path-{number}">'
    for one, other in pairwise(points):
        if one != other:
            line = f"M{one[0]:.0f} {one[1]:.0f}L{other[0]:.0f} {other[1]:.0f}"
            yield f'<path class="way" d="{line}" marker-end="url(#tip)"/>'
    taken: dict[tuple[float, float], int] = {}
    for place, (x, y) in enumerate(points, 1):
        shift = taken.setdefault((x, y), 0)
        taken[x, y] += 1
        yield f'<circle cx="{x + shift * 22:.0f}" cy="{y:.0f}" r="10"/>'
        yield f'<text class="number" x="{x + shift * 22:.0f}" y="{y + 4:.0f}">{place}</text>'
    yield "</g>"


def _point(hop: Hop, places: dict[str, Box]) -> tuple[float, float]:
    box = places[hop.host]
    if hop.host == FABRIC:
        return box.x + box.width - 90, box.middle[1]
    if hop.host == CLIENT:
        return box.x + box.width - 24, box.middle[1]
    if hop.host.startswith(POD):
        return box.x + box.width * 0.55, box.middle[1]
    return box.x + box.width - 26, box.y + 24
