"""Reading rules: a dispatch on each statement's first word; what is no statement by name starts with an expression."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from kproxy.netfilter.nftables.constant import UnknownNameError, atom_reader
from kproxy.netfilter.nftables.datatype import DATATYPES
from kproxy.netfilter.nftables.expression import (
    AnonymousMap,
    Binary,
    Concat,
    MapLookup,
    Meta,
    Payload,
    SetReference,
)
from kproxy.netfilter.nftables.lexer import END
from kproxy.netfilter.nftables.objects import OBJECT_WORDS
from kproxy.netfilter.nftables.reader.cursor import Cursor, UnexpectedError
from kproxy.netfilter.nftables.reader.elements import read_elements, read_verdict, take_duration
from kproxy.netfilter.nftables.reader.expressions import (
    read_argument,
    read_expression,
    read_key,
)
from kproxy.netfilter.nftables.reader.matches import read_expression_statement
from kproxy.netfilter.nftables.reader.stateful import (
    STATEFUL,
    read_counter,
    read_ct_count,
    read_last,
    read_limit,
    read_quota,
)
from kproxy.netfilter.nftables.reader.translation import read_dup, read_fwd, read_nat, read_queue, read_tproxy
from kproxy.netfilter.nftables.ruleset import Rule
from kproxy.netfilter.nftables.statement import (
    DEFAULT_REJECTS,
    FlowAdd,
    Log,
    Match,
    Notrack,
    ObjectReference,
    OpaqueStatement,
    Operator,
    Reject,
    ResetOption,
    SetUpdate,
    Statement,
    Synproxy,
    VerdictMap,
    Xt,
)
from kproxy.netfilter.nftables.typeof import types_of

_LOG_LEVELS: Final = frozenset({"emerg", "alert", "crit", "err", "warn", "notice", "info", "debug", "audit"})
_LOG_FLAGS: Final = {"tcp": ("sequence", "options"), "ip": ("options",)}
ALL_LOG_FLAGS: Final = frozenset({"tcp sequence", "tcp options", "ip options", "skuid", "ether"})


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
            reader = _STATEMENTS.get(token)
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
    start, depth = cursor.i, 0
    tokens = cursor.tokens
    while (token := tokens[cursor.i]) != END:
        if depth == 0 and cursor.at_stop():
            break
        depth += (token == "{") - (token == "}")
        cursor.i += 1
    if depth:
        cursor.fail("a closing } expected")
    stop, comment = cursor.i, None
    if stop - start > 2 and tokens[stop - 2] == "comment" and tokens[stop - 1][:1] == '"':
        comment = tokens[stop - 1][1:-1]
        stop -= 2
    return OpaqueStatement(tokens[start], cursor.source.between(start, stop)), comment


def _object_or(kind: str, reader: Callable[[Cursor], Statement]) -> Callable[[Cursor], Statement]:
    """A reader of `KIND name "x"`, or else of the statement itself."""

    def read(cursor: Cursor) -> Statement:
        if cursor.tokens[cursor.i + 1] != "name":
            return reader(cursor)
        cursor.i += 2
        return ObjectReference(kind, _read_object_name(cursor))

    return read


def _read_object_name(cursor: Cursor) -> str | MapLookup:
    token = cursor.peek()
    following = cursor.tokens[cursor.i + 1]
    if token[:1] == '"' or following in ("\n", ";", "}", END) or following[0] == "#":
        return cursor.name("the name of an object")
    index = cursor.i
    try:
        key = read_key(cursor)
    except UnknownNameError:
        cursor.i = index
        return cursor.name("the name of an object")
    if not cursor.accept("map"):
        cursor.fail("map expected")
    name = cursor.set_reference()
    if name is not None:
        return MapLookup(key, SetReference(name))
    cursor.expect("{")
    types = types_of(key)
    return MapLookup(key, AnonymousMap(read_elements(cursor, types, objects=True), types))


def _read_ct(cursor: Cursor) -> Statement:
    key = cursor.tokens[cursor.i + 1]
    following = cursor.tokens[cursor.i + 2] if key else END
    if key == "count":
        return read_ct_count(cursor)
    if f"ct {key}" in OBJECT_WORDS and following == "set":
        cursor.i += 3
        return ObjectReference(f"ct {key}", _read_object_name(cursor))
    return read_expression_statement(cursor)


def _read_log(cursor: Cursor) -> Log:
    cursor.i += 1
    prefix = level = group = snaplen = threshold = None
    flags: set[str] = set()
    while True:
        token = cursor.peek()
        if token == "prefix":
            cursor.i += 1
            prefix = cursor.string("a prefix")
        elif token == "level":
            cursor.i += 1
            if cursor.peek() not in _LOG_LEVELS:
                cursor.fail("a log level expected")
            level = cursor.take()
        elif token == "flags":
            cursor.i += 1
            _read_log_flags(cursor, flags)
        elif token == "group":
            cursor.i += 1
            group = cursor.number()
        elif token == "snaplen":
            cursor.i += 1
            snaplen = cursor.number()
        elif token == "queue-threshold":
            cursor.i += 1
            threshold = cursor.number()
        else:
            break
    return Log(prefix, None if level == "warn" else level, frozenset(flags), group, snaplen, threshold)


def _read_log_flags(cursor: Cursor, flags: set[str]) -> None:
    token = cursor.peek()
    if token in _LOG_FLAGS:
        cursor.i += 1
        while cursor.peek() in _LOG_FLAGS[token]:
            flags.add(f"{token} {cursor.take()}")
            if not cursor.accept(","):
                break
    elif token in ("skuid", "ether"):
        cursor.i += 1
        flags.add(token)
    elif token == "all":
        cursor.i += 1
        flags |= ALL_LOG_FLAGS
    else:
        cursor.fail("tcp, ip, skuid, ether or all expected")


def _read_reject(cursor: Cursor) -> Reject:
    cursor.i += 1
    if not cursor.accept("with"):
        return DEFAULT_REJECTS[cursor.family.value]
    kind = cursor.take()
    if kind == "tcp":
        cursor.expect("reset")
        return Reject("tcp reset")
    if kind not in ("icmp", "icmpv6", "icmpx"):
        cursor.fail("tcp reset, icmp, icmpv6 or icmpx expected", cursor.i - 1)
    cursor.accept("type")
    code = atom_reader(DATATYPES[f"{kind}_code"])
    try:
        number = code(cursor.peek())
    except UnknownNameError:
        raise
    except ValueError as error:
        cursor.fail(str(error))
    cursor.i += 1
    return Reject(kind, number)


def _read_set_update(cursor: Cursor) -> Statement:
    operation = cursor.take()
    name = cursor.set_reference()
    if name is None:
        cursor.fail("@ and the name of a set expected")
    cursor.expect("{")
    key = read_expression(cursor)
    timeout, comment, stateful, data = None, None, [], None
    while not cursor.accept("}"):
        token = cursor.peek()
        if token == "timeout":
            cursor.i += 1
            timeout = take_duration(cursor)
        elif token == "comment":
            cursor.i += 1
            comment = cursor.string("a comment")
        elif token in STATEFUL:
            stateful.append(STATEFUL[token](cursor))
        elif token == ":":
            cursor.i += 1
            found = cursor.find_set(name)
            kind = found.data_types[0] if found is not None and found.data_types else DATATYPES["integer"]
            extra = found.data_types[1:] if found is not None else ()
            data = read_argument(cursor, kind, *extra)
        else:
            cursor.fail("a closing } expected")
    return SetUpdate(operation, name, key, data, timeout, tuple(stateful), comment)


def _read_old_set_update(cursor: Cursor) -> Statement:
    """`set update KEY [timeout T] @name`, as nft wrote it before 0.8.1."""
    cursor.i += 1
    operation = cursor.take()
    if operation not in ("add", "update"):
        cursor.fail("add or update expected", cursor.i - 1)
    key = read_expression(cursor)
    timeout = take_duration(cursor) if cursor.accept("timeout") else None
    name = cursor.set_reference()
    if name is None:
        cursor.fail("@ and the name of a set expected")
    return SetUpdate(operation, name, key, None, timeout)


def read_synproxy(cursor: Cursor) -> Synproxy:
    """`synproxy [mss N] [wscale N] [timestamp] [sack-perm]`."""
    cursor.i += 1
    return read_synproxy_body(cursor)


def read_synproxy_body(cursor: Cursor) -> Synproxy:
    """`[mss N] [wscale N] [timestamp] [sack-perm]`, on one line or several."""
    mss = wscale = None
    flags = set()
    while True:
        token = cursor.peek()
        if token == "mss":
            cursor.i += 1
            mss = cursor.number()
        elif token == "wscale":
            cursor.i += 1
            wscale = cursor.number()
        elif token in ("timestamp", "sack-perm"):
            cursor.i += 1
            flags.add(token)
        else:
            return Synproxy(mss, wscale, frozenset(flags))


def _read_flow(cursor: Cursor) -> FlowAdd:
    cursor.i += 1
    if not cursor.accept("offload"):
        cursor.expect("add")
    name = cursor.set_reference()
    if name is None:
        cursor.fail("@ and the name of a flowtable expected")
    return FlowAdd(name)


def _read_reset(cursor: Cursor) -> ResetOption:
    cursor.i += 1
    cursor.expect("tcp")
    cursor.expect("option")
    return ResetOption(cursor.name("a TCP option"))


def _read_xt(cursor: Cursor) -> Xt:
    cursor.i += 1
    kind = cursor.peek()
    if kind not in ("match", "target", "watcher"):
        cursor.fail("match or target expected")
    cursor.i += 1
    return Xt(kind, cursor.name("the name of an extension"))


def _read_notrack(cursor: Cursor) -> Notrack:
    cursor.i += 1
    return Notrack()


_STATEMENTS: Final[Mapping[str, Callable[[Cursor], Statement]]] = MappingProxyType(
    dict.fromkeys(("accept", "drop", "continue", "return", "jump", "goto"), read_verdict)
    | dict.fromkeys(("snat", "dnat", "masquerade", "redirect"), read_nat)
    | dict.fromkeys(("add", "update", "delete"), _read_set_update)
    | {
        "counter": _object_or("counter", read_counter), "quota": _object_or("quota", read_quota),
        "limit": _object_or("limit", read_limit), "synproxy": _object_or("synproxy", read_synproxy),
        "last": read_last, "ct": _read_ct, "log": _read_log, "reject": _read_reject, "queue": read_queue,
        "notrack": _read_notrack, "tproxy": read_tproxy, "dup": read_dup, "fwd": read_fwd, "flow": _read_flow,
        "set": _read_old_set_update, "reset": _read_reset, "xt": _read_xt,
    }
)  # fmt: skip
"""The readers of statements by the first word."""
