"""`-j SET`: add the packet's address or port to an ipset, or remove it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kproxy.netfilter import effect
from kproxy.netfilter.effect import Effect
from kproxy.netfilter.iptables.codec import UINT32, number
from kproxy.netfilter.iptables.matches.ipset import SET_REFERENCE, SetReference
from kproxy.netfilter.iptables.option import Option
from kproxy.netfilter.iptables.targets.base import Target


@dataclass(frozen=True, slots=True)
class SetTarget(Target):
    """`add_set` with its `exist` flag and `timeout` in seconds, and `del_set`; one of them or both. `--map-set` is left
    to `OpaqueTarget`."""

    add_set: SetReference | None = None
    exist: bool = False
    timeout: int | None = None
    del_set: SetReference | None = None

    NAME: ClassVar[str] = "SET"
    SOME: ClassVar[tuple[str, ...]] = ("add_set", "del_set")
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--add-set", "add_set", SET_REFERENCE),
        Option("--exist", "exist"),
        Option("--timeout", "timeout", number(UINT32 - 1)),
        Option("--del-set", "del_set", SET_REFERENCE),
    )

    def effect(self) -> Effect:
        changes = ((self.add_set, True), (self.del_set, False))
        return effect.Remember(tuple(each for each in changes if each[0] is not None), self.to_save()[3:])
