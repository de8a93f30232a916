"""Every kind of client asks every address of every Service; the model says beforehand what may happen.

A cell of the matrix is one client and one address. Whatever was seen must be something that the model holds possible,
and as often as its chances allow; where the model knows of one outcome only, it must be that one every time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Final

from kproxy.cluster.journey.network import POD
from kproxy.cluster.journey.path import ANSWERED, LOST, OPEN, UNREACHABLE, Journey, journeys
from kproxy.lab.cluster import ClusterView, PodView, ServicePortView, ServiceView, Value
from kproxy.lab.inspect.request import Response, send_request
from kproxy.lab.inspect.targets import Target, service_targets
from kproxy.lab.model.hosts import LabModel
from kproxy.lab.spec import CLIENT, family_of

_THREADS: Final = 12
_SILENT: Final = (LOST, UNREACHABLE)
_AT_ONCE: Final = 10
"""Questions of one cell that are asked at once, when one has been lost: each takes its whole time."""
_TOO_UNLIKELY: Final = 1e-9
"""What was seen differs from the model if chance alone would bring it, or something rarer, less often than this."""


class Client(Value, frozen=True):
    """A client. `kind`: outside, same pod, same node, other node, node itself, node without endpoint."""

    kind: str
    host: str


class Possible(Value, frozen=True):
    """One thing that may happen, as the model says. `at` is the host where the packet ends, `chance` an exact
    fraction."""

    end: str
    at: str
    pod: str
    source: str
    reason: str
    chance: str


class Observed(Value, frozen=True):
    """What happened, and how often."""

    end: str
    pod: str
    source: str
    count: int


class Cell(Value, frozen=True):
    """One client and one address: what the model says, what was seen, and whether that agrees."""

    client: Client
    target: Target
    possible: tuple[Possible, ...]
    seen: tuple[Observed, ...]
    agrees: bool
    open: bool

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources that pods saw."""
        return tuple(dict.fromkeys(item.source for item in self.seen if item.source))


def clients_for(cluster: ClusterView, port: ServicePortView) -> list[Client]:
    """One client of each kind that there is, for a Service's port."""
    pods = [pod for pod in cluster.pods if pod.netns and not pod.host_network and not pod.terminating]
    endpoints = {item.pod for item in port.endpoints if item.ready} or {item.pod for item in port.endpoints}
    # Of the endpoints, one with another pod beside it, so that there is a client on the same node.
    crowds = Counter(pod.node for pod in pods)
    own = min(
        (pod for pod in pods if pod.key in endpoints), key=lambda pod: (crowds[pod.node] < 2, pod.key), default=None
    )
    homes = {item.node for item in port.endpoints if item.node}
    found = [Client("outside", CLIENT)]

    def add(kind: str, pod: PodView | None) -> None:
        if pod is not None:
            found.append(Client(kind, f"{POD}{pod.key}"))

    def best(fitting: Iterable[PodView]) -> PodView | None:
        return min(fitting, key=lambda pod: (pod.key in endpoints, pod.node in homes, pod.key), default=None)

    if own is not None:
        add("same pod", own)
        add("same node", best(pod for pod in pods if pod.node == own.node and pod is not own))
        add("other node", best(pod for pod in pods if pod.node != own.node))
    else:
        add("pod", best(pods))
    ready = [node.name for node in cluster.nodes if node.link and node.processes]
    with_endpoint = next((name for name in ready if name in homes), None)
    without = next((name for name in ready if name not in homes), None)
    if with_endpoint is not None:
        found.append(Client("node itself", with_endpoint))
    if without is not None:
        found.append(Client("node without endpoint" if with_endpoint else "node itself", without))
    return found


def cells_of(
    cluster: ClusterView, services: Sequence[ServiceView], hosts: Sequence[str] = ()
) -> Iterator[tuple[Client, Target]]:
    """The cells to be filled; `hosts` asks from these instead of one client of each kind."""
    for service in services:
        for port in service.ports:
            clients = [Client("asked for", host) for host in hosts] or clients_for(cluster, port)
            targets = list(_few_nodes(cluster, port, service_targets(cluster, service, port)))
            for client in clients:
                for target in targets:
                    if target.kind == "localhost" and (client.host == CLIENT or client.host.startswith(POD)):
                        continue
                    yield client, target


def _few_nodes(cluster: ClusterView, port: ServicePortView, targets: Iterable[Target]) -> Iterator[Target]:
    """Of the node ports, those of one node with an endpoint and of one without, for each family."""
    homes = {item.node for item in port.endpoints if item.node}
    taken: set[tuple[int, bool]] = set()
    for target in targets:
        if target.node:
            kind = (family_of(target.address), target.node in homes)
            if kind in taken:
                continue
            taken.add(kind)
        yield target


def predict(model: LabModel, host: str, target: Target, *, source_port: int | None = None) -> list[Journey]:
    """What the model says. Raises as `journeys`."""
    return journeys(model, host, target.destination, target.protocol.lower(), source_port=source_port)


