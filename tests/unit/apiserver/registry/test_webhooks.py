"""Admission webhooks, with one that listens: who is asked, in which order, what is made of the answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from itertools import count
from typing import Any

import kubernetes
import pytest

from kproxy.apiserver.errors import denied
from kproxy.apiserver.registry.webhooks.review import CallError, read_answer
from tests.support.apiserver.server import Api
from tests.support.apiserver.webhook import GROUP, Json, Webhook, hook, patch, rule, running_webhook

MERGE = "application/merge-patch+json"
NUMBERS = count()


@pytest.fixture(scope="module")
def listening(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Webhook]:
    with running_webhook(tmp_path_factory.mktemp("webhook"), "hooks.default.svc") as found:
        yield found


@pytest.fixture
def webhook(listening: Webhook, shared: Api) -> Iterator[Webhook]:
    """The webhook, which has been asked nothing yet; its configurations go in the end."""
    listening.asked.clear()
    listening.answer = lambda _path, _request: {"allowed": True}
    yield listening
    for kind in ("mutating", "validating"):
        shared.ok("DELETE", f"{GROUP}/{kind}webhookconfigurations")


@pytest.fixture
def place(shared: Api) -> str:
    """The path of a new namespace's ConfigMaps."""
    name = f"webhooks-{next(NUMBERS)}"
    shared.ok("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": {"asked": "yes"}}})
    return f"/api/v1/namespaces/{name}/configmaps"


def configure(api: Api, kind: str, *hooks: Json, name: str = "test") -> Json:
    body = {"metadata": {"name": name}, "webhooks": list(hooks)}
    found: Json = api.ok("POST", f"{GROUP}/{kind}webhookconfigurations", body)
    return found


def config_map(name: str = "a", **more: Any) -> Json:
    return {"metadata": {"name": name, **more}, "data": {"a": "b"}}


def message(answer: tuple[int, Any]) -> tuple[int, str]:
    return answer[0], answer[1]["message"]


def paths(webhook: Webhook) -> list[str]:
    return [path for path, _ in webhook.asked]


def test_a_review_says_all_about_a_write(shared: Api, webhook: Webhook, place: str) -> None:
    configure(shared, "validating", hook("all", webhook.config("all"), [rule()]))
    made = shared.ok("POST", f"{place}?fieldManager=me", config_map())
    changed = shared.ok("PATCH", f"{place}/a", {"data": {"c": "d"}}, MERGE)
    shared.ok("DELETE", f"{place}/a?propagationPolicy=Background")
    create, update, delete = (request for _, request in webhook.asked)
    assert create["uid"] != update["uid"]
    kind, resource = (
        {"group": "", "version": "v1", "kind": "ConfigMap"},
        {"group": "", "version": "v1", "resource": "configmaps"},
    )
    for request in webhook.asked:
        assert [request[1][key] for key in ("kind", "requestKind")] == [kind, kind]
        assert [request[1][key] for key in ("resource", "requestResource")] == [resource, resource]
        assert (request[1]["name"], request[1]["namespace"]) == ("a", place.split("/")[4])
        assert request[1]["userInfo"]["username"] == "admin"
        assert (request[1]["dryRun"], "subResource" in request[1]) == (False, False)
    assert [each["operation"] for each in (create, update, delete)] == ["CREATE", "UPDATE", "DELETE"]
    assert create["object"]["metadata"]["uid"] == made["metadata"]["uid"]
    assert create["oldObject"] is None
    assert create["options"] == {
        "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me", "fieldValidation": "Warn",
    }  # fmt: skip
    assert (update["oldObject"]["data"], update["object"]["data"]) == ({"a": "b"}, {"a": "b", "c": "d"})
    assert (delete["object"], delete["oldObject"]) == (None, changed)
    assert delete["options"] == {
        "kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "propagationPolicy": "Background",
    }  # fmt: skip


