"""Reading the statements that send a packet elsewhere: nat, tproxy, dup, fwd, queue."""

from __future__ import annotations

from typing import Final

from kproxy.netfilter.nftables.constant import constant_reader, read_number
from kproxy.netfilter.nftables.datatype import IFNAME, INET_SERVICE, INTEGER, IPV4_ADDR, IPV6_ADDR, DataType
from kproxy.netfilter.nftables.expression import AnonymousMap, Expression, MapLookup
from kproxy.netfilter.nftables.reader.cursor import Cursor, UnexpectedError
from kproxy.netfilter.nftables.reader.elements import read_single, take_range
from kproxy.netfilter.nftables.reader.expressions import ADDRESS_TYPES, is_expression, read_argument
from kproxy.netfilter.nftables.statement import Dup, Fwd, Nat, Queue, Tproxy
from kproxy.netfilter.nftables.value import Range, Single

NAT_FLAGS: Final = frozenset({"random", "fully-random", "persistent", "netmap"})
_QUEUE_FLAGS: Final = frozenset({"bypass", "fanout"})
_QUEUE_NUMBER: Final = INTEGER.sized(16)


def read_nat(cursor: Cursor) -> Nat:
    """`snat|dnat [ip|ip6] [addr . port|prefix|interval] to ADDRESS[:PORT] [FLAGS]`, `masquerade`, `redirect`."""
    kind = cursor.take()
    family: str | None = None
    if kind in ("snat", "dnat"):
        family = cursor.take() if cursor.peek() in ADDRESS_TYPES else None
        if family is None and cursor.family.value in ADDRESS_TYPES:
            family = cursor.family.value
    concatenated = prefix = interval = False
    if cursor.accept("addr"):
        concatenated = True
        cursor.expect(".")
        cursor.expect("port")
    elif cursor.accept("prefix"):
        prefix = True
    elif cursor.accept("interval"):
        interval = True
    address: Expression | None = None
    port: Expression | None = None
    if kind in ("redirect", "masquerade") and cursor.peek() == "to" and is_expression(cursor.tokens[cursor.i + 1]):
        cursor.i += 1
        port = read_argument(cursor, INET_SERVICE)
    elif cursor.accept("to") or (kind in ("snat", "dnat") and not cursor.at_stop()):
        address, port, family = read_target(cursor, family, concatenated=concatenated)
        concatenated = concatenated or _is_pair(cursor, address)
    elif kind in ("snat", "dnat"):
        cursor.fail("to and an address expected")
    if kind in ("redirect", "masquerade") and address is not None:
        cursor.fail("only a port expected", cursor.i - 1)
    return Nat(kind, family, address, port, _read_nat_flags(cursor), concatenated, prefix, interval)


def _is_pair(cursor: Cursor, address: Expression | None) -> bool:
    """Whether what stands after `to` yields an address and a port."""
    if not isinstance(address, MapLookup):
        return isinstance(address, tuple)
    if isinstance(address.map, AnonymousMap):
        return len(address.map.data_types) > 1
    found = cursor.find_set(address.map.name)
    return found is not None and len(found.data_types) > 1


def _read_nat_flags(cursor: Cursor) -> frozenset[str]:
    flags = set()
    while cursor.peek() in NAT_FLAGS:
        flags.add(cursor.take())
        if not cursor.accept(","):
            break
    return frozenset(flags)


def read_target(
    cursor: Cursor, family: str | None, *, concatenated: bool = False
) -> tuple[Expression | None, Expression | None, str | None]:
    """`ADDRESS[:PORT]`, `:PORT`, `[ADDRESS]:PORT`, or expressions in their places; with the family that the address
    shows.

    Raises:
        UnexpectedError: something else stands there.
        UnknownNameError: a name is not known to kproxy.
    """
    token = cursor.peek()
    if token == ":" or (token[:1] == ":" and token[1:2] != ":"):
        return None, _read_port(cursor), family
    kind = ADDRESS_TYPES.get(family or "", IPV4_ADDR)
    address: Expression
    if is_expression(token) or token == "(":
        extra = (INET_SERVICE,) if concatenated else ()
        address = read_argument(cursor, kind, *extra)
    elif token == "[":
        if family == "ip":
            cursor.fail("an IPv4 address expected")
        cursor.i += 1
        family = family or "ip6"
        address = read_single(cursor, IPV6_ADDR)
        cursor.expect("]")
        if cursor.accept("-"):
            address = _join(cursor, address)
    elif concatenated:
        address = _read_pair(cursor, kind)
    else:
        return _read_address_word(cursor, family)
    port = _read_port(cursor) if cursor.peek()[:1] == ":" else None
    return address, port, family


