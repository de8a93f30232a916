"""`x-kubernetes-validations` of CRDs: what is refused in a definition, and what its rules say of objects."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kproxy.apiserver.cel import library
from kproxy.apiserver.crd import strategy
from kproxy.apiserver.crd.cel_rules import Evaluation, Rules, cel_errors, compile_rules
from kproxy.apiserver.crd.structural import compile_structural
from tests.support.apiserver.definitions import definition
from tests.support.apiserver.server import Api

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MERGE = "application/merge-patch+json"
AT = "spec.validation.openAPIV3Schema"
NUMBER: Any = {"type": "integer"}


def rules(*texts: str, **more: Any) -> Any:
    return {"x-kubernetes-validations": [{"rule": text, **more} for text in texts]}


def schema(**spec: Any) -> Any:
    """A schema whose spec is an object with these properties, or with other members given as `own`."""
    own = spec.pop("own", {})
    return {"type": "object", "properties": {"spec": {"type": "object", **own, "properties": spec}}}


def crd(plural: str, of: Any) -> Any:
    body = definition(plural)
    for version in body["spec"]["versions"]:
        version["schema"] = {"openAPIV3Schema": of}
        version["subresources"] = {"status": {}}
        version.pop("additionalPrinterColumns")
    return body


TWO = schema(own=rules("self.x + self.y > 0"), x=NUMBER, y=NUMBER)
TWO["properties"]["status"] = {
    "type": "object", **rules("self.health == 'ok' || self.health == 'unhealthy'"),
    "properties": {"health": {"type": "string"}},
}  # fmt: skip
QUADRATIC = schema(l={"type": "array", "maxItems": 725, "items": NUMBER, **rules("self.all(x, self.all(y, x == y))")})
GROWING = schema(num=NUMBER | rules("self > oldSelf"))


@pytest.mark.parametrize(
    ("of", "where", "said"),
    [
        (schema(own=rules("self.z == 1"), x=NUMBER), "rule", "compilation failed: ERROR: <input>:1:5: undefined field"),
        (schema(own=rules("self = 42")), "rule", "Syntax error: token recognition error at: '= '"),
        (schema(own=rules("'a'")), "rule", "cel expression must evaluate to a bool"),
        (schema(own=rules(" ")), "rule", "Required value: rule is not specified"),
        (schema(own=rules("a\n== b")), "message", "message must be specified if rule contains line breaks"),
        (schema(own=rules("true", message=" ")), "message", "message must be non-empty if specified"),
        (schema(own=rules("true", message="a\nb")), "message", "message must not contain line breaks"),
        (schema(own=rules("true", reason="Foo")), "reason", 'Unsupported value: "Foo"'),
        (schema(own=rules("true", fieldPath=".q")), "fieldPath", "fieldPath must be a valid path"),
        (schema(own=rules("true", messageExpression="1")), "messageExpression", "must evaluate to a string"),
        (schema(own=rules("true", messageExpression="self.q")), "messageExpression", "undefined field 'q'"),
        (schema(own=rules("true", optionalOldSelf=True)), "optionalOldSelf", "may not be set if oldSelf is not used"),
    ],
)  # fmt: skip
def test_rules_that_a_definition_may_not_have(of: Any, where: str, said: str) -> None:
    found = [str(each) for each in cel_errors(of, AT)]
    assert len(found) == 1, found
    assert found[0].startswith(f"{AT}.properties[spec].x-kubernetes-validations[0].{where}: "), found
    assert said in found[0]


def test_old_values_in_lists_cannot_be_found() -> None:
    text = {"type": "string", "maxLength": 3, **rules("self == oldSelf")}
    found = cel_errors(schema(x={"type": "array", "maxItems": 3, "items": text}), AT)
    at = f"{AT}.properties[spec].properties[x].items"
    why = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {at}"
    assert [str(each) for each in found] == [
        f'{at}.x-kubernetes-validations[0].rule: Invalid value: "self == oldSelf": {why}'
    ]


def test_costs_count_for_each_item_and_together() -> None:
    text = {"type": "string", **rules("self.contains('ab')")}
    assert cel_errors(schema(x={"type": "array", "maxItems": 10, "items": text}), AT) == []
    found = [str(each) for each in cel_errors(schema(x={"type": "array", "maxItems": 40, "items": text}), AT)]
    assert len(found) == 1, found
    assert "estimated rule cost exceeds budget by factor of 1.258" in found[0]
    found = [str(each) for each in cel_errors(schema(**{f"x{n}": text for n in range(330)}), AT)]
    assert f"{AT}: Forbidden: x-kubernetes-validations estimated rule cost total" in found[-1], found


def verdict(of: Any, value: Any, old: Any = None) -> tuple[list[str], list[str]]:
    node = compile_structural(of, root=True)
    compiled = compile_rules(of, node)
    assert compiled is not None
    before = None if old is None else {"spec": old}
    found = Evaluation(compiled, {"spec": value}, before)
    return [str(each) for each in found.errors], found.warnings


def item(key: str, value: int) -> Any:
    return {"k": key, "v": value}


LISTED = schema(
    l={
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"],
        "items": {
            "type": "object",
            "required": ["k"],
            "properties": {"k": {"type": "string"}, "v": NUMBER},
            **rules("self.v >= oldSelf.v", fieldPath=".v", message="no less"),
        },
    }
)
GROWS_FROM_ONE = "oldSelf.hasValue() ? self > oldSelf.value() : self == 1"
OPTIONAL = schema(num=NUMBER | rules(GROWS_FROM_ONE, optionalOldSelf=True, message="one, then more"))
SAID = schema(own=rules("self.x < 5", messageExpression="'x is %d'.format([self.x])", message="too large"), x=NUMBER)
REASON = schema(x=NUMBER | rules("self < 5", reason="FieldValueForbidden", message=" too large "))
MAPPED = schema(m={"type": "object", "additionalProperties": NUMBER | rules("self > 0")})
BOTH = schema(own={"allOf": [rules("self.x > 0")]}, x=NUMBER)


@pytest.mark.parametrize(
    ("of", "value", "old", "errors"),
    [
        (TWO, {"x": 1, "y": 0}, None, []),
        (TWO, {"x": 0, "y": 0}, None, ["spec: Invalid value: failed rule: self.x + self.y > 0"]),
        (TWO, {"x": 1}, None, ['spec: Invalid value: "object": no such key: y evaluating rule: self.x + self.y > 0']),
        (TWO, None, None, []),
        (GROWING, {"num": 9}, None, []),
        (GROWING, {"num": 9}, {}, []),
        (GROWING, {"num": 11}, {"num": 10}, []),
        (GROWING, {"num": 9}, {"num": 10}, ["spec.num: Invalid value: 9: failed rule: self > oldSelf"]),
        (OPTIONAL, {"num": 1}, None, []),
        (OPTIONAL, {"num": 2}, {"num": 1}, []),
        (OPTIONAL, {"num": 9}, None, ["spec.num: Invalid value: 9: one, then more"]),
        (LISTED, {"l": [item("b", 1), item("a", 3)]}, {"l": [item("a", 2), item("b", 2)]},
         ["spec.l[0].v: Invalid value: no less"]),
        (SAID, {"x": 5}, None, ["spec: Invalid value: x is 5"]),
        (REASON, {"x": 5}, None, ["spec.x: Forbidden: too large"]),
        (MAPPED, {"m": {"a": 1, "b": 0}}, None, ["spec.m[b]: Invalid value: 0: failed rule: self > 0"]),
        (BOTH, {"x": 0}, None, ["spec: Invalid value: failed rule: self.x > 0"]),
    ],
)  # fmt: skip
def test_what_rules_say(of: Any, value: Any, old: Any, errors: list[str]) -> None:
    assert verdict(of, value, old)[0] == errors


def test_what_an_update_leaves_as_it_was_is_only_warned_of() -> None:
    said = "spec: Invalid value: failed rule: self.x + self.y > 0"
    assert verdict(TWO, {"x": 0, "y": 0}, {"x": 0, "y": 0}) == ([], [said])
    assert verdict(TWO, {"x": 0, "y": -1}, {"x": 0, "y": 0}) == ([said], [])


def test_the_specs_of_kubernetes(shared: Api) -> None:
    """CustomResourceValidationRules: "MUST NOT fail validation for create of a custom resource that satisfies the
    x-kubernetes-validations rules", "MUST fail validation for create of a custom resource that does not satisfy the
    x-kubernetes-validations rules", "MUST fail create of a custom resource that exceeds the runtime cost limit for
    x-kubernetes-validations rule execution", "MUST fail update of a custom resource that does not satisfy a
    x-kubernetes-validations transition rule"; and the first again through the status.
    """
    space = "/apis/example.org/v1/namespaces/default"
    shared.ok("POST", CRDS, crd("lemons", TWO))
    shared.ok("POST", f"{space}/lemons", {"metadata": {"name": "a"}, "spec": {"x": 1, "y": 0}})
    status, answer = shared("POST", f"{space}/lemons", {"metadata": {"name": "b"}, "spec": {"x": 0, "y": 0}})
    assert (status, answer["reason"]) == (422, "Invalid")
    assert answer["details"]["causes"][0]["field"] == "spec"
    assert "failed rule" in answer["message"]
    status, answer = shared("POST", f"{space}/lemons", {"metadata": {"name": "b"}, "spec": {"x": "no"}})
    assert "some validation rules were not checked because the object was invalid" in answer["message"]
    status, answer = shared("PATCH", f"{space}/lemons/a/status", {"status": {"health": "ill"}}, MERGE)
    assert (status, answer["details"]["causes"][0]["field"]) == (422, "status")
    shared.ok("PATCH", f"{space}/lemons/a/status", {"status": {"health": "ok"}}, MERGE)

    shared.ok("POST", CRDS, crd("cherrys", QUADRATIC))
    status, answer = shared("POST", f"{space}/cherrys", {"metadata": {"name": "a"}, "spec": {"l": [20] * 725}})
    assert status == 422
    assert "call cost exceeds limit" in answer["message"]

    shared.ok("POST", CRDS, crd("dates", GROWING))
    shared.ok("POST", f"{space}/dates", {"metadata": {"name": "a"}, "spec": {"num": 10}})
    status, answer = shared("PATCH", f"{space}/dates/a", {"spec": {"num": 9}}, MERGE)
    assert status == 422
    assert "failed rule" in answer["message"]


def test_definitions_that_the_specs_of_kubernetes_have_refused(shared: Api) -> None:
    """CustomResourceValidationRules: "MUST fail create of a custom resource definition that contains a
    x-kubernetes-validations rule that refers to a property that do not exist", "... that contains an
    x-kubernetes-validations rule that contains a syntax error", "... that contains an x-kubernetes-validations rule
    that exceeds the estimated cost limit"."""
    texts = {"type": "array", "items": {"type": "string"}, **rules("self.all(s, s == 'string constant')")}
    for of, said in (
        (schema(own=rules("self.z == 100"), x=NUMBER), "undefined field 'z'"),
        (schema(own=rules("self = 42")), "Syntax error"),
        (schema(x={"type": "array", "items": texts}), "exceeds budget"),
    ):
        status, answer = shared("POST", CRDS, crd("limes", of))
        assert (status, said in answer["message"]) == (422, True), answer


