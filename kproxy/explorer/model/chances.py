"""The exact chance with which kube-proxy's rules choose each of several endpoints."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from kproxy.api.kubeproxyconfig.types import MODE_NFTABLES
from kproxy.render.iptables.serviceport import probability
from kproxy.words import exact

_BITS_31 = 1 << 31
_BITS_32 = 1 << 32


@lru_cache(maxsize=4096)
def chances(count: int, mode: str) -> tuple[Fraction, ...]:
    """The chances of `count` endpoints in their order; they add up to 1.

    In iptables mode the kernel compares 31 random bits with the probability that kube-proxy writes with ten digits, as
    iptables rounds it (libxt_statistic); in nftables mode it scales 32 random bits (nft_numgen).
    """
    if not count:
        return ()
    if mode == MODE_NFTABLES:
        bounds = [-(-number * _BITS_32 // count) for number in range(count + 1)]
        return tuple(Fraction(bounds[number + 1] - bounds[number], _BITS_32) for number in range(count))
    found, left = [], Fraction(1)
    for number in range(count, 1, -1):
        taken = Fraction(round(float(probability(number)) * _BITS_31), _BITS_31)
        found.append(left * taken)
        left *= 1 - taken  # a difference would take a time that is quadratic in its digits
    return (*found, left)


@lru_cache(maxsize=4096)
def shown_chances(count: int, mode: str) -> tuple[tuple[Fraction, str, float], ...]:
    """The same, each as it is, for programs and for people."""
    return tuple((each, exact(each), percent(each)) for each in chances(count, mode))


def percent(chance: Fraction) -> float:
    """For people: rounded to hundredths."""
    return round(float(chance) * 100, 2)
