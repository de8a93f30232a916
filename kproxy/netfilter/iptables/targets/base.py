"""The common base of targets; the verdicts; jumps; and the target that is not understood."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from kproxy.netfilter import effect
from kproxy.netfilter.effect import Effect
from kproxy.netfilter.family import VERDICTS
from kproxy.netfilter.iptables.lexer import split_words, unquote
from kproxy.netfilter.iptables.option import Extension


class Target(Extension):
    """What a rule does with a packet that matched: one `-j` or `-g` with its options."""

    __slots__ = ()

    FLAG: ClassVar[str] = "-j"

    DOES: ClassVar[Effect | None] = None
    """What it does to a packet, if that is the same for all of the class."""

    def effect(self) -> Effect:
        """What it does to a packet."""
        if self.DOES is None:
            raise NotImplementedError
        return self.DOES

    def told(self, did: str, *, stays: bool = False) -> Effect:
        """What it does, if its text alone tells that; see `effect.Told`."""
        return effect.Told(did, self.to_save()[3:], stays)


@dataclass(frozen=True, slots=True)
class Verdict(Target):
    """ACCEPT, DROP, RETURN or QUEUE."""

    verdict: str

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"a verdict expected ({', '.join(sorted(VERDICTS))}), not {self.verdict!r}")

    def to_save(self) -> str:
        return f"-j {self.verdict}"

    def effect(self) -> Effect:
        if self.verdict == "QUEUE":
            return effect.Queue("QUEUE", "QUEUE: user space decides")
        return effect.Verdict(self.verdict.lower(), self.verdict)


ACCEPT = Verdict("ACCEPT")
DROP = Verdict("DROP")
RETURN = Verdict("RETURN")
QUEUE = Verdict("QUEUE")


@dataclass(frozen=True, slots=True)
class Jump(Target):
    """`-j CHAIN`: go through a user-defined chain and come back; or `-g CHAIN`: go there for good, so that its end
    returns to where the last jump came from."""

    chain: str
    goto: bool = False

    def to_save(self) -> str:
        return f"{'-g' if self.goto else '-j'} {self.chain}"

    def effect(self) -> Effect:
        return effect.Jump(self.chain, self.goto)


_WITHOUT_ECN: Final = tuple(flags & 0x3F for flags in range(256))
"""Each value of TCP's flags without ECE and CWR."""


@dataclass(frozen=True, slots=True)
class OpaqueTarget(Target):
    """A target extension, or options of a known one, that kproxy does not interpret; `text` is kept exactly."""

    name: str
    text: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """The option words without their quotes."""
        return tuple(map(unquote, split_words(self.text)))

    def to_save(self) -> str:
        return f"-j {self.name} {self.text}" if self.text else f"-j {self.name}"

    def effect(self) -> Effect:
        if (self.name, *self.words) == ("ECN", "--ecn-tcp-remove"):
            return effect.SetField("tcp_flags", _WITHOUT_ECN, "clears ECE and CWR")
        if self.name == "HMARK":
            return effect.Hashed(self.to_save()[3:])
        if self.name in effect.HARMLESS:
            return self.told(f"{self.name}: no effect on the packet's way")
        return effect.Unknown(self.to_save(), self.to_save())
