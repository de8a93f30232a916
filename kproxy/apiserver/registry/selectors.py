"""Label and field selectors: parsed as kube-apiserver parses them, matched against an object's labels and fields."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from kproxy.api.validation.names import check_label_value, check_qualified_name
from kproxy.apiserver.errors import bad_request
from kproxy.informer import Requirement

_TOKEN: Final = re.compile(r"\s*(==|!=|=|<|>|!|\(|\)|,|[^\s=!<>(),]+)")
_OPERATORS: Final = frozenset({"=", "==", "!=", "in", "notin", ">", "<"})
_SYMBOLS: Final = frozenset({"==", "!=", "=", "<", ">", "!", "(", ")", ","})


class _Parser:
    """Recursive descent over the tokens, with the API server's errors."""

    def __init__(self, text: str) -> None:
        self.tokens = _TOKEN.findall(text)
        self.position = 0

    def peek(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self.position += 1
        return token

    def parse(self) -> tuple[Requirement, ...]:
        found: list[Requirement] = []
        while self.peek():
            found.append(self.requirement())
            token = self.take()
            if token == "":
                break
            if token != ",":
                raise bad_request(f"found '{token}', expected: ',' or 'end of string'")
            if self.peek() == "":
                raise bad_request("found '', expected: identifier after ','")
        return tuple(found)

    def requirement(self) -> Requirement:
        if self.peek() == "!":
            self.take()
            return Requirement(self.key(), "absent")
        key = self.key()
        token = self.peek()
        if token in ("", ","):
            return Requirement(key, "exists")
        if token not in _OPERATORS:
            raise bad_request(f"unable to parse requirement: found '{token}', expected: in, notin, =, ==, !=, gt, lt")
        self.take()
        if token in ("in", "notin"):
            return Requirement(key, token, self.values())
        value = "" if self.peek() in ("", ",") else self.take()
        if value in _SYMBOLS:
            raise bad_request(f"unable to parse requirement: found '{value}', expected: identifier")
        for message in check_label_value(value):
            raise bad_request(f'unable to parse requirement: values[0][{key}]: Invalid value: "{value}": {message}')
        if token in (">", "<"):
            if not re.fullmatch(r"[+-]?\d+", value):
                raise bad_request(
                    f'unable to parse requirement: values[0][{key}]: Invalid value: "{value}": '
                    "for 'Gt', 'Lt' operators, the value must be an integer"
                )
            return Requirement(key, token, (value,))
        return Requirement(key, "notin" if token == "!=" else "in", (value,))

    def key(self) -> str:
        key = self.take()
        if key == "" or key in _SYMBOLS:
            raise bad_request(f"found '{key}', expected: !, identifier, or 'end of string'")
        for message in check_qualified_name(key):
            raise bad_request(f'unable to parse requirement: key: Invalid value: "{key}": {message}')
        return key

    def values(self) -> tuple[str, ...]:
        token = self.take()
        if token != "(":
            raise bad_request(f"unable to parse requirement: found '{token}' expected: '('")
        found: list[str] = []
        expect = True
        while (token := self.take()) != ")":
            if token == "":
                raise bad_request("unable to parse requirement: found '', expected: ',' or ')'")
            if token == ",":
                if expect:
                    found.append("")
                expect = True
            elif expect and token not in _SYMBOLS:
                found.append(token)
                expect = False
            else:
                raise bad_request(f"unable to parse requirement: found '{token}', expected: ',', or ')'")
        if expect:
            found.append("")
        for value in found:
            for message in check_label_value(value):
                raise bad_request(f'unable to parse requirement: Invalid value: "{value}": {message}')
        return tuple(found)


_KEPT: Final = 1024
"""Characters of a selector up to which it is kept parsed: many long ones would take gigabytes."""


def parse_label_selector(text: str) -> tuple[Requirement, ...]:
    """The requirements of a label selector; () selects everything.

    Raises:
        StatusError: 400 with the API server's message.
    """
    return _known_labels(text) if len(text) <= _KEPT else _Parser(text).parse()


@lru_cache(4096)
def _known_labels(text: str) -> tuple[Requirement, ...]:
    return _Parser(text).parse()


def parse_field_selector(
    text: str, supported: tuple[str, ...], metadata_only: bool = False
) -> tuple[tuple[str, str, bool], ...]:
    """(field, value, whether it must be equal) for each term of a field selector. `metadata_only`: the kind declares no
    field of its own, so a refusal names what there is (k8s.io/apimachinery DefaultMetaV1FieldSelectorConversion).

    Raises:
        StatusError: 400 for a syntax error or a field that this resource is not selected by.
    """
    return (_known_fields if len(text) <= _KEPT else _fields)(text, supported, metadata_only)


def _fields(text: str, supported: tuple[str, ...], metadata_only: bool) -> tuple[tuple[str, str, bool], ...]:
    terms: list[tuple[str, str, bool]] = []
    for term in re.split(r"(?<!\\),", text):
        if not term.strip():
            continue
        found = re.fullmatch(r"([^=!]*?)(!=|==|=)((?:\\.|[^\\])*)", term)
        if found is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        field, operator, value = found[1].strip(), found[2], re.sub(r"\\([\\,=])", r"\1", found[3])
        if field not in supported:
            if metadata_only:
                known = ", ".join(f'"{name}"' for name in supported)
                raise bad_request(f'"{field}" is not a known field selector: only {known}')
            raise bad_request(f"field label not supported: {field}")
        terms.append((field, value, operator != "!="))
    return tuple(terms)


_known_fields: Final = lru_cache(4096)(_fields)


def matches_fields(terms: tuple[tuple[str, str, bool], ...], fields: Mapping[str, str]) -> bool:
    """Whether an object's fields meet every term; a field it does not have is empty."""
    return all((fields.get(field, "") == value) is wanted for field, value, wanted in terms)
