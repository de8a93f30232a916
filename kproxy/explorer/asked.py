"""The chances that rules really give: one packet to each address of a Service is sent through all of a node's rules.

For nodes whose rules were read, and not made from the objects. A question takes the model some milliseconds, so answers
are kept, and whoever asks says how long it may take: what is not known by then is known later.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from kproxy.cluster.journey.known import KnownNetwork
from kproxy.cluster.journey.network import POD
from kproxy.dataplane import ACCEPT, INDETERMINATE, DataplaneError, Outcome, trace
from kproxy.dataplane.model.packet import LOCAL, make_packet
from kproxy.errors import InputError, KproxyError
from kproxy.netfilter import Family
from kproxy.services.names import family_of


@dataclass(frozen=True, slots=True)
class Asked:
    """What becomes of a connection to a Service's address.

    Attributes:
        chances: of each endpoint, `ADDRESS:PORT`, that is reached.
        lost: what becomes of the rest, in words; "" if there is none.
        open: why it cannot be decided; "" if it can.
    """

    chances: Mapping[str, Fraction]
    lost: str = ""
    open: str = ""


def asked_of(outcomes: Iterable[Outcome]) -> Asked:
    """The outcomes of a trace by where they lead."""
    chances: dict[str, Fraction] = {}
    lost: dict[str, None] = {}
    for item in outcomes:
        if item.verdict == INDETERMINATE:
            return Asked({}, open="; ".join(item.reasons) or "not decided")
        if item.verdict == ACCEPT and item.dnat:
            chances[item.dst] = chances.get(item.dst, Fraction(0)) + item.probability
        elif item.probability:
            lost[_words(item)] = None
    return Asked(chances, "; ".join(lost))


def _words(item: Outcome) -> str:
    if item.verdict == ACCEPT:
        return "no rule leads it to an endpoint"
    last = next((step for step in reversed(item.steps) if step.table and step.chain), None)
    where = "" if last is None else f" by {last.table} {last.chain} {last.rule or 'policy'}"
    return f"{'rejected' if item.verdict != 'DROP' else 'dropped'}{where}{f': {item.reason}' if item.reason else ''}"


Door = tuple[Hashable, str, str]
"""What is asked: by which key the answer is kept, `ADDRESS:PORT`, and the protocol."""
AskDoor = Callable[[str, Family, str, str], Asked]
"""Asks a node's rules of a family for an address and port and a protocol."""


class RuleChances:
    """What rules do with connections to Services' addresses, kept. Thread-safe."""

    def __init__(self, ask: AskDoor, lock: threading.RLock) -> None:
        """
        Args:
            lock: of the model; held for each question.
        """
        self._ask = ask
        self._lock = lock
        self._known: dict[tuple[str, Family], dict[Hashable, Asked]] = {}

    def of(
        self, node: str, family: Family, doors: Iterable[Door], seconds: float, check: Callable[[], None] = lambda: None
    ) -> Mapping[Hashable, Asked]:
        """What is known after some seconds, or was before.

        Raises:
            KproxyError: the node's rules cannot be read; whatever `check` raises.
        """
        until = time.monotonic() + seconds
        known = self._known.setdefault((node, family), {})
        for key, destination, protocol in doors:
            if key in known:
                continue
            check()
            with self._lock:
                known[key] = self._ask(node, family, destination, protocol)
            if time.monotonic() > until:  # so that each call brings at least one answer more
                break
        return known


class NodeRules:
    """Asks the nodes of a cluster: as a pod of the node, or, where no pod is known, as the node itself."""

    def __init__(self, network: KnownNetwork) -> None:
        self._network = network
        self._clients: dict[tuple[str, Family], tuple[str, str] | None] = {}

    def __call__(self, node: str, family: Family, destination: str, protocol: str) -> Asked:
        host = self._network.host(node)
        unknown = host.unknown.get(family)
        if unknown is not None:
            return Asked({}, open=unknown)
        client = self._client(node, family)
        try:
            packet = make_packet(None if client is None else client[0], destination, protocol)
            if client is None:
                packet = packet.replace(origin=LOCAL)
            else:
                packet = packet.replace(in_interface=client[1])
            return asked_of(trace(host.indexes[family], host.host, packet).outcomes)
        except (DataplaneError, InputError) as error:
            return Asked({}, open=" ".join(str(error).splitlines()))

    def _client(self, node: str, family: Family) -> tuple[str, str] | None:
        """The address of a pod of the node, and the device that it is behind."""
        key = node, family
        if key not in self._clients:
            self._clients[key] = self._find_client(node, family)
        return self._clients[key]

    def _find_client(self, node: str, family: Family) -> tuple[str, str] | None:
        for pod in self._network.cluster.pods.values():
            own = [each for each in pod.addresses if family_of(each) is family]
            if pod.node == node and own and not pod.host_network and pod.phase in ("", "Running"):
                try:
                    device = self._network.out_of_pod(self._network.host(f"{POD}{pod.name}"), "").device
                except KproxyError:
                    return None
                return None if device is None else (own[0], device)
        return None
