"""Who we are to the API server: tokens, token files, exec plugins, passwords, client certificates.

A credential is asked before every request, and learns when the server did not accept it (401), so a token file that the
kubelet rotates and a plugin's token that expires are taken up without a restart, as in client-go
(transport/token_source.go, plugin/pkg/client/auth/exec).
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from kproxy.client.errors import ConfigError, CredentialError

TOKEN_FILE_PERIOD: Final = 60.0
"""Seconds after which a token file is read again: client-go's cachingTokenSource."""


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """A certificate chain and its key, as PEM. Equal values mean that connections may stay as they are."""

    certificate: bytes
    key: bytes

    def load_into(self, context: ssl.SSLContext) -> None:
        """Raises ConfigError if it is not such a pair. OpenSSL wants files: they exist, for us alone, for a moment."""
        with tempfile.TemporaryDirectory(prefix="kproxy-") as directory:
            paths = [os.path.join(directory, name) for name in ("cert.pem", "key.pem")]
            for path, data in zip(paths, (self.certificate, self.key), strict=True):
                with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                    file.write(data)
            try:
                context.load_cert_chain(paths[0], paths[1], password="")
            except (ssl.SSLError, OSError) as error:
                raise ConfigError(f"the client certificate and key cannot be used: {error}") from error


class Credential:
    """What authenticates requests to the server; this one has nothing to show."""

    def authorization(self) -> str:
        """The value of the Authorization header, "" for none. Raises CredentialError."""
        return ""

    def certificate(self) -> ClientCertificate | None:
        """The client certificate for TLS. Raises CredentialError."""
        return None

    def rejected(self, authorization: str) -> bool:
        """The server answered 401 to this header. Returns whether another try may go better."""
        return False


class Header(Credential):
    """A header that never changes: a token or a password of the kubeconfig."""

    def __init__(self, value: str) -> None:
        self.value = value

    @classmethod
    def bearer(cls, token: str) -> Header:
        return cls(f"Bearer {token}")

    @classmethod
    def basic(cls, username: str, password: str) -> Header:
        return cls("Basic " + base64.b64encode(f"{username}:{password}".encode()).decode())

    def authorization(self) -> str:
        return self.value


class TokenFile(Credential):
    """A bearer token in a file that others renew; read every minute, and again when it was rejected.

    While the file cannot be read the last token stays, `fallback` before the first; without either that is an error.
    """

    def __init__(self, path: str, fallback: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._token = fallback
        self._clock = clock
        self._read_at: float | None = None
        self._lock = threading.Lock()

    def authorization(self) -> str:
        with self._lock:
            now = self._clock()
            if self._read_at is None or not 0 <= now - self._read_at < TOKEN_FILE_PERIOD:
                self._read(now)
            return f"Bearer {self._token}"

    def rejected(self, authorization: str) -> bool:
        with self._lock:
            with contextlib.suppress(CredentialError):
                self._read(self._clock())
            return f"Bearer {self._token}" != authorization

    def _read(self, now: float) -> None:
        try:
            token = Path(self._path).read_text(encoding="utf-8").strip()
            if not token:
                raise CredentialError(f"the token file {self._path} is empty")
        except (OSError, ValueError, CredentialError) as error:
            if not self._token:
                raise CredentialError(f"cannot read a token from {self._path}: {error}") from error
            return
        self._token = token
        self._read_at = now


class _WithCertificate(Credential):
    """A client certificate; `inner` gives the Authorization header."""

    def __init__(self, inner: Credential) -> None:
        self.inner = inner

    def authorization(self) -> str:
        return self.inner.authorization()

    def rejected(self, authorization: str) -> bool:
        return self.inner.rejected(authorization)


class CertificateFiles(_WithCertificate):
    """A client certificate in two files, read again when they change."""

    def __init__(self, certificate: str, key: str, inner: Credential) -> None:
        super().__init__(inner)
        self._paths = (certificate, key)
        self._stamp: tuple[tuple[int, int], ...] | None = None
        self._loaded: ClientCertificate | None = None
        self._lock = threading.Lock()

    def certificate(self) -> ClientCertificate | None:
        with self._lock:
            try:
                stats = [os.stat(path) for path in self._paths]
                stamp = tuple((found.st_mtime_ns, found.st_ino) for found in stats)
                if stamp != self._stamp:
                    self._loaded = ClientCertificate(*(Path(path).read_bytes() for path in self._paths))
                    self._stamp = stamp
            except OSError as error:
                if self._loaded is None:
                    raise CredentialError(f"cannot read the client certificate: {error}") from error
            return self._loaded


class InlineCertificate(_WithCertificate):
    """A client certificate of the kubeconfig itself."""

    def __init__(self, pair: ClientCertificate, inner: Credential) -> None:
        super().__init__(inner)
        self.pair = pair

    def certificate(self) -> ClientCertificate | None:
        return self.pair


class ExecPlugin(Credential):
    """An exec credential plugin (client.authentication.k8s.io): run when there is nothing yet, on expiry and on 401.

    `run` executes the plugin and returns the `status` of its ExecCredential; it raises CredentialError. `now` gives
    Unix seconds, to compare with expirationTimestamp.
    """

    def __init__(self, run: Callable[[], Mapping[str, Any]], now: Callable[[], float] = time.time) -> None:
        self._run = run
        self._now = now
        self._header = ""
        self._pair: ClientCertificate | None = None
        self._expires: float | None = None
        self._valid = False
        self._lock = threading.Lock()

    def authorization(self) -> str:
        with self._lock:
            self._refresh()
            return self._header

    def certificate(self) -> ClientCertificate | None:
        with self._lock:
            self._refresh()
            return self._pair

    def rejected(self, authorization: str) -> bool:
        with self._lock:
            if self._header == authorization:
                self._valid = False
            return True

    def _refresh(self) -> None:
        if self._valid and (self._expires is None or self._now() < self._expires):
            return
        status = self._run()
        token = status.get("token")
        certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
        if not token and not certificate and not key:
            raise CredentialError("getting credentials: exec plugin didn't return a token or cert/key pair")
        if bool(certificate) != bool(key):
            raise CredentialError("getting credentials: exec plugin returned only certificate or key, not both")
        self._expires = _expiry(status.get("expirationTimestamp"))
        self._header = f"Bearer {token}" if token else ""
        self._pair = ClientCertificate(str(certificate).encode(), str(key).encode()) if certificate and key else None
        self._valid = True


def _expiry(text: object) -> float | None:
    """Unix seconds of an expirationTimestamp, which is RFC 3339; None if there is none. Raises CredentialError."""
    if not text:
        return None
    try:
        when = datetime.fromisoformat(str(text))
        if when.tzinfo is None:
            raise ValueError("there is no time zone")
    except ValueError as error:
        raise CredentialError(f"getting credentials: exec plugin returned expirationTimestamp {text!r}") from error
    return when.timestamp()


def decode_data(text: str, field: str) -> bytes:
    """The bytes of a `-data` field. Raises ConfigError if it is not base64."""
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ConfigError(f"{field} is not base64: {error}") from error
