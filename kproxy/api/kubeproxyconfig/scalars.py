"""Single values of a configuration, from the tree of its text.

Each `read_` function gives the value, or None where the default is to stand, or raises `RefusedError`. They are as
strict as kube-proxy's JSON decoder: no number for a string, no "14" for a number. Integers have 32 bits.
"""

from __future__ import annotations

import json
import struct
from typing import Final

import msgspec

from kproxy.api.document.tree import Node
from kproxy.api.fielderror import ErrorType, FieldError, invalid
from kproxy.api.kubeproxyconfig.duration import Duration
from kproxy.api.kubeproxyconfig.validate import is_quantity
from kproxy.errors import InputError

# The fields that kube-proxy's type holds by pointer: null is absence, and zero is a value of its own.
NULLABLE: Final = frozenset(
    {
        "iptables.masqueradeBit",
        "iptables.localhostNodePorts",
        "nftables.masqueradeBit",
        "oomScoreAdj",
        "conntrack.maxPerCore",
        "conntrack.min",
        "conntrack.tcpEstablishedTimeout",
        "conntrack.tcpCloseWaitTimeout",
    }
)
# The only duration that may also be null or a number, of nanoseconds (TimeOrMetaDuration in component-base).
_TIME_OR_DURATION: Final = "logging.flushFrequency"
_UNSIGNED: Final = "verbosity"
_FLOAT32_MAX: Final = float(struct.unpack("<f", b"\xff\xff\x7f\x7f")[0])
_KINDS: Final = (
    (bool, "a boolean"),
    (int | float, "a number"),
    (str, "a string"),
    (dict, "an object"),
    (list, "a list"),
)


class RefusedError(InputError):
    """A value that cannot be decoded; whoever reads the document reports it with its line."""

    def __init__(self, error: FieldError) -> None:
        super().__init__(str(error))
        self.error = error


def mistyped(path: str, node: Node, expected: str) -> RefusedError:
    """The refusal of a value of the wrong type, with a word on how YAML came to see that type."""
    kind = next((name for kind, name in _KINDS if isinstance(node.value, kind)), "null")
    hint = f" (YAML reads a bare {node.plain} so: put it in quotes)" if expected == "a string" and node.plain else ""
    message = f"Invalid value: {_shown(node.value)}: must be {expected}, not {kind}{hint}"
    return RefusedError(FieldError(path, message, ErrorType.INVALID))


def _shown(value: object) -> str:
    """A value in a message; what is inside an object or a list stays out."""
    if isinstance(value, dict):
        return "{...}"
    if isinstance(value, list):
        return "[...]"
    return json.dumps(value, ensure_ascii=False)


def read_string(node: Node, path: str) -> str | None:
    """Text; "" counts as absent where the default is not ""."""
    if node.value is None or isinstance(node.value, str):
        return node.value
    raise mistyped(path, node, "a string")


def read_bool(node: Node, path: str) -> bool | None:
    if node.value is None or isinstance(node.value, bool):
        return node.value
    raise mistyped(path, node, "true or false")


def read_integer(node: Node, path: str) -> int | None:
    """An integer of 32 bits, without a sign for a verbosity."""
    value = node.value
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer() and node.plain is not None:
        # kube-proxy turns YAML into JSON first, and there 14.0 becomes 14; JSON itself is taken at its word.
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise mistyped(path, node, "an integer")
    low, high = (0, 2**32 - 1) if path.rpartition(".")[2] == _UNSIGNED else (-(2**31), 2**31 - 1)
    if not low <= value <= high:
        raise RefusedError(invalid(path, node.value, f"must be within the range [{low}, {high}]"))
    return value


def read_float32(node: Node, path: str) -> float | None:
    """A number, rounded to 32 bits."""
    value = node.value
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise mistyped(path, node, "a number")
    if not -_FLOAT32_MAX <= value <= _FLOAT32_MAX:
        raise RefusedError(invalid(path, node.value, "must be a number of 32 bits"))
    return float(struct.unpack("f", struct.pack("f", value))[0])


def read_duration(node: Node, path: str) -> Duration | None:
    """A duration, as Go writes them."""
    value = node.value
    if value is None and (path in NULLABLE or path == _TIME_OR_DURATION):
        return None
    if path == _TIME_OR_DURATION and isinstance(value, int) and not isinstance(value, bool):
        if not -(2**63) <= value < 2**63:
            raise RefusedError(invalid(path, value, "must be nanoseconds in 64 bits"))
        return Duration(value)
    if not isinstance(value, str):
        raise mistyped(path, node, 'a duration such as "30s"')
    try:
        return Duration.of(value)
    except ValueError as error:
        raise RefusedError(invalid(path, value, str(error))) from error


def read_quantity(node: Node, path: str) -> str | None:
    """A resource quantity: text such as "64Ki", or a bare number. It is kept as it was written."""
    value = node.value
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = node.plain if node.plain is not None else str(value)
    if isinstance(value, str) and is_quantity(value):
        return value
    raise mistyped(path, node, 'a quantity such as "64Ki"')


def is_default_when_zero(kind: object) -> bool:
    """Whether a zero of this type is the same as an absent field to kube-proxy (unless the field is `NULLABLE`)."""
    return kind in (str, int, float, Duration)


def is_zero(value: object) -> bool:
    """Whether `value` is the zero of its type."""
    return not value.nanoseconds if isinstance(value, Duration) else not value and not isinstance(value, msgspec.Struct)
