"""Golden packets: what must become of packets, written by hand, and how a trace differs from it.

`read_expectations` reads the content of a packets.yaml (docs/scenarios.md describes it). Chances are what somebody
promises, 1/N say; the kernel compares 31 random bits with a rounded probability, so that the exact chance of a rule set
differs a little: `TOLERANCE` allows for a few such roundings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final, NamedTuple, NoReturn

from kproxy.dataplane.model.errors import DataplaneError
from kproxy.dataplane.model.packet import format_endpoint, parse_endpoint
from kproxy.dataplane.model.verdict import ACCEPT, DROP, INDETERMINATE, REJECT
from kproxy.dataplane.query.report import Report
from kproxy.dataplane.query.spec import PacketError, Question, read_question
from kproxy.words import chance_words

TOLERANCE: Final = Fraction(1, 1_000_000)
"""What Kubernetes' chances and the kernel's may differ by: less than a millionth, for any chain of up to 2000 rules."""

_FIELDS: Final = (
    "name", "node", "from", "in", "origin", "to", "proto", "mark", "ctstate", "recent", "expect", "expectNftables",
)  # fmt: skip
_QUESTION: Final = {"name": "name", "from": "src", "to": "dst", **{name: name for name in (
    "in", "origin", "proto", "mark", "ctstate", "recent")}}  # fmt: skip
_REQUIRED: Final = ("name", "from", "to", "proto", "expect")
_OUTCOME: Final = ("verdict", "to", "chance", "masquerade")


class ExpectationError(DataplaneError):
    """Golden packets cannot be used. `path` is that of the field at fault: a sequence of names and places."""

    def __init__(self, path: Sequence[str | int], expected: str) -> None:
        text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
        super().__init__(f"{text}: {expected}" if text else expected)
        self.path = tuple(path)
        self.field = text
        self.expected = expected


class Expected(NamedTuple):
    """One expected outcome; `masquerade` None: it does not matter."""

    verdict: str
    to: str
    masquerade: bool | None
    chance: Fraction

    def __str__(self) -> str:
        rewritten = {None: "", True: ", masquerade", False: ", no masquerade"}[self.masquerade]
        chance = self.chance
        shown = chance_words(chance)
        about = "" if chance.denominator <= 1000 or shown.startswith("about") else f" (about {float(chance):.7f})"
        return f"{self.verdict} to {self.to}{rewritten}, chance {shown}{about}"


@dataclass(frozen=True, slots=True)
class Expectation:
    """One golden packet; `node` is empty if it is the only one's. `nftables` are the outcomes in kube-proxy's nftables
    mode, `outcomes` those in iptables mode."""

    name: str
    node: str
    question: Question
    outcomes: tuple[Expected, ...]
    nftables: tuple[Expected, ...]

    def in_nftables_mode(self) -> Expectation:
        """The same packet with the outcomes of nftables mode."""
        return replace(self, outcomes=self.nftables)


def read_expectations(document: object) -> tuple[Expectation, ...]:
    """Read a decoded packets.yaml.

    Raises:
        ExpectationError: it is malformed.
    """
    root = _mapping((), document, ("packets",), ("packets",))
    return tuple(_packet(("packets", index), item) for index, item in enumerate(_list(("packets",), root["packets"])))


_Path = tuple[str | int, ...]


def _fail(path: _Path, expected: str) -> NoReturn:
    raise ExpectationError(path, expected)


def _mapping(path: _Path, value: object, known: Sequence[str], required: Sequence[str]) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        _fail(path, "a mapping expected")
    for field in value:
        if field not in known:
            _fail((*path, str(field)), f"unknown field (known: {', '.join(known)})")
    for field in required:
        if value.get(field) is None:
            _fail((*path, field), "this field is required")
    return value


def _list(path: _Path, value: object) -> Sequence[object]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        _fail(path, "a list with at least one item expected")
    return value


def _packet(path: _Path, value: object) -> Expectation:
    fields = _mapping(path, value, _FIELDS, _REQUIRED)
    for field in ("name", "node"):
        if not isinstance(fields.get(field, ""), str):
            _fail((*path, field), "a text expected")
    if ("in" in fields) == ("origin" in fields):
        _fail(path, "either `in` or `origin: local` expected")
    try:
        question = read_question({_QUESTION[name]: item for name, item in fields.items() if name in _QUESTION})
    except PacketError as error:
        name = {"src": "from", "dst": "to"}.get(error.field, error.field)
        where = (*path, name) if name in _FIELDS else path
        _fail(where, error.expected)
    wanted = _outcomes((*path, "expect"), fields["expect"])
    given = fields.get("expectNftables")
    nftables = wanted if given is None else _outcomes((*path, "expectNftables"), given)
    return Expectation(str(fields["name"]), str(fields.get("node") or ""), question, wanted, nftables)


def _outcomes(path: _Path, value: object) -> tuple[Expected, ...]:
    wanted = tuple(_outcome((*path, index), item) for index, item in enumerate(_list(path, value)))
    total = sum((item.chance for item in wanted), Fraction(0))
    if total != 1:
        _fail(path, f"chances that sum to 1 expected, not to {total}")
    if len({item[:3] for item in wanted}) != len(wanted):
        _fail(path, "each outcome only once expected")
    return wanted


def _outcome(path: _Path, value: object) -> Expected:
    fields = _mapping(path, value, _OUTCOME, ("verdict", "to", "chance"))
    verdict, to, masquerade = fields["verdict"], fields["to"], fields.get("masquerade")
    if verdict not in (ACCEPT, DROP, REJECT):
        _fail((*path, "verdict"), f"{ACCEPT}, {DROP} or {REJECT} expected, not {verdict!r}")
    if not isinstance(to, str):
        _fail((*path, "to"), f"IP or IP:PORT expected, not {to!r}")
    try:
        to = format_endpoint(*parse_endpoint(to))
    except DataplaneError as error:
        _fail((*path, "to"), str(error))
    if verdict == ACCEPT and not isinstance(masquerade, bool):
        _fail((*path, "masquerade"), "true or false expected for an accepted packet")
    if verdict != ACCEPT and masquerade is not None:
        _fail((*path, "masquerade"), f"only an accepted packet has it, and this one's verdict is {verdict}")
    chance = _chance((*path, "chance"), fields["chance"])
    return Expected(str(verdict), to, bool(masquerade) if verdict == ACCEPT else None, chance)


def _chance(path: _Path, value: object) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        _fail(path, f"a chance expected, such as 1, 1/3 or 0.5, not {value!r}")
    try:
        chance = Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        _fail(path, f"a chance expected, such as 1, 1/3 or 0.5, not {value!r}")
    if not 0 < chance <= 1:
        _fail(path, f"a chance above 0 and up to 1 expected, not {value!r}")
    return chance


def compare_report(expectation: Expectation, report: Report) -> list[str]:
    """What differs, a line each, beginning with "- " (expected, not so) or "+ " (so, not expected); empty: nothing."""
    actual: dict[tuple[str, str, bool | None], Fraction] = {}
    lines = []
    for reported in report.outcomes:
        item = reported.outcome
        key = item.verdict, item.dst, item.masquerade if item.verdict == ACCEPT else None
        if item.verdict == INDETERMINATE:
            lines.append(f"+ {Expected(*key, item.probability)}: {'; '.join(item.reasons)}")
        else:
            actual[key] = actual.get(key, Fraction(0)) + item.probability
    for wanted in expectation.outcomes:
        found = actual.pop(wanted[:3], None)
        if found is None or abs(found - wanted.chance) > TOLERANCE:
            lines.append(f"- {wanted}")
            if found is not None:
                lines.append(f"+ {Expected(*wanted[:3], found)}")
    lines += [f"+ {Expected(*key, chance)}" for key, chance in actual.items()]
    return sorted(lines, key=lambda line: line[0] == "+")
