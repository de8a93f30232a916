"""Checks of metadata."""

from __future__ import annotations

import pytest

from kproxy.api.types.meta import ObjectMeta
from kproxy.api.validation.meta import validate_labels, validate_meta
from kproxy.api.validation.names import check_dns_label

PREFIX = (
    "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and "
    "must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


def test_legal() -> None:
    meta = ObjectMeta("a", "b", {"app.kubernetes.io/name": "x", "y": ""}, {"Example.COM/a": "anything \0"})
    assert list(validate_meta(meta, check_dns_label)) == []


@pytest.mark.parametrize(
    ("meta", "namespaced", "error"),
    [
        (ObjectMeta("", "a"), True, "metadata.name: Required value: name or generateName is required"),
        (ObjectMeta("a.b", "a"), True, 'metadata.name: Invalid value: "a.b": must not contain dots'),
        (ObjectMeta("a", "a.b"), True, 'metadata.namespace: Invalid value: "a.b": must not contain dots'),
        (ObjectMeta("a", "b"), False, "metadata.namespace: Forbidden: not allowed on this type"),
        (
            ObjectMeta("a", "b", generation=-1),
            True,
            "metadata.generation: Invalid value: -1: must be greater than or equal to 0",
        ),
        (ObjectMeta("a", "b", {"B/c": ""}), True, f'metadata.labels: Invalid value: "B/c": {PREFIX}'),
        (
            ObjectMeta("a", "b", {"c": "x" * 64}),
            True,
            f'metadata.labels: Invalid value: "{"x" * 64}": must be no more than 63 bytes',
        ),
        (
            ObjectMeta("a", "b", annotations={"/c": ""}),
            True,
            'metadata.annotations: Invalid value: "/c": prefix part must be non-empty',
        ),
        (
            ObjectMeta("a", "b", annotations={"c": "x" * 262144}),
            True,
            "metadata.annotations: Too long: may not be more than 262144 bytes",
        ),
    ],
)
def test_errors(meta: ObjectMeta, namespaced: bool, error: str) -> None:
    assert [str(found) for found in validate_meta(meta, check_dns_label, namespaced=namespaced)] == [error]


def test_labels_report_every_key_and_value() -> None:
    assert len(list(validate_labels("spec.selector", {"a b": "c d", "e": "f g", "h": "i"}))) == 3
