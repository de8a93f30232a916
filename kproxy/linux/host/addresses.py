"""The addresses that a namespace's interfaces have; nodePortAddresses is matched against them."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from kproxy.linux.errors import LinuxError, NamespaceError
from kproxy.linux.lazy_import import load
from kproxy.linux.namespace import Namespace
from kproxy.services.names import IPFamily


def interface_addresses(namespace: Namespace, family: IPFamily) -> tuple[str, ...]:
    """The addresses of one family, in the order of interfaces: loopback first.

    Raises:
        LinuxError: they cannot be read.
    """
    number = socket.AF_INET6 if family.is_ipv6 else socket.AF_INET
    try:
        # flags=0: a missing namespace is an error, not something to make.
        with load("pyroute2").IPRoute(netns=namespace.netns, flags=0) as route:
            entries = list(route.get_addr(family=number))
    except FileNotFoundError as error:
        raise NamespaceError(f"{namespace.label} is not there") from error
    except (OSError, load("pyroute2.netlink.exceptions").NetlinkError) as error:
        raise LinuxError(f"cannot read the interface addresses of {namespace.label}: {error}") from error
    found = []
    for entry in sorted(entries, key=lambda entry: int(entry["index"])):
        attributes = dict(entry["attrs"])
        # On a point-to-point interface IFA_ADDRESS is the peer's (rtnetlink(7)).
        address = attributes.get("IFA_LOCAL") or attributes.get("IFA_ADDRESS")
        if address:
            found.append(str(address))
    return tuple(dict.fromkeys(found))


def is_this_node(addresses: Sequence[str], node_ip: str) -> bool:
    """Whether a namespace with these addresses is the node with this IP, so that its addresses are the node's.

    A fresh namespace has none but loopback: then what the Node object tells is the better source. A node IP that is a
    loopback address means that it is unknown; then any address but loopback will do.
    """
    if node_ip in ("127.0.0.1", "::1"):
        return any(not address.startswith(("127.", "fe80:")) and address != "::1" for address in addresses)
    return node_ip in addresses
