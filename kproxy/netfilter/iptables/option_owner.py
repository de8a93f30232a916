"""Whose word is it: the layout of a rule's command line.

iptables takes options in any order. Each belongs to the match or target that was loaded last among those that know it;
failing that, to the protocol's own match, which is then loaded (`-p tcp --dport 80`). kproxy does not know the options
of opaque extensions, so it takes every long option after one, up to the next `-m`, `-j` or `-g`, for its own, which is
what iptables-save means. An option that nothing knows makes the extension loaded last opaque.

This depends only on the option words, on the names of extensions and on the protocol, not on the other words. So it is
worked out once for all lines of the same shape: `shape_of` blanks the words that cannot matter, and `lay_out` turns a
line into indexes of words, which then serve for every line of that shape. Options may not be abbreviated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, Final

from kproxy.netfilter.family import PROTOCOL_NUMBERS, VERDICTS, Family
from kproxy.netfilter.iptables.codec import parse_protocol
from kproxy.netfilter.iptables.lexer import unquote
from kproxy.netfilter.iptables.matches import MATCHES, PROTOCOL_MATCHES
from kproxy.netfilter.iptables.option import Extension, Option
from kproxy.netfilter.iptables.targets import OPAQUE_TARGETS, TARGETS

_HEAD_OPTIONS: Final = {
    "-s": "source", "--source": "source", "--src": "source",
    "-d": "destination", "--destination": "destination", "--dst": "destination",
    "-i": "in_interface", "--in-interface": "in_interface",
    "-o": "out_interface", "--out-interface": "out_interface",
    "-p": "protocol", "--protocol": "protocol", "--proto": "protocol",
}  # fmt: skip
_FLAGS: Final = {"-m": "-m", "--match": "-m", "-j": "-j", "--jump": "-j", "-g": "-g", "--goto": "-g"}
_FRAGMENT: Final = frozenset({"-f", "--fragment", "--fragments"})

_NAMES: Final = (
    frozenset(MATCHES)
    | frozenset(PROTOCOL_MATCHES.values())
    | frozenset(TARGETS)
    | OPAQUE_TARGETS
    | VERDICTS
    | frozenset(PROTOCOL_NUMBERS)
)
"""Words that matter to the layout although they are not options."""


@dataclass(frozen=True, slots=True)
class OptionSpan:
    """An option of a typed match or target: its row, whether `!` stood before it, and where its arguments begin and end
    in the part's own words."""

    row: Option
    negated: bool
    first: int
    stop: int


@dataclass(slots=True)
class Part:
    """A match or target: `words` are the indexes of its words in the line, the name's first (-1: the match was loaded
    by itself, and `name` says which). `name` is None if it does not matter: for a chain. `opaque` parts are not read by
    their `options`. `known` is what a reader has read of the part by its words."""

    flag: str
    name: str | None
    cls: type[Extension] | None
    words: list[int]
    options: list[OptionSpan] = field(default_factory=list)
    opaque: bool = False
    known: dict[tuple[str, ...], Any] = field(default_factory=dict)
    pick: Callable[[Sequence[str]], tuple[str, ...]] = tuple
    """Takes this part's words, the name included, out of a line of the layout's shape."""

    def finish(self) -> None:
        """Make `pick`, once all words are there."""
        words = self.words
        if words[0] < 0:
            name, rest = self.name or "", words[1:]
            self.pick = lambda raw: (name, *[raw[index] for index in rest])
        elif len(words) == 1:
            self.pick = lambda raw: (raw[words[0]],)
        else:
            self.pick = itemgetter(*words)


@dataclass(slots=True)
class Layout:
    """Where everything stands in lines of one shape. `head` maps the fields of the fixed part to the index of their
    value and whether it is negated. `general` is False if words that the shape does not hold mattered too, so that the
    layout is good for this line only."""

    head: dict[str, tuple[int, bool]] = field(default_factory=dict)
    fragment: bool | None = None
    parts: list[Part] = field(default_factory=list)
    general: bool = True

    def only_part(self) -> Part | None:
        """The part, if there is one and nothing else."""
        alone = len(self.parts) == 1 and not self.head and self.fragment is None
        return self.parts[0] if alone else None


def shape_of(raw: Sequence[str]) -> tuple[str | None, ...]:
    """The words that decide the layout, with None for the others. Words from `split_words` are never empty."""
    return tuple([word if word[0] in "-!" or word in _NAMES or word[:2] in _QUOTED else None for word in raw])


_QUOTED: Final = frozenset({'"-', '"!'})


