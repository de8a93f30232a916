"""Following one real connection: the model's journeys, the packets at every hop, and both side by side."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from kproxy.cluster.journey.path import ANSWERED, LOST, OPEN, REFUSED, UNREACHABLE, Journey
from kproxy.cluster.journey.wire import NEIGHBOUR_SECONDS
from kproxy.lab.capture.dissect import Flow, Read, observed_packets, read_frames
from kproxy.lab.capture.expect import Compared, compare, compared_packets
from kproxy.lab.capture.frames import Capture, Frame
from kproxy.lab.inspect.probe import predict
from kproxy.lab.inspect.request import Response, send_request
from kproxy.lab.inspect.targets import Target
from kproxy.lab.model.hosts import LabModel
from kproxy.lab.spec import FABRIC

_PORTS = (20000, 30000)
"""Source ports: below those that kernels give out themselves, and below node ports."""
_next_port = count(secrets.randbelow(_PORTS[1] - _PORTS[0]))
_THREADS = 16
ANSWER = 5.0
"""Seconds to wait where the model says that something surely comes back."""
REFUSAL = 1.5
"""Seconds that a refusal may take: a TCP client of IPv6 believes an ICMP error that comes while it is still inside of
connect() only when it has sent its SYN again, after one second (tcp_v6_err, sock_owned_by_user)."""


@dataclass(frozen=True, slots=True)
class Followed:
    """What became of one connection.

    Attributes:
        journeys: everything that the model holds possible.
        answer: what the client got.
        compared: the journey that came about, beside what was seen.
        frames: all that was captured.
    """

    client: str
    target: Target
    journeys: tuple[Journey, ...]
    answer: Response
    compared: Compared
    frames: tuple[Frame, ...]

    @property
    def is_open(self) -> bool:
        """Whether the model cannot tell the outcome."""
        return any(item.end == OPEN for item in self.journeys)

    @property
    def agrees(self) -> bool:
        """Whether every packet was where the model says and nowhere else, and the client got what it says."""
        return self.is_open or (not self.compared.differences and ends_alike(self.compared.journey, self.answer))


def ends_alike(journey: Journey, answer: Response) -> bool:
    """Whether a client would see what this journey says."""
    if answer.end in (LOST, UNREACHABLE):
        return journey.end in (LOST, UNREACHABLE)
    if journey.end != answer.end:
        return False
    return journey.end != ANSWERED or not answer.pod or journey.pod in ("", answer.pod)


def unused_port() -> int:
    """A source port that no other flow has had for a long time."""
    first, end = _PORTS
    return first + next(_next_port) % (end - first)


def hosts_of(found: Sequence[Journey]) -> list[str]:
    """The hosts of all journeys, and the fabric, which most of them cross."""
    names = [hop.host for journey in found for hop in (*journey.there, *journey.back)]
    return list(dict.fromkeys([*names, FABRIC]))


def follow(model: LabModel, client: str, target: Target, *, timeout: float = REFUSAL) -> Followed:
    """Makes one connection from a host and watches it. `timeout` is how long silence must last, in seconds, where the
    model expects it.

    Raises:
        DataplaneError, LinuxError, LabError: see `journeys` and `ask`.
    """
    return follow_many(model, [(client, target)], timeout=timeout)[0]


def _patience(found: Sequence[Journey]) -> float:
    """Seconds to wait for what the model expects: on a machine that is busy, an answer may take its time."""
    if any(item.waits for item in found):
        return NEIGHBOUR_SECONDS + ANSWER
    ends = {item.end for item in found}
    if ends <= {LOST, UNREACHABLE}:
        return 0.0
    return ANSWER if ends <= {ANSWERED, REFUSED} else REFUSAL


class _Question(NamedTuple):
    client: str
    target: Target
    journeys: tuple[Journey, ...]
    flow: Flow


def _question(model: LabModel, client: str, target: Target, number: int) -> _Question:
    port = unused_port()
    data = f"kproxy-{secrets.token_hex(6)}".encode()
    tos = (1 + number % 63) << 2  # a code point of its own, without the two bits of ECN
    found = tuple(predict(model, client, target, source_port=port))
    return _Question(client, target, found, Flow(target.protocol, client, port, data, tos))


def follow_many(model: LabModel, cells: Sequence[tuple[str, Target]], *, timeout: float = REFUSAL) -> list[Followed]:
    """Makes several connections at once, at most 63, of (client, target) each, and watches them. Raises as `follow`."""
    model.refresh_neighbours()
    questions = [_question(model, client, target, number) for number, (client, target) in enumerate(cells)]
    hosts = {name: model.netns(name) for item in questions for name in hosts_of(item.journeys)}

    def put(item: _Question) -> Response:
        target, flow = item.target, item.flow
        patience = max(timeout, _patience(item.journeys))
        return send_request(
            model.netns(item.client), target.address, target.port, target.protocol,
            source_port=flow.source_port, timeout=patience, data=flow.data, tos=flow.tos,
        )  # fmt: skip

    with Capture(hosts) as capture, ThreadPoolExecutor(_THREADS) as pool:
        answers = list(pool.map(put, questions))
        capture.settle()
    frames = tuple(capture.frames)
    reads = read_frames(frames)
    found = [_evaluate(model, item, answer, reads, frames) for item, answer in zip(questions, answers, strict=True)]
    if all(item.agrees for item in found):
        return found
    # What the model read may have changed between its look and the packet: a proxy follows the cluster, and a kernel's
    # opinion of a neighbour that is gone lasts some seconds. One look before and one afterwards see what it met.
    later = LabModel(model.spec, model.cluster)
    return [
        first if first.agrees else _better(first, _evaluate(later, _again(later, item), first.answer, reads, frames))
        for item, first in zip(questions, found, strict=True)
    ]


def _again(model: LabModel, item: _Question) -> _Question:
    found = predict(model, item.client, item.target, source_port=item.flow.source_port)
    return item._replace(journeys=tuple(found))


def _better(one: Followed, other: Followed) -> Followed:
    return min(one, other, key=lambda item: (not item.agrees, item.compared.differences))


def _evaluate(
    model: LabModel, item: _Question, answer: Response, reads: Sequence[Read], frames: tuple[Frame, ...]
) -> Followed:
    seen = compared_packets(model, observed_packets(reads, item.flow))
    likely = [each for each in item.journeys if ends_alike(each, answer)] or item.journeys
    compared = compare(model, likely, item.target.protocol, seen)
    return Followed(item.client, item.target, item.journeys, answer, compared, frames)
