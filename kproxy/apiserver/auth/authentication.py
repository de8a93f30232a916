"""Who is asking: client certificates, static tokens and service-account tokens.

Names follow kube-apiserver: a certificate's common name is the user and its organisations the groups; a service
account is `system:serviceaccount:NAMESPACE:NAME`; a request without credentials is `system:anonymous`, one with wrong
credentials is refused.
"""

from __future__ import annotations

import csv
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

import jwt
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kproxy.apiserver.errors import Json, unauthorized
from kproxy.errors import InputError

ISSUER: Final = "https://kubernetes.default.svc"
ALGORITHM: Final = "ES256"
"""How service-account tokens are signed."""
ANONYMOUS: Final = "system:anonymous"
AUTHENTICATED: Final = "system:authenticated"
MASTERS: Final = "system:masters"
BOUND_TO: Final = ("pod", "secret", "node")
"""What a token may be bound to; the first of its claims counts, a Pod's node only tells where it runs."""


@dataclass(frozen=True, slots=True)
class User:
    """A user as authorization sees it."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)

    @property
    def info(self) -> Json:
        """authentication.k8s.io/v1 UserInfo."""
        info: Json = {"username": self.name}
        if self.uid:
            info["uid"] = self.uid
        if self.groups:
            info["groups"] = list(self.groups)
        if self.extra:
            info["extra"] = {key: list(values) for key, values in self.extra.items()}
        return info


def account_user(namespace: str, name: str, uid: str = "", extra: Mapping[str, tuple[str, ...]] | None = None) -> User:
    """A ServiceAccount as a user."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
    return User(f"system:serviceaccount:{namespace}:{name}", groups, uid, extra or {})


NOBODY: Final = User(ANONYMOUS, ("system:unauthenticated",))
LOOPBACK: Final = User("system:apiserver", (MASTERS, AUTHENTICATED))


def load_token_file(path: Path) -> dict[str, User]:
    """kube-apiserver's token file: `token,user,uid[,"group1,group2"]` per line.

    Raises:
        InputError: it cannot be read, or a line has fewer than three columns.
    """
    found: dict[str, User] = {}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for number, row in enumerate(csv.reader(file), 1):
                if not row or row[0].lstrip().startswith("#"):
                    continue
                if len(row) < 3 or not row[0].strip():
                    raise InputError(f"{path}: line {number}: needs token, user name and uid, separated by commas")
                columns = [column.strip() for column in row]
                groups = tuple(each.strip() for each in columns[3].split(",") if each.strip()) if len(row) > 3 else ()
                if columns[0] in found:
                    raise InputError(f"{path}: line {number}: a token that stands in the file already")
                found[columns[0]] = User(columns[1], (*groups, AUTHENTICATED), columns[2])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    return found


