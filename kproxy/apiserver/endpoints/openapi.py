"""OpenAPI v3 and v2: the recorded schemas, and paths generated from the table of resources.

`kubectl explain` reads v3; `kubectl apply` looks in v3 for the fieldValidation parameter of a kind's PATCH;
clients older than v1.27 validate against v2, which they ask for in protobuf (openapi2pb.py).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.resources import Resource, Subresource
from kproxy.apiserver.schema.types import META, definitions

_MEDIA: Final = ("application/json", "application/yaml")
_PATCHES: Final = (
    "application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)  # fmt: skip
_REFERENCE: Final = re.compile(r'"#/components/schemas/([^"]+)"')
_LIST_QUERY: Final = (
    ("allowWatchBookmarks", "boolean"), ("continue", "string"), ("fieldSelector", "string"),
    ("labelSelector", "string"), ("limit", "integer"), ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"), ("sendInitialEvents", "boolean"), ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
)  # fmt: skip
_WRITE_QUERY: Final = (("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"))
_DELETE_QUERY: Final = (
    ("dryRun", "string"), ("gracePeriodSeconds", "integer"), ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
)  # fmt: skip


def schema_name(resource: Resource) -> str:
    """The name of a resource's schema: the recorded one, or `org.example.v1.Fruit`."""
    if resource.schema_name:
        return resource.schema_name
    return ".".join([*reversed(resource.group.split(".")), resource.version, resource.kind])


_CONVENTIONS: Final = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
_TYPE_META: Final[Json] = {
    "apiVersion": {
        "type": "string",
        "description": "APIVersion defines the versioned schema of this representation of an object. Servers should "
        "convert recognized schemas to the latest internal value, and may reject unrecognized values. "
        f"More info: {_CONVENTIONS}#resources",
    },
    "kind": {
        "type": "string",
        "description": "Kind is a string value representing the REST resource this object represents. Servers may "
        "infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. "
        f"More info: {_CONVENTIONS}#types-kinds",
    },
}
"""What every kind has, in the words of kube-apiserver (k8s.io/apimachinery meta/v1 TypeMeta)."""


def _metadata(kind: str, description: str) -> Json:
    return {"description": description, "allOf": [{"$ref": f"#/components/schemas/{META}{kind}"}]}


def _custom_schemas(resource: Resource) -> Json:
    """The schemas of a custom resource and its list."""
    name = schema_name(resource)
    gvk = {"group": resource.group, "version": resource.version}
    schema: Json = {**resource.node.schema, "x-kubernetes-group-version-kind": [{**gvk, "kind": resource.kind}]}
    schema.setdefault("type", "object")
    properties = dict(schema.get("properties") or {})
    about = f"Standard object's metadata. More info: {_CONVENTIONS}#metadata"
    properties |= {**_TYPE_META, "metadata": _metadata("ObjectMeta", about)}
    schema["properties"] = properties
    listed = {
        "type": "object",
        "required": ["items"],
        "properties": {
            **_TYPE_META,
            "metadata": _metadata("ListMeta", f"Standard list metadata. More info: {_CONVENTIONS}#types-kinds"),
            "items": {
                "type": "array",
                "items": {"$ref": f"#/components/schemas/{name}"},
                "description": f"List of {resource.plural}. More info: {_CONVENTIONS}",
            },
        },
        "x-kubernetes-group-version-kind": [{**gvk, "kind": resource.list_kind}],
    }
    return {name: schema, f"{name}List": listed}


def _reachable(names: Iterable[str], known: Json) -> Json:
    found: Json = {}
    todo = list(names)
    while todo:
        name = todo.pop()
        if name in found or name not in known:
            continue
        found[name] = known[name]
        todo += _REFERENCE.findall(msgspec.json.encode(known[name]).decode())
    return dict(sorted(found.items()))


def _parameters(pairs: Iterable[tuple[str, str]]) -> list[Json]:
    return [{"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": True}} for name, kind in pairs]


def _answer(name: str) -> Json:
    reference = {"schema": {"$ref": f"#/components/schemas/{name}"}}
    return {"description": "OK", "content": dict.fromkeys(_MEDIA, reference)}