def test_mutating_webhooks_come_one_after_the_other_before_validating_ones(
    shared: Api, webhook: Webhook, place: str
) -> None:
    def answer(path: str, request: Json) -> Json:
        if path.startswith("v"):
            return {"allowed": True, "warnings": [f"{path} has seen {sorted(request['object']['data'])}"]}
        assert "uid" not in request["object"]["metadata"]
        return patch({"op": "add", "path": f"/data/{path}", "value": str(len(request["object"]["data"]))})

    webhook.answer = answer
    configure(shared, "validating", hook("v", webhook.config("v"), [rule()]), name="a")
    configure(shared, "mutating", hook("m3", webhook.config("m3"), [rule()]), name="c")
    configure(
        shared, "mutating", *(hook(each, webhook.config(each), [rule()]) for each in ("m1", "m2")), name="b"
    )  # fmt: skip
    made = shared.ok("POST", place, config_map())
    assert paths(webhook) == ["m1", "m2", "m3", "v"]
    assert made["data"] == {"a": "b", "m1": "1", "m2": "2", "m3": "3"}
    assert "f:m1" not in json.dumps(made["metadata"]["managedFields"])


def test_server_side_apply_goes_through_webhooks(shared: Api, webhook: Webhook, place: str) -> None:
    configure(shared, "mutating", hook("m", webhook.config("m"), [rule()]))
    webhook.answer = lambda _path, request: patch({"op": "add", "path": "/data/m", "value": request["operation"]})
    body = {"apiVersion": "v1", "kind": "ConfigMap", **config_map()}
    for operation in ("CREATE", "UPDATE"):
        body["data"] = {"a": operation}
        made = shared.ok("PATCH", f"{place}/a?fieldManager=x", body, "application/apply-patch+yaml")
        assert made["data"] == {"a": operation, "m": operation}


def test_warnings_stand_beside_what_was_written_and_beside_a_refusal(shared: Api, webhook: Webhook, place: str) -> None:
    configure(shared, "validating", hook("v", webhook.config("v"), [rule()]))
    for allowed, code in ((True, 201), (False, 400)):
        webhook.answer = lambda _path, _request, allowed=allowed: {"allowed": allowed, "warnings": ["take care"]}  # type: ignore[misc]
        answer = shared.raw("POST", place, json.dumps(config_map()).encode(), Content_Type="application/json")
        assert (answer.status, answer.headers.get_all("Warning")) == (code, ['299 - "take care"'])


def test_reinvocation(shared: Api, webhook: Webhook, place: str) -> None:
    """Only who wants it is asked again, once, and only if a later one has changed the object."""
    webhook.answer = lambda path, _request: (
        patch({"op": "add", "path": "/data/last", "value": "x"}) if path == "last" else {"allowed": True}
    )
    again = {"reinvocationPolicy": "IfNeeded"}
    hooks = [
        hook("first", webhook.config("first"), [rule()], **again),
        hook("second", webhook.config("second"), [rule()]),
    ]
    configure(shared, "mutating", *hooks, hook("last", webhook.config("last"), [rule()], **again))
    shared.ok("POST", place, config_map())
    assert paths(webhook) == ["first", "second", "last", "first"]
    webhook.asked.clear()
    shared.ok("PATCH", f"{place}/a", {"metadata": {"labels": {"a": "b"}}}, MERGE)
    assert paths(webhook) == ["first", "second", "last"], "the patch changes nothing any more"


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        ({}, 400, " denied the request without explanation"),
        ({"message": "no"}, 400, " denied the request: no"),
        ({"reason": "Forbidden", "code": 403}, 403, " denied the request: Forbidden"),
        ({"message": "late", "code": 200}, 400, " denied the request: late"),
    ],
)
def test_refusals(status: Json, code: int, said: str) -> None:
    error = denied("x.example.com", status)
    assert (error.code, error.message) == (code, f'admission webhook "x.example.com"{said}')
    assert error.status.get("reason") == status.get("reason")


