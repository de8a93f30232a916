"""A connection that was followed in a lab, as data: the capture is not what the model says."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from kproxy.cluster.journey.path import journeys
from kproxy.explorer.model.model import Model
from kproxy.explorer.sources.source import SourceState
from kproxy.lab.capture.dissect import THERE, ObservedPacket
from kproxy.lab.capture.expect import Compared, Expected
from kproxy.lab.inspect.follow import Followed
from kproxy.lab.inspect.request import Response
from kproxy.lab.inspect.targets import Target
from tests.support.explorer.sources import source_of

AT = (
    ("n1", "veth0", False, "10.96.0.7"),
    ("n1", "cni0", True, "10.244.1.5"),
    ("n1", "veth1", True, "10.244.1.5"),
)
"""Host, interface, whether it leaves there, and destination: what the model says of the way."""


def followed(snapshot: Path) -> tuple[SourceState, Followed]:
    """The first packet is where the model says, the second goes elsewhere, the third is missing; one more is seen where
    none should be."""
    known = source_of(snapshot).read()
    target = Target("clusterIP", "10.96.0.7", 80, "TCP", "shop/web")
    found = journeys(Model(known, 1).network, "pod/shop/cart-0", target.destination, "tcp")
    wanted = [_at(Expected, *each) for each in AT]
    first = _at(ObservedPacket, *AT[0])
    second = _at(ObservedPacket, "n1", "cni0", True, "10.244.2.5")
    other = _at(ObservedPacket, "n2", "cni0", False, "10.244.2.5")
    pairs = ((wanted[0], first), (wanted[1], None), (wanted[2], None), (None, second), (None, other))
    compared = Compared(found[0], pairs)
    return known, Followed("pod/shop/cart-0", target, tuple(found), Response("lost"), compared, ())


Kind = TypeVar("Kind", Expected, ObservedPacket)


def _at(kind: type[Kind], host: str, device: str, outgoing: bool, dst: str) -> Kind:
    """A packet of the connection at an interface."""
    more: dict[str, Any] = {"time": 0} if kind is ObservedPacket else {}
    return kind(
        host=host, device=device, outgoing=outgoing, direction=THERE, kind="packet", src="10.244.1.7", sport=20000,
        dst=dst, dport=80, **more,
    )  # fmt: skip
