"""One rule: what it compares, and what it does. A rule does not know which chain it stands in.

The fixed part (addresses, interfaces, protocol, fragments) has fields of its own; everything after it is a sequence of
matches. iptables-save prints the fixed part first, in the order of `Rule`'s fields, then the matches as given, then the
target, and `Rule.spec` does the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kproxy.netfilter.address import Network
from kproxy.netfilter.condition import Asks, Condition, Not, all_of, equals, named, network
from kproxy.netfilter.family import protocol_name
from kproxy.netfilter.iptables.matches import Match
from kproxy.netfilter.iptables.option import Negatable
from kproxy.netfilter.iptables.targets import Target


class Counters(NamedTuple):
    """Packets and bytes, as the kernel counts them."""

    packets: int = 0
    bytes: int = 0

    def __str__(self) -> str:
        return f"[{self.packets}:{self.bytes}]"


class Head(NamedTuple):
    """The fixed part of a rule; see `Rule` for the fields."""

    source: Negatable[Network] | None = None
    destination: Negatable[Network] | None = None
    in_interface: Negatable[str] | None = None
    out_interface: Negatable[str] | None = None
    protocol: Negatable[int] | None = None
    fragment: bool | None = None

    def text(self) -> str:
        """The fixed part as iptables-save prints it."""
        source, destination, in_interface, out_interface, protocol, fragment = self
        compared = (("-s", source), ("-d", destination), ("-i", in_interface), ("-o", out_interface))
        parts = [f"{value.sign}{flag} {value.value}" for flag, value in compared if value is not None]
        if protocol is not None:
            parts.append(f"{protocol.sign}-p {protocol_name(protocol.value)}")
        if fragment is not None:
            parts.append("-f" if fragment else "! -f")
        return " ".join(parts)


_HEAD: Final[dict[type, Callable[[str], Asks]]] = {int: equals, Network: network, str: named}
"""What a value in a rule's head asks, by its type."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule. It applies when everything that is not None holds and all `matches` apply.

    `source` and `destination` compare addresses under a mask. Interface names may end in `+`, which stands for any
    ending. `protocol` is a number. `fragment` True (`-f`) wants second and further fragments of an IPv4 packet, False
    (`! -f`) wants the others. Without a target the rule only counts.

    Two rules that the kernel treats as the same rule are equal: `counters` and `spelling` do not take part. `spelling`
    is the rule's text as it was read, kept only where it differs from `spec()`.
    """

    source: Negatable[Network] | None = None
    destination: Negatable[Network] | None = None
    in_interface: Negatable[str] | None = None
    out_interface: Negatable[str] | None = None
    protocol: Negatable[int] | None = None
    fragment: bool | None = None
    matches: tuple[Match, ...] = ()
    target: Target | None = None
    counters: Counters | None = field(default=None, compare=False)
    spelling: str | None = field(default=None, compare=False, repr=False)

    @property
    def head(self) -> Head:
        """The part before matches and target: addresses, interfaces, protocol."""
        return Head(self.source, self.destination, self.in_interface, self.out_interface, self.protocol, self.fragment)

    def asks(self) -> Condition:
        """What the head asks of a packet."""
        parts: list[Condition] = []
        for name, wanted in (("protocol", self.protocol), ("dst", self.destination), ("src", self.source),
                              ("in_interface", self.in_interface), ("out_interface", self.out_interface)):  # fmt: skip
            if wanted is not None:
                asked = _HEAD[type(wanted.value)](name)(wanted.value)
                parts.append(Not(asked) if wanted.negated else asked)
        if self.fragment is not None:
            parts.append(equals("fragment")(int(self.fragment)))
        return all_of(parts)

    def spec(self) -> str:
        """The rule's arguments as iptables-save prints them once the rule is loaded, without `-A CHAIN`."""
        parts = [self.head.text(), *(match.to_save() for match in self.matches)]
        if self.target is not None:
            parts.append(self.target.to_save())
        return " ".join(filter(None, parts))

    def to_save(self, chain: str) -> str:
        """The line of iptables-save for this rule in a chain, in the spelling in which it was read."""
        return self.to_restore(chain) if self.spelling is None else " ".join(filter(None, ("-A", chain, self.spelling)))

    def to_restore(self, chain: str) -> str:
        """The canonical line: what iptables-save prints once the rule is loaded, which iptables-restore takes too."""
        return " ".join(filter(None, ("-A", chain, self.spec())))