def possible_of(found: Sequence[Journey]) -> tuple[Possible, ...]:
    """The journeys, those made one that a client cannot tell apart."""
    chances: dict[tuple[str, str, str, str, str], Fraction] = {}
    for item in found:
        answered = item.end == ANSWERED
        key = (item.end, item.at, item.pod, item.source if answered else "", "" if answered else item.reason)
        chances[key] = chances.get(key, Fraction(0)) + item.probability
    ordered = sorted(chances.items(), key=lambda pair: (-round(float(pair[1]), 6), pair[0]))
    return tuple(Possible(*key, str(chance)) for key, chance in ordered)


def run_probe(
    model: LabModel,
    cells: Sequence[tuple[Client, Target]],
    *,
    count: int,
    timeout: float,
) -> list[Cell]:
    """Fills the cells, several at a time: `count` questions each.

    Where a cell differs, the hosts are read once more: a proxy may have followed a change of the cluster between the
    model's look and the questions, and then the questions of this cell are put again.
    """
    hosts = ["fabric", *dict.fromkeys(client.host for client, _ in cells)]

    def predict_all(current: LabModel) -> list[tuple[Possible, ...]]:
        current.preload(hosts)
        current.nodes()
        return [possible_of(predict(current, client.host, target)) for client, target in cells]

    def fill(index: int, possible: tuple[Possible, ...]) -> Cell:
        client, target = cells[index]
        answers = question(model.netns(client.host), target, count=count, timeout=timeout)
        return evaluate(client, target, possible, answers, independent=_is_independent(model.cluster, target))

    predicted = predict_all(model)
    with ThreadPoolExecutor(_THREADS) as pool:
        found = list(pool.map(fill, range(len(cells)), predicted))
        if not all(cell.agrees for cell in found):
            later = predict_all(LabModel(model.spec, model.cluster))
            changed = [n for n, cell in enumerate(found) if not cell.agrees and later[n] != predicted[n]]
            for number, cell in zip(changed, pool.map(fill, changed, [later[n] for n in changed]), strict=True):
                found[number] = cell
    return found


def question(netns: str, target: Target, *, count: int, timeout: float) -> list[Response]:
    """Asks `count` times; one after the other until a question is lost, and then several at once."""

    def put(_number: int) -> Response:
        return send_request(netns, target.address, target.port, target.protocol, timeout=timeout)

    answers: list[Response] = []
    while len(answers) < count and not (answers and answers[-1].end in _SILENT):
        answers.append(put(len(answers)))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return [*answers, *pool.map(put, range(len(answers), count))]


def _is_independent(cluster: ClusterView, target: Target) -> bool:
    """Whether one question's outcome says nothing of the next: no session affinity."""
    return not target.service or cluster.service(target.service).affinity == "None"


def evaluate(
    client: Client,
    target: Target,
    possible: tuple[Possible, ...],
    answers: Sequence[Response],
    *,
    independent: bool = True,
) -> Cell:
    """Compares what was seen with what may be, and unless the questions depend on one another, how often."""
    counts: dict[tuple[str, str, str], int] = {}
    for item in answers:
        key = (item.end, item.pod, item.source_address)
        counts[key] = counts.get(key, 0) + 1
    seen = tuple(Observed(*key, number) for key, number in sorted(counts.items()))
    is_open = any(item.end == OPEN for item in possible)
    agrees = is_open or (
        all(any(_fits(item, other) for other in possible) for item in seen)
        and not (independent and _is_too_unlikely(possible, seen))
    )
    return Cell(client, target, possible, seen, agrees, is_open)


def _is_too_unlikely(possible: Sequence[Possible], seen: Sequence[Observed]) -> bool:
    """Whether some outcome came so much more or less often than its chance that it cannot be chance."""
    total = sum(item.count for item in seen)
    chances: dict[str, Fraction] = {}
    counts: Counter[str] = Counter()
    for other in possible:
        kind = _kind(other.end, other.pod)
        chances[kind] = chances.get(kind, Fraction(0)) + Fraction(other.chance)
    for item in seen:
        counts[_kind(item.end, item.pod)] += item.count
    return any(_tail(total, float(chance), counts[kind]) < _TOO_UNLIKELY for kind, chance in chances.items())


def _kind(end: str, pod: str) -> str:
    return "silent" if end in _SILENT else pod or end


def _tail(total: int, chance: float, count: int) -> float:
    """The probability that of `total` questions `count` or fewer come out so, or `count` or more, the smaller one."""

    def exactly(number: int) -> float:
        return math.comb(total, number) * chance**number * (1 - chance) ** (total - number)

    return min(sum(map(exactly, range(count + 1))), sum(map(exactly, range(count, total + 1))))


def _fits(seen: Observed, possible: Possible) -> bool:
    if seen.end == ANSWERED and not seen.pod:
        return possible.end == ANSWERED and not possible.pod
    if seen.end in _SILENT:
        return possible.end in _SILENT
    if seen.end != possible.end:
        return False
    return seen.end != ANSWERED or (seen.pod == possible.pod and possible.source in ("?", seen.source))


class ProbeResult(Value, frozen=True):
    """The whole matrix of a probe."""

    cells: tuple[Cell, ...]

    @property
    def differing(self) -> list[Cell]:
        return [cell for cell in self.cells if not cell.agrees]
