"""The expressions of admission policies: which there are, what each may name, and whether they compile.

Source: k8s.io/apiserver pkg/admission/plugin/cel (compile.go, composition.go) and
pkg/admission/plugin/policy/validating (typechecking.go), kubernetes/kubernetes
pkg/apis/admissionregistration/validation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from kproxy.apiserver.cel import functions
from kproxy.apiserver.cel.declarations import Declarations
from kproxy.apiserver.cel.engine import DYNAMIC, Checker, CompileError
from kproxy.apiserver.schema.types import Node, named

Json = dict[str, Any]

_SIMPLE: Final = {"BOOL": "bool", "INT": "int", "DOUBLE": "double", "STRING": "string", "BYTES": "bytes"}
_NAMESPACE: Final = "io.k8s.api.core.v1.Namespace"
_NOUNS: Final = {"BOOL": "bool", "STRING": "string", "NULL": "null_type"}


class Expression(NamedTuple):
    """One expression of a policy: where it is, and the types that its result may have (empty: any)."""

    path: str
    text: str
    results: tuple[str, ...]


class Wrong(NamedTuple):
    """An expression that does not compile, and why."""

    path: str
    text: str
    why: str


def expressions(spec: Json) -> Iterator[Expression]:
    """Those of a policy's spec, its variables left out."""
    for index, each in enumerate(spec.get("matchConditions") or ()):
        yield Expression(f"spec.matchConditions[{index}].expression", each.get("expression", ""), ("BOOL",))
    for index, each in enumerate(spec.get("validations") or ()):
        path = f"spec.validations[{index}]"
        yield Expression(f"{path}.expression", each.get("expression", ""), ("BOOL",))
        if each.get("messageExpression"):
            yield Expression(f"{path}.messageExpression", each["messageExpression"], ("STRING",))
    for index, each in enumerate(spec.get("auditAnnotations") or ()):
        path = f"spec.auditAnnotations[{index}].valueExpression"
        yield Expression(path, each.get("valueExpression", ""), ("STRING", "NULL"))


def compile_errors(spec: Json) -> list[Wrong]:
    """What kube-apiserver refuses a policy for: objects are dynamic, so that only names, syntax and types of what
    does not come from them are checked."""
    scope = _Scope(spec, None, None)
    found = list(scope.wrong)
    for each in expressions(spec):
        why = scope.why_not(each)
        if why:
            found.append(Wrong(each.path, each.text, why))
    return found


def type_warnings(spec: Json, node: Node, params: Node | None) -> dict[str, str]:
    """What the types of one kind of objects say of a policy's validations, by the place of the expression."""
    scope = _Scope(spec, node, params)
    found = {}
    for each in expressions(spec):
        if each.path.startswith("spec.validations"):
            why = scope.why_not(each._replace(results=()))
            if why:
                found[each.path] = why
    return found


class _Scope:
    """The variables of one policy's expressions and their types; `wrong` of its own variables."""

    def __init__(self, spec: Json, node: Node | None, params: Node | None) -> None:
        self._declarations = made = Declarations()
        of_object = made.type_of(node) if node is not None else "dyn"
        self._types = {
            "object": of_object,
            "oldObject": of_object,
            "request": _request(made),
            "namespaceObject": made.type_of(named(_NAMESPACE)),
            "authorizer": f"{functions.PACKAGE}.Authorizer",
        }
        if spec.get("paramKind"):
            self._types["params"] = made.type_of(params) if params is not None else "dyn"
        self._before = Checker(made, self._types)
        self._types["variables"] = made.struct("variables", {})
        self._checker = Checker(made, self._types)
        self.wrong: list[Wrong] = []
        known: dict[str, str] = {}
        for index, each in enumerate(spec.get("variables") or ()):
            text = each.get("expression", "")
            try:
                result = self._checker.check(text)
            except CompileError as error:
                self.wrong.append(Wrong(f"spec.variables[{index}].expression", text, f"compilation failed: {error}"))
                result = DYNAMIC
            if not re.fullmatch(r"[A-Za-z_]\w*", each.get("name", ""), re.ASCII):
                continue  # which no expression can name
            of = _SIMPLE.get(result, result if "." in result and "<" not in result else "dyn")
            known[each.get("name", "")] = of
            self._types["variables"] = made.struct("variables", known)
            self._checker = Checker(made, self._types)

    def why_not(self, expression: Expression) -> str:
        """Why an expression does not compile; empty: it does. Conditions come before the policy's own variables."""
        checker = self._before if expression.path.startswith("spec.matchConditions") else self._checker
        results = expression.results
        try:
            result = checker.check(expression.text)
        except CompileError as error:
            return f"compilation failed: {error}" if results else str(error)
        if not results or result in results or result == DYNAMIC:
            return ""
        nouns = [_NOUNS[each] for each in results]
        return f"must evaluate to {nouns[0]}" if len(nouns) == 1 else f"must evaluate to one of [{' '.join(nouns)}]"


def _request(made: Declarations) -> str:
    """The type of `request` (admission.k8s.io/v1 AdmissionRequest without its objects)."""
    kind = made.struct("GroupVersionKind", dict.fromkeys(("group", "version", "kind"), "string"))
    resource = made.struct("GroupVersionResource", dict.fromkeys(("group", "version", "resource"), "string"))
    user = {"username": "string", "uid": "string", "groups": "list<string>", "extra": "dyn"}
    texts = dict.fromkeys(
        ("uid", "subResource", "requestSubResource", "name", "namespace", "operation"), "string"
    )  # fmt: skip
    kinds = {"kind": kind, "requestKind": kind, "resource": resource, "requestResource": resource}
    rest = {"userInfo": made.struct("UserInfo", user), "dryRun": "bool", "options": "dyn"}
    return made.struct("AdmissionRequest", texts | kinds | rest)
