"""The strategies of every kind that has semantics of its own, and which kind has which."""

from __future__ import annotations

from base64 import b64encode
from typing import Any, ClassVar, Final

import msgspec

from kproxy.api.fielderror import (
    ErrorType,
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    repeats,
    required,
    too_long,
)
from kproxy.api.validation.cluster import validate_node
from kproxy.api.validation.discovery import validate_endpoint_slice, validate_endpoints
from kproxy.api.validation.names import check_dns_label, check_dns_subdomain
from kproxy.api.validation.strict import strict_errors
from kproxy.api.wire import structs
from kproxy.api.wire.convert import convert_endpoint_slice, convert_endpoints, convert_node
from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.field_rules import check_config_key, rules
from kproxy.apiserver.kinds.strategy import STATUS, Context, Strategy, path_name
from kproxy.apiserver.schema.field_paths import Path
from kproxy.apiserver.schema.quantity import round_resources

_RBAC_GROUP: Final = "rbac.authorization.k8s.io"
_MAX_DATA: Final = 1024 * 1024
_TAINTS: Final = rules("""
    spec.taints           unique key effect
    spec.taints[].key     needed; qualified
    spec.taints[].value   label-value
    spec.taints[].effect  needed; one-of NoExecute NoSchedule PreferNoSchedule
""")


