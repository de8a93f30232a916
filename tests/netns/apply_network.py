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
from collections.abc import Iterator
from dataclasses import dataclass, field

from kproxy.linux.namespace import Namespace
from kproxy.linux.sysctl import write_sysctl
from tests.netns.namespaces import fresh_namespace, run

ENDPOINTS = tuple(f"10.244.0.{number}" for number in range(11, 15))
CLUSTER_IP, LOAD_BALANCER_IP, NODE_IP = "10.96.0.7", "203.0.113.7", "192.0.2.1"
PORT, NODE_PORT, TARGET_PORT = 80, 30080, 8080
TIMEOUT = 3.0


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


class Servers:
    """TCP and UDP servers on every endpoint IP; they answer with the IP, then TCP echoes what it gets."""

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
                        _, sender = held.recvfrom(100)
                        held.sendto(ip, sender)
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
    """One connection or query: when it began and ended, and which endpoint answered; "" if none did."""

    path: str
    began: float
    ended: float
    endpoint: str
    error: str = ""


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
            for ask in (self._tcp, self._udp):
                self._spawn(self._repeat, ask, net.spaces[role], (ip, port), f"{name} {ask.__name__.strip('_')}")
            self._spawn(self._hold, net.spaces[role], (ip, port), name)

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

    def _repeat(self, ask: object, space: Namespace, address: tuple[str, int], path: str) -> None:
        assert callable(ask)
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                endpoint, error = ask(space, address), ""
            except OSError as failure:
                endpoint, error = "", str(failure)
            self.attempts.append(Attempt(path, began, time.monotonic(), endpoint, error))
            self._stop.wait(0.004)

    def _tcp(self, space: Namespace, address: tuple[str, int]) -> str:
        with space.call(socket.socket, socket.AF_INET, socket.SOCK_STREAM) as client:
            client.settimeout(TIMEOUT)
            client.connect(address)
            return client.recv(100).decode()

    def _udp(self, space: Namespace, address: tuple[str, int]) -> str:
        with space.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(TIMEOUT)
            client.connect(address)
            client.send(b"?")
            return client.recv(100).decode()

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
