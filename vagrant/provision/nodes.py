"""Make the Node objects of a cluster, which `kproxy overlay` reads: `nodes.py KUBECONFIG NAME=ADDRESS...`.

The Nth node has fd00:10:56::N beside its address, and its pods have 10.244.N.0/24 and fd00:10:244:N::/64. A Node that
is there already stays as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from kproxy.client import ApiError, RestClient, load_client_config
from kproxy.client.resources import NODES
from kproxy.errors import KproxyError


def node(number: int, name: str, address: str) -> dict[str, object]:
    """The object of the Nth node, which has an address."""
    cidrs = [f"10.244.{number}.0/24", f"fd00:10:244:{number}::/64"]
    addresses = [("InternalIP", address), ("InternalIP", f"fd00:10:56::{number}"), ("Hostname", name)]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {"podCIDR": cidrs[0], "podCIDRs": cidrs},
        "status": {"addresses": [{"type": kind, "address": value} for kind, value in addresses]},
    }


def main(arguments: Sequence[str]) -> int:
    """Make them; the exit code."""
    if len(arguments) < 2 or not all("=" in pair for pair in arguments[1:]):
        sys.stderr.write("usage: nodes.py KUBECONFIG NAME=ADDRESS...\n")
        return 2
    try:
        client = RestClient(load_client_config(arguments[0]))
        for number, pair in enumerate(arguments[1:], 1):
            name, _, address = pair.partition("=")
            try:
                client.create(NODES, node(number, name, address))
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
    except KproxyError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
