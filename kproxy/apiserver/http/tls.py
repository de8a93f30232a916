"""TLS under an asyncio protocol, by pyOpenSSL.

The standard library's ssl module ends the handshake when a client shows a certificate that does not verify. The API
must answer such a client with 401, so here any certificate is accepted in the handshake and shown to the protocol
above, and auth/authentication.py checks it. Writes are gathered and encrypted once per turn of the event loop, so that
a response's head and body share a record and a system call.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

from cryptography.hazmat.primitives import serialization
from OpenSSL import SSL

from kproxy.apiserver.auth.certs import Identity

_HANDSHAKE: Final = 10.0
"""Seconds for the handshake."""
_PLAIN: Final = 256 * 1024


def server_context(authority: Identity, server: Identity) -> SSL.Context:
    """A server context that asks for client certificates and takes any."""
    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    context.set_min_proto_version(SSL.TLS1_2_VERSION)
    context.use_privatekey(server.key)
    context.use_certificate(server.certificate)
    context.add_extra_chain_cert(authority.certificate)
    context.set_verify(SSL.VERIFY_PEER, lambda *_arguments: True)
    context.set_session_id(b"kproxy-apiserver")
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_alpn_select_callback(_select_protocol)
    return context


def _select_protocol(_connection: SSL.Connection, offered: list[bytes]) -> Any:
    return b"http/1.1" if b"http/1.1" in offered else SSL.NO_OVERLAPPING_PROTOCOLS


class TLSTransport(asyncio.Transport):
    """What the protocol above TLS writes to."""

    def __init__(self, tls: TLSProtocol, raw: asyncio.Transport) -> None:
        super().__init__()
        self._tls = tls
        self._raw = raw

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As of the socket below; `sslcontext` and `peer_certificate` (DER) of the TLS session."""
        if name == "sslcontext":
            return self._tls
        if name == "peer_certificate":
            return self._tls.certificate
        return self._raw.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._tls.write(bytes(data))

    def is_closing(self) -> bool:
        return self._tls.closing or self._raw.is_closing()

    def close(self) -> None:
        self._tls.close()

    def abort(self) -> None:
        self._raw.abort()

    def pause_reading(self) -> None:
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        if not self._raw.is_closing():
            self._raw.resume_reading()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._tls.inner = cast(asyncio.Protocol, protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._tls.inner

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size()


class TLSProtocol(asyncio.Protocol):
    """Decrypts for an inner protocol, encrypts what it writes."""

    def __init__(self, context: SSL.Context, inner: asyncio.Protocol, loop: asyncio.AbstractEventLoop) -> None:
        self.inner = inner
        self.certificate: bytes | None = None
        self.closing = False
        self._connection = SSL.Connection(context, None)
        self._connection.set_accept_state()
        self._loop = loop
        self._ready = False
        self._outgoing: list[bytes] = []
        self._scheduled = False
        self._raw: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)
        self._timer = self._loop.call_later(_HANDSHAKE, self._raw.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.closing = True
        if self._ready:
            self._ready = False
            self.inner.connection_lost(exc)

    def pause_writing(self) -> None:
        if self._ready:
            self.inner.pause_writing()

    def resume_writing(self) -> None:
        if self._ready:
            self.inner.resume_writing()

    def eof_received(self) -> None:
        return None

    def data_received(self, data: bytes) -> None:
        assert self._raw is not None
        try:
            self._connection.bio_write(data)
            if not self._ready and not self._handshake():
                return
            while True:
                try:
                    plain = self._connection.recv(_PLAIN if len(data) > 16384 else 16384)
                except SSL.WantReadError:
                    break
                except SSL.ZeroReturnError:
                    self._raw.close()
                    return
                self.inner.data_received(plain)
                if not self._ready:
                    return
        except SSL.Error:
            self._send()
            self._raw.close()

    def _handshake(self) -> bool:
        assert self._raw is not None
        try:
            self._connection.do_handshake()
        except SSL.WantReadError:
            self._send()
            return False
        except SSL.Error:
            self._send()  # the alert
            self._raw.close()
            return False
        if self._timer is not None:
            self._timer.cancel()
        certificate = self._connection.get_peer_certificate(as_cryptography=True)
        if certificate is not None:
            self.certificate = certificate.public_bytes(serialization.Encoding.DER)
        self._send()
        self._ready = True
        self.inner.connection_made(TLSTransport(self, self._raw))
        return True

    def write(self, data: bytes) -> None:
        """Takes plain bytes; they go out at the end of this turn of the loop."""
        if self.closing or not data:
            return
        self._outgoing.append(data)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        if not self._outgoing or self._raw is None or self._raw.is_closing():
            self._outgoing.clear()
            return
        data = b"".join(self._outgoing) if len(self._outgoing) > 1 else self._outgoing[0]
        self._outgoing.clear()
        try:
            self._connection.sendall(data)
        except SSL.Error:
            self._raw.abort()
            return
        self._send()

    def _send(self) -> None:
        """Hands encrypted bytes to the socket."""
        assert self._raw is not None
        pieces = []
        while True:
            try:
                pieces.append(self._connection.bio_read(65536))
            except SSL.WantReadError:
                break
            if len(pieces[-1]) < 65536:
                break
        if pieces and not self._raw.is_closing():
            self._raw.write(b"".join(pieces) if len(pieces) > 1 else pieces[0])

    def close(self) -> None:
        """Sends what is left and a close notice, and closes."""
        if self.closing:
            return
        self._flush()
        self.closing = True
        if self._raw is not None and not self._raw.is_closing():
            try:
                self._connection.shutdown()
                self._send()
            except SSL.Error:
                pass
            self._raw.close()
