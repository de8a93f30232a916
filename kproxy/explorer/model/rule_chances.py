"""The chances that rules really give: one packet to each address of a Service is sent through all of a node's rules,
and then on its way: what another host drops, or does not answer, is lost.

For nodes whose rules were read, and not made from the objects. A question takes the model some milliseconds, so answers
are kept, and whoever asks says how long it may take: what is not known by then is known later.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from typing import Final

from kproxy.cluster.journey.known import OUTSIDE, KnownNetwork
from kproxy.cluster.journey.network import POD
from kproxy.cluster.journey.path import ANSWERED, OPEN, Journey, journeys
from kproxy.dataplane import ACCEPT, INDETERMINATE, DataplaneError, Outcome, Step, trace
from kproxy.dataplane.model.packet import LOCAL, make_packet
from kproxy.errors import InputError, KproxyError
from kproxy.family import host_of
from kproxy.netfilter import Family
from kproxy.render.iptables.chains import EXTERNAL_SERVICES, NODEPORTS, PROXY_FIREWALL, SERVICES
from kproxy.render.nftables.names import TABLE
from kproxy.services.names import family_of

_REFUSING: Final = (SERVICES, EXTERNAL_SERVICES, NODEPORTS, PROXY_FIREWALL)
"""Chains of iptables mode that refuse what is sent to a Service's address."""
_LATER: Final = ("INPUT", "FORWARD", "POSTROUTING")
"""Hooks after that in which NAT rewrites the destination of what arrives."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What becomes of a connection to a Service's address.

    Attributes:
        chances: of each endpoint, `ADDRESS:PORT`, that is reached.
        lost: of each endpoint that is chosen, and to which packets are then dropped or rejected, their chance.
        why_lost: what does so to which endpoint, in words.
        refused: what drops or rejects the rest, before an endpoint is chosen, in words; "" if nothing does.
        untranslated: whether packets go on to the Service's address itself: no rule of kube-proxy knows it.
        open: why it cannot be decided; "" if it can.
    """

    chances: Mapping[str, Fraction]
    lost: Mapping[str, Fraction] = field(default_factory=dict)
    why_lost: Mapping[str, str] = field(default_factory=dict)
    refused: str = ""
    untranslated: bool = False
    open: str = ""

    @property
    def why_open(self) -> str:
        """`open` as the page knows it."""
        return f"not decided: {self.open}"


def asked_of(outcomes: Iterable[Outcome]) -> Asked:
    """The outcomes of a trace by where they lead."""
    chances: dict[str, Fraction] = {}
    lost: dict[str, Fraction] = {}
    words: dict[str, dict[str, None]] = {}
    untranslated = False
    for item in outcomes:
        if item.verdict == INDETERMINATE:
            return Asked({}, open="; ".join(item.reasons) or "not decided")
        if not item.probability:
            continue
        if item.verdict == ACCEPT and item.dnat:
            chances[item.dst] = chances.get(item.dst, Fraction(0)) + item.probability
        elif not item.dnat and _unknown_to_kube_proxy(item):
            untranslated = True
        else:
            end = item.dst if item.dnat else ""
            lost[end] = lost.get(end, Fraction(0)) + item.probability
            words.setdefault(end, {})[_words(item)] = None
    why = {end: "; ".join(each) for end, each in words.items()}
    lost.pop("", None)
    return Asked(chances, lost, why, why.pop("", ""), untranslated)


def _unknown_to_kube_proxy(item: Outcome) -> bool:
    """Whether an untranslated packet has gone past where kube-proxy's rules translate, or refuse, what they know: to
    the end, or to a later rule of another program."""
    last = _last(item)
    own = last is not None and (last.chain in _REFUSING or TABLE in last.table.split())
    return item.verdict == ACCEPT or (item.hook in _LATER and not own)


