"""Matches without a type of their own whose answer can be computed: u32, cluster."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final, NamedTuple

from kproxy.dataplane.concrete.headers import Bits, network_header, transport_header
from kproxy.dataplane.concrete.jhash import jhash, scaled
from kproxy.dataplane.concrete.state import View
from kproxy.dataplane.model.conntrack import tuple_of
from kproxy.netfilter.iptables.codec import UINT32
from kproxy.netfilter.iptables.matches import OpaqueMatch

_U32_STEP: Final = re.compile(r"(&|<<|>>|@)\s*(0[xX][0-9a-fA-F]+|[0-9]+)\s*")
_NUMBER: Final = re.compile(r"\s*(0[xX][0-9a-fA-F]+|[0-9]+)\s*")
_WORD: Final = 32


class _Word(NamedTuple):
    """A number of 32 bits, of which `known` are known."""

    value: int
    known: int


def u32(match: OpaqueMatch, view: View) -> bool | None:
    """Whether words of the packet, from the IP header on, lie in ranges (xt_u32); None if that is open."""
    words = list(match.words)
    negated = words[:1] == ["!"]
    if len(words) != 2 + negated or words[negated] != "--u32":
        return None
    packet = view.state.packet
    header, transport = network_header(packet), transport_header(packet)
    bits = header if transport is None else header.followed_by(transport)
    unsure = False
    for test in words[-1].split("&&"):
        location, _, ranges = test.partition("=")
        try:
            found = _u32_test(location, ranges, bits, packet.length)
        except ValueError:
            return None
        if found is False:
            return negated
        unsure = unsure or found is None
    return None if unsure else not negated


def _u32_test(location: str, ranges: str, bits: Bits, length: int | None) -> bool | None:
    """One test: where the word is, what becomes of it, in which ranges it has to be. Raises ValueError."""
    start = _NUMBER.match(location)
    if start is None:
        raise ValueError(location)
    base = 0
    word = _word_at(int(start[1], 0), bits, length)
    position = start.end()
    while position < len(location):
        step = _U32_STEP.match(location, position)
        if step is None:
            raise ValueError(location)
        position = step.end()
        if not isinstance(word, _Word):
            return word
        operator, number = step[1], int(step[2], 0)
        if operator == "&":
            word = _Word(word.value & number, word.known | ~number & UINT32)
        elif operator == "<<":
            word = _Word(word.value << number & UINT32, (word.known << number | (1 << number) - 1) & UINT32)
        elif operator == ">>":
            word = _Word(word.value >> number, word.known >> number | UINT32 ^ UINT32 >> number)
        elif word.known != UINT32:
            return None
        else:
            base += word.value
            word = _word_at(base + number, bits, length)
    if not isinstance(word, _Word):
        return word
    answers = [_in_range(word, text) for text in ranges.split(",")]
    return True if True in answers else None if None in answers else False


def _word_at(offset: int, bits: Bits, length: int | None) -> _Word | bool | None:
    """The word at an offset in bytes; False if the packet is too short for it, None if that is not known."""
    if length is not None and offset + 4 > length:
        return False
    part = bits.slice(offset * 8, _WORD)
    return None if length is None and (offset + 4) * 8 > bits.width else _Word(part.value & part.known, part.known)


def _in_range(word: _Word, text: str) -> bool | None:
    first, colon, last = (part.strip() for part in text.partition(":"))
    low = int(first, 0)
    high = int(last, 0) if colon else low
    smallest, largest = word.value, word.value | ~word.known & UINT32
    if word.known == UINT32:
        return low <= word.value <= high
    if low == high and (low ^ word.value) & word.known:
        return False
    return False if largest < low or smallest > high else True if low <= smallest and largest <= high else None


def cluster(match: OpaqueMatch, view: View) -> bool | None:
    """Whether the hash of who began the connection falls to one of these nodes (xt_cluster); None if that is open."""
    words = list(match.words)
    negated = "!" in words
    options = dict(pairwise(words))
    try:
        total, seed = int(options["--cluster-total-nodes"], 0), int(options["--cluster-hash-seed"], 0)
        node, mask = options.get("--cluster-local-node"), options.get("--cluster-local-nodemask")
        nodes = 1 << int(node, 0) - 1 if node is not None else int(mask or "", 0)
    except (KeyError, ValueError):
        return None
    state = view.state
    if not state.has_connection:
        return None if state.connection.state is None else False
    packet = state.packet
    original = state.connection.known_as(packet).original or tuple_of(packet)
    if original.src is None:
        return None
    word = original.src.to_bytes(packet.family.bits // 8, "big")[
        :4
    ]  # of an IPv6 address the kernel takes one word only
    number = scaled(jhash(word, seed), total)
    return bool(nodes >> number & 1) != negated
