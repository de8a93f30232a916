"""A small network for tests of applying: a node, pods behind it, a client pod, and a host outside, all namespaces.

client 10.244.1.2 ──┐
pods 10.244.0.11-14 ─┤ node ├── 192.0.2.1 ── 192.0.2.2 outside
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from kproxy.linux.namespace import Namespace
from kproxy.linux.sysctl import write_sysctl
from tests.support.kernel.namespaces import fresh_namespace, run

ENDPOINTS = tuple(f"10.244.0.{number}" for number in range(11, 15))
CLUSTER_IP, LOAD_BALANCER_IP, NODE_IP = "10.96.0.7", "203.0.113.7", "192.0.2.1"
PORT, NODE_PORT, TARGET_PORT = 80, 30080, 8080
TIMEOUT = 10.0
"""Seconds that a TCP connection may take on a busy machine; the kernel repeats a lost SYN after one."""
SOCKETS, ASKS_PER_PORT = 16, 8
PAUSE = 0.015
"""Seconds between attempts of one client."""
ASK_AGAIN, MAX_REQUESTS = 1.0, 10
"""A UDP client asks again after so many seconds, and so often, as resolvers do: when its flow's entry is deleted while
an answer is on its way, that answer is lost."""


@dataclass
class Network:
    """The namespaces, and their names."""

    node: str
    spaces: dict[str, Namespace]


@contextlib.contextmanager
def network() -> Iterator[Network]:
    """Makes it; everything is gone afterwards."""
    with contextlib.ExitStack() as stack:
        names = {role: stack.enter_context(fresh_namespace()) for role in ("node", "pods", "client", "outside")}
        node = names["node"]
        for role, ours, gateway in (
            ("pods", [f"{ip}/24" for ip in ENDPOINTS], "10.244.0.1"),
            ("client", ["10.244.1.2/24"], "10.244.1.1"),
            ("outside", ["192.0.2.2/24"], "192.0.2.1"),
        ):
            other = names[role]
            run("ip", "link", "add", role, "type", "veth", "peer", "name", "eth0", "netns", other, namespace=node)
            run("ip", "addr", "add", f"{gateway}/24", "dev", role, namespace=node)
            run("ip", "link", "set", role, "up", namespace=node)
            for address in ours:
                run("ip", "addr", "add", address, "dev", "eth0", namespace=other)
            for device in ("lo", "eth0"):
                run("ip", "link", "set", device, "up", namespace=other)
            run("ip", "route", "add", "default", "via", gateway, namespace=other)
        run("ip", "link", "set", "lo", "up", namespace=node)
        spaces = {role: stack.enter_context(Namespace.named(name)) for role, name in names.items()}
        write_sysctl(spaces["node"], "net.ipv4.ip_forward", 1)
        yield Network(node, spaces)


@contextlib.contextmanager
def served_network() -> Iterator[Network]:
    """The network with the servers of all endpoints running."""
    with network() as made:
        servers = Servers(made.spaces["pods"])
        try:
            yield made
        finally:
            servers.close()


class Servers:
    """TCP and UDP servers on every endpoint IP; they answer with the IP, UDP with what was asked behind it, then TCP
    echoes what it gets."""

    def __init__(self, space: Namespace) -> None:
        self._selector = selectors.DefaultSelector()
        self._stop = threading.Event()
        for ip in ENDPOINTS:
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                server = space.call(socket.socket, socket.AF_INET, kind)
                server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                server.bind((ip, TARGET_PORT))
                if kind == socket.SOCK_STREAM:
                    server.listen(256)
                server.setblocking(False)
                self._selector.register(server, selectors.EVENT_READ, (kind, ip.encode()))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while not self._stop.is_set():
            for key, _ in self._selector.select(0.1):
                kind, ip = key.data
                held = key.fileobj
                assert isinstance(held, socket.socket)
                with contextlib.suppress(OSError):
                    if kind == socket.SOCK_DGRAM:
                        data, sender = held.recvfrom(100)
                        held.sendto(ip + b" " + data, sender)
                    elif kind == socket.SOCK_STREAM:
                        connection, _ = held.accept()
                        connection.sendall(ip)
                        self._selector.register(connection, selectors.EVENT_READ, (None, ip))
                    else:
                        data = held.recv(100)
                        if data:
                            held.sendall(data)
                            continue
                        self._selector.unregister(held)
                        held.close()

    def close(self) -> None:
        """Ends them."""
        self._stop.set()
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()


@dataclass
class Attempt:
    """One connection or query: when it began and ended, and which endpoint answered; "" if none did.

    A query that had to be asked again began when it was asked for the last time; `asked` counts.
    """

    path: str
    began: float
    ended: float
    endpoint: str
    error: str = ""
    asked: int = 1


@dataclass
class Traffic:
    """Clients that connect and ask without pause from a thread each, until they are stopped."""

    attempts: list[Attempt] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, net: Network) -> None:
        """Starts them all."""
        for role, ip, port, name in (
            ("client", CLUSTER_IP, PORT, "cluster IP"),
            ("outside", NODE_IP, NODE_PORT, "node port"),
            ("outside", LOAD_BALANCER_IP, PORT, "load-balancer IP"),
        ):
            for work, kind in (
                (self._tcp, "tcp"), (self._udp, "udp"), (self._udp_same_port, "udp from one port"), (self._hold, "held")
            ):  # fmt: skip
                self._spawn(work, net.spaces[role], (ip, port), f"{name} {kind}")

    def _spawn(self, *work: object) -> None:
        target, *arguments = work
        assert callable(target)
        thread = threading.Thread(target=target, args=arguments)
        thread.start()
        self._threads.append(thread)

    def stop(self) -> None:
        """Ends them."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _tcp(self, space: Namespace, address: tuple[str, int], path: str) -> None:
        """A connection after the other."""
        while not self._stop.is_set():
            began, endpoint, error = time.monotonic(), "", ""
            try:
                with space.call(socket.socket, socket.AF_INET, socket.SOCK_STREAM) as client:
                    client.settimeout(TIMEOUT)
                    client.connect(address)
                    endpoint = client.recv(100).decode()
            except OSError as failure:
                error = str(failure)
            self.attempts.append(Attempt(path, began, time.monotonic(), endpoint, error))
            self._stop.wait(PAUSE)

    def _udp(self, space: Namespace, address: tuple[str, int], path: str) -> None:
        """Queries, each from a port of its own."""
        while not self._stop.is_set():
            with space.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as client:
                client.connect(address)
                self.attempts.append(udp_query(client, path, 0))
            self._stop.wait(PAUSE)

    def _udp_same_port(self, space: Namespace, address: tuple[str, int], path: str) -> None:
        """Queries from ports that are kept for a while, as many resolvers ask: each follows the entry that the first
        one from its port made. Some ports are new at every moment, so that entries are made at every moment."""
        with contextlib.ExitStack() as stack:
            clients: deque[tuple[socket.socket, int]] = deque()
            while not self._stop.is_set():
                if len(clients) < SOCKETS:
                    client = stack.enter_context(space.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM))
                    client.connect(address)
                    clients.append((client, 0))
                client, number = clients.popleft()
                attempt = udp_query(client, path, number)
                self.attempts.append(attempt)
                if number + attempt.asked < ASKS_PER_PORT:
                    clients.append((client, number + attempt.asked))
                else:
                    client.close()
                self._stop.wait(PAUSE)

    def _hold(self, space: Namespace, address: tuple[str, int], path: str) -> None:
        """One connection that lives through everything."""
        try:
            with space.call(socket.socket, socket.AF_INET, socket.SOCK_STREAM) as client:
                client.settimeout(TIMEOUT)
                client.connect(address)
                assert client.recv(100)
                while not self._stop.is_set():
                    client.sendall(b"still there?")
                    if not client.recv(100):
                        self.broken.append(f"{path}: closed")
                        return
                    self._stop.wait(0.05)
        except OSError as failure:
            self.broken.append(f"{path}: {failure}")


def udp_query(client: socket.socket, path: str, number: int) -> Attempt:
    """One query; `number` tells its answer from late ones to earlier queries."""
    began, error = time.monotonic(), ""
    for asked in range(1, MAX_REQUESTS + 1):
        began = time.monotonic()
        try:
            client.send(str(number + asked).encode())
            while True:
                client.settimeout(max(began + ASK_AGAIN - time.monotonic(), 0.001))
                endpoint, _, answered = client.recv(100).decode().partition(" ")
                if answered == str(number + asked):
                    return Attempt(path, began, time.monotonic(), endpoint, "", asked)
        except TimeoutError as failure:
            error = str(failure)
        except OSError as failure:
            return Attempt(path, began, time.monotonic(), "", str(failure), asked)
    return Attempt(path, began, time.monotonic(), "", error, MAX_REQUESTS)
