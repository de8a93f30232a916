"""TLS over real sockets: who may connect, and with what. The rest is the standard library's."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kproxy.apiserver.auth import certs
from kproxy.apiserver.auth.certs import server_context
from tests.support.waiting import PATIENCE


class Echo(asyncio.Protocol):
    """Sends back what it gets."""

    def __init__(self) -> None:
        self.certificate: bytes | None = None
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.certificate = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


def run(client: Callable[[int], Any], authority: certs.Identity) -> tuple[Any, list[Echo]]:
    """Runs a blocking client against a server; its result and the server's protocols."""
    made: list[Echo] = []

    async def main() -> Any:
        loop = asyncio.get_running_loop()
        context = server_context(authority, certs.new_server(authority, ()))

        def connect() -> asyncio.Protocol:
            made.append(Echo())
            return made[-1]

        server = await loop.create_server(connect, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        try:
            result = await asyncio.wait_for(asyncio.to_thread(client, port), PATIENCE)
            await asyncio.sleep(0.05)
            return result
        finally:
            server.close()

    return asyncio.run(main()), made


@pytest.fixture(scope="module")
def authority() -> certs.Identity:
    return certs.new_authority()


def context_of(authority: certs.Identity, directory: Path, identity: certs.Identity | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.certificate_pem.decode())
    if identity is not None:
        path = directory / "client.pem"
        path.write_bytes(identity.certificate_pem + identity.key_pem)
        context.load_cert_chain(path)
    return context


def exchange(port: int, context: ssl.SSLContext, data: bytes, count: int) -> tuple[bytes, str | None]:
    with (
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as raw,
        context.wrap_socket(raw, server_hostname="127.0.0.1") as tls,
    ):
        tls.sendall(data)
        found = b""
        while len(found) < count and (piece := tls.recv(65536)):
            found += piece
        return found, tls.version()


def test_a_certificate_of_the_authority_is_shown_to_the_protocol_above(
    authority: certs.Identity, tmp_path: Path
) -> None:
    context = context_of(authority, tmp_path, certs.new_client(authority, "alice", ("admins",)))
    (found, _), made = run(lambda port: exchange(port, context, b"x", 1), authority)
    assert found == b"x"
    assert made[0].certificate is not None
    assert b"alice" in made[0].certificate


def test_another_certificate_ends_the_connection(authority: certs.Identity, tmp_path: Path) -> None:
    """asyncio closes it without the alert that says why."""

    def client(port: int) -> bytes:
        try:
            return exchange(port, context, b"x", 1)[0]
        except OSError:
            return b""

    for identity in (certs.new_client(certs.new_authority("other"), "alice"), certs.new_server(authority, ())):
        context = context_of(authority, tmp_path, identity)
        found, made = run(client, authority)
        assert (found, made[0].transport) == (b"", None)


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"\0" * 100, b"\0" * 5000])
def test_what_is_no_tls_is_closed(authority: certs.Identity, data: bytes) -> None:
    def client(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as raw:
            raw.sendall(data)
            raw.shutdown(socket.SHUT_WR)
            found = b""
            try:
                while piece := raw.recv(4096):
                    found += piece
            except ConnectionResetError:
                pass
            return found

    found, made = run(client, authority)
    assert b"HTTP" not in found
    assert all(each.transport is None for each in made)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_old_versions_are_refused(authority: certs.Identity, tmp_path: Path) -> None:
    context = context_of(authority, tmp_path)
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError):
        run(lambda port: exchange(port, context, b"x", 1), authority)
