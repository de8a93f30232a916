"""`-j REJECT`: drop the packet and tell its sender."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import choice
from kproxy.netfilter.iptables.option import Option, UnsupportedError
from kproxy.netfilter.iptables.targets.base import Target

_V4_ALIASES: Final = {
    "net-unreach": "icmp-net-unreachable", "host-unreach": "icmp-host-unreachable",
    "proto-unreach": "icmp-proto-unreachable", "port-unreach": "icmp-port-unreachable",
    "net-prohib": "icmp-net-prohibited", "host-prohib": "icmp-host-prohibited",
    "admin-prohib": "icmp-admin-prohibited", "tcp-rst": "tcp-reset",
}  # fmt: skip
_V6_ALIASES: Final = {
    "no-route": "icmp6-no-route", "adm-prohibited": "icmp6-adm-prohibited", "addr-unreach": "icmp6-addr-unreachable",
    "port-unreach": "icmp6-port-unreachable", "policy-fail": "icmp6-policy-fail", "reject-route": "icmp6-reject-route",
}  # fmt: skip
_DEFAULT: Final = {Family.IPV4: "icmp-port-unreachable", Family.IPV6: "icmp6-port-unreachable"}
_KNOWN: Final = {
    Family.IPV4: frozenset(_V4_ALIASES.values()),
    Family.IPV6: frozenset(_V6_ALIASES.values()) | {"tcp-reset"},
}
_TYPES: Final = tuple(dict.fromkeys((*_V4_ALIASES.values(), *_V6_ALIASES.values())))
_INPUT: Final = {alias: alias for alias in (*_V4_ALIASES, *_V6_ALIASES)}


@dataclass(frozen=True, slots=True)
class RejectTarget(Target):
    """`reject_with` is iptables' name of the answer: `tcp-reset` (only for `-p tcp`) or an ICMP type."""

    reject_with: str

    NAME: ClassVar[str] = "REJECT"
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--reject-with", "reject_with", choice(_TYPES, "a reject type", _INPUT)),
    )

    def protocols(self) -> frozenset[int]:
        return frozenset({6} if self.reject_with == "tcp-reset" else ())

    @classmethod
    def complete(cls, values: dict[str, Any], family: Family) -> None:
        aliases = _V4_ALIASES if family is Family.IPV4 else _V6_ALIASES
        answer = values.setdefault("reject_with", _DEFAULT[family])
        values["reject_with"] = aliases.get(answer, answer)
        if values["reject_with"] not in _KNOWN[family]:
            raise UnsupportedError(f"{answer} is not a reject type of {family.value}")
