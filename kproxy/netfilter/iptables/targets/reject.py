"""`-j REJECT`: drop the packet and tell its sender."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from kproxy.netfilter.effect import ANSWERS, RESET, Effect, Reject
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import bare_name
from kproxy.netfilter.iptables.option import Option, UnsupportedError
from kproxy.netfilter.iptables.targets.base import Target

_DEFAULT: Final = {Family.IPV4: "icmp-port-unreachable", Family.IPV6: "icmp6-port-unreachable"}
_TYPES: Final = {family: (*(row.name for row in rows), RESET) for family, rows in ANSWERS.items()}


@dataclass(frozen=True, slots=True)
class RejectTarget(Target):
    """`reject_with` is iptables' name of the answer: `tcp-reset` (only for `-p tcp`) or an ICMP type."""

    reject_with: str

    NAME: ClassVar[str] = "REJECT"
    OPTIONS: ClassVar[tuple[Option, ...]] = (Option("--reject-with", "reject_with", bare_name(40)),)

    def protocols(self) -> frozenset[int]:
        return frozenset({6} if self.reject_with == RESET else ())

    @classmethod
    def complete(cls, values: dict[str, Any], family: Family) -> None:
        answer = values.setdefault("reject_with", _DEFAULT[family])
        if answer not in _TYPES[family]:
            raise UnsupportedError(f"{answer} is not a reject type of {family.value}")

    def effect(self) -> Effect:
        return Reject(self.reject_with, self.reject_with)