class ServiceAccountTokens:
    """Signs and checks service-account tokens (ES256). `find` looks up the uid of a resource's object by its plural,
    namespace and name; None if it is gone."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, find: Callable[[str, str, str], str | None]) -> None:
        self._key = key
        self.public = key.public_key()
        self._find = find

    def issue(
        self, namespace: str, name: str, uid: str, audiences: list[str], seconds: int, now: datetime, bound: Json | None
    ) -> str:
        """A token for a service account that lasts `seconds`; `bound` are the claims of what it is bound to."""
        start = int(now.timestamp())
        private: Json = {"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}, **(bound or {})}
        claims = {
            "aud": audiences,
            "exp": start + seconds,
            "iat": start,
            "iss": ISSUER,
            "jti": secrets.token_hex(16),
            "kubernetes.io": private,
            "nbf": start,
            "sub": f"system:serviceaccount:{namespace}:{name}",
        }
        return jwt.encode(claims, self._key, algorithm=ALGORITHM)

    def check(self, token: str, audiences: tuple[str, ...] = (ISSUER,)) -> User | None:
        """The user of a token; None when it is not ours, expired or for another audience, or when its account or the
        object that it is bound to is gone."""
        claims = self._claims(token, audiences)
        if claims is None:
            return None
        private = claims.get("kubernetes.io") or {}
        namespace = private.get("namespace", "")
        account = private.get("serviceaccount") or {}
        name = account.get("name", "")
        if self._find("serviceaccounts", namespace, name) != account.get("uid"):
            return None
        bound = next((kind for kind in BOUND_TO if kind in private), None)
        if bound is not None:
            where = "" if bound == "node" else namespace
            if self._find(f"{bound}s", where, private[bound].get("name", "")) != private[bound].get("uid"):
                return None
        extra = {"authentication.kubernetes.io/credential-id": (f"JTI={claims.get('jti', '')}",)}
        for kind in ("pod", "node"):
            for part, value in (private.get(kind) or {}).items():
                extra[f"authentication.kubernetes.io/{kind}-{part}"] = (value,)
        return account_user(namespace, name, account.get("uid", ""), extra)

    def _claims(self, token: str, audiences: tuple[str, ...]) -> Json | None:
        """What a token says, None if we have not signed it, it is for others, or its time is over."""
        try:
            found: Json = jwt.decode(token, self.public, algorithms=[ALGORITHM], audience=audiences, issuer=ISSUER)
        except jwt.PyJWTError:
            return None
        return found


def audiences_of(token: str) -> Sequence[str]:
    """For whom a token is that has been found good: one that says nothing of it is for this server."""
    try:
        found = jwt.decode(token, options={"verify_signature": False}).get("aud")
    except jwt.PyJWTError:
        found = None
    return [found] if isinstance(found, str) else found or [ISSUER]


class Authenticator:
    """Finds the user of a request."""

    def __init__(
        self, authority: x509.Certificate, tokens: Mapping[str, User], accounts: ServiceAccountTokens,
        now: Callable[[], datetime],
    ) -> None:  # fmt: skip
        self._authority = authority
        self._tokens = tokens
        self._accounts = accounts
        self._now = now
        self._certificates: dict[bytes, tuple[User, datetime]] = {}

    def authenticate(self, authorization: str, certificate: bytes | None) -> User:
        """The user of an Authorization header and a client certificate (DER), the header first.

        Raises:
            StatusError: 401 for credentials that are wrong.
        """
        if authorization:
            scheme, _, token = authorization.partition(" ")
            if scheme.lower() == "bearer" and token.strip():
                return self.of_token(token.strip()) or self._refuse()
        if certificate:
            return self._of_certificate(certificate)
        return NOBODY

    @staticmethod
    def _refuse() -> User:
        raise unauthorized()

    def of_token(self, token: str, audiences: tuple[str, ...] = (ISSUER,)) -> User | None:
        """The user of a bearer token, None if it is unknown."""
        for known, user in self._tokens.items():
            if secrets.compare_digest(known.encode(), token.encode()):
                return user if ISSUER in audiences else None
        return self._accounts.check(token, audiences) if token.count(".") == 2 else None

    def _of_certificate(self, der: bytes) -> User:
        known = self._certificates.get(der)
        if known is None:
            known = self._verify(der)
            if len(self._certificates) > 1000:
                self._certificates.clear()
            self._certificates[der] = known
        user, until = known
        if self._now() > until:
            raise unauthorized()
        return user

    def _verify(self, der: bytes) -> tuple[User, datetime]:
        """Checks a certificate against our authority: its issuer, signature, time and purpose."""
        try:
            certificate = x509.load_der_x509_certificate(der)
            certificate.verify_directly_issued_by(self._authority)
            usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound) as error:
            raise unauthorized() from error
        if ExtendedKeyUsageOID.CLIENT_AUTH not in usage or self._now() < certificate.not_valid_before_utc:
            raise unauthorized()
        names = [str(each.value) for each in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        groups = [str(each.value) for each in certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
        if not names:
            raise unauthorized()
        return User(names[0], (*groups, AUTHENTICATED)), certificate.not_valid_after_utc
