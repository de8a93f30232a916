"""Golden packets, sent for real: who answers a client, and which address does it see?

The rules that the kernel printed are loaded into a node of `network`; a server listens wherever a packet may end. It
answers with its own address and the one it sees. What a client gets must be among the outcomes that packets.yaml
names: ACCEPT by that endpoint, with the client's address or, masqueraded, with another; silence for DROP; an ICMP
error for REJECT. Which of several endpoints answers is chance, so each packet is sent several times.

Left out, and counted: what no ordinary socket can send (ICMP, a mark, a state of conntrack other than new, localhost of
another machine, SCTP where the kernel has none, a sender on an interface that is neither cni0 nor eth0).
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import selectors
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kproxy.cluster.hosts import node_addresses, node_host
from kproxy.dataplane.model.conntrack import NEW
from kproxy.dataplane.model.packet import LOCAL, Packet
from kproxy.dataplane.query.expectation import Expectation, Expected
from kproxy.linux.namespace import Namespace
from vagrant.checks.golden import iptables_command
from vagrant.checks.network import OUTSIDE, POD_SIDE, Network, in_namespace
from vagrant.checks.scenario import NFTABLES, Scenario

SILENCE = 2.0
"""Seconds without an answer that count as dropped where that is expected; an emulated machine answers in 20 ms."""
PATIENCE = 12.0
"""Seconds without an answer where one is expected: a SYN that a busy machine lost is sent again after 1, 3 and 7 s."""
TRIES = 4
"""How often a packet is sent for each of its outcomes, if it has several."""
_KINDS = {6: (socket.SOCK_STREAM, 6), 17: (socket.SOCK_DGRAM, 17), 132: (socket.SOCK_STREAM, 132)}
_RECENT = Path("/proc/thread-self/net/xt_recent")


class Sent(NamedTuple):
    """How many golden packets were sent, how many could not be, and what was wrong, as lines by packet."""

    sent: int
    left_out: int
    wrong: Mapping[str, Sequence[str]]


def send_packets(scenario: Scenario, variant: str, dumps: Mapping[int, str]) -> dict[int, Sent]:
    """Load the rules of each family into a network and send the golden packets of that family through it."""
    return {family: _send_family(scenario, variant, family, text) for family, text in dumps.items()}


def _send_family(scenario: Scenario, variant: str, family: int, text: str) -> Sent:
    mine = scenario.packets(variant, family)
    own = node_addresses(scenario.node)
    possible = [item for item in mine if can_be_sent(item, own)]
    if not possible:
        return Sent(0, len(mine), {})
    host = node_host(scenario.node, scenario.config, possible[0].question.packet.family)
    wrong: dict[str, list[str]] = {}
    with contextlib.ExitStack() as stack:
        # In nftables mode kube-proxy leaves route_localnet as it is.
        localnet = variant != NFTABLES and bool(host.flag("route_localnet", None))
        network = stack.enter_context(Network(own, route_localnet=localnet))
        in_namespace(network.node, load_command(variant, family), text)
        sender = Sender(network, frozenset(own), scenario.pods, text if variant == NFTABLES else "")
        servers = stack.enter_context(Servers())
        for expectation in possible:
            sender.place_client(expectation)
        for expectation in possible:
            for outcome in expectation.outcomes:
                if outcome.verdict == "ACCEPT":
                    sender.place_server(servers, outcome, expectation.question.packet.protocol)
        servers.start()
        for expectation in possible:
            lines = sender.send(expectation)
            if lines:
                wrong[expectation.name] = lines
    return Sent(len(possible), len(mine) - len(possible), wrong)


def load_command(variant: str, family: int) -> list[str]:
    """What loads what `golden.dump` printed."""
    if variant == NFTABLES:
        return ["nft", "-f", "-"]
    # The legacy one's lock is the machine's, whatever the namespace.
    return [iptables_command(variant, family, "restore"), "-w", "60"]


def can_be_sent(expectation: Expectation, own: Sequence[str]) -> bool:
    """Whether an ordinary socket can send a golden packet to a node that has the addresses `own`."""
    packet, state = expectation.question.packet, expectation.question.connection.state
    if packet.protocol not in _KINDS or not _kernel_speaks(packet.protocol):
        return False
    if packet.dport is None or packet.src is None or packet.mark or state != NEW:
        return False
    source = _text(packet, packet.src)
    from_here = source in own or ipaddress.ip_address(source).is_loopback
    if packet.origin == LOCAL:
        return from_here
    to_localhost = ipaddress.ip_address(_text(packet, packet.dst)).is_loopback
    return not from_here and not to_localhost and packet.in_interface in (POD_SIDE, OUTSIDE)


@functools.cache
def _kernel_speaks(protocol: int) -> bool:
    try:
        socket.socket(socket.AF_INET, *_KINDS[protocol]).close()
    except OSError:
        # SCTP is a module that a kernel may be without.
        return False
    return True


@dataclass(frozen=True)
class Observed:
    """What a client got. `server` is empty unless `verdict` is ACCEPT; `seen` is the client's address as seen there."""

    verdict: str
    server: str = ""
    seen: str = ""

    def __str__(self) -> str:
        return self.verdict if not self.server else f"{self.verdict} by {self.server}, which saw {self.seen}"


