"""All wrong types of a value at once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.api.validation.types import type_errors
from kproxy.api.wire import structs


def test_every_wrong_type_is_reported() -> None:
    value = {
        "metadata": {"name": 5, "labels": {"a": True, "b": None, "c": "x"}},
        "spec": {
            "ports": [{"port": "http", "targetPort": [1]}, {"port": True}, None, 7],
            "externalIPs": {},
            "clusterIPs": ["10.0.0.1", 3],
            "selector": [],
            "publishNotReadyAddresses": "yes",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 1.5}},
            "unknown": object(),
        },
        "status": "none",
    }
    assert [str(error) for error in type_errors(value, structs.WireService)] == [
        "metadata.name: Invalid value: 5: must be a string, not an integer",
        "metadata.labels[a]: Invalid value: true: must be a string, not a boolean",
        'spec.ports[0].port: Invalid value: "http": must be an integer, not a string',
        "spec.ports[0].targetPort: Invalid value: [1]: must be an integer or a string, not a list",
        "spec.ports[1].port: Invalid value: true: must be an integer, not a boolean",
        "spec.ports[2]: Required value: must be a map",
        "spec.ports[3]: Invalid value: 7: must be a map, not an integer",
        "spec.externalIPs: Invalid value: {}: must be a list, not a map",
        "spec.clusterIPs[1]: Invalid value: 3: must be a string, not an integer",
        "spec.selector: Invalid value: []: must be a map, not a list",
        'spec.publishNotReadyAddresses: Invalid value: "yes": must be a boolean, not a string',
        "spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 1.5: must be an integer, "
        "not a number with a fraction or an exponent",
        'status: Invalid value: "none": must be a map, not a string',
    ]


@pytest.mark.parametrize("struct", [struct for _, struct in structs.KINDS.values()])
def test_msgspec_accepts_a_value_without_errors(struct: type[structs.WireObject]) -> None:
    leaves = st.none() | st.booleans() | st.integers(-10, 10) | st.text(max_size=2)
    names = sorted(_names(struct))
    trees = st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(names), inner, max_size=4),
        max_leaves=8,
    )

    @given(st.dictionaries(st.sampled_from([name for name in names if name != "kind"]), trees, max_size=4))
    def agrees(value: dict[str, Any]) -> None:
        try:
            msgspec.convert(value, struct)
        except msgspec.ValidationError:
            assert type_errors(value, struct)
        else:
            assert not type_errors(value, struct)

    agrees()


def _names(struct: type[msgspec.Struct]) -> set[str]:
    """All field names below a wire struct."""
    found: set[str] = set()

    def collect(kind: msgspec.inspect.Type) -> None:
        match kind:
            case msgspec.inspect.StructType():
                for item in kind.fields:
                    found.add(item.encode_name)
                    collect(item.type)
            case msgspec.inspect.UnionType():
                for option in kind.types:
                    collect(option)
            case msgspec.inspect.ListType():
                collect(kind.item_type)

    collect(msgspec.inspect.type_info(struct))
    return found