class NamespaceStrategy(Strategy):
    """core/v1 Namespace: deleted in two steps, since what is in it goes first."""

    is_namespace: ClassVar[bool] = True
    undeletable: ClassVar[frozenset[str]] = frozenset({"default", "kube-system", "kube-public"})

    def check_name(self, name: str) -> tuple[str, ...]:
        return check_dns_label(name)

    spec_resets: tuple[Path, ...] = (STATUS,)

    def default(self, value: Json) -> None:
        if name := value["metadata"].get("name"):
            value["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name

    def prepare_create(self, value: Json, context: Context) -> None:
        finalizers = value["spec"].setdefault("finalizers", [])
        if "kubernetes" not in finalizers:
            finalizers.append("kubernetes")
        value["status"] = {"phase": "Active"}

    def prepare_update(self, value: Json, old: Json, context: Context) -> None:
        if finalizers := old["spec"].get("finalizers"):
            value["spec"]["finalizers"] = finalizers
        else:
            value["spec"].pop("finalizers", None)
        value["status"] = old.get("status") or {}

    def mark_deleted(self, value: Json, grace: int) -> None:
        value["status"] = {**(value.get("status") or {}), "phase": "Terminating"}

    def has_finalizers(self, value: Json) -> bool:
        return super().has_finalizers(value) or bool(value["spec"].get("finalizers"))

    def must_be_emptied(self, body: bytes) -> bool:
        return True


class NodeStrategy(Strategy):
    """core/v1 Node. podCIDR stands for the first of podCIDRs, and may be set once."""

    spec_resets: tuple[Path, ...] = (STATUS,)

    def default(self, value: Json) -> None:
        spec = value["spec"]
        if spec.get("podCIDR") and not spec.get("podCIDRs"):
            spec["podCIDRs"] = [spec["podCIDR"]]
        elif spec.get("podCIDRs") and not spec.get("podCIDR"):
            spec["podCIDR"] = spec["podCIDRs"][0]
        status = value["status"]
        round_resources(status.get("capacity"))
        round_resources(status.get("allocatable"))
        if "allocatable" not in status and status.get("capacity"):
            status["allocatable"] = dict(status["capacity"])

    def prepare_update(self, value: Json, old: Json, context: Context) -> None:
        value["status"] = old.get("status") or {}

    def validate(self, value: Json) -> list[FieldError]:
        spelled = msgspec.convert({"kind": "Node", **value}, structs.WireNode)
        found = validate_node(convert_node(spelled), metadata=False) + strict_errors(spelled)
        return [each for each in found if each.type != ErrorType.DUPLICATE] + _TAINTS.errors(value, "")

    def validate_update(self, value: Json, old: Json) -> list[FieldError]:
        addresses = value["status"].get("addresses") or []
        errors = [duplicate(f"status.addresses[{index}]", addresses[index]) for index in repeats(addresses)]
        before = old["spec"].get("podCIDRs")
        if before and value["spec"].get("podCIDRs") != before:
            text = 'node updates may not change podCIDR except from "" to valid'
            errors.append(forbidden("spec.podCIDRs", text))
        provider = old["spec"].get("providerID")
        if provider and value["spec"].get("providerID") != provider:
            text = 'node updates may not change providerID except from "" to valid'
            errors.append(forbidden("spec.providerID", text))
        return errors


class EndpointSliceStrategy(Strategy):
    """discovery/v1 EndpointSlice."""

    has_generation: ClassVar[bool] = True

    def default(self, value: Json) -> None:
        for port in value.get("ports") or ():
            port.setdefault("name", "")
            port.setdefault("protocol", "TCP")

    def generation_of(self, value: Json) -> Any:
        meta = value["metadata"]
        return (value.get("endpoints"), value.get("ports"), meta.get("labels"), meta.get("annotations"))

    def validate(self, value: Json) -> list[FieldError]:
        spelled = msgspec.convert({"kind": "EndpointSlice", **value}, structs.WireEndpointSlice)
        return validate_endpoint_slice(convert_endpoint_slice(spelled), metadata=False) + strict_errors(spelled)

    def validate_update(self, value: Json, old: Json) -> list[FieldError]:
        if value.get("addressType") != old.get("addressType"):
            return [invalid("addressType", value.get("addressType"), "field is immutable")]
        return []


class EndpointsStrategy(Strategy):
    """core/v1 Endpoints."""

    create_on_update: ClassVar[bool] = True

    def default(self, value: Json) -> None:
        for subset in value.get("subsets") or ():
            for port in subset.get("ports") or ():
                port.setdefault("protocol", "TCP")

    def validate(self, value: Json) -> list[FieldError]:
        spelled = msgspec.convert({"kind": "Endpoints", **value}, structs.WireEndpoints)
        return validate_endpoints(convert_endpoints(spelled), metadata=False) + strict_errors(spelled)


class ConfigMapStrategy(Strategy):
    """core/v1 ConfigMap."""

    def validate(self, value: Json) -> list[FieldError]:
        errors = _key_errors(value.get("data") or {}, "data") + _key_errors(value.get("binaryData") or {}, "binaryData")
        both = set(value.get("data") or ()) & set(value.get("binaryData") or ())
        errors += [invalid(f"binaryData[{key}]", key, "duplicate of key present in data") for key in sorted(both)]
        texts = [*(value.get("data") or {}).values(), *(value.get("binaryData") or {}).values()]
        if sum(len(text.encode()) for text in texts) > _MAX_DATA:
            errors.append(too_long("", _MAX_DATA))
        return errors

    def validate_update(self, value: Json, old: Json) -> list[FieldError]:
        return _immutable_errors(value, old, ("data", "binaryData"))


class SecretStrategy(Strategy):
    """core/v1 Secret. stringData is written only: it goes into data."""

    def default(self, value: Json) -> None:
        value.setdefault("type", "Opaque")
        plain = value.pop("stringData", None) or {}
        if plain:
            data = value.setdefault("data", {})
            for key, text in plain.items():
                data[key] = b64encode(text.encode()).decode()

    def validate(self, value: Json) -> list[FieldError]:
        data = value.get("data") or {}
        errors = _key_errors(data, "data")
        if sum(len(text) * 3 // 4 for text in data.values()) > _MAX_DATA:
            errors.append(too_long("data", _MAX_DATA))
        return errors

    def validate_update(self, value: Json, old: Json) -> list[FieldError]:
        errors = []
        if value.get("type") != old.get("type"):
            errors.append(invalid("type", value.get("type"), "field is immutable"))
        return errors + _immutable_errors(value, old, ("data",))


def _key_errors(data: Json, path: str) -> list[FieldError]:
    return [invalid(f"{path}[{key[:64]}]", key, text) for key in data for text in check_config_key(key)]


def _immutable_errors(value: Json, old: Json, names: tuple[str, ...]) -> list[FieldError]:
    if not old.get("immutable"):
        return []
    text = "field is immutable when `immutable` is set"
    errors = [forbidden(name, text) for name in names if value.get(name) != old.get(name)]
    if not value.get("immutable"):
        errors.insert(0, forbidden("immutable", text))
    return errors


class ServiceAccountStrategy(Strategy):
    """core/v1 ServiceAccount."""

    returns_deleted: ClassVar[bool] = True


class RoleStrategy(Strategy):
    """RBAC Role and ClusterRole."""

    create_on_update: ClassVar[bool] = True

    def check_name(self, name: str) -> tuple[str, ...]:
        return path_name(name)

    def validate(self, value: Json) -> list[FieldError]:
        errors = []
        for index, rule in enumerate(value.get("rules") or ()):
            path = f"rules[{index}]"
            if not rule.get("verbs"):
                errors.append(required(f"{path}.verbs", "verbs must contain at least one value"))
            if rule.get("nonResourceURLs"):
                if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
                    text = "rules cannot apply to both regular resources and non-resource URLs"
                    errors.append(invalid(f"{path}.nonResourceURLs", rule["nonResourceURLs"], text))
                continue
            if not rule.get("apiGroups"):
                errors.append(required(f"{path}.apiGroups", "resource rules must supply at least one api group"))
            if not rule.get("resources"):
                errors.append(required(f"{path}.resources", "resource rules must supply at least one resource"))
        return errors


class BindingStrategy(Strategy):
    """RBAC RoleBinding and ClusterRoleBinding."""

    create_on_update: ClassVar[bool] = True

    def check_name(self, name: str) -> tuple[str, ...]:
        return path_name(name)

    def default(self, value: Json) -> None:
        if not value["roleRef"].get("apiGroup"):
            value["roleRef"]["apiGroup"] = _RBAC_GROUP
        for subject in value.get("subjects") or ():
            if subject.get("kind") in ("User", "Group"):
                subject.setdefault("apiGroup", _RBAC_GROUP)

    def validate(self, value: Json) -> list[FieldError]:
        errors = []
        role = value["roleRef"]
        kinds = ("ClusterRole", "Role") if value["metadata"].get("namespace") else ("ClusterRole",)
        if role.get("apiGroup") != _RBAC_GROUP:
            errors.append(not_supported("roleRef.apiGroup", role.get("apiGroup", ""), (_RBAC_GROUP,)))
        if role.get("kind") not in kinds:
            errors.append(not_supported("roleRef.kind", role.get("kind", ""), kinds))
        if not role.get("name"):
            errors.append(required("roleRef.name"))
        for index, subject in enumerate(value.get("subjects") or ()):
            path = f"subjects[{index}]"
            if not subject.get("name"):
                errors.append(required(f"{path}.name"))
            match subject.get("kind"):
                case "ServiceAccount":
                    if not subject.get("namespace") and not value["metadata"].get("namespace"):
                        errors.append(required(f"{path}.namespace"))
                    name = subject.get("name") or ""
                    errors += [invalid(f"{path}.name", name, text) for text in check_dns_subdomain(name) if name]
                    if subject.get("apiGroup"):
                        errors.append(not_supported(f"{path}.apiGroup", subject["apiGroup"], ("",)))
                case "User" | "Group":
                    if subject.get("apiGroup") != _RBAC_GROUP:
                        errors.append(not_supported(f"{path}.apiGroup", subject.get("apiGroup"), (_RBAC_GROUP,)))
                case kind:
                    errors.append(not_supported(f"{path}.kind", kind, ("ServiceAccount", "User", "Group")))
        return errors

    def validate_update(self, value: Json, old: Json) -> list[FieldError]:
        if value["roleRef"] != old["roleRef"]:
            return [invalid("roleRef", value["roleRef"], "cannot change roleRef")]
        return []


# --- Events of core/v1 and events.k8s.io/v1: the same objects under other names, stored under core's ---
#
# Source: kubernetes/kubernetes pkg/apis/core/validation/events.go, pkg/apis/events/v1/conversion.go.

_NAMES: Final = (
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
)
_TO_CORE: Final = dict(_NAMES)
_TO_NEW: Final = {core: new for new, core in _NAMES}
_ALWAYS_CORE: Final[Json] = {"involvedObject": {}, "source": {}, "firstTimestamp": None, "lastTimestamp": None,
                       "eventTime": None, "reportingComponent": "", "reportingInstance": ""}  # fmt: skip
_TIMES: Final = ("eventTime", "deprecatedFirstTimestamp", "deprecatedLastTimestamp")
"""What is `null` when it is not set."""


class EventStrategy(Strategy):
    """core/v1 Event, which events.k8s.io/v1 shows under other names."""

    def check_name(self, name: str) -> tuple[str, ...]:
        return path_name(name)

    qualified_finalizers: ClassVar[bool] = False
    create_on_update: ClassVar[bool] = True

    def validate(self, value: Json) -> list[FieldError]:
        namespace = value["metadata"].get("namespace", "")
        involved = value["involvedObject"].get("namespace", "")
        new = bool(value.get("eventTime"))
        of_cluster = namespace == "default" or (new and namespace == "kube-system")
        if (involved != namespace and not new) if involved else not of_cluster:
            return [invalid("involvedObject.namespace", involved, "does not match event.namespace")]
        return []


class NewEventStrategy(EventStrategy):
    """events.k8s.io/v1 Event."""

    qualified_finalizers: ClassVar[bool] = True
    converts: ClassVar[bool] = True

    def from_version(self, value: Json) -> Json:
        return {**_ALWAYS_CORE, **{_TO_CORE.get(key, key): item for key, item in value.items()}}

    def to_version(self, value: Json) -> Json:
        renamed = {_TO_NEW.get(key, key): item for key, item in value.items()}
        return {key: item for key, item in renamed.items() if item not in (None, "") or key in _TIMES}
