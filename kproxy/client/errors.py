"""What can go wrong with an API server, as errors of one root, and in words for people.

urllib3 wraps what the operating system and OpenSSL say in errors of its own, whose texts hold class names and memory
addresses. The innermost error knows the reason: it is looked for, and said as Go's tools would, which is what people
search for: "connection refused", "certificate signed by unknown authority".
"""

from __future__ import annotations

import functools
import http.client
import socket
import ssl
from collections.abc import Iterator
from typing import Final

from kproxy.errors import InputError, KproxyError
from kproxy.informer.objects import Status


class ConfigError(InputError):
    """A kubeconfig, a credential or the environment cannot be used."""


class CredentialError(KproxyError):
    """A credential could not be had now: a plugin failed, a token file is gone."""


class TransportError(KproxyError):
    """No answer: refused, reset, timed out, cut off, or no TLS.

    `reason` says why; str() puts `address` before it, the host and port that were to answer.
    """

    def __init__(self, reason: str, address: str = "") -> None:
        super().__init__(f"{address}: {reason}" if address else reason)
        self.reason = reason
        self.address = address


class SilenceError(TransportError):
    """Nothing came for as long as the caller would wait, on a connection that is there as far as TCP can tell."""


class CancelledError(KproxyError):
    """The call was ended by `Call.cancel` from another thread."""


class ApiError(KproxyError):
    """The server answered with an error.

    `status` has the code, reason and message, which is what str() gives. `request` is the method and path.
    """

    def __init__(self, status: Status, request: str = "") -> None:
        super().__init__(status.message)
        self.status = status
        self.request = request

    @property
    def code(self) -> int:
        return self.status.code

    @property
    def reason(self) -> str:
        """metav1.StatusReason: NotFound, Conflict, Forbidden...; "" if the server gave none."""
        return self.status.reason

    @property
    def message(self) -> str:
        return self.status.message


class DiscoveryError(InputError):
    """The server has no such resource."""


UNKNOWN_AUTHORITY: Final = "certificate signed by unknown authority"

_VERIFY: Final = {
    2: UNKNOWN_AUTHORITY,  # unable to get issuer certificate
    9: "certificate is not yet valid",
    10: "certificate has expired",
    18: f"{UNKNOWN_AUTHORITY} (self-signed)",
    19: f"{UNKNOWN_AUTHORITY} (self-signed certificate in the chain)",
    20: UNKNOWN_AUTHORITY,  # unable to get local issuer certificate
    21: UNKNOWN_AUTHORITY,  # unable to verify the first certificate
    23: "certificate was revoked",
}
"""OpenSSL's X509_V_ERR_ codes."""

_TLS: Final = {
    "WRONG_VERSION_NUMBER": "the server does not speak TLS; is its URL http://?",
    "HTTP_REQUEST": "the server does not speak TLS; is its URL http://?",
    "RECORD_LAYER_FAILURE": "the server does not speak TLS; is its URL http://?",
    "UNSUPPORTED_PROTOCOL": "the server's version of TLS is not supported",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the server does not accept this version of TLS",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the server wants a client certificate",
    "TLSV1_ALERT_UNKNOWN_CA": "the server does not know the authority of the client certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the server does not accept the client certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the server does not accept the client certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client certificate has expired",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the server refused the handshake",
    "UNEXPECTED_EOF_WHILE_READING": "the server closed the connection",
}
"""By OpenSSL's reason."""


@functools.cache
def http_errors() -> tuple[type[Exception], ...]:
    """What urllib3's calls raise, for `except`."""
    from urllib3.exceptions import HTTPError

    return HTTPError, OSError, ValueError


def is_the_proxys(error: Exception) -> bool:
    """Whether the way to a proxy failed, not that to the server."""
    from urllib3.exceptions import ProxyError

    return isinstance(error, ProxyError)


def describe_failure(error: BaseException, host: str = "") -> str:
    """Why there is no answer, on one line and without the names of Python's classes. `host` is whom it was asked of."""
    from urllib3 import exceptions
    from urllib3.util.ssl_match_hostname import CertificateError

    chain = list(_chain(error))
    for found in chain:
        if isinstance(found, ssl.SSLError) and not isinstance(found, TimeoutError):
            return f"TLS: {_tls(found, host)}"
        if isinstance(found, CertificateError):
            return f"TLS: certificate: {found}"
        # A NewConnectionError is one too, whatever was wrong.
        if isinstance(found, exceptions.ConnectTimeoutError) and not isinstance(found, exceptions.NewConnectionError):
            return "the connection timed out"
    for found in chain:
        if isinstance(found, TimeoutError | exceptions.ReadTimeoutError):
            return "timed out: no answer"
    for found in reversed(chain):
        if isinstance(found, socket.gaierror):
            return f"lookup of the host name failed: {_small(found.strerror or 'failed')}"
        if isinstance(found, http.client.RemoteDisconnected):
            return "the server closed the connection without an answer"
        if isinstance(found, OSError) and found.strerror:
            return _small(found.strerror)
    return _protocol(chain)


def is_silence(error: BaseException) -> bool:
    """Whether a wait for an answer ended with nothing, on a connection that TCP's keepalive still takes for alive.

    When keepalive gives a connection up that is a TimeoutError too, but one with an errno, ETIMEDOUT.
    """
    from urllib3 import exceptions

    chain = list(_chain(error))
    if any(isinstance(found, exceptions.ConnectTimeoutError) for found in chain):
        return False
    waits = [found for found in chain if isinstance(found, TimeoutError)]
    return bool(waits) and all(found.errno is None for found in waits)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it came from, the outermost first."""
    seen: set[int] = set()
    waiting: list[object] = [error]
    while waiting:
        found = waiting.pop(0)
        if not isinstance(found, BaseException) or id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        waiting += [getattr(found, "original_error", None), getattr(found, "reason", None), *found.args]
        waiting += [found.__cause__, found.__context__]


def _tls(error: ssl.SSLError, host: str) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _VERIFY:
            return _VERIFY[error.verify_code]
        if error.verify_code in (62, 64):  # host name, IP address
            return f"certificate is not valid for {host or 'this server'}"
        return f"certificate: {_small(error.verify_message)}"
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return "the server closed the connection"
    reason = str(getattr(error, "reason", None) or "")
    return _TLS.get(reason) or _small(reason.replace("_", " ")) or _small(error.strerror or "failed")


def _protocol(chain: list[BaseException]) -> str:
    """Answers that are broken, and whatever else has words of its own."""
    from urllib3 import exceptions

    for found in chain:
        if isinstance(found, http.client.BadStatusLine | http.client.UnknownProtocol):
            return "the answer is no HTTP"
        if isinstance(found, exceptions.InvalidChunkLength):
            return "the answer is broken: a chunk has no length"
        if isinstance(found, http.client.IncompleteRead | exceptions.IncompleteRead):
            return "the connection was lost in the middle of an answer"
    for found in reversed(chain):
        texts = [text for text in found.args if isinstance(text, str) and text and "object at 0x" not in text]
        if texts:
            return _small(" ".join(texts[0].split()).rstrip("."))
    return "no answer"


def _small(text: str) -> str:
    """A message in the middle of a sentence: "Connection refused", "SOME REASON" begin small, "TLS error" does not."""
    if text.isupper():
        return text.lower()
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