@pytest.mark.parametrize(
    ("review", "mutating", "why"),
    [
        (b"?", True, "failed to call webhook: "),
        ({"response": None}, True, "received invalid webhook response: webhook response was absent"),
        ({"response": {"uid": "b"}}, True, 'expected response.uid="a", got "b"'),
        ({"apiVersion": "admission.k8s.io/v1beta1"}, True, "got admission.k8s.io/v1beta1, Kind=AdmissionReview"),
        ({"response": {"uid": "a", "patch": "W10="}}, True, "response.patch but not response.patchType"),
        ({"response": {"uid": "a", "patchType": "JSONPatch"}}, True, "response.patchType but not response.patch"),
        ({"response": {"uid": "a", "patch": "W10=", "patchType": "Merge"}}, True, 'unsupported patch type "Merge"'),
        ({"response": {"uid": "a", "patch": "W10="}}, False, "validating webhook may not return response.patch"),
        ({"response": {"uid": "a", "patch": "W1"}}, True, "failed to call webhook: "),
    ],
)
def test_what_an_answer_may_not_say(review: Any, mutating: bool, why: str) -> None:
    whole = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": {"uid": "a", "allowed": True}}
    body = review if isinstance(review, bytes) else json.dumps(whole | review).encode()
    with pytest.raises(CallError) as caught:
        read_answer(body, "a", mutating=mutating)
    assert why in str(caught.value)


def test_a_webhook_that_fails(shared: Api, webhook: Webhook, place: str) -> None:
    """failurePolicy decides; a webhook that answers no decides itself."""
    held = threading.Event()

    def answer(path: str, _request: Json) -> Any:
        if path == "slow":
            held.wait()
        return {"slow": {"allowed": True}, "broken": 503, "odd": b"?"}.get(path, {"allowed": False})

    webhook.answer = answer
    gone = {"url": "https://127.0.0.1:1/x"}
    other = {"url": webhook.config("x")["url"]}
    seen = {
        "slow": (webhook.config("slow"), "/slow?timeout=1s\": context deadline exceeded"),
        "broken": (webhook.config("broken"), 'an error on the server ("out of order")'),
        "odd": (webhook.config("odd"), "JSON is malformed"),
        "gone": (gone, 'Post "https://127.0.0.1:1/x?timeout=1s": '),
        "other": (other, "tls: failed to verify certificate: "),
        "bundle": ({**gone, "caBundle": "eA=="}, "could not get REST client: unable to load root certificates"),
    }  # fmt: skip
    try:
        for name, (config, said) in seen.items():
            for policy, code in (("Fail", 500), ("Ignore", 201)):
                each = hook(name, config, [rule()], timeoutSeconds=1, failurePolicy=policy)
                configure(shared, "mutating", each)
                status, made = shared("POST", place, config_map(f"{name}-{policy.lower()}"))
                assert status == code, made
                if policy == "Fail":
                    assert f'Internal error occurred: failed calling webhook "{name}.example.com": ' in made["message"]
                    assert said in made["message"]
                shared.ok("DELETE", f"{GROUP}/mutatingwebhookconfigurations/test")
    finally:
        held.set()
    configure(shared, "validating", hook("no", webhook.config("no"), [rule()], failurePolicy="Ignore"))
    said = 'admission webhook "no.example.com" denied the request without explanation'
    assert message(shared("POST", place, config_map())) == (400, said)


def test_a_patch_that_does_not_fit(shared: Api, webhook: Webhook, place: str) -> None:
    shared.ok("POST", place, config_map())
    configure(shared, "mutating", hook("m", webhook.config("m"), [rule()]))
    webhook.answer = lambda _path, _request: patch({"op": "remove", "path": "/data/none"})
    assert shared("POST", place, config_map("b"))[0] == 500
    what = 'admission webhook "m.example.com" attempted to modify the object, which is not supported for this operation'
    assert message(shared("DELETE", f"{place}/a")) == (500, f"Internal error occurred: {what}")
    webhook.answer = lambda _path, _request: patch({"op": "replace", "path": "/metadata/name", "value": "z"})
    assert shared("PATCH", f"{place}/a", {"data": {"x": "y"}}, MERGE)[0] == 400


