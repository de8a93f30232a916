"""`-m comment`: a note that never decides anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from kproxy.netfilter.condition import nothing
from kproxy.netfilter.iptables.codec import string
from kproxy.netfilter.iptables.lexer import quote
from kproxy.netfilter.iptables.matches.base import Match
from kproxy.netfilter.iptables.option import Option


@dataclass(frozen=True, slots=True)
class CommentMatch(Match):
    """`comment` holds at most 255 bytes of UTF-8."""

    comment: str

    NAME: ClassVar[str] = "comment"
    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option("--comment", "comment", string(255), asks=nothing, listed="/* {} */"),
    )

    @classmethod
    def read_saved(cls, text: str) -> Self | None:
        """A shortcut for dumps, where comments are the most frequent match and most are different: read what follows
        `--comment ` if it is in canonical form and has no escapes, else None."""
        value = text[1:-1] if text[:1] == '"' and text[-1:] == '"' else text
        if len(value) > 255 or not value.isascii() or quote(value) != text:
            return None
        return cls(value)

    def to_save(self) -> str:  # the most frequent match by far: spare it the walk over its one row
        return f"-m comment --comment {quote(self.comment)}"
