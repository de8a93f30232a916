"""`-m multiport`: up to fifteen ports and port ranges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from kproxy.netfilter.condition import PORTS, Condition, within
from kproxy.netfilter.family import Family
from kproxy.netfilter.field import PORT_PROTOCOLS
from kproxy.netfilter.iptables.codec import UINT16, Range, parse_uint
from kproxy.netfilter.iptables.matches.base import Match
from kproxy.netfilter.iptables.option import Codec, Negatable, Option

_MOST: Final = 15


def _parse_ports(words: Sequence[str], _family: Family) -> tuple[Range, ...]:
    ports = []
    for word in words[0].split(","):
        first, colon, last = word.partition(":")
        low = parse_uint(first, UINT16)
        ports.append(Range(low, parse_uint(last, UINT16) if colon else low))
        if colon and ports[-1].last <= low:
            raise ValueError(f"a range with its lower end first expected, not {word!r}")
    if sum(1 if port.first == port.last else 2 for port in ports) > _MOST:
        raise ValueError(f"at most {_MOST} ports expected (a range counts twice)")
    return tuple(ports)


def _ports_text(value: tuple[Range, ...]) -> str:
    return ",".join(ports.text() for ports in value)


def _listed(option: str) -> str:
    return f"multiport {option} {{}}|multiport {option}  !{{}}"


_PORTS: Final = Codec(_parse_ports, _ports_text)


@dataclass(frozen=True, slots=True)
class MultiportMatch(Match):
    """One of `sports`, `dports` and `ports` (either port) is given; the packet's port must be in one of its ranges."""

    sports: Negatable[tuple[Range, ...]] | None = None
    dports: Negatable[tuple[Range, ...]] | None = None
    ports: Negatable[tuple[Range, ...]] | None = None

    NAME: ClassVar[str] = "multiport"
    PROTOCOLS: ClassVar[frozenset[int]] = PORT_PROTOCOLS
    FIRST: ClassVar[Condition] = PORTS
    SOME: ClassVar[tuple[str, ...]] = ("sports", "dports", "ports")
    EXCLUSIVE: ClassVar[tuple[tuple[str, ...], ...]] = (SOME,)
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--sports", "sports", _PORTS, True, ("--source-ports",), asks=within("sport"), listed=_listed("sports")),
        Option(
            "--dports", "dports", _PORTS, True, ("--destination-ports",), asks=within("dport"), listed=_listed("dports")
        ),
        Option("--ports", "ports", _PORTS, True, asks=within("sport", "dport"), listed=_listed("ports")),
    )
