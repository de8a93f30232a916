"""What libraries must not do to a process that uses them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.kernel.namespaces import fresh_namespace

SCRIPT = """
import signal, sys, time

def ended(number, frame):
    print("the handler ran in the library's child", flush=True)
    raise SystemExit

signal.signal(signal.SIGTERM, ended)
from kproxy.linux.lazy_import import load
from kproxy.linux.host.facts import interface_addresses
from kproxy.linux.namespace import Namespace
from kproxy.services.names import IPFamily
sockets = load("pyroute2.process").socket
send = sockets.send_fds

def send_and_linger(*arguments):  # the child, when its parent has all it wants and ends it
    send(*arguments)
    time.sleep(0.3)

sockets.send_fds = send_and_linger
with Namespace.named(sys.argv[1]) as namespace:
    print(interface_addresses(namespace, IPFamily.IPV4))
"""


@pytest.mark.root
def test_no_forked_child_of_a_library_continues_as_kproxy() -> None:
    """pyroute2 ends its child with SIGTERM: with our handler there, the child became a second kproxy."""
    with fresh_namespace() as name:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, name], capture_output=True, text=True, check=False, timeout=120
        )
    assert (done.stdout, done.stderr) == ("()\n", "")