def test_what_a_webhook_is_asked_about(shared: Api, webhook: Webhook, place: str) -> None:
    namespace = place.rpartition("/")[0]
    shared.ok("POST", f"{namespace}/services", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})
    configure(
        shared, "validating",
        hook("updates", webhook.config("updates"), [rule(operation="UPDATE")]),
        hook("labelled", webhook.config("labelled"), [rule()], objectSelector={"matchLabels": {"a": "b"}}),
        hook("here", webhook.config("here"), [rule()], namespaceSelector={"matchLabels": {"asked": "yes"}}),
        hook("status", webhook.config("status"), [rule("services/status"), rule("*/scale", "apps")]),
        hook("cluster", webhook.config("cluster"), [{**rule("*"), "scope": "Cluster"}],
             namespaceSelector={"matchLabels": {"asked": "no"}}),
        hook("mine", {"url": "https://127.0.0.1:1/"}, [rule("*", "admissionregistration.k8s.io")]),
    )  # fmt: skip
    shared.ok("POST", place, config_map())
    assert sorted(paths(webhook)) == ["here"]
    shared.ok("POST", "/api/v1/namespaces/default/configmaps", config_map("there"))
    shared.ok("DELETE", "/api/v1/namespaces/default/configmaps/there")
    assert sorted(paths(webhook)) == ["here"]
    shared.ok("PATCH", f"{place}/a", {"metadata": {"labels": {"a": "b"}}}, MERGE)
    assert sorted(paths(webhook)) == ["here", "here", "labelled", "updates"]
    shared.ok("PATCH", f"{namespace}/services/s/status", {"status": {"conditions": []}}, MERGE)
    assert (webhook.asked[-1][0], webhook.asked[-1][1]["subResource"]) == ("status", "status")
    name = f"{namespace.rpartition('/')[2]}-no"
    shared.ok("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": {"asked": "no"}}})
    assert (webhook.asked[-1][0], webhook.asked[-1][1]["namespace"]) == ("cluster", name)
    shared.ok("POST", "/api/v1/nodes", {"metadata": {"name": name}})
    assert (webhook.asked[-1][0], webhook.asked[-1][1]["name"]) == ("cluster", name)


def test_a_dry_run_asks_only_those_without_side_effects(shared: Api, webhook: Webhook, place: str) -> None:
    configure(shared, "mutating", hook("m", webhook.config("m"), [rule()], sideEffects="NoneOnDryRun"))
    webhook.answer = lambda _path, _request: patch({"op": "add", "path": "/data/m", "value": "x"})
    assert shared.ok("POST", f"{place}?dryRun=All", config_map())["data"]["m"] == "x"
    assert webhook.asked[0][1]["dryRun"] is True
    assert webhook.asked[0][1]["options"]["dryRun"] == ["All"]
    assert shared("GET", f"{place}/a")[0] == 404


def test_subresources_with_a_kind_of_their_own(shared: Api, webhook: Webhook, place: str) -> None:
    namespace = place.rpartition("/")[0]
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    shared.ok("POST", f"{namespace}/pods", pod)
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
    configure(shared, "validating", hook("v", webhook.config("v"), [rule("pods/*")]))
    webhook.answer = lambda _path, request: {"allowed": request["kind"]["kind"] != "Eviction"}
    assert shared("POST", f"{namespace}/pods/p/binding", binding)[0] == 201
    asked = webhook.asked[-1][1]
    assert (asked["operation"], asked["subResource"], asked["object"]["target"]["name"]) == ("CREATE", "binding", "n")
    assert asked["kind"] == asked["requestKind"] == {"group": "", "version": "v1", "kind": "Binding"}
    assert shared("POST", f"{namespace}/pods/p/eviction", {"metadata": {"name": "p"}})[0] == 400


