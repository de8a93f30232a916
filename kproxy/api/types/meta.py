"""The parts of metav1 that every object shares.

All values in `kproxy.api` are frozen: decoding, defaulting and validation happen once, at the edge, and nothing later
sees a raw dict. Field names are the API's own in snake case.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

EMPTY: Final[Mapping[str, str]] = MappingProxyType({})


class ObjectMeta(msgspec.Struct, frozen=True, gc=False):
    """metav1.ObjectMeta, as far as a network dataplane reads it.

    `namespace` is "default" for namespaced objects that leave it out (what kubectl does), "" for cluster-scoped ones.
    `resource_version` and `uid` are opaque strings, "" when absent. `deletion_timestamp` is RFC 3339 text or "".
    """

    name: str
    namespace: str = ""
    labels: Mapping[str, str] = EMPTY
    annotations: Mapping[str, str] = EMPTY
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`, or `name` for cluster-scoped objects: client-go's MetaNamespaceKeyFunc."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name
