"""Reading rules: from text to `Rule`, fast enough for hundreds of thousands.

A `RuleReader` remembers every piece it has read. In a large rule set most pieces (a jump, a protocol match, a comment)
occur many times, so that reading a rule is mostly cutting its line into pieces and looking them up. Equal pieces are
one object, which also keeps memory down.

There are two ways to cut, and they share everything that interprets a piece:

- `_read_saved` knows the order of iptables-save, in which the fixed part comes first and each match's options follow
  its name. One regular expression cuts the line.
- `_read_words` takes the command line in any order, as iptables-restore does. It hands each option to the match or
  target that owns it: the one loaded last that knows the option; failing that, the protocol's own match, which is then
  loaded (`-p tcp --dport 80`); failing that, the extension loaded last, which thereby becomes opaque.

When a reader is told to keep spellings, a rule that would not be printed exactly as it was written keeps its text.
Options may not be abbreviated.
"""

from __future__ import annotations

import re
from typing import Final

from kproxy.netfilter.address import Network
from kproxy.netfilter.codec import INTERFACE, parse_protocol, parse_uint
from kproxy.netfilter.family import VERDICTS, Family
from kproxy.netfilter.lexer import split_words, unquote
from kproxy.netfilter.matches import MATCHES, PROTOCOL_MATCHES, Match, OpaqueMatch
from kproxy.netfilter.option import Extension, Given, Negatable, UnsupportedError
from kproxy.netfilter.rule import Counters, Head, Rule
from kproxy.netfilter.targets import OPAQUE_TARGETS, TARGETS, Jump, OpaqueTarget, Target, Verdict

# A match or a target of an iptables-save line: `-m`, `-j` or `-g` and everything up to the next of them, where words
# in quotes do not count. Two blanks in a row may stand inside (`--nfacct-name  NAME`).
_PIECE: Final = re.compile(r'-[mjg] (?:[^" ]+|"(?:[^"\\]|\\.)*"| (?!-[mjg] ))+')

_HEAD_OPTIONS: Final = {
    "-s": "source", "--source": "source", "--src": "source",
    "-d": "destination", "--destination": "destination", "--dst": "destination",
    "-i": "in_interface", "--in-interface": "in_interface",
    "-o": "out_interface", "--out-interface": "out_interface",
    "-p": "protocol", "--protocol": "protocol", "--proto": "protocol",
}  # fmt: skip
_FLAGS: Final = {"-m": "-m", "--match": "-m", "-j": "-j", "--jump": "-j", "-g": "-g", "--goto": "-g"}
_FRAGMENT: Final = frozenset({"-f", "--fragment", "--fragments"})
_COUNTERS: Final = frozenset({"-c", "--set-counters"})
_FAMILIES: Final = {"-4": Family.IPV4, "--ipv4": Family.IPV4, "-6": Family.IPV6, "--ipv6": Family.IPV6}
_OTHER_FAMILY: Final = {"icmp6": Family.IPV6, "icmp": Family.IPV4, "ttl": Family.IPV4, "hl": Family.IPV6}


class OtherFamilyError(Exception):
    """The rule is marked, with `-4` or `-6`, as one for the other family; iptables-restore skips it."""


class _Loaded:
    """A match or target while its options are being collected."""

    __slots__ = ("cls", "flag", "name", "opaque", "words")

    def __init__(self, flag: str, name: str, cls: type[Extension] | None) -> None:
        self.flag = flag
        self.name = name
        self.cls = cls
        self.opaque = cls is None
        self.words: list[str] = []

    def arity(self, option: str) -> int | None:
        """How many arguments the option takes, or None if this extension does not know it."""
        row = None if self.cls is None else self.cls.options().get(option)
        return None if row is None else row.arity


