"""What the writer of an object is warned of, in Kubernetes' words."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.support.apiserver.server import Api

Json = dict[str, Any]


def warned(api: Api, method: str, path: str, body: Json, media: str = "application/json") -> tuple[int, list[str]]:
    response = api.raw(method, path, json.dumps(body).encode(), Content_Type=media)
    found = [re.fullmatch(r'299 - "(.*)"', each) for each in response.headers.get_all("Warning") or ()]
    return response.status, [each[1].replace('\\"', '"') for each in found if each is not None]


def test_warnings_stand_beside_refusals_that_come_after_validation(shared: Api) -> None:
    """k8s.io/apiserver pkg/registry/rest BeforeCreate warns before it is known that the name is taken."""
    path, body = "/api/v1/namespaces/default/limitranges", {"metadata": {"name": "twice"}, "spec": {"limits": []}}
    status, texts = warned(shared, "POST", path, body)
    assert (status, len(texts)) == (201, 1)
    assert warned(shared, "POST", path, body) == (409, texts)


def test_a_refusal_says_what_an_acceptance_would_warn_of_before_it(shared: Api) -> None:
    """Unknown fields are found before the object is looked at (k8s.io/apiserver pkg/endpoints/handlers)."""
    body = {"metadata": {"name": "Bad_Name"}, "data": {}, "bogus": 1}
    assert warned(shared, "POST", "/api/v1/namespaces/default/configmaps", body) == (422, ['unknown field "bogus"'])
    shared.ok("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "held"}})
    path, patch = "/api/v1/namespaces/default/configmaps/held", {"metadata": {"uid": "x"}, "bogus": 1}
    assert warned(shared, "PATCH", path, patch, "application/merge-patch+json") == (422, ['unknown field "bogus"'])
