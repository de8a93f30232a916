"""Variables of a script: `define NAME = VALUE`, `$NAME`, `redefine`, `undefine`; and `include`, which is refused.

A variable stands for the tokens of its value, which are put in before anything else is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kproxy.netfilter.nftables.cursor import UnexpectedError
from kproxy.netfilter.nftables.lexer import END, LOOKAHEAD, Source

_MAX_TOKENS: Final = 5_000_000
"""More than any rule set needs: definitions that double one another stop here."""


def substitute(source: Source) -> None:
    """Put the values of variables into a source's tokens.

    Raises:
        UnexpectedError: a variable is not defined or a definition is not complete, or the text includes a file.
    """
    tokens = source.tokens
    if "$" not in source.text and "define" not in source.text and "include" not in source.text:
        return
    out: list[str] = []
    positions: list[int] = []
    known: dict[str, Sequence[str]] = {}
    index = 0
    depth_start = True
    while (token := tokens[index]) != END:
        if depth_start and token == "include":
            raise UnexpectedError("include is not followed: give the files' rules in one text", index)
        if depth_start and token in ("define", "redefine"):
            index = _define(tokens, index, known)
        elif depth_start and token == "undefine":
            known.pop(tokens[index + 1], None)
            index += 2
        elif token[0] == "$" and len(token) > 1:
            value = _value_of(token, index, known)
            out += value
            positions += [index] * len(value)
            index += 1
            depth_start = False
        else:
            out.append(token)
            positions.append(index)
            depth_start = token in ("\n", ";", "{", "}")
            index += 1
        if len(out) > _MAX_TOKENS:
            raise UnexpectedError("fewer values expected from the variables", index)
    out += [END] * LOOKAHEAD
    positions += [index] * LOOKAHEAD
    source.tokens = out
    source.positions = positions


def _value_of(token: str, index: int, known: dict[str, Sequence[str]]) -> Sequence[str]:
    if token[1:] not in known:
        raise UnexpectedError(f"the variable {token[1:]} is not defined", index)
    return known[token[1:]]


def _define(tokens: Sequence[str], index: int, known: dict[str, Sequence[str]]) -> int:
    """Remember a definition; return the index after it."""
    name = tokens[index + 1]
    if not name[:1].isalpha() and name[:1] != "_":
        raise UnexpectedError("the name of a variable expected", index + 1)
    if tokens[index + 2] != "=":
        raise UnexpectedError("= expected", index + 2)
    value: list[str] = []
    index += 3
    depth = 0
    while (token := tokens[index]) != END and (depth or token not in ("\n", ";")):
        if token[0] == "$" and len(token) > 1:
            value += _value_of(token, index, known)
            if len(value) > _MAX_TOKENS:
                raise UnexpectedError("fewer values expected from the variables", index)
        elif token != "\n":
            value.append(token)
        depth += (token == "{") - (token == "}")
        index += 1
    if not value or depth:
        raise UnexpectedError("a value expected" if not depth else "a closing } expected", index)
    known[name] = tuple(value)
    return index