def test_versions(shared: Api, webhook: Webhook) -> None:
    """matchPolicy Equivalent: a webhook for one version sees the writes of another, in its own."""
    fields = {"spec": {"type": "object", "additionalProperties": {"type": "string"}}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": fields}}
    version = {"served": True, "storage": False, "schema": schema}
    names = {"plural": "hooked", "kind": "Hooked"}
    spec = {"group": "hooks.example.org", "names": names, "scope": "Cluster",
            "versions": [{**version, "name": "v1"}, {**version, "name": "v2", "storage": True}]}  # fmt: skip
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    shared.ok("POST", crds, {"metadata": {"name": "hooked.hooks.example.org"}, "spec": spec})
    shared.eventually("/apis/hooks.example.org/v2", lambda got: got["kind"] == "APIResourceList")
    rules = [rule("hooked", "hooks.example.org", version="v1")]
    configure(shared, "mutating", hook("any", webhook.config("any"), rules),
              hook("exact", webhook.config("exact"), rules, matchPolicy="Exact"))  # fmt: skip
    webhook.answer = lambda path, _request: patch({"op": "add", "path": f"/spec/{path}", "value": "x"})
    body = {"apiVersion": "hooks.example.org/v2", "kind": "Hooked", "metadata": {"name": "h"}, "spec": {}}
    made = shared.ok("POST", "/apis/hooks.example.org/v2/hooked", body)
    assert (made["apiVersion"], made["spec"]) == ("hooks.example.org/v2", {"any": "x"})
    asked = webhook.asked[0][1]
    assert (asked["kind"]["version"], asked["requestKind"]["version"]) == ("v1", "v2")
    assert (asked["object"]["apiVersion"], asked["resource"]["version"]) == ("hooks.example.org/v1", "v1")
    shared.ok("DELETE", f"{crds}/hooked.hooks.example.org")


def test_a_write_that_was_overtaken_is_made_anew(shared: Api, webhook: Webhook, place: str) -> None:
    """While a webhook is asked, another client changes the object: a patch is tried again, an old version refused."""
    first = shared.ok("POST", place, config_map())
    configure(shared, "validating", hook("v", webhook.config("v"), [rule()]))
    turns = count()

    def answer(_path: str, request: Json) -> Json:
        if request["userInfo"]["username"] == "admin" and request["object"]["data"].get("slow") and not next(turns):
            shared.ok("PATCH", f"{place}/a", {"data": {"other": request["uid"]}}, MERGE)
        return {"allowed": True}

    webhook.answer = answer
    made = shared.ok("PATCH", f"{place}/a", {"data": {"slow": "1"}}, MERGE)
    assert made["data"] == {"a": "b", "slow": "1", "other": made["data"]["other"]}
    turns = count()
    assert shared("PUT", f"{place}/a", {**made, "data": {"slow": "2"}})[0] == 409
    assert shared("PUT", f"{place}/a", {**first, "data": {}})[0] == 409
    assert shared.ok("GET", f"{place}/a")["data"]["slow"] == "1"


def test_a_service_is_reached_by_its_endpoints(shared: Api, webhook: Webhook, place: str) -> None:
    services, slices = (
        "/api/v1/namespaces/default/services",
        ("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"),
    )
    config = {"caBundle": webhook.bundle, "service": {"name": "hooks", "namespace": "default", "path": "/in"}}
    configure(shared, "validating", hook("s", config, [rule()]))
    told = 'failed to call webhook: Post "https://hooks.default.svc:443/in?timeout=20s": '
    failed = f'Internal error occurred: failed calling webhook "s.example.com": {told}'
    assert message(shared("POST", place, config_map())) == (500, f'{failed}service "hooks" not found')
    shared.ok("POST", services, {"metadata": {"name": "hooks"}, "spec": {"ports": [{"name": "tls", "port": 443}]}})
    assert message(shared("POST", place, config_map()))[1] == f'{failed}no endpoints available for service "hooks"'
    shared.ok("POST", slices, {
        "metadata": {"name": "hooks", "labels": {"kubernetes.io/service-name": "hooks"}}, "addressType": "IPv4",
        "ports": [{"name": "tls", "port": webhook.port}],
        "endpoints": [{"addresses": ["192.0.2.2"]}, {"addresses": ["192.0.2.1"], "conditions": {"ready": False}}],
    })  # fmt: skip

    def on_the_loopback(server: Any) -> None:
        """An EndpointSlice may not say so; no other address is this machine's everywhere."""
        table = server.store.tables["endpointslices.discovery.k8s.io"]
        value = table.head("default/hooks").value
        value["endpoints"][0]["addresses"] = ["127.0.0.1"]
        server.store.put(table, "default/hooks", value)

    shared.server.call(on_the_loopback)
    shared.ok("POST", place, config_map())
    assert paths(webhook) == ["in"]
    shared.ok("PATCH", f"{services}/hooks", {"spec": {"ports": [{"port": 443, "$patch": "delete"}, {"port": 444}]}},
              "application/strategic-merge-patch+json")  # fmt: skip
    assert (
        message(shared("POST", place, config_map("b")))[1] == f'{failed}no service port 443 found for service "hooks"'
    )
    shared.ok("DELETE", f"{services}/hooks")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"name": "short.name"}, "should be a domain with at least three segments separated by dots"),
        ({"sideEffects": "Some"}, 'supported values: "None", "NoneOnDryRun"'),
        ({"timeoutSeconds": 31}, "the timeout value must be between 1 and 30 seconds"),
        ({"admissionReviewVersions": ["v1beta1"]}, "must include at least one of v1"),
        ({"admissionReviewVersions": []}, "must specify one of v1"),
        ({"clientConfig": {}}, "exactly one of url or service is required"),
        ({"clientConfig": {"url": "http://h/x"}}, "'https' is the only allowed URL scheme"),
        ({"clientConfig": {"url": "https://me@h/x?y#z"}}, "user information is not permitted in the URL"),
        ({"clientConfig": {"service": {"namespace": "n"}}}, "webhooks[0].clientConfig.service.name: Required value"),
        ({"matchConditions": [{"name": "x", "expression": "true"}]}, "does not evaluate CEL"),
        ({"rules": [rule(operation="READ")]}, "Unsupported value"),
    ],
)
def test_what_a_configuration_may_not_say(shared: Api, fields: Json, why: str) -> None:
    wrong = hook("x", {"url": "https://h/x"}, [rule()]) | fields
    for kind in ("mutating", "validating"):
        status, answer = shared(
            "POST", f"{GROUP}/{kind}webhookconfigurations", {"metadata": {"name": "wrong"}, "webhooks": [wrong]}
        )
        assert (status, why in answer["message"]) == (422, True), answer


