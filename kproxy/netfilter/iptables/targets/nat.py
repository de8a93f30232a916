"""Address translation: `DNAT`, `SNAT`, `MASQUERADE`, `REDIRECT`, `NETMAP`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from kproxy.netfilter.address import Network, parse_address
from kproxy.netfilter.effect import Effect, Nat, Numbers, range_text
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import NETWORK, UINT16, Range
from kproxy.netfilter.iptables.option import Codec, Option
from kproxy.netfilter.iptables.targets.base import Target

_PORTS: Final = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5})(?:/([0-9]{1,5}))?)?")


@dataclass(frozen=True, slots=True)
class NatRange:
    """The addresses and ports to choose from: `addresses` as first and last integer, None to keep the address; `ports`
    None to keep the port where possible; `base_port` (DNAT only) shifts ports from there instead of choosing."""

    family: Family
    addresses: tuple[int, int] | None = None
    ports: Range | None = None
    base_port: int | None = None

    def nat(self, kind: str, *, random: bool = False, fully: bool = False, persistent: bool = False) -> Nat:
        """The translation to it."""
        ports = _numbers(self.ports)
        return Nat(kind, self.addresses, ports, self.base_port, random, fully, persistent, self.family, kind.upper())

    def __str__(self) -> str:
        return range_text(self.family, self.addresses, _numbers(self.ports), self.base_port)


def _numbers(ports: Range | None) -> Numbers | None:
    return None if ports is None else (ports.first, ports.last)


def parse_ports(text: str) -> tuple[Range, int | None]:
    """Read `port[-port[/base]]`. Raises ValueError."""
    found = _PORTS.fullmatch(text)
    if found is None:
        raise ValueError(f"a port or a range of ports expected, not {text!r}")
    first, last, base = found.groups()
    low = int(first)
    high = int(last) if last else low
    if not low <= high <= UINT16 or (base and int(base) > UINT16):
        raise ValueError(f"a port or a range of ports expected, not {text!r}")
    return Range(low, high), int(base) if base else None


def ports_text(ports: Range, base: int | None = None) -> str:
    """Ports as iptables-save prints them after `--to-ports` or a colon."""
    return ports.text("-") + ("" if base is None else f"/{base}")


def _parse_range(words: Sequence[str], family: Family) -> NatRange:
    word = words[0]
    if family is Family.IPV4 or (word.startswith(":") and not word.startswith("::")):
        hosts, colon, tail = word.partition(":")
    elif word.startswith("["):
        hosts, bracket, tail = word[1:].partition("]")
        colon = tail[:1]
        tail = tail[1:]
        if not hosts or not bracket or colon not in ("", ":"):
            raise ValueError(f"[address]:port expected, not {word!r}")
    else:
        hosts, colon, tail = word, "", ""
    ports, base = parse_ports(tail) if colon else (None, None)
    if not hosts:
        if ports is None:
            raise ValueError("an address or a port expected")
        return NatRange(family, None, ports, base)
    first, dash, last = hosts.partition("-")
    low = parse_address(first, family)
    return NatRange(family, (low, parse_address(last, family) if dash else low), ports, base)


_RANGE: Final = Codec(_parse_range, str)


class _PortTarget(Target):
    """A target that may write a port: then the rule must name a protocol that has ports."""

    __slots__ = ()

    PROTOCOLS: ClassVar[frozenset[int]] = frozenset({6, 17, 33, 132})

    def protocols(self) -> frozenset[int]:
        value = getattr(self, self.OPTIONS[0].field)
        ports = value.ports if isinstance(value, NatRange) else value
        return frozenset() if ports is None else self.PROTOCOLS


@dataclass(frozen=True, slots=True)
class DnatTarget(_PortTarget):
    """Rewrite the destination. `random` chooses the port at random; `persistent` keeps a client's address choice."""

    to_destination: NatRange
    random: bool = False
    persistent: bool = False

    NAME: ClassVar[str] = "DNAT"
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--to-destination", "to_destination", _RANGE, listed="to:{}"),
        Option("--random", "random"),
        Option("--persistent", "persistent"),
    )

    @classmethod
    def read_saved(cls, text: str, family: Family) -> Self | None:
        """A shortcut for dumps, in which kube-proxy's DNAT rules are all different: read what follows
        `--to-destination ` if it is one address in canonical form and nothing else, else None. Raises ValueError."""
        destination = None if " " in text or '"' in text else _parse_range((text,), family)
        return None if destination is None or str(destination) != text else cls(destination)

    def effect(self) -> Effect:
        return self.to_destination.nat("dnat", random=self.random, persistent=self.persistent)


@dataclass(frozen=True, slots=True)
class SnatTarget(_PortTarget):
    """Rewrite the source; options as in `DnatTarget`, and `random_fully`."""

    to_source: NatRange
    random: bool = False
    random_fully: bool = False
    persistent: bool = False

    NAME: ClassVar[str] = "SNAT"
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--to-source", "to_source", _RANGE, listed="to:{}"),
        Option("--random", "random"),
        Option("--random-fully", "random_fully"),
        Option("--persistent", "persistent"),
    )

    def effect(self) -> Effect:
        return self.to_source.nat("snat", random=self.random, fully=self.random_fully, persistent=self.persistent)


_TO_PORTS: Final = Codec(lambda words, _family: _plain_ports(words[0]), ports_text)


def _plain_ports(text: str) -> Range:
    ports, base = parse_ports(text)
    if base is not None:
        raise ValueError(f"a range of ports without a base expected, not {text!r}")
    return ports


@dataclass(frozen=True, slots=True)
class MasqueradeTarget(_PortTarget):
    """Rewrite the source to the address of the interface by which the packet leaves."""

    to_ports: Range | None = None
    random: bool = False
    random_fully: bool = False

    NAME: ClassVar[str] = "MASQUERADE"
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--to-ports", "to_ports", _TO_PORTS, listed="masq ports: {}"),
        Option("--random", "random"),
        Option("--random-fully", "random_fully"),
    )

    def effect(self) -> Effect:
        return Nat("masquerade", None, _numbers(self.to_ports), None, self.random, self.random_fully, word=self.NAME)


@dataclass(frozen=True, slots=True)
class RedirectTarget(_PortTarget):
    """Rewrite the destination to this host: the address of the input interface, or loopback for local packets."""

    to_ports: Range | None = None
    random: bool = False

    NAME: ClassVar[str] = "REDIRECT"
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--to-ports", "to_ports", _TO_PORTS, listed="redir ports {}"),
        Option("--random", "random"),
    )

    def effect(self) -> Effect:
        return Nat("redirect", None, _numbers(self.to_ports), None, self.random, word=self.NAME)


@dataclass(frozen=True, slots=True)
class NetmapTarget(Target):
    """Replace the network part of the address, keeping the host part."""

    to: Network

    NAME: ClassVar[str] = "NETMAP"
    OPTIONS: ClassVar[tuple[Option, ...]] = (Option("--to", "to", NETWORK, listed="to:{}"),)

    def effect(self) -> Effect:
        first = self.to.address & self.to.mask
        last = first | self.to.mask ^ self.to.family.full_mask
        return Nat("netmap", (first, last), family=self.to.family, word=self.NAME)
