"""What a rule does to a packet, as data: one meaning for the targets of iptables and the statements of nftables.

A rule is a sequence of steps: what it asks (`netfilter.condition`, or a match that is more than a condition) and what
it does, an `Effect`. `iptables.targets` lower each target beside its parser, `nftables.effects` lowers statements; a
statement whose value depends on the packet stays itself. `dataplane.concrete.effects` carries an effect out on one
packet, `dataplane.symbolic.effects` on all packets at once, backwards.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from kproxy.netfilter.address import Network, format_address
from kproxy.netfilter.family import Family
from kproxy.netfilter.field import UINT32

Numbers = tuple[int, int]
"""The first and the last of some numbers."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Ends the way through the base chain (`accept`), the packet (`drop`), the chain (`return`); `continue` ends
    nothing. `word` is how the rule says it."""

    kind: str
    word: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Jump:
    """Goes through a chain of the same table and comes back; with `goto`, its end is the end of this chain, too."""

    chain: str
    goto: bool = False


@dataclass(frozen=True, slots=True)
class Queue:
    """User space accepts or drops the packet. `text` names that in an answer."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Nat:
    """Chooses the other end's address of a connection; the packet is accepted.

    Attributes:
        kind: `dnat`, `redirect`, `snat`, `masquerade` or `netmap`.
        addresses: the first and last to choose from, None to keep the packet's; of `netmap`, of the network to map to.
        ports: likewise.
        base: of dnat: the port is moved from there, and not chosen.
        random: a port is chosen at random; `fully` in another way that decides the same.
        persistent: a client keeps its address.
        family: of packets that it translates; None for both.
        word: how the rule says it.
    """

    kind: str
    addresses: Numbers | None = None
    ports: Numbers | None = None
    base: int | None = None
    random: bool = False
    fully: bool = False
    persistent: bool = False
    family: Family | None = None
    word: str = field(default="", compare=False)

    @property
    def of_source(self) -> bool:
        """Whether it rewrites sources; netmap rewrites what its hook does."""
        return self.kind in ("snat", "masquerade")

    @property
    def at_random(self) -> bool:
        """Whether the port is not the packet's own."""
        return self.random or self.fully

    @property
    def network(self) -> Network:
        """Where netmap maps addresses to: what the first and the last address agree in stays."""
        assert self.addresses is not None, self
        assert self.family is not None, self
        first, last = self.addresses
        return Network(self.family, first, self.family.full_mask ^ first ^ last)

    def text(self) -> str:
        """What it does in words of iptables: `SNAT --to-source 10.0.0.1`."""
        parts = [self.kind.upper()]
        if self.kind == "netmap":
            parts.append(f"--to {self.network}")
        elif self.kind in ("masquerade", "redirect"):
            parts += [f"--to-ports {numbers_text(self.ports)}"] if self.ports else []
        else:
            parts.append(f"--to-{'source' if self.of_source else 'destination'} {self.range_text()}")
        flags = (("random", self.random), ("random-fully", self.fully), ("persistent", self.persistent))
        return " ".join([*parts, *(f"--{name}" for name, given in flags if given)])

    def range_text(self) -> str:
        """The addresses and ports to choose from, as iptables writes them."""
        return range_text(self.family, self.addresses, self.ports, self.base)


def range_text(family: Family | None, addresses: Numbers | None, ports: Numbers | None, base: int | None) -> str:
    """`10.0.0.1-10.0.0.2:80-90/8080`: what a translation chooses from, as iptables writes it."""
    text = ""
    if addresses is not None:
        assert family is not None, addresses
        first, last = addresses
        text = format_address(first, family) + ("" if first == last else f"-{format_address(last, family)}")
        if ports is not None and family is Family.IPV6:
            text = f"[{text}]"
    if ports is None:
        return text
    return f"{text}:{numbers_text(ports)}" + ("" if base is None else f"/{base}")


def numbers_text(numbers: Numbers) -> str:
    """`80`, or `80-90`."""
    first, last = numbers
    return str(first) if first == last else f"{first}-{last}"


@dataclass(frozen=True, slots=True)
class Reject:
    """Drops the packet and tells its sender, with an answer for each family by iptables' name; "" ends only the
    rule."""

    ipv4: str
    ipv6: str
    word: str = field(default="REJECT", compare=False)

    def answer(self, family: Family) -> str:
        """What the sender of a packet is told."""
        return self.ipv4 if family is Family.IPV4 else self.ipv6


@dataclass(frozen=True, slots=True)
class SetField:
    """A header field of a byte, by its name in packets, becomes `values[field]`. `did` says it in words."""

    name: str
    values: tuple[int, ...]
    did: str = field(default="", compare=False)


def moved(value: int, shift: int) -> int:
    """A number of 32 bits moved to the left, to the right if negative."""
    return value << shift & UINT32 if shift >= 0 else value >> -shift


class Term(NamedTuple):
    """Some bits of a mark, `mark` or `connmark`, moved to the left (to the right if negative)."""

    name: str
    bits: int
    shift: int = 0

    def of(self, value: int) -> int:
        """The bits of a number, taken and moved."""
        return moved(value & self.bits, self.shift)


