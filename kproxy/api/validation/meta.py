"""The API server's checks of metadata (k8s.io/apimachinery/pkg/api/validation/objectmeta.go)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from kproxy.api.fielderror import FieldError, forbidden, invalid, refused, required, too_long
from kproxy.api.types.meta import ObjectMeta
from kproxy.api.validation.names import check_dns_label, check_label_value, check_qualified_name

NameCheck = Callable[[str], tuple[str, ...]]

_ANNOTATIONS_LIMIT: Final = 256 * 1024


def validate_meta(meta: ObjectMeta, check_name: NameCheck, *, namespaced: bool = True) -> Iterator[FieldError]:
    """Errors of metadata, in the API server's order."""
    if not meta.name:
        yield required("metadata.name", "name or generateName is required")
    else:
        yield from refused("metadata.name", meta.name, check_name(meta.name))
    if namespaced:
        yield from refused("metadata.namespace", meta.namespace, check_dns_label(meta.namespace))
    elif meta.namespace:
        yield forbidden("metadata.namespace", "not allowed on this type")
    if meta.generation < 0:
        yield invalid("metadata.generation", meta.generation, "must be greater than or equal to 0")
    if meta.labels:
        yield from validate_labels("metadata.labels", meta.labels)
    if meta.annotations:
        yield from _validate_annotations(meta.annotations)


def validate_labels(path: str, labels: Mapping[str, str]) -> Iterator[FieldError]:
    """Errors of labels or of a selector. The API server names the map, not the key, as the field."""
    for key, value in labels.items():
        yield from refused(path, key, check_qualified_name(key))
        yield from refused(path, value, check_label_value(value))


def _validate_annotations(annotations: Mapping[str, str]) -> Iterator[FieldError]:
    size = 0
    for key, value in annotations.items():
        size += len(key.encode("utf-8", "surrogatepass")) + len(value.encode("utf-8", "surrogatepass"))
        yield from refused("metadata.annotations", key, check_qualified_name(key.lower()))
    if size > _ANNOTATIONS_LIMIT:
        yield too_long("metadata.annotations", _ANNOTATIONS_LIMIT)
