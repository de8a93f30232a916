"""The common base of targets; the verdicts; jumps; and the target that is not understood."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kproxy.netfilter.family import VERDICTS
from kproxy.netfilter.iptables.lexer import split_words, unquote
from kproxy.netfilter.iptables.option import Extension


class Target(Extension):
    """What a rule does with a packet that matched: one `-j` or `-g` with its options."""

    __slots__ = ()

    FLAG: ClassVar[str] = "-j"


@dataclass(frozen=True, slots=True)
class Verdict(Target):
    """ACCEPT, DROP, RETURN or QUEUE."""

    verdict: str

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"a verdict expected ({', '.join(sorted(VERDICTS))}), not {self.verdict!r}")

    def to_save(self) -> str:
        return f"-j {self.verdict}"


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
