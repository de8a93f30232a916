"""Expressions of nftables as quantities.

Theory: docs/symbolic.md, "nftables".

What iptables asks, too, is asked in the same way (`symbolic.conditions`), so that it is the same variable on both sides
of a comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Final

from kproxy.dataplane.model.packet import TCP
from kproxy.dataplane.symbolic.ask import ask
from kproxy.dataplane.symbolic.conditions import Conditions
from kproxy.dataplane.symbolic.connection import state, status
from kproxy.dataplane.symbolic.free_variables import Stage
from kproxy.dataplane.symbolic.nftables.quantity import (
    Bits,
    Cases,
    Constant,
    Flags,
    Opaque,
    OpaqueError,
    Quantity,
    Random,
    Small,
    Wide,
    any_of,
    numbers,
    random_chances,
)
from kproxy.dataplane.symbolic.nodes import FALSE, TRUE, Node
from kproxy.dataplane.symbolic.variables import LOCAL, MULTICAST, UNICAST, Variables
from kproxy.netfilter.address import Network
from kproxy.netfilter.condition import In, Under
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import Range as IptablesRange
from kproxy.netfilter.iptables.matches import OwnerMatch
from kproxy.netfilter.iptables.option import Negatable
from kproxy.netfilter.nftables.expression import (
    Binary,
    Ct,
    Expression,
    ExtensionField,
    Fib,
    Meta,
    Numgen,
    Payload,
)
from kproxy.netfilter.nftables.protocol import HEADERS
from kproxy.netfilter.nftables.value import Single

_HEADERS_BY_TRANSPORT: Final = {"tcp": 6, "udp": 17, "dccp": 33, "sctp": 132, "udplite": 136}
_NFPROTO: Final = {Family.IPV4: 2, Family.IPV6: 10}
_ETHERTYPE: Final = {Family.IPV4: 0x0800, Family.IPV6: 0x86DD}
_FIB_KINDS: Final = (1, 2, 3, 5)
"""nft's numbers of the kinds of addresses, in the order of `variables.ADDRESS_KINDS`."""
_CT_STATES: Final = {1: "INVALID", 2: "ESTABLISHED", 4: "RELATED", 8: "NEW", 64: "UNTRACKED"}
_CT_STATUS: Final = {1: "EXPECTED", 2: "SEEN_REPLY", 4: "ASSURED", 8: "CONFIRMED", 16: "SNAT", 32: "DNAT"}
_CT_TUPLES: Final = {
    ("original", "saddr"): "ctorigsrc", ("original", "daddr"): "ctorigdst",
    ("reply", "saddr"): "ctreplsrc", ("reply", "daddr"): "ctrepldst",
    ("original", "proto-src"): "ctorigsrcport", ("original", "proto-dst"): "ctorigdstport",
    ("reply", "proto-src"): "ctreplsrcport", ("reply", "proto-dst"): "ctrepldstport",
}  # fmt: skip
_OPERATIONS: Final[dict[str, Callable[[int, int], int]]] = {
    "&": lambda one, other: one & other,
    "|": lambda one, other: one | other,
    "^": lambda one, other: one ^ other,
    "<<": lambda one, other: one << other,
    ">>": lambda one, other: one >> other,
}


class TupleQuantity(Quantity):
    """An address or port of the connection's tuples: `among` asks `-m conntrack`."""

    def __init__(self, ask: Callable[[Single], Node], variables: Variables, bits: int, present: Node) -> None:
        self._ask = ask
        self._variables = variables
        self.bits = bits
        self.present = present

    def among(self, values: Sequence[Single]) -> Node:
        return any_of(self._variables.diagrams, (self._ask(value) for value in values))


