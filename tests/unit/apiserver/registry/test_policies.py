"""ValidatingAdmissionPolicies: what is refused in a policy, which writes it matches, and what it says of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kproxy.apiserver.cel.admission import compile_errors
from kproxy.apiserver.cel.decisions import Denial, denials
from tests.support.apiserver.server import Api

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
MERGE = "application/merge-patch+json"
DEPLOYMENTS = {
    "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"], "operations": ["CREATE", "UPDATE"],
}  # fmt: skip
MAPS = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]}


def policy(name: str, *validations: Any, rules: Any = MAPS, **spec: Any) -> Any:
    wanted = [each if isinstance(each, dict) else {"expression": each} for each in validations]
    match = {"resourceRules": [rules], "namespaceSelector": {"matchLabels": {"policy": name}}}
    return {"metadata": {"name": name}, "spec": {"matchConstraints": match, "validations": wanted, **spec}}


def binding(name: str, *actions: str, **spec: Any) -> Any:
    return {
        "metadata": {"name": f"{name}-binding"},
        "spec": {"policyName": name, "validationActions": list(actions or ("Deny",)), **spec},
    }


@contextmanager
def bound(api: Api, body: Any, *actions: str, **spec: Any) -> Iterator[str]:
    """The path of a namespace in which a policy holds."""
    name = body["metadata"]["name"]
    api.ok("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": {"policy": name, "tier": "gold"}}})
    api.ok("POST", POLICIES, body)
    api.ok("POST", BINDINGS, binding(name, *actions, **spec))
    try:
        yield f"/namespaces/{name}"
    finally:
        api.ok("DELETE", f"{BINDINGS}/{name}-binding")
        api.ok("DELETE", f"{POLICIES}/{name}")


def deployment(name: str, replicas: int) -> Any:
    labels = {"app": "nginx"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "nginx", "image": "nginx"}]}}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def test_a_deployment_is_validated(shared: Api) -> None:
    """ValidatingAdmissionPolicy "should validate against a Deployment": its message confuses types at run time only."""
    said = "'wants replicas > 1, got ' + object.spec.replicas"
    body = policy("replicas", {"expression": "object.spec.replicas > 1", "messageExpression": said}, rules=DEPLOYMENTS)
    with bound(shared, body) as space:
        status, answer = shared("POST", f"/apis/apps/v1{space}/deployments", deployment("marker", 1))
        assert (status, answer["reason"]) == (422, "Invalid")
        why = "ValidatingAdmissionPolicy 'replicas' with binding 'replicas-binding' denied request: failed expression: "
        assert answer["message"] == f'deployments.apps "marker" is forbidden: {why}object.spec.replicas > 1'
        assert answer["details"]["causes"] == [{"message": f"{why}object.spec.replicas > 1"}]
        shared.ok("POST", f"/apis/apps/v1{space}/deployments", deployment("replicated", 2))
        assert (
            shared("PATCH", f"/apis/apps/v1{space}/deployments/replicated", {"spec": {"replicas": 1}}, MERGE)[0] == 422
        )
        shared.ok("POST", f"/apis/apps/v1{space}/replicasets", deployment("single", 1))
        shared.ok("POST", "/apis/apps/v1/namespaces/default/deployments", deployment("elsewhere", 1))
    shared.ok("POST", f"/apis/apps/v1{space}/deployments", deployment("marker", 1))


def test_expressions_may_refer_to_variables(shared: Api) -> None:
    """ValidatingAdmissionPolicy "should allow expressions to refer variables"."""
    variables = [
        {"name": "replicas", "expression": "object.spec.replicas"},
        {"name": "oddReplicas", "expression": "variables.replicas % 2 == 1"},
    ]
    body = policy(
        "variables", "variables.replicas > 1", "variables.oddReplicas", rules=DEPLOYMENTS, variables=variables
    )
    with bound(shared, body) as space:
        found = {
            n: shared("POST", f"/apis/apps/v1{space}/deployments?dryRun=All", deployment("a", n))[0]
            for n in range(1, 5)
        }
    assert found == {1: 422, 2: 422, 3: 201, 4: 422}


def test_expressions_are_type_checked(shared: Api) -> None:
    """ValidatingAdmissionPolicy "should type check validation expressions"."""

    def checked(name: str, *validations: Any) -> Any:
        shared.ok("POST", POLICIES, policy(name, *validations, rules=DEPLOYMENTS))
        found = shared.eventually(f"{POLICIES}/{name}", lambda each: "typeChecking" in (each.get("status") or {}))
        return found["status"]

    assert checked("correct", "object.spec.replicas > 1") == {"observedGeneration": 1, "typeChecking": {}}
    said = "'wants replicas > 1, got ' + object.spec.replicas"
    status = checked("confused", {"expression": "object.spec.replicas > '1'", "messageExpression": said})
    first, second = status["typeChecking"]["expressionWarnings"]
    assert first["fieldRef"] == "spec.validations[0].expression"
    assert first["warning"].startswith("apps/v1, Kind=Deployment: ERROR: <input>:1:22: ")
    assert "found no matching overload for '_>_' applied to '(int, string)'" in first["warning"]
    assert second["fieldRef"] == "spec.validations[0].messageExpression"
    assert "found no matching overload for '_+_' applied to '(string, int)'" in second["warning"]
    change = {"spec": {"validations": [{"expression": "object.spec.nope == 1"}]}}
    shared.ok("PATCH", f"{POLICIES}/confused", change, MERGE)
    found = shared.eventually(f"{POLICIES}/confused", lambda each: each["status"]["observedGeneration"] == 2)
    (only,) = found["status"]["typeChecking"]["expressionWarnings"]
    assert "undefined field 'nope'" in only["warning"]
    for name in ("correct", "confused"):
        shared.ok("DELETE", f"{POLICIES}/{name}")


def test_actions_parameters_deletion_and_who_asks(shared: Api) -> None:
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    body = policy(
        "limits",
        {"expression": "request.operation == 'DELETE' || int(object.data.n) <= int(params.data.most)",
         "reason": "Forbidden", "messageExpression": "'more than ' + params.data.most"},
        {"expression": "request.operation != 'DELETE' || oldObject.metadata.name != 'kept'", "message": "is kept"},
        {"expression": "namespaceObject.metadata.labels['tier'] == 'gold' && request.userInfo.username != ''"},
        {"expression": "authorizer.group('').resource('secrets').namespace('default').check('get').allowed()"},
        paramKind=kind, matchConditions=[{"name": "own", "expression": "request.name != 'limits'"}],
    )  # fmt: skip
    with bound(shared, body, paramRef={"name": "limits", "parameterNotFoundAction": "Deny"}) as space:
        maps = f"/api/v1{space}/configmaps"
        status, answer = shared("POST", maps, {"metadata": {"name": "a"}, "data": {"n": "1"}})
        assert (status, "no params found for policy binding with `Deny`" in answer["message"]) == (422, True)
        shared.ok(
            "POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "limits"}, "data": {"most": "2"}}
        )
        change = {"spec": {"paramRef": {"namespace": "default"}}}
        shared.ok("PATCH", f"{BINDINGS}/limits-binding", change, MERGE)
        shared.ok("POST", maps, {"metadata": {"name": "a"}, "data": {"n": "2"}})
        status, answer = shared("POST", maps, {"metadata": {"name": "b"}, "data": {"n": "3"}})
        assert (status, answer["reason"], answer["message"].endswith("denied request: more than 2")) == (
            403,
            "Forbidden",
            True,
        )
        shared.ok("POST", maps, {"metadata": {"name": "kept"}, "data": {"n": "1"}})
        status, answer = shared("DELETE", f"{maps}/kept")
        assert (status, answer["message"].endswith("denied request: is kept")) == (422, True)
        shared.ok("DELETE", f"{maps}/a")
        shared.ok("PATCH", f"{BINDINGS}/limits-binding", {"spec": {"validationActions": ["Warn", "Audit"]}}, MERGE)
        answer = shared.raw("POST", maps, json.dumps({"metadata": {"name": "b"}, "data": {"n": "3"}}).encode())
        assert answer.status == 201, answer.read()
        why = "Validation failed for ValidatingAdmissionPolicy 'limits' with binding 'limits-binding': more than 2"
        assert answer.headers["Warning"] == f'299 - "{why}"'


@pytest.mark.parametrize(
    ("match", "matches"),
    [
        ({"resources": ["*"]}, True),
        ({"resources": ["*/*"]}, True),
        ({"resources": ["configmaps/*"]}, True),
        ({"resources": ["pods"]}, False),
        ({"resources": ["configmaps/status"]}, False),
        ({"operations": ["UPDATE", "DELETE"]}, False),
        ({"apiGroups": ["*"], "apiVersions": ["*"]}, True),
        ({"apiGroups": ["apps"]}, False),
        ({"scope": "Cluster"}, False),
        ({"scope": "Namespaced"}, True),
        ({"resourceNames": ["b"]}, False),
        ({"resourceNames": ["a", "b"]}, True),
    ],
)
def test_which_writes_match(shared: Api, match: Any, matches: bool) -> None:
    body = policy("matching", "false", rules=MAPS | match)
    body["spec"]["matchConstraints"].pop("namespaceSelector")
    shared.ok("POST", POLICIES, body)
    among = {"objectSelector": {"matchLabels": {"matching": "yes"}}}
    shared.ok("POST", BINDINGS, binding("matching", matchResources=among))
    path = "/api/v1/namespaces/default/configmaps?dryRun=All"
    try:
        found = shared("POST", path, {"metadata": {"name": "a", "labels": {"matching": "yes"}}})[0]
        assert found == (422 if matches else 201)
        assert shared("POST", path, {"metadata": {"name": "a"}})[0] == 201
    finally:
        shared.ok("DELETE", f"{BINDINGS}/matching-binding")
        shared.ok("DELETE", f"{POLICIES}/matching")


def test_policies_are_not_asked_about_policies(shared: Api) -> None:
    everything = {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"]}
    body = policy("locked", "false", rules=everything)
    body["spec"]["matchConstraints"].pop("namespaceSelector")
    shared.ok("POST", POLICIES, body)
    shared.ok("POST", BINDINGS, binding("locked"))
    hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    assert shared("POST", f"{hooks}?dryRun=All", {"metadata": {"name": "hooks"}, "webhooks": []})[0] == 422
    shared.ok("DELETE", f"{BINDINGS}/locked-binding")
    shared.ok("DELETE", f"{POLICIES}/locked")
    assert shared("POST", f"{hooks}?dryRun=All", {"metadata": {"name": "hooks"}, "webhooks": []})[0] == 201


def test_policies_that_do_not_compile(shared: Api) -> None:
    refused = policy("refused", "object.x +", "params.x == 1", "1 + 1", "variables.nope")
    refused["spec"] |= {
        "variables": [{"name": "a", "expression": "nope"}],
        "matchConditions": [{"name": "early", "expression": "variables.a == 1"}],
        "auditAnnotations": [{"key": "k", "valueExpression": "1"}],
    }
    status, answer = shared("POST", POLICIES, refused)
    assert status == 422
    found = {cause["field"]: cause["message"] for cause in answer["details"]["causes"]}
    for path, said in (
        ("spec.validations[0].expression", "compilation failed: ERROR: <input>:1:11: Syntax error: mismatched input"),
        ("spec.validations[1].expression", "undeclared reference to 'params' (in container '')"),
        ("spec.validations[2].expression", "must evaluate to bool"),
        ("spec.validations[3].expression", "undefined field 'nope'"),
        ("spec.variables[0].expression", "undeclared reference to 'nope'"),
        ("spec.matchConditions[0].expression", "undeclared reference to 'variables'"),
        ("spec.auditAnnotations[0].valueExpression", "must evaluate to one of [string null_type]"),
    ):
        assert said in found[path], (path, found)
    assert len(found) == 7


OBJECT = {"metadata": {"name": "a"}, "spec": {"n": 3}}
NO_Q = "resulted in error: no such key: q"
COMPOSITED = 'resulted in error: composited variable "q" fails to evaluate: no such key: q'
OF_Q = {"name": "q", "expression": "object.spec.q"}
TIMES = [{"name": "t", "expression": "duration('2h')"}, {"name": "u", "expression": "duration('1h')"}]


def spec(*texts: str, when: tuple[str, ...] = (), **more: Any) -> Any:
    conditions = [{"name": f"c{index}", "expression": each} for index, each in enumerate(when)]
    return {"validations": [{"expression": each} for each in texts], "matchConditions": conditions, **more}


@pytest.mark.parametrize(
    ("of", "found"),
    [
        (spec("object.spec.n == 3"), []),
        (spec("object.spec.n == 4"), [Denial("failed expression: object.spec.n == 4")]),
        (spec("object.spec.q == 4"), [Denial(f"expression 'object.spec.q == 4' {NO_Q}")]),
        (spec("object.spec.q == 4", failurePolicy="Ignore"), []),
        (spec("false", when=("object.spec.n == 4",)), []),
        (spec("false", when=("object.q", "false")), []),
        (spec("false", when=("object.q",)), [Denial(f"expression 'object.q' {NO_Q}")]),
        (spec("false", when=("object.q",), failurePolicy="Ignore"), []),
        (spec("!has(object.spec.q) || variables.q > 1", variables=[OF_Q]), []),
        (
            spec("variables.q > 1", variables=[OF_Q]),
            [Denial(f"expression 'variables.q > 1' {COMPOSITED}")],
        ),
        (spec("variables.t > variables.u", variables=TIMES), []),
        (spec("[1, 2].all(a, object.spec.n > a)", "size(object.metadata) == 1"), []),
    ],
)
def test_what_a_policy_says(of: Any, found: list[Denial]) -> None:
    assert compile_errors(of) == []
    assert denials(of, {"object": OBJECT, "oldObject": None, "request": {}}) == found


def test_a_policy_that_was_stored_uncompiled_fails() -> None:
    (denial,) = denials(spec("object.x +"), {"object": OBJECT})
    assert "resulted in error: compilation failed: ERROR: <input>:1:11: Syntax error" in denial.message
    assert denials(spec("object.x +", failurePolicy="Ignore"), {"object": OBJECT}) == []


@pytest.mark.parametrize(
    ("rules", "expression", "method", "path", "body"),
    [
        (
            {**DEPLOYMENTS, "resources": ["deployments/scale"]},
            "object.spec.replicas < 3 && oldObject.kind == 'Scale'",
            "PUT", "/apis/apps/v1{}/deployments/marker/scale",
            {"metadata": {"name": "marker"}, "spec": {"replicas": 9}},
        ),
        (
            {**DEPLOYMENTS, "resources": ["*/*"]}, "request.subResource != 'scale' || request.kind.kind != 'Scale'",
            "PATCH", "/apis/apps/v1{}/deployments/marker/scale", {"spec": {"replicas": 9}},
        ),
        (
            {**MAPS, "resources": ["pods/binding"]}, "object.target.name != 'n1'",
            "POST", "/api/v1{}/pods/one/binding",
            {"metadata": {"name": "one"}, "target": {"kind": "Node", "name": "n1"}},
        ),
        (
            {**MAPS, "resources": ["bindings"]}, "object.target.name != 'n1'",
            "POST", "/api/v1{}/bindings",
            {"metadata": {"name": "one"}, "target": {"kind": "Node", "name": "n1"}},
        ),
        (
            {**MAPS, "resources": ["pods/eviction"]},
            "object.kind != 'Eviction' || object.apiVersion != 'policy/v1'",
            "POST", "/api/v1{}/pods/one/eviction", {"metadata": {"name": "one"}},
        ),
        (
            {**MAPS, "resources": ["serviceaccounts/token"]}, "object.spec.audiences.all(each, each != 'vault')",
            "POST", "/api/v1{}/serviceaccounts/default/token", {"spec": {"audiences": ["vault"]}},
        ),
    ],
)  # fmt: skip
def test_subresources_with_kinds_of_their_own_are_asked(
    shared: Api, rules: Any, expression: str, method: str, path: str, body: Any
) -> None:
    pod = {"metadata": {"name": "one"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    name = f"sub-{path.rpartition('/')[2]}-{method.lower()}"
    with bound(shared, policy(name, expression, rules=rules)) as space:
        shared.ok("POST", f"/apis/apps/v1{space}/deployments", deployment("marker", 1))
        shared.eventually(f"/api/v1{space}/serviceaccounts", lambda found: found["items"])
        shared.ok("POST", f"/api/v1{space}/pods", pod)
        media = MERGE if method == "PATCH" else "application/json"
        status, answer = shared(method, path.format(space), body, media)
        assert (status, answer["reason"]) == (422, "Invalid")
        assert f"'{name}' with binding '{name}-binding' denied request" in answer["message"]
