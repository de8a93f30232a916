"""KubeProxyConfiguration as kube-proxy answers GET /configz, and what a saved answer holds beside it.

kube-proxy serves its internal configuration converted back to v1alpha1. The internal type has one pair of sync periods
and one masqueradeAll, those of the mode in use, so /configz shows zeros in the sections of the other modes whatever the
file said. In nftables mode an empty nodePortAddresses is "primary" by then. What Go's type marks `omitempty`
(featureGates, vmodule, splitStream, windowsRunAsService) is left out when it is empty. An empty list prints as null, as
one that the file leaves out does.
Source: a recorded answer of kube-proxy v1.36.2, tests/reference/kube-proxy-http/responses.txt.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kproxy.api.kubeproxyconfig.duration import Duration
from kproxy.api.kubeproxyconfig.types import (
    API_VERSION,
    KIND,
    MODE_IPVS,
    MODE_NFTABLES,
    KubeProxyConfiguration,
    Quantity,
)

CONFIGZ_KEY: Final = "kubeproxy.config.k8s.io"
"""The field of the answer that holds the configuration."""

_STATUS: Final = re.compile(r"\n?HTTP (\d{3})\s*\Z")
_OMIT_EMPTY: Final = frozenset({"featureGates", "vmodule", "splitStream", "windowsRunAsService"})


def configz_json(config: KubeProxyConfiguration) -> str:
    """The body of kube-proxy's answer to GET /configz, without a line end."""
    return msgspec.json.encode({CONFIGZ_KEY: configz(config)}).decode()


def split_status(text: str) -> tuple[str, int | None]:
    """A saved answer's body, and the HTTP status of its last line, `HTTP 503`; None without such a line."""
    match = _STATUS.search(text)
    return (text, None) if match is None else (text[: match.start()], int(match[1]))


def configz(config: KubeProxyConfiguration) -> dict[str, Any]:
    """The configuration as JSON values, in the field order of kube-proxy's type."""
    body = _printed(_only_mode_in_use(config))
    assert isinstance(body, dict)
    return {"kind": KIND, "apiVersion": API_VERSION, **body}


def _only_mode_in_use(config: KubeProxyConfiguration) -> KubeProxyConfiguration:
    """`config` as it is after kube-proxy converted it to its internal type and back."""
    replace = msgspec.structs.replace
    zero = Duration()
    ipvs, nftables, iptables = config.ipvs, config.nftables, config.iptables
    if config.mode != MODE_IPVS:
        ipvs = replace(ipvs, sync_period=zero, min_sync_period=zero)
    if config.mode != MODE_NFTABLES:
        nftables = replace(nftables, masquerade_all=False, sync_period=zero, min_sync_period=zero)
    if config.mode == MODE_NFTABLES:
        iptables = replace(iptables, masquerade_all=False)
    if config.mode in (MODE_IPVS, MODE_NFTABLES):
        iptables = replace(iptables, sync_period=zero, min_sync_period=zero)
    return replace(config, ipvs=ipvs, nftables=nftables, iptables=iptables, node_port_addresses=config.node_ports_on)


def _printed(value: object) -> Any:
    if isinstance(value, Duration | Quantity):
        return str(value)
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        pairs = ((field.encode_name, getattr(value, field.name)) for field in fields)
        return {name: _printed(child) for name, child in pairs if child or name not in _OMIT_EMPTY}
    if isinstance(value, tuple):
        return [_printed(item) for item in value] or None
    if isinstance(value, Mapping):
        return dict(sorted(value.items()))
    if isinstance(value, float):
        return _float32(value)
    return value


def _float32(value: float) -> int | float:
    """The shortest decimal that is `value` in 32 bits, whole numbers without a point: what Go's encoder prints."""
    (value,) = struct.unpack("f", struct.pack("f", value))
    for digits in range(1, 9):
        shorter = float(f"{value:.{digits}g}")
        if struct.pack("f", shorter) == struct.pack("f", value):
            value = shorter
            break
    return int(value) if value.is_integer() and abs(value) < 1e21 else value
