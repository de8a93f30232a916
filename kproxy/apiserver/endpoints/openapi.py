"""OpenAPI v3 and v2: the recorded schemas, and the one path of each resource that clients look at.

`kubectl explain` and client-side validation read the schemas. A path tells which resource has which schema, and its
PATCH has the parameters by which kubectl finds out that a server knows `dryRun` and `fieldValidation`. Clients older
than v1.27 validate against v2, which they ask for in protobuf (openapi2pb.py).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.resources import Resource
from kproxy.apiserver.registry.writes import CUSTOM_PATCHES, PATCHES
from kproxy.apiserver.schema.types import META, definitions

_MEDIA: Final = ("application/json", "application/yaml")
_REFERENCE: Final = re.compile(r'"#/components/schemas/([^"]+)"')
_WRITE_QUERY: Final = ("dryRun", "fieldManager", "fieldValidation")


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


def _operation(action: str, resource: Resource, name: str, **extra: Any) -> Json:
    words = [action, *re.split(r"[.\-]", resource.group), resource.version, resource.kind]
    reference = {"schema": {"$ref": f"#/components/schemas/{name}"}}
    return {
        "operationId": words[0] + "".join(word[:1].upper() + word[1:] for word in words[1:]),
        **extra,
        "responses": {"200": {"description": "OK", "content": dict.fromkeys(_MEDIA, reference)}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {
            "group": resource.group, "version": resource.version, "kind": resource.kind,
        },
    }  # fmt: skip


def _path(resource: Resource) -> tuple[str, Json]:
    """Where an object is read and patched, or, of a kind that is only answered, posted."""
    base = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    names = ["namespace"] if resource.namespaced else []
    place = f"{base}/namespaces/{{namespace}}/{resource.plural}" if names else f"{base}/{resource.plural}"
    name = schema_name(resource)
    found: Json = {}
    if resource.stored:
        names.append("name")
        place += "/{name}"
        found["get"] = _operation("get", resource, name)
        parameters = [
            {"name": each, "in": "query", "schema": {"type": "string", "uniqueItems": True}} for each in _WRITE_QUERY
        ]
        reference = {"schema": {"$ref": f"#/components/schemas/{META}Patch"}}
        patches = CUSTOM_PATCHES if resource.custom else PATCHES
        body = {"required": True, "content": dict.fromkeys(sorted(patches), reference)}
        found["patch"] = _operation("patch", resource, name, parameters=parameters, requestBody=body)
    else:
        found["post"] = _operation("post", resource, name)
    found["parameters"] = [
        {"name": each, "in": "path", "required": True, "schema": {"type": "string"}} for each in names
    ]
    return place, found


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
        paths |= dict([_path(resource)])
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
