"""The map of a lab, as SVG: the client, the fabric, the nodes with their pods, and the path of each connection.

Each host has a line at its right edge on which its cable, its number and its pods' numbers lie. Cables of the first row
go straight up to the fabric, those of lower rows beside the column, so that none touches another node. Paths follow the
cables: between two nodes they cross the fabric, whether it routes or only bridges there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from typing import Final, NamedTuple

from kproxy.cli.lab.trace import short
from kproxy.cluster.journey.network import POD
from kproxy.cluster.journey.path import LOST, UNREACHABLE, Hop
from kproxy.dataplane import ACCEPT
from kproxy.lab.cluster import ClusterView, NodeView, PodView
from kproxy.lab.inspect.follow import Followed
from kproxy.lab.spec import CLIENT, FABRIC
from kproxy.netfilter.address import format_address

_WIDTH: Final = 1060
_COLUMNS: Final = 3
_GAP: Final = 20
_POD_HEIGHT: Final = 30
_HEAD: Final = 62
_TOP: Final = 150
_EDGE: Final = 24
"""From a host's right edge to its line."""
_BETWEEN: Final = 26
"""Between two rows of nodes."""
_APART: Final = 4
"""Between two cables beside one column."""

Point = tuple[float, float]


class Box(NamedTuple):
    """A host's rectangle on the map, in pixels."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> Point:
        return self.x + self.width / 2, self.y + self.height / 2

    @property
    def line(self) -> float:
        """Where its cable and its numbers are."""
        return self.x + self.width - _EDGE


def boxes(cluster: ClusterView) -> dict[str, Box]:
    """Where each host is drawn, by its name."""
    found = {CLIENT: Box(_GAP, 14, 210, 52), FABRIC: Box(_GAP, 96, _WIDTH - _GAP - 2, 30)}
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
            for index, pod in enumerate(_pods(cluster, node.name)):
                found[f"{POD}{pod.key}"] = Box(x + 12, y + _HEAD + index * _POD_HEIGHT, width - 24, _POD_HEIGHT - 6)
        y += height + _BETWEEN
    return found


def _pods(cluster: ClusterView, node: str) -> list[PodView]:
    return [pod for pod in cluster.pods if pod.node == node]


def draw_map(cluster: ClusterView, flows: Sequence[Followed]) -> Iterator[str]:
    drawn_at = boxes(cluster)
    height = max(box.y + box.height for box in drawn_at.values()) + 20
    yield f'<figure class="map"><svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img" aria-labelledby="map-title">'
    words = f"{len(cluster.nodes)} nodes on one fabric, with {len(cluster.pods)} pods, and a client outside"
    yield f'<title id="map-title">{escape(words)}</title>'
    yield (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="11" markerHeight="11" '
        'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>'
    )
    for name in (CLIENT, *(node.name for node in cluster.nodes)):
        down = name != CLIENT and not cluster.node(name).link
        kind, drawn = "cable down" if down else "cable", _drawn(cable(drawn_at, name))
        yield f'<path class="{kind}" data-cable="{escape(name)}" d="{drawn}"/>'
    yield _host(CLIENT, drawn_at[CLIENT], "client outside", " ".join(cluster.client), "outside")
    yield _host(FABRIC, drawn_at[FABRIC], "fabric", "", "fabric")
    for node in cluster.nodes:
        yield from _node(cluster, node, drawn_at)
    for number, flow in enumerate(flows):
        yield from _path(number, flow, cluster, drawn_at)
    yield "</svg></figure>"


def _host(name: str, box: Box, title: str, below: str, kind: str) -> str:
    x, y = box.middle
    if name == FABRIC:
        x = box.x + 50  # left of all cables
    first = y + 5 if not below else y - 3
    text = f'<text x="{x:.0f}" y="{first:.0f}">{escape(title)}</text>'
    if below:
        text += f'<text class="small" x="{x:.0f}" y="{y + 14:.0f}">{escape(below)}</text>'
    return (
        f'<g class="host {kind}" data-host="{escape(name)}"><rect x="{box.x:.0f}" y="{box.y:.0f}" '
        f'width="{box.width:.0f}" height="{box.height:.0f}" rx="9"/>{text}</g>'
    )


def _node(cluster: ClusterView, node: NodeView, drawn_at: dict[str, Box]) -> Iterator[str]:
    box = drawn_at[node.name]
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
        chip = drawn_at[f"{POD}{pod.key}"]
        state = "" if pod.ready else " bad"
        address = pod.addresses[0] if pod.addresses else "no address"
        name = short(pod.key)
        shown = name if len(name) < 27 else f"{name[:12]}…{name[-12:]}"
        yield (
            f'<g class="host pod{state}" data-host="{escape(f"{POD}{pod.key}")}"><title>{escape(pod.key)}</title>'
            f'<rect x="{chip.x:.0f}" y="{chip.y:.0f}" width="{chip.width:.0f}" height="{chip.height:.0f}" rx="6"/>'
            f'<text class="left" x="{chip.x + 9:.0f}" y="{chip.y + 16:.0f}">{escape(shown)}</text>'
            f'<text class="right small" x="{chip.x + chip.width - 28:.0f}" y="{chip.y + 16:.0f}">{escape(address)}'
            "</text></g>"
        )


def cable(drawn_at: dict[str, Box], name: str) -> list[Point]:
    """The cable of the client or of a node, from the fabric to the host."""
    box, fabric = drawn_at[name], drawn_at[FABRIC]
    if name == CLIENT:
        return [(box.line, fabric.y), (box.line, box.y + box.height)]
    bottom = fabric.y + fabric.height
    row = sorted({item.y for item in drawn_at.values() if item.x == box.x and item.height > _HEAD}).index(box.y)
    if row == 0:
        return [(box.line, bottom), (box.line, box.y)]
    beside = box.x + box.width + _APART * (1 + (row - 1) % 4)
    above = box.y - _BETWEEN / 2
    return [(beside, bottom), (beside, above), (box.line, above), (box.line, box.y)]


def _drawn(points: Sequence[Point]) -> str:
    return "M" + "L".join(f"{x:.0f} {y:.0f}" for x, y in points)


def _path(number: int, flow: Followed, cluster: ClusterView, drawn_at: dict[str, Box]) -> Iterator[str]:
    """The connection's way there, with a number at every host that it stops at, and a cross where it is lost."""
    hops = [hop for hop in flow.compared.journey.there if hop.host in drawn_at]
    points = [_point(index, hops, cluster, drawn_at) for index in range(len(hops))]
    yield f'<g class="path" id="path-{number}">'
    for index, (one, other) in enumerate(pairwise(hops)):
        if one.host != other.host:
            line = _between(one.host, other.host, points[index], points[index + 1], drawn_at)
            yield f'<path class="way" d="{_drawn(line)}" marker-end="url(#tip)"/>'
    if flow.compared.journey.end in (LOST, UNREACHABLE) and hops:
        yield from _loss(hops[-1], points[-1], cluster, drawn_at)
    taken: dict[Point, int] = {}
    for index, (x, y) in enumerate(points, 1):
        shift = taken.setdefault((x, y), 0)
        taken[x, y] += 1
        yield f'<circle cx="{x - shift * 22:.0f}" cy="{y:.0f}" r="10"/>'
        yield f'<text class="number" x="{x - shift * 22:.0f}" y="{y + 4:.0f}">{index}</text>'
    yield "</g>"


