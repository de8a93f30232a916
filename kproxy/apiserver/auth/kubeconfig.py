"""A kubeconfig with a client certificate of the server's own authority."""

from __future__ import annotations

from base64 import b64encode

import yaml

from kproxy.apiserver.auth.certs import Identity, new_client


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
