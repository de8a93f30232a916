"""IP addresses and CIDRs as the Kubernetes API reads them.

Go's old parser, which the API keeps for its older fields, accepts more than Python's: octets with leading zeros (read
as decimal) and IPv4-mapped IPv6. Both still live in old objects, and kube-proxy still understands them, so
`canonical_ip` understands them too and returns what Go's net.IP.String() prints. Since v1.36 the API server refuses
them in *new* objects (gate StrictIPCIDRValidation, KEP-4858, on by default since kubernetes/kubernetes pull request
137053), as it refuses CIDRs with bits set beyond the prefix; `check_ip` and `check_cidr` report that when `strict`.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import Final

_CACHE: Final = 1 << 18
_PLAIN_V4: Final = re.compile(
    r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(?:\.(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])){3}"
)
_SLOPPY_V4: Final = re.compile(r"[0-9]{1,32}(?:\.[0-9]{1,32}){3}")
_PREFIX: Final = re.compile(r"[0-9]{1,32}")

NOT_AN_IP: Final = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
NOT_A_CIDR: Final = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
LEADING_ZEROS: Final = "must not have leading 0s"
LEADING_ZEROS_CIDR: Final = "must not have leading 0s in IP or prefix length"
MAPPED: Final = "must not be an IPv4-mapped IPv6 address"
MAPPED_CIDR: Final = "must not have an IPv4-mapped IPv6 address"
HOST_BITS: Final = "must not have bits set beyond the prefix length"


@lru_cache(_CACHE)
def canonical_ip(text: str) -> str | None:
    """The address as Go prints it after parsing; None if it is invalid.

    >>> canonical_ip("FD00:0:0::1"), canonical_ip("010.1.2.3"), canonical_ip("::ffff:10.0.0.1"), canonical_ip("10.1")
    ('fd00::1', '10.1.2.3', '10.0.0.1', None)
    """
    if _PLAIN_V4.fullmatch(text):
        return text
    if ":" not in text:
        if not _SLOPPY_V4.fullmatch(text):
            return None
        octets = [int(octet) for octet in text.split(".")]
        return ".".join(map(str, octets)) if max(octets) <= 255 else None
    if "%" in text or not text.isascii():
        return None  # Go's net.ParseIP knows no zones
    head, _, tail = text.rpartition(":")
    if "." in tail:
        # The dotted tail of an IPv6 address; Go's sloppy parser allows leading zeros here as well.
        if not _SLOPPY_V4.fullmatch(tail):
            return None
        plain = canonical_ip(tail)
        if plain is None:
            return None
        text = f"{head}:{plain}"
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return None
    return str(address.ipv4_mapped or address)


def ip_family(canonical: str) -> str:
    """`IPv4` or `IPv6` of a canonical address or CIDR."""
    return "IPv6" if ":" in canonical else "IPv4"


def check_ip(text: str, strict: bool) -> tuple[str, ...]:
    """What the API server says of a value in an IP field; `strict` as for a new object since v1.36."""
    if canonical_ip(text) is None:
        return (NOT_AN_IP,)
    return strict_ip_messages(text) if strict else ()


@lru_cache(_CACHE)
def strict_ip_messages(text: str) -> tuple[str, ...]:
    """What only StrictIPCIDRValidation refuses in an address that `canonical_ip` accepts."""
    if _PLAIN_V4.fullmatch(text):
        return ()
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return (LEADING_ZEROS,)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return (MAPPED,)
    return ()


@lru_cache(_CACHE)
def canonical_cidr(text: str) -> str | None:
    """The CIDR with a canonical address and prefix length, bits beyond the prefix kept; None if it is invalid.

    >>> canonical_cidr("198.51.100.7/24"), canonical_cidr("2001:DB8::/032"), canonical_cidr("10.0.0.0")
    ('198.51.100.7/24', '2001:db8::/32', None)
    """
    address, slash, length = text.partition("/")
    if not slash or not _PREFIX.fullmatch(length):
        return None
    canonical = canonical_ip(address)
    if canonical is None:
        return None
    prefix = int(length)
    if ":" in address and ":" not in canonical:
        prefix -= 96  # IPv4-mapped: ::ffff:10.0.0.0/104 is 10.0.0.0/8
    if not 0 <= prefix <= (128 if ":" in canonical else 32):
        return None
    return f"{canonical}/{prefix}"


@lru_cache(_CACHE)
def check_cidr(text: str, strict: bool) -> tuple[str, ...]:
    """What the API server says of a value in a CIDR field; `strict` as for a new object since v1.36."""
    canonical = canonical_cidr(text)
    if canonical is None:
        return (NOT_A_CIDR,)
    if not strict:
        return ()
    address, _, length = text.partition("/")
    messages = strict_ip_messages(address)
    if messages == (LEADING_ZEROS,) or (len(length) > 1 and length.startswith("0")):
        return (LEADING_ZEROS_CIDR,)
    if messages:
        return (MAPPED_CIDR,)
    try:
        ipaddress.ip_network(canonical, strict=True)
    except ValueError:
        return (HOST_BITS,)
    return ()


@lru_cache(_CACHE)
def check_special_ip(text: str) -> tuple[str, ...]:
    """Why an address cannot be an endpoint or an external IP (the API server's ValidateEndpointIP).

    Loopback and unspecified addresses are nonsense there, and link-local ones reach node-local services.
    """
    canonical = canonical_ip(text)
    if canonical is None:
        return ("must be a valid IP address",)
    address = ipaddress.ip_address(canonical)
    messages = []
    if address.is_unspecified:
        messages.append(f"may not be unspecified ({text})")
    if address.is_loopback:
        messages.append("may not be in the loopback range (127.0.0.0/8, ::1/128)")
    if address.is_link_local:
        messages.append("may not be in the link-local range (169.254.0.0/16, fe80::/10)")
    if _is_link_local_multicast(address):
        messages.append("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")
    return tuple(messages)


def _is_link_local_multicast(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    packed = address.packed
    if len(packed) == 4:
        return packed[:3] == b"\xe0\x00\x00"
    return packed[0] == 0xFF and packed[1] & 0x0F == 0x02