class Sender:
    """Sends golden packets in a network. `table`: the one of nftables mode, as nft lists it; else ""."""

    def __init__(self, network: Network, own: frozenset[str], pods: frozenset[str], table: str) -> None:
        self._network, self._own, self._pods, self._table = network, own, pods, table

    def place_client(self, expectation: Expectation) -> Namespace:
        """The namespace that a packet is sent from."""
        packet = expectation.question.packet
        if packet.origin == LOCAL:
            return self._network.node
        return self._network.host(_text(packet, packet.src), packet.in_interface or OUTSIDE)

    def place_server(self, servers: Servers, outcome: Expected, protocol: int) -> None:
        """A server where a packet may end."""
        address, port = split_endpoint(outcome.to)
        space = self._network.host(address, POD_SIDE if address in self._pods else OUTSIDE)
        servers.add(space, address, port, protocol)

    def send(self, expectation: Expectation) -> list[str]:
        """Send a packet, several times if its outcome is chance; what was wrong, as lines."""
        tries = 1 if len(expectation.outcomes) == 1 else TRIES * len(expectation.outcomes)
        space = self.place_client(expectation)
        silent = any(item.verdict == "DROP" for item in expectation.outcomes)
        patience = SILENCE if silent else PATIENCE
        wrong = []
        for _ in range(tries):
            self._remember(expectation.question.packet, expectation.question.recent)
            answer = ask(space, expectation.question.packet, patience)
            if not any(self._agrees(answer, item, expectation.question.packet) for item in expectation.outcomes):
                wrong.append(f"+ {answer}")
        if not wrong:
            return []
        return [*(f"- {item}" for item in expectation.outcomes), *sorted(set(wrong))]

    def _remember(self, packet: Packet, lists: Sequence[str]) -> None:
        """Let the lists of recent clients hold the sender or, those not named, nobody."""
        if self._table:
            script = remembering_script(self._table, _text(packet, packet.src), lists)
            in_namespace(self._network.node, ["nft", "-f", "-"], script)
        else:
            self._network.node.call(_write_recent, _text(packet, packet.src), lists)

    def _agrees(self, answer: Observed, outcome: Expected, packet: Packet) -> bool:
        if answer.verdict != outcome.verdict:
            return False
        if outcome.verdict != "ACCEPT":
            return True
        if answer.server != outcome.to:
            return False
        server, _ = split_endpoint(outcome.to)
        sender = _text(packet, packet.src)
        if server in self._own or ipaddress.ip_address(server).is_loopback:
            # Marked or not, what stays on the node does not pass POSTROUTING's masquerading with a new source.
            return True
        if sender in self._own:
            # Masqueraded, the node's address may become the same or another one of the node's.
            return answer.seen == sender or bool(outcome.masquerade)
        return (answer.seen != sender) == bool(outcome.masquerade)


