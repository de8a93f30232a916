"""OpenID Connect discovery of the issuer of service-account tokens: who issues them, and the key that checks them.

With them, others than this server can verify a Pod's token. Source: kubernetes/kubernetes
pkg/serviceaccount/openidmetadata.go and pkg/routes/openidmetadata.go.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from kproxy.apiserver.auth.authentication import ALGORITHM, key_id

CONFIGURATION_PATH: Final = "/.well-known/openid-configuration"
JWKS_PATH: Final = "/openid/v1/jwks"


class OpenIdDiscovery:
    """The two documents. `address` is where this server is reached, host and port."""

    def __init__(self, issuer: str, public: ec.EllipticCurvePublicKey, address: str) -> None:
        configuration = {
            "issuer": issuer,
            "jwks_uri": f"https://{address}{JWKS_PATH}",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": [ALGORITHM],
        }
        key: dict[str, Any] = ECAlgorithm.to_jwk(public, as_dict=True)
        keys = {"keys": [{"use": "sig", "kid": key_id(public), "alg": ALGORITHM, **key}]}
        self._documents = {
            CONFIGURATION_PATH: (msgspec.json.encode(configuration), "application/json"),
            JWKS_PATH: (msgspec.json.encode(keys), "application/jwk-set+json"),
        }

    def document(self, path: str) -> tuple[bytes, str] | None:
        """The document at a path and its media type; None for another path."""
        return self._documents.get(path)
