"""Objects of a CustomResourceDefinition: what happens to them beside being stored."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, ClassVar

from kproxy.api.fielderror import FieldError
from kproxy.apiserver.crd.structural import MAX_DEFAULTS, default_values, prune
from kproxy.apiserver.crd.validation import validate_value
from kproxy.apiserver.errors import Json, StatusError, first_errors
from kproxy.apiserver.kinds.strategy import STATUS, Context, Strategy
from kproxy.apiserver.schema.types import Node


def _prune_object(value: Json, node: Node) -> None:
    pruned = prune({key: item for key, item in value.items() if key != "metadata"}, node, "", [])
    for key in [key for key in value if key != "metadata" and key not in pruned]:
        del value[key]
    value.update(pruned)


class CustomResourceStrategy(Strategy):
    """Objects of one version of a CustomResourceDefinition. `node` and `stored` are the types of this version and of
    the one that is stored, `schema` is this version's; `status`: status is written only through its subresource.

    With conversion None, a version shows a stored object pruned and defaulted by its own schema: that may have changed
    since the object was written, or be another version's than the one it is stored in.
    Source: k8s.io/apiextensions-apiserver pkg/apiserver/customresource_handler.go, crdConversionRESTOptionsGetter: what
    is stored is pruned by the storage version's schema, and defaulted by it when it is read; then the version that is
    asked for prunes it.
    """

    qualified_finalizers: ClassVar[bool] = False
    has_generation: ClassVar[bool] = True
    converts: ClassVar[bool] = True
    kept_by_status: ClassVar[tuple[str, ...]] = ("labels", "annotations", "finalizers", "ownerReferences")

    def __init__(self, schema: Json, node: Node, stored: Node, status: bool) -> None:
        self._schema = schema
        self._node = node
        self._stored = stored
        self._status = status
        self.spec_resets = (STATUS,) if status else ()

    def to_version(self, value: Json) -> Json:
        with suppress(StatusError):  # the schema has changed since: what would be too large to be stored stays as it is
            default_values(value, self._stored, [MAX_DEFAULTS])
        _prune_object(value, self._node)
        return value

    def prepare_storage(self, value: Json) -> None:
        if self._stored is not self._node:
            _prune_object(value, self._stored)

    def default(self, value: Json) -> None:
        default_values(value, self._node, [MAX_DEFAULTS])

    def prepare_create(self, value: Json, context: Context) -> None:
        if self._status:
            value.pop("status", None)

    def prepare_update(self, value: Json, old: Json, context: Context) -> None:
        if self._status:
            value.pop("status", None)
            if "status" in old:
                value["status"] = old["status"]

    def generation_of(self, value: Json) -> Any:
        return {
            name: item for name, item in value.items() if name not in ("metadata", "status", "kind", "apiVersion")
        } | ({} if self._status else {"status": value.get("status")})

    def validate(self, value: Json) -> list[FieldError]:
        return list(first_errors(validate_value(value, self._schema, "")))