def lay_out(raw: Sequence[str], family: Family) -> Layout:
    """Work out the layout of a line from `split_words`.

    Raises:
        ValueError: iptables would refuse the line; the message says what was expected.
    """
    layout = Layout()
    index, count, negated = 0, len(raw), False
    while index < count:
        word = unquote(raw[index])
        index += 1
        if word == "!":
            if negated:
                raise ValueError("an option expected after !")
            negated = True
            continue
        field = _HEAD_OPTIONS.get(word)
        if word[:2] == "--" and word not in _FLAGS and layout.parts and layout.parts[-1].opaque:
            index = _option(layout, raw, index, negated)
        elif field is not None or word in _FLAGS:
            if index == count:
                raise ValueError(f"a value expected after {word}")
            if field in layout.head:
                raise ValueError(f"{word} only once expected")
            if field is not None:
                layout.head[field] = (index, negated)
            elif negated:
                raise ValueError(f"no ! expected before {word}")
            else:
                _load(layout, _FLAGS[word], raw, index)
            index += 1
        elif word in _FRAGMENT:
            if family is Family.IPV6 or layout.fragment is not None:
                raise ValueError("-f only once expected, and only in IPv4")
            layout.fragment = not negated
        else:
            index = _option(layout, raw, index, negated)
        negated = False
    if negated:
        raise ValueError("an option expected after !")
    for part in layout.parts:
        part.finish()
    return layout


def _load(layout: Layout, flag: str, raw: Sequence[str], index: int) -> None:
    name = unquote(raw[index])
    if not name or name.startswith("-") or not name.isprintable() or " " in name:
        raise ValueError(f"a name expected after {flag}, not {name!r}")
    if raw[index] != name and name in _NAMES:
        layout.general = False  # a name in quotes, of which the shape knows nothing
    cls: type[Extension] | None
    if flag == "-m":
        cls = MATCHES.get(name)
        layout.parts.append(Part("-m", name, cls, [index], opaque=cls is None))
        return
    if any(part.flag != "-m" for part in layout.parts):
        raise ValueError("only one of -j and -g expected, once")
    cls = TARGETS.get(name)
    if flag == "-g" and (cls is not None or name in VERDICTS or name in OPAQUE_TARGETS):
        raise ValueError(f"a chain expected after -g, not {name}")
    known = cls is not None or name in VERDICTS or name in OPAQUE_TARGETS
    layout.parts.append(Part(flag, name if known else None, cls, [index], opaque=name in OPAQUE_TARGETS))


def _option(layout: Layout, raw: Sequence[str], index: int, negated: bool) -> int:
    """Give the option before `index`, and its arguments, to its owner; return the index after them."""
    word = unquote(raw[index - 1])
    if len(word) < 3 or not word.startswith("--"):
        return _stray(layout, raw, index, negated)
    owner, row = _owner(layout, raw, word)
    stop = index
    if row is None:
        while stop < len(raw) and not _is_option(raw[stop]):
            stop += 1
    else:
        stop += row.arity
        if stop > len(raw):
            raise ValueError(f"{row.arity} argument(s) expected after {word}")
        if any(known.row.field == row.field for known in owner.options):
            raise ValueError(f"{word}: only one of its kind expected")
        first = len(owner.words) + negated + 1
        owner.options.append(OptionSpan(row, negated, first, first + row.arity))
    if negated:
        owner.words.append(index - 2)
    owner.words += range(index - 1, stop)
    return stop


def _owner(layout: Layout, raw: Sequence[str], option: str) -> tuple[Part, Option | None]:
    parts = layout.parts
    if parts and parts[-1].opaque:
        return parts[-1], None
    for part in reversed(parts):
        row = None if part.cls is None else part.cls.options().get(option)
        if row is not None:
            return part, row
    name = _protocol_match(layout, raw)
    if name is not None and not any(part.name == name for part in parts):
        cls = MATCHES.get(name)
        row = None if cls is None else cls.options().get(option)
        if row is not None or cls is None:
            parts.append(Part("-m", name, cls, [-1], opaque=cls is None))
            return parts[-1], row
    for part in reversed(parts):
        # Verdicts and `-g` have none. What stands after `-j` is a target that nobody has heard of if options follow it.
        if part.flag != "-g" and part.name not in VERDICTS:
            part.opaque = True
            return part, None
    raise ValueError(f"a known option expected, not {option}")


def _protocol_match(layout: Layout, raw: Sequence[str]) -> str | None:
    """The name of the match that belongs to the line's protocol so far."""
    index, negated = layout.head.get("protocol", (None, False))
    if index is None or negated:
        return None
    if raw[index] not in PROTOCOL_NUMBERS:
        layout.general = False  # a number, capitals or quotes: the shape does not hold them
    return PROTOCOL_MATCHES.get(parse_protocol(unquote(raw[index])))


def _stray(layout: Layout, raw: Sequence[str], index: int, negated: bool) -> int:
    """A word that is neither an option nor an argument: part of a name that iptables printed without quotes."""
    word = raw[index - 1]
    last = layout.parts[-1] if layout.parts else None
    if last is not None and last.options and not negated and not word.startswith("-"):
        option = last.options[-1]
        if option.row.loose and last.words[-1] == index - 2:
            last.words.append(index - 1)
            last.options[-1] = replace(option, stop=option.stop + 1)
            return index
    raise ValueError(f"an option expected, not {word}")


def _is_option(raw: str) -> bool:
    return raw == "!" or (len(raw) > 1 and raw[0] == "-" and not raw[1].isdigit())