def refuses_as_kube_proxy(words: str) -> bool:
    """Whether a rule of kube-proxy's drops or rejects, by `Asked.refused`."""
    return any(f" {name} " in words for name in _REFUSING) or f" {TABLE} " in words


def _last(item: Outcome) -> Step | None:
    return next((step for step in reversed(item.steps) if step.table and step.chain), None)


def _words(item: Outcome) -> str:
    last = _last(item)
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


@dataclass(frozen=True, slots=True)
class _Client:
    """Who sends a packet: a host of the cluster or outside, its address, None for one that routing chooses, and the
    device by which the packet comes to the node, "" from the node itself."""

    host: str
    address: str | None
    device: str


class NodeRules:
    """Asks the nodes of a cluster: for a cluster IP as a pod of the node, or, where no pod is known, as the node
    itself; for other addresses as a client outside, whose packets come by the device with the node's address."""

    def __init__(self, network: KnownNetwork, outside: Mapping[Family, str]) -> None:
        """`outside`: the address of a client outside."""
        self._network = network
        self._outside = outside
        services = network.cluster.manifests.services
        self._inside = frozenset(address for each in services for address in each.spec.cluster_ips)
        self._client = cache(self._find_client)
        self._known = frozenset(address for each in network.cluster.pods.values() for address in each.addresses)

    def __call__(self, node: str, family: Family, destination: str, protocol: str) -> Asked:
        host = self._network.host(node)
        unknown = host.unknown.get(family)
        if unknown is not None:
            return Asked({}, open=unknown)
        if host_of(destination) in self._inside:
            client = self._client(node, family)
        else:
            device = self._network.uplink(node)
            if device is None:
                return Asked({}, open="by which device packets from outside come is not known")
            client = _Client(f"{OUTSIDE}{self._outside[family]}", self._outside[family], device)
        try:
            packet = make_packet(client.address, destination, protocol)
            if client.device:
                packet = packet.replace(in_interface=client.device)
            else:
                packet = packet.replace(origin=LOCAL)
            found = asked_of(trace(host.indexes[family], host.host, packet).outcomes)
        except (DataplaneError, InputError) as error:
            return Asked({}, open=" ".join(str(error).splitlines()))
        return self._followed(found, node, client, destination, protocol)

    def _followed(self, found: Asked, node: str, client: _Client, destination: str, protocol: str) -> Asked:
        """The same without the chances of what is lost after the node, if it comes by the node, or has no answer."""
        if not found.chances:
            return found
        try:
            ways = journeys(
                self._network.delivering_to(node), client.host, destination, protocol, source=client.address
            )
        except KproxyError:
            return found
        chances, lost, why = dict(found.chances), dict(found.lost), dict(found.why_lost)
        for way in ways:
            end = way.target
            if end in chances and self._is_lost(way, node):
                part = min(way.probability, chances[end])
                chances[end] -= part
                lost[end] = lost.get(end, Fraction(0)) + part
                why[end] = "; ".join(dict.fromkeys(filter(None, (why.get(end), way.why))))
        return replace(found, chances={end: each for end, each in chances.items() if each}, lost=lost, why_lost=why)

    def _is_lost(self, way: Journey, node: str) -> bool:
        """Whether a way by the node does not end as it should. Who else has an address than pods is not known here."""
        if way.end in (ANSWERED, OPEN) or host_of(way.target) not in self._known:
            return False
        return any(hop.host == node for hop in way.there)

    def _find_client(self, node: str, family: Family) -> _Client:
        """A pod of the node, or the node."""
        for pod in self._network.cluster.pods.values():
            own = [each for each in pod.addresses if family_of(each) is family]
            if pod.node == node and own and not pod.host_network and pod.phase in ("", "Running"):
                try:
                    device = self._network.out_of_pod(self._network.host(f"{POD}{pod.name}")).device
                except KproxyError:
                    break
                if device is not None:
                    return _Client(f"{POD}{pod.name}", own[0], device)
                break
        return _Client(node, None, "")
