"""Reading rules: from text to `Rule`, fast enough for hundreds of thousands.

A `RuleReader` remembers every piece it has read. In a large rule set most pieces (a jump, a protocol match, a comment)
occur many times, so that reading a rule is mostly cutting its line into pieces and looking them up. Equal pieces are
one object, which also keeps memory down.

There are two ways to cut, and they share everything that interprets a piece:

- `_read_saved` knows the order of iptables-save, in which the fixed part comes first and each match's options follow
  its name. One regular expression cuts the line.
- `_read_words` takes the command line in any order, as iptables-restore does, and works by the `Layout` of
  `option_owner`, one of which serves for all lines of the same shape.

A reader that keeps spellings is for dumps: it tries the order of iptables-save first, and a rule that would not be
printed exactly as it was written keeps its text. A reader that does not is for restore input.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from kproxy.netfilter.address import Network
from kproxy.netfilter.family import VERDICTS, Family
from kproxy.netfilter.iptables.codec import INTERFACE, parse_protocol
from kproxy.netfilter.iptables.lexer import split_words, unquote
from kproxy.netfilter.iptables.matches import CommentMatch, Match, OpaqueMatch
from kproxy.netfilter.iptables.option import Extension, Negatable, UnsupportedError
from kproxy.netfilter.iptables.option_owner import Layout, Part, lay_out, shape_of
from kproxy.netfilter.iptables.rule import Counters, Head, Rule
from kproxy.netfilter.iptables.targets import OPAQUE_TARGETS, TARGETS, DnatTarget, Jump, OpaqueTarget, Target, Verdict

# A match or a target of an iptables-save line: `-m`, `-j` or `-g` and everything up to the next of them, where words
# in quotes do not count. Two blanks in a row may stand inside (`--nfacct-name  NAME`).
_PIECE: Final = re.compile(r'-[mjg] (?:[^" ]+|"(?:[^"\\]|\\.)*"| (?!-[mjg] ))+')

_COMMENT: Final = "-m comment --comment "
_DNAT: Final = "-j DNAT --to-destination "
_CHAIN_NAME: Final = re.compile(r"[0-9A-Za-z_][-0-9A-Za-z_]*")
_NO_CHAINS: Final = frozenset(TARGETS) | OPAQUE_TARGETS | VERDICTS

_NO_HEAD: Final = Head()


class RuleReader:
    """Reads rules of one family. Not for use by two threads at once."""

    def __init__(self, family: Family, *, keep_spelling: bool = False) -> None:
        self.family = family
        self.keep_spelling = keep_spelling
        self._heads: dict[str, Head] = {"": _NO_HEAD}
        self._pieces: dict[str, Match | Target] = {}
        self._layouts: dict[tuple[str | None, ...], Layout] = {}
        self._parts: dict[tuple[str, str | None], dict[tuple[str, ...], Any]] = {}
        self._values: tuple[dict[str, dict[str, Any]], ...] = (defaultdict(dict), defaultdict(dict))

    def read(self, text: str, counters: Counters | None = None) -> Rule:
        """Read one rule: what follows `-A CHAIN`.

        Raises:
            ValueError: the text is not a rule; the message says what was expected.
        """
        if not self.keep_spelling:
            return self._read_words(split_words(text), counters)
        rule = self._read_saved(text, counters)
        if rule is not None:
            return rule
        rule = self._read_words(split_words(text), counters)
        if rule.spec() != text:
            return Rule(*rule.head, rule.matches, rule.target, rule.counters, text)
        return rule

    # iptables-save order

    def _read_saved(self, text: str, counters: Counters | None) -> Rule | None:
        """Read a rule in exactly the form in which it would be printed; None if it is not in that form."""
        found: list[str] = _PIECE.findall(text)
        if not found:
            return None
        tail = " ".join(found)
        cut = len(text) - len(tail)
        if not text.endswith(tail) or (cut and text[cut - 1] != " "):
            return None
        head_text = text[: cut - 1] if cut else ""
        pieces = self._pieces
        parts: list[Any] = []
        try:
            head = self._heads.get(head_text) or self._saved_head(head_text)
            for piece in found:
                parts.append(pieces.get(piece) or self._saved_piece(piece))
        except ValueError:
            return None
        target = None if piece[1] == "m" else parts.pop()
        for piece in found[: len(parts)]:
            if piece[1] != "m":
                return None
        return Rule(*head, tuple(parts), target, counters)

    def _saved_head(self, text: str) -> Head:
        if text.startswith("-s ") and " " not in text[3:]:  # kube-proxy has one such head per endpoint
            network = Network.parse(text[3:], self.family)
            if network.mask and str(network) == text[3:]:
                head = self._heads[text] = Head(Negatable(network))
                return head
        raw = split_words(text)
        layout = self._layout(raw)
        head = self._head(layout, raw)
        if layout.parts or head.text() != text:
            raise ValueError("the fixed part of a rule expected")
        self._heads[text] = head
        return head

    def _saved_piece(self, piece: str) -> Match | Target:
        built = self._frequent_piece(piece)
        if built is None:
            raw = split_words(piece)
            part = self._layout(raw).only_part()
            if part is None:
                raise ValueError("one match or target expected")
            built = self._build(part, part.pick(raw))
            if built.to_save() != piece:
                built = _exact_opaque(piece, built)
        self._pieces[piece] = built
        return built

    def _frequent_piece(self, piece: str) -> Match | Target | None:
        """Shortcuts for what makes up most of a large dump; None for everything else."""
        if piece.startswith(_COMMENT):
            return CommentMatch.read_saved(piece[len(_COMMENT) :])
        if piece.startswith("-j "):
            if _CHAIN_NAME.fullmatch(piece, 3):
                return None if piece[3:] in _NO_CHAINS else Jump(piece[3:])
            if piece.startswith(_DNAT):
                return DnatTarget.read_saved(piece[len(_DNAT) :], self.family)
        return None

    # any order

    def _layout(self, raw: list[str]) -> Layout:
        shape = shape_of(raw)
        layout = self._layouts.get(shape)
        if layout is None:
            layout = lay_out(raw, self.family)
            for part in layout.parts:
                part.known = self._parts.setdefault((part.flag, part.name), part.known)
            if layout.general:
                self._layouts[shape] = layout
        return layout

    def _read_words(self, raw: list[str], counters: Counters | None) -> Rule:
        layout = self._layout(raw)
        matches: list[Any] = []
        target: Any = None
        for part in layout.parts:
            words = part.pick(raw)
            built = part.known.get(words)
            if built is None:
                built = part.known[words] = self._build(part, words)
            if part.flag == "-m":
                matches.append(built)
            else:
                target = built
        return Rule(*self._head(layout, raw), tuple(matches), target, counters)

    def _head(self, layout: Layout, raw: list[str]) -> Head:
        if not layout.head and layout.fragment is None:
            return _NO_HEAD
        found: dict[str, Any] = {}
        for field, (at, negated) in layout.head.items():
            word, known = raw[at], self._values[negated][field]
            if word not in known:
                known[word] = self._head_value(field, unquote(word), negated)
            found[field] = known[word]
        return Head(**found, fragment=layout.fragment)

    def _head_value(self, field: str, text: str, negated: bool) -> object:
        if field in ("source", "destination"):
            network = Network.parse(text, self.family)
            return None if network.mask == 0 and not negated else Negatable(network, negated)
        if field == "protocol":
            number = parse_protocol(text)
            if number == 0 and negated:
                raise ValueError("a protocol expected after ! -p, not all of them")
            return Negatable(number, negated) if number else None
        name = INTERFACE.parse([text], self.family)
        return None if name == "+" and not negated else Negatable(name, negated)

    def _build(self, part: Part, words: tuple[str, ...]) -> Match | Target:
        cls = part.cls
        if cls is not None and not part.opaque:
            try:
                built = self._build_typed(cls, part, words)
                if isinstance(built, (Match, Target)):
                    return built
            except UnsupportedError:
                pass
        name = unquote(words[0])
        text = " ".join(words[1:])
        if part.flag == "-m":
            return OpaqueMatch(name if cls is None else cls.NAME, text)
        if cls is not None or part.opaque:
            return OpaqueTarget(name, text)
        return Verdict(name) if name in VERDICTS else Jump(name, part.flag == "-g")

    def _build_typed(self, cls: type[Extension], part: Part, words: tuple[str, ...]) -> Extension:
        values: dict[str, Any] = {}
        plain = [unquote(word) for word in words] if '"' in "".join(words) else words
        for span in part.options:
            row = span.row
            arguments: Sequence[str] = plain[span.first : span.stop]
            if row.loose and len(arguments) > 1:
                arguments = (" ".join(arguments),)  # a name that iptables printed without quotes
            values[row.field] = row.read(span.negated, arguments, self.family)
        return cls.build(values, self.family)


def _exact_opaque(piece: str, built: Match | Target) -> Match | Target:
    """The opaque value that keeps a piece's text to the blank, if it was opaque anyway. Raises ValueError."""
    if isinstance(built, (OpaqueMatch, OpaqueTarget)):
        exact = type(built)(built.name, piece[4 + len(built.name) :])
        if exact.to_save() == piece:
            return exact
    raise ValueError("the canonical form expected")
