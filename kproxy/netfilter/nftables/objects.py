"""Named objects of a table, which rules and maps refer to, and flowtables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kproxy.netfilter.nftables.stateful import Counter, Limit, Quota
from kproxy.netfilter.nftables.statement import Synproxy

OBJECT_WORDS: Final = ("counter", "quota", "limit", "synproxy", "secmark", "ct helper", "ct timeout", "ct expectation")
"""The kinds of objects, as they are written."""


@dataclass(frozen=True, slots=True)
class CtHelper:
    """`ct helper NAME { type "ftp" protocol tcp; l3proto ip; }`: `protocol` is an IP protocol, `l3proto` ip, ip6 or
    inet."""

    type: str
    protocol: int
    l3proto: str | None = None


@dataclass(frozen=True, slots=True)
class CtTimeout:
    """`ct timeout NAME { protocol tcp; l3proto ip; policy = { established : 2m } }`: `policy` gives milliseconds by the
    connection's state."""

    protocol: int
    l3proto: str | None = None
    policy: Mapping[str, int] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.protocol, self.l3proto, frozenset(self.policy.items())))


@dataclass(frozen=True, slots=True)
class CtExpectation:
    """`ct expectation NAME { protocol tcp; dport 9876; timeout 2m; size 8; l3proto ip; }`; `timeout` in
    milliseconds."""

    protocol: int
    dport: int
    timeout: int
    size: int
    l3proto: str | None = None


@dataclass(frozen=True, slots=True)
class Secmark:
    """`secmark NAME { "system_u:object_r:..." }`."""

    context: str


@dataclass(frozen=True, slots=True)
class OpaqueObject:
    """An object of a kind that kproxy does not know: the text between its braces (or its JSON)."""

    text: str
    json: bool = False


ObjectBody: TypeAlias = (
    Counter | Quota | Limit | Synproxy | CtHelper | CtTimeout | CtExpectation | Secmark | OpaqueObject
)


@dataclass(frozen=True, slots=True)
class NamedObject:
    """An object: `kind` is counter, quota, limit, synproxy, `ct helper`, `ct timeout`, `ct expectation` or secmark."""

    kind: str
    name: str
    body: ObjectBody
    comment: str | None = None
    handle: int | None = field(default=None, compare=False)
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Flowtable:
    """`flowtable NAME { hook ingress priority 0; devices = { eth0, eth1 }; }`: connections that skip the hooks."""

    name: str
    hook: str | None = None
    priority: int = 0
    devices: tuple[str, ...] = ()
    counter: bool = False
    flags: frozenset[str] = frozenset()
    handle: int | None = field(default=None, compare=False)
    line: int = field(default=0, compare=False)
