"""Statements: what a rule does, in order, until one of them does not hold or gives a verdict.

`Match` holds or not; `Verdict` and `VerdictMap` end the rule; the others do something and go on, apart from those that
end the packet's way through the base chain as well: nat, reject, queue, tproxy.
Each that does not start with an expression (`matches.py`) has its grammar beside it.
Stateful ones (counter, limit, quota, ct count, last) are in `stateful.py`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeAlias

from kproxy.netfilter.nftables.constant import UnknownNameError, atom_reader, constant_reader, write_constant
from kproxy.netfilter.nftables.cursor import Cursor
from kproxy.netfilter.nftables.datatype import (
    DATATYPES,
    INET_SERVICE,
    INTEGER,
    IPV4_ADDR,
    IPV6_ADDR,
    STRING,
    Form,
)
from kproxy.netfilter.nftables.elements import read_elements, read_value
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
    types_of,
)
from kproxy.netfilter.nftables.grammar import (
    COMMENT,
    DURATION,
    NUMBER,
    AnyOrder,
    Codec,
    Grammar,
    Many,
    Own,
    Row,
    flags_of,
    literal,
    named,
    one_of,
    quoted,
    reference,
    some_of,
)
from kproxy.netfilter.nftables.operand import (
    ADDRESS_TYPES,
    argument_text,
    is_expression,
    print_expression,
    print_map,
    read_argument,
    read_expression,
    read_key,
    read_reference,
)
from kproxy.netfilter.nftables.stateful import STATEFUL_OF_NEW, Stateful
from kproxy.netfilter.nftables.style import Scope
from kproxy.netfilter.nftables.value import Prefix, Range, Verdict


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


def _read_family(cursor: Cursor) -> str | None:
    """`ip` or `ip6`, where it stands; in a table of one family it goes without saying."""
    family = cursor.take() if cursor.peek() in ADDRESS_TYPES else cursor.family
    return family if family in ADDRESS_TYPES else None


def _read_nat(cursor: Cursor, values: dict[str, Any]) -> None:
    """`[ip|ip6] [addr . port|prefix|interval] to ADDRESS[:PORT]`, and what masquerade and redirect take of it."""
    translates = values["kind"] in ("snat", "dnat")
    address: Expression | None = None
    port: Expression | None = None
    family = _read_family(cursor) if translates else None
    form = cursor.take() if cursor.peek() in ("addr", "prefix", "interval") else ""
    if form == "addr":
        cursor.expect(".")
        cursor.expect("port")
    if cursor.accept("to") or (translates and not cursor.at_stop()):
        if not translates and is_expression(cursor.peek()):
            port = read_argument(cursor, INET_SERVICE)
        else:
            address, port, family = _read_target(cursor, family, concatenated=form == "addr")
    elif translates:
        cursor.fail("to and an address expected")
    if not translates and address is not None:
        cursor.fail("only a port expected", cursor.i - 1)
    values |= {
        "family": family, "address": address, "port": port, "prefix": form == "prefix", "interval": form == "interval",
        "concatenated": form == "addr" or _is_pair(cursor, address),
    }  # fmt: skip


def _is_pair(cursor: Cursor, address: Expression | None) -> bool:
    """Whether what stands after `to` yields an address and a port."""
    if not isinstance(address, MapLookup):
        return isinstance(address, tuple)
    found = address.map
    return len(found.data_types if isinstance(found, AnonymousMap) else cursor.data_types(found.name)) > 1


def _read_target(
    cursor: Cursor, family: str | None, *, concatenated: bool = False
) -> tuple[Expression | None, Expression | None, str | None]:
    """`ADDRESS[:PORT]`, `:PORT`, `[ADDRESS]:PORT`, or expressions in their places; with the family that the address
    shows. Raises UnexpectedError, UnknownNameError."""
    token = cursor.peek()
    kind = ADDRESS_TYPES.get(family or "", IPV4_ADDR)
    address: Expression | None = None
    port = ""
    if _starts_port(token):
        pass
    elif is_expression(token) or token == "(":
        address = read_argument(cursor, kind, *((INET_SERVICE,) if concatenated else ()))
    elif token == "[":
        index, family = cursor.i, "ip6"
        word = _read_bracketed(cursor) + (f"-{_read_bracketed(cursor)}" if cursor.accept("-") else "")
        address = cursor.convert(constant_reader(IPV6_ADDR), word, index)
    elif concatenated:
        address = read_value(cursor, (kind, INET_SERVICE))
    else:
        index = cursor.i
        word = cursor.take() + ("-" + cursor.take() if cursor.accept("-") else "")
        if family is None:
            family = "ip" if "." in word.split(":")[0] else "ip6" if word.count(":") > 1 else None
        if family != "ip6":  # the colon of an IPv4 address starts the port
            word, colon, port = word.partition(":")
            port = colon + port
        address = cursor.convert(constant_reader(ADDRESS_TYPES.get(family or "", IPV4_ADDR)), word, index)
    if not port and _starts_port(cursor.peek()):
        port = cursor.take()
    return address, _read_port(cursor, port[1:]) if port else None, family


def _starts_port(token: str) -> bool:
    return token[:1] == ":" and token[1:2] != ":"


def _read_bracketed(cursor: Cursor) -> str:
    cursor.expect("[")
    word = cursor.take()
    cursor.expect("]")
    return word


def _read_port(cursor: Cursor, text: str) -> Expression:
    """`80`, `80-90`, an expression: what stands behind a colon, the first word of which has been taken, if any."""
    if not text or is_expression(text):
        if text:
            cursor.i -= 1
            cursor.tokens[cursor.i] = text
        return read_argument(cursor, INET_SERVICE)
    if cursor.accept("-"):
        text += "-" + cursor.take()
    return cursor.convert(constant_reader(INET_SERVICE), text, cursor.i - 1)


def _nat_text(nat: Nat, scope: Scope) -> str:
    special = nat.concatenated or nat.prefix or nat.interval
    parts = [nat.family] if nat.family is not None and (special or scope.family != nat.family) else []
    parts += ["addr . port"] if nat.concatenated and not isinstance(nat.address, MapLookup) else []
    parts += ["prefix"] if nat.prefix else ["interval"] if nat.interval else []
    target = _target_text(nat, scope)
    return " ".join([*parts, f"to {target}"] if target else parts)


def _target_text(item: Nat | Tproxy, scope: Scope) -> str:
    kind = ADDRESS_TYPES.get(item.family or scope.family, INTEGER)
    address = item.address
    kinds = (kind, INET_SERVICE) if isinstance(address, tuple) else (kind,)
    text = "" if address is None else argument_text(address, scope, *kinds)
    bracketed = isinstance(address, (int, Prefix, Range)) and (item.port is not None or isinstance(item, Tproxy))
    if bracketed and kind.form is Form.IPV6:
        text = "-".join(f"[{part}]" for part in text.split("-"))
    return text if item.port is None else f"{text}:{argument_text(item.port, scope, INET_SERVICE)}"


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

    GRAMMAR: ClassVar = Grammar(
        "",
        Row("", "kind", one_of("nat expected", "snat", "dnat", "masquerade", "redirect")),
        Own(_read_nat, _nat_text),
        Row("", "flags", some_of("random", "fully-random", "persistent", "netmap"), omit=frozenset()),
        words=("snat", "dnat", "masquerade", "redirect"),
    )


def _read_reject(cursor: Cursor, values: dict[str, Any]) -> None:
    if not cursor.accept("with"):
        plain = DEFAULT_REJECTS[cursor.family]
        values |= {"kind": plain.kind, "code": plain.code}
        return
    kind = cursor.take()
    if kind == "tcp":
        cursor.expect("reset")
        values["kind"] = "tcp reset"
        return
    if kind not in ("icmp", "icmpv6", "icmpx"):
        cursor.fail("tcp reset, icmp, icmpv6 or icmpx expected", cursor.i - 1)
    cursor.accept("type")
    values |= {"kind": kind, "code": cursor.value(atom_reader(DATATYPES[f"{kind}_code"]))}


def _reject_text(reject: Reject, scope: Scope) -> str:
    if reject.kind == "tcp reset":
        return "with tcp reset"
    if reject == DEFAULT_REJECTS[scope.family]:
        return ""
    return f"with {reject.kind} {write_constant(reject.code, DATATYPES[f'{reject.kind}_code'])}"


@dataclass(frozen=True, slots=True)
class Reject:
    """`reject [with ...]`: `kind` is `tcp reset`, `icmp`, `icmpv6` or `icmpx` (either, by the packet's family); `code`
    the number of the icmp_code, icmpv6_code or icmpx_code. A plain `reject` is port-unreachable of the table's
    family."""

    kind: str
    code: int = 0

    GRAMMAR: ClassVar = Grammar("reject", Own(_read_reject, _reject_text))


DEFAULT_REJECTS: Final = {
    "ip": Reject("icmp", 3), "ip6": Reject("icmpv6", 4), "inet": Reject("icmpx", 1), "bridge": Reject("icmpx", 1),
    "netdev": Reject("icmpx", 1), "arp": Reject("icmpx", 1),
}  # fmt: skip
"""What a plain `reject` does, by the table's family."""


_LOG_LEVEL: Final = one_of(
    "a log level expected", "emerg", "alert", "crit", "err", "warn", "notice", "info", "debug", "audit", default="warn"
)
_PARTS: Final = flags_of("sequence", "options")


def _read_log_flag(cursor: Cursor) -> str:
    """`flags tcp sequence,options`, `flags ip options`, `flags skuid`, `flags ether`, `flags all`."""
    cursor.i += 1
    word = cursor.name("a flag")
    return f"flags {word} {_PARTS.text(_PARTS.read(cursor), Scope())}" if word in ("tcp", "ip") else f"flags {word}"


@dataclass(frozen=True, slots=True)
class Log:
    """`log [prefix "..."] [level L] [flags ...]`, or to userspace with `group N [snaplen N] [queue-threshold N]`."""

    prefix: str | None = None
    level: str | None = None
    flags: tuple[str, ...] = ()
    group: int | None = None
    snaplen: int | None = None
    queue_threshold: int | None = None

    GRAMMAR: ClassVar = Grammar("log", AnyOrder(
        Row("prefix", "prefix", quoted("a prefix")),
        Row("group", "group", NUMBER),
        Row("snaplen", "snaplen", NUMBER),
        Row("queue-threshold", "queue_threshold", NUMBER),
        Row("level", "level", _LOG_LEVEL),
        Many("flags", {"flags": _read_log_flag}, lambda value, scope: value),
    ))  # fmt: skip


_QUEUE_FLAGS: Final = Row("flags", "flags", some_of("bypass", "fanout"), omit=frozenset(), merged=True)
_QUEUE_NUMBER: Final = Codec(
    lambda cursor: read_argument(cursor, INTEGER.sized(16)), lambda value, scope: argument_text(value, scope, INTEGER)
)


@dataclass(frozen=True, slots=True)
class Queue:
    """`queue [flags bypass,fanout] to N`: to userspace. `number` is a number, a `Range` or an expression."""

    number: Expression = 0
    flags: frozenset[str] = frozenset()

    GRAMMAR: ClassVar = Grammar(
        "queue",
        _QUEUE_FLAGS,
        Row("to", "number", _QUEUE_NUMBER,
            omit=..., others=("num",)),
        Own(_QUEUE_FLAGS.read_value),
    )  # fmt: skip


def _read_set_data(cursor: Cursor, values: dict[str, Any]) -> None:
    kind, *extra = cursor.data_types(values["set"]) or (INTEGER,)
    values["data"] = read_argument(cursor, kind, *extra)


def _set_data_text(update: SetUpdate, scope: Scope) -> str:
    if update.data is None:
        return ""
    return f": {argument_text(update.data, scope, *(scope.data_types(update.set) or (INTEGER,)))}"


_KEY: Final = Codec(read_expression, print_expression)


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

    GRAMMAR: ClassVar = Grammar(
        "",
        Row("", "operation", one_of("an operation expected", "add", "update", "delete")),
        Row("", "set", reference("a set")),
        Row("{", "key", _KEY, required=True),
        AnyOrder(
            Row("timeout", "timeout", DURATION),
            Row("comment", "comment", COMMENT),
            STATEFUL_OF_NEW,
            Own(_read_set_data, _set_data_text, (":",)),
        ),
        literal("}", "a closing } expected"),
        words=("add", "update", "delete"),
    )


def _read_tproxy(cursor: Cursor, values: dict[str, Any]) -> None:
    family = _read_family(cursor)
    cursor.expect("to")
    address, port, family = _read_target(cursor, family)
    values |= {"family": family, "address": address, "port": port}


def _tproxy_text(item: Tproxy, scope: Scope) -> str:
    family = f"{item.family} " if item.family is not None and item.family != scope.family else ""
    return f"{family}to {_target_text(item, scope)}"


@dataclass(frozen=True, slots=True)
class Tproxy:
    """`tproxy [ip|ip6] to [ADDRESS][:PORT]`: to a local socket, without changing the packet."""

    family: str | None = None
    address: Expression | None = None
    port: Expression | None = None

    GRAMMAR: ClassVar = Grammar("tproxy", Own(_read_tproxy, _tproxy_text))


@dataclass(frozen=True, slots=True)
class Notrack:
    """`notrack`: no connection tracking for this packet."""

    GRAMMAR: ClassVar = Grammar("notrack")


@dataclass(frozen=True, slots=True)
class FlowAdd:
    """`flow add @flowtable`: offloads the connection."""

    flowtable: str

    GRAMMAR: ClassVar = Grammar(
        "flow", Row("add", "flowtable", reference("a flowtable"), required=True, others=("offload",))
    )


OBJECT_WORDS: Final = ("counter", "quota", "limit", "synproxy", "secmark", "ct helper", "ct timeout", "ct expectation")
"""The kinds of objects, as they are written."""


def _joint(kind: str) -> str:
    """What stands between the kind of an object and its name in a rule."""
    return "set" if kind.startswith("ct ") else "name"


_REFERENCES: Final = {(*kind.split(), _joint(kind)): kind for kind in OBJECT_WORDS}


def read_object_reference(cursor: Cursor) -> ObjectReference | None:
    """`counter name "x"`, `ct helper set "x"`: None, with nothing taken, where something else stands."""
    words = tuple(cursor.tokens[cursor.i : cursor.i + 3])
    kind = _REFERENCES.get(words) or _REFERENCES.get(words[:2])
    if kind is None:
        return None
    cursor.i += len(kind.split()) + 1
    return ObjectReference(kind, _read_object_name(cursor))


def _read_object_name(cursor: Cursor) -> str | MapLookup:
    index = cursor.i
    try:
        key = None if cursor.peek()[:1] == '"' else read_key(cursor)
    except UnknownNameError:
        key = None
    if key is None or (cursor.i == index + 1 and cursor.peek() != "map"):
        cursor.i = index
        return cursor.name("the name of an object")
    cursor.expect("map")
    found = read_reference(cursor)
    types = types_of(key)
    return MapLookup(key, found or AnonymousMap(read_elements(cursor, types, (STRING,)), types, (STRING,)))


def object_text(item: ObjectReference, scope: Scope) -> str:
    """What nft prints of a reference to an object."""
    name = item.name
    if isinstance(name, MapLookup):
        shown = f"{print_expression(name.key, scope)} map {print_map(name.map, scope)}"
    else:
        shown = f'"{name}"'
    return f"{item.kind} {_joint(item.kind)} {shown}"


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """`counter name "x"`, `quota name "x"`, `limit name "x"`, `ct helper set "x"`, `ct timeout set "x"`, `ct
    expectation set "x"`, `synproxy name "x"`: uses a named object of the table; `kind` is its kind (`objects.py`).
    `name` is a string, or a map's lookup."""

    kind: str
    name: str | MapLookup


@dataclass(frozen=True, slots=True)
class Xt:
    """An iptables match or target inside a table of iptables-nft, which only iptables-save can show: `xt match
    "addrtype"`.

    `kind` is match, target or watcher. `text` holds the option line in the older dumps that have one.
    """

    kind: str
    name: str
    text: str = field(default="", compare=False)

    GRAMMAR: ClassVar = Grammar(
        "xt",
        Row("", "kind", one_of("match or target expected", "match", "target", "watcher")),
        Row("", "name", named("the name of an extension")),
    )


@dataclass(frozen=True, slots=True)
class OpaqueStatement:
    """A statement that kproxy does not know, with the rest of its rule, since nobody knows where it ends.

    `name` is its first word, `text` the whole as it was.
    """

    name: str
    text: str


Statement: TypeAlias = (
    Match | Verdict | VerdictMap | Stateful | Mangle | Nat | Reject | Log | Queue | SetUpdate | Tproxy | Notrack
    | FlowAdd | ObjectReference | Xt | OpaqueStatement
)  # fmt: skip
"""Everything that a rule does."""
