"""Statements of nftables as steps of what a rule asks and does (`netfilter.effect`): a row for each kind.

nft asks for the protocol of a header that is written, and for a packet of the family that is translated or refused, and
does not list that: the steps do. What depends on the packet otherwise (a map, a hash, a set that changes, a rate) stays
a statement.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Any, Final

from kproxy.netfilter import effect
from kproxy.netfilter.condition import ALWAYS, TRACKED, equals
from kproxy.netfilter.effect import ICMPX, RESET, Effect, SetBits, Term, Told, icmp_answer, moved
from kproxy.netfilter.family import Family
from kproxy.netfilter.field import UINT32
from kproxy.netfilter.nftables import statement as nft
from kproxy.netfilter.nftables.expression import Binary, Meta, Payload
from kproxy.netfilter.nftables.lowering import fields_in, header_present, key_of
from kproxy.netfilter.nftables.operand import is_expression
from kproxy.netfilter.nftables.stateful import ConnectionLimit, Counter, Last, Limit, Quota
from kproxy.netfilter.nftables.value import Prefix, Verdict, bounds

FAMILIES: Final = MappingProxyType({"ip": Family.IPV4, "ip6": Family.IPV6})
"""The families that tables and statements name."""
_WORD: Final = re.compile(r"[a-z]+")
_LEADS: Final = re.compile(r"\b(jump|goto) ([\w./-]+)")
_TCP: Final = equals("protocol")(6)


WIDE_FIELDS: Final = frozenset({"saddr", "daddr", "sport", "dport"})
"""Addresses and ports."""
UNMODELLED: Final = frozenset({"protocol", "nexthdr", "length"})
"""Fields of `ip` and `ip6` that packets have, and whose writing is not modelled."""


def lower(statement: nft.Statement, family: str, text: Callable[[nft.Statement], str]) -> tuple[object, ...]:
    """The steps of a statement of a table of this family (`ip`); `text` prints it, where its text is what it does.

    A `Match`, and a statement that depends on the packet, stays itself.
    """
    action = _ROWS.get(type(statement))
    if action is None:
        return (statement,)
    found = action(statement, family, text) if callable(action) else action
    return found if type(found) is tuple else (found,)


def is_idle(statement: nft.Statement) -> bool:
    """Whether a statement changes no packet's treatment."""
    counts = isinstance(statement, nft.ObjectReference) and statement.kind == "counter"
    return counts or effect.is_idle(_ROWS.get(type(statement)))


def verdict(item: Verdict) -> Effect:
    """What a verdict does, of a statement or of a map's element."""
    if item.chain is not None:
        return effect.Jump(item.chain, item.kind == "goto")
    return effect.Verdict(item.kind, item.kind)


def _mangle(statement: nft.Mangle, _family: str, text: Callable[[nft.Statement], str]) -> object:
    """The connection that is read and the header that is written must be there."""
    read = any(name == "tracked" for name, _ in fields_in(statement.value))
    present = header_present(statement.target)
    return (*([TRACKED] if read else []), *([] if present == ALWAYS else [present]), _written(statement, text))


def _written(statement: nft.Mangle, text: Callable[[nft.Statement], str]) -> object:
    target, value = statement.target, statement.value
    name = getattr(target, "key", "a header")
    if name == "mark":
        return mark_bits("mark" if isinstance(target, Meta) else "connmark", value) or statement
    if not isinstance(target, Payload):
        return Told(f"sets {name}", "" if name == "nftrace" else text(statement))
    did, part, key = f"{target.protocol} {target.field} set", key_of(target), key_of(value)
    if target.field in UNMODELLED or (part is not None and target.field in WIDE_FIELDS):
        return statement
    if part is None or not part.field:
        return Told(did, text(statement))
    if key is None or key.field not in ("", part.field):
        return statement
    return effect.SetField(part.field, tuple(part.written(old, key.of(old)) for old in range(256)), did)


def mark_bits(name: str, value: object) -> SetBits | None:
    """A mark set to this value, as an exclusive or of bits; None if it is not made of marks and constants, or not an
    exclusive or."""
    key = key_of(value)
    if key is not None:
        term = Term(key.field, moved(key.mask, key.shift), -key.shift)
        terms = (term,) if term.bits else ()
        return SetBits(name, key.flip & UINT32, terms) if key.field in ("", "mark", "connmark") else None
    if not isinstance(value, Binary) or value.operator not in ("&", "|", "^"):
        return None
    left, right = mark_bits(name, value.left), mark_bits(name, value.right)
    if left is None or right is None:
        return None
    if value.operator == "^":
        return SetBits(name, left.xor ^ right.xor, _joined(*left.terms, *right.terms))
    first, second = _touched(left), _touched(right)
    if first & second:
        return None
    # A constant bit of one side leaves the bit to the other, or decides it.
    flip, decided = (0, 0) if value.operator == "&" else (UINT32, UINT32)
    of_left = (right.xor ^ flip) & ~second & UINT32
    of_right = (left.xor ^ flip) & ~first & ~of_left & UINT32
    xor = left.xor & of_left ^ right.xor & of_right ^ decided & ~(of_left | of_right)
    return SetBits(name, xor, _joined(*_under(left.terms, of_left), *_under(right.terms, of_right)))