class RuleReader:
    """Reads rules of one family. Not for use by two threads at once."""

    def __init__(self, family: Family, *, keep_spelling: bool = False) -> None:
        self.family = family
        self.keep_spelling = keep_spelling
        self._heads: dict[str, Head] = {"": Head()}
        self._pieces: dict[str, Match | Target] = {}
        self._built: dict[tuple[str, ...], Match | Target] = {}
        self._values: dict[tuple[str, str], object] = {}

    def read(self, text: str, counters: Counters | None = None) -> Rule:
        """Read one rule: what follows `-A CHAIN`.

        Raises:
            ValueError: the text is not a rule; the message says what was expected.
            OtherFamilyError: see there.
        """
        rule = self._read_saved(text, counters)
        if rule is not None:
            return rule
        rule = self._read_words(split_words(text), counters)
        if self.keep_spelling and rule.spec() != text:
            return Rule(*rule.head, rule.matches, rule.target, rule.counters, text)
        return rule

    # iptables-save order

    def _read_saved(self, text: str, counters: Counters | None) -> Rule | None:
        """Read a rule in exactly the form in which it would be printed; None if it is not in that form."""
        found: list[str] = _PIECE.findall(text)
        if not found:
            return None if text else Rule(counters=counters)
        tail = " ".join(found)
        before = len(text) - len(tail)
        if before and text[before - 1] != " ":
            return None
        if not text.endswith(tail):
            return None
        pieces = self._pieces
        parts: list[Match | Target] = []
        try:
            head = self._heads.get(text[: before - 1] if before else "") or self._saved_head(text[: before - 1])
            for piece in found:
                parts.append(pieces.get(piece) or self._saved_piece(piece))
        except (ValueError, UnsupportedError):
            return None
        if found[-1][1] == "m":
            matches, target = tuple(parts), None
        else:
            target = parts.pop()
            matches = tuple(parts)
        for part in matches:
            if not isinstance(part, Match):
                return None
        return Rule(*head, matches, target, counters)  # type: ignore[arg-type]

    def _saved_head(self, text: str) -> Head:
        rule = self._read_words(split_words(text), None)
        if rule.matches or rule.target is not None or rule.head.text() != text:
            raise ValueError("the fixed part of a rule expected")
        self._heads[text] = rule.head
        return rule.head

    def _saved_piece(self, piece: str) -> Match | Target:
        rule = self._read_words(split_words(piece), None)
        built = rule.matches[0] if rule.matches else rule.target
        if built is None or len(rule.matches) + (rule.target is not None) != 1 or rule.head != Head():
            raise ValueError("one match or target expected")
        if built.to_save() != piece:
            built = self._opaque_piece(piece, built)
        self._pieces[piece] = built
        return built

    def _opaque_piece(self, piece: str, built: Match | Target) -> Match | Target:
        """The opaque value that keeps a piece's text to the blank, if it was opaque anyway. Raises ValueError."""
        if isinstance(built, OpaqueMatch):
            exact: Match | Target = OpaqueMatch(built.name, piece[4 + len(built.name) :])
        elif isinstance(built, OpaqueTarget):
            exact = OpaqueTarget(built.name, piece[4 + len(built.name) :])
        else:
            raise ValueError("the canonical form expected")
        if exact.to_save() != piece:
            raise ValueError("the canonical form expected")
        return exact

    # any order

    def _read_words(self, raw: list[str], counters: Counters | None) -> Rule:
        head: dict[str, object] = {}
        loaded: list[_Loaded] = []
        place, count, negated = 0, len(raw), False
        while place < count:
            word = raw[place]
            place += 1
            if '"' in word:
                word = unquote(word)
            if word == "!":
                if negated:
                    raise ValueError("an option expected after !")
                negated = True
                continue
            field = _HEAD_OPTIONS.get(word)
            if field is not None:
                if place == count:
                    raise ValueError(f"a value expected after {word}")
                if field in head:
                    raise ValueError(f"{word} only once expected")
                head[field] = self._head_value(field, raw[place], negated)
                place += 1
            elif word in _FLAGS:
                if place == count:
                    raise ValueError(f"a name expected after {word}")
                if negated:
                    raise ValueError(f"no ! expected before {word}")
                self._load(loaded, _FLAGS[word], unquote(raw[place]))
                place += 1
            elif word in _FRAGMENT:
                if self.family is Family.IPV6 or "fragment" in head:
                    raise ValueError("-f only once expected, and only in IPv4")
                head["fragment"] = not negated
            elif word in _COUNTERS:
                counters, place = self._counters(raw, place)
            elif word in _FAMILIES:
                if _FAMILIES[word] is not self.family:
                    raise OtherFamilyError
            else:
                place = self._option(loaded, head, raw, place, negated)
            negated = False
        if negated:
            raise ValueError("an option expected after !")
        return self._assemble(head, loaded, counters)

    def _head_value(self, field: str, raw: str, negated: bool) -> object:
        key = (field, f"!{raw}" if negated else raw)
        if key in self._values:
            return self._values[key]
        text = unquote(raw)
        value: object
        if field in ("source", "destination"):
            network = Network.parse(text, self.family)
            value = None if network.mask == 0 and not negated else Negatable(network, negated)
        elif field == "protocol":
            number = parse_protocol(text)
            if number == 0 and negated:
                raise ValueError("a protocol expected after ! -p, not all of them")
            value = Negatable(number, negated) if number else None
        else:
            name = INTERFACE.parse([text], self.family)
            value = None if name == "+" and not negated else Negatable(name, negated)
        self._values[key] = value
        return value

    def _load(self, loaded: list[_Loaded], flag: str, name: str) -> None:
        if not name or name.startswith("-") or not name.isprintable() or " " in name:
            raise ValueError(f"a name expected after {flag}, not {name!r}")
        cls: type[Extension] | None
        if flag == "-m":
            cls = MATCHES.get(name)
            loaded.append(_Loaded("-m", name if cls is None else cls.NAME, cls))
            return
        if any(item.flag != "-m" for item in loaded):
            raise ValueError("only one of -j and -g expected, once")
        cls = TARGETS.get(name)
        if flag == "-g" and (cls is not None or name in VERDICTS or name in OPAQUE_TARGETS):
            raise ValueError(f"a chain expected after -g, not {name}")
        loaded.append(_Loaded(flag, name, cls))

    @staticmethod
    def _counters(raw: list[str], place: int) -> tuple[Counters, int]:
        numbers = raw[place : place + 2]
        if len(numbers) != 2:
            raise ValueError("packets and bytes expected after -c")
        most = (1 << 64) - 1
        return Counters(parse_uint(numbers[0], most), parse_uint(numbers[1], most)), place + 2

    def _option(
        self, loaded: list[_Loaded], head: dict[str, object], raw: list[str], place: int, negated: bool
    ) -> int:
        """Give the option before `place`, and its arguments, to its owner; return the place after them."""
        word = raw[place - 1]
        if '"' in word:
            word = unquote(word)
        if len(word) < 3 or not word.startswith("--"):
            return self._stray(loaded, raw, place, negated)
        name, equals, value = word.partition("=")
        owner, arity = self._owner(loaded, head, name)
        arguments = [value] if equals else []
        if arity is None:
            while not equals and place < len(raw) and not _is_option(raw[place]):
                arguments.append(raw[place])
                place += 1
        else:
            wanted = arity - len(arguments)
            if wanted < 0 or place + wanted > len(raw):
                raise ValueError(f"{arity} argument(s) expected after {name}")
            arguments += raw[place : place + wanted]
            place += wanted
        if negated:
            owner.words.append("!")
        owner.words.append(name)
        owner.words += arguments
        return place

    def _owner(self, loaded: list[_Loaded], head: dict[str, object], option: str) -> tuple[_Loaded, int | None]:
        for item in reversed(loaded):
            arity = item.arity(option)
            if arity is not None:
                return item, arity
        protocol = head.get("protocol")
        number = protocol.value if isinstance(protocol, Negatable) and not protocol.negated else 0
        name = PROTOCOL_MATCHES.get(number)
        if name is not None and not any(item.name == name for item in loaded):
            cls = MATCHES.get(name)
            item = _Loaded("-m", name, cls)
            arity = item.arity(option)
            if arity is not None or (cls is None and not any(other.opaque for other in loaded)):
                loaded.append(item)
                return item, arity
        for item in reversed(loaded):
            if item.opaque and _takes_options(item):
                return item, None
        for item in reversed(loaded):
            if _takes_options(item):
                item.opaque = True
                return item, None
        raise ValueError(f"a known option expected, not {option}")

    @staticmethod
    def _stray(loaded: list[_Loaded], raw: list[str], place: int, negated: bool) -> int:
        """A word that is neither an option nor an argument: part of a name that iptables printed without quotes."""
        word = raw[place - 1]
        last = loaded[-1] if loaded else None
        if last is not None and last.words and not negated and not word.startswith("-"):
            for back, before in enumerate(reversed(last.words)):
                row = None if last.cls is None else last.cls.options().get(before)
                if row is not None:
                    if back >= 1 and row.loose:
                        last.words[-1] += f" {word}"
                        return place
                    break
        raise ValueError(f"an option expected, not {word}")

    def _assemble(self, head: dict[str, object], loaded: list[_Loaded], counters: Counters | None) -> Rule:
        matches: list[Match] = []
        target: Target | None = None
        for item in loaded:
            key = (item.flag, item.name, *item.words)
            built = self._built.get(key) or self._build(item)
            self._built[key] = built
            if isinstance(built, Match):
                matches.append(built)
            else:
                target = built
        return Rule(**head, matches=tuple(matches), target=target, counters=counters)  # type: ignore[arg-type]

    def _build(self, item: _Loaded) -> Match | Target:
        if item.cls is not None and not item.opaque:
            try:
                built = item.cls.parse(_given(item), self.family)
                if isinstance(built, (Match, Target)):
                    return built
            except UnsupportedError:
                pass
        text = " ".join(item.words)
        if item.flag == "-m":
            return OpaqueMatch(item.name, text)
        if item.cls is not None or item.name in OPAQUE_TARGETS or item.words:
            return OpaqueTarget(item.name, text)
        return Verdict(item.name) if item.name in VERDICTS else Jump(item.name, item.flag == "-g")


def _given(item: _Loaded) -> list[Given]:
    """The collected words of an extension as options with their arguments."""
    given = []
    place, words = 0, item.words
    while place < len(words):
        negated = words[place] == "!"
        place += negated
        name = words[place]
        arity = item.arity(name)
        if arity is None:
            raise UnsupportedError(f"option {name}")
        given.append(Given(name, negated, tuple(map(unquote, words[place + 1 : place + 1 + arity]))))
        place += 1 + arity
    return given


def _is_option(raw: str) -> bool:
    return raw == "!" or (len(raw) > 1 and raw[0] == "-" and not raw[1].isdigit())


def _takes_options(item: _Loaded) -> bool:
    """Whether an unknown option may be this extension's: verdicts have none, and neither has a jump."""
    return item.flag == "-m" or item.cls is not None or (item.flag == "-j" and item.name in OPAQUE_TARGETS)
