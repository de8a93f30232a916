"""What the overlay reads of a Node: pod CIDRs, one address per family, and the VTEP's MAC.

Flannel's daemons tell each other their VTEP MACs and public addresses by annotations, which they write. Ours derive
the MAC from the node's name and the family, so nothing has to be written and no daemon needs the right to. Where
flannel's annotations are there (flannel.alpha.coreos.com/...), they are believed, so that a node may run flannel's
daemon.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
from typing import Final

import msgspec

from kproxy.api.addresses import canonical_cidr, canonical_ip
from kproxy.api.types.core import Node
from kproxy.overlay.ipam import Address, Network

_FLANNEL: Final = "flannel.alpha.coreos.com/"
_MAC: Final = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")


class OverlayNode(msgspec.Struct, frozen=True):
    """A node, as far as pods of others must reach its pods; at most one of each by IP version (4, 6)."""

    name: str
    pod_cidrs: dict[int, Network] = {}
    addresses: dict[int, Address] = {}
    macs: dict[int, str] = {}


def vtep_mac(node: str, version: int) -> str:
    """The MAC of a node's VTEP: locally administered, unicast, the same wherever it is computed."""
    digest = bytearray(hashlib.sha256(f"kproxy vtep\0{node}\0{version}".encode()).digest()[:6])
    digest[0] = digest[0] & 0xFC | 0x02
    return bytes(digest).hex(":")


def read_node(node: Node) -> OverlayNode:
    """Reads a Node: the first InternalIP of a family, else its first ExternalIP; what is no address is passed over."""
    name = node.metadata.name
    cidrs: dict[int, Network] = {}
    for text in node.pod_cidrs:
        canonical = canonical_cidr(text)
        if canonical is not None:
            network = ipaddress.ip_network(canonical, strict=False)
            cidrs.setdefault(network.version, network)
    addresses: dict[int, Address] = {}
    for kind in ("InternalIP", "ExternalIP"):
        for entry in node.addresses:
            found = canonical_ip(entry.address) if entry.type == kind else None
            if found is not None:
                address = ipaddress.ip_address(found)
                addresses.setdefault(address.version, address)
    macs = {version: vtep_mac(name, version) for version in (4, 6)}
    annotations = node.metadata.annotations
    if annotations.get(f"{_FLANNEL}backend-type") == "vxlan":
        for version, infix in ((4, ""), (6, "v6-")):
            public = canonical_ip(annotations.get(f"{_FLANNEL}public-ip{'v6' if infix else ''}", ""))
            if public is not None and ipaddress.ip_address(public).version == version:
                addresses[version] = ipaddress.ip_address(public)
            macs[version] = _annotated_mac(annotations.get(f"{_FLANNEL}backend-{infix}data", "")) or macs[version]
    return OverlayNode(name, cidrs, addresses, macs)


def _annotated_mac(text: str) -> str:
    try:
        mac = json.loads(text)["VtepMAC"].lower()
    except (ValueError, TypeError, KeyError, AttributeError):
        return ""
    return mac if _MAC.fullmatch(mac) else ""