class Expressions:
    """Reads expressions; one for both sides, so that equal expressions are equal conditions.

    With `simple_chances`, a random number has each value with the same chance, as its writer meant it.
    """

    def __init__(self, variables: Variables, conditions: Conditions, *, simple_chances: bool = False) -> None:
        self.variables = variables
        self._simple_chances = simple_chances
        self.conditions = conditions
        self._quantities: dict[tuple[Expression, Stage], Quantity] = {}

    def quantity(self, expression: Expression, stage: Stage) -> Quantity:
        """What an expression of one part yields; one object for equal expressions at a stage."""
        known = self._quantities.get((expression, stage))
        if known is None:
            known = self._quantities[expression, stage] = self._quantity(expression, stage)
        return known

    def _quantity(self, expression: Expression, stage: Stage) -> Quantity:
        if isinstance(expression, (int, str)):
            return Constant(expression)
        found: Quantity | None = None
        if isinstance(expression, Payload):
            found = self._payload(expression)
        elif isinstance(expression, Meta):
            found = self._meta(expression, stage)
        elif isinstance(expression, Ct):
            found = self._ct(expression, stage)
        elif isinstance(expression, Fib):
            found = self._fib(expression)
        elif isinstance(expression, Binary):
            found = self._binary(expression, stage)
        elif isinstance(expression, Numgen):
            found = self._numgen(expression)
        return Opaque() if found is None else found

    def holds_header(self, target: object) -> Node:
        """Which packets have the header that a statement writes into."""
        if isinstance(target, ExtensionField):
            return self._protocol(TCP) if target.kind == "tcp option" else TRUE
        if not isinstance(target, Payload):
            return TRUE
        if target.protocol in ("ip", "ip6"):
            return TRUE if (target.protocol == "ip") == (self.variables.family is Family.IPV4) else FALSE
        number = HEADERS[target.protocol].number
        if target.protocol == "th":
            return self.variables.has_ports()
        return TRUE if number is None else self._protocol(number)

    def _protocol(self, *protocols: int) -> Node:
        return self.variables.diagrams.among(self.variables.protocol, [(number, number) for number in protocols])

    def _small(self, level: int, change: Callable[[int], int | str], present: Node = TRUE, bits: int = 8) -> Small:
        items = tuple(change(value) for value in range(self.variables.diagrams.sizes[level]))
        return Small(self.variables, level, items, present, bits)

    def _wide(self, level: int, bits: int, present: Node = TRUE) -> Wide:
        return Wide(self.variables, level, (1 << bits) - 1, present, bits)

    def _payload(self, expression: Payload) -> Quantity | None:
        variables, header, name = self.variables, expression.protocol, expression.field
        number = _HEADERS_BY_TRANSPORT.get(header)
        if header in ("ip", "ip6"):
            ours = TRUE if (header == "ip") == (variables.family is Family.IPV4) else FALSE
            return self._network(name, ours)
        if header == "th" or number is not None:
            present = variables.has_ports() if number is None else self._protocol(number)
            if name in ("sport", "dport"):
                return self._wide(variables.sport if name == "sport" else variables.dport, 16, present)
            if header == "tcp" and name == "flags":
                return self._small(variables.tcp_flags, lambda value: value, present)
            return None
        if header in ("icmp", "icmpv6") and name in ("type", "code"):
            present = self._protocol(1 if header == "icmp" else 58)
            level = variables.icmp_type if name == "type" else variables.icmp_code
            return self._small(level, lambda value: value, present)
        return None

    def _network(self, name: str, ours: Node) -> Quantity | None:
        variables = self.variables
        if name in ("saddr", "daddr"):
            return self._wide(variables.src if name == "saddr" else variables.dst, variables.family.bits, ours)
        change: Callable[[int], int] = int
        if name in ("protocol", "nexthdr"):
            level = variables.protocol
        elif name in ("ttl", "hoplimit"):
            level = variables.ttl
        elif name == "dscp":
            level, change = variables.tos, lambda value: value >> 2
        elif name == "ecn":
            level, change = variables.tos, lambda value: value & 3
        elif name == "version":
            return Constant(4 if variables.family is Family.IPV4 else 6)
        elif name == "length" and variables.family is Family.IPV4:
            return self._wide(variables.length, 16, ours)
        else:
            return None
        return self._small(level, change, ours)

    def _meta(self, expression: Meta, stage: Stage) -> Quantity | None:
        variables, key = self.variables, expression.key
        if key == "l4proto":
            return self._small(variables.protocol, lambda value: value)
        if key == "nfproto":
            return Constant(_NFPROTO[variables.family])
        if key == "protocol":
            return Constant(_ETHERTYPE[variables.family])
        if key == "mark":
            return self.mark_bits("mark")
        if key == "length":
            return self._wide(variables.length, 16)
        if key in ("iifname", "iif", "oifname", "oif"):
            inward = key.startswith("i")
            if not (stage.input if inward else stage.output):
                return Constant("")
            names = variables.interfaces.names
            level = variables.in_interface if inward else variables.out_interface
            return self._small(level, lambda value: names[value], bits=0)
        if key in ("skuid", "skgid"):
            return TupleQuantity(lambda value: self._owner(key[2:], value), variables, 32, TRUE)
        return None

    def _owner(self, name: str, value: Single) -> Node:
        interval = numbers(value)
        if interval is None:
            raise OpaqueError
        wanted = Negatable(IptablesRange(*interval))
        match = OwnerMatch(uid_owner=wanted) if name == "uid" else OwnerMatch(gid_owner=wanted)
        return self.conditions.owner(match)

    def mark_bits(self, name: str, present: Node = TRUE) -> Bits:
        """A mark as a number."""
        variables = self.variables
        nodes = tuple(variables.diagrams.equals(level, 1) for level in variables.levels[name])
        return Bits(variables, nodes, present)

    def _ct(self, expression: Ct, stage: Stage) -> Quantity | None:
        variables, diagrams = self.variables, self.variables.diagrams
        key = expression.key
        if key == "state":
            return Flags(variables, lambda bit: self._ct_state(bit, stage), sum(_CT_STATES), bits=7)
        present = TRUE if stage.tracked else FALSE
        if key == "mark":
            return self.mark_bits("connmark", present)
        if key == "status":
            return Flags(variables, lambda bit: self._ct_status(bit, stage), sum(_CT_STATUS), present, 10)
        if key == "direction":
            backward = FALSE if stage.fresh else diagrams.equals(variables.reply, 1)
            return Cases(variables, ((backward, 1), (TRUE, 0)), present, 8)
        if key == "protocol":
            return self._small(variables.protocol, lambda value: value, present)
        if key == "l3proto":
            return Cases(variables, ((TRUE, _NFPROTO[variables.family]),), present, 8)
        option = _CT_TUPLES.get((expression.direction or "", key.removeprefix("ip6 ").removeprefix("ip ")))
        if option is not None:
            return TupleQuantity(
                lambda value: self._tuple(option, value, stage), variables, 16 if "port" in option else 32, present
            )
        return Opaque(present)

    def _tuple(self, option: str, value: Single, stage: Stage) -> Node:
        interval = numbers(value)
        if interval is None:
            raise OpaqueError
        condition: In | Under = In(option, (interval,))
        if not option.endswith("port"):
            size = interval[1] - interval[0] + 1
            if size & (size - 1) or interval[0] % size:
                raise OpaqueError
            condition = Under(option, interval[0], self.variables.family.full_mask ^ (size - 1))
        return ask(condition, self.variables, stage)

    def _ct_state(self, bit: int, stage: Stage) -> Node:
        return state(self.variables, frozenset({_CT_STATES[bit]}), stage)

    def _ct_status(self, bit: int, stage: Stage) -> Node:
        name = _CT_STATUS[bit]
        if name in ("SNAT", "DNAT"):
            return state(self.variables, frozenset({name}), stage)
        return status(self.variables, frozenset({name}), stage)

    def _fib(self, expression: Fib) -> Quantity | None:
        variables = self.variables
        selectors = tuple(name for name in expression.selectors if name != "mark")
        if expression.result != "type" or expression.check or selectors not in (("saddr",), ("daddr",)):
            return None
        address, kind = (
            (variables.src, variables.src_kind) if selectors == ("saddr",) else (variables.dst, variables.dst_kind)
        )
        if variables.family is Family.IPV4:
            return self._small(kind, lambda value: _FIB_KINDS[value], bits=32)
        group = variables.address_under(address, Network(Family.IPV6, 0xFF << 120, 0xFF << 120))
        local = variables.diagrams.equals(kind, LOCAL)
        return Cases(
            variables, ((group, _FIB_KINDS[MULTICAST]), (local, _FIB_KINDS[LOCAL]), (TRUE, _FIB_KINDS[UNICAST]))
        )

    def _numgen(self, expression: Numgen) -> Quantity:
        modulus, offset = expression.modulus, expression.offset
        if expression.mode == "random" and not self._simple_chances:
            return Random(random_chances(modulus, offset))
        # `inc` takes one number after the other, so that each comes up once in `modulus` packets.
        return Random(tuple((number + offset, Fraction(1, modulus)) for number in range(modulus)))

    def _binary(self, expression: Binary, stage: Stage) -> Quantity | None:
        one, other = self.quantity(expression.left, stage), self.quantity(expression.right, stage)
        apply = _OPERATIONS[expression.operator]
        if isinstance(one, Constant) and isinstance(other, Constant):
            assert isinstance(one.value, int), one
            assert isinstance(other.value, int), other
            return Constant(apply(one.value, other.value) & (1 << 32) - 1)
        if isinstance(one, Bits):
            return self._bitwise(expression.operator, one, other)
        if isinstance(other, Constant) and isinstance(other.value, int):
            number = other.value
            if isinstance(one, Small):
                return one.changed(lambda value: apply(value, number))
            if isinstance(one, Flags) and expression.operator == "&":
                return Flags(self.variables, one.ask, one.mask & number, one.present, one.bits)
            if isinstance(one, Wide) and expression.operator == "&":
                return Wide(self.variables, one.level, one.mask & number, one.present, one.bits)
        return None

    def _bitwise(self, operator: str, one: Bits, other: Quantity) -> Quantity | None:
        diagrams, width = self.variables.diagrams, one.bits
        if operator in ("<<", ">>"):
            if not isinstance(other, Constant) or not isinstance(other.value, int):
                return None
            shift = min(other.value, width)
            nodes = (
                (*one.nodes[shift:], *[FALSE] * shift)
                if operator == "<<"
                else (*[FALSE] * shift, *one.nodes[: width - shift])
            )
            return Bits(self.variables, nodes, one.present, width)
        if isinstance(other, Constant) and isinstance(other.value, int):
            number = other.value
            beside = tuple(TRUE if number >> bit & 1 else FALSE for bit in range(width - 1, -1, -1))
        elif isinstance(other, Bits) and other.bits == width:
            beside = other.nodes
        else:
            return None
        join = {
            "&": diagrams.both,
            "|": diagrams.either,
            "^": lambda first, second: diagrams.ite(first, diagrams.negate(second), second),
        }[operator]
        return Bits(
            self.variables, tuple(map(join, one.nodes, beside)), diagrams.both(one.present, other.present), width
        )
