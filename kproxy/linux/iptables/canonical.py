"""Restore lines in the form in which iptables-save prints them.

`netfilter` decides what that form is. Nine tenths of a large cluster's rules have one of six shapes, though, and for
those a regular expression gives the same text in a tenth of the time; everything else goes through `netfilter`. A test
holds the two against each other over every golden and recorded cluster.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
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

# Without comments in a large cluster.
_HAIRPIN: Final = re.compile(rf"(?:-m comment --comment ({_NAME}) )?-s ({_IP}) -j (KUBE-MARK-MASQ)")
_DNAT: Final = re.compile(
    rf"(?:-m comment --comment ({_NAME}) )?-m (tcp|udp|sctp) -p (tcp|udp|sctp) -j DNAT --to-destination (\S+)"
)
_LAST_CHOICE: Final = re.compile(rf'(?:-m comment --comment "{_NAME} -> [^"\\]+" )?-j {_CHAIN}')
_CHOICE: Final = re.compile(
    rf'((?:-m comment --comment "{_NAME} -> [^"\\]+" )?-m statistic --mode random --probability) (\S+) (-j {_CHAIN})'
)
_DISPATCH: Final = re.compile(rf"{_CLUSTER_IP} -j ({_CHAIN})")
_MASQUERADE: Final = re.compile(rf"{_CLUSTER_IP} ! -s ([0-9.]+/\d+|[0-9a-f:]+/\d+) -j ({_CHAIN})")


class Canonicalizer:
    """Canonical rule texts of one family."""

    def __init__(self, family: IPFamily) -> None:
        self._family = family
        self._bits = 128 if family.is_ipv6 else 32
        self._probabilities: dict[str, str] = {}
        self._by_prefix: Mapping[str, tuple[Callable[[str], str | None], ...]] = {
            "KUBE-SEP-": (self._hairpin, self._dnat),
            "KUBE-SVC-": (self._choice, self._masquerade),
            "KUBE-SVL-": (self._choice, self._masquerade),
            "KUBE-SERV": (self._dispatch,),
        }

    def rules(self, chain: str, text: str) -> list[str]:
        """The rules of one chain without `-A CHAIN `.

        Args:
            text: restore lines, each ended by a newline.
        """
        skip = len(chain) + 4
        quick = self._by_prefix.get(chain[:9], ())
        return [self._rule(line[skip:], quick) for line in text.split("\n") if line]

    def _rule(self, arguments: str, quick: Iterable[Callable[[str], str | None]]) -> str:
        for attempt in quick:
            done = attempt(arguments)
            if done is not None:
                return done
        return canonical_rule(arguments, self._family)

    def _hairpin(self, rule: str) -> str | None:
        found = _HAIRPIN.fullmatch(rule)
        if found is None:
            return None
        name, ip, chain = found.groups()
        return f"-s {ip}/{self._bits} {_comment(name)}-j {chain}"

    def _dnat(self, rule: str) -> str | None:
        found = _DNAT.fullmatch(rule)
        if found is None:
            return None
        name, match, protocol, address = found.groups()
        return f"-p {protocol} {_comment(name)}-m {match} -j DNAT --to-destination {address}"

    def _choice(self, rule: str) -> str | None:
        found = _CHOICE.fullmatch(rule)
        if found is not None:
            head, probability, jump = found.groups()
            return f"{head} {self._probability(probability)} {jump}"
        return rule if _LAST_CHOICE.fullmatch(rule) else None

    def _dispatch(self, rule: str) -> str | None:
        found = _DISPATCH.fullmatch(rule)
        if found is None:
            return None
        comment, match, protocol, ip, port, chain = found.groups()
        return f"-d {ip}/{self._bits} -p {protocol} -m comment --comment {comment} -m {match} --dport {port} -j {chain}"

    def _masquerade(self, rule: str) -> str | None:
        found = _MASQUERADE.fullmatch(rule)
        if found is None:
            return None
        comment, match, protocol, ip, port, source, chain = found.groups()
        return (
            f"! -s {source} -d {ip}/{self._bits} -p {protocol} -m comment --comment {comment} -m {match} "
            f"--dport {port} -j {chain}"
        )

    def _probability(self, text: str) -> str:
        known = self._probabilities.get(text)
        if known is None:
            rule = canonical_rule(f"-m statistic --mode random --probability {text}", self._family)
            known = self._probabilities[text] = rule.rsplit(" ", 1)[1]
        return known


def _comment(name: str | None) -> str:
    return f'-m comment --comment "{name}" ' if name is not None else ""


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
