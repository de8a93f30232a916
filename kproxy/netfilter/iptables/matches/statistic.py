"""`-m statistic`: every n-th packet, or a packet with a certain probability."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final

from kproxy.netfilter.condition import Chance, Condition
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import UINT32, choice, number
from kproxy.netfilter.iptables.matches.base import Match
from kproxy.netfilter.iptables.option import Codec, Negatable, Option

_SCALE: Final = 1 << 31
_DECIMAL: Final = re.compile(r"\+?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?")


def _parse_probability(words: Sequence[str], _family: Family) -> int:
    chance = float(words[0]) if len(words[0]) < 100 and _DECIMAL.fullmatch(words[0]) else -1.0
    if not 0 <= chance <= 1:
        raise ValueError(f"a probability from 0 to 1 expected, not {words[0]!r}")
    return round(chance * _SCALE)  # exact but for the rounding, half to even: lrint(3) in the extension


def _probability_text(value: int) -> str:
    return f"{value / _SCALE:.11f}"


_PROBABILITY: Final = Codec(_parse_probability, _probability_text)


@dataclass(frozen=True, slots=True)
class StatisticMatch(Match):
    """`mode` is random, with `probability`, or nth, with `every` and `packet`.

    The kernel keeps a probability as an integer k and applies the match when 31 random bits are below k, so the
    probability is exactly k / 2^31; `probability` holds k, from 0 to 2^31, and `chance` the fraction. In mode nth the
    match applies to packet number `packet` (from 0) of each `every`.
    """

    mode: str
    probability: Negatable[int] | None = None
    every: Negatable[int] | None = None
    packet: int | None = None

    NAME: ClassVar[str] = "statistic"
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--mode", "mode", choice(("random", "nth"), "a mode"), listed="statistic mode {}"),
        Option("--probability", "probability", _PROBABILITY, negatable=True),
        Option("--every", "every", number(UINT32, 1), negatable=True),
        Option("--packet", "packet", number()),
    )

    @classmethod
    def complete(cls, values: dict[str, object], family: Family) -> None:
        mode, every, packet = values.get("mode"), values.get("every"), values.get("packet")
        if mode == "random":
            if values.keys() != {"mode", "probability"}:
                raise ValueError("--probability and nothing else expected with --mode random")
        elif mode != "nth" or values.keys() != {"mode", "every", "packet"}:
            raise ValueError("--mode random --probability P, or --mode nth --every N --packet P expected")
        elif isinstance(every, Negatable) and isinstance(packet, int) and packet >= every.value:
            raise ValueError("--packet below --every expected")

    @property
    def chance(self) -> Fraction | None:
        """The exact probability that the match applies, negation included; None in mode nth."""
        if self.probability is None:
            return None
        chance = Fraction(self.probability.value, _SCALE)
        return 1 - chance if self.probability.negated else chance

    def condition(self) -> Condition:
        if self.chance is not None:
            return Chance(self.chance)
        every = self.every or Negatable(1)
        share = Fraction(1, every.value)
        return Chance(1 - share if every.negated else share, every.value, self.packet or 0, every.negated)
