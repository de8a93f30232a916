"""The server's own certificate authority, certificates and keys, made once and kept in the data directory; what TLS
offers and asks for, and kubeconfigs with client certificates."""

from __future__ import annotations

import ipaddress
import os
import ssl
from base64 import b64encode
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kproxy.errors import KproxyError

HANDSHAKE: Final = 10.0
"""Seconds for the handshake of TLS."""
_YEARS: Final = timedelta(days=3650)
_NAMES: Final = (
    "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost",
)  # fmt: skip


class CertificateError(KproxyError):
    """The files in the data directory are no usable keys or certificates."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return key_pem(self.key)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _name(common: str, groups: tuple[str, ...] = ()) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + _YEARS)
    )


def new_authority(common: str = "kproxy-apiserver-ca") -> Identity:
    """A certificate authority of its own."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(common)
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    builder = (
        _builder(name, name, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return Identity(builder.sign(key, hashes.SHA256()), key)


def _issued(authority: Identity, builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> Identity:
    usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(identifier, critical=False)
    )
    return Identity(builder.sign(authority.key, hashes.SHA256()), key)


def new_server(authority: Identity, hosts: tuple[str, ...]) -> Identity:
    """A serving certificate for host names and addresses."""
    key = ec.generate_private_key(ec.SECP256R1())
    alternatives: list[x509.GeneralName] = []
    for host in dict.fromkeys((*_NAMES, "127.0.0.1", "::1", *hosts)):
        try:
            alternatives.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            alternatives.append(x509.DNSName(host))
    builder = (
        _builder(_name("kube-apiserver"), authority.certificate.subject, key)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    )
    return _issued(authority, builder, key)


def new_client(authority: Identity, user: str, groups: tuple[str, ...] = ()) -> Identity:
    """A client certificate for a user."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_name(user, groups), authority.certificate.subject, key).add_extension(
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
    )
    return _issued(authority, builder, key)


def write_private(path: Path, data: bytes, owner: tuple[int, int] | None = None) -> None:
    """Writes a file that only its owner (user and group; by default the process's) can read, whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        if owner is not None:
            os.fchown(file.fileno(), *owner)
    os.replace(temporary, path)


def load_or_make_authority(directory: Path) -> Identity:
    """The authority in a directory, made on first use.

    Raises:
        CertificateError: its files are unreadable.
    """
    path = directory / "ca.pem"
    if not path.exists():
        made = new_authority()
        write_private(path, made.certificate_pem + made.key_pem)
        return made
    try:
        data = path.read_bytes()
        key = serialization.load_pem_private_key(data, None)
        certificate = x509.load_pem_x509_certificate(data)
    except (OSError, ValueError) as error:
        raise CertificateError(f"{path}: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError(f"{path}: not an elliptic-curve key")
    return Identity(certificate, key)


def load_or_make_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """A signing key, made on first use.

    Raises:
        CertificateError: the file is unreadable.
    """
    if not path.exists():
        made = ec.generate_private_key(ec.SECP256R1())
        write_private(path, key_pem(made))
        return made
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError) as error:
        raise CertificateError(f"{path}: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError(f"{path}: not an elliptic-curve key")
    return key


def server_context(authority: Identity, server: Identity) -> ssl.SSLContext:
    """A context for listening with `server`, which `authority` has issued; clients may show what `authority` issued.

    Another certificate ends the handshake. kube-apiserver answers 401 to it; a context of the standard library cannot.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with TemporaryDirectory(prefix="kproxy-") as directory:  # OpenSSL wants a file
        path = Path(directory) / "server.pem"
        write_private(path, server.key_pem + server.certificate_pem + authority.certificate_pem)
        context.load_cert_chain(path)
    context.load_verify_locations(cadata=authority.certificate_pem.decode())
    context.verify_mode = ssl.CERT_OPTIONAL
    context.set_alpn_protocols(["http/1.1"])
    return context


def kubeconfig_text(url: str, authority: Identity, user: str, groups: tuple[str, ...]) -> str:
    """The text of a kubeconfig for a user of some groups."""
    identity = new_client(authority, user, groups)

    def text(data: bytes) -> str:
        return b64encode(data).decode()

    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "kproxy",
                "cluster": {
                    "server": url,
                    "certificate-authority-data": text(authority.certificate_pem),
                },
            }
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": text(identity.certificate_pem),
                    "client-key-data": text(identity.key_pem),
                },
            }
        ],
        "contexts": [{"name": "kproxy", "context": {"cluster": "kproxy", "user": user}}],
        "current-context": "kproxy",
    }
    return yaml.safe_dump(document, sort_keys=False)
