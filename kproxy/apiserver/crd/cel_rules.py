"""`x-kubernetes-validations`: the rules in CEL of a CRD's schema, compiled with it and evaluated at each write.

Source: k8s.io/apiextensions-apiserver pkg/apiserver/schema/cel (validation.go, compilation.go) and
pkg/apis/apiextensions/validation. A rule sees the value at its place as `self`, and on an update the value that was
there as `oldSelf`, if the two can be told to be the same (not in lists, but those of type map). What an update leaves
as it was may go on breaking rules: that is only warned of (CRDValidationRatcheting).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import msgspec

from kproxy.api.fielderror import (
    ErrorType,
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from kproxy.apiserver.cel import engine, library
from kproxy.apiserver.cel.cost import MAX_REQUEST, Shape, estimate, identifiers, least_bytes, shape_of
from kproxy.apiserver.cel.declarations import Declarations
from kproxy.apiserver.cel.values import cel_value, message_of
from kproxy.apiserver.crd.structural import compile_structural
from kproxy.apiserver.crd.validation import item_key
from kproxy.apiserver.errors import Json
from kproxy.apiserver.schema.types import Node

RULES: Final = "x-kubernetes-validations"
_REASONS: Final = ("FieldValueRequired", "FieldValueForbidden", "FieldValueInvalid", "FieldValueDuplicate")
_MOST_OF_RULE, _MOST_OF_SCHEMA = 10_000_000, 100_000_000
"""What a rule, and all rules of a schema, may cost by estimate."""
_EVALUATIONS: Final = 100_000
"""Rules that are evaluated for one object; each of them is bounded by the library (10,000 turns of its loops)."""
_HINT: Final = (
    " (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are "
    "declared)"
)
_OLD: Final = "cel.bind(oldSelf, 'old' in variables ? optional.of(variables.old) : optional.none(), (\n{}\n))"
"""How a rule gets an oldSelf that may be absent."""


# --- what a rule may say ---


def cel_errors(schema: Json, path: str) -> list[FieldError]:
    """What is wrong with the rules of a structural schema: they do not compile, or may cost too much."""
    return list(_cel_errors(msgspec.json.encode(schema), path))


@lru_cache(256)
def _cel_errors(text: bytes, path: str) -> tuple[FieldError, ...]:
    # kept, since a definition is validated at each of its writes, most of which leave the schema as it is
    schema = msgspec.json.decode(text)
    node = compile_structural(schema, root=True)
    check = _SchemaCheck(Declarations(custom=True) if library.available() else None)
    check.visit(schema, node, path, 1, "")
    return tuple(check.finish(path))


class _SchemaCheck:
    """One walk over a schema. `declarations` is None where expressions cannot be compiled."""

    def __init__(self, declarations: Declarations | None) -> None:
        self._declarations = declarations
        self._errors: list[FieldError] = []
        self._costs: list[tuple[int, str]] = []
        self._checkers: dict[tuple[str, str], engine.Checker] = {}

    def _checker(self, of: str, before: str) -> engine.Checker:
        """The checker of rules whose `self` and `oldSelf` have these types: making one takes milliseconds."""
        assert self._declarations is not None
        if (of, before) not in self._checkers:
            types = {"self": of, "oldSelf": before}
            self._checkers[of, before] = engine.Checker(self._declarations, types)
        return self._checkers[of, before]

    def visit(self, schema: Json, node: Node, path: str, times: int | None, lost: str) -> None:
        """`times`: how many values of one object are held to the schema at most (None: the request's size decides);
        `lost`: the outermost place below which old and new values cannot be told to be the same."""
        rules = schema.get(RULES) or []
        for index, rule in enumerate(rules):
            self._rule(rule, schema, node, f"{path}.{RULES}[{index}]", times, lost)
        for index, child in enumerate(schema.get("allOf") or ()):
            self.visit({RULES: child.get(RULES)}, node, f"{path}.allOf[{index}]", times, lost)
        for name, child in (schema.get("properties") or {}).items():
            prop = node.props.get(name)
            if prop is not None:
                self.visit(child, prop.node, f"{path}.properties[{name}]", times, lost)
        for name in ("items", "additionalProperties"):
            child, item = schema.get(name), node.item
            if isinstance(child, dict) and item is not None:
                most = schema.get("maxItems" if name == "items" else "maxProperties")
                below = None if times is None or most is None else times * most
                in_list = name == "items" and schema.get("x-kubernetes-list-type") != "map"
                apart = in_list or schema.get("x-kubernetes-map-type") == "atomic"
                where = f"{path}.{name}"
                self.visit(child, item, where, below, lost or (where if apart else ""))

    def _rule(self, rule: Json, schema: Json, node: Node, at: str, times: int | None, lost: str) -> None:
        found = list(_form_errors(rule, schema, at))
        self._errors += found
        if found or self._declarations is None or self._errors:
            return
        text = rule["rule"]
        of = self._declarations.type_of(node)
        before = "dyn" if rule.get("optionalOldSelf") else of
        checker = self._checker(of, before)
        try:
            if checker.check(text) not in ("BOOL", engine.DYNAMIC):
                self._errors.append(_invalid_rule(f"{at}.rule", rule, "cel expression must evaluate to a bool"))
                return
        except engine.CompileError as error:
            self._errors.append(_invalid_rule(f"{at}.rule", rule, f"compilation failed: {error}"))
            return
        tree = engine.program(text).tree
        self._cost(tree, node, f"{at}.rule", times, "estimated rule cost")
        if "oldSelf" in identifiers(tree):
            if lost:
                why = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {lost}"
                self._errors.append(invalid(f"{at}.rule", text, why))
        elif rule.get("optionalOldSelf") is not None:
            why = "may not be set if oldSelf is not used in rule"
            self._errors.append(invalid(f"{at}.optionalOldSelf", rule["optionalOldSelf"], why))
        if message := rule.get("messageExpression"):
            self._message(checker, message, rule, node, f"{at}.messageExpression")

    def _message(self, checker: engine.Checker, message: str, rule: Json, node: Node, at: str) -> None:
        try:
            if checker.check(message) not in ("STRING", engine.DYNAMIC):
                self._errors.append(_invalid_rule(at, rule, "messageExpression must evaluate to a string"))
                return
        except engine.CompileError as error:
            self._errors.append(_invalid_rule(at, rule, f"messageExpression compilation failed: {error}"))
            return
        self._cost(engine.program(message).tree, node, at, 1, "estimated messageExpression cost")

    def _cost(self, tree: bytes, node: Node, at: str, times: int | None, what: str) -> None:
        shape: Shape = shape_of(node)
        once = estimate(tree, {"self": shape, "oldSelf": shape})
        cost = once * (MAX_REQUEST // (least_bytes(node) + 1) if times is None else times)
        self._costs.append((cost, at))
        if cost > _MOST_OF_RULE:
            self._errors.append(forbidden(at, _over_budget(what, cost, _MOST_OF_RULE)))

    def finish(self, path: str) -> list[FieldError]:
        """The errors, with those of all rules together."""
        total = sum(cost for cost, _ in self._costs)
        if total > _MOST_OF_SCHEMA:
            why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
            dear = sorted((each for each in self._costs if each[0] > _MOST_OF_SCHEMA // 100), reverse=True)[:4]
            self._errors += [forbidden(at, why) for _, at in dear]
            what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
            self._errors.append(forbidden(path, _over_budget(what, total, _MOST_OF_SCHEMA)))
        return self._errors


def _invalid_rule(at: str, rule: Json, why: str) -> FieldError:
    shown = {name: rule[name] for name in ("rule", "message", "messageExpression", "reason") if rule.get(name)}
    return invalid(at, shown, why)


def _over_budget(what: str, cost: int, most: int) -> str:
    factor = cost / most
    text = "more than 100x" if factor > 100 else f"{factor:f}x" if factor < 1.5 else f"{factor:.1f}x"
    return f"{what} exceeds budget by factor of {text}{_HINT}"


def _form_errors(rule: Json, schema: Json, at: str) -> Iterator[FieldError]:
    """What is wrong with a rule beside its expressions."""
    text, message, of_message = rule.get("rule") or "", rule.get("message") or "", rule.get("messageExpression") or ""
    if not text.strip():
        yield required(f"{at}.rule", "rule is not specified")
    if message and not message.strip():
        yield invalid(f"{at}.message", message, "message must be non-empty if specified")
    elif re.search(r"[\r\n]", message):
        yield invalid(f"{at}.message", message, "message must not contain line breaks")
    elif re.search(r"[\r\n]", text) and not message:
        yield required(f"{at}.message", "message must be specified if rule contains line breaks")
    if of_message and not of_message.strip():
        yield required(f"{at}.messageExpression", "messageExpression must be non-empty if specified")
    if rule.get("reason") is not None and rule["reason"] not in _REASONS:
        yield not_supported(f"{at}.reason", rule["reason"], _REASONS)
    field_path = rule.get("fieldPath") or ""
    if not field_path:
        return
    if not field_path.strip():
        yield invalid(f"{at}.fieldPath", field_path, "fieldPath must be non-empty if specified")
    if re.search(r"[\r\n]", field_path):
        yield invalid(f"{at}.fieldPath", field_path, "fieldPath must not contain line breaks")
    if _normalized(field_path, schema) is None:
        yield invalid(f"{at}.fieldPath", field_path, "fieldPath must be a valid path")


def _normalized(field_path: str, schema: Json) -> str | None:
    """A rule's fieldPath (`.spec['a.b']`) as errors write it, without the first dot; None: it leads nowhere."""
    found = ""
    position = 0
    for part in re.finditer(r"\.([^.\[\]]+)|\['((?:[^'\\]|\\.)+)'\]", field_path):
        if part.start() != position:
            return None
        position = part.end()
        name = part[1] or re.sub(r"\\(.)", r"\1", part[2])
        if (schema.get("properties") or {}).get(name) is not None:
            schema, found = schema["properties"][name], f"{found}.{name}"
        elif isinstance(schema.get("additionalProperties"), dict):
            schema, found = schema["additionalProperties"], f"{found}[{name}]"
        else:
            return None
    return found.removeprefix(".") if found and position == len(field_path) else None


# --- rules at work ---


@dataclass(slots=True)
class _Rule:
    text: str
    message: str
    message_expression: str
    reason: str
    field_path: str
    optional_old: bool
    uses_old: bool

    def shown(self) -> str:
        """How errors name the rule."""
        return (self.message or self.text).strip()


@dataclass(slots=True)
class Rules:
    """The rules of a schema and of those within it that have some."""

    node: Node
    kind: str
    own: list[_Rule] = field(default_factory=list)
    props: dict[str, Rules] = field(default_factory=dict)
    item: Rules | None = None
    every: list[Rules] = field(default_factory=list)
    keys: tuple[str, ...] | None = None
    """Of a list whose old and new items can be told to be the same: what tells them."""
    apart: bool = False
    """Whether old and new values of a map cannot be."""


def compile_rules(schema: Json, node: Node) -> Rules | None:
    """The rules of a schema that was accepted; None: it has none, or they cannot be evaluated here."""
    return _compile(schema, node) if library.available() else None


def _compile(schema: Json, node: Node) -> Rules | None:
    made = Rules(node, schema.get("type", ""))
    made.own = [each for rule in schema.get(RULES) or () if (each := _compile_rule(rule, schema)) is not None]
    for child in schema.get("allOf") or ():
        if isinstance(child, dict) and child.get(RULES):
            found = _compile({RULES: child[RULES], "type": made.kind}, node)
            made.every += [found] if found is not None else []
    for name, child in (schema.get("properties") or {}).items():
        prop = node.props.get(name)
        found = _compile(child, prop.node) if prop is not None else None
        if found is not None:
            made.props[name] = found
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict) and node.item is not None:
            made.item = _compile(schema[name], node.item)
    if schema.get("x-kubernetes-list-type") == "map":
        made.keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
    made.apart = schema.get("x-kubernetes-map-type") == "atomic"
    return made if made.own or made.props or made.item is not None or made.every else None


