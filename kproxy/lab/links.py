"""The links of a namespace, as far as one must know them to say where a frame goes: peers, VXLAN, neighbours, FDB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from kproxy.linux.errors import ToolFailedError
from kproxy.linux.namespace import Namespace
from kproxy.linux.process import run

_TIMEOUT: Final = 30.0
_VALID: Final = frozenset(("PERMANENT", "NOARP", "REACHABLE", "STALE", "DELAY", "PROBE"))
"""States of a neighbour whose address is known, so that a packet is sent at once (NUD_VALID, net/neighbour.h)."""


class Vxlan(msgspec.Struct, frozen=True):
    """A VXLAN link: its identifier, its own underlay address and its UDP port."""

    vni: int
    local: str
    port: int


class Link(msgspec.Struct, frozen=True):
    """A link. `peer` is the interface number of a veth's other end, in that end's namespace; `carrier` is False where
    that end is down; `bridge` is the bridge that it is a port of."""

    name: str
    index: int
    mac: str
    up: bool
    mtu: int
    peer: int = 0
    vxlan: Vxlan | None = None
    carrier: bool = True
    bridge: str = ""
    is_bridge: bool = False


def read_links(netns: str) -> dict[str, Link]:
    """The links of a namespace by name. Raises LinuxError."""
    found = {}
    for entry in ip_json(netns, "-details", "link", "show"):
        info = entry.get("linkinfo") or {}
        data = info.get("info_data") or {}
        vxlan = None
        if info.get("info_kind") == "vxlan":
            vxlan = Vxlan(int(data["id"]), str(data.get("local") or data.get("local6") or ""), int(data["port"]))
        found[str(entry["ifname"])] = Link(
            str(entry["ifname"]),
            int(entry["ifindex"]),
            str(entry.get("address", "")),
            "UP" in entry.get("flags", ()),
            int(entry.get("mtu", 0)),
            int(entry.get("link_index") or 0),
            vxlan,
            "NO-CARRIER" not in entry.get("flags", ()),
            str(entry.get("master", "")),
            info.get("info_kind") == "bridge",
        )
    return found


def read_neighbours(netns: str) -> dict[tuple[str, str], str]:
    """MAC address by device and IP address, of the neighbours whose address the kernel takes for valid.

    A packet to one of these is sent at once. One to another neighbour waits until that has answered (ARP, neighbour
    discovery), or until it has not for three seconds.

    Raises:
        LinuxError: they cannot be read.
    """
    found = {}
    for entry in (*ip_json(netns, "-4", "neigh", "show"), *ip_json(netns, "-6", "neigh", "show")):
        if entry.get("lladdr") and _VALID.intersection(entry.get("state") or ()):
            found[str(entry["dev"]), str(entry["dst"])] = str(entry["lladdr"])
    return found


def read_fdb(netns: str, device: str) -> dict[str, str]:
    """The tunnel endpoint by MAC address, of a VXLAN link. Raises LinuxError."""
    with Namespace.named(netns) as inside:
        entries = _json(inside, ["bridge", "-json", "fdb", "show", "dev", device])
    return {str(entry["mac"]): str(entry["dst"]) for entry in entries if entry.get("dst")}


def ip_json(netns: str, *arguments: str) -> Sequence[Mapping[str, Any]]:
    """What `ip -json` prints inside a namespace. Raises LinuxError."""
    with Namespace.named(netns) as inside:
        return _json(inside, ["ip", "-json", *arguments])


def _json(namespace: Namespace, command: Sequence[str]) -> Sequence[Mapping[str, Any]]:
    done = run(namespace, command, timeout=_TIMEOUT)
    if done.code:
        raise ToolFailedError(f"{' '.join(command)} failed in {namespace.label}: {done.stderr.strip()}")
    try:
        found = msgspec.json.decode(done.stdout or "[]", type=list[dict[str, Any]])
    except msgspec.DecodeError as error:
        raise ToolFailedError(f"{' '.join(command)} printed something else than JSON: {error}") from error
    return [item for item in found if item]
