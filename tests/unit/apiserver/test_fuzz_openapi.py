"""The server against its own OpenAPI: whatever comes, an answer in its form, nobody else hurt, nothing lost."""

from __future__ import annotations

import http.client
import json
import random
import ssl
import time
from pathlib import Path
from typing import Any

import pytest

from kproxy.apiserver import running_apiserver
from kproxy.apiserver.kinds.resources import built_in
from kproxy.apiserver.schema.protobuf import MEDIA_TYPE, decode_envelope, has_message
from tests.support.apiserver.definitions import definition
from tests.support.apiserver.openapi_fuzz import Drawn, Generator, seeds
from tests.support.apiserver.server import TOKENS, Api
from tests.support.examples import spread
from tests.support.waiting import PATIENCE

WITNESS = "/api/v1/namespaces/default/configmaps/witness"


def _connect(api: Api) -> http.client.HTTPSConnection:
    context = ssl.create_default_context(cafile=str(api.server.ca))
    return http.client.HTTPSConnection("127.0.0.1", api.server.port, context=context, timeout=PATIENCE)


def _check(drawn: Drawn, status: int, headers: Any, text: bytes) -> None:
    """Whether an answer is one: no fault of the server's, and a refusal is a Status with the same code."""
    where = f"{drawn.method} {drawn.path} {drawn.headers} {drawn.body[:3000]!r}: {status} {text[:600]!r}"
    # kube-apiserver answers with 500 too: an apply that does not fit the schema, a binding without target.
    known = (b"failed to create typed patch object", b"Internal error occurred: target.")
    assert status < 500 or any(each in text for each in known) or status == 504, where
    media = headers.get("Content-Type", "")
    if status < 400:
        return
    if media == MEDIA_TYPE:
        value = decode_envelope(text)
    elif media == "application/json":
        value = json.loads(text)
    else:
        assert media == "application/yaml" or (status == 404 and media.startswith("text/plain")), where
        return
    assert (value["kind"], value["code"]) == ("Status", status), where


def _fuzz(directory: Path, seed: int, count: int) -> None:
    (directory / "tokens.csv").write_text(TOKENS)
    with running_apiserver(directory, token_file=directory / "tokens.csv") as server:
        api = Api(server)
        api.ok("POST", WITNESS.rpartition("/")[0], {"metadata": {"name": "witness"}, "data": {"a": "b"}})
        api.ok("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition("nuts"))
        index = api.ok("GET", "/openapi/v3")["paths"]
        generator = Generator([api.ok("GET", f"/openapi/v3/{name}") for name in sorted(index)], random.Random(seed))
        connection = _connect(api)
        for number in range(count):
            drawn = generator.request()
            connection.request(
                drawn.method, drawn.path, drawn.body or None, {"Authorization": "Bearer admin-token", **drawn.headers}
            )
            response = connection.getresponse()
            _check(drawn, response.status, response.headers, response.read())
            if number % 200 == 0:
                for path, body in seeds(generator.operations):
                    assert api("POST", path, body)[0] < 500
                if api("GET", WITNESS)[0] == 404:  # a deletecollection was drawn
                    api.ok("POST", WITNESS.rpartition("/")[0], {"metadata": {"name": "witness"}, "data": {"a": "b"}})
        connection.close()
        _comes_to_rest(api)
        before = _everything(api)
    with running_apiserver(directory, token_file=directory / "tokens.csv") as server:
        after = _everything(Api(server))
    for path, objects in before.items():
        # A start brings up to date where the server is reached, and ClusterRoles that aggregate those it makes.
        same = [each for each in objects if each["metadata"]["name"] != "kubernetes" and "aggregationRule" not in each]
        lost = [each for each in same if each not in after[path]]
        assert not lost, f"{path}: {lost[:3]}"


def _comes_to_rest(api: Api) -> None:
    """Controllers stop writing: no two of them, and no one alone, chases what it has written itself."""
    revision = ""
    for _ in range(240):
        found = api.ok("GET", "/api/v1/configmaps")["metadata"]["resourceVersion"]
        if found == revision:
            return
        revision = found
        time.sleep(0.5)
    raise AssertionError("controllers still write after two minutes")


def _everything(api: Api) -> dict[str, Any]:
    """Every object by path; each can also be shown as a table and, where there is a message, in protobuf."""
    found = {}
    for resource in built_in():
        if not resource.stored:
            continue
        base = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
        path = f"{base}/{resource.plural}"
        found[path] = api.ok("GET", path)["items"]
        table = api("GET", path, Accept="application/json;as=Table;v=v1;g=meta.k8s.io")
        assert table[0] == 200, table
        assert len(table[1]["rows"]) == len(found[path])
        if has_message(resource.api_version, resource.kind):
            listed = decode_envelope(api.raw("GET", path, Accept=MEDIA_TYPE).read())
            names = [each["metadata"]["uid"] for each in listed.get("items", [])]
            assert names == [each["metadata"]["uid"] for each in found[path]]
    return found


@pytest.mark.parametrize("count", spread([300, 700, 4000], 1, 1))
def test_requests_from_its_own_openapi(tmp_path: Path, count: int) -> None:
    _fuzz(tmp_path, count, count)
