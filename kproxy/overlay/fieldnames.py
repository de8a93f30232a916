"""Field names of JSON objects as Go's encoding/json matches them, which CNI's own plugins read their input with.

A key is a field's if it is spelled so, else if it is when case is ignored; of several keys of one field the last one
wins. Runtimes rely on it: containerd has no JSON names in its port mappings and prints `HostPort`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

Shape: TypeAlias = Mapping[str, "Shape | None"]
"""The fields of an object, or of every object in a list; None where what is inside is no concern."""

_RANGE: Final[Shape] = dict.fromkeys(("subnet", "rangeStart", "rangeEnd", "gateway"))
_ROUTES: Final[Shape] = dict.fromkeys(("dst", "gw", "mtu", "advmss", "priority", "table", "scope"))
_ATTACHMENT: Final[Shape] = dict.fromkeys(("containerID", "ifname"))
_OLD_IP: Final[Shape] = {"ip": None, "gateway": None, "routes": _ROUTES}
_RESULT: Final[Shape] = {
    "cniVersion": None,
    "interfaces": dict.fromkeys(("name", "mac", "mtu", "sandbox", "socketPath", "pciID")),
    "ips": dict.fromkeys(("version", "interface", "address", "gateway")),
    "routes": _ROUTES,
    "dns": dict.fromkeys(("nameservers", "domain", "search", "options")),
    "ip4": _OLD_IP,
    "ip6": _OLD_IP,
}
_RUNTIME: Final[Shape] = {
    "portMappings": dict.fromkeys(("hostPort", "containerPort", "protocol", "hostIP")),
    "ipRanges": _RANGE,
    "ips": None,
    "mac": None,
}
_OWN: Final = ("cniVersion", "name", "type", "bridge", "mtu", "isGateway", "isDefaultGateway", "hairpinMode")
UNSUPPORTED: Final = ("ipMasq", "vlan", "vlanTrunk", "promiscMode", "macspoofchk", "enabledad", "portIsolation")
"""Fields that other bridge plugins have and this one does not."""
CONFIGURATION: Final[Shape] = {
    **dict.fromkeys((*_OWN, "dataDir", "iptables", *UNSUPPORTED)),
    "ipam": {"type": None, **_RANGE, "ranges": _RANGE, "reserved": None, "routes": _ROUTES},
    "runtimeConfig": _RUNTIME,
    "prevResult": _RESULT,
    "cni.dev/valid-attachments": _ATTACHMENT,
    "cni.dev/attachments": _ATTACHMENT,
}
"""A network configuration as it comes on standard input."""


def decode_configuration(stdin: bytes) -> Any:
    """Decodes a network configuration, its fields named as `CONFIGURATION` spells them; other keys stay as they are.

    Raises:
        ValueError, RecursionError: it is no JSON.
    """
    return _rename(json.loads(stdin, object_pairs_hook=_in_order), CONFIGURATION)


def _in_order(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object with each key where it came last: of two spellings of a field, the later one counts."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        found.pop(key, None)
        found[key] = value
    return found


def _rename(value: Any, shape: Shape | None) -> Any:
    if shape is None:
        return value
    if isinstance(value, list):
        return [_rename(item, shape) for item in value]
    if not isinstance(value, dict):
        return value
    names = {name.casefold(): name for name in shape}
    found: dict[str, Any] = {}
    for key, item in value.items():
        name = names.get(str(key).casefold(), str(key))
        found[name] = _rename(item, shape.get(name))
    return found
