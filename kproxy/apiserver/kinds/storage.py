"""Volumes, runtime classes and disruption budgets: what kubelets and schedulers list before they begin.

They are stored with their defaults and the checks that keep them usable; nothing provisions, attaches or evicts.
Sources: kubernetes/kubernetes pkg/apis/core/v1/defaults.go, pkg/apis/storage/v1/defaults.go,
pkg/apis/storage/validation, pkg/apis/node/validation.
"""

from __future__ import annotations

from typing import Any, ClassVar

from kproxy.api.fielderror import FieldError, duplicate, forbidden, invalid, required
from kproxy.api.validation.names import check_dns_label
from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.strategy import StatusStrategy, Strategy
from kproxy.apiserver.schema.quantity import round_resources


class PersistentVolumeStrategy(StatusStrategy):
    """core/v1 PersistentVolume."""

    def default(self, value: Json) -> None:
        spec = value["spec"]
        spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
        spec.setdefault("volumeMode", "Filesystem")
        round_resources(spec.get("capacity"))

    def initial_status(self) -> Json:
        return {"phase": "Pending"}


class PersistentVolumeClaimStrategy(StatusStrategy):
    """core/v1 PersistentVolumeClaim."""

    def default(self, value: Json) -> None:
        spec = value["spec"]
        spec.setdefault("volumeMode", "Filesystem")
        for part in ("limits", "requests"):
            round_resources((spec.get("resources") or {}).get(part))

    def initial_status(self) -> Json:
        return {"phase": "Pending"}

    def validate(self, value: Json) -> list[FieldError]:
        spec = value["spec"]
        errors = [] if spec.get("accessModes") else [required("spec.accessModes", "at least 1 access mode is required")]
        if not ((spec.get("resources") or {}).get("requests") or {}).get("storage"):
            errors.append(required("spec.resources[storage]"))
        return errors


class StorageClassStrategy(Strategy):
    """storage.k8s.io/v1 StorageClass."""

    def default(self, value: Json) -> None:
        value.setdefault("reclaimPolicy", "Delete")
        value.setdefault("volumeBindingMode", "Immediate")

    def validate(self, value: Json) -> list[FieldError]:
        return [] if value.get("provisioner") else [required("provisioner")]

    def validate_update(self, value: Json, old: Json) -> list[FieldError]:
        return [
            forbidden(name, f"updates to {name} are forbidden.")
            for name in ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode")
            if value.get(name) != old.get(name)
        ]


class CSIDriverStrategy(Strategy):
    """storage.k8s.io/v1 CSIDriver."""

    has_generation: ClassVar[bool] = True

    def default(self, value: Json) -> None:
        spec = value["spec"]
        defaults: Json = {
            "attachRequired": True, "podInfoOnMount": False, "volumeLifecycleModes": ["Persistent"],
            "storageCapacity": False, "fsGroupPolicy": "ReadWriteOnceWithFSType", "requiresRepublish": False,
            "seLinuxMount": False,
        }  # fmt: skip
        for name, default in defaults.items():
            if spec.get(name) is None:
                spec[name] = default


class CSINodeStrategy(Strategy):
    """storage.k8s.io/v1 CSINode: which drivers a kubelet has, each in one entry."""

    def validate(self, value: Json) -> list[FieldError]:
        errors: list[FieldError] = []
        names: set[str] = set()
        for index, driver in enumerate((value.get("spec") or {}).get("drivers") or ()):
            path = f"spec.drivers[{index}]"
            name = driver.get("name", "")
            errors += [required(f"{path}.{key}") for key in ("name", "nodeID") if not driver.get(key)]
            if name and name in names:
                errors.append(duplicate(f"{path}.name", name))
            names.add(name)
            count = (driver.get("allocatable") or {}).get("count")
            if count is not None and count < 0:
                text = "must be greater than or equal to 0"
                errors.append(invalid(f"{path}.allocatable.count", count, text))
        return errors

    def validate_update(self, value: Json, old: Json) -> list[FieldError]:
        before = {each.get("name"): each for each in (old.get("spec") or {}).get("drivers") or ()}
        return [
            invalid("spec.drivers", each.get("name"), "field is immutable")
            for each in (value.get("spec") or {}).get("drivers") or ()
            if each.get("name") in before and _fixed(each) != _fixed(before[each["name"]])
        ]


def _fixed(driver: Json) -> Json:
    """A driver without what it may change: how much it can take."""
    return {key: item for key, item in driver.items() if key != "allocatable"}


class VolumeAttachmentStrategy(StatusStrategy):
    """storage.k8s.io/v1 VolumeAttachment."""

    def initial_status(self) -> Json:
        return {"attached": False}

    def validate(self, value: Json) -> list[FieldError]:
        spec = value["spec"]
        return [required(f"spec.{name}") for name in ("attacher", "nodeName") if not spec.get(name)]


class RuntimeClassStrategy(Strategy):
    """node.k8s.io/v1 RuntimeClass."""

    qualified_finalizers: ClassVar[bool] = False

    def default(self, value: Json) -> None:
        round_resources((value.get("overhead") or {}).get("podFixed"))

    def validate(self, value: Json) -> list[FieldError]:
        handler = value.get("handler", "")
        if not handler:
            return [required("handler")]
        return [invalid("handler", handler, text) for text in check_dns_label(handler)]

    def validate_update(self, value: Json, old: Json) -> list[FieldError]:
        if value.get("handler") != old.get("handler"):
            return [invalid("handler", value.get("handler"), "field is immutable")]
        return []


class PodDisruptionBudgetStrategy(StatusStrategy):
    """policy/v1 PodDisruptionBudget."""

    has_generation: ClassVar[bool] = True
    qualified_finalizers: ClassVar[bool] = False

    def initial_status(self) -> Json:
        names = ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods")
        return dict.fromkeys(names, 0)

    def validate(self, value: Json) -> list[FieldError]:
        spec = value["spec"]
        if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
            text = "minAvailable and maxUnavailable cannot be both set"
            return [invalid("spec", spec, text)]
        return []


class SpecStrategy(Strategy):
    """A kind of resource.k8s.io whose spec counts its generations."""

    has_generation: ClassVar[bool] = True


class ResourceClaimStrategy(StatusStrategy):
    """resource.k8s.io/v1 ResourceClaim: what it asks for stays."""

    def validate_update(self, value: Json, old: Json) -> list[FieldError]:
        if value["spec"] != old["spec"]:
            return [invalid("spec", value["spec"], "field is immutable")]
        return []


STORAGE_STRATEGIES: dict[str, Any] = {
    "CSIDriver": CSIDriverStrategy,
    "CSINode": CSINodeStrategy,
    "DeviceClass": SpecStrategy,
    "PersistentVolume": PersistentVolumeStrategy,
    "PersistentVolumeClaim": PersistentVolumeClaimStrategy,
    "PodDisruptionBudget": PodDisruptionBudgetStrategy,
    "ResourceClaim": ResourceClaimStrategy,
    "ResourceSlice": SpecStrategy,
    "RuntimeClass": RuntimeClassStrategy,
    "StorageClass": StorageClassStrategy,
    "VolumeAttachment": VolumeAttachmentStrategy,
}
"""The strategies of these kinds by name."""
