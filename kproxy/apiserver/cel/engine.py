"""CEL expressions: checked against declared types, then evaluated, by cel-expr-python (CEL's own C++ implementation).

The library does two things here, in two kinds of environment. `Checker` compiles an expression with the types of its
variables and says what is wrong in the words that kube-apiserver's cel-go uses, for both have the same grammar and the
same checker. `Program` is the same expression without types, evaluated over plain JSON values. Where the library is not
installed (library.available), expressions are only stored.
docs/decisions/0006 says why this library, and what it does not do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any, Final

from kproxy.apiserver.cel import functions, library
from kproxy.apiserver.cel.declarations import Declarations
from kproxy.apiserver.schema.protobuf.decoder import wire_fields

VARIABLES: Final = (
    "self", "oldSelf", "object", "oldObject", "request", "params", "namespaceObject", "variables", "authorizer",
)  # fmt: skip
"""Every name that Kubernetes binds in one expression or another."""
DYNAMIC: Final = "DYN"
"""The type of what only an evaluation can tell."""
LIMIT: Final = "operation cancelled: actual cost limit exceeded"
"""What an evaluation that goes on for too long says."""
SPENT: Final = "validation failed due to running out of cost budget, no further validation rules will be run"
"""What is said when nothing more is evaluated, since it went on for too long."""
_NUMBER: Final = "(?:int|uint|double)"
_NOT_WRONG: Final = (
    re.compile(rf"found no matching overload for '_(?:<|<=|>|>=)_' applied to '\({_NUMBER}, {_NUMBER}\)'$"),
    re.compile(r"found no matching overload for '(?:indexOf|lastIndexOf)' applied to '\(list\(.*\), .*\)'$"),
)
"""Findings of the library's checker that cel-go as Kubernetes sets it up does not have: it compares numbers of two
types. At run time the library does, too; of a list's indexOf docs/apiserver.md tells."""
_QUALIFIED: Final = re.compile(
    r"(?P<before>ERROR: <input>:\d+:)(?P<column>\d+)(?P<between>: undeclared reference to ')(?P<name>[\w.]+)\.\w+"
    r"(?P<rest>' [^\n]*\n \| [^\n]*\n \| )(?P<dots>\.*)\^"
)
"""An unknown name with a field: cel-go says that the name is unknown, where it begins."""
_FINDING: Final = re.compile(r"^ERROR: <input>:", re.MULTILINE)
_STATUS: Final = re.compile(r"^[A-Z_]+: ")
_SAID: Final = (
    (re.compile(r'^Key not found in map : "?(.*?)"?$'), r"no such key: \1"),
    (re.compile(r"^No matching overloads found : "), "no such overload: "),
    (re.compile(r"^divide by zero$"), "division by zero"),
    (re.compile(r"^modulus by zero$"), "modulus by zero"),
    (re.compile(r"^Index error: index=(-?\d+) size=\d+$"), r"index out of bounds: \1"),
)
"""The library's words for what goes wrong at run time, and cel-go's."""


class CompileError(Exception):
    """An expression that cannot be compiled; the text is the checker's, with the place in the expression."""


class EvaluationError(Exception):
    """An expression without a result: a missing key, a division by zero, a budget that is spent."""

    @property
    def exceeded(self) -> bool:
        """Whether it went on for too long."""
        return str(self).startswith(LIMIT)


@cache
def _config() -> Any:
    names = ("bindings", "optional", "sets", "strings", "two-var-comprehensions")
    return library.cel().NewEnvConfigFromYaml("extensions:\n" + "".join(f"- name: {name}\n" for name in names))


