"""Namespaces and links of the fabric, the nodes and the client outside.

    client ──eth0── outside ┐                     ┌ node-1 ──eth0── node-1
                            ├ fabric (a router) ──┤ node-2 ──eth0── node-2    `fabric` is a bridge
                            ┘                     └ ...

Everything is said to `ip -batch`, a whole namespace at a time. IPv6 addresses skip duplicate address detection, which
would hold them back for a second. It says how links shall be, without a look at how they are (`lab.links` reads them).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from kproxy.lab.errors import LabError
from kproxy.lab.spec import FABRIC, PREFIX, LabSpec, NodePlan, family_of, lab_of, with_prefix
from kproxy.linux.errors import LinuxError
from kproxy.linux.namespace import NETNS_DIRECTORY, Namespace
from kproxy.linux.process import run
from kproxy.linux.sysctl import write_sysctl

OUTSIDE: Final = "outside"
"""The fabric's interface towards the client."""
_TIMEOUT: Final = 60.0
# ICMP errors are part of what a lab shows; the limit of one a second and host would hide most.
_CHATTY: Final = {"net.ipv4.icmp_ratelimit": 0, "net.ipv6.icmp.ratelimit": 0}
_ROUTER: Final = {
    **_CHATTY,
    "net.ipv4.ip_forward": 1,
    "net.ipv6.conf.all.forwarding": 1,
    "net.ipv4.conf.all.rp_filter": 0,
    "net.ipv4.conf.default.rp_filter": 0,
    "net.ipv6.conf.all.accept_dad": 0,
    "net.ipv6.conf.default.accept_dad": 0,
    "net.ipv4.conf.all.send_redirects": 0,
    "net.ipv4.conf.default.send_redirects": 0,
}
_NODE: Final = {
    **_ROUTER,
    # A pod reaches a pod of its own node through a ClusterIP only if bridged packets pass through iptables.
    "net.bridge.bridge-nf-call-iptables": 1,
    "net.bridge.bridge-nf-call-ip6tables": 1,
}
_HOST: Final = {**_CHATTY, "net.ipv6.conf.all.accept_dad": 0, "net.ipv6.conf.default.accept_dad": 0}


def build_network(spec: LabSpec) -> None:
    """Makes the fabric, the client and the first nodes.

    Raises:
        LabError: the kernel refused something.
    """
    plans = list(spec.node_plans())
    names = [spec.fabric, spec.client, *(plan.namespace for plan in plans)]
    _batch(None, [f"netns add {name}" for name in names])
    _settings(spec.fabric, _ROUTER)
    _batch(
        spec.fabric,
        [
            "link set lo up",
            f"link add {FABRIC} type bridge",
            f"link set {FABRIC} up",
            *_addresses(FABRIC, spec.gateways),
            f"link add {OUTSIDE} type veth peer name eth0 netns {spec.client}",
            f"link set {OUTSIDE} up",
            *_addresses(OUTSIDE, spec.outside_gateways),
        ],
    )
    _settings(spec.client, _HOST)
    _set_up_link(spec.client, spec.client_addresses, spec.outside_gateways)
    _batch(spec.fabric, [line for plan in plans for line in _plug(plan)])
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda plan: _set_up_node(spec, plan), plans))


def add_node(spec: LabSpec, plan: NodePlan) -> None:
    _batch(None, [f"netns add {plan.namespace}"])
    _batch(spec.fabric, _plug(plan))
    _set_up_node(spec, plan)


def set_node_link(spec: LabSpec, node: str, up: bool) -> None:
    """Pulls or puts back the fabric's end of a node's cable. Raises LabError."""
    _batch(spec.fabric, [f"link set {node} {'up' if up else 'down'}"])


def remove_node(spec: LabSpec, plan: NodePlan) -> None:
    """Takes a node away: its cable, the routes to its pods, its namespace. Raises LabError."""
    _batch(spec.fabric, [f"link delete {plan.name}"], force=True)
    _batch(
        spec.fabric,
        [f"route delete {cidr} via {own}" for own, cidr in zip(plan.addresses, plan.pod_cidrs, strict=True)],
        force=True,
    )
    delete_namespaces([plan.namespace])


def delete_namespaces(names: Iterable[str]) -> None:
    """Deletes namespaces; those that are not there do no harm. Raises LabError."""
    there = [name for name in names if os.path.exists(os.path.join(NETNS_DIRECTORY, name))]
    if there:
        _batch(None, [f"netns delete {name}" for name in there], force=True)


def lab_namespaces(name: str) -> list[str]:
    """The namespaces of a lab that there are now, pods first."""
    found = [namespace for namespace, lab in _labs_of_namespaces().items() if lab == name]
    return sorted(found, key=lambda item: (not item.startswith(f"{PREFIX}{name}-p-"), item))


def stray_labs() -> set[str]:
    """The names of labs of which there are namespaces."""
    return {*_labs_of_namespaces().values()}


def _labs_of_namespaces() -> dict[str, str]:
    try:
        return {name: lab for name in os.listdir(NETNS_DIRECTORY) if (lab := lab_of(name))}
    except FileNotFoundError:
        return {}


def _plug(plan: NodePlan) -> list[str]:
    return [
        f"link add {plan.name} type veth peer name eth0 netns {plan.namespace}",
        f"link set {plan.name} master {FABRIC}",
        f"link set {plan.name} up",
        # As the networks of clouds do: what is outside of the cluster reaches pods by their addresses.
        *(f"route add {cidr} via {own}" for own, cidr in zip(plan.addresses, plan.pod_cidrs, strict=True)),
    ]


def _set_up_node(spec: LabSpec, plan: NodePlan) -> None:
    _settings(plan.namespace, _NODE)
    _set_up_link(plan.namespace, plan.addresses, spec.gateways)


def _set_up_link(namespace: str, addresses: Sequence[str], gateways: Sequence[str]) -> None:
    """The one link of a host, with these addresses and default gateways."""
    routes = [f"route add default via {item}" for item in gateways]
    _batch(namespace, ["link set lo up", "link set eth0 up", *_addresses("eth0", addresses), *routes])


def _addresses(device: str, addresses: Sequence[str]) -> list[str]:
    # IPv4 has no duplicate address detection, and `ip` refuses the flag.
    return [f"address add {with_prefix(a)} dev {device}{' nodad' if family_of(a) == 6 else ''}" for a in addresses]


def set_up_pod(namespace: str) -> None:
    """The settings of a new pod's namespace. Raises LabError, LinuxError."""
    _settings(namespace, _HOST)


def _settings(namespace: str, values: dict[str, int]) -> None:
    with Namespace.named(namespace) as inside:
        for name, value in values.items():
            try:
                write_sysctl(inside, name, value)
            except LinuxError as error:
                if name.startswith("net.bridge."):
                    raise LabError(
                        f"{error}; pods reach pods of their node through Services only with the kernel's br_netfilter: "
                        "`modprobe br_netfilter`"
                    ) from error
                if ".accept_dad" not in name and "ratelimit" not in name:
                    raise


def _batch(namespace: str | None, lines: Sequence[str], *, force: bool = False) -> None:
    command = ["ip", *(["-n", namespace] if namespace else []), *(["-force"] if force else []), "-batch", "-"]
    with Namespace.current() as here:
        done = run(here, command, text="".join(f"{line}\n" for line in lines), timeout=_TIMEOUT)
    if done.code and not force:
        where = f" in namespace {namespace}" if namespace else ""
        raise LabError(f"`ip` failed{where}: {done.stderr.strip()}")
