"""Matches without a type of their own whose answer can be computed: u32, cluster, dccp, esp and ah."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

from kproxy.dataplane.concrete.headers import Bits, Word, packet_header, word_at
from kproxy.dataplane.concrete.jhash import jhash, scaled
from kproxy.dataplane.concrete.state import View
from kproxy.dataplane.model.conntrack import tuple_of
from kproxy.netfilter.iptables.codec import UINT32
from kproxy.netfilter.iptables.matches import OpaqueMatch

_U32_STEP: Final = re.compile(r"(&|<<|>>|@)\s*(0[xX][0-9a-fA-F]+|[0-9]+)\s*")
_NUMBER: Final = re.compile(r"\s*(0[xX][0-9a-fA-F]+|[0-9]+)\s*")


def u32(match: OpaqueMatch, view: View) -> bool | None:
    """Whether words of the packet, from the IP header on, lie in ranges (xt_u32); None if that is open."""
    words = list(match.words)
    negated = words[:1] == ["!"]
    if len(words) != 2 + negated or words[negated] != "--u32":
        return None
    packet = view.state.packet
    header = packet_header(packet)
    unsure = False
    for test in words[-1].split("&&"):
        location, _, ranges = test.partition("=")
        try:
            found = _u32_test(location, ranges, header, packet.length)
        except ValueError:
            return None
        if found is False:
            return negated
        unsure = unsure or found is None
    return None if unsure else not negated


def _u32_test(location: str, ranges: str, header: Bits, length: int | None) -> bool | None:
    """One test: where the word is, what becomes of it, in which ranges it has to be. Raises ValueError."""
    start = _NUMBER.match(location)
    if start is None:
        raise ValueError(location)
    base = 0
    word = word_at(header, length, int(start[1], 0))
    position = start.end()
    while position < len(location):
        step = _U32_STEP.match(location, position)
        if step is None:
            raise ValueError(location)
        position = step.end()
        if not isinstance(word, Word):
            return word
        operator, number = step[1], int(step[2], 0)
        if operator == "&":
            word = word.masked(number)
        elif operator == "<<":
            word = word.left(number)
        elif operator == ">>":
            word = word.right(number)
        elif word.known != UINT32:
            return None
        else:
            base += word.value
            word = word_at(header, length, base + number)
    if not isinstance(word, Word):
        return word
    answers = [_in_range(word, text) for text in ranges.split(",")]
    return True if True in answers else None if None in answers else False


def _in_range(word: Word, text: str) -> bool | None:
    first, colon, last = (part.strip() for part in text.partition(":"))
    low = int(first, 0)
    high = int(last, 0) if colon else low
    smallest, largest = word.value, word.largest
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


def dccp(match: OpaqueMatch, view: View) -> bool | None:
    """Ports of DCCP (xt_dccp); None if they are open, or if they fit and types or an option are asked for."""
    packet = view.state.packet
    words, unsure, position = list(match.words), False, 0
    if packet.fragment:
        return False
    while position < len(words):
        negated = words[position] == "!"
        option, argument = words[position + negated : position + negated + 2]
        position += 2 + negated
        fits: bool | None = None
        if option in ("--sport", "--dport"):
            number = packet.sport if option == "--sport" else packet.dport
            first, colon, last = argument.partition(":")
            if number is not None:
                fits = int(first) <= number <= int(last if colon else first)
        if fits is negated:
            return False
        unsure = unsure or fits is None
    return None if unsure else True


def spi(match: OpaqueMatch, view: View) -> bool | None:
    """`-m esp` and `-m ah`: a later fragment never fits (xt_esp, ipt_ah), and a packet here has no index else."""
    if view.state.packet.fragment:
        return False
    return None if match.words else True
