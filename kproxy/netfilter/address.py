"""Addresses and networks as integers, read and written as the C library does for iptables.

A rule set holds hundreds of thousands of addresses and the data-plane model compares them with integers, so they are
kept as integers; `ipaddress` is used only to read and write IPv6. Masks may have holes (`255.0.255.0`), which iptables
accepts and which have no prefix length.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from kproxy.netfilter.family import Family

_OCTETS: Final = {str(number): number for number in range(256)}
_PART: Final = re.compile(r"0[xX][0-9a-fA-F]{1,2}|0[0-7]{0,3}|[1-9][0-9]{0,2}")
_DECIMAL: Final = re.compile(r"0|[1-9][0-9]{0,2}")
_MASKS: Final = {
    family: {family.full_mask ^ ((1 << (family.bits - length)) - 1): length for length in range(family.bits + 1)}
    for family in Family
}
_PREFIXES: Final = {family: {length: mask for mask, length in _MASKS[family].items()} for family in Family}


def parse_address(text: str, family: Family) -> int:
    """Read one address.

    IPv4 may leave out trailing parts (`10.1` is 10.1.0.0) and parts may be octal or hexadecimal, as in iptables.

    Raises:
        ValueError: it is not an address of the family. Host names are not looked up.
    """
    if family is Family.IPV4:
        return _parse_ipv4(text)
    return _parse_ipv6(text)


@lru_cache(maxsize=1024)  # a dump names an endpoint's address in two lines, one after the other
def _parse_ipv6(text: str) -> int:
    if ":" not in text or "%" in text or not text.isascii():
        raise ValueError(f"an IPv6 address expected, not {text!r}")
    try:
        return int(ipaddress.IPv6Address(text))
    except ValueError:
        raise ValueError(f"an IPv6 address expected, not {text!r}") from None


def _parse_ipv4(text: str) -> int:
    try:  # four plain decimal numbers, nearly always
        a, b, c, d = text.split(".")
        return _OCTETS[a] << 24 | _OCTETS[b] << 16 | _OCTETS[c] << 8 | _OCTETS[d]
    except (ValueError, KeyError):
        pass
    parts = text.split(".")
    value = 0
    if len(parts) > 4:
        raise ValueError(f"an IPv4 address expected, not {text!r}")
    for part in parts:
        if not _PART.fullmatch(part):
            raise ValueError(f"an IPv4 address expected, not {text!r}")
        number = int(part, 16 if part[:2] in ("0x", "0X") else 8 if part[0] == "0" else 10)
        if number > 255:
            raise ValueError(f"an IPv4 address expected, not {text!r}")
        value = value << 8 | number
    return value << 8 * (4 - len(parts))


def format_address(value: int, family: Family) -> str:
    """Write an address as inet_ntop(3) does: in IPv6 also `::1.2.3.4` and `::ffff:1.2.3.4` in mixed notation."""
    if family is Family.IPV4:
        return f"{value >> 24}.{value >> 16 & 255}.{value >> 8 & 255}.{value & 255}"
    return _format_ipv6(value)


@lru_cache(maxsize=1024)
def _format_ipv6(value: int) -> str:
    high = value >> 32
    if high == 0xFFFF or (high == 0 and value > 0xFFFF):
        return ("::ffff:" if high else "::") + format_address(value & 0xFFFFFFFF, Family.IPV4)
    return str(ipaddress.IPv6Address(value))


def parse_mask(text: str, family: Family) -> int:
    """Read what follows the slash: a prefix length or a mask in address notation.

    Raises:
        ValueError: it is neither.
    """
    if "." in text or ":" in text:
        return parse_address(text, family)
    length = int(text) if _DECIMAL.fullmatch(text) else -1
    if not 0 <= length <= family.bits:
        raise ValueError(f"a prefix length of at most {family.bits} or a mask expected, not {text!r}")
    return _PREFIXES[family][length]


def format_mask(mask: int, family: Family) -> str:
    """Write a mask as iptables-save does after the slash: the prefix length, or the mask itself if it has holes."""
    length = _MASKS[family].get(mask)
    return format_address(mask, family) if length is None else str(length)


@dataclass(frozen=True, slots=True)
class Address:
    """One address; `value` is the integer in network order."""

    family: Family
    value: int

    @classmethod
    def parse(cls, text: str, family: Family) -> Address:
        """Read an address. Raises ValueError."""
        return cls(family, parse_address(text, family))

    def __str__(self) -> str:
        return format_address(self.value, self.family)


@dataclass(frozen=True, slots=True)
class AddressRange:
    """The addresses from `first` to `last`, both included; with `first` above `last` it holds none."""

    first: Address
    last: Address

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


@dataclass(frozen=True, slots=True)
class Network:
    """An address under a mask: what `-s` and `-d` compare with.

    `mask` is any integer of the family's width. `Network.parse` clears the address bits outside the mask, as iptables
    does for `-s` and `-d`; conntrack keeps them.
    """

    family: Family
    address: int
    mask: int

    @classmethod
    def parse(cls, text: str, family: Family, *, keep_host_bits: bool = False) -> Network:
        """Read `address[/prefix-or-mask]`. Raises ValueError."""
        host, slash, rest = text.partition("/")
        address = parse_address(host, family)
        if not slash:
            return cls(family, address, family.full_mask)
        mask = parse_mask(rest, family)
        return cls(family, address if keep_host_bits else address & mask, mask)

    @property
    def prefix_length(self) -> int | None:
        """The prefix length, or None if the mask has holes."""
        return _MASKS[self.family].get(self.mask)

    def contains(self, address: int) -> bool:
        """Whether an address, an integer of this network's family, agrees in every bit of the mask."""
        return (address ^ self.address) & self.mask == 0

    def __str__(self) -> str:
        return f"{format_address(self.address, self.family)}/{format_mask(self.mask, self.family)}"
