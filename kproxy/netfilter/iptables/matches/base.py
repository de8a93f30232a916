"""The common base of matches, and the match that is not understood."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from kproxy.netfilter.condition import ALWAYS, Condition, Not, Open, all_of
from kproxy.netfilter.iptables.lexer import split_words, unquote
from kproxy.netfilter.iptables.option import Extension, Negatable, Option


class Match(Extension):
    """One `-m name` with its options. A rule applies when all its matches do."""

    __slots__ = ()

    FLAG: ClassVar[str] = "-m"
    FIRST: ClassVar[Condition] = ALWAYS
    """What has to hold besides the options, and whether or not they are negated."""

    @classmethod
    @cache
    def lowering(cls) -> tuple[Option, ...]:
        """A row for each field, in order, that says what the field's value asks; `asks` None: more than a condition
        decides."""
        rows = {row.field: row for row in reversed(cls.OPTIONS) if row.asks is not None or row.printed}
        return tuple(reversed(rows.values()))

    def condition(self) -> Condition | None:
        """What the match asks of a packet; None if more than the packet's own fields decides it."""
        parts = [self.FIRST]
        for row in self.lowering():
            value = getattr(self, row.field, None)
            if value is None or (value is False and not row.negatable):
                continue
            if row.asks is None:
                return None
            negated = value.negated if isinstance(value, Negatable) else value is False
            asked = row.asks(value.value if isinstance(value, Negatable) else value)
            parts.append(Not(asked) if negated else asked)
        return all_of(parts)


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

    def condition(self) -> Condition | None:
        """Open; of a quota each rule has its own (xt_quota)."""
        text = self.to_save()
        return Open("quota", text, "how much of the quota is left", each=True) if self.name == "quota" else None

    def to_save(self) -> str:
        return f"-m {self.name} {self.text}" if self.text else f"-m {self.name}"