def _compile_rule(rule: Json, schema: Json) -> _Rule | None:
    text = rule.get("rule") or ""
    try:
        uses_old = "oldSelf" in identifiers(engine.program(text).tree)
    except engine.CompileError:
        return None  # a definition that was stored when rules were not compiled
    return _Rule(
        text, rule.get("message") or "", rule.get("messageExpression") or "", rule.get("reason") or "",
        _normalized(rule.get("fieldPath") or "", schema) or "", bool(rule.get("optionalOldSelf")), uses_old,
    )  # fmt: skip


class _SpentError(Exception):
    """No more rules are evaluated."""


class Evaluation:
    """One object held to its rules: `errors`, and `warnings` of what an update left as it was."""

    def __init__(self, rules: Rules, value: Json, old: Json | None) -> None:
        self.errors: list[FieldError] = []
        self.warnings: list[str] = []
        self._left = _EVALUATIONS
        with suppress(_SpentError):
            self._visit(rules, value, old, "", False)

    def _visit(self, rules: Rules, value: Any, old: Any, path: str, unchanged: bool) -> None:
        if value is None:
            return
        unchanged = unchanged or (old is not None and value == old)
        if rules.own:
            self._own(rules, value, old, path, unchanged)
        for each in rules.every:
            self._visit(each, value, old, path, unchanged)
        if isinstance(value, list) and rules.item is not None:
            keys = rules.keys or ()
            before = {item_key(item, keys): item for item in old} if keys and isinstance(old, list) else {}
            for index, item in enumerate(value):
                same = before.get(item_key(item, keys)) if before else None
                self._visit(rules.item, item, same, f"{path}[{index}]", unchanged)
        elif isinstance(value, dict):
            was = old if isinstance(old, dict) and not rules.apart else {}
            for name, item in value.items():
                below = rules.props.get(name)
                if below is not None:
                    self._visit(below, item, was.get(name), f"{path}.{name}" if path else name, unchanged)
                elif rules.item is not None:
                    self._visit(rules.item, item, was.get(name), f"{path}[{name}]", unchanged)

    def _own(self, rules: Rules, value: Any, old: Any, path: str, unchanged: bool) -> None:
        before = cel_value(old, rules.node) if any(rule.uses_old for rule in rules.own) else None
        bound = {"self": cel_value(value, rules.node)}
        plain = engine.Bound(bound if old is None else {**bound, "oldSelf": before})
        for rule in rules.own:
            if rule.uses_old and old is None and not rule.optional_old:
                continue
            if self._left <= 0:
                self.errors.append(invalid(path or "<nil>", rules.kind, engine.SPENT))
                raise _SpentError
            self._left -= 1
            self._evaluate(rule, rules, value, path, unchanged, bound, plain, before if old is not None else None)

    def _evaluate(
        self, rule: _Rule, rules: Rules, value: Any, path: str, unchanged: bool, bound: Json, plain: engine.Bound,
        before: Any,
    ) -> None:  # fmt: skip
        text = rule.text
        if rule.optional_old:
            text = _OLD.format(text)
            plain = engine.Bound({**bound, "variables": {} if before is None else {"old": before}})
        where = path or "<nil>"
        try:
            if engine.program(text).evaluate(plain) is True:
                return
        except engine.EvaluationError as error:
            self.errors.append(invalid(where, rules.kind, _failure(error, rule)))
            if error.exceeded:
                raise _SpentError from error
            return
        at = f"{path}.{rule.field_path}" if path and rule.field_path else rule.field_path or where
        found = _verdict(rule, at, value, self._message(rule, plain))
        if unchanged and not rule.uses_old:
            self.warnings.append(str(found))
        else:
            self.errors.append(found)

    @staticmethod
    def _message(rule: _Rule, bound: engine.Bound) -> str:
        if rule.message_expression:
            text = _OLD.format(rule.message_expression) if rule.optional_old else rule.message_expression
            with suppress(engine.CompileError, engine.EvaluationError):
                if said := message_of(engine.program(text).evaluate(bound)):
                    return said
        return rule.message.strip() or f"failed rule: {rule.text.strip()}"


def _failure(error: engine.EvaluationError, rule: _Rule) -> str:
    if error.exceeded:
        why = "no further validation rules will be run due to call cost exceeds limit for rule"
        return f"'{error}': {why}: {rule.shown()}"
    if str(error).startswith("no such overload"):
        why = "call arguments did not match a supported operator, function or macro signature for rule"
        return f"'{error}': {why}: {rule.shown()}"
    return f"{error} evaluating rule: {rule.shown()}"


def _verdict(rule: _Rule, at: str, value: Any, message: str) -> FieldError:
    match rule.reason:
        case "FieldValueForbidden":
            return forbidden(at, message)
        case "FieldValueRequired":
            return required(at, message)
        case "FieldValueDuplicate":
            return duplicate(at, value)
    if isinstance(value, dict | list):
        return FieldError(at, f"Invalid value: {message}", ErrorType.INVALID)
    return invalid(at, value, message)
