"""Pod templates: pods made from them, their hash, and the names of what controllers make."""

from __future__ import annotations

import hashlib
import secrets
from typing import Final

import msgspec

from kproxy.lab.controllers.claims import owner_reference
from kproxy.lab.resources import Json, Object

NAME_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
"""apimachinery's util/rand: no vowels, so that no words come out."""


def template_hash(template: Object) -> str:
    """A hash of a pod template in apimachinery's safe alphabet."""
    digest = hashlib.sha256(msgspec.json.encode(template, order="deterministic")).digest()
    return "".join(NAME_ALPHABET[byte % len(NAME_ALPHABET)] for byte in digest[:10])


def pod_of(owner: Object, kind: str) -> Json:
    """A new pod of a controller: `generateName`'s kind of name, the template's labels, annotations and spec."""
    meta, template = owner["metadata"], owner["spec"]["template"]
    given = template.get("metadata") or {}
    suffix = "".join(secrets.choice(NAME_ALPHABET) for _ in range(5))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{meta['name'][:57]}-{suffix}",
            "labels": dict(given.get("labels") or {}),
            "annotations": dict(given.get("annotations") or {}),
            "ownerReferences": [owner_reference(owner, kind)],
        },
        "spec": dict(template["spec"]),
    }