def _operation(action: str, resource: Resource, kind: Json, name: str, **extra: Any) -> Json:
    words = [action, *re.split(r"[.\-]", resource.group), resource.version, resource.kind]
    identity = words[0] + "".join(word[:1].upper() + word[1:] for word in words[1:]) + extra.pop("suffix", "")
    return {
        "operationId": identity,
        **extra,
        "responses": {"200": _answer(name), "401": {"description": "Unauthorized"}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": kind,
    }


def _body(name: str, media: Iterable[str]) -> Json:
    return {"required": True, "content": {each: {"schema": {"$ref": f"#/components/schemas/{name}"}} for each in media}}


def _paths(resource: Resource) -> Iterator[tuple[str, Json]]:
    base = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    collection = (
        f"{base}/namespaces/{{namespace}}/{resource.plural}" if resource.namespaced else f"{base}/{resource.plural}"
    )
    kind: Json = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    name, listed = schema_name(resource), f"{schema_name(resource)}List"
    parameters: list[Json] = []
    if resource.namespaced:
        parameters.append({"name": "namespace", "in": "path", "required": True, "schema": {"type": "string"}})
    verbs = resource.verbs
    whole: Json = {"parameters": parameters}
    if "list" in verbs:
        whole["get"] = _operation("list", resource, kind, listed, parameters=_parameters(_LIST_QUERY))
    if "create" in verbs:
        parameters = _parameters(_WRITE_QUERY)
        body = _body(name, ("application/json", "application/yaml"))
        whole["post"] = _operation("post", resource, kind, name, parameters=parameters, requestBody=body)
    if "deletecollection" in verbs:
        parameters = _parameters((*_DELETE_QUERY, *_LIST_QUERY[1:7]))
        status = f"{META}Status"
        whole["delete"] = _operation("deletecollection", resource, kind, status, parameters=parameters)
    yield collection, whole
    if resource.namespaced and "list" in verbs:
        every = _operation(
            "list", resource, kind, listed, parameters=_parameters(_LIST_QUERY), suffix="ForAllNamespaces"
        )
        yield f"{base}/{resource.plural}", {"get": every}
    if "get" not in verbs:
        return
    one = [*parameters, {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}]
    yield f"{collection}/{{name}}", {"parameters": one, **_object_operations(resource, kind, name, "", verbs)}
    for each in resource.subresources:
        if set(each.verbs) <= {"get", "patch", "update"}:
            yield (
                f"{collection}/{{name}}/{each.name}",
                {"parameters": one, **_sub_operations(resource, each, kind, name)},
            )


def _sub_operations(resource: Resource, each: Subresource, kind: Json, name: str) -> Json:
    if each.group:
        kind = {"group": each.group, "version": each.version, "kind": each.kind}
        name = "io.k8s.api.autoscaling.v1.Scale"
    return _object_operations(resource, kind, name, each.name.title(), each.verbs)


def _object_operations(resource: Resource, kind: Json, name: str, suffix: str, verbs: Iterable[str]) -> Json:
    found: Json = {}
    parameters = _parameters(_WRITE_QUERY)
    if "get" in verbs:
        found["get"] = _operation("get", resource, kind, name, suffix=suffix)
    if "update" in verbs:
        body = _body(name, ("application/json", "application/yaml"))
        found["put"] = _operation("put", resource, kind, name, parameters=parameters, requestBody=body, suffix=suffix)
    if "patch" in verbs:
        media = [each for each in _PATCHES if not (resource.custom and "strategic" in each)]
        forced = [*parameters, *_parameters([("force", "boolean")])]
        body = _body(f"{META}Patch", media)
        found["patch"] = _operation("patch", resource, kind, name, parameters=forced, requestBody=body, suffix=suffix)
    if "delete" in verbs and not suffix:
        found["delete"] = _operation("delete", resource, kind, f"{META}Status", parameters=_parameters(_DELETE_QUERY))
    return found


def document(resources: Iterable[Resource]) -> Json:
    """An OpenAPI v3 document of some resources."""
    rows = list(resources)
    known: Json = dict(definitions())
    names = [f"{META}{name}" for name in ("Status", "Patch", "DeleteOptions", "WatchEvent")]
    paths: Json = {}
    for resource in rows:
        if resource.custom:
            known |= _custom_schemas(resource)
        names += [schema_name(resource), f"{schema_name(resource)}List"]
        names += ["io.k8s.api.autoscaling.v1.Scale"] if resource.subresource("scale") else []
        paths |= dict(_paths(resource))
    security = {"BearerToken": {"type": "apiKey", "name": "authorization", "in": "header"}}
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.2"},
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": _reachable(names, known), "securitySchemes": security},
    }