class Checker:
    """Compiles expressions over variables of declared types: names of `Declarations.type_of`."""

    def __init__(self, declarations: Declarations, variables: Mapping[str, str]) -> None:
        cel = library.cel()
        self._environment = cel.NewEnv(
            declarations.pool,
            _config(),
            variables={name: cel.Type(each) for name, each in variables.items()},
            functions=functions.declared(cel),
        )

    def check(self, expression: str) -> str:
        """The type of what the expression gives: BOOL, STRING, DYN...

        Raises:
            CompileError: it does not parse, or its types do not fit.
        """
        try:
            compiled = self._environment.compile(expression)
        except RuntimeError as error:
            found = _findings(str(error))
            if found:
                raise CompileError("\n".join(found)) from error
            return DYNAMIC  # for what was found, cel-go would not find
        return str(compiled.return_type())


def _findings(text: str) -> list[str]:
    """The checker's findings without the library's wrapping, and without those that cel-go would not have."""
    text = _STATUS.sub("", re.sub(r" \[[A-Z_]+\]$", "", text.strip()))
    if not _FINDING.search(text):
        return [text]
    found = ["ERROR: <input>:" + each.rstrip() for each in _FINDING.split(text)[1:]]
    found = [each for each in found if "'*error*'" not in each]
    found = [_QUALIFIED.sub(_first_name, each) for each in found]
    found = [re.sub(r"(undefined field '[^']*') not found in struct '[^']*'", r"\1", each) for each in found]
    return [each for each in found if not any(it.search(each.partition("\n")[0]) for it in _NOT_WRONG)]


def _first_name(found: re.Match[str]) -> str:
    name, start = found["name"].partition(".")[0], int(found["column"]) - len(found["name"])
    dots = "." * max(0, len(found["dots"]) - len(found["name"]))
    return f"{found['before']}{start}{found['between']}{name}{found['rest']}{dots}^"


@cache
def _pool() -> Any:
    return Declarations().pool


@cache
def _runtime() -> Any:
    cel, pool = library.cel(), _pool()
    variables = dict.fromkeys(VARIABLES, cel.Type.DYN)
    return cel.NewEnv(pool, _config(), variables=variables, functions=functions.implemented(cel, pool))


def authorizer() -> Any:
    """The value of the variable `authorizer` (functions.DECIDE)."""
    value = functions.authorizer()
    return functions.message_classes(_pool())[value.kind](value=value.text)


class Bound:
    """Values of variables, converted once for all expressions that are evaluated with them."""

    __slots__ = ("activation",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.activation = _runtime().Activation(dict(values))


class Program:
    """An expression that has been checked. Programs are kept: see `program`."""

    __slots__ = ("_compiled",)

    def __init__(self, expression: str) -> None:
        try:
            self._compiled = _runtime().compile(expression, disable_check=True)
        except RuntimeError as error:
            raise CompileError("\n".join(_findings(str(error)))) from error

    @property
    def tree(self) -> bytes:
        """The expression's tree, a cel.expr.Expr, which the library gives inside an Any inside a ParsedExpr."""
        return _part(_part(bytes(self._compiled.serialize()), 2), 2)

    def evaluate(self, bound: Bound) -> Any:
        """The result as a plain Python value.

        Raises:
            EvaluationError: there is none.
        """
        try:
            result = self._compiled.eval(bound.activation)
            if str(result.type()) != "ERROR":
                return result.plain_value()
            text = str(result.value())
        except RuntimeError as error:
            text = re.sub(r" \[[A-Z_]+\]$", "", str(error).strip())
        raise EvaluationError(_said(text))


def _part(data: bytes, wanted: int) -> bytes:
    return next(value for number, value in wire_fields(data) if number == wanted and isinstance(value, bytes))


def _said(text: str) -> str:
    """An evaluation's failure in cel-go's words where they are known."""
    text = _STATUS.sub("", text)
    if "teration budget exceeded" in text:
        return LIMIT
    for pattern, words in _SAID:
        text = pattern.sub(words, text)
    return text


@lru_cache(4096)
def program(expression: str) -> Program:
    """The program of an expression.

    Raises:
        CompileError: it does not parse, which a checker would have said.
    """
    return Program(expression)
