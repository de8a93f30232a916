"""Statements: what a rule does, in order, until one of them does not hold or gives a verdict.

`Match` holds or not; `Verdict` and `VerdictMap` end the rule; the others do something and go on, apart from those that
end the packet's way through the base chain as well: nat, reject, queue, tproxy, synproxy, dup's neighbour fwd (`Fwd`).
Stateful ones (counter, limit, quota, ct count, last) are in `stateful.py`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kproxy.netfilter.nftables.expression import (
    AnonymousMap,
    Ct,
    Expression,
    ExtensionField,
    MapLookup,
    Meta,
    Payload,
    RawPayload,
    SetReference,
)
from kproxy.netfilter.nftables.stateful import Stateful
from kproxy.netfilter.nftables.value import Verdict


class Operator(enum.Enum):
    """How a match compares. With a set, range, prefix or concatenation, EQ is "in" and NE "not in"."""

    EQ = "=="
    NE = "!="
    LT = "<"
    GT = ">"
    LE = "<="
    GE = ">="
    ANY = "any"
    """At least one of these bits is set; nft writes nothing: `ct state established,related`, `tcp flags syn`."""
    NONE = "!"
    """None of these bits is set: `tcp flags ! syn,ack`."""


@dataclass(frozen=True, slots=True)
class Match:
    """`LEFT [OPERATOR] RIGHT`: holds when the packet's value and the constant, set or other value compare so."""

    left: Expression
    operator: Operator
    right: Expression


@dataclass(frozen=True, slots=True)
class VerdictMap:
    """`KEY vmap @name`, `KEY vmap { ... }`: the verdict of the element that holds the key's value; without one, the
    rule ends without a verdict."""

    key: Expression
    map: SetReference | AnonymousMap


@dataclass(frozen=True, slots=True)
class Mangle:
    """`TARGET set VALUE`: writes a mark, a priority, a header's field and so on; `meta mark set meta mark | 0x4000`."""

    target: Meta | Ct | Payload | RawPayload | ExtensionField
    value: Expression


@dataclass(frozen=True, slots=True)
class Nat:
    """`dnat to 10.0.0.1:80`, `snat`, `masquerade`, `redirect to :8080`; `kind` is the first word.

    `family` is ip or ip6 where dnat and snat name it or the table has one, else None. `address` is a number, a `Range`,
    a `Prefix` or an expression; `port` a number, a `Range` or an expression. With `concatenated` (`dnat ip addr . port
    to ...`) `address` yields both, address and port, as a tuple. With `prefix` (`snat ip prefix to ...`) the address
    keeps its bits outside the prefix that it is mapped to. `interval` (`snat ip interval to ...`): `address` yields
    ranges. `flags` are random, fully-random, persistent.
    """

    kind: str
    family: str | None = None
    address: Expression | None = None
    port: Expression | None = None
    flags: frozenset[str] = frozenset()
    concatenated: bool = False
    prefix: bool = False
    interval: bool = False


@dataclass(frozen=True, slots=True)
class Reject:
    """`reject [with ...]`: `kind` is `tcp reset`, `icmp`, `icmpv6` or `icmpx` (either, by the packet's family); `code`
    the number of the icmp_code, icmpv6_code or icmpx_code. A plain `reject` is port-unreachable of the table's
    family."""

    kind: str
    code: int = 0


DEFAULT_REJECTS: Final = {
    "ip": Reject("icmp", 3), "ip6": Reject("icmpv6", 4), "inet": Reject("icmpx", 1), "bridge": Reject("icmpx", 1),
    "netdev": Reject("icmpx", 1), "arp": Reject("icmpx", 1),
}  # fmt: skip
"""What a plain `reject` does, by the table's family."""


@dataclass(frozen=True, slots=True)
class Log:
    """`log [prefix "..."] [level L] [flags ...]`, or to userspace with `group N [snaplen N] [queue-threshold N]`."""

    prefix: str | None = None
    level: str | None = None
    flags: frozenset[str] = frozenset()
    group: int | None = None
    snaplen: int | None = None
    queue_threshold: int | None = None


@dataclass(frozen=True, slots=True)
class Queue:
    """`queue [flags bypass,fanout] to N`: to userspace. `number` is a number, a `Range` or an expression."""

    number: Expression = 0
    flags: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SetUpdate:
    """`add|update|delete @set { KEY [timeout T] [STATEFUL] [: DATA] }`: changes the set with this packet's key.

    `add` keeps an element that is there, with its timeout; `update` starts the timeout again. `timeout` is
    milliseconds. The statements are those of the new element: when one does not hold (a limit that is used up), the
    rule ends.
    """

    operation: str
    set: str
    key: Expression
    data: Expression | None = None
    timeout: int | None = None
    stateful: tuple[Stateful, ...] = ()
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class Tproxy:
    """`tproxy [ip|ip6] to [ADDRESS][:PORT]`: to a local socket, without changing the packet."""

    family: str | None = None
    address: Expression | None = None
    port: Expression | None = None


@dataclass(frozen=True, slots=True)
class Notrack:
    """`notrack`: no connection tracking for this packet."""


@dataclass(frozen=True, slots=True)
class Dup:
    """`dup to ADDRESS [device IF]`: a copy to another host. In netdev tables `address` is None and `device` the
    interface."""

    address: Expression | None = None
    device: Expression | None = None


@dataclass(frozen=True, slots=True)
class Fwd:
    """`fwd [ip|ip6] to ADDRESS device IF`: out of another interface, in netdev tables."""

    device: Expression
    address: Expression | None = None
    family: str | None = None


@dataclass(frozen=True, slots=True)
class Synproxy:
    """`synproxy [mss N] [wscale N] [timestamp] [sack-perm]`: answers SYNs in place of the server."""

    mss: int | None = None
    wscale: int | None = None
    flags: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class FlowAdd:
    """`flow add @flowtable`: offloads the connection."""

    flowtable: str


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """`counter name "x"`, `quota name "x"`, `limit name "x"`, `ct helper set "x"`, `ct timeout set "x"`, `ct
    expectation set "x"`, `synproxy name "x"`: uses a named object of the table; `kind` is its kind (`objects.py`).
    `name` is a string, or a map's lookup."""

    kind: str
    name: str | MapLookup


@dataclass(frozen=True, slots=True)
class ResetOption:
    """`reset tcp option NAME`: takes a TCP option out."""

    option: str


@dataclass(frozen=True, slots=True)
class Xt:
    """An iptables match or target inside a table of iptables-nft, which only iptables-save can show: `xt match
    "addrtype"`.

    `kind` is match, target or watcher. `text` holds the option line in the older dumps that have one.
    """

    kind: str
    name: str
    text: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class OpaqueStatement:
    """A statement that kproxy does not know, and in text the rest of its rule, since nobody knows where it ends.

    `name` is its first word (or JSON key), `text` the whole as it was; `json` says that the text is JSON.
    """

    name: str
    text: str
    json: bool = False


Statement: TypeAlias = (
    Match | Verdict | VerdictMap | Stateful | Mangle | Nat | Reject | Log | Queue | SetUpdate | Tproxy | Notrack | Dup
    | Fwd | Synproxy | FlowAdd | ObjectReference | ResetOption | Xt | OpaqueStatement
)  # fmt: skip
"""Everything that a rule does."""