class Documents:
    """The encoded documents of the current resources, made when asked for and dropped when resources change."""

    def __init__(self) -> None:
        self._made: dict[str, bytes] = {}

    def clear(self) -> None:
        """Forgets everything: the resources have changed."""
        self._made.clear()

    def v3(self, path: str, resources: Iterable[Resource]) -> bytes:
        """The document of `api/v1` or `apis/GROUP/VERSION`."""
        if path not in self._made:
            self._made[path] = msgspec.json.encode(document(resources))
        return self._made[path]

    def index(self, groups: dict[str, list[Resource]]) -> Json:
        """`/openapi/v3`: every document with its hash."""
        found = {}
        for path, rows in groups.items():
            digest = hashlib.sha512(self.v3(path, rows)).hexdigest().upper()
            found[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
        return {"paths": found}

    def v2(self, resources: Iterable[Resource], *, protobuf: bool) -> bytes:
        """The one OpenAPI v2 document, as JSON or protobuf."""
        key = "v2.pb" if protobuf else "v2"
        if key not in self._made:
            rows = list(resources)
            converted = to_v2(document(rows))
            _free_roots(converted, rows)
            if protobuf:
                from kproxy.apiserver.endpoints.openapi2pb import encode_document

                self._made[key] = encode_document(converted)
            else:
                self._made[key] = msgspec.json.encode(converted)
        return self._made[key]


def _free_roots(v2: Json, resources: Iterable[Resource]) -> None:
    """Makes of a custom resource that preserves unknown fields at its root a bare object, in place: clients that
    validate with OpenAPI v2 take whatever is listed for all there is.

    Source: k8s.io/apiextensions-apiserver pkg/controller/openapi/builder (buildKubeNative).
    """
    for resource in resources:
        if resource.custom and resource.node.preserve:
            name = schema_name(resource)
            kind = v2["definitions"][name]["x-kubernetes-group-version-kind"]
            v2["definitions"][name] = {"type": "object", "x-kubernetes-group-version-kind": kind}


def to_v2(v3: Json) -> Json:
    """An OpenAPI v2 document with the same schemas and paths."""
    paths: Json = {}
    for path, entry in v3["paths"].items():
        paths[path] = {
            key: _v2_parameters(value) if key == "parameters" else _v2_operation(value) for key, value in entry.items()
        }
    return {
        "swagger": "2.0",
        "info": v3["info"],
        "paths": paths,
        "definitions": {name: _v2_schema(schema) for name, schema in v3["components"]["schemas"].items()},
    }


def _v2_parameters(parameters: list[Json]) -> list[Json]:
    return [{**{k: v for k, v in each.items() if k != "schema"}, "type": each["schema"]["type"]} for each in parameters]


def _v2_operation(operation: Json) -> Json:
    parameters = _v2_parameters(operation.get("parameters", []))
    consumes = ["*/*"]
    if body := operation.get("requestBody"):
        schema = next(iter(body["content"].values()))["schema"]
        consumes = list(body["content"])
        parameters.append({"name": "body", "in": "body", "required": True, "schema": _v2_schema(schema)})
    responses = {}
    for code, response in operation["responses"].items():
        content = response.get("content")
        responses[code] = {"description": response["description"]}
        if content:
            responses[code]["schema"] = _v2_schema(next(iter(content.values()))["schema"])
    kept = {key: operation[key] for key in operation if key == "operationId" or key.startswith("x-")}
    return {**kept, "consumes": consumes, "produces": list(_MEDIA), "parameters": parameters, "responses": responses}


def _v2_schema(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_v2_schema(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    result = {}
    for key, value in schema.items():
        if key == "$ref":
            result[key] = value.replace("#/components/schemas/", "#/definitions/")
        elif key == "allOf" and len(value) == 1 and "$ref" in value[0]:
            result["$ref"] = value[0]["$ref"].replace("#/components/schemas/", "#/definitions/")
        elif key in ("oneOf", "anyOf", "not", "nullable"):
            continue
        elif key == "properties":
            result[key] = {name: _v2_schema(child) for name, child in value.items()}
        else:
            result[key] = _v2_schema(value) if isinstance(value, dict | list) and key != "default" else value
    if result.get("format") == "int-or-string":
        result["type"] = "string"
    return result
