"""A permutation of addresses that keeps prefixes: two addresses share as many leading bits as before.

Each bit is flipped or not, by a keyed hash of the bits before it (as in Crypto-PAn; Xu, Fan, Ammar and Moon, 2002). The
bits on some paths are never flipped, which keeps what lies at their ends where it is: special ranges, the first and
the last address of every network (network and broadcast address), and the bounds of ranges, so that they hold what they
held.
"""

from __future__ import annotations

import ipaddress
from hashlib import blake2b
from typing import Final

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_KEPT: Final = {
    32: ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16"),
    128: ("2000::/3", "2001:db8::/32", "fc00::/7"),
    48: (),
}
"""Ranges whose addresses stay in them: private ones, and those for documentation."""
_UNTOUCHED: Final = {
    32: ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3"),
    128: ("::/8", "fe80::/10", "ff00::/8"),
    48: (),
}
"""Ranges whose addresses stay what they are; of the link-local ones see `AddressMap.address`."""
_MAPPED: Final = (ipaddress.ip_network("::ffff:0:0/96"), ipaddress.ip_network("64:ff9b::/96"))
"""IPv6 addresses that hold an IPv4 address in their last 32 bits."""


class _Space:
    """The addresses of one length, in bits."""

    def __init__(self, key: bytes, width: int) -> None:
        self._key = key
        self._width = width
        self._fixed: set[tuple[int, int]] = set()
        self._cache: dict[int, int] = {}
        self._hashes: dict[tuple[int, int], int] = {}
        self._untouched: list[tuple[int, int]] = []
        for text in (*_KEPT[width], *_UNTOUCHED[width]):
            network = ipaddress.ip_network(text)
            self.fix(int(network.network_address), 0, network.prefixlen)
            if text in _UNTOUCHED[width]:
                shift = width - network.prefixlen
                self._untouched.append((shift, int(network.network_address) >> shift))

    def fix(self, value: int, begin: int, end: int) -> None:
        """The bits of `value` from `begin` to before `end` are never flipped, for addresses that share those before."""
        self._fixed.update((depth, value >> (self._width - depth)) for depth in range(begin, end))

    def fix_bounds(self, first: int, last: int) -> None:
        """The addresses from `first` to `last` are the same many in a row afterwards, with the ends at the ends."""
        begin = self._width - (first ^ last).bit_length()
        self.fix(first, begin, self._width)
        self.fix(last, begin, self._width)

    def map(self, value: int) -> int:
        found = self._cache.get(value)
        if found is None:
            untouched = any(value >> shift == prefix for shift, prefix in self._untouched)
            found = self._cache[value] = value if untouched else self._permuted(value)
        return found

    def known(self) -> dict[int, int]:
        return dict(self._cache)

    def _permuted(self, value: int) -> int:
        width, fixed, found = self._width, self._fixed, 0
        for begin in range(0, width, 8):
            bits, vertex = self._hash(begin, value >> (width - begin)), 1
            for depth in range(begin, begin + 8):
                bit = value >> (width - 1 - depth) & 1
                flip = bits >> vertex & 1 and (depth, value >> (width - depth)) not in fixed
                found = found << 1 | (bit ^ 1 if flip else bit)
                vertex = vertex << 1 | bit
        return found

    def _hash(self, begin: int, prefix: int) -> int:
        """One bit for each vertex of the eight levels below a prefix: 255 of 256."""
        found = self._hashes.get((begin, prefix))
        if found is None:
            text = f"{self._width} {begin} {prefix}".encode()
            found = int.from_bytes(blake2b(text, key=self._key, digest_size=32).digest())
            self._hashes[begin, prefix] = found
        return found


class AddressMap:
    """Replaces addresses of IPv4, IPv6 and Ethernet. Everything must be fixed before anything is mapped."""

    def __init__(self, key: bytes) -> None:
        """Args: key: secret, 16 to 64 octets; the same key gives the same addresses."""
        self._spaces = {width: _Space(key, width) for width in (32, 128)}
        self._macs = _Space(key, 48)
        for special in (0, 0xFFFFFFFFFFFF, 0xEEEEEEEEEEEE):
            self._macs.fix(special, 0, 48)
        for first in range(256):  # of the first octet, two bits say what kind of address it is
            self._macs.fix(first << 40, 0, 8)

    def keep_network(self, network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> None:
        """Its first and its last address stay the first and the last."""
        self.keep_range(network.network_address, network.broadcast_address)

    def keep_range(self, first: IPAddress, last: IPAddress) -> None:
        """What lies between two addresses of one family will lie between them."""
        self._spaces[first.max_prefixlen].fix_bounds(int(first), int(last))

    def address(self, address: IPAddress) -> IPAddress:
        """An address. A link-local one made of a MAC address is made of the new MAC address."""
        value = int(address)
        if address.version == 4:
            return ipaddress.IPv4Address(self._spaces[32].map(value))
        if any(address in network for network in _MAPPED):
            return ipaddress.IPv6Address(value >> 32 << 32 | self._spaces[32].map(value & 0xFFFFFFFF))
        if address.is_link_local and value >> 24 & 0xFFFF == 0xFFFE:
            mac = (value >> 40 & 0xFFFFFF) << 24 | value & 0xFFFFFF
            new = self._macs.map(mac ^ 1 << 41) ^ 1 << 41
            return ipaddress.IPv6Address(value >> 64 << 64 | new >> 24 << 40 | 0xFFFE << 24 | new & 0xFFFFFF)
        return ipaddress.IPv6Address(self._spaces[128].map(value))

    def network(self, text: str) -> str:
        """An address with a prefix length, host bits and all."""
        address, _, length = text.partition("/")
        found = ipaddress.ip_address(address)
        host = found.max_prefixlen - int(length)
        mapped = self.address(found)
        if int(found) & (1 << host) - 1 == 0:
            mapped = type(found)(int(mapped) >> host << host)
        return f"{mapped}/{length}"

    def mac(self, text: str) -> str:
        """A MAC address, as the kernel's tools print it."""
        value = self._macs.map(int(text.replace(":", ""), 16))
        return ":".join(f"{value >> shift & 0xFF:02x}" for shift in range(40, -1, -8))

    def known(self) -> dict[str, str]:
        """What has been replaced, by the old address."""
        found: dict[str, str] = {}
        for width, kind in ((32, ipaddress.IPv4Address), (128, ipaddress.IPv6Address)):
            found |= {str(kind(old)): str(kind(new)) for old, new in sorted(self._spaces[width].known().items())}
        return found
