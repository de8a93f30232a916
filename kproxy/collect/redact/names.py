"""Names get numbers: each kind of its own, in the order of the names, so that what is sorted by name stays sorted."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

NAMESPACE: Final = "ns"
SERVICE: Final = "svc"
PORT: Final = "port"
POD: Final = "pod"
NODE: Final = "node"
HOST: Final = "host"
SLICE: Final = "slice"
ZONE: Final = "zone"
CONTAINER: Final = "container"
OBJECT: Final = "object"
KEY: Final = "label"
VALUE: Final = "value"
DOMAIN: Final = "domain"
TEXT: Final = "text"

_WELL_KNOWN: Final = {
    NAMESPACE: frozenset({"default", "kube-system", "kube-public", "kube-node-lease"}),
    SERVICE: frozenset({"kubernetes", "kube-dns"}),
    VALUE: frozenset({
        "kube-proxy", "kube-dns", "kubernetes", "true", "false", "linux", "windows", "amd64", "arm64", "apiserver",
        "endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io", "CoreDNS", "kproxy",
    }),
    KEY: frozenset({"app", "k8s-app", "component", "tier", "version", "pod-template-hash", "controller-revision-hash"}),
}  # fmt: skip
"""What every cluster has, and tells nothing of this one."""
_WELL_KNOWN_DOMAINS: Final = ("kubernetes.io", "k8s.io")


class Names:
    """Notes names until `settle`, and gives their replacements afterwards."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._noted: dict[str, set[str]] = {}
        self._given: dict[str, dict[str, str]] = {}
        self._settled = False

    def name(self, kind: str, text: str) -> str:
        """The replacement of a name; "" and what every cluster has stay."""
        if not text or text in _WELL_KNOWN.get(kind, ()) or (kind == KEY and _is_well_known(text)):
            return text
        if self._settled:
            return self._given.get(kind, {}).get(text) or f"{kind}-{self.scrambled(text, 8).lower()}"
        self._noted.setdefault(kind, set()).add(text)
        return text

    def settle(self) -> None:
        """Numbers what was noted."""
        self._settled = True
        for kind, names in self._noted.items():
            width = len(str(len(names)))
            self._given[kind] = {name: f"{kind}-{at:0{width}}" for at, name in enumerate(sorted(names), 1)}

    @property
    def is_settled(self) -> bool:
        return self._settled

    def given(self, kind: str) -> dict[str, str]:
        """All replacements of a kind, by the old name."""
        return dict(self._given.get(kind, {}))

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(sorted(self._given))

    def scrambled(self, text: str, length: int) -> str:
        """Characters of base32 that stand for a text and do not tell it."""
        digest = int.from_bytes(blake2b(text.encode("utf-8", "surrogateescape"), key=self._key).digest())
        return "".join("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[digest >> 5 * at & 31] for at in range(length))


def _is_well_known(key: str) -> bool:
    domain, slash, _ = key.partition("/")
    return bool(slash) and (
        domain in _WELL_KNOWN_DOMAINS or domain.endswith(tuple(f".{d}" for d in _WELL_KNOWN_DOMAINS))
    )
