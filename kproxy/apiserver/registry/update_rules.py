"""What an update may not write through each endpoint: that of the object, its status, its finalizers."""

from __future__ import annotations

from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.resources import Resource
from kproxy.apiserver.kinds.strategy import Context


def keep_system_fields(meta: Json, old: Json) -> None:
    """Puts back what only the server writes in metadata."""
    for name in (
        "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion",
        "generation", "selfLink",
    ):  # fmt: skip
        if name in old:
            meta[name] = old[name]
        else:
            meta.pop(name, None)


def put_back(resource: Resource, value: Json, live: Json, subresource: str, context: Context) -> None:
    """Puts back what this endpoint may not write."""
    if subresource == "status":
        status = value.get("status")
        meta = value["metadata"]
        for name in [name for name in value if name not in ("metadata", "status")]:
            del value[name]
        for name, item in live.items():
            if name not in ("metadata", "status"):
                value[name] = item
        value.pop("status", None)
        if status is not None:
            value["status"] = status
        for name in resource.strategy.kept_by_status:
            meta.pop(name, None)
            if name in live["metadata"]:
                meta[name] = live["metadata"][name]
    elif subresource == "finalize":
        finalizers = value["spec"].get("finalizers")
        for name, item in live.items():
            if name != "metadata":
                value[name] = dict(item) if isinstance(item, dict) else item
        value["spec"].pop("finalizers", None)
        if finalizers:
            value["spec"]["finalizers"] = finalizers
    else:
        resource.strategy.prepare_update(value, live, context)
