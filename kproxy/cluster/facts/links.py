"""A host's links, as far as one must know them to say where a frame goes: peers, tunnels, neighbours, FDB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

VALID: Final = frozenset(("PERMANENT", "NOARP", "REACHABLE", "STALE", "DELAY", "PROBE"))
"""States of a neighbour whose address is known, so that a packet is sent at once (NUD_VALID, net/neighbour.h)."""

VXLAN: Final = "vxlan"
GENEVE: Final = "geneve"
TUNNELS: Final = (VXLAN, GENEVE, "ipip", "sit", "ip6tnl", "gre", "ip6gre")
"""Kinds of links that wrap packets in others which go over IP."""
_PORTS: Final = {VXLAN: 8472, GENEVE: 6081}


class Tunnel(msgspec.Struct, frozen=True):
    """What a link wraps packets in.

    Attributes:
        kind: one of `TUNNELS`.
        vni: VXLAN's or Geneve's identifier, 0 for others.
        local, remote: underlay addresses; "" where routing, neighbours or the FDB choose them.
        port: of UDP, 0 for others.
        by_route: the route to a packet's destination says what it is wrapped in (`external`).
    """

    kind: str
    vni: int = 0
    local: str = ""
    remote: str = ""
    port: int = 0
    by_route: bool = False


class Link(msgspec.Struct, frozen=True):
    """A link.

    Attributes:
        peer: the interface number of a veth's other end, in that end's namespace, 0 if there is none.
        carrier: False where the other end is down.
        bridge: the bridge that it is a port of, "" for none.
        kind: as `ip -details` calls it: bridge, veth, vxlan, vlan, ...; "" for a device of hardware.
    """

    name: str
    index: int
    mac: str
    up: bool
    mtu: int
    peer: int = 0
    tunnel: Tunnel | None = None
    carrier: bool = True
    bridge: str = ""
    kind: str = ""

    @property
    def is_bridge(self) -> bool:
        return self.kind == "bridge"


def parse_links(entries: Sequence[Mapping[str, Any]]) -> dict[str, Link]:
    """Reads `ip -json -details link show`, or `address show`, by name."""
    found = {}
    for entry in entries:
        info = entry.get("linkinfo") or {}
        kind = str(info.get("info_kind") or "")
        flags = entry.get("flags", ("UP",))  # without any it is not known to be down
        name = str(entry["ifname"])
        found[name] = Link(
            name,
            int(entry.get("ifindex") or 0),
            str(entry.get("address", "")),
            "UP" in flags,
            int(entry.get("mtu", 0)),
            int(entry.get("link_index") or 0),
            _tunnel(kind, info.get("info_data") or {}) if kind in TUNNELS else None,
            "NO-CARRIER" not in flags,
            str(entry.get("master", "")) if info.get("info_slave_kind") == "bridge" else "",
            kind,
        )
    return found


def _tunnel(kind: str, data: Mapping[str, Any]) -> Tunnel:
    def address(*names: str) -> str:
        found = next((str(data[name]) for name in names if data.get(name)), "")
        return "" if found in ("any", "0.0.0.0", "::") else found

    return Tunnel(
        kind,
        int(data.get("id") or data.get("vni") or 0),
        address("local", "local6"),
        address("remote", "remote6", "group", "group6"),
        int(data.get("port") or _PORTS.get(kind, 0)),
        bool(data.get("external") or data.get("collect_metadata")),
    )


def parse_neighbours(entries: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], str]:
    """Reads `ip -json neigh show`: MAC address by device and IP address, of the neighbours whose address the kernel
    takes for valid.

    A packet to one of these is sent at once. One to another neighbour waits until that has answered (ARP, neighbour
    discovery), or until it has not for three seconds.
    """
    return {
        (str(entry["dev"]), str(entry["dst"])): str(entry["lladdr"])
        for entry in entries
        if entry.get("lladdr") and VALID.intersection(entry.get("state") or ())
    }


def parse_fdb(entries: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Reads `bridge -json fdb show`: the tunnel endpoint by device and MAC address, of tunnels."""
    found: dict[str, dict[str, str]] = {}
    for entry in entries:
        if entry.get("dst"):
            found.setdefault(str(entry.get("ifname", "")), {})[str(entry["mac"])] = str(entry["dst"])
    return found


def parse_learned(entries: Sequence[Mapping[str, Any]]) -> dict[str, frozenset[str]]:
    """Reads the same: the MAC addresses that a bridge found behind each of its ports."""
    found: dict[str, set[str]] = {}
    for entry in entries:
        if not entry.get("dst") and entry.get("master") and entry.get("state") != "permanent":
            found.setdefault(str(entry.get("ifname", "")), set()).add(str(entry["mac"]))
    return {port: frozenset(macs) for port, macs in found.items()}
