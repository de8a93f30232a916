"""What controllers write: a status if it has changed, and the end of an object if it is still the same."""

from __future__ import annotations

from kproxy.client import ApiError, RestClient
from kproxy.client.resources import Resource
from kproxy.informer import Unstructured
from kproxy.lab.resources import Json, Object


def write_status(client: RestClient, resource: Resource[Unstructured], item: Object, status: Json) -> bool:
    """Writes the status of an object, unless it has it already (nothing and zero are the same); whether it was written.
    Raises ApiError."""
    old, meta = item.get("status") or {}, item["metadata"]
    if all((old.get(name) or None) == (value or None) for name, value in status.items()):
        return False
    client.patch(resource, meta["name"], {"status": status}, meta.get("namespace"), subresource="status")
    return True


def delete_object(
    client: RestClient, resource: Resource[Unstructured], item: Object, *, propagation_policy: str = ""
) -> bool:
    """Deletes an object if it is still there and the same; whether it was. Raises ApiError."""
    meta = item["metadata"]
    try:
        client.delete(
            resource, meta["name"], meta.get("namespace"), uid=meta["uid"], propagation_policy=propagation_policy
        )
    except ApiError as error:
        if error.code not in (404, 409):
            raise
        return False
    return True