def _join(cursor: Cursor, first: Single) -> Single:
    cursor.expect("[")
    last = read_single(cursor, IPV6_ADDR)
    cursor.expect("]")
    if not isinstance(first, int) or not isinstance(last, int) or first > last:
        cursor.fail("a range of addresses expected", cursor.i - 1)
    return constant_range(first, last)


def constant_range(first: int, last: int) -> Single:
    """The numbers from first to last."""
    return first if first == last else Range(first, last)


def _read_pair(cursor: Cursor, kind: DataType) -> tuple[Single, ...]:
    address = read_single(cursor, kind)
    cursor.expect(".")
    return (address, read_single(cursor, INET_SERVICE))


def _read_address_word(cursor: Cursor, family: str | None) -> tuple[Expression | None, Expression | None, str | None]:
    """`10.0.0.1`, `10.0.0.1-10.0.0.9:80-90`, `fd00::1`: the colon of an IPv4 address starts the port."""
    index = cursor.i
    token = cursor.take()
    if cursor.accept("-"):
        token += "-" + cursor.take()
    if family is None:
        family = "ip" if "." in token.split(":")[0] else "ip6" if token.count(":") > 1 else None
    try:
        if family == "ip6":
            return constant_reader(IPV6_ADDR)(token), None, family
        address, colon, port = token.partition(":")
        number = constant_reader(IPV4_ADDR)(address)
        if not colon:
            if cursor.peek()[:1] == ":":
                return number, _read_port(cursor), family
            return number, None, family
        return number, constant_reader(INET_SERVICE)(port), family
    except ValueError as error:
        raise UnexpectedError(str(error), index) from None


def _read_port(cursor: Cursor) -> Expression:
    """`:80`, `:80-90`, `: EXPRESSION`."""
    token = cursor.peek()
    if token == ":":
        cursor.i += 1
        return read_argument(cursor, INET_SERVICE)
    cursor.i += 1
    text = token[1:]
    if is_expression(text):
        cursor.i -= 1
        cursor.tokens[cursor.i] = text
        return read_argument(cursor, INET_SERVICE)
    if cursor.accept("-"):
        text += "-" + cursor.take()
    try:
        return constant_reader(INET_SERVICE)(text)
    except ValueError as error:
        raise UnexpectedError(str(error), cursor.i - 1) from None


def read_tproxy(cursor: Cursor) -> Tproxy:
    """`tproxy [ip|ip6] to [ADDRESS][:PORT]`."""
    cursor.i += 1
    family = cursor.take() if cursor.peek() in ADDRESS_TYPES else None
    cursor.expect("to")
    if family is None and cursor.family.value in ADDRESS_TYPES:
        family = cursor.family.value
    address, port, family = read_target(cursor, family)
    return Tproxy(family, address, port)


def read_dup(cursor: Cursor) -> Dup:
    """`dup to ADDRESS [device IF]`, in netdev tables `dup to IF`."""
    cursor.i += 1
    cursor.expect("to")
    if cursor.family.value == "netdev":
        return Dup(None, read_argument(cursor, IFNAME))
    address = read_argument(cursor, ADDRESS_TYPES.get(cursor.family.value, IPV4_ADDR))
    return Dup(address, read_argument(cursor, IFNAME) if cursor.accept("device") else None)


def read_fwd(cursor: Cursor) -> Fwd:
    """`fwd [ip|ip6] to [ADDRESS device] IF`."""
    cursor.i += 1
    family = cursor.take() if cursor.peek() in ADDRESS_TYPES else None
    cursor.expect("to")
    if family is None:
        return Fwd(read_argument(cursor, IFNAME))
    address = read_argument(cursor, ADDRESS_TYPES[family])
    cursor.expect("device")
    return Fwd(read_argument(cursor, IFNAME), address, family)


def read_queue(cursor: Cursor) -> Queue:
    """`queue [flags FLAGS] [to|num] N[-M] [FLAGS]`."""
    cursor.i += 1
    flags: set[str] = set()
    if cursor.accept("flags"):
        _read_queue_flags(cursor, flags)
    number: Expression = 0
    if cursor.accept("to") or cursor.accept("num"):
        if is_expression(cursor.peek()):
            number = read_argument(cursor, _QUEUE_NUMBER)
        else:
            number = take_range(cursor, read_number)
    _read_queue_flags(cursor, flags)
    return Queue(number, frozenset(flags))


def _read_queue_flags(cursor: Cursor, flags: set[str]) -> None:
    while cursor.peek() in _QUEUE_FLAGS:
        flags.add(cursor.take())
        if not cursor.accept(","):
            break
