"""The common base of matches, and the match that is not understood."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kproxy.netfilter.iptables.lexer import split_words, unquote
from kproxy.netfilter.iptables.option import Extension, Negatable, T


class Match(Extension):
    """One `-m name` with its options. A rule applies when all its matches do."""

    __slots__ = ()

    FLAG: ClassVar[str] = "-m"
    PROTOCOLS: ClassVar[frozenset[int]] = frozenset()
    """The protocols of which the rule must name one (`-p`) for the kernel to take this match; empty: any."""


@dataclass(frozen=True, slots=True)
class OpaqueMatch(Match):
    """A match, or options of a known match, that kproxy does not interpret.

    `name` is the extension's name, `text` what follows it, kept exactly. The evaluation of a rule with such a match
    cannot know whether it applies.
    """

    name: str
    text: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """The option words without their quotes."""
        return tuple(map(unquote, split_words(self.text)))

    def to_save(self) -> str:
        return f"-m {self.name} {self.text}" if self.text else f"-m {self.name}"

    def to_list(self) -> str:
        """The text in brackets: iptables would print something of the extension's own."""
        return f"[{self.name} {self.text}]" if self.text else f"[{self.name}]"


def listed(field: Negatable[T] | None, text: str) -> str:
    """A negatable option in the style of `iptables -L`: the text, after `! ` if negated; nothing if it is absent."""
    return "" if field is None else field.sign + text


def join(*parts: str) -> str:
    """Join the parts that are not empty with blanks."""
    return " ".join(filter(None, parts))
