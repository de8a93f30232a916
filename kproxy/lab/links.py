"""Reading the links of a namespace, its neighbours and its FDB; `kproxy.cluster.facts.links` understands them."""

from __future__ import annotations

from kproxy.cluster.facts.links import Link, parse_fdb, parse_links, parse_neighbours
from kproxy.linux.host.facts import read_json
from kproxy.linux.namespace import Namespace


def read_links(netns: str) -> dict[str, Link]:
    """The links of a namespace by name. Raises LinuxError."""
    with Namespace.named(netns) as inside:
        return parse_links(read_json(inside, "ip", "-json", "-details", "link", "show"))


def read_neighbours(netns: str) -> dict[tuple[str, str], str]:
    """The neighbours that the kernel takes for known, as `parse_neighbours`. Raises LinuxError."""
    with Namespace.named(netns) as inside:
        return parse_neighbours(
            [item for family in ("-4", "-6") for item in read_json(inside, "ip", "-json", family, "neigh", "show")]
        )


def read_fdb(netns: str) -> dict[str, dict[str, str]]:
    """The tunnel endpoints by device and MAC address. Raises LinuxError."""
    with Namespace.named(netns) as inside:
        return parse_fdb(read_json(inside, "bridge", "-json", "fdb", "show"))