def _between(one: str, other: str, start: Point, end: Point, drawn_at: dict[str, Box]) -> list[Point]:
    """From a host's number to the next one's, over the cables if it is another machine."""
    if one.startswith(POD) or other.startswith(POD):
        return [start, end]
    middle = drawn_at[FABRIC].middle[1]
    line = [start]
    if one != FABRIC:
        up = list(reversed(cable(drawn_at, one)))
        line += [*up, (up[-1][0], middle)]
    if other != FABRIC:
        down = cable(drawn_at, other)
        line += [(down[0][0], middle), *down]
    return list(dict.fromkeys([*line, end]))


def _loss(last: Hop, at: Point, cluster: ClusterView, drawn_at: dict[str, Box]) -> Iterator[str]:
    """How far a packet came beyond the last host that it stopped at, and a cross there."""
    wire = last.outcome.verdict == ACCEPT and not last.host.startswith(POD)
    target = _target(last, cluster) if wire else ""
    fabric, box = drawn_at[FABRIC], drawn_at[last.host]
    below = fabric.y + fabric.height + 10
    x, y = at[0] - 22, at[1]
    if wire and last.held and last.host not in (FABRIC, CLIENT):
        x, y = box.line, box.y - 6
    elif wire and target:
        x, y = cable(drawn_at, target)[0][0], below
        if not last.held and last.host != FABRIC:
            up = list(reversed(cable(drawn_at, last.host)))
            line = [at, *up, (up[-1][0], fabric.middle[1]), (x, fabric.middle[1]), (x, below)]
            yield f'<path class="way" d="{_drawn(line)}"/>'
    yield f'<path class="lost" d="M{x - 7:.0f} {y - 7:.0f}l14 14m0 -14l-14 14"/>'


def _target(hop: Hop, cluster: ClusterView) -> str:
    """The node that a packet was on its way to when it left; "" if to none."""
    packet = hop.left
    found = hop.outer.dst if hop.outer is not None else ""
    if not found and packet.dst is not None:
        found = format_address(packet.dst, packet.family)
    pods = {address: pod.node for pod in cluster.pods for address in pod.addresses}
    nodes = {address: node.name for node in cluster.nodes for address in node.addresses}
    target = nodes.get(found) or pods.get(found, "")
    return target if target != hop.host else ""


def _point(index: int, hops: Sequence[Hop], cluster: ClusterView, drawn_at: dict[str, Box]) -> Point:
    """Where a hop's number is."""
    hop = hops[index]
    box = drawn_at[hop.host]
    if hop.host == FABRIC:
        # At the cable by which the packet goes on, so that the line does not cross others.
        following = hops[index + 1].host if index + 1 < len(hops) else _target(hop, cluster)
        return (cable(drawn_at, following)[0][0] if following in drawn_at else box.middle[0]), box.middle[1]
    if hop.host == CLIENT:
        return box.line, box.middle[1]
    if hop.host.startswith(POD):
        return box.x + box.width - _EDGE / 2, box.middle[1]
    return box.line, box.y + 24
