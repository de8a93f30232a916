"""Kinds that are only stored: every one is served, defaulted, checked, shown and warned of as its row says."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from kproxy.apiserver.kinds.stored import ROWS, Kind
from kproxy.apiserver.schema import protobuf
from tests.support.apiserver.objects import collection, objects, resources
from tests.support.apiserver.server import Api

Json = dict[str, Any]
SAMPLES = {each["kind"]: each for each in objects()}


def sample(kind: str, **fields: Any) -> Json:
    """A valid object, with some fields of its spec, or else of itself, set otherwise (None: left out)."""
    found: Json = copy.deepcopy(SAMPLES[kind])
    for path, value in fields.items():
        *parents, last = path.split("__")
        at: Any = found
        for part in parents:
            at = at[int(part)] if part.isdigit() else at.setdefault(part, {})
        if value is None:
            at.pop(last, None)
        else:
            at[last] = value
    return found


def test_there_is_a_valid_object_of_each_kind() -> None:
    held = {(each["apiVersion"], each["kind"]) for each in objects()}
    others = {("events.k8s.io/v1", "Event")}  # of what is stored
    assert set(resources()) - held == others


def test_every_valid_object_is_created_shown_and_read_back(shared: Api) -> None:
    for each in sorted(objects(), key=lambda each: not each["kind"].endswith("Class")):  # Pods name them
        status, answer = shared("POST", collection(each), each)
        assert status == 201, answer
        path = f"{collection(each)}/{answer['metadata']['name']}"
        if each["kind"] not in ("CustomResourceDefinition", "ResourceQuota"):  # whose status a controller writes
            assert shared.ok("GET", path) == answer
            assert shared.ok("PUT", path, answer) == answer, "an update without a change changes nothing"
        table = shared("GET", path, Accept="application/json;as=Table;v=v1;g=meta.k8s.io")[1]
        (row,) = table["rows"]
        assert len(row["cells"]) == len(table["columnDefinitions"]), each["kind"]


@pytest.mark.parametrize("kind", [row.kind for row in ROWS])
def test_protobuf_says_what_json_says(kind: str) -> None:
    value = SAMPLES[kind]
    envelope = protobuf.encode_envelope(value)
    assert msgspec.json.encode(protobuf.decode_envelope(envelope)) != b""
    back = protobuf.decode_envelope(envelope)
    assert _without_false(back) == _without_false(value)


def _without_false(value: Any) -> Any:
    """A value without the fields that protobuf leaves out or JSON may."""
    if isinstance(value, dict):
        return {key: _without_false(item) for key, item in value.items() if item not in (False, None, {}, [])}
    return [_without_false(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("row", [row for row in ROWS if row.unenforced], ids=lambda row: row.kind)
def test_what_is_not_enforced_says_so_in_a_header(row: Kind, shared: Api) -> None:
    body = msgspec.json.encode(sample(row.kind, spec__version="v2", metadata__name="v2.metrics.example.org")
                               if row.kind == "APIService" else sample(row.kind, metadata__name="other"))  # fmt: skip
    path = f"{collection(SAMPLES[row.kind])}?dryRun=All"
    response = shared.raw("POST", path, body, Content_Type="application/json")
    assert row.unenforced in (response.getheader("Warning") or "")


def test_warnings_stand_beside_refusals_that_come_after_validation(shared: Api) -> None:
    """k8s.io/apiserver pkg/registry/rest BeforeCreate warns before it is known that the name is taken."""
    body = msgspec.json.encode({"metadata": {"name": "twice"}, "spec": {"limits": []}})
    for code in (201, 409):
        answer = shared.raw("POST", "/api/v1/namespaces/default/limitranges", body, Content_Type="application/json")
        assert (answer.status, len(answer.headers.get_all("Warning") or ())) == (code, 1)


REFUSED = [
    (sample("Job", spec__completions=-1), "spec.completions: Invalid value: -1"),
    (sample("Job", spec__completions=None), "spec.completions: Required value"),
    (sample("Job", spec__template__spec__restartPolicy="Always"), 'restartPolicy: Required value: valid values: "OnF'),
    (sample("MutatingWebhookConfiguration", webhooks__0__sideEffects="Some"), 'Unsupported value: "Some"'),
    (sample("MutatingWebhookConfiguration", webhooks__0__timeoutSeconds=31), "must be between 1 and 30 seconds"),
    (sample("ValidatingWebhookConfiguration", webhooks__0__name="x"), "at least three segments"),
    (sample("PodDisruptionBudget", spec__minAvailable=1, spec__maxUnavailable=1), "cannot be both set"),
]


@pytest.mark.parametrize(("body", "why"), REFUSED, ids=[f"{body['kind']}-{why[:40]}" for body, why in REFUSED])
def test_what_kubernetes_refuses_is_refused(body: Json, why: str, shared: Api) -> None:
    status, answer = shared("POST", f"{collection(body)}?dryRun=All", body)
    assert status == 422, answer
    assert why.replace("\\", "") in answer["message"].replace("\\", "")


def test_a_job_gets_its_selector_and_its_defaults(api: Api) -> None:
    """[sig-apps] Job should ... adopt: the selector names the Job by its UID."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    job = {"metadata": {"name": "j"}, "spec": {"template": {"spec": pod}}}
    made = api.ok("POST", "/apis/batch/v1/namespaces/default/jobs", job)
    spec, uid = made["spec"], made["metadata"]["uid"]
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert spec["template"]["metadata"]["labels"]["job-name"] == "j"
    names = ("completions", "parallelism", "backoffLimit", "completionMode", "podReplacementPolicy", "suspend")
    assert [spec[name] for name in names] == [1, 1, 6, "NonIndexed", "TerminatingOrFailed", False]
    made["spec"]["template"]["spec"]["dnsPolicy"] = "Default"
    status, answer = api("PUT", "/apis/batch/v1/namespaces/default/jobs/j", made)
    assert (status, answer["details"]["causes"][0]["field"]) == (422, "spec.template")
    made["spec"]["template"]["spec"]["dnsPolicy"] = "ClusterFirst"
    made["spec"]["suspend"] = True
    assert api.ok("PUT", "/apis/batch/v1/namespaces/default/jobs/j", made)["metadata"]["generation"] == 2
