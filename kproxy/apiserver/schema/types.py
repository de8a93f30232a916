"""Types of objects, compiled from OpenAPI: what decoding, defaulting, patching and field ownership need to know.

data/schemas.json holds the schemas that kube-apiserver v1.36.2 serves for the kinds served here (recorded from
/openapi/v3, descriptions left out): types, required fields, defaults, list-map keys and merge keys. A custom resource
brings its own structural schema, compiled the same way.

OpenAPI does not say all that a Go struct says. `default: {}` marks a struct that is no pointer, which is why it is
always present in an object; a required list that is missing is `null`; and the numbers and booleans that vanish when
they are zero are listed in `OMIT_ZERO`, since pointers (spec.replicas) must keep their zero.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any, Final

import msgspec

Json = dict[str, Any]

META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
OBJECT_META: Final = META + "ObjectMeta"

_NAMED: Final = {
    META + "Time": "time",
    META + "MicroTime": "microtime",
    META + "FieldsV1": "any",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "intstr",
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "quantity",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "any",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON": "any",
}

OMIT_ZERO: Final = frozenset(
    {
        "nodePort", "healthCheckNodePort", "publishNotReadyAddresses", "hostNetwork", "hostPID", "hostIPC", "stdin",
        "stdinOnce", "tty", "paused", "unschedulable", "hostPort", "minReadySeconds", "initialDelaySeconds",
        "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold", "readOnly", "count", "generation",
        "observedGeneration", "currentReplicas", "readyReplicas", "availableReplicas", "updatedReplicas",
        "unavailableReplicas", "terminatingReplicas", "fullyLabeledReplicas", "numberAvailable", "numberUnavailable",
        "updatedNumberScheduled", "preserveUnknownFields", "exclusiveMinimum", "exclusiveMaximum", "uniqueItems",
        "nullable", "x-kubernetes-embedded-resource", "x-kubernetes-int-or-string", "deprecated", "denied",
    }
)  # fmt: skip
"""Fields whose Go type is a plain int or bool with omitempty (kubernetes/api types.go)."""

POINTER_ZERO: Final = frozenset({("ClientIPConfig", "timeoutSeconds"), ("VolumeNodeResources", "count")})
"""Exceptions of OMIT_ZERO: pointers of the same name."""

POINTER_TIMES: Final = frozenset(
    {
        ("AllocationResult", "allocationTimestamp"), ("CronJobStatus", "lastScheduleTime"),
        ("CronJobStatus", "lastSuccessfulTime"), ("DeviceTaint", "timeAdded"),
        ("HorizontalPodAutoscalerStatus", "lastScaleTime"), ("JobStatus", "completionTime"),
        ("JobStatus", "startTime"), ("LeaseSpec", "acquireTime"), ("LeaseSpec", "renewTime"),
        ("ManagedFieldsEntry", "time"), ("ObjectMeta", "creationTimestamp"), ("ObjectMeta", "deletionTimestamp"),
        ("PersistentVolumeStatus", "lastPhaseTransitionTime"), ("PodStatus", "startTime"), ("Taint", "timeAdded"),
    }
)  # fmt: skip
"""Times that Go leaves out when they are not set: pointers, and the one with omitzero. Others are structs, which
omitempty does not leave out: they are printed as `null`."""

NEVER_OMITTED: Final = frozenset(
    {
        ("EndpointSlice", "endpoints"), ("EndpointSlice", "ports"), ("CustomResourceDefinitionStatus", "conditions"),
        ("Event", "reportingComponent"), ("Event", "reportingInstance"), ("StatefulSetOrdinals", "start"),
        ("StatefulSetSpec", "serviceName"), ("StatefulSetStatus", "availableReplicas"),
    }
)  # fmt: skip
"""Optional fields that Go prints also when they are not set, lists as `null`: no omitempty in their tag."""

_EITHER: Final = {
    "JSONSchemaPropsOrArray": "array", "JSONSchemaPropsOrBool": "boolean", "JSONSchemaPropsOrStringArray": "strings",
}  # fmt: skip
"""Types of CustomResourceDefinitions that are a schema or something else, which OpenAPI does not say."""

EMPTY_KEPT: Final = frozenset(
    {
        ("CSIDriverSpec", "fsGroupPolicy"), ("CronJobSpec", "timeZone"), ("EnvVar", "value.pointer"),
        ("IngressClassParametersReference", "scope"),
        ("JobSpec", "completionMode"), ("JobSpec", "podReplacementPolicy"), ("MatchResources", "matchPolicy"),
        ("MutatingAdmissionPolicySpec", "failurePolicy"), ("MutatingWebhook", "failurePolicy"),
        ("MutatingWebhook", "matchPolicy"), ("MutatingWebhook", "reinvocationPolicy"),
        ("NetworkPolicyPort", "protocol"), ("ParamRef", "parameterNotFoundAction"),
        ("PersistentVolumeClaimSpec", "storageClassName"), ("PersistentVolumeClaimSpec", "volumeMode"),
        ("PersistentVolumeSpec", "volumeMode"), ("PodDisruptionBudgetSpec", "unhealthyPodEvictionPolicy"),
        ("PodSecurityContext", "fsGroupChangePolicy"), ("PodSecurityContext", "supplementalGroupsPolicy"),
        ("PodSpec", "preemptionPolicy"), ("PriorityClass", "preemptionPolicy"), ("SecurityContext", "procMount"),
        ("ServiceSpec", "internalTrafficPolicy"), ("ServiceSpec", "ipFamilyPolicy"),
        ("ServiceSpec", "trafficDistribution"), ("StorageClass", "reclaimPolicy"),
        ("StorageClass", "volumeBindingMode"), ("TopologySpreadConstraint", "nodeAffinityPolicy"),
        ("TopologySpreadConstraint", "nodeTaintsPolicy"), ("ValidatingAdmissionPolicySpec", "failurePolicy"),
        ("ValidatingWebhook", "failurePolicy"), ("ValidatingWebhook", "matchPolicy"),
        ("VolumeMount", "mountPropagation"),
    }
)  # fmt: skip
"""Optional strings that are pointers, so that "" is not the same as absent."""


class Node:
    """One type. `kind` is object, map, list, string, integer, number, boolean, any, intstr, quantity, time, microtime,
    bytes or schemaor (`item`, or what `format` says); `name` is the schema's last name component, as Go names the
    struct."""

    __slots__ = (
        "always", "default", "embedded", "enum", "format", "item", "kind", "list_keys", "list_type", "merge_key",
        "merging", "name", "nullable", "preserve", "props", "required", "retain_keys", "schema",
    )  # fmt: skip

    def __init__(self, kind: str, name: str = "") -> None:
        self.kind = kind
        self.name = name
        self.format = ""
        self.props: dict[str, Prop] = {}
        self.item: Node | None = None
        self.required: tuple[str, ...] = ()
        self.always: tuple[str, ...] = ()
        self.list_type = "atomic"
        self.list_keys: tuple[str, ...] = ()
        self.merge_key = ""
        self.merging = False
        self.retain_keys = False
        self.preserve = False
        self.nullable = False
        self.embedded = False
        self.enum: tuple[Any, ...] = ()
        self.default: Any = None
        self.schema: Json = {}


class Prop:
    """One field of an object: its type, its default, and what Go leaves out of JSON."""

    __slots__ = ("default", "keep_empty", "node", "omit_zero", "required")

    def __init__(self, node: Node, default: Any, required: bool, omit_zero: bool, keep_empty: bool = False) -> None:
        self.keep_empty = keep_empty
        self.node = node
        self.default = default
        self.required = required
        self.omit_zero = omit_zero


@cache
def definitions() -> dict[str, Json]:
    """The recorded schemas by name."""
    text = (resources.files("kproxy.apiserver") / "data" / "schemas.json").read_bytes()
    found: dict[str, Json] = msgspec.json.decode(text)
    return found


_compiled: dict[str, Node] = {}


def named(name: str) -> Node:
    """The type of a recorded schema, by its full OpenAPI name."""
    if name in _compiled:
        return _compiled[name]
    if name in _NAMED:
        node = Node(_NAMED[name], name.rpartition(".")[2])
        _compiled[name] = node
        return node
    node = Node("object", name.rpartition(".")[2])
    _compiled[name] = node  # before compiling: JSONSchemaProps refers to itself
    if (inner := _EITHER.get(node.name)) is not None:
        node.kind = "schemaor"
        node.format = inner
        node.item = named(name.rpartition(".")[0] + ".JSONSchemaProps")
        return node
    _fill(node, definitions()[name])
    return node


def _fill(node: Node, schema: Json) -> None:
    node.schema = schema
    node.list_type = "atomic" if schema.get("x-kubernetes-map-type") == "atomic" else "granular"
    node.required = tuple(schema.get("required", ()))
    if schema.get("type") == "string":
        node.kind = "string"
        return
    if "properties" not in schema and "additionalProperties" not in schema:
        if schema.get("type") == "object":
            return
        node.kind = "any"  # JSONSchemaPropsOrBool and the like: anything goes
        return
    if "additionalProperties" in schema:
        node.kind = "map"
        node.item = compile_schema(schema["additionalProperties"])
        return
    for key, value in schema["properties"].items():
        required = key in node.required
        child = compile_schema(value)
        omit = not required and key in OMIT_ZERO and (node.name, key) not in POINTER_ZERO
        keep = required or (node.name, key) in EMPTY_KEPT
        node.props[key] = Prop(child, value.get("default"), required, omit, keep)
    node.always = tuple(
        key
        for key, prop in node.props.items()
        if (prop.default == {} and prop.node.kind == "object" and prop.node.props)
        or (prop.required and prop.node.kind in ("list", "string", "integer", "boolean", "map", "time"))
        or (node.name, key) in NEVER_OMITTED
        or (prop.node.kind in ("time", "microtime") and (node.name, key) not in POINTER_TIMES)
    )


def compile_schema(schema: Json) -> Node:
    """The type that one OpenAPI v3 schema of a built-in kind describes."""
    reference = schema.get("$ref")
    if reference is None and len(schema.get("allOf", ())) == 1:
        reference = schema["allOf"][0].get("$ref")
    if reference is not None:
        name = reference.rpartition("/")[2]
        node = named(name)
        if schema.get("x-kubernetes-map-type") == "atomic" or "x-kubernetes-patch-strategy" in schema:
            copy = Node(node.kind, node.name)
            for slot in Node.__slots__:
                setattr(copy, slot, getattr(node, slot))
            if schema.get("x-kubernetes-map-type") == "atomic":
                copy.list_type = "atomic"
            copy.retain_keys = "retainKeys" in schema.get("x-kubernetes-patch-strategy", "")
            return copy
        return node
    kind = schema.get("type", "any")
    if kind == "array":
        node = Node("list")
        node.item = compile_schema(schema["items"])
        node.list_type = schema.get("x-kubernetes-list-type", "atomic")
        node.list_keys = tuple(schema.get("x-kubernetes-list-map-keys", ()))
        node.merge_key = schema.get("x-kubernetes-patch-merge-key", "")
        node.merging = "merge" in schema.get("x-kubernetes-patch-strategy", "").split(",")
        node.retain_keys = "retainKeys" in schema.get("x-kubernetes-patch-strategy", "")
    elif kind == "object":
        if "additionalProperties" not in schema and "properties" not in schema:
            return Node("any")
        node = Node("object")
        _fill(node, schema)
        return node
    elif kind == "string":
        formats = {"byte": "bytes", "date-time": "time"}
        node = Node(formats.get(schema.get("format", ""), "string"))
    elif kind in ("integer", "number", "boolean"):
        node = Node(kind)
    else:
        node = Node("any")
    node.schema = schema
    node.format = schema.get("format", "")
    node.enum = tuple(schema.get("enum", ()))
    return node