def _touched(bits: SetBits) -> int:
    """The bits that terms decide."""
    result = 0
    for term in bits.terms:
        result |= term.of(UINT32)
    return result


def _under(terms: tuple[Term, ...], mask: int) -> Iterator[Term]:
    """Terms under a mask of the result."""
    return (term._replace(bits=term.bits & moved(mask, -term.shift)) for term in terms)


def _joined(*terms: Term) -> tuple[Term, ...]:
    found: dict[tuple[str, int], int] = {}
    for name, bits, shift in terms:
        found[name, shift] = found.get((name, shift), 0) ^ bits
    return tuple(Term(name, bits, shift) for (name, shift), bits in found.items() if bits)


def _nat(statement: nft.Nat, family: str, _text: object) -> object:
    of = None if statement.family is None else FAMILIES[statement.family]
    return nat(statement, of or FAMILIES.get(family), statement.address, statement.port) or statement


def nat(statement: nft.Nat, family: Family | None, address: object, port: object) -> effect.Nat | None:
    """The translation to this address and port (both in `address`, if the statement has them `concatenated`); None if
    they are no constants."""
    if statement.concatenated and isinstance(address, tuple) and len(address) == 2:
        address, port = address
    addresses, ports = bounds(address), bounds(port)
    if (address is not None and addresses is None) or (port is not None and ports is None):
        return None
    kind, flags = statement.kind, statement.flags
    random, fully = "random" in flags, "fully-random" in flags
    if kind in ("dnat", "redirect"):
        random, fully = random or fully, False
    if statement.prefix:
        if not isinstance(address, Prefix):
            return None
        kind, random, fully = "netmap", False, False
    persistent = "persistent" in flags and kind in ("dnat", "snat")
    if kind in ("masquerade", "redirect"):
        family = None if statement.family is None else family
    return effect.Nat(kind, addresses, ports, None, random, fully, persistent, family, statement.kind)


def _reject(statement: nft.Reject, _family: str, _text: object) -> object:
    if statement.kind == "tcp reset":
        return _TCP, effect.Reject(RESET, RESET, "reject")
    code, kinds = statement.code, {"icmp": Family.IPV4, "icmpv6": Family.IPV6}
    answers = []
    for name, family in kinds.items():
        if statement.kind == "icmpx":
            codes = ICMPX[family]
            answers.append(icmp_answer(family, codes[code] if code < len(codes) else code))
        else:
            answers.append(icmp_answer(family, code) if statement.kind == name else "")
    return effect.Reject(answers[0], answers[1], "reject")


def _object(statement: nft.ObjectReference, _family: str, text: Callable[[nft.Statement], str]) -> object:
    if statement.kind in ("limit", "quota"):
        return statement
    if statement.kind == "synproxy":
        return effect.Unknown("synproxy", text(statement))
    did = f"{statement.kind} {statement.name}"
    return Told(did) if statement.kind == "counter" else Told(did, text(statement))


def _unknown(statement: nft.OpaqueStatement | nft.Xt, _family: str, text: Callable[[nft.Statement], str]) -> object:
    """It does what its words say; what does not start as an expression may do anything."""
    said = getattr(statement, "text", "")
    name = said or getattr(statement, "name", "") or type(statement).__name__.lower()
    words, first = set(_WORD.findall(said)), said.partition(" ")[0]
    anything = first not in ("dup", "reset") and not is_expression(first)
    may = {kind for kind in ("accept", "drop", "reject") if anything or kind in words} | words & {"return"}
    if anything or words & {"dnat", "snat", "masquerade", "redirect"}:
        may.add("translate")
    leads = tuple(effect.Jump(chain, word == "goto") for word, chain in _LEADS.findall(said))
    return effect.Unknown(name, text(statement), frozenset(may), leads)


def _tproxy(statement: nft.Tproxy, _family: str, _text: object) -> object:
    return effect.Socket(statement.port, str(statement.address))


_ROWS: Final[dict[type, Effect | Callable[[Any, str, Any], object]]] = {
    Counter: Told(""),
    nft.FlowAdd: lambda statement, _, text: Told("offloads the connection", text(statement), stays=True),
    Last: Told(""),
    nft.Log: Told("log"),
    nft.Mangle: _mangle,
    nft.Nat: _nat,
    nft.Notrack: effect.Untrack(),
    nft.ObjectReference: _object,
    nft.OpaqueStatement: _unknown,
    nft.Queue: effect.Queue("queue", "QUEUE: user space decides"),
    nft.Reject: _reject,
    nft.Tproxy: _tproxy,
    Verdict: lambda item, *_: verdict(item),
    nft.Xt: _unknown,
}
"""What each kind of statement does, or the function that lowers it; the others, in `PENDING`, each engine knows."""
PENDING: Final = (ConnectionLimit, Limit, nft.Match, Quota, nft.SetUpdate, nft.VerdictMap)
"""Statements that depend on the packet or on what passed before it."""
