"""Make the Node objects of a cluster, which `kproxy overlay` reads: `nodes.py KUBECONFIG SECONDS NAME=ADDRESS...`.

The Nth node has fd00:10:56::N beside its address, and its pods have 10.244.N.0/24 and fd00:10:244:N::/64. A Node that
is there already stays as it is. An API server that does not answer yet is asked again until SECONDS are over: by one
process, because to start Python takes seconds on an emulated processor.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

from kproxy.client import NODES, ApiError, RestClient, TransportError, load_client_config
from kproxy.errors import KproxyError

USAGE = "usage: nodes.py KUBECONFIG SECONDS NAME=ADDRESS..."
PAUSE = 0.5


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


def patiently(ask: Callable[[], object], seconds: float) -> None:
    """Ask until there is an answer.

    Raises:
        KproxyError: there was none in time, or one that time does not change: 401, say.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            ask()
            return
        except (TransportError, ApiError) as error:
            may_come = isinstance(error, TransportError) or error.code >= 500
            if not may_come or time.monotonic() > deadline:
                raise
        time.sleep(PAUSE)


def create(client: RestClient, body: dict[str, object]) -> None:
    """Make a Node unless it is there."""
    try:
        client.create(NODES, body)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise


def main(arguments: Sequence[str]) -> int:
    """Make them; the exit code."""
    pairs = [pair.partition("=") for pair in arguments[2:]]
    if not pairs or not arguments[1].isdecimal() or not all(name and address for name, _, address in pairs):
        sys.stderr.write(f"{USAGE}\n")
        return 2
    try:
        client = RestClient(load_client_config(arguments[0]))
        for number, (name, _, address) in enumerate(pairs, 1):
            patiently(partial(create, client, node(number, name, address)), float(arguments[1]))
    except KproxyError as error:
        sys.stderr.write(f"nodes.py: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
