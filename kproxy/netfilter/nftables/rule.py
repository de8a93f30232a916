"""Rules: their statements, each by the grammar of its class, or by what stands behind the expression it starts with."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, get_args

from kproxy.netfilter.nftables.constant import UnknownNameError
from kproxy.netfilter.nftables.cursor import Cursor, UnexpectedError
from kproxy.netfilter.nftables.elements import print_verdict, read_verdict
from kproxy.netfilter.nftables.expression import Binary, Concat, Meta, Payload
from kproxy.netfilter.nftables.grammar import reader_of
from kproxy.netfilter.nftables.lexer import END
from kproxy.netfilter.nftables.matches import print_mangle, print_match, print_vmap, read_expression_statement
from kproxy.netfilter.nftables.ruleset import Rule, TableFamily
from kproxy.netfilter.nftables.sets import Set
from kproxy.netfilter.nftables.statement import (
    Mangle,
    Match,
    ObjectReference,
    OpaqueStatement,
    Operator,
    Reject,
    Statement,
    VerdictMap,
    Xt,
    object_text,
    read_object_reference,
)
from kproxy.netfilter.nftables.style import Scope, Style
from kproxy.netfilter.nftables.value import Verdict

_BY_GRAMMAR: Final = tuple(kind for kind in get_args(Statement) if hasattr(kind, "GRAMMAR"))
_BY_WORD: Final[Mapping[str, Callable[[Cursor], Statement]]] = {
    word: reader_of(kind) for kind in _BY_GRAMMAR for word in kind.GRAMMAR.words
}


def _read_ct(cursor: Cursor) -> Statement:
    return _BY_WORD["ct"](cursor) if cursor.tokens[cursor.i + 1] == "count" else read_expression_statement(cursor)


def _object_or(reader: Callable[[Cursor], Statement]) -> Callable[[Cursor], Statement]:
    return lambda cursor: read_object_reference(cursor) or reader(cursor)


_READERS: Final[Mapping[str, Callable[[Cursor], Statement]]] = MappingProxyType(
    {
        **_BY_WORD,
        **dict.fromkeys(("accept", "drop", "continue", "return", "jump", "goto"), read_verdict),
        **{word: _object_or(_BY_WORD[word]) for word in ("counter", "quota", "limit")},
        "synproxy": _object_or(read_expression_statement),
        "ct": _object_or(_read_ct),
    }
)
"""The readers of statements by the first word; all others start with an expression."""

_TEXTS: Final[Mapping[type, Callable[[Any, Scope], str]]] = MappingProxyType(
    {
        **{kind: kind.GRAMMAR.text for kind in _BY_GRAMMAR},
        Match: print_match,
        Mangle: print_mangle,
        VerdictMap: print_vmap,
        Verdict: lambda verdict, scope: print_verdict(verdict),
        ObjectReference: object_text,
        OpaqueStatement: lambda opaque, scope: opaque.text,
    }
)
"""What nft prints for statements, by class."""


class RulePrinter(Scope):
    """Prints the rules of one table: its family decides what goes without saying, `sets` are the table's, for the types
    of maps' data."""

    __slots__ = ()

    def __init__(self, family: TableFamily, style: Style, sets: Mapping[str, Set] | None = None) -> None:
        known = sets or {}
        super().__init__(style, family.value, lambda name: known[name].data_types if name in known else ())

    def rule(self, rule: Rule) -> str:
        """A rule on one line."""
        parts = [self.statement(statement) for statement in rule.statements]
        if rule.comment is not None:
            parts.append(f'comment "{rule.comment}"')
        if self.style.handles and rule.handle is not None:
            parts.append(f"# handle {rule.handle}")
        return " ".join(parts)

    def statement(self, statement: Statement) -> str:
        """A statement."""
        return _TEXTS[type(statement)](statement, self)


def read_rule(cursor: Cursor) -> Rule:
    """A rule up to its end, which is not taken.

    From the first word that kproxy does not know, the rest of the rule is an `OpaqueStatement`; and so it is from a
    statement that nft lists in a way in which it does not take it.

    Raises:
        UnexpectedError: something stands there that nft would not take.
    """
    line = cursor.line_here()
    statements: list[Statement] = []
    comment: str | None = None
    while not cursor.at_stop():
        token = cursor.peek()
        start = cursor.i
        if token == "comment":
            cursor.i += 1
            comment = cursor.string("a comment")
            if not cursor.at_stop():
                cursor.fail("the end of the rule expected after its comment")
            break
        try:
            reader = _READERS.get(token)
            statement = read_expression_statement(cursor) if reader is None else reader(cursor)
            if cursor.peek() == "[":
                cursor.fail("a statement expected")
            if isinstance(statement, Reject) and statement.kind == "tcp reset" and not _is_tcp(statements):
                statements.insert(0, _TCP)
            statements.append(statement)
        except (UnknownNameError, UnexpectedError) as error:
            cursor.i = start
            if isinstance(error, UnexpectedError) and not _is_unreadable(cursor):
                raise
            opaque, comment = _read_opaque(cursor)
            statements.append(opaque)
    if cursor.peek().startswith("# xt_"):
        statements.append(Xt("match", cursor.take()[5:].split()[0]))
    return Rule(tuple(statements), comment, cursor.handle(), line)


_UNREADABLE: Final = re.compile(r'\[invalid type\]|ct expiration\s*(?:[!=<>]=?\s*)?(?:$|[a-z#"])')
"""What nft (1.0.6) prints and does not take: values of a type that it has not worked out (`ct original proto-dst` of
several protocols), and durations of 0, of which it prints nothing."""


def _is_unreadable(cursor: Cursor) -> bool:
    end = cursor.i
    while cursor.tokens[end] not in ("\n", END):
        end += 1
    return _UNREADABLE.search(cursor.source.between(cursor.i, end)) is not None


_TCP: Final = Match(Meta("l4proto"), Operator.EQ, 6)


def _is_tcp(statements: list[Statement]) -> bool:
    """Whether a rule only holds for TCP. Where it does not say so, nft makes it hold for TCP before it resets."""
    for statement in statements:
        if isinstance(statement, (Match, VerdictMap)):
            left = statement.left if isinstance(statement, Match) else statement.key
            parts = left.parts if isinstance(left, Concat) else (left.left if isinstance(left, Binary) else left,)
            if any(isinstance(part, Payload) and part.protocol == "tcp" for part in parts):
                return True
            if left in (Meta("l4proto"), Payload("ip", "protocol"), Payload("ip6", "nexthdr")):
                return True
    return False


def _read_opaque(cursor: Cursor) -> tuple[OpaqueStatement, str | None]:
    """The rest of the rule as it stands, and the comment at its end."""
    tokens, start = cursor.tokens, cursor.i
    text, stop, comment = cursor.rest(), cursor.i, None
    if stop - start > 2 and tokens[stop - 2] == "comment" and tokens[stop - 1][:1] == '"':
        comment = tokens[stop - 1][1:-1]
        text = cursor.source.between(start, stop - 2)
    return OpaqueStatement(tokens[start], text), comment
