"""The network configuration list of a node: what a container runtime reads to call the plugin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kproxy.overlay.ipam import Network
from kproxy.overlay.netconf import DEFAULT_DATA_DIR

VERSION: Final = "1.0.0"
"""What every runtime in use takes: containerd 1.6 and podman 4.3 refuse a list of 1.1.0."""
VERSIONS: Final = ("1.0.0", "1.1.0")
"""From these, runtimes that know 1.1.0 take the newest one that they know."""
_CAPABILITIES: Final = ("portMappings", "ipRanges", "mac", "ips")


def network_list(
    pod_cidrs: Iterable[Network],
    mtu: int,
    bridge: str = "cni0",
    data_dir: str = DEFAULT_DATA_DIR,
    iptables: str = "auto",
) -> dict[str, Any]:
    """The list for a node with these pod CIDRs, IPv4 first; `mtu` in bytes is the overlay's."""
    cidrs = sorted(pod_cidrs, key=lambda cidr: cidr.version)
    return {
        "cniVersion": VERSION,
        "cniVersions": list(VERSIONS),
        "name": "kproxy",
        "plugins": [
            {
                "type": "kproxy-cni",
                "bridge": bridge,
                "mtu": mtu,
                "dataDir": data_dir,
                "iptables": iptables,
                "capabilities": dict.fromkeys(_CAPABILITIES, True),
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": str(cidr)}] for cidr in cidrs],
                    "routes": [{"dst": "0.0.0.0/0" if cidr.version == 4 else "::/0"} for cidr in cidrs],
                },
            }
        ],
    }
