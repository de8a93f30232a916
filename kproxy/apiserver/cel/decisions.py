"""What one validating admission policy says of one request: match conditions, variables, validations, messages.

Source: k8s.io/apiserver pkg/admission/plugin/policy/validating/validator.go, pkg/admission/plugin/cel/condition.go and
pkg/admission/plugin/webhook/matchconditions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kproxy.apiserver.cel.engine import SPENT, Bound, CompileError, EvaluationError, program
from kproxy.apiserver.cel.values import given_back, message_of

Json = dict[str, Any]


class Denial(NamedTuple):
    """Why a request is denied: a message for the client, and a Status reason."""

    message: str
    reason: str = "Invalid"


class _Failure(NamedTuple):
    """An expression without a result."""

    message: str


def denials(spec: Json, values: Mapping[str, Any]) -> list[Denial]:
    """What a policy's spec has against a request, whose variables have these `values`: none, or one for each validation
    that does not hold. What cannot be evaluated denies, too, if its failurePolicy is Fail."""
    fails = spec.get("failurePolicy") != "Ignore"
    plain = Bound(values)
    matched = [_evaluate(each.get("expression", ""), plain) for each in spec.get("matchConditions") or ()]
    if any(result is False for result in matched):
        return []
    wrong = [result.message for result in matched if isinstance(result, _Failure)]
    if wrong:
        said = wrong[0] if len(wrong) == 1 else f"[{', '.join(wrong)}]"
        return [Denial(said)] if fails else []
    found: list[Denial] = []
    scope = _Scope(spec, values, plain)
    for each in spec.get("validations") or ():
        result = scope.evaluate(each.get("expression", ""))
        if isinstance(result, _Failure):
            found += [Denial(result.message)] if fails else []
        elif result is not True:
            found.append(Denial(_message(each, scope), each.get("reason") or "Invalid"))
    for each in spec.get("auditAnnotations") or ():
        result = scope.evaluate(each.get("valueExpression", ""))
        if isinstance(result, _Failure) and fails:
            found.append(Denial(result.message))
    return found


def _evaluate(text: str, bound: Bound) -> Any:
    try:
        return program(text).evaluate(bound)
    except CompileError as error:  # of a policy that was stored when nothing compiled it
        return _Failure(f"expression '{text}' resulted in error: compilation failed: {error}")
    except EvaluationError as error:
        return _Failure(SPENT if error.exceeded else f"expression '{text}' resulted in error: {error}")


def _message(validation: Json, scope: _Scope) -> str:
    expression = validation.get("messageExpression")
    if expression and (text := message_of(scope.evaluate(expression))):
        return text
    return (validation.get("message") or "").strip() or f"failed expression: {validation['expression'].strip()}"


class _Scope:
    """The values of one request with the policy's own variables, each of which may use those before it. One that fails
    is missing, which only matters to the expressions that come to it."""

    def __init__(self, spec: Json, values: Mapping[str, Any], plain: Bound) -> None:
        self._failed: dict[str, str] = {}
        found: Json = {}
        self._bound = plain
        for each in spec.get("variables") or ():
            name, text = each.get("name", ""), each.get("expression", "")
            if "variables" in text:
                self._bound = Bound({**values, "variables": found})
            result = self.evaluate(text)
            if isinstance(result, _Failure):
                self._failed[name] = result.message.partition(" resulted in error: ")[2] or result.message
            else:
                found[name] = given_back(result)
        if spec.get("variables"):
            self._bound = Bound({**values, "variables": found})

    def evaluate(self, text: str) -> Any:
        """The result, or a _Failure."""
        result = _evaluate(text, self._bound)
        if isinstance(result, _Failure):
            for name, why in self._failed.items():
                if result.message.endswith(f"no such key: {name}") and f"variables.{name}" in text:
                    said = f'composited variable "{name}" fails to evaluate: {why}'
                    return _Failure(f"expression '{text}' resulted in error: {said}")
        return result