def remembering_script(table: str, source: str, lists: Sequence[str]) -> str:
    """What makes the affinity sets of a table, as nft lists it, hold a client or, those not named, nobody."""
    first, *lines = table.splitlines()
    name = first.removesuffix(" {").removeprefix("table ")
    sets = [line.split()[1] for line in lines if line.startswith("\tset affinity-")]
    return "".join(
        [
            *(f"flush set {name} {each}\n" for each in sets),
            *(f"add element {name} {each} {{ {source} }}\n" for each in sets if each in lists),
        ]
    )


def _write_recent(source: str, lists: Sequence[str]) -> None:
    if not _RECENT.is_dir():
        return
    for path in _RECENT.iterdir():
        path.write_text("/")
        if path.name in lists:
            path.write_text(f"+{source}")


def _text(packet: Packet, address: int | None) -> str:
    assert address is not None
    kind = ipaddress.IPv4Address if packet.family.version == 4 else ipaddress.IPv6Address
    return str(kind(address))


def split_endpoint(text: str) -> tuple[str, int]:
    """`10.0.0.1:80` or `[fd00::1]:80`, taken apart."""
    address, _, port = text.rpartition(":")
    return address.strip("[]"), int(port)


def join_endpoint(address: str, port: int) -> str:
    """The reverse of `split_endpoint`."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def open_socket(space: Namespace, address: str, protocol: int) -> socket.socket:
    """A socket that lives in a namespace, whoever uses it."""
    kind, number = _KINDS[protocol]
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    opened = space.call(socket.socket, family, kind, number)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return opened


def ask(space: Namespace, packet: Packet, patience: float) -> Observed:
    """Send one packet, a connection's first where the protocol has such, and see what comes of it."""
    source, target = _text(packet, packet.src), _text(packet, packet.dst)
    with contextlib.closing(open_socket(space, target, packet.protocol)) as client:
        client.settimeout(patience)
        try:
            client.bind((source, packet.sport or 0))
            client.connect((target, packet.dport))
            if packet.protocol == 17:
                client.send(b"?")
            server, seen = client.recv(200).decode().split()
        except TimeoutError:
            return Observed("DROP")
        except ValueError:
            return Observed("closed without an answer")
        except ConnectionRefusedError:
            return Observed("REJECT")
        except OSError as error:
            return Observed(f"error {error.strerror}")
        return Observed("ACCEPT", server, seen)


class Servers:
    """Servers in many namespaces, all served by one thread."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._places: set[tuple[str, int, int]] = set()
        self._sockets: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._stop_here, self._stop_there = socket.socketpair()

    def add(self, space: Namespace, address: str, port: int, protocol: int) -> None:
        """Listen at an address, once."""
        place = (address, port, protocol)
        if place in self._places:
            return
        self._places.add(place)
        server = open_socket(space, address, protocol)
        self._sockets.append(server)
        server.bind((address, port))
        if protocol != 17:
            server.listen(16)
        server.setblocking(False)
        self._selector.register(server, selectors.EVENT_READ, join_endpoint(address, port))

    def start(self) -> None:
        """Begin to answer; nothing is added after that."""
        self._selector.register(self._stop_there, selectors.EVENT_READ, "")
        self._thread.start()

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if not key.data:
                    return
                assert isinstance(key.fileobj, socket.socket)
                with contextlib.suppress(OSError):
                    self._answer(key.fileobj, key.data)

    @staticmethod
    def _answer(server: socket.socket, name: str) -> None:
        if server.type == socket.SOCK_DGRAM:
            _, peer = server.recvfrom(200)
            server.sendto(f"{name} {peer[0]}".encode(), peer)
            return
        connection, peer = server.accept()
        with contextlib.closing(connection):
            connection.sendall(f"{name} {peer[0]}".encode())

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_here.send(b"x")
        if self._thread.ident is not None:
            self._thread.join(timeout=10)
        for item in (*self._sockets, self._stop_here, self._stop_there):
            item.close()
        self._selector.close()


def describe(sent: Mapping[int, Sent]) -> Iterator[str]:
    """What was wrong, as lines."""
    for item in sent.values():
        for name, lines in item.wrong.items():
            yield name
            yield from (f"  {line}" for line in lines)