@dataclass(frozen=True, slots=True)
class SetBits:
    """A mark becomes the exclusive or of a number and of terms. Without a connection its mark is neither read nor
    written."""

    name: str
    xor: int
    terms: tuple[Term, ...] = ()

    @property
    def asks_connection(self) -> bool:
        """Whether there must be a connection."""
        return self.name == "connmark" or any(term.name == "connmark" for term in self.terms)

    def changed(self) -> int:
        """The bits that may change."""
        kept, others = 0, self.xor
        for term in self.terms:
            if term.name == self.name and not term.shift:
                kept |= term.bits
            else:
                others |= term.of(UINT32)
        return ~kept & UINT32 | others

    def read(self, name: str) -> int:
        """The bits of a mark that decide how it ends, apart from those that stay where they are."""
        bits = 0
        for term in self.terms:
            bits |= term.bits if term.name == name and (name != self.name or term.shift) else 0
        return bits


def marked(name: str, value: int, mask: int, shift: int = 0) -> SetBits:
    """`--set-xmark value/mask`: the mask's bits are cleared, the value's xor-ed in, and all is moved."""
    kept = Term(name, ~mask & UINT32, shift)
    return SetBits(name, moved(value, shift), (kept,) if kept.bits else ())


@dataclass(frozen=True, slots=True)
class Hashed:
    """The mark becomes one that nobody knows."""

    text: str


@dataclass(frozen=True, slots=True)
class Untrack:
    """Connection tracking leaves the packet out."""


@dataclass(frozen=True, slots=True)
class Socket:
    """Gives the packet to a transparent socket, if one listens there; the rule goes on, and ends if there is none. With
    `final` the packet is accepted, and dropped.

    `port` is a number, None for the packet's own, or an expression of nftables; `mark` what happens to the mark.
    """

    port: Hashable
    address: str
    final: bool = False
    mark: SetBits | None = None

    @property
    def text(self) -> str:
        """What it does, in words."""
        return f"TPROXY to {self.address} port {self.known_port or 'as it is'}"

    @property
    def known_port(self) -> int | None:
        """The port, if the rule names one."""
        return self.port if isinstance(self.port, int) else None


@dataclass(frozen=True, slots=True)
class Remember:
    """An ipset holds the packet's key from now on, or not: references with whether they are added, in order."""

    changes: tuple[tuple[Any, bool], ...]
    text: str


@dataclass(frozen=True, slots=True)
class Told:
    """Decides nothing of a packet's way; `did` says in words what happens.

    `text`, if not empty, says what the rule writes that packets of the model do not have, or sends elsewhere: what has
    another text is treated otherwise. It stays if the packet is dropped afterwards, or not.
    """

    did: str
    text: str = ""
    stays: bool = False


def is_idle(effect: object) -> bool:
    """Whether an effect changes no packet's treatment."""
    return isinstance(effect, Told) and not effect.text


def place_of(text: str) -> str:
    """The beginning of a `Told` text that says what is written: the last one that begins so counts."""
    target, written, _ = text.partition(" set ")
    return target + written


@dataclass(frozen=True, slots=True)
class Unknown:
    """May do anything, or what `may` has: `accept`, `drop`, `reject`, `return`, `translate`; and go to the chains of
    `leads`. `name` is how it is called in an answer, `text` how the rule says it."""

    name: str
    text: str
    may: frozenset[str] | None = None
    leads: tuple[Jump, ...] = ()


Effect: TypeAlias = (
    Verdict | Jump | Queue | Nat | Reject | SetField | SetBits | Hashed | Untrack | Socket | Remember | Told | Unknown
)  # fmt: skip
"""What a rule of either language does."""

HARMLESS: Final = frozenset(
    {
        "AUDIT", "CHECKSUM", "CLASSIFY", "CONNSECMARK", "IDLETIMER", "LED", "RATEEST", "SECMARK", "TCPOPTSTRIP",
        "ULOG",
    }
)  # fmt: skip
"""Targets of iptables without a class, of which it is known that they decide nothing."""

RESET: Final = "tcp-reset"


class Answer(NamedTuple):
    """An answer of ICMP with which a packet is refused: iptables' name and its code."""

    name: str
    code: int


ANSWERS: Final = MappingProxyType(
    {
        Family.IPV4: (
            Answer("icmp-net-unreachable", 0), Answer("icmp-host-unreachable", 1),
            Answer("icmp-proto-unreachable", 2), Answer("icmp-port-unreachable", 3),
            Answer("icmp-net-prohibited", 9), Answer("icmp-host-prohibited", 10),
            Answer("icmp-admin-prohibited", 13),
        ),
        Family.IPV6: (
            Answer("icmp6-no-route", 0), Answer("icmp6-adm-prohibited", 1),
            Answer("icmp6-addr-unreachable", 3), Answer("icmp6-port-unreachable", 4),
            Answer("icmp6-policy-fail", 5), Answer("icmp6-reject-route", 6),
        ),
    }
)  # fmt: skip
ERRORS: Final = MappingProxyType(
    {
        row.name: f"icmp {3 if family is Family.IPV4 else 1}/{row.code}"
        for family, rows in ANSWERS.items()
        for row in rows
    }
)
"""Type and code of the answers by their names: `icmp 3/3`."""
ICMPX: Final = MappingProxyType({Family.IPV4: (0, 3, 1, 13), Family.IPV6: (0, 4, 3, 1)})
"""The codes of nft's icmpx (no-route, port-unreachable, host-unreachable, admin-prohibited) in each family
(nft_reject)."""


def icmp_answer(family: Family, code: int) -> str:
    """The name of an answer by its code."""
    return next(
        (row.name for row in ANSWERS[family] if row.code == code),
        f"{'icmp' if family is Family.IPV4 else 'icmpv6'}-{code}",
    )