def test_through_a_real_client(shared: Api, webhook: Webhook) -> None:
    """The Kubernetes client of Python makes the configurations and the objects."""
    api: Any = kubernetes.config.new_client_from_config(  # type: ignore[no-untyped-call]
        str(shared.server.kubeconfig)
    )
    core: Any = kubernetes.client.CoreV1Api(api)
    configure(shared, "mutating", hook("side", webhook.config("side"), [rule("pods", operation="CREATE")]))
    configure(shared, "validating", hook("check", webhook.config("check"), [rule("pods", operation="CREATE")]))

    def answer(path: str, request: Json) -> Json:
        if path == "side":
            container = {"name": "side", "image": "proxy"}
            return patch({"op": "add", "path": "/spec/containers/-", "value": container})
        images = [each["image"] for each in request["object"]["spec"]["containers"]]
        return {"allowed": "bad" not in images, "status": {"message": f"images {images}", "code": 403}}

    webhook.answer = answer
    pod: Any = {"metadata": {"name": "real"}, "spec": {"containers": [{"name": "c", "image": "good"}]}}
    made: Any = core.create_namespaced_pod("default", pod)
    assert [each.name for each in made.spec.containers] == ["c", "side"]
    assert made.spec.containers[1].image_pull_policy == "Always", "defaults follow the patch"
    pod["metadata"]["name"], pod["spec"]["containers"][0]["image"] = "other", "bad"
    with pytest.raises(kubernetes.client.ApiException) as caught:
        core.create_namespaced_pod("default", pod)
    said = json.loads(caught.value.body or "")
    assert (said["code"], said["message"]) == (
        403, 'admission webhook "check.example.com" denied the request: images [\'bad\', \'proxy\']',
    )  # fmt: skip
    core.delete_namespaced_pod("real", "default", grace_period_seconds=0)