def test_an_update_warns_of_what_it_leaves_broken(shared: Api) -> None:
    """Of an object that was there before the rule."""
    space = "/apis/example.org/v1/namespaces/default/mangos"
    shared.ok("POST", CRDS, crd("mangos", schema(x=NUMBER)))
    shared.ok("POST", space, {"metadata": {"name": "a"}, "spec": {"x": 0}})
    versions = crd("mangos", schema(own=rules("self.x > 0"), x=NUMBER))["spec"]["versions"]
    shared.ok("PATCH", f"{CRDS}/mangos.example.org", {"spec": {"versions": versions}}, MERGE)
    patch = json.dumps({"metadata": {"labels": {"a": "b"}}}).encode()
    answer = shared.raw("PATCH", f"{space}/a", patch, Content_Type=MERGE)
    assert answer.status == 200, answer.read()
    assert answer.headers["Warning"] == '299 - "spec: Invalid value: failed rule: self.x > 0"'
    assert shared("PATCH", f"{space}/a", {"spec": {"x": -1}}, MERGE)[0] == 422


def test_each_write_evaluates_each_rule_once(shared: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated: list[object] = []

    def noted(rules: Rules, value: dict[str, Any], old: dict[str, Any] | None) -> Evaluation:
        evaluated.append(value["spec"])
        return Evaluation(rules, value, old)

    # Not the rules' programs: they are compiled again whenever the definition is written, by controllers too.
    monkeypatch.setattr(strategy, "Evaluation", noted)
    space = "/apis/example.org/v1/namespaces/default/papayas"
    shared.ok("POST", CRDS, crd("papayas", schema(x=NUMBER | rules("self < 7"))))
    shared.ok("POST", space, {"metadata": {"name": "a"}, "spec": {"x": 1}})
    assert evaluated == [{"x": 1}]
    shared.ok("PATCH", f"{space}/a", {"spec": {"x": 2}}, MERGE)
    assert evaluated == [{"x": 1}, {"x": 2}]


def test_what_the_schema_refuses_now_but_not_then_hides_no_rule(shared: Api) -> None:
    """CRDValidationRatcheting: an error that the stored object has already blocks nothing."""
    space = "/apis/example.org/v1/namespaces/default/kiwis"
    shared.ok("POST", CRDS, crd("kiwis", schema(x=NUMBER, y=NUMBER)))
    shared.ok("POST", space, {"metadata": {"name": "a"}, "spec": {"x": 1, "y": 1}})
    strict = schema(x=NUMBER | rules("self < 7"), y=NUMBER | {"enum": [2]})
    shared.ok(
        "PATCH", f"{CRDS}/kiwis.example.org", {"spec": {"versions": crd("kiwis", strict)["spec"]["versions"]}}, MERGE
    )
    shared.ok("PATCH", f"{space}/a", {"spec": {"x": 2}}, MERGE)
    status, answer = shared("PATCH", f"{space}/a", {"spec": {"x": 7}}, MERGE)
    assert (status, [each["field"] for each in answer["details"]["causes"]]) == (422, ["spec.x"])


def test_without_the_library_rules_are_stored(shared: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is warned of then is in test_definition.py."""
    monkeypatch.setattr(library, "available", lambda: False)
    shared.ok("POST", CRDS, crd("guavas", schema(own=rules("self.nope ="), x=NUMBER)))
    shared.ok("POST", "/apis/example.org/v1/namespaces/default/guavas", {"metadata": {"name": "a"}, "spec": {"x": 1}})
