"""Restore lines in the form in which iptables-save prints them.

`netfilter` decides what that form is. Nine tenths of a large cluster's rules have one of six shapes, though, and for
those a regular expression gives the same text in a tenth of the time; everything else goes through `netfilter`. A test
holds the two against each other over every golden and recorded cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Final

from kproxy.netfilter import canonicalize_rule, parse_rule
from kproxy.netfilter.family import Family
from kproxy.services.names import IPFamily

ChainRef = tuple[str, str]
"""Table and chain."""

_NAME: Final = r"[a-z0-9-]+/[a-z0-9-]+(?::[a-z0-9-]+)?"
_CHAIN: Final = r"KUBE-[A-Z0-9-]+"
_IP: Final = r"[0-9.]+|[0-9a-f:]+"
_CLUSTER_IP: Final = (
    rf'-m comment --comment ("{_NAME} [a-zA-Z ]+") -m (tcp|udp|sctp) -p (tcp|udp|sctp) -d ({_IP}) --dport (\d+)'
)

_NAMED: Final = rf"-m comment --comment ({_NAME}) "
_HAIRPIN: Final = rf"-s ({_IP}) -j (KUBE-MARK-MASQ)"
_DNAT: Final = r"-m (tcp|udp|sctp) -p (tcp|udp|sctp) -j DNAT --to-destination (\S+)"
_CHOICE: Final = rf'(?:-m comment --comment "{_NAME} -> [^"\\]+" )?'
_CHOICES: Final = (
    (rf"({_CHOICE}-m statistic --mode random --probability) (\S+) (-j {_CHAIN})", "{0} {p} {2}"),
    (rf"({_CHOICE}-j {_CHAIN})", "{0}"),
)
_MASQUERADE: Final = (
    rf"{_CLUSTER_IP} ! -s ([0-9.]+/\d+|[0-9a-f:]+/\d+) -j ({_CHAIN})",
    "! -s {5} -d {3}/{bits} -p {2} -m comment --comment {0} -m {1} --dport {4} -j {6}",
)
_SHAPES: Final = {
    # Without comments in a large cluster.
    "KUBE-SEP-": (
        (_NAMED + _HAIRPIN, '-s {1}/{bits} -m comment --comment "{0}" -j {2}'),
        (_HAIRPIN, "-s {0}/{bits} -j {1}"),
        (_NAMED + _DNAT, '-p {2} -m comment --comment "{0}" -m {1} -j DNAT --to-destination {3}'),
        (_DNAT, "-p {1} -m {0} -j DNAT --to-destination {2}"),
    ),
    "KUBE-SVC-": (*_CHOICES, _MASQUERADE),
    "KUBE-SVL-": (*_CHOICES, _MASQUERADE),
    "KUBE-SERV": (
        (
            rf"{_CLUSTER_IP} -j ({_CHAIN})",
            "-d {3}/{bits} -p {2} -m comment --comment {0} -m {1} --dport {4} -j {5}",
        ),
    ),
}
"""By the beginning of a chain's name: what its rules look like, and how iptables-save prints one with these parts.
{bits} is the length of an address, {p} a probability, the part {1}, as the kernel keeps it."""
_QUICK: Final = {
    prefix: tuple((re.compile(shape), form) for shape, form in shapes) for prefix, shapes in _SHAPES.items()
}


class Canonicalizer:
    """Canonical rule texts of one family."""

    def __init__(self, family: IPFamily) -> None:
        self._family = family
        self._probabilities: dict[str, str] = {}

    def rules(self, chain: str, text: str) -> list[str]:
        """The rules of one chain without `-A CHAIN `.

        Args:
            text: restore lines, each ended by a newline.
        """
        skip = len(chain) + 4
        shapes = _QUICK.get(chain[:9], ())
        return [self._rule(line[skip:], shapes) for line in text.split("\n") if line]

    def _rule(self, arguments: str, shapes: Iterable[tuple[re.Pattern[str], str]]) -> str:
        for shape, form in shapes:
            found = shape.fullmatch(arguments)
            if found is not None:
                parts = found.groups()
                p = self._probability(parts[1]) if "{p}" in form else ""
                return form.format(*parts, bits=self._family.bits, p=p)
        return canonical_rule(arguments, self._family)

    def _probability(self, text: str) -> str:
        known = self._probabilities.get(text)
        if known is None:
            rule = canonical_rule(f"-m statistic --mode random --probability {text}", self._family)
            known = self._probabilities[text] = rule.rsplit(" ", 1)[1]
        return known


@cache
def canonicalizer(family: IPFamily) -> Canonicalizer:
    """The canonicalizer of a family."""
    return Canonicalizer(family)


def canonical_rule(arguments: str, family: Family) -> str:
    """One rule through `netfilter`; a rule that takes everything has no arguments at all."""
    return canonicalize_rule(arguments, family=family) if arguments else ""


def same_rules(desired: list[str], real: list[str], family: IPFamily) -> bool:
    """Whether two lists of canonical rules mean the same to the kernel, however an iptables release spells them."""
    if desired == real:
        return True
    return len(desired) == len(real) and all(
        one == other or same_rule(one, other, family) for one, other in zip(desired, real, strict=True)
    )


def same_rule(one: str, other: str, family: IPFamily) -> bool:
    """Whether two rules mean the same to the kernel."""
    if one == other:
        return True
    if not one or not other:
        return False
    return parse_rule(one, family=family) == parse_rule(other, family=family)
