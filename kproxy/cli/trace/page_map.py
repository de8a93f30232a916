"""The map of the hooks, as SVG: stations, the lines between them, and the one that the packet takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from typing import Final, NamedTuple

from kproxy.cli.trace.words import by_hook
from kproxy.dataplane.concrete.trace import Outcome
from kproxy.dataplane.model.packet import LOCAL, Packet
from kproxy.dataplane.model.verdict import ACCEPT, INDETERMINATE
from kproxy.netfilter.hooks import Hook


class Station(NamedTuple):
    """A place on the map: its centre, size and label."""

    x: int
    y: int
    width: int
    label: str
    kind: str = "hook"


_HEIGHT: Final = 48
STATIONS: Final = {
    "in": Station(66, 64, 92, "network", "edge"),
    "PREROUTING": Station(228, 64, 136, "PREROUTING"),
    "routing": Station(376, 64, 84, "routing", "decision"),
    "FORWARD": Station(532, 64, 116, "FORWARD"),
    "POSTROUTING": Station(718, 64, 144, "POSTROUTING"),
    "out": Station(894, 64, 92, "network", "edge"),
    "INPUT": Station(376, 176, 100, "INPUT"),
    "host": Station(532, 176, 116, "this host", "edge"),
    "OUTPUT": Station(718, 176, 112, "OUTPUT"),
}
LINES: Final = (
    ("in", "PREROUTING"), ("PREROUTING", "routing"), ("routing", "FORWARD"), ("FORWARD", "POSTROUTING"),
    ("POSTROUTING", "out"), ("routing", "INPUT"), ("INPUT", "host"), ("host", "OUTPUT"), ("OUTPUT", "POSTROUTING"),
)  # fmt: skip
LOOP: Final = ("POSTROUTING", "PREROUTING")
"""The way of a packet to this host itself, over the loopback interface."""


def route_of(packet: Packet, outcome: Outcome) -> list[str]:
    """The stations that a packet passes, in order; as far as is known."""
    local = packet.origin == LOCAL
    if outcome.hook == Hook.INGRESS:
        return ["in"]
    start = ["host", "OUTPUT"] if local else ["in", "PREROUTING"]
    seen = [hook for hook, _ in by_hook(outcome.steps) if hook in STATIONS]
    ends = [hook for hook in outcome.hook.split(" or ") if hook in STATIONS]
    if outcome.verdict == INDETERMINATE or len(ends) != 1:
        return _with_routing([*start, *(hook for hook in dict.fromkeys(seen) if hook not in start)])
    end = ends[0]
    looped = local and end in ("INPUT", "PREROUTING")
    route = list(start)
    if looped:
        route += ["POSTROUTING", "PREROUTING"]
        if end == "INPUT":
            route.append("INPUT")
    elif end == "POSTROUTING":
        route += ["POSTROUTING"] if local else ["FORWARD", "POSTROUTING"]
    elif end not in route:
        route.append(end)
    if outcome.verdict == ACCEPT:
        route += {"local": ["host"], "out": ["out"]}.get(outcome.via, [])
    return _with_routing(route)


def _with_routing(route: Sequence[str]) -> list[str]:
    found: list[str] = []
    for name in route:
        if found and found[-1] == "PREROUTING" and name in ("INPUT", "FORWARD"):
            found.append("routing")
        found.append(name)
    return found


def draw_map(packet: Packet, outcome: Outcome, number: int) -> Iterator[str]:
    """The SVG; stations with a stop of the way link to it (`#stop-NUMBER-N`)."""
    route = route_of(packet, outcome)
    taken = set(pairwise(route))
    stops = {hook: index for index, (hook, _) in reversed(list(enumerate(by_hook(outcome.steps))))}
    words = " → ".join(STATIONS[name].label for name in route)
    yield f'<figure class="map"><svg viewBox="0 2 960 222" role="group" aria-labelledby="map-{number}">'
    yield f'<title id="map-{number}">{escape(f"Stations: {words}; then {outcome.verdict}")}</title>'
    yield (
        f'<defs><marker id="tip-{number}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="13" '
        f'markerHeight="13" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>'
    )
    if LOOP in taken:
        yield f'<path class="line taken" d="M718 40V20H228V37" marker-end="url(#tip-{number})"/>'
        yield '<text class="small" x="472" y="15">loopback interface</text>'
    for start, end in sorted(LINES, key=lambda line: line in taken):
        state = "taken" if (start, end) in taken else "idle"
        yield f'<path class="line {state}" d="{_line(start, end)}" marker-end="url(#tip-{number})"/>'
    last = route[-1]
    for name, station in STATIONS.items():
        yield _station(name, station, name in route, last == name, outcome, stops.get(name), number)
    yield "</svg></figure>"


def _line(start: str, end: str) -> str:
    one, other = STATIONS[start], STATIONS[end]
    if one.x == other.x:
        way = 1 if other.y > one.y else -1
        return f"M{one.x} {one.y + way * _HEIGHT // 2}V{other.y - way * (_HEIGHT // 2 + 3)}"
    return f"M{one.x + one.width // 2} {one.y}H{other.x - other.width // 2 - 3}"


def _station(
    name: str, station: Station, passed: bool, last: bool, outcome: Outcome, stop: int | None, number: int
) -> str:
    classes = f"{station.kind}{' passed' if passed else ''}{f' last {outcome.verdict.lower()}' if last else ''}"
    left, top = station.x - station.width // 2, station.y - _HEIGHT // 2
    corner = {"edge": 24, "decision": 8}.get(station.kind, 8)
    body = f'<rect x="{left}" y="{top}" width="{station.width}" height="{_HEIGHT}" rx="{corner}"/>'
    count = sum(step.kind == "rule" for hook, steps in by_hook(outcome.steps) if hook == name for step in steps)
    below = f"{count} rule{'s' if count != 1 else ''}" if passed and station.kind == "hook" else ""
    shift = -3 if below else 5
    body += f'<text x="{station.x}" y="{station.y + shift}">{station.label}</text>'
    if below:
        body += f'<text class="small" x="{station.x}" y="{station.y + 14}">{below}</text>'
    if last and outcome.verdict not in (ACCEPT, INDETERMINATE):
        body += f'<text class="stop" x="{station.x}" y="{station.y + 42}">{outcome.verdict}</text>'
    group = f'<g class="{classes}">{body}</g>'
    if stop is None:
        return group
    return f'<a href="#stop-{number}-{stop}" aria-label="{station.label}: {below or "what happens there"}">{group}</a>'
