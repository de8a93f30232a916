"""The codecs that several matches and targets share: numbers, ranges, masked values, name sets, strings."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from kproxy.netfilter.address import Address, AddressRange, Network
from kproxy.netfilter.family import PROTOCOL_NUMBERS, Family
from kproxy.netfilter.field import UINT32 as UINT32
from kproxy.netfilter.iptables.lexer import quote
from kproxy.netfilter.iptables.option import Codec

UINT8: Final = 0xFF
UINT16: Final = 0xFFFF

_INTEGER: Final = re.compile(r"\+?(?:(0[xX][0-9a-fA-F]+)|(0[0-7]*)|([1-9][0-9]*))")


def parse_uint(text: str, most: int = UINT32, least: int = 0) -> int:
    """Read a number as strtoul(3) with base 0 does: decimal, 0x hexadecimal, 0 octal.

    Raises:
        ValueError: it is no number from `least` to `most`.
    """
    found = _INTEGER.fullmatch(text) if len(text) < 40 else None
    if found is not None:
        hexadecimal, octal, decimal = found.groups()
        value = int(decimal) if decimal else int(octal, 8) if octal else int(hexadecimal, 16)
        if least <= value <= most:
            return value
    raise ValueError(f"a number from {least} to {most} expected, not {text!r}")


def parse_protocol(text: str) -> int:
    """Read a protocol, a name (in any case) or a number up to 255; `all` is 0. Raises ValueError."""
    if text.isascii() and text[:1].isdigit():
        return parse_uint(text, UINT8)
    number = PROTOCOL_NUMBERS.get(text.lower())
    if number is None:
        raise ValueError(f"a protocol expected, not {text!r}")
    return number


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers from `first` to `last`, both included; with `first` above `last` it holds none."""

    first: int
    last: int

    def contains(self, value: int) -> bool:
        """Whether the number lies inside."""
        return self.first <= value <= self.last

    def text(self, separator: str = ":") -> str:
        """One number, or two with the separator between them."""
        return str(self.first) if self.first == self.last else f"{self.first}{separator}{self.last}"


@dataclass(frozen=True, slots=True)
class Masked:
    """A value and the mask under which it counts, as for marks and TOS."""

    value: int
    mask: int = UINT32


def number(most: int = UINT32, least: int = 0, form: str = "{}") -> Codec[int]:
    """A codec for one number; `form` is how it prints."""
    return Codec(lambda words, _family: parse_uint(words[0], most, least), form.format)


def number_range(most: int, separator: str = ":", *, ordered: bool = False, open_ends: bool = True) -> Codec[Range]:
    """A codec for `n`, `n:m` and, with `open_ends`, `:m` and `n:`. `ordered` refuses a first above the last."""

    def parse(words: Sequence[str], _family: Family) -> Range:
        first, found, last = words[0].partition(separator)
        if not found:
            value = parse_uint(first, most)
            return Range(value, value)
        low = 0 if open_ends and not first else parse_uint(first, most)
        high = most if open_ends and not last else parse_uint(last, most)
        if ordered and low > high:
            raise ValueError(f"a range with its lower end first expected, not {words[0]!r}")
        return Range(low, high)

    return Codec(parse, lambda value: value.text(separator))


def masked(most: int = UINT32, *, short: bool = False, form: str = "0x{:x}") -> Codec[Masked]:
    """A codec for `value[/mask]`; with `short` the full mask is not printed."""

    def parse(words: Sequence[str], _family: Family) -> Masked:
        value, slash, mask = words[0].partition("/")
        return Masked(parse_uint(value, most), parse_uint(mask, most) if slash else most)

    def text(value: Masked) -> str:
        shown = form.format(value.value)
        return shown if short and value.mask == most else f"{shown}/{form.format(value.mask)}"

    return Codec(parse, text)


def names(known: Sequence[str], what: str) -> Codec[frozenset[str]]:
    """A codec for a comma-separated list of known names in any case; it prints them in the order of `known`."""
    lookup = {name.lower(): name for name in known}

    def parse(words: Sequence[str], _family: Family) -> frozenset[str]:
        found = [lookup.get(word.lower()) for word in words[0].split(",")]
        chosen = frozenset(name for name in found if name is not None)
        if None in found:
            raise ValueError(f"{what} expected ({', '.join(known)}), not {words[0]!r}")
        return chosen

    return Codec(parse, lambda value: ",".join(name for name in known if name in value))


def choice(known: Sequence[str], what: str, also: dict[str, str] | None = None) -> Codec[str]:
    """A codec for one of the known names; `also` maps other spellings to them."""
    lookup = {name: name for name in known} | (also or {})

    def parse(words: Sequence[str], _family: Family) -> str:
        if words[0] not in lookup:
            raise ValueError(f"{what} expected ({', '.join(known)}), not {words[0]!r}")
        return lookup[words[0]]

    return Codec(parse, str)


def string(most: int, *, least: int = 0, cut: bool = False, text: Callable[[str], str] = quote) -> Codec[str]:
    """A codec for a string of at most `most` bytes; a longer one is refused or, as LOG does, cut."""

    def parse(words: Sequence[str], _family: Family) -> str:
        data = words[0].encode("utf-8", "surrogateescape")
        if len(data) < least:
            raise ValueError(f"at least {least} characters expected")
        if len(data) > most:
            if not cut:
                raise ValueError(f"at most {most} bytes expected, not {words[0]!r}")
            return data[:most].decode("utf-8", "surrogateescape")
        return words[0]

    return Codec(parse, text)


def bare_name(most: int) -> Codec[str]:
    """A codec for a name that iptables prints without quotes."""
    return string(most, least=1, text=str)


def _parse_interface(words: Sequence[str], _family: Family) -> str:
    word = words[0]
    if not 0 < len(word.encode("utf-8", "surrogateescape")) <= 15 or not word.isprintable() or " " in word:
        raise ValueError(f"an interface name of at most 15 bytes and without blanks expected, not {word!r}")
    return word


INTERFACE: Final = Codec(_parse_interface, str)

ADDRESS: Final = Codec(lambda words, family: Address.parse(words[0], family), str)

NETWORK: Final = Codec(lambda words, family: Network.parse(words[0], family), str)


def _parse_address_range(words: Sequence[str], family: Family) -> AddressRange:
    first, dash, last = words[0].partition("-")
    low = Address.parse(first, family)
    return AddressRange(low, Address.parse(last, family) if dash else low)


ADDRESS_RANGE: Final = Codec(_parse_address_range, str)
