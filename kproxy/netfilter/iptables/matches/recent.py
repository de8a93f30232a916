"""`-m recent`: named lists of recently seen addresses, which kube-proxy uses for ClientIP session affinity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from kproxy.netfilter.address import Address
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import ADDRESS, bare_name, number
from kproxy.netfilter.iptables.matches.base import Match
from kproxy.netfilter.iptables.option import Negatable, Option

_ACTIONS: Final = {"set": "SET", "rcheck": "CHECK", "update": "UPDATE", "remove": "REMOVE"}


@dataclass(frozen=True, slots=True)
class RecentMatch(Match):
    """`action` is set, rcheck, update or remove.

    `side` (source or dest) says which address, under `mask`, is the key. With `seconds` an entry must have been seen
    that recently, with `hitcount` that often; `reap` drops older entries; `rttl` wants the same TTL. Without options
    the list is called DEFAULT, the mask is full and the side is the source.
    """

    action: Negatable[str]
    name: str
    mask: Address
    side: str = "source"
    seconds: int | None = None
    reap: bool = False
    hitcount: int | None = None
    rttl: bool = False

    NAME: ClassVar[str] = "recent"
    SOME: ClassVar[tuple[str, ...]] = ("action",)
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        *(
            Option(f"--{action}", "action", constant=action, negatable=True, listed=f"! recent: {listed}")
            for action, listed in _ACTIONS.items()
        ),
        Option("--seconds", "seconds", number(least=1), listed="seconds: {}"),
        Option("--reap", "reap"),
        Option("--hitcount", "hitcount", number(), listed="hit_count: {}"),
        Option("--rttl", "rttl", listed="TTL-Match"),
        Option("--name", "name", bare_name(199), loose=True, listed="name: {}"),
        Option("--mask", "mask", ADDRESS, listed="mask: {}"),
        Option("--rsource", "side", constant="source", listed="side: source"),
        Option("--rdest", "side", constant="dest", listed="side: dest"),
    )

    @classmethod
    def complete(cls, values: dict[str, Any], family: Family) -> None:
        checks = values["action"].value in ("rcheck", "update")
        if values.get("reap") and not values.get("seconds"):
            raise ValueError("--seconds expected beside --reap")
        if not checks and any(values.get(field) for field in ("seconds", "hitcount", "rttl")):
            raise ValueError("--rcheck or --update expected beside --seconds, --hitcount and --rttl")
        values.setdefault("name", "DEFAULT")
        values.setdefault("mask", Address(family, family.full_mask))
