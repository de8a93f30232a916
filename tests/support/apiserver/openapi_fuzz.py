"""Requests drawn from the OpenAPI documents that the server itself serves: mostly well-formed, never tame."""

from __future__ import annotations

import json
import random
import struct
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from kproxy.apiserver.schema.protobuf import encode_envelope, has_message

NAMES = ["a", "b", "a.fuzz.example.org", "kubernetes", "default", "A_", "x" * 70, "10.0.0.1", ""]
TEXTS = [
    "", "a", "http", "TCP", "10.0.0.1", "10.1.2.3", "fd00::1", "10.0.0.0/8", "default", "ClusterIP", "NodePort", "None",
    "LoadBalancer", "ExternalName", "Local", "v1", "apps/v1", "Pod", "\u0000", "é\U0001f600", "x" * 300, "100m", "1Gi",
    "2026-01-02T03:04:05Z", "*", "list", "pods", "system:masters", "kubernetes", "a.b/c", "-1", "foregroundDeletion",
]  # fmt: skip
TAME = ["a", "b", "http", "TCP", "10.1.2.3", "10.0.0.0/8", "v1", "Pod", "kubernetes", "IPv4", "get", "pods"]
NUMBERS = [0, 1, 80, 30000, 65535, 65536, -1, 2**31 - 1, 2**31, 2**63, 5]
WRONG: list[Any] = [None, 5, "x", [], {}, True, 1.5, [None], [[]], {"a": {"b": []}}]
QUERY: dict[str, list[str]] = {
    "limit": ["0", "1", "-1", "x", "99999999999999999999"],
    "continue": ["x", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhXHUwMDAwIn0", "e30"],
    "labelSelector": ["a=b", "!a", "a in (b,c)", "a in (", "=", "a notin (b),c", "a,b,!c", "\u0000"],
    "fieldSelector": ["metadata.name=a", "metadata.name!=a,metadata.namespace=default", "x=y", "metadata.name", "=="],
    "resourceVersion": ["0", "1", "5", "-1", "x", "99999999999999999999999"],
    "resourceVersionMatch": ["Exact", "NotOlderThan", "x"],
    "sendInitialEvents": ["true", "false", "x"],
    "allowWatchBookmarks": ["true", "x"],
    "dryRun": ["All", "x"],
    "fieldManager": ["m", "\u0007", "x" * 200],
    "fieldValidation": ["Strict", "Warn", "Ignore", "x"],
    "force": ["true", "x"],
    "propagationPolicy": ["Foreground", "Orphan", "Background", "x"],
    "gracePeriodSeconds": ["0", "1", "-1", "x"],
    "pretty": ["true", "false", "x"],
}
_POD: dict[str, Any] = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {
        "containers": [
            {
                "name": "c", "image": "i", "ports": [{"name": "http", "containerPort": 80, "protocol": "TCP"}],
                "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "resources": {"requests": {"cpu": "1"}}, "readinessProbe": {"httpGet": {"port": "http"}},
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            },
        ],
        "volumes": [{"name": "v", "emptyDir": {}}], "tolerations": [{"key": "a", "operator": "Exists"}],
    },
}  # fmt: skip
_WORKLOAD = {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": _POD}}
_RULE = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
_ROLE_REF = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
_BINDING = {"roleRef": _ROLE_REF, "subjects": [{"kind": "User", "name": "u", "apiGroup": "rbac.authorization.k8s.io"}]}
_SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object", "required": ["n"],
            "properties": {
                "n": {"type": "integer", "minimum": 1, "default": 2}, "s": {"type": "string", "pattern": "^a+$"},
                "l": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string", "maxLength": 3}},
                "m": {"type": "object", "additionalProperties": {"type": "number"}},
                "o": {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True},
            },
        },
    },
}  # fmt: skip
_VERSION = {
    "name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": _SCHEMA},
    "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}},
    "additionalPrinterColumns": [{"name": "N", "type": "integer", "jsonPath": ".spec.n"}],
}  # fmt: skip
_PARTS: dict[str, Any] = {
    "services": {
        "spec": {
            "selector": {"a": "b"}, "type": "LoadBalancer", "ipFamilyPolicy": "PreferDualStack",
            "ipFamilies": ["IPv4", "IPv6"], "externalTrafficPolicy": "Local", "externalIPs": ["192.0.2.1"],
            "loadBalancerSourceRanges": ["10.0.0.0/8"], "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 5}},
            "ports": [{"name": "a", "port": 80, "targetPort": "http", "nodePort": 30123}, {"name": "b", "port": 81}],
        },
    },
    "pods": _POD,
    "deployments": _WORKLOAD,
    "daemonsets": _WORKLOAD,
    "replicasets": _WORKLOAD,
    "endpoints": {"subsets": [{"addresses": [{"ip": "10.1.0.1"}], "ports": [{"port": 80, "name": "a"}]}]},
    "endpointslices": {
        "addressType": "IPv4", "ports": [{"name": "a", "port": 80}],
        "endpoints": [{"addresses": ["10.1.0.1"], "nodeName": "a", "hints": {"forZones": [{"name": "z"}]}}],
    },
    "networkpolicies": {"spec": {"podSelector": {}, "ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]}},
    "nodes": {"spec": {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"], "taints": [{"key": "a", "effect": "x"}]}},
    "roles": {"rules": [_RULE]},
    "clusterroles": {"rules": [_RULE], "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}},
    "rolebindings": _BINDING,
    "clusterrolebindings": _BINDING,
    "servicecidrs": {"spec": {"cidrs": ["10.200.0.0/24"]}},
    "secrets": {"type": "Opaque", "data": {"a": "eA=="}, "stringData": {"b": "c"}},
    "configmaps": {"data": {"a": "b"}, "binaryData": {"c": "eA=="}, "immutable": False},
    "leases": {"spec": {"holderIdentity": "a", "leaseDurationSeconds": 5, "renewTime": "2026-01-02T03:04:05.000000Z"}},
    "nuts": {"spec": {"size": 1, "ports": [{"name": "a", "n": 1}]}},
    "customresourcedefinitions": {
        "spec": {
            "group": "fuzz.example.org", "scope": "Namespaced", "versions": [_VERSION],
            "names": {"plural": "a", "kind": "A", "singular": "a", "listKind": "AList", "shortNames": ["aa"]},
        },
    },
}  # fmt: skip


def mutated(value: Any, rng: random.Random) -> Any:
    """A copy of a valid object with one to three of its values changed, taken away, doubled or moved."""
    value = _fresh(value)
    for _ in range(rng.randrange(1, 4)):
        places: list[tuple[Any, Any]] = []
        stack = [value]
        while stack:
            item = stack.pop()
            keys = list(item) if isinstance(item, dict) else range(len(item)) if isinstance(item, list) else ()
            for key in keys:
                places.append((item, key))
                stack.append(item[key])
        if not places:
            break
        holder, key = rng.choice(places)
        match rng.randrange(5):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, list):
                holder.append(_fresh(holder[key]))
            case 2:
                other, name = rng.choice(places)
                holder[key] = _fresh(other[name]) if _has(other, name) else None
            case _:
                holder[key] = _fresh(rng.choice([*WRONG, *TEXTS, *NUMBERS]))
    return value


def _fresh(value: Any) -> Any:
    """A deep copy, so that no two places share what one of them may change."""
    return json.loads(json.dumps(value))


def _has(holder: Any, key: Any) -> bool:
    return key in holder if isinstance(holder, dict) else key < len(holder)


def seeds(operations: list[tuple[str, str, Any]]) -> list[tuple[str, Any]]:
    """Path and body of a plain object `a` of many kinds, for later requests to meet."""
    found = []
    for method, path, _ in operations:
        plural = path.rpartition("/")[2]
        if method == "post" and "review" not in plural and plural != "bindings":
            meta = {**_PARTS.get(plural, {}).get("metadata", {}), "name": "a"}
            if plural == "customresourcedefinitions":
                meta["name"] = "a.fuzz.example.org"
            found.append((path.replace("{namespace}", "default"), {**_PARTS.get(plural, {}), "metadata": meta}))
    return found


ACCEPT = [
    "application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "*/*", "text/html", "",
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", ";;;,q=", "application/json;q=x",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
]  # fmt: skip


@dataclass
class Drawn:
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Generator:
    """Draws requests from OpenAPI v3 documents."""

    def __init__(self, documents: list[Any], rng: random.Random) -> None:
        self._rng = rng
        self._wild = True
        """Whether this request may have values that do not fit its schema."""
        self._schemas: dict[str, Any] = {}
        self.operations: list[tuple[str, str, Any]] = []
        for document in documents:
            self._schemas |= document["components"]["schemas"]
            for path, item in document["paths"].items():
                self.operations += [(method, path, item[method]) for method in item if method != "parameters"]
                if "patch" in item:  # the document has one path of a resource; the others have the same schema
                    read = item["get"]
                    written = {**read, "requestBody": {"content": read["responses"]["200"]["content"]}}
                    base = path.removesuffix("/{name}")
                    self.operations += [
                        ("put", path, written), ("delete", path, read), ("post", base, written), ("get", base, read),
                        ("delete", base, read),
                    ]  # fmt: skip

    def request(self) -> Drawn:
        """The next request."""
        rng = self._rng
        method, template, operation = rng.choice(self.operations)
        self._wild = rng.random() < 0.4
        names = NAMES[:2] if rng.random() < 0.7 else NAMES
        if "customresourcedefinitions" in template:
            names = NAMES[2:3]
        namespace = "default" if rng.random() < 0.8 else rng.choice(["kube-system", "nope", "", "A_"])
        name = rng.choice(names)
        path = template.replace("{namespace}", quote(namespace)).replace("{name}", quote(name))
        query = {
            key: rng.choice(values) for key, values in QUERY.items() if rng.random() < (0.06 if self._wild else 0.01)
        }
        if method == "patch" and rng.random() < 0.8:
            query["fieldManager"] = "fuzz"
        if method == "get" and rng.random() < 0.1:
            query |= {"watch": "1", "timeoutSeconds": "1"} if rng.random() < 0.1 else {"timeoutSeconds": "1"}
        headers = {"Accept": rng.choice(ACCEPT)} if rng.random() < (0.3 if self._wild else 0.05) else {}
        body = b""
        if "requestBody" in operation:
            body, headers["Content-Type"] = self._body(method, template, operation, name)
        return Drawn(method.upper(), f"{path}?{urlencode(query)}" if query else path, headers, body)

    def _body(self, method: str, path: str, operation: Any, name: str) -> tuple[bytes, str]:
        rng = self._rng
        content = operation["requestBody"]["content"]
        media = rng.choice(list(content))
        kind = operation["x-kubernetes-group-version-kind"]
        schema = next(iter(content.values()))["schema"]
        if method == "patch":
            schema = next(iter(operation["responses"]["200"]["content"].values()))["schema"]
        plural = next((part for part in reversed(path.split("/")) if part in _PARTS), "")
        if plural and rng.random() < 0.5:
            value = mutated({**_PARTS[plural], "metadata": {"labels": {"a": "b"}, "finalizers": ["a.b/c"]}}, rng)
        else:
            value = self._value(schema, 0)
        api_version = f"{kind['group']}/{kind['version']}" if kind["group"] else kind["version"]
        if isinstance(value, dict):
            if rng.random() < 0.95:
                value["apiVersion"], value["kind"] = api_version, kind["kind"]
            if rng.random() < 0.9:
                meta = value.get("metadata")
                value["metadata"] = {**(meta if isinstance(meta, dict) else {}), "name": name}
                for field in (
                    "resourceVersion",
                    "uid",
                    "namespace",
                    "generateName",
                    "ownerReferences",
                    "managedFields",
                ):
                    if not self._wild or rng.random() < 0.7:
                        value["metadata"].pop(field, None)
        if media == "application/json-patch+json":
            operations = ["add", "remove", "replace", "test", "move", "copy", "x"]
            paths = ["/metadata/labels/a", "/spec", "/spec/ports/0/port", "/data/-", "/metadata", "", "/a~1b", "x"]
            value = [
                {"op": rng.choice(operations), "path": rng.choice(paths), "value": self._value(schema, 2),
                 "from": rng.choice(paths)}
                for _ in range(rng.randrange(3))
            ]  # fmt: skip
        text = json.dumps(value).encode()
        if method != "patch" and rng.random() < 0.1 and has_message(api_version, kind["kind"]):
            try:
                return encode_envelope(value), "application/vnd.kubernetes.protobuf"
            except (AttributeError, TypeError, ValueError, IndexError, struct.error):
                return text, media  # a value of a wrong type has no encoding
        if self._wild and rng.random() < 0.05:
            text = text[: rng.randrange(len(text))]
        return text, media

    def _value(self, schema: Any, depth: int) -> Any:
        rng = self._rng
        if self._wild and rng.random() < 0.02:
            return _fresh(rng.choice(WRONG))
        if "allOf" in schema:
            return self._value(schema["allOf"][0], depth)
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            if name.endswith("resource.Quantity"):
                return rng.choice(["100m", "1Gi", "5", "x"] if self._wild else ["100m", "1Gi", "5"])
            return self._value(self._schemas[name], depth)
        if "enum" in schema and (not self._wild or rng.random() < 0.9):
            return rng.choice(schema["enum"])
        match schema.get("type"):
            case "object":
                return self._object(schema, depth)
            case "array":
                count = 0 if depth > 7 else rng.choice([0, 1, 1, 2])
                return [self._value(schema["items"], depth + 1) for _ in range(count)]
            case "integer" | "number":
                return rng.choice(NUMBERS if self._wild else [1, 2, 80])
            case "boolean":
                return rng.random() < 0.5
            case "string":
                return self._text(schema.get("format", ""))
        return _fresh(rng.choice([5, "http", *WRONG] if self._wild else [5, "http"]))

    def _text(self, form: str) -> str:
        if self._wild and self._rng.random() < 0.3:
            return self._rng.choice(TEXTS)
        if form == "date-time":
            return "2026-01-02T03:04:05Z"
        return "eA==" if form == "byte" else self._rng.choice(TAME)

    def _object(self, schema: Any, depth: int) -> Any:
        rng = self._rng
        found = {}
        likely = (0.5 if depth < 2 else 0.3) if self._wild else (0.5 if depth < 2 else 0.1)
        for name, child in schema.get("properties", {}).items():
            if depth < 8 and (rng.random() < likely or (name in schema.get("required", ()) and depth < 6)):
                found[name] = self._value(child, depth + 1)
        if isinstance(schema.get("additionalProperties"), dict) and depth < 8:
            for _ in range(rng.randrange(3)):
                found[rng.choice(TEXTS if self._wild else TAME)] = self._value(
                    schema["additionalProperties"], depth + 1
                )
        if self._wild and rng.random() < 0.02:
            found["unheardOf"] = 1
        return found
