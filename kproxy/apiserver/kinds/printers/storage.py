"""The columns of volumes, runtime classes, devices and disruption budgets, as in `kinds.stored.storage`."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.printers.table import (
    NONE,
    UNSET,
    Cell,
    Columns,
    age_of,
    aged,
    columns,
    metadata_of,
    name_of,
)  # fmt: skip

_ACCESS_MODES: Final = {
    "ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP",
}  # fmt: skip
_DEFAULT_CLASS: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_CLASS: Final = "volume.beta.kubernetes.io/storage-class"


def _access_modes(modes: Any) -> str:
    return ",".join(short for mode, short in _ACCESS_MODES.items() if mode in (modes or ()))


def _class_of(value: Json) -> str:
    """The storage class of a volume or claim; the old annotation counts first."""
    annotations = metadata_of(value).get("annotations") or {}
    return str(annotations.get(_CLASS) or value["spec"].get("storageClassName") or "")


def _phase(value: Json) -> str:
    terminating = metadata_of(value).get("deletionTimestamp")
    return "Terminating" if terminating else str((value.get("status") or {}).get("phase", ""))


def _persistent_volume(value: Json, now: datetime) -> list[Cell]:
    spec, status = value["spec"], value.get("status") or {}
    claim = spec.get("claimRef") or {}
    return [
        name_of(value), (spec.get("capacity") or {}).get("storage", "0"), _access_modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""), _phase(value),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "", _class_of(value),
        spec.get("volumeAttributesClassName") or UNSET, status.get("reason", ""), age_of(value, now),
        spec.get("volumeMode") or UNSET,
    ]  # fmt: skip


def _persistent_volume_claim(value: Json, now: datetime) -> list[Cell]:
    spec, status = value["spec"], value.get("status") or {}
    bound = bool(spec.get("volumeName"))
    return [
        name_of(value), _phase(value), spec.get("volumeName", ""),
        (status.get("capacity") or {}).get("storage", "0") if bound else "",
        _access_modes(status.get("accessModes")) if bound else "", _class_of(value),
        spec.get("volumeAttributesClassName") or UNSET, age_of(value, now), spec.get("volumeMode") or UNSET,
    ]  # fmt: skip


def _storage_class(value: Json, now: datetime) -> list[Cell]:
    annotations = metadata_of(value).get("annotations") or {}
    default = any(annotations.get(name) == "true" for name in _DEFAULT_CLASS)
    return [
        f"{name_of(value)} (default)" if default else name_of(value), value.get("provisioner", ""),
        value.get("reclaimPolicy", "Delete"), value.get("volumeBindingMode", "Immediate"),
        bool(value.get("allowVolumeExpansion")), age_of(value, now),
    ]  # fmt: skip


def _csi_driver(value: Json, now: datetime) -> list[Cell]:
    spec = value["spec"]
    tokens = ",".join(str(each.get("audience", "")) for each in spec.get("tokenRequests") or ())
    return [
        name_of(value), spec.get("attachRequired", True), bool(spec.get("podInfoOnMount")),
        bool(spec.get("storageCapacity")), tokens or UNSET, bool(spec.get("requiresRepublish")),
        ",".join(spec.get("volumeLifecycleModes") or ()) or NONE, age_of(value, now),
    ]  # fmt: skip


def _csi_node(value: Json, now: datetime) -> list[Cell]:
    return [name_of(value), len((value.get("spec") or {}).get("drivers") or ()), age_of(value, now)]


def _csi_storage_capacity(value: Json, now: datetime) -> list[Cell]:
    return [name_of(value), value.get("storageClassName", ""), value.get("capacity") or UNSET]


def _volume_attachment(value: Json, now: datetime) -> list[Cell]:
    spec = value["spec"]
    volume = (spec.get("source") or {}).get("persistentVolumeName", "")
    attached = bool((value.get("status") or {}).get("attached"))
    return [name_of(value), spec.get("attacher", ""), volume, spec.get("nodeName", ""), attached, age_of(value, now)]


def _runtime_class(value: Json, now: datetime) -> list[Cell]:
    return [name_of(value), value.get("handler", ""), age_of(value, now)]


def _disruption_budget(value: Json, now: datetime) -> list[Cell]:
    spec = value["spec"]
    bounds = [str(spec[name]) if spec.get(name) is not None else "N/A" for name in ("minAvailable", "maxUnavailable")]
    return [name_of(value), *bounds, (value.get("status") or {}).get("disruptionsAllowed", 0), age_of(value, now)]


def _resource_claim(value: Json, now: datetime) -> list[Cell]:
    status = value.get("status") or {}
    states = ["deleted"] if metadata_of(value).get("deletionTimestamp") else []
    if status.get("allocation"):
        states += ["allocated", "reserved"] if status.get("reservedFor") else ["allocated"]
    elif not states:
        states = ["pending"]
    return [name_of(value), ",".join(states), age_of(value, now)]


def _resource_slice(value: Json, now: datetime) -> list[Cell]:
    spec = value.get("spec") or {}
    pool = (spec.get("pool") or {}).get("name", "")
    return [name_of(value), spec.get("nodeName", ""), spec.get("driver", ""), pool, age_of(value, now)]


PRINTERS: Final[dict[str, Columns]] = {
    "CSIDriver": columns(
        "Name AttachRequired:boolean PodInfoOnMount:boolean StorageCapacity:boolean TokenRequests "
        "RequiresRepublish:boolean Modes Age",
        _csi_driver,
    ),
    "CSINode": columns("Name Drivers:integer Age", _csi_node),
    "CSIStorageCapacity": columns("Name StorageClassName Capacity", _csi_storage_capacity),
    "DeviceClass": columns("Name Age", aged),
    "PersistentVolume": columns(
        "Name Capacity Access_Modes Reclaim_Policy Status Claim StorageClass VolumeAttributesClass Reason Age "
        "VolumeMode::1",
        _persistent_volume,
    ),
    "PersistentVolumeClaim": columns(
        "Name Status Volume Capacity Access_Modes StorageClass VolumeAttributesClass Age VolumeMode::1",
        _persistent_volume_claim,
    ),
    "PodDisruptionBudget": columns(
        "Name Min_Available Max_Unavailable Allowed_Disruptions:integer Age", _disruption_budget
    ),
    "ResourceClaim": columns("Name State Age", _resource_claim),
    "ResourceClaimTemplate": columns("Name Age", aged),
    "ResourceSlice": columns("Name Node Driver Pool Age", _resource_slice),
    "RuntimeClass": columns("Name Handler Age", _runtime_class),
    "StorageClass": columns(
        "Name Provisioner ReclaimPolicy VolumeBindingMode AllowVolumeExpansion Age", _storage_class
    ),
    "VolumeAttachment": columns("Name Attacher PV Node Attached:boolean Age", _volume_attachment),
}
