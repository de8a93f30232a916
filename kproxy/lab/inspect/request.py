"""A real client: a socket that is opened inside a namespace, a line that is sent, the echo server's answer."""

from __future__ import annotations

import errno
import secrets
import socket
from typing import Any, Final

import msgspec

from kproxy.cluster.journey.path import ANSWERED, LOST, REFUSED, UNREACHABLE
from kproxy.family import host_of
from kproxy.lab.cluster import Value
from kproxy.lab.kubelet.servers import SCTP, kernel_has_sctp
from kproxy.linux.namespace import Namespace

_KINDS: Final = {"TCP": socket.SOCK_STREAM, "UDP": socket.SOCK_DGRAM, "SCTP": socket.SOCK_STREAM}
_UNREACHABLE: Final = {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.EACCES}
_NO_PROTOCOL: Final = {errno.ENOPROTOOPT, errno.EPROTO}
"""What ICMP's protocol unreachable and ICMPv6's unrecognized next header come to: a host without SCTP."""
_PENDING: Final = 0.1
_TRIES: Final = 2
"""Datagrams sent before a client gives up: the first may be lost to a neighbour that is still being looked for."""


class Response(Value, frozen=True):
    """What became of a question.

    Attributes:
        end: answered, refused, lost or unreachable; as `model.path` calls them.
        pod, node: who answered.
        source, target: the client's address and the own one, as the server saw them, `IP:PORT`.
    """

    end: str
    pod: str = ""
    node: str = ""
    source: str = ""
    target: str = ""
    data: str = ""

    @property
    def source_address(self) -> str:
        """The source without its port."""
        return host_of(self.source)


def send_request(
    netns: str,
    address: str,
    port: int,
    protocol: str,
    *,
    source_port: int = 0,
    timeout: float = 1.0,
    data: bytes = b"probe",
    tos: int = 0,
) -> Response:
    """Asks once from a namespace.

    Args:
        source_port: what to bind to; 0 leaves it to the kernel.
        timeout: seconds until the question counts as lost.
        tos: the TOS octet or traffic class of its packets.

    Raises:
        LinuxError: the namespace cannot be entered.
        OSError: the socket cannot be had.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    raw = protocol == "SCTP" and not kernel_has_sctp()
    kind = socket.SOCK_RAW if raw else _KINDS[protocol]
    with Namespace.named(netns) as inside:
        client = inside.call(socket.socket, family, kind, SCTP if protocol == "SCTP" else 0)
    # A socket stays in the namespace that it was made in.
    with client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if source_port and not raw:
            client.bind(("", source_port))
        if tos and family == socket.AF_INET:
            client.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
        elif tos:
            client.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, tos)
        client.settimeout(timeout)
        try:
            if raw:
                from kproxy.lab.kubelet import sctp

                return _answer(
                    sctp.ask(client, (address, port), source_port or 32768 + secrets.randbelow(28000), data, timeout)
                )
            client.connect((address, port))
            return _converse(client, protocol, data, timeout)
        except ConnectionRefusedError:
            return Response(REFUSED)
        except ConnectionResetError:
            return Response(ANSWERED)  # by a server of another protocol
        except TimeoutError:
            return Response(LOST)
        except OSError as error:
            if error.errno in _UNREACHABLE:
                return Response(UNREACHABLE)
            if error.errno in _NO_PROTOCOL:
                return Response(REFUSED)
            if error.errno == errno.EPERM:
                return _after_a_rule(client)
            raise


def _after_a_rule(client: socket.socket) -> Response:
    """A rule of this host did not let a packet out. If it rejected it, the ICMP error is at the socket already."""
    client.settimeout(_PENDING)
    try:
        client.recv(1)
    except ConnectionRefusedError:
        return Response(REFUSED)
    except OSError:
        pass
    return Response(LOST)


def _converse(client: socket.socket, protocol: str, data: bytes, timeout: float) -> Response:
    if protocol == "UDP":
        client.settimeout(timeout / _TRIES)
        for last in (False, True):
            client.send(data)
            try:
                return _answer(client.recv(65535))
            except TimeoutError:
                if last:
                    raise
    client.send(data + b"\n")
    text = b""
    while not text.endswith(b"\n"):
        more = client.recv(65536)
        if not more:
            return Response(ANSWERED)
        text += more
    return _answer(text)


def _answer(text: bytes) -> Response:
    try:
        found = msgspec.json.decode(text, type=dict[str, Any])
        return Response(
            ANSWERED,
            f"{found['namespace']}/{found['pod']}",
            found["node"],
            found["peer"],
            found["local"],
            found["data"],
        )
    except (msgspec.DecodeError, KeyError):
        return Response(ANSWERED)  # not an echo server
