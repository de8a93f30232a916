"""Reading the links of a namespace, its neighbours and its FDB; `kproxy.cluster.facts.links` understands them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from kproxy.cluster.facts.links import Link, parse_fdb, parse_links, parse_neighbours
from kproxy.linux.errors import ToolFailedError
from kproxy.linux.namespace import Namespace
from kproxy.linux.process import run

_TIMEOUT: Final = 30.0


def read_links(netns: str) -> dict[str, Link]:
    """The links of a namespace by name. Raises LinuxError."""
    return parse_links(ip_json(netns, "-details", "link", "show"))


def read_neighbours(netns: str) -> dict[tuple[str, str], str]:
    """The neighbours that the kernel takes for known, as `parse_neighbours`. Raises LinuxError."""
    return parse_neighbours([*ip_json(netns, "-4", "neigh", "show"), *ip_json(netns, "-6", "neigh", "show")])


def read_fdb(netns: str) -> dict[str, dict[str, str]]:
    """The tunnel endpoints by device and MAC address. Raises LinuxError."""
    with Namespace.named(netns) as inside:
        return parse_fdb(_json(inside, ["bridge", "-json", "fdb", "show"]))


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
